"""Thousands of lives from seeds, the whole engine in each: no law is broken, and deliberate bugs are found (E1-E5)."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from tests.simulation import LAWS, Report, replay, simulate
from tests.simulation.bugs import BUGS
from tests.simulation.chance import Dice
from tests.simulation.invariants import Broken
from tests.simulation.lags import measure
from tests.simulation.scenario import live
from tests.simulation.shrink import shrunk

LIVES = int(os.environ.get("RERAIL_LIVES", "1200"))
PARTS = 8
MOST = 10_000  # lives within which a bug has to be found


@pytest.mark.parametrize("part", range(PARTS))
def test_no_law_is_broken(part: int) -> None:
    """E1, E2, E3, E4, T7, V2, X4, X7: whatever befalls a run and its processes."""
    size = LIVES // PARTS
    report = simulate(range(part * size, (part + 1) * size))
    assert not report.broken, str(report.broken[0])
    assert report.lives == size and set(report.ends) <= {"completed", "failed", "cancelled", "never there"}


def test_the_lives_are_eventful() -> None:
    """A simulation in which nothing happens finds nothing: every kind of trouble occurs, and every kind of end."""
    report = simulate(range(1200))
    assert {"completed", "failed", "cancelled"} <= set(report.ends)
    for fact in (
        "deaths",
        "naps",
        "stops",
        "taken",
        "outage",
        "unsure",
        "jump",
        "rots",
        "wishes granted",
        "doubts",
        "out of budget",
        "gates that opened again",
        "renewed above a gate",
    ):
        assert report.facts[fact] > 10, (fact, report.facts)
    assert report.facts["calls"] > 900 and report.facts["effects"] > 700


@pytest.fixture
def patched() -> Iterator[pytest.MonkeyPatch]:
    """What is patched here stays so for one test."""
    with pytest.MonkeyPatch.context() as patch:
        yield patch


# Found after hundreds of lives or more: `make long` looks for these.
RARE = (
    "clean_up_that_ran_runs_after_a_clean_start", "damaged_contents_are_believed",
    "a_new_plan_forgets_what_tools_asked_for", "a_new_plan_brings_back_what_a_person_skipped",
    "what_a_call_may_have_cost_dies_with_its_process", "a_yes_is_good_for_every_time", "a_yes_ahead_is_good_for_hints",
    "a_later_refusal_settles_what_was_lost", "who_is_silent_is_dead", "a_fence_refuses_nothing",
    "a_thread_ends_with_its_timeout", "the_latest_probe_is_the_baseline",
    "a_part_after_a_success_is_repeated_under_the_key", "a_lost_call_is_its_last_owners",
)  # fmt: skip


@pytest.mark.parametrize("name", [pytest.param(name, marks=pytest.mark.long if name in RARE else ()) for name in BUGS])
def test_a_deliberate_bug_is_found(name: str, patched: pytest.MonkeyPatch) -> None:
    """Each within 10,000 lives, and nearly all within a few hundred."""
    BUGS[name](patched)
    report = simulate(range(MOST), shrink=False)
    assert report.broken, f"{name}: {report.lives} lives, and nobody noticed"
    assert report.broken[0].law in LAWS


def test_there_are_bugs_enough() -> None:
    """The list is kept."""
    assert len(BUGS) >= 20


def _trace(seed: int) -> str:
    lived = live(Dice(seed), seed)
    return f"{lived.status} {lived.events} {lived.drawn}"


def test_a_seed_is_one_life() -> None:
    """The same seed, the same choices and the same end, in another process with another order of sets, too."""
    script = (
        "from tests.simulation.test_simulation import _trace; print(*[_trace(seed) for seed in range(12)], sep='\\n')"
    )
    found = {
        subprocess.run(
            [sys.executable, "-c", script], capture_output=True, text=True, check=True,
            env={**os.environ, "PYTHONHASHSEED": seed}, timeout=300,
        ).stdout
        for seed in ("1", "2")
    }  # fmt: skip
    assert found == {"".join(_trace(seed) + "\n" for seed in range(12))}


def test_a_broken_life_is_told_small(patched: pytest.MonkeyPatch) -> None:
    """It names its seed and its law, and its choices break the same law again, with fewer of them that matter."""
    BUGS["a_lost_answer_is_taken_for_a_failure"](patched)
    (broken,) = simulate(range(MOST)).broken
    whole = Dice(broken.seed)
    with pytest.raises(Broken):
        live(whole, broken.seed)
    assert sum(map(bool, broken.choices)) < sum(map(bool, whole.drawn)) / 2
    with pytest.raises(Broken) as again:
        replay(broken.choices)
    assert again.value.law == broken.law and LAWS[broken.law] in str(broken)


def test_shrinking_keeps_what_matters() -> None:
    """Of many choices only those are left without which it does not fail."""
    assert shrunk([3, 1, 4, 1, 5, 9, 2, 6] * 4, lambda choices: 9 in choices[5:6]) == [0, 0, 0, 0, 0, 9]
    assert shrunk([1, 2], lambda _: True) == []
    assert shrunk([1, 2], lambda _: False) == [1, 2]


PLAN: dict[str, Any] = {
    "objective": "a plan of one's own",
    "steps": [
        {"id": "fetch", "tool": "fetch", "effect": "read"},
        {"id": "pay", "tool": "pay", "effect": "once", "needs": ["fetch"]},
        {"id": "tell", "tool": "tell", "needs": ["pay"], "critical": False},
    ],
}


def test_a_plan_of_ones_own() -> None:
    """Users simulate theirs: its tools are drawn, its settings may be given, and only what they say is changed."""
    seen: list[int] = []
    report = simulate(
        range(60), PLAN, {"retry": {"max_retry_rounds": 1}}, seen=lambda so_far: seen.append(so_far.lives)
    )
    assert not report.broken and seen == list(range(1, 61))
    assert report.facts["doubts"]  # what must not happen twice had somebody asked


def test_the_command_tells_what_was_looked_at() -> None:
    """`python -m tests.simulation`: counts, laws, and an exit code."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.simulation", "40:90", "--jobs", "2"],
        capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("50 lives\n") and all(f"  {law}: " in done.stdout for law in LAWS)


def test_effects_are_doubled_only_where_a_look_lags_longer_than_settle() -> None:
    """V8: the table of docs/reliability.md, in small; what is never believed is in doubt instead."""
    assert [measure(lag, 5, 6).doubled for lag in (0, 4, 6)] == [0, 0, 6]
    assert measure(31, 30, 6).doubled == 6 and measure(29, 30, 6).doubled == 0
    assert (measure(60, "never", 6).doubled, measure(60, "never", 6).doubts) == (0, 6)


def test_an_empty_simulation_is_no_success_of_anything() -> None:
    """No seeds, no lives, and the report says so."""
    assert simulate([]) == Report()
