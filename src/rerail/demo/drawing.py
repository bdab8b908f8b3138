"""The run as a tree that a dozen steps fit into, each with a word on what became of it.

Every step stands once, under the last of the steps it needs; the needs that this leaves out stand beside it. What is
implied by a longer way is left out altogether.
"""

from __future__ import annotations

from collections.abc import Mapping

from rich.text import Text

from rerail.cli.output import Output
from rerail.cli.style import icon
from rerail.core.graph import Graph
from rerail.demo.narrator import hang


def draw(out: Output, graph: Graph, notes: Mapping[str, Text]) -> None:
    """Print the tree; notes are by step id and stand in a column of their own."""
    drawn = _lines(out, graph)
    width = max(line.cell_len for line, _ in drawn) + 3
    for line, step in drawn:
        if step in notes:
            hang(out, line.append(" " * (width - line.cell_len)), notes[step])
        else:
            out.print(line)


def _lines(out: Output, graph: Graph) -> list[tuple[Text, str]]:
    direct = _direct(graph)
    under: dict[int | None, list[int]] = {}
    for at, needs in enumerate(direct):
        # The longest way comes first, so that short ones do not hang below it.
        under.setdefault(needs[0] if needs else None, []).append(at)
    lines: list[tuple[Text, str]] = []
    stack = [(at, "  ", "  ") for at in reversed(under[None])]
    while stack:
        at, lead, below = stack.pop()
        lines.append((_line(out, graph, at, direct[at][1:], lead), graph.nodes[at].id))
        children = under.get(at, [])
        for place, child in reversed(list(enumerate(children))):
            last = place == len(children) - 1
            stack.append((child, below + ("└─ " if last else "├─ "), below + ("   " if last else "│  ")))
    return lines


def _line(out: Output, graph: Graph, at: int, others: list[int], lead: str) -> Text:
    node = graph.nodes[at]
    line = Text(lead, "dim").append_text(icon(node.status, fancy=out.fancy)).append(f" {node.id}", "bold")
    if others:
        line.append(f" + {', '.join(graph.nodes[other].id for other in others)}", "dim")
    return line


def _direct(graph: Graph) -> list[list[int]]:
    """Each step's needs without those that another of its needs implies; the one with the longest way first."""
    above: list[set[int]] = [set() for _ in graph.nodes]
    for layer in graph.layers():
        for at in layer:
            for need, _ in graph.nodes[at].needs:
                above[at] |= {need, *above[need]}
    found = []
    for node in graph.nodes:
        needs = dict.fromkeys(need for need, _ in node.needs)
        kept = [need for need in needs if not any(need in above[other] for other in needs)]
        found.append(sorted(kept, key=lambda need: -graph.nodes[need].layer))
    return found
