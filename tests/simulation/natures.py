"""Tools by chance: looks that lag or fail, threads and requests that go on, services that know keys, fences."""

from __future__ import annotations

from tests.simulation.chance import Dice
from tests.simulation.world import Nature


def draw_nature(dice: Dice) -> Nature:
    """What a tool is like; `settle` covers the lag, as the contract asks for."""
    if not dice.chance(2):
        return Nature()
    lag, settle = dice.pick((0.0, None), (0.0, 0.0), (2.0, None), (4.0, None), (20.0, 30.0), (20.0, "never"))
    return Nature(
        verifiable=dice.pick(False, True, True), lag=lag, settle=settle,
        runs=dice.pick("loop", "loop", "thread", "request"), fenced=dice.chance(3),
        idempotent_for=dice.pick(None, None, None, 3600.0, 50.0), shaky=dice.chance(4),
        counts=dice.chance(2) and not lag,
    )  # fmt: skip
