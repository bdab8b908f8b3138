"""Laws of those who watch: whatever happens to a run, what they are shown is the run, and every message is ended."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from tests.laws.adversary import JUNK, NUMBERS, Adversary, Outcomes
from tests.laws.test_laws import settle
from tests.laws.worlds import SCALE, Chaos, plans, tools_for
from tests.simulation.world import tool_names

from rerail.adapters.tools.functions import tool
from rerail.api import Engine
from rerail.context import Context
from rerail.errors import PlanError, Refused
from rerail.kernel import actions as commands
from rerail.kernel import retry
from rerail.kernel.actions import Refusal
from rerail.kernel.events import Record
from rerail.kernel.fold import fold
from rerail.plan.model import Plan
from rerail.testing.virtual_time import VirtualClock, virtual_run
from rerail.values.json_values import pack
from rerail.views.attempts import revisions, tries
from rerail.views.chat_messages import ARTIFACT, COMPLETE, START, UPDATE, ToolMessages
from rerail.views.live_run import Board, Changes, run_view

LAW = settings(
    max_examples=40 * SCALE,
    deadline=None,
    phases=list(set(Phase) - {Phase.shrink}),
    suppress_health_check=list(HealthCheck),
)
SMALL = {"run": {"concurrency": 3}, "retry": {"max_wait": 600}}


def lived(plan: Plan, data: st.DataObject) -> list[Record]:
    """The history of a run in a world of chaos, answered, cancelled or retried by people."""

    async def main() -> list[Record]:
        async with Engine("memory://", tools_for(plan, Chaos(data.draw)), SMALL, clock=VirtualClock()) as engine:
            run = await engine.start(plan, run_id="the-run")
            if data.draw(st.booleans()):
                await engine.cancel(run)
            await settle(engine, run, data.draw)
            if data.draw(st.booleans()):
                try:
                    await engine.begin_retry(run, force=data.draw(st.booleans()), clean=data.draw(st.booleans()))
                except (Refused, PlanError):
                    pass
                else:
                    await settle(engine, run, data.draw)
            return await engine.events(run)

    return virtual_run(main)


def haunted(plan: Plan, numbers: Sequence[int], junk: Sequence[Any], outcomes: Outcomes) -> list[Record]:
    """The history of a run whose mind may say anything: steps are repaired, added, dropped and put in another order."""

    def make(name: str) -> Any:
        async def call(ctx: Context, **args: Any) -> Any:
            return await outcomes.answer(name, args, ctx)

        return tool(call, name=name)

    async def main() -> list[Record]:
        names = [*tool_names(plan), "extra"]
        adversary = Adversary(plan, names, numbers, junk)
        async with Engine("memory://", [make(n) for n in names], SMALL, adversary, clock=VirtualClock()) as engine:
            run = await engine.start(plan, run_id="the-run")
            for _ in range(8):
                if (result := await engine.wait(run)).status != "waiting":
                    break
                item = result.waiting_on[0]
                if item["for"] == "confirm":
                    await engine.confirm(run, item["step"])
                else:
                    await engine.resolve(run, item["step"], failed=True)
            else:
                await engine.cancel(run)
                await engine.wait(run)
            return await engine.events(run)

    return virtual_run(main)


# -- Boards -------------------------------------------------------------------------------------------------------

TICKING = ("at", "elapsed", "exec", "budgets", "critical")


def without_time(view: dict[str, Any]) -> dict[str, Any]:
    """A view without what the clock alone changes."""
    return {name: value for name, value in view.items() if name not in TICKING}


def patched(view: dict[str, Any], patch: dict[str, Any]) -> dict[str, Any]:
    """What a page makes of a patch."""
    steps = {**view["steps"], **patch["steps"]}
    order = patch.get("order", view["order"])
    return {**view, **patch["run"], "order": order, "steps": {step: steps[step] for step in order}}


def check_patches(records: Sequence[Record], cuts: set[int]) -> None:
    """I4: a snapshot and the patches after it are the run, wherever they were cut."""
    board = Board("the-run")
    changes = Changes(board)
    seen = changes.view(0.0, {})
    for at, record in enumerate(records):
        board.feed(record)
        if at in cuts or at == len(records) - 1:
            patch = changes.patch(record.at, {})
            if patch is not None:
                seen = patched(seen, patch)
            fresh = run_view(Board.of("the-run", records[: at + 1]), record.at)
            assert list(seen["steps"]) == list(fresh["steps"])
            assert without_time(seen) == without_time(fresh)
    for step in seen["steps"].values():
        assert all(span["to"] is not None for span in step["spans"]), "nothing is under way at rest"


def check_actions(records: Sequence[Record], cuts: set[int]) -> None:
    """X7, I4: what is offered would be granted; a limit may be in the way, and says how to pass it."""
    for at in cuts:
        if at >= len(records):
            continue
        view = run_view(Board.of("the-run", records[: at + 1]), records[at].at)
        state = fold("the-run", records[: at + 1])
        for step, row in view["steps"].items():
            for action in row["actions"]:
                assert refused(state, action, step) in ("", "RETRY_LIMIT", "NOT_RETRYABLE", "RUN_IN_DOUBT")


def refused(state: Any, action: str, step: str) -> str:
    """The code with which a wish would be refused; nothing if it would be granted."""
    try:
        grant(state, action, step)
    except Refusal as refusal:
        return refusal.code
    return ""


def grant(state: Any, action: str, step: str) -> None:
    """Wish for something, as the command of that name does."""
    match action:
        case "skip":
            commands.skip(state, step, "me")
        case "confirm":
            commands.confirm(state, step, "me")
        case "resolve":
            commands.resolve_succeeded(state, step, "me", 1, pack(1), blob=False)
        case "repair":
            commands.repair(state, step, {"title": "another"}, _Every(), "me")
        case "retry" if state.rest is not None:
            retry.retry(state, "me", steps=[step])
        case "retry":
            retry.retry_live(state, [step], "me")
        case _:
            raise AssertionError(action)


class _Every(dict[str, Any]):
    """Tools of every name, which take anything."""

    def __contains__(self, name: object) -> bool:
        return True

    def __missing__(self, name: str) -> Any:
        from rerail.plan.tool_spec import ToolSpec

        return ToolSpec(name)

    def get(self, name: str, default: Any = None) -> Any:
        """A tool of that name."""
        return self[name]


# -- Messages -----------------------------------------------------------------------------------------------------


def check_messages(records: Sequence[Record], after: int) -> None:
    """I3: start, then updates and artifacts, then exactly one complete; nothing is open at rest; each has its seq."""
    messages = ToolMessages("the-run")
    opened: dict[str, int] = {}
    seq = 0
    for record in records:
        for name, said in messages.feed(record):
            assert said["seq"] == record.seq >= seq and said["runId"] == "the-run"
            seq = record.seq
            ident = said.get("id") or said["messageId"]
            match name:
                case _ if name == START:
                    assert opened.get(ident, 0) == 0, "started twice"
                    assert said["status"] == "in_progress" and said["kind"] == "tool" and said["toolName"]
                    opened[ident] = 1
                case _ if name == COMPLETE:
                    assert opened.get(ident) == 1, "completed, and not started"
                    assert said["status"] in ("completed", "failed", "skipped", "cancelled")
                    assert ("error" in said) == (said["status"] != "completed")
                    opened[ident] = 0
                case _:
                    assert name in (UPDATE, ARTIFACT) and opened.get(ident) == 1, "told of something that is over"
        if record.type == "done":
            assert not any(opened.values()), "left open at rest"
    late = [(message.name, message.payload) for message in heard(records) if message.payload["seq"] > after]
    whole = [(message.name, message.payload) for message in heard(records)]
    assert late == [one for one in whole if one[1]["seq"] > after]


def heard(records: Sequence[Record]) -> list[Any]:
    """All messages of a history."""
    messages = ToolMessages("the-run")
    return [message for record in records for message in messages.feed(record)]


def check_histories(records: Sequence[Record]) -> None:
    """I4: attempts are as many as were made, numbered as they were; the last revision is the plan as it stands."""
    state = fold("the-run", records)
    for track in state.tracks.values():
        found = tries(records, state, track, {})
        calls = [one["attempt"] for one in found if one.get("called", True)]
        wanted = [r.event.attempt for r in records if r.type == "step_started" and r.event.step == track.id]
        assert calls == wanted
        assert all(one["outcome"] != "running" for one in found)
    last = revisions(records)[-1]
    assert [step["id"] for step in last["steps"]] == list(state.tracks)
    assert [step["tool"] for step in last["steps"]] == [track.step.tool for track in state.tracks.values()]


@LAW
@given(plans(), st.data())
def test_what_is_shown_is_the_run(plan: Plan, data: st.DataObject) -> None:
    """I3, I4, X7: boards, messages, attempts and offers, for any plan, any faults and any answers of people."""
    records = lived(plan, data)
    cuts = {data.draw(st.integers(0, max(0, len(records) - 1))) for _ in range(6)}
    check_patches(records, cuts)
    check_actions(records, cuts)
    check_messages(records, max(cuts, default=0))
    check_histories(records)


@LAW
@given(plans(), NUMBERS, NUMBERS, JUNK, st.integers(1, 7))
def test_a_mind_can_hide_nothing(plan: Plan, said: list[int], happens: list[int], junk: list[Any], every: int) -> None:
    """I3, I4: the same where steps are repaired, added, dropped and put in another order meanwhile."""
    records = haunted(plan, said, junk, Outcomes(happens))
    cuts = set(range(0, len(records), every))
    check_patches(records, cuts)
    check_messages(records, len(records) // 2)
    check_histories(records)


def test_an_event_costs_what_it_changes() -> None:
    """I4: a run of 2,000 steps is watched in a fraction of the time it takes; a patch of one step is small."""
    steps = [{"id": f"s{i}", "tool": "t", "needs": [f"s{i - 1}"] if i % 20 else []} for i in range(2_000)]

    async def main() -> list[Record]:
        async with Engine("memory://", [tool(_nothing, name="t")], clock=VirtualClock()) as engine:
            return await engine.events((await engine.run({"objective": "big", "steps": steps})).run_id)

    records = virtual_run(main)
    begun = time.perf_counter()
    board = Board.of("the-run", records[:-10])
    fed = time.perf_counter() - begun
    changes = Changes(board)
    changes.view(0.0, {})
    board.feed(records[-10])
    begun = time.perf_counter()
    patch = changes.patch(0.0, {})
    took = time.perf_counter() - begun
    assert patch is not None and len(patch["steps"]) <= 2
    assert fed < 4.0 and took < 0.5, (fed, took)


async def _nothing() -> int:
    return 1
