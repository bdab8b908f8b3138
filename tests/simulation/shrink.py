"""A failing life made as small as it gets: fewer choices, and harmless ones, while the same law stays broken."""

from __future__ import annotations

from collections.abc import Callable, Sequence

Fails = Callable[[list[int]], bool]  # whether a life of these choices breaks the same law


def shrunk(drawn: Sequence[int], fails: Fails, most: int = 400) -> list[int]:
    """The smallest list of choices found within so many tries that still fails."""
    best, left = list(drawn), most

    def better(choices: list[int]) -> bool:
        nonlocal best, left
        if left <= 0 or choices == best:
            return False
        left -= 1
        if fails(choices):
            best = choices
            return True
        return False

    size = len(best)
    while size:  # without the last ones: past its end, a list says "the harmless one" for ever
        if not better(best[: max(0, len(best) - size)]):
            size //= 2
    size = max(1, len(best) // 2)
    while size and left > 0:  # then each stretch made harmless
        for start in range(0, len(best), size):
            better([*best[:start], *[0] * len(best[start : start + size]), *best[start + size :]])
        size //= 2
    while best and not best[-1]:
        best.pop()
    return best
