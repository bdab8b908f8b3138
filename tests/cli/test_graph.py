"""`rerail graph`: a text tree and Mermaid, of a run or a plan."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable
from typing import Any

import pytest
from tests.cli.conftest import Here

from rerail.cli.display.graph import by_layers, mermaid, tree
from rerail.cli.output import Output
from rerail.views.graph import Graph, Node

DIAMOND: tuple[dict[str, Any], ...] = (
    {"id": "a", "tool": "ok"},
    {"id": "b", "tool": "fail", "needs": ["a"]},
    {"id": "c", "tool": "ok", "needs": ["a"]},
    {"id": "d", "tool": "ok", "needs": ["b", "c"]},
    {"id": "e", "tool": "ok", "needs": [{"step": "b", "when": "failure"}]},
)


def nodes(*needs: list[int]) -> list[Node]:
    return [Node(f"s{at}", "tool", needs=[(need, "success") for need in wanted]) for at, wanted in enumerate(needs)]


def test_a_tree_shows_each_step_once(here: Here) -> None:
    """SPEC 12: joins are shown once and referred to where they come again, with what each step is now."""
    run = here.run(*DIAMOND, code=1)
    shown = here("graph", run, code=0).out.splitlines()
    assert shown == [
        "✓ a  ok",
        "├─ ✗ b  fail",
        "│  ├─ ⊘ d  ok  ← b, c",
        "│  └─ ✓ e  ok  ← b (failure)",
        "└─ ✓ c  ok",
        "   └─ → d ↑",
    ]


def test_a_plan_is_drawn_without_status(here: Here) -> None:
    """SPEC 12: a plan file is drawn as well; one with faults is refused with all of them."""
    plan = here.place.plan(*DIAMOND)
    assert here("graph", plan, code=0).out.startswith("a  ok\n├─ b  fail\n")
    broken = here.place.plan({"id": "a", "tool": "ok", "needs": ["b"]}, {"id": "b", "tool": "ok", "needs": ["a"]})
    assert "a → b → a" in here("graph", broken, code=2).err


def test_mermaid_escapes_labels(here: Here) -> None:
    """M4: no id or title can end its label, open a tag or start a comment."""
    steps = [{"id": 'x"] --> y["', "tool": "ok", "title": "<img src=x> %% #lt;"}, {"id": "步骤", "tool": "ok"}]
    text = here("graph", here.place.plan(*steps), "--mermaid", code=0).out
    lines = text.splitlines()
    assert lines[0] == "flowchart LR"
    assert len(lines) == 3
    label = lines[1].removeprefix('  n0["').removesuffix('"]')
    assert not set('"<>[]%') & set(label.replace("<br/>", ""))
    assert "步骤" in lines[2]


def test_mermaid_tells_status_and_kind_of_need(here: Here) -> None:
    """SPEC 12: each status is a class, a need that is not for success is dashed and named."""
    text = here("graph", here.run(*DIAMOND, code=1), "--mermaid", code=0).out
    assert 'n1["b<br/>fail"]:::failed' in text
    assert "n1 -. failure .-> n4" in text
    assert "classDef failed fill:" in text


def test_a_graph_is_not_drawn_as_svg(here: Here) -> None:
    """SPEC 12: an option of earlier versions is refused, with what to do instead."""
    failed = here("graph", here.place.plan(*DIAMOND), "--svg", code=2)
    assert "--svg" in failed.err
    assert "--mermaid" in failed.err


def test_layers_are_the_longest_ways() -> None:
    """P6: a step stands behind everything it needs."""
    graph = Graph(nodes([], [0], [0, 1], [2], [0], []))
    assert [node.layer for node in graph.nodes] == [0, 1, 2, 3, 1, 0]
    assert graph.measures() == (4, 2)


def test_deep_plans_are_listed_by_layers() -> None:
    """P6: ten thousand steps in a row are drawn without recursion, as layers."""
    graph = Graph(nodes([], *([at] for at in range(9_999))))
    with Output() as out:
        lines = tree(graph, out)
        assert lines == by_layers(graph, out)
    assert len(lines) == 10_000
    assert lines[-1].plain.strip() == "10000  s9999"


@pytest.mark.parametrize("shape", ["chain", "fan", "random", "ladder"])
def test_two_thousand_steps_are_drawn_at_once(shape: str) -> None:
    """P6: layout is linear: two thousand steps take a moment in any shape."""
    chance = random.Random(1)
    shapes: dict[str, Callable[[int], list[int]]] = {
        "chain": lambda at: [at - 1] if at else [],
        "fan": lambda at: [0] if at else [],
        "random": lambda at: sorted({chance.randrange(at) for _ in range(3)}) if at else [],
        "ladder": lambda at: [at - 1, *([0] if at > 1 else [])] if at else [],
    }
    graph = Graph(nodes(*(shapes[shape](at) for at in range(2_000))))
    begun = time.process_time()
    assert mermaid(graph).count("-->") == sum(len(node.needs) for node in graph.nodes)
    assert time.process_time() - begun < 2.0


def test_the_graph_as_data(here: Here) -> None:
    """I7: nodes with status and layer, edges with their kind."""
    found = here("graph", here.run(*DIAMOND, code=1), "--json", code=0).json
    assert {node["id"]: node["status"] for node in found["nodes"]}["b"] == "failed"
    assert {"from": "b", "to": "e", "when": "failure"} in found["edges"]
    assert json.dumps(found)
