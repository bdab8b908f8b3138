"""A plan as a graph: the steps, their needs, and the layer of each.

Rules of this file:
- All work is O(V+E), and nothing recurses: plans may be deep.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from rerail.kernel.state import State
from rerail.kernel.verdict import status_of
from rerail.plan.model import Plan
from rerail.plan.step import full_needs, names_of


@dataclass(slots=True)
class Node:
    """A step as a node of a drawing."""

    id: str
    tool: str
    title: str = ""
    status: str = ""  # empty for a plan without a run
    needs: list[tuple[int, str]] = field(default_factory=list)  # (node, when)
    out: list[int] = field(default_factory=list)
    layer: int = 0


class Graph:
    """The steps and their needs. The layer of a step is the length of its longest path from a root."""

    def __init__(self, nodes: list[Node]) -> None:
        self.nodes = nodes
        for at, node in enumerate(nodes):
            for need, _ in node.needs:
                nodes[need].out.append(at)
        self._place()

    @classmethod
    def of_plan(cls, plan: Plan) -> Graph:
        names = names_of(plan.steps)
        index = {step.id: at for at, step in enumerate(plan.steps)}
        nodes = []
        for step in plan.steps:
            needs = [(index[need.step], str(need.when)) for need in full_needs(step, names)]
            nodes.append(Node(step.id, step.tool, step.title, needs=needs))
        return cls(nodes)

    @classmethod
    def of_state(cls, state: State) -> Graph:
        index = {track.n: at for at, track in enumerate(state.tracks.values())}
        nodes = []
        for track in state.tracks.values():
            needs = [(index[need.n], str(when)) for need, when in track.needs]
            tool = track.call.tool if track.call is not None else track.step.tool
            nodes.append(Node(track.id, tool, track.step.title, str(status_of(state, track)[0]), needs))
        return cls(nodes)

    def _place(self) -> None:
        missing = [len(node.needs) for node in self.nodes]
        free = [at for at, count in enumerate(missing) if count == 0]
        for at in free:
            for target in self.nodes[at].out:
                self.nodes[target].layer = max(self.nodes[target].layer, self.nodes[at].layer + 1)
                missing[target] -= 1
                if missing[target] == 0:
                    free.append(target)

    def layers(self) -> list[list[int]]:
        """Return the nodes by layer, each in plan order."""
        found: list[list[int]] = [[] for _ in range(max((node.layer for node in self.nodes), default=-1) + 1)]
        for at, node in enumerate(self.nodes):
            found[node.layer].append(at)
        return found

    def measures(self) -> tuple[int, int]:
        """Return the number of layers, and the size of the widest."""
        layers = self.layers()
        return len(layers), max(map(len, layers), default=0)

    def to_dict(self) -> dict[str, Any]:
        nodes = [
            {"id": n.id, "tool": n.tool, "title": n.title or None, "status": n.status or None, "layer": n.layer}
            for n in self.nodes
        ]
        edges = [
            {"from": self.nodes[need].id, "to": node.id, "when": when}
            for node in self.nodes
            for need, when in node.needs
        ]
        return {"nodes": nodes, "edges": edges}
