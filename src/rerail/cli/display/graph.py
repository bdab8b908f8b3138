"""A plan's graph for people: a text tree, Mermaid.

Rules of this file:
- Nothing recurses: plans may be deep.
- Labels are untrusted; each form escapes them in its own way.
"""

from __future__ import annotations

from collections.abc import Mapping

from rich.text import Text

from rerail.cli.output import Output, one_line
from rerail.cli.style import fitted, icon, style_of
from rerail.views.graph import Graph, Node

DEEPEST_TREE = 24  # a deeper tree would not fit the screen; it is listed by layers


# -- As text ------------------------------------------------------------------------------------------------------


def tree(graph: Graph, out: Output, notes: Mapping[str, Text] | None = None) -> list[Text]:
    """Return the steps as a tree, each under its first need; where ways join, the step is referred to.

    A note stands beside its step, in place of the step's title or tool.
    """
    if graph.measures()[0] > DEEPEST_TREE:
        return by_layers(graph, out)
    lines: list[Text] = []
    seen: set[int] = set()
    fork, last, bar = ("├─ ", "└─ ", "│  ") if out.fancy else ("|- ", "`- ", "|  ")
    roots = [at for at, node in enumerate(graph.nodes) if not node.needs]
    stack = [(at, "", "") for at in reversed(roots)]
    while stack:
        at, lead, below = stack.pop()
        again = at in seen
        lines.append(Text(lead, "dim").append_text(_label(graph, at, out, notes or {}, again=again)))
        if again:
            continue
        seen.add(at)
        children = list(dict.fromkeys(graph.nodes[at].out))
        for child in reversed(children):
            final = child == children[-1]
            stack.append((child, below + (last if final else fork), below + ("   " if final else bar)))
    return lines


def _label(graph: Graph, at: int, out: Output, notes: Mapping[str, Text], *, again: bool) -> Text:
    node = graph.nodes[at]
    name = fitted(one_line(node.id), 48)
    if again:
        return Text(f"→ {name} ↑", "dim")
    label = Text()
    if node.status:
        label.append_text(icon(node.status, fancy=out.fancy))
        label.append(" ")
    label.append(name, style_of(node.status) if node.status in ("failed", "in_doubt") else "bold")
    note = notes.get(node.id) or Text(fitted(one_line(node.title or node.tool), 48), "dim")
    label.append("  ").append_text(note)
    odd = [f"{graph.nodes[need].id} ({when})" if when != "success" else graph.nodes[need].id
           for need, when in node.needs]  # fmt: skip
    if len(node.needs) > 1 or any(when != "success" for _, when in node.needs):
        shown = ", ".join(fitted(one_line(name), 32) for name in odd[:6]) + (" …" if len(odd) > 6 else "")
        label.append(f"  ← {shown}", "dim")
    return label


def by_layers(graph: Graph, out: Output) -> list[Text]:
    """Return the steps layer by layer, for plans too deep for a tree."""
    lines = []
    for number, layer in enumerate(graph.layers(), 1):
        line = Text(f"{number:>5}  ", "dim")
        for at in layer[:20]:
            node = graph.nodes[at]
            if node.status:
                line.append_text(icon(node.status, fancy=out.fancy))
                line.append(" ")
            line.append(fitted(one_line(node.id), 32) + "  ")
        if len(layer) > 20:
            line.append(out.say("cli.live.more", count=len(layer) - 20), "dim")
        line.rstrip()
        lines.append(line)
    return lines


# -- As Mermaid ---------------------------------------------------------------------------------------------------

# Fill, line and letters of each status.
COLORS: dict[str, tuple[str, str, str]] = {
    "": ("#eef2f7", "#64748b", "#0f172a"),
    "pending": ("#f8fafc", "#94a3b8", "#475569"),
    "ready": ("#f8fafc", "#64748b", "#334155"),
    "running": ("#dbeafe", "#2563eb", "#1e3a8a"),
    "waiting": ("#fef9c3", "#ca8a04", "#713f12"),
    "succeeded": ("#dcfce7", "#16a34a", "#14532d"),
    "degraded": ("#fef3c7", "#d97706", "#78350f"),
    "failed": ("#fee2e2", "#dc2626", "#7f1d1d"),
    "skipped": ("#f3e8ff", "#9333ea", "#581c87"),
    "in_doubt": ("#ffedd5", "#ea580c", "#7c2d12"),
    "cancelled": ("#e5e7eb", "#6b7280", "#374151"),
}


def mermaid(graph: Graph) -> str:
    lines = ["flowchart LR"]
    for at, node in enumerate(graph.nodes):
        lines.append(f'  n{at}["{_mermaid_label(node)}"]' + (f":::{node.status}" if node.status else ""))
    for at, node in enumerate(graph.nodes):
        for need, when in node.needs:
            lines.append(f"  n{need} --> n{at}" if when == "success" else f"  n{need} -. {when} .-> n{at}")
    for status in dict.fromkeys(node.status for node in graph.nodes):
        if status:
            fill, line, letters = COLORS[status]
            lines.append(f"  classDef {status} fill:{fill},stroke:{line},color:{letters}")
    return "\n".join(lines)


def _mermaid_label(node: Node) -> str:
    name, what = _escaped(one_line(node.id, 60)), _escaped(one_line(node.title or node.tool, 60))
    return f"{name}<br/>{what}" if what and what != name else name


def _escaped(text: str) -> str:
    """Escape all but letters, digits and the plainest signs as character codes, which no parser reads as syntax."""
    return "".join(sign if sign.isalnum() or sign in " _-.,:/…" else f"#{ord(sign)};" for sign in text)
