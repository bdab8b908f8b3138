"""A recorded run under other settings: what would have been different, and what nobody can know."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from rerail.adapters.stores.memory import MemoryStore
from rerail.errors import SettingsError, ToolError
from rerail.kernel import events as ev
from rerail.kernel.codec import encode
from rerail.kernel.events import Record
from rerail.kernel.fold import fold
from rerail.kernel.policy import Policy
from rerail.kernel.verdict import run_status
from rerail.plan.tool_spec import ToolSpec
from rerail.ports import Batch, Consultation, Head, MindAnswer, Owner
from rerail.settings.loading import recorded_changes
from rerail.settings.tables import RECORDED
from rerail.testing.scripted import ScriptedMind, Took, World
from rerail.testing.virtual_time import VirtualClock, virtual_run
from rerail.views.replay.outcome import Replay
from rerail.views.replay.recorded_answers import batches
from rerail.views.replay.replay import replay

DOWN = ConnectionRefusedError("down")
BROKE = ToolError("it broke", category="tool_error")
ODD = RuntimeError("the flux is out of phase")
PLAIN: dict[str, Any] = {"retry": {"jitter": False}}
ALONE: dict[str, Any] = {"retry": {"jitter": False, "max_retry_rounds": 0}}


class Taped:
    """A recorded run that can be decided again."""

    def __init__(self, records: Sequence[Record], tools: Mapping[str, Any]) -> None:
        self.records, self.tools = list(records), dict(tools)

    def under(self, *, branch_at: int = 0, **changes: Any) -> Replay:
        """The run with some of its policy changed."""
        return replay("r", self.records, self.tools, changes, branch_at=branch_at)

    def without_tools(self, **changes: Any) -> Replay:
        """The same where nothing is known of the tools but their names."""
        names = fold("r", self.records).tracks
        return replay("r", self.records, {name: ToolSpec(name) for name in names}, changes, missing=names)

    def of(self, kind: type) -> list[Record]:
        """Its events of one kind."""
        return [record for record in self.records if isinstance(record.event, kind)]


def taped(
    world: World,
    steps: Sequence[Mapping[str, Any]],
    settings: Mapping[str, Any] = PLAIN,
    *,
    mind: Any = None,
    people: Sequence[tuple[str, Mapping[str, Any]]] = (),
) -> Taped:
    """The history of a plan, after it was run and people did what they did, each time it stood still."""
    plan = {"steps": [{"tool": step["id"], **step} for step in steps]}

    async def main() -> Taped:
        async with world.engine(plan, settings=dict(settings), model=mind) as engine:
            await engine.wait(await engine.start(plan, run_id="r"))
            for action, options in people:
                await getattr(engine, action)("r", **options)
                await engine.wait("r")
            return Taped(await engine.events("r"), engine.tools)

    return virtual_run(main)


def row(told: Replay, step: str) -> tuple[str, int, float]:
    """What a step would have come to."""
    [found] = [one for one in told.steps if one.step == step]
    return found.replayed.status, found.replayed.calls, found.replayed.waited


def missing(told: Replay) -> list[tuple[str, str, int, int]]:
    """What the history does not hold."""
    return [(one.what, one.step, one.call, one.round) for one in told.unknown]


# -- Retries and rounds -------------------------------------------------------------------------------------------


def test_fewer_retries_fail_what_a_later_one_mended() -> None:
    """H4: with one retry less it ends failed, and what depends on it is skipped; nothing else changes."""
    world = World(a=[DOWN, DOWN, {"n": 1}], c=[{"n": 3}])
    run = taped(world, [{"id": "a"}, {"id": "b", "args": {"x": "${a}"}}, {"id": "c"}], ALONE)
    told = run.under(max_step_retries=1)
    assert told.known and told.replayed.status == "failed" and told.recorded.status == "completed"
    assert row(told, "a") == ("failed", 2, 1.0) and row(told, "b") == ("skipped", 0, 0.0)
    assert row(told, "c") == ("succeeded", 1, 0.0)
    assert (told.recorded.calls, told.replayed.calls) == (5, 3)
    assert (told.recorded.waited, told.replayed.waited) == (3.0, 1.0)
    assert [one.step for one in told.steps if one.changed] == ["a", "b"]
    failed = run.of(ev.StepFailed)[1]
    assert told.branch > failed.seq and told.instead[0] == {"does": "reflected", "step": "a", "rung": "fail"}


def test_without_its_tools_only_what_had_ended_is_known() -> None:
    """A tool's own alternatives may mend what seems to fail: where the run goes its own way, nobody knows."""
    world = World(first=[{"n": 0}], a=[DOWN], b=[{"n": 2}]).option("a", alternatives=["b"])
    steps = [{"id": "first"}, {"id": "a", "depends_on": ["first"]}]
    run = taped(world, steps, ALONE)
    told = run.under(max_step_retries=1)
    assert told.known and row(told, "a")[0] == "succeeded"  # by its alternative
    told = run.without_tools(max_step_retries=1)
    assert not told.known and told.replayed.status == "unknown" and told.replayed.calls == 3
    assert [one.to_dict()["tool"] for one in told.unknown if one.what == "tool"] == ["first", "a"]
    assert row(told, "first")[0] == "succeeded" and row(told, "a") == ("unknown", 2, 1.0)


def test_without_its_tools_what_nothing_changes_still_stands() -> None:
    """The recorded outcome needs no tools, as long as everything is decided as it was."""
    run = taped(World(a=[DOWN, {"n": 1}]), [{"id": "a"}])
    for told in (run.without_tools(max_step_retries=3), run.without_tools(max_step_retries=9)):
        assert told.known and not told.branch and not told.unknown and told.recorded == told.replayed


def test_without_its_tools_a_difference_may_not_be_seen() -> None:
    """A tool's own alternative was taken, which seems to be none here: what other settings do to that is unknown."""
    run = taped(World(a=[BROKE], b=[{"n": 2}]).option("a", alternatives=["b"]), [{"id": "a"}], ALONE)
    assert not run.under(max_retries=9).drift and run.under(max_retries=9).known
    told = run.without_tools(max_retries=9)
    assert not told.known and told.drift and not told.branch
    assert row(told, "a")[0] == told.replayed.status == "unknown"
    same = run.without_tools(max_retries=3)  # as it was
    assert same.known and same.drift and same.replayed.status == "completed"


@pytest.mark.parametrize(
    ("settings", "sure"),
    [
        ({}, True),
        ({"run": {"max_attempts": 20}}, False),
        ({"run": {"max_seconds": 900}}, False),
        ({"reflection": {"max_consecutive_failures": 2}}, False),
        ({"reflection": {"max_consecutive_failures": 0}}, True),
    ],
)
def test_what_is_unknown_may_stop_the_whole_run(settings: dict[str, Any], sure: bool) -> None:
    """H4: calls that nobody knows may use up what the run has, or be the failure too many; then others are unknown."""
    world = World(a=[DOWN], c=[Took(30, {"n": 3})], e=[{"n": 5}])
    steps = [{"id": "a"}, {"id": "b", "args": {"x": "${a}"}}, {"id": "c"}, {"id": "d", "args": {"x": "${c}"}}]
    told = taped(world, [*steps, {"id": "e"}], {**ALONE, **settings}).under(max_step_retries=4)
    assert missing(told) == [("call", "a", 5, 0)] and row(told, "a") == ("unknown", 5, 15.0)
    assert row(told, "e") == ("succeeded", 1, 0.0)  # it had ended before
    assert row(told, "d") == (("succeeded", 1, 0.0) if sure else ("unknown", 0, 0.0))
    assert row(told, "c")[0] == ("succeeded" if sure else "unknown")
    assert told.replayed.calls == (8 if sure else 7)


def test_more_retries_than_were_needed_change_nothing() -> None:
    """A larger budget that nobody used is the same run, event by event."""
    told = taped(World(a=[DOWN, {"n": 1}]), [{"id": "a"}]).under(max_step_retries=9)
    assert told.known and not told.branch and not told.instead and told.recorded == told.replayed


def test_an_answer_that_the_history_does_not_hold_is_unknown() -> None:
    """One more call than was made: what it says, and all that depends on it, nobody knows; the rest goes on."""
    world = World(a=[DOWN], c=[Took(30, {"n": 3})])
    steps = [{"id": "a"}, {"id": "b", "args": {"x": "${a}"}}, {"id": "c"}, {"id": "d", "args": {"x": "${c}"}}]
    run = taped(world, steps, ALONE)
    told = run.under(max_step_retries=4)
    assert not told.known and told.replayed.status == "unknown" and told.recorded.status == "failed"
    assert missing(told) == [("call", "a", 5, 0)] and told.unknown[0].tool == "a"
    assert row(told, "a") == ("unknown", 5, 15.0) and row(told, "b")[0] == "unknown"
    assert row(told, "c")[0] == row(told, "d")[0] == "succeeded"


@pytest.mark.parametrize(
    "limit",
    [
        {"concurrency": 1},
        {"concurrency": 0},
        {"tool_concurrency": {"a": 1, "z": 0}},
        {"provider_concurrency": {"p": 1}},
    ],
)
def test_an_unknown_call_holds_up_nobody(limit: dict[str, Any]) -> None:
    """X1: others still get their turn where only one may run at a time, whatever the limit is called."""
    world = World(a=[DOWN, {"n": 1}]).option("a", provider="p")
    settings = {"run": limit, "reflection": {"max_step_retries": 0},
                "retry": {"jitter": False, "max_retry_rounds": 0, "backoff_base": 0}}  # fmt: skip
    run = taped(world, [{"id": "x", "tool": "a"}, {"id": "y", "tool": "a"}], settings)
    told = run.under(max_step_retries=1)
    assert missing(told) == [("call", "x", 2, 0)] and row(told, "y") == ("succeeded", 1, 0.0)


def test_one_round_less_ends_before_it() -> None:
    """R6: without the automatic round the run fails, and what the round asked is not asked."""
    world = World(a=[DOWN] * 4 + [{"n": 1}])
    run = taped(world, [{"id": "a"}, {"id": "b", "needs": ["a"]}])
    told = run.under(max_retry_rounds=0)
    assert told.known and told.replayed.status == "failed" and told.recorded.status == "completed"
    assert row(told, "a") == ("failed", 4, 7.0) and row(told, "b")[0] == "skipped"


def test_what_a_round_that_was_not_made_would_say_is_unknown() -> None:
    """R6: a step that would be tried once more in another round is not known to have failed, nor what is behind it."""
    world = World(a=[DOWN])
    run = taped(world, [{"id": "a"}, {"id": "b", "needs": ["a"]}], ALONE)
    told = run.under(max_retry_rounds=1)
    assert missing(told) == [("call", "a", 1, 1)]
    assert row(told, "a")[0] == row(told, "b")[0] == "unknown"


def test_other_waits_take_other_time() -> None:
    """H3: the backoff is the other settings', calls last as long as they did."""
    run = taped(World(a=[Took(5, DOWN), Took(2, {"n": 1})]), [{"id": "a"}])
    told = run.under(backoff_base=10.0)
    assert told.known and told.replayed.waited == 10.0 and told.replayed.seconds == pytest.approx(17.0)
    assert told.recorded.seconds == pytest.approx(8.0) and told.replayed.status == "completed"


def test_one_after_the_other_takes_longer() -> None:
    """X1: with less at once the same calls are made, later."""
    run = taped(World(a=[Took(5, 1)], b=[Took(7, 2)]), [{"id": "a"}, {"id": "b"}])
    told = run.under(concurrency=1)
    assert told.known and told.replayed.seconds == pytest.approx(12.0) and told.recorded.seconds == pytest.approx(7.0)
    assert not [one for one in told.steps if one.changed]


def test_another_output_upstream_makes_a_call_another_one() -> None:
    """R3: what a step would make of other inputs is not in the history, even if it does not refer to them."""
    world = World(a=[DOWN, {"n": 1}], b=[{"n": 2}])
    steps = [{"id": "a", "fallback": {"value": {"n": 0}}}, {"id": "b", "needs": ["a"]}]
    told = taped(world, steps, ALONE).under(max_step_retries=0)
    assert row(told, "a")[0] == "degraded" and missing(told) == [("call", "b", 1, 0)]
    assert [one.step for one in told.steps if one.other_output] == ["a", "b"]


def test_an_alternative_is_reached_earlier() -> None:
    """H4: its answer is known, although it was the fourth call and would have been the second."""
    run = taped(World(a=[DOWN], other=[{"n": 1}]), [{"id": "a", "alternatives": ["other"]}])
    told = run.under(max_step_retries=1)
    assert told.known and told.replayed.status == "completed" and row(told, "a") == ("succeeded", 2, 0.0)


def test_a_failure_before_the_call_is_known_too() -> None:
    """P4: a path that was not there would not have been there."""
    world = World(a=[DOWN, {"n": 1}])
    run = taped(world, [{"id": "a"}, {"id": "b", "args": {"x": "${a.gone}"}}])
    told = run.under(backoff_base=3.0)
    assert told.known and row(told, "b")[0] == "failed" and told.replayed.calls == told.recorded.calls


# -- Budgets ------------------------------------------------------------------------------------------------------


def test_a_budget_that_is_used_up_stops_it() -> None:
    """H4: budgets of the whole run bite where they would have bitten."""
    run = taped(World(a=[1], b=[2], c=[3]), [{"id": "a"}, {"id": "b", "needs": ["a"]}, {"id": "c", "needs": ["b"]}])
    told = run.under(max_attempts=2)
    assert told.known and told.replayed.status == "failed" and row(told, "c") == ("cancelled", 0, 0.0)
    assert told.instead[0]["does"] == "stopped" and told.instead[0]["code"] == "BUDGET_EXCEEDED"


def test_a_breaker_that_opens_earlier_stops_it() -> None:
    """H4: a lower limit of failures in a row."""
    no = ToolError("no key", category="permanent_error")
    steps = [{"id": "a"}, {"id": "b", "needs": [{"step": "a", "when": "done"}]}]
    told = taped(World(a=[no], b=[1]), steps).under(max_consecutive_failures=1, max_retry_rounds=0)
    assert told.known and row(told, "b")[0] == "cancelled" and told.replayed.status == "failed"


def test_a_shorter_time_cuts_calls_off() -> None:
    """X4: a call that took longer than the other timeout would have been cancelled; it is tried again."""
    run = taped(World(a=[Took(20, DOWN), Took(3, {"n": 1})]), [{"id": "a"}])
    told = run.under(step_timeout=10.0)
    assert told.known and told.replayed.seconds == pytest.approx(14.0) and told.replayed.status == "completed"
    assert told.instead == ({"does": "call", "step": "a", "tool": "a"},)
    assert not run.under(step_timeout=20.0).branch and not run.under(step_timeout=1000.0).branch
    shorter = run.under(step_timeout=2.0, max_retry_rounds=0)
    assert missing(shorter) == [("call", "a", 3, 0)]


def test_a_longer_time_leaves_an_answer_unknown() -> None:
    """X4: what a call that was cut off would have said, had it been given more time, nobody knows."""
    world = World(a=[Took(20, {"n": 1})])
    run = taped(world, [{"id": "a"}], {**ALONE, "run": {"step_timeout": 10}, "reflection": {"max_step_retries": 0}})
    assert missing(run.under(step_timeout=30.0)) == [("call", "a", 1, 0)]
    cut = run.under(step_timeout=5.0)
    assert cut.known and cut.replayed.status == "failed" and cut.replayed.seconds == pytest.approx(5.0)


def test_a_time_of_its_own_is_no_setting() -> None:
    """P1: a step's or a tool's own timeout goes before the settings'."""
    for steps, world in (
        ([{"id": "a", "timeout": 60}], World(a=[Took(20, 1)])),
        ([{"id": "a"}], World(a=[Took(20, 1)]).option("a", timeout=60)),
    ):
        assert not taped(world, steps).under(step_timeout=10.0).branch


# -- Doubts, looks and people -------------------------------------------------------------------------------------


def test_a_look_is_answered_as_it_was() -> None:
    """V8: whether the effect of a lost answer is there is part of the history."""
    world = World(a=[DOWN, {"n": 1}], send=[ConnectionResetError("gone")], look=[Took(4, {"there": True})])
    steps = [
        {"id": "a"},
        {"id": "s", "tool": "send", "effect": "once", "needs": ["a"],
         "verify": {"tool": "look", "expect": {"there": True}}},
    ]  # fmt: skip
    run = taped(world, steps)
    told = run.under(backoff_base=2.0)
    assert told.known and row(told, "s")[:2] == ("succeeded", 1) and told.replayed.seconds == pytest.approx(6.0)


def test_a_look_that_nobody_took_is_unknown() -> None:
    """V8: a call that would have been cut off was never looked behind."""
    world = World(send=[Took(20, {"n": 1})], look=[{"there": True}])
    verify = {"tool": "look", "expect": {"there": True}}
    run = taped(world, [{"id": "s", "tool": "send", "effect": "once", "verify": verify}])
    told = run.under(step_timeout=10.0)
    assert missing(told) == [("look", "s", 0, 0)] and row(told, "s")[0] == "unknown"


def test_people_who_were_asked_say_the_same() -> None:
    """T2, E3: a gate that was opened opens, a doubt that was resolved is, at the time that they did it or later."""
    world = World(a=[DOWN, {"n": 1}], send=[ConnectionResetError("gone")])
    steps = [
        {"id": "a"},
        {"id": "g", "needs": ["a"], "confirm": True},
        {"id": "s", "tool": "send", "effect": "once", "needs": ["g"]},
        {"id": "no", "needs": ["s"], "confirm": True},
    ]
    people = [("confirm", {"step": "g"}), ("resolve", {"step": "s", "succeeded": 1}), ("confirm", {"refuse": True})]
    run = taped(world, steps, PLAIN, people=people)
    told = run.under(backoff_base=2.0)
    assert told.known and told.replayed.status == told.recorded.status == "failed" and not told.not_replayed
    assert [row(told, name)[0] for name in ("a", "g", "s", "no")] == ["succeeded"] * 3 + ["failed"]


def test_people_who_were_not_asked_leave_it_waiting() -> None:
    """A gate that nobody opened in the history waits."""
    run = taped(World(a=[DOWN, {"n": 1}]), [{"id": "a"}, {"id": "g", "needs": ["a"], "confirm": True}])
    told = run.under(backoff_base=2.0)
    assert told.known and told.replayed.status == "waiting" and row(told, "g")[0] == "waiting"


def test_a_wish_that_nobody_asked_for_makes_it_unknown() -> None:
    """X7: whether somebody would have skipped a step of a run that went another way, nobody knows."""
    world = World(a=[DOWN, {"n": 1}])
    steps = [{"id": "a"}, {"id": "g", "needs": ["a"], "confirm": True}]
    run = taped(world, steps, PLAIN, people=[("skip", {"step": "g"})])
    told = run.under(backoff_base=0.5)
    assert missing(told) == [("person", "", 0, 0)] and row(told, "a")[0] == "succeeded"
    assert row(told, "g")[0] == "unknown" and told.not_replayed == 1


def test_what_people_did_after_it_had_ended_is_left_out() -> None:
    """R4: a person's later retry is no part of the replay, and that is said."""
    run = taped(World(a=[DOWN] * 4 + [{"n": 1}]), [{"id": "a"}], ALONE, people=[("retry", {})])
    told = run.under(max_step_retries=0)
    assert told.known and told.recorded.status == "completed" and told.replayed.status == "failed"
    assert told.not_replayed == 1 and row(told, "a") == ("failed", 1, 0.0)


def test_a_retry_that_would_have_been_refused_is_not_made() -> None:
    """R6: people's retries are bounded by max_retries too."""
    run = taped(World(a=[DOWN] * 4 + [{"n": 1}]), [{"id": "a"}], ALONE, people=[("retry", {})])
    told = run.under(max_retries=0)
    assert told.known and told.replayed.status == "failed" and told.not_replayed == 1
    assert told.branch == run.of(ev.RetryBegin)[0].seq and not run.under(max_retries=1).branch


# -- Minds --------------------------------------------------------------------------------------------------------


def spending(value: Any) -> MindAnswer:
    """What a mind says, and what that cost."""
    return MindAnswer(value, [Consultation("m", 100, 20, 0.5, 1.0)])


THOUGHT = {"category": "parameter_error", "root_cause": "x", "recoverable": True, "confidence": 80,
           "suggestion": {"source": "ds_1"}}  # fmt: skip
ONE = [{"id": "w"}, {"id": "a", "args": {"source": "ds_invalid"}, "needs": ["w"]}]
WRONG = ToolError("no such source", category="parameter_error")


def test_a_mind_that_was_asked_the_same_says_the_same() -> None:
    """H5: the recorded reflection is taken, with what it cost."""
    mind = ScriptedMind(reflect=[spending(THOUGHT)])
    run = taped(World(w=[DOWN, 1], a=[WRONG, {"n": 1}]), ONE, ALONE, mind=mind)
    told = run.under(backoff_base=2.0)
    assert told.known and told.replayed.status == "completed" and row(told, "a")[:2] == ("succeeded", 2)
    assert (told.recorded.tokens, told.recorded.cost) == (told.replayed.tokens, told.replayed.cost) == (120, 0.5)


def test_a_mind_never_goes_beyond_the_other_budget() -> None:
    """H4, H5: what it proposed is weighed again within the budget that there is."""
    mind = ScriptedMind(reflect=[THOUGHT], repair=[None], replan=[None])
    run = taped(World(w=[1], a=[WRONG, {"n": 1}]), ONE, ALONE, mind=mind)
    told = run.under(max_step_retries=0, max_single_step_repairs=0, max_task_replanning_attempts=0)
    assert told.known and row(told, "a") == ("failed", 1, 0.0)


def test_a_mind_that_was_not_asked_is_unknown() -> None:
    """H5: another mode asks where nobody was asked."""
    mind = ScriptedMind(reflect=[THOUGHT])
    run = taped(World(w=[1], a=[DOWN, {"n": 1}]), ONE, ALONE, mind=mind)
    told = run.under(reflection_mode="model")
    assert missing(told) == [("reflect", "a", 0, 0)] and row(told, "a")[0] == "unknown"


def test_repairs_replans_and_judges_are_remembered() -> None:
    """H7, H8, V3: the same question about the same failure, or the same table, has the same answer."""
    gap = ToolError("a gap", category="decomposition_error")
    new = {"plan": {"steps": [{"id": "w", "tool": "w"}, {"id": "z", "tool": "z"}]}, "reason": "better"}
    mind = ScriptedMind(
        repair=[{"step": None, "reason": "no"}], replan=[new], judge=[{"complete": False, "missing": ["all of it"]}]
    )
    run = taped(World(w=[DOWN, 1], a=[gap], z=[2]), ONE, ALONE, mind=mind)
    assert run.of(ev.Replanned) and run.of(ev.Declined)
    told = run.under(backoff_base=2.0)
    assert told.known and told.replayed.status == told.recorded.status and row(told, "z")[0] == "succeeded"
    for seq in [batch[0].seq for batch in batches(run.records)][2:]:
        forced = run.under(branch_at=seq)
        assert forced.known and not [one for one in forced.steps if one.changed], seq
    assert missing(run.under(replan="full")) == [("replan", "", 0, 0)]
    unplanned = run.under(max_task_replanning_attempts=0)
    assert unplanned.known is False and missing(unplanned) == [("judge", "", 0, 0)]


def test_a_mind_that_failed_to_answer_failed_to() -> None:
    """H5: an answer that could not be used is one too, and the rules go on from it."""
    run = taped(World(w=[DOWN, 1], a=[ODD, {"n": 1}]), ONE, ALONE, mind=ScriptedMind(reflect=[RuntimeError("no")]))
    told = run.under(backoff_base=2.0)
    assert told.known and told.replayed.status == "completed"


# -- The record ---------------------------------------------------------------------------------------------------


def test_a_run_that_has_not_ended_is_not_known_to() -> None:
    """A history that stops in the middle: what was under way then is unknown."""
    run = taped(World(a=[DOWN, {"n": 1}]), [{"id": "a"}])
    short = Taped(run.records[: run.records.index(run.of(ev.StepStarted)[1]) + 1], run.tools)
    told = short.under(backoff_base=2.0)
    assert not told.known and missing(told) == [("call", "a", 2, 0)] and told.recorded.status == "running"
    same = short.under(max_retries=9)
    assert not same.branch and same.replayed.status == "running"


START = 1_700_000_000.0  # of virtual time


def killed() -> Taped:
    """A run whose process died 4 s after its start, right after a word of progress, and that went on 8 s later.

    Its call of `long` is lost with it, and made again."""
    plan = {
        "steps": [{"id": name, "tool": name} for name in ("a", "long")]
        + [{"id": "gate", "tool": "gate", "confirm": True}]
    }
    store = MemoryStore()

    async def until_it_died() -> list[Record]:
        world = World(a=[DOWN, DOWN, {"n": 1}], long=[Took(60, 1)])
        async with world.engine(plan, settings=ALONE) as engine:
            await engine.start(plan, run_id="r")
            await asyncio.sleep(3.9)
            return list(await engine.events("r"))

    async def from_then_on() -> Taped:
        await store.open()
        await store.create(Head("r"))
        lease = await store.claim("r", Owner("here", 1, 1.0), START)
        rows = [(record.at, encode(record.event)) for record in heard]
        await store.append(Batch("r", 0, [*rows, (START + 4, encode(last))], lease.fence, {}, "running"))
        await store.release(lease)
        world = World(long=[Took(6, 1)])
        async with world.engine(plan, store=store, settings=ALONE, clock=VirtualClock(START + 12)) as engine:
            await engine.begin_resume("r")
            await asyncio.sleep(2)
            await engine.confirm("r", "gate")
            await engine.wait("r")
            return Taped(await engine.events("r"), engine.tools)

    heard, last = virtual_run(until_it_died), ev.StepProgress("long", 1, "half")
    return virtual_run(from_then_on)


@pytest.mark.parametrize("changes", [{"max_retries": 9}, {"max_step_retries": 0}])
def test_the_time_that_a_run_lay_dead_counts_in_neither(changes: dict[str, Any]) -> None:
    """E3: 4 s until it died and 6 s after it went on: that is told of it, whether the course is another one or not."""
    run = killed()
    told = run.under(**changes)
    assert fold("r", run.records).seconds(run.records[-1].at) == pytest.approx(10.0)
    assert (told.recorded.seconds, told.replayed.seconds) == (pytest.approx(10.0), pytest.approx(10.0))


def test_settings_of_a_later_chapter_are_changed_too() -> None:
    """E5: a retry or a resume records the settings that it goes on under."""
    run = taped(World(a=[DOWN] * 8 + [{"n": 1}]), [{"id": "a"}], ALONE, people=[("retry", {})])
    begun = run.of(ev.RetryBegin)[0]
    at = run.records.index(begun)
    event = ev.RetryBegin(**{name: getattr(begun.event, name) for name in begun.event.__struct_fields__}
                          | {"policy": Policy(jitter=False, max_retry_rounds=0, max_retries=7)})  # fmt: skip
    run.records[at] = Record("r", begun.seq, begun.at, event)
    told = run.under(max_step_retries=3)
    assert not told.branch and fold("r", run.records).policy.max_retries == 7
    assert told.settings == {"max_step_retries": (3, 3)}


def test_a_record_that_today_would_be_another_says_so() -> None:
    """What other tools or another version decided is followed, and pointed out."""
    run = taped(World(a=[BROKE], other=[{"n": 1}]), [{"id": "a", "alternatives": ["other"]}])
    assert not run.under(max_retries=9).drift
    run.tools = {}  # what was an alternative is none today
    told = run.under(max_retries=9)
    assert told.drift == run.of(ev.Reflected)[0].seq and told.replayed.status == "completed" and not told.branch


def test_what_the_end_of_a_history_would_lead_to() -> None:
    """A history that ends before anything was decided: what would be decided next is another thing, too."""
    run = taped(World(a=[DOWN, {"n": 1}]), [{"id": "a"}], ALONE)
    cut = run.records.index(run.of(ev.StepFailed)[0]) + 1
    short = Taped(run.records[:cut], run.tools)
    told = short.under(max_step_retries=0)
    assert told.branch == run.records[cut].seq and told.known and told.replayed.status == "failed"
    assert told.recorded.status == "running" and not Taped([], {}).under(max_step_retries=0).steps


class Slow:
    """A mind that takes its time."""

    name, answers = "slow", ("reflect", "repair")

    async def answer(self, question: Any) -> Any:
        """Think for ten seconds."""
        await asyncio.sleep(10)
        if question.kind == "repair":
            return {"step": {"id": "a", "tool": "a", "args": {"source": "mended"}}, "reason": "so"}
        return THOUGHT


def test_a_question_under_way_is_answered_when_it_was() -> None:
    """H5: what was asked before the course changed is heard at its time."""
    steps = [{"id": "a", "args": {"source": "x"}}, {"id": "w"}]
    run = taped(World(a=[WRONG, {"n": 1}], w=[Took(5, DOWN), {"n": 2}]), steps, ALONE, mind=Slow())
    told = run.under(backoff_base=4.0)
    assert told.known and told.replayed.status == "completed" and told.replayed.seconds == pytest.approx(10.0)
    assert row(told, "a") == ("succeeded", 2, 0.0) and row(told, "w") == ("succeeded", 2, 4.0)
    cut = run.records.index(run.of(ev.StepFailed)[1]) + 1
    assert missing(Taped(run.records[:cut], run.tools).under(backoff_base=4.0)) == [
        ("reflect", "a", 0, 0),
        ("call", "w", 2, 0),
    ]


def test_an_answer_that_comes_too_late_changes_nothing() -> None:
    """DESIGN 1, H4: the run was stopped meanwhile, and what a mind said then is for nobody."""
    steps = [
        {"id": "a", "args": {"source": "x"}}, {"id": "w"}, {"id": "y"}, {"id": "x", "needs": ["w"]},
    ]  # fmt: skip
    run = taped(World(a=[WRONG, {"n": 1}], w=[Took(5, 1)], y=[Took(20, 1)]), steps, ALONE, mind=Slow())
    told = run.under(max_attempts=3)
    assert told.known and told.replayed.status == "failed" and told.replayed.seconds == pytest.approx(20.0)
    assert [row(told, name)[0] for name in "awyx"] == ["failed", "succeeded", "succeeded", "cancelled"]


def test_what_people_had_said_before_stays_said() -> None:
    """X7: only what they did after the course changed is asked again; a look is asked for once."""
    verify = {"tool": "look", "expect": {"there": True}}
    world = World(b=[DOWN, 1], send=[ConnectionResetError("gone")], look=[Took(4, {"there": True})], q=[Took(2, 1)])
    steps = [
        {"id": "g", "tool": "u", "confirm": True}, {"id": "b", "needs": ["g"]}, {"id": "q", "needs": ["b"]},
        {"id": "s", "tool": "send", "effect": "once", "verify": verify, "needs": ["b"]},
    ]  # fmt: skip
    told = taped(world, steps, PLAIN, people=[("confirm", {"step": "g"})]).under(backoff_base=2.0)
    assert told.known and told.replayed.status == "completed" and not told.not_replayed
    assert told.replayed.seconds == pytest.approx(6.0)


def test_a_repair_is_remembered() -> None:
    """H7: the same failure gets the same new step."""
    gap = ToolError("a gap", category="decomposition_error")
    run = taped(World(w=[DOWN, 1], a=[gap, {"n": 1}]), ONE, ALONE, mind=Slow())
    told = run.under(backoff_base=2.0)
    assert told.known and told.replayed.status == "completed" and row(told, "a")[:2] == ("succeeded", 2)
    assert told.replayed.seconds == pytest.approx(12.0)


def test_large_arguments_are_taken_as_they_were() -> None:
    """E7: of large arguments the history holds only what changed; within the budget they are what they were."""
    text = "x" * 40_000
    steps = [{"id": "w"}, {"id": "a", "args": {"source": "ds_invalid", "text": text}, "needs": ["w"]}]
    world = World(w=[DOWN, 1], a=[WRONG, {"n": 1}])
    run = taped(world, steps, ALONE, mind=ScriptedMind(reflect=[THOUGHT], repair=[None], replan=[None]))
    assert any(record.event.partial for record in run.of(ev.Reflected))
    told = run.under(backoff_base=2.0)
    assert told.known and row(told, "a")[:2] == ("succeeded", 2)
    none = run.under(max_step_retries=0, max_single_step_repairs=0, max_task_replanning_attempts=0, backoff_base=2.0)
    assert row(none, "w")[0] == "failed"


def test_an_answer_that_came_twice_came_once() -> None:
    """DESIGN 1: a doubled word is no second answer."""
    run = taped(World(a=[DOWN, {"n": 1}]), [{"id": "a"}])
    at = run.records.index(run.of(ev.StepFailed)[0])
    first = run.records[at]
    run.records.insert(at + 1, Record("r", first.seq, first.at + 0.5, first.event))
    assert run.under(backoff_base=2.0).known


def test_what_is_decided_instead_is_told() -> None:
    """What the other settings do at the place where the course changes: a look, a question."""
    verify = {"tool": "look", "expect": {"there": True}}
    world = World(send=[ConnectionResetError("gone")], look=[Took(4, {"there": True})])
    run = taped(world, [{"id": "s", "tool": "send", "effect": "once", "verify": verify}])
    [seen] = run.of(ev.StepVerified)
    assert run.under(branch_at=seen.seq).instead == ({"does": "look", "step": "s"},)
    mind = ScriptedMind(reflect=[THOUGHT])
    asked = taped(World(w=[1], a=[WRONG, {"n": 1}]), ONE, ALONE, mind=mind)
    seq = next(record.seq for record in asked.of(ev.Reflected) if record.event.by != "rules")
    assert asked.under(branch_at=seq).instead == ({"does": "ask", "question": "reflect", "step": "a"},)


def test_everything_is_plain_data() -> None:
    """I1: what is told can be told over any wire."""
    run = taped(World(a=[DOWN], b=[1]), [{"id": "a"}, {"id": "b"}], ALONE)
    plain = run.under(max_step_retries=4).to_dict()
    assert plain["run_id"] == "r" and plain["settings"] == {"max_step_retries": {"recorded": 3, "replayed": 4}}
    assert plain["known"] is plain["same"] is False and plain["branch"] > 0 and plain["drift"] is None
    assert plain["unknown"] == [{"what": "call", "step": "a", "tool": "a", "call": 5, "round": 0}]
    assert plain["steps"][0] == {
        "step": "a", "changed": True, "other_output": False,
        "recorded": {"status": "failed", "calls": 4, "waited": 7.0},
        "replayed": {"status": "unknown", "calls": 5, "waited": 15.0},
    }  # fmt: skip
    assert set(plain["recorded"]) == {"status", "calls", "waited", "seconds", "tokens", "cost"}
    assert run_status(fold("r", run.records)) == plain["recorded"]["status"]


# -- Which settings -----------------------------------------------------------------------------------------------


def test_only_settings_that_a_run_records_can_be_replayed() -> None:
    """Every field of the policy has its setting; all others are refused, with the list."""
    assert {*RECORDED.values(), "minds", "given"} == set(Policy.__struct_fields__)
    assert recorded_changes({"reflection.max_step_retries": 1, "run": {"concurrency": 2}}) == {
        "reflection.max_step_retries": 1, "run.concurrency": 2,
    }  # fmt: skip
    assert recorded_changes({"reflection.mode": "rules"}) == {"reflection.mode": "rules"}
    for odd in ({"store.url": "x"}, {"reflection.memory": True}, {"nonsense": 1}, {}, {"log": {"verbose": True}}):
        with pytest.raises(SettingsError, match=r"\n  run\.concurrency[^\n]*\n(?s:.*)\n  evaluation[^\n]*shortcut"):
            recorded_changes(odd)
    with pytest.raises(SettingsError, match=r"did you mean reflection\.max_step_retries\?[^\n]*\n  run\.concurrency"):
        recorded_changes({"reflection.max_step_retrys": 1})
    with pytest.raises(SettingsError, match="max_step_retries"):
        recorded_changes({"reflection.max_step_retries": "many"})
