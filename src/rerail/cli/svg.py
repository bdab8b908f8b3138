"""A graph as SVG: longest-path layers from left to right, each layer ordered by where its neighbours stand.

Rules of this file:
- A fixed number of passes, each as long as the graph with its edges cut at every layer they cross; where that would
  be many times the graph itself, long edges are drawn straight. Two thousand steps take a fraction of a second.
- Labels are untrusted: they are escaped, and what XML does not allow is left out.
"""

from __future__ import annotations

import unicodedata
from html import escape

from rerail.cli.graph import COLORS
from rerail.cli.output import one_line
from rerail.core.graph import Graph, Node

PASSES = 6
BOX_WIDTH, BOX_HEIGHT = 172, 40
COLUMN, ROW, GAP = 244, 56, 18  # a place that only an edge passes through takes a gap
MARGIN = 24
LETTERS = 22  # of a label, counting wide letters twice

OPENING = (
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" width="{width:g}" height="{height:g}" '
    'font-family="ui-sans-serif, system-ui, sans-serif" font-size="13" role="img">'
)
ARROW = (
    '<defs><marker id="arrow" viewBox="0 0 8 8" refX="7.5" refY="4" markerWidth="8" markerHeight="8" orient="auto">'
    '<path d="M0 0 8 4 0 8z" fill="#94a3b8"/></marker></defs>'
)


def svg(graph: Graph, title: str = "") -> str:
    """The graph as an SVG document."""
    layout = Layout(graph)
    parts = [
        OPENING.format(width=layout.width, height=layout.height),
        f"<title>{_text(title, 200)}</title>" if title else "",
        ARROW,
        '<rect width="100%" height="100%" fill="#ffffff"/>',
        '<g fill="none" stroke="#94a3b8" stroke-width="1.2" marker-end="url(#arrow)">',
    ]
    for at, node in enumerate(graph.nodes):
        parts += [_edge(layout.way(need, at), when) for need, when in node.needs]
    parts.append("</g>")
    parts += [_box(node, *layout.place(at)) for at, node in enumerate(graph.nodes)]
    parts.append("</svg>")
    return "\n".join(part for part in parts if part) + "\n"


# -- Where things stand -------------------------------------------------------------------------------------------


class Layout:
    """Where each step stands, and where the long edges pass.

    Spots are the steps, by their number, and behind them the places where an edge crosses a layer.
    """

    def __init__(self, graph: Graph) -> None:
        self._steps = len(graph.nodes)
        self._layers = graph.layers()
        self._before: list[list[int]] = [[] for _ in graph.nodes]
        self._behind: list[list[int]] = [[] for _ in graph.nodes]
        self._ways: dict[tuple[int, int], list[int]] = {}
        self._column = [node.layer for node in graph.nodes]
        self._cut_edges(graph)
        self._middles = [0.0] * len(self._before)  # how far a spot's middle is below the middle of its layer
        self._order()
        tallest = max((self._tall(layer) for layer in self._layers), default=0.0)
        self._centre = MARGIN + tallest / 2
        self.height = 2 * MARGIN + max(tallest, float(BOX_HEIGHT))
        self.width = float(2 * MARGIN + max(0, len(self._layers) - 1) * COLUMN + BOX_WIDTH)

    def place(self, step: int) -> tuple[float, float]:
        """The left upper corner of a step's box."""
        x, y = self._point(step)
        return x, y - BOX_HEIGHT / 2

    def way(self, start: int, end: int) -> list[tuple[float, float]]:
        """The points of an edge: the left middles of the spots on its way."""
        return [self._point(spot) for spot in (start, *self._ways[start, end], end)]

    def _point(self, spot: int) -> tuple[float, float]:
        return float(MARGIN + self._column[spot] * COLUMN), self._centre + self._middles[spot]

    def _cut_edges(self, graph: Graph) -> None:
        edges = [(need, at) for at, node in enumerate(graph.nodes) for need, _ in node.needs]
        crossings = sum(self._column[end] - self._column[start] - 1 for start, end in edges)
        few = crossings <= 2 * (len(graph.nodes) + len(edges))
        for start, end in edges:
            if (start, end) in self._ways:
                continue
            columns = range(self._column[start] + 1, self._column[end]) if few else range(0)
            spots = [self._spot(column) for column in columns]
            self._ways[start, end] = spots
            for left, right in zip((start, *spots), (*spots, end), strict=True):
                self._behind[left].append(right)
                self._before[right].append(left)

    def _spot(self, column: int) -> int:
        self._column.append(column)
        self._before.append([])
        self._behind.append([])
        self._layers[column].append(len(self._column) - 1)
        return len(self._column) - 1

    def _order(self) -> None:
        """Sort each layer by the mean of its neighbours: those to the left, then those to the right, a few times."""
        for layer in self._layers:
            self._settle(layer)
        for turn in range(PASSES):
            around = self._before if turn % 2 == 0 else self._behind
            for layer in self._layers if turn % 2 == 0 else reversed(self._layers):
                wanted = {spot: self._mean(around[spot], self._middles[spot]) for spot in layer}
                layer.sort(key=wanted.__getitem__)  # stable: what has no reason to move keeps the plan's order
                self._settle(layer)

    def _mean(self, spots: list[int], own: float) -> float:
        return sum(self._middles[spot] for spot in spots) / len(spots) if spots else own

    def _settle(self, layer: list[int]) -> None:
        top = -self._tall(layer) / 2
        for spot in layer:
            self._middles[spot] = top + self._room(spot) / 2
            top += self._room(spot)

    def _tall(self, layer: list[int]) -> float:
        return float(sum(self._room(spot) for spot in layer))

    def _room(self, spot: int) -> int:
        return ROW if spot < self._steps else GAP


# -- What is drawn ------------------------------------------------------------------------------------------------


def _edge(points: list[tuple[float, float]], when: str) -> str:
    """A smooth line from box to box, straight where it passes a layer."""
    x, y = points[0][0] + BOX_WIDTH, points[0][1]
    path = f"M{x:g} {y:g}"
    for left, (to_x, to_y) in enumerate(points[1:], 2 - len(points)):
        bend = (to_x - x) / 2
        path += f"C{x + bend:g} {y:g} {to_x - bend:g} {to_y:g} {to_x:g} {to_y:g}"
        x, y = to_x, to_y
        if left:
            x += BOX_WIDTH
            path += f"H{x:g}"
    if when == "success":
        return f'<path d="{path}"/>'
    return f'<path d="{path}" stroke-dasharray="5 4"><title>{escape(when)}</title></path>'


def _box(node: Node, x: float, y: float) -> str:
    fill, line, letters = COLORS.get(node.status, COLORS[""])
    tip = " · ".join(part for part in (node.id, node.title, node.tool, node.status) if part)
    middle = x + BOX_WIDTH / 2
    return (
        f"<g><title>{_text(tip, 300)}</title>"
        f'<rect x="{x:g}" y="{y:g}" width="{BOX_WIDTH}" height="{BOX_HEIGHT}" rx="7" fill="{fill}" stroke="{line}"/>'
        f'<text x="{middle:g}" y="{y + 17:g}" text-anchor="middle" fill="{letters}" font-weight="600">'
        f"{_text(node.id, LETTERS)}</text>"
        f'<text x="{middle:g}" y="{y + 32:g}" text-anchor="middle" fill="{letters}" font-size="11" opacity=".75">'
        f"{_text(node.title or node.tool, LETTERS + 4)}</text></g>"
    )


def _text(label: str, limit: int) -> str:
    """A label that fits and cannot be read as markup."""
    shown, room = "", limit
    for sign in one_line(label, 400):
        room -= 2 if unicodedata.east_asian_width(sign) in "WF" else 1
        if room < 0:
            shown = shown[:-1] + "…"
            break
        shown += sign
    return escape("".join(filter(_allowed, shown)))


def _allowed(sign: str) -> bool:
    """Whether XML knows the sign: surrogates and the two non-characters it does not."""
    return not 0xD800 <= ord(sign) < 0xE000 and ord(sign) not in (0xFFFE, 0xFFFF)
