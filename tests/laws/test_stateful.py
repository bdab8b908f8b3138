"""A run under everything that can happen to it, in any order: a stateful test of the whole engine on virtual time.

Rules: an outcome arrives, time passes, the process dies and a second one claims the run, a person acts or retries, an
artifact rots, the plan changes (repair, replan), a step is added. After each, the live state is checked against naive
definitions and against a fold of the stored history.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine
from typing import Any, TypeVar

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.laws.worlds import SCALE, plans
from tests.simulation.invariants import check_history, check_indexes, check_rest, once_repeats, snapshot
from tests.simulation.world import tool_names

from rerail.adapters.stores.memory import MemoryStore
from rerail.adapters.tools.functions import tool
from rerail.api import Engine
from rerail.errors import PlanError, Refused, ToolError
from rerail.kernel.fold import fold
from rerail.kernel.policy import Policy
from rerail.plan.model import Plan
from rerail.testing import VirtualClock, VirtualLoop

T = TypeVar("T")
BIG = "x" * 3000  # large enough to be kept as a content of its own
RUN = "the-run"


class RottingStore(MemoryStore):
    """A store whose contents can go bad."""

    def rot(self) -> None:
        """Delete or damage every content."""
        for number, digest in enumerate(list(self._blobs)):
            if number % 2:
                del self._blobs[digest]
            else:
                self._blobs[digest] = b'"not what it was"'


class Minds:
    """A mind that offers whatever the machine drew last."""

    name = "machine"
    answers = ("repair", "replan")

    def __init__(self) -> None:
        self.offer: Any = None

    async def answer(self, question: Any) -> Any:
        if question.kind == "repair":
            return self.offer and {"args": {"mended": self.offer}, "reason": "drawn"}
        rows = [row for row in question.table if row["status"] != "failed"]
        known = {row["id"] for row in rows}
        steps = [{"id": r["id"], "tool": r["tool"], "needs": [n for n in r["needs"] if n in known]} for r in rows]
        return {"steps": [*steps, {"id": f"new{len(steps)}", "tool": "extra"}]} if self.offer else None


class Life(RuleBasedStateMachine):
    """One run's life."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = VirtualLoop()
        self.store = RottingStore()
        self.minds = Minds()
        self.pending: dict[int, tuple[str, asyncio.Future[Any]]] = {}
        self.count = 0
        self.added = 0
        self.engine: Engine | None = None

    def do(self, work: Coroutine[Any, Any, T]) -> T:
        """Run something on the machine's loop, and let what follows from it happen."""

        async def whole() -> T:
            try:
                return await asyncio.wait_for(work, 10**9)
            finally:
                for _ in range(30):
                    await asyncio.sleep(0)

        return self.loop.run_until_complete(whole())

    def make_engine(self) -> Engine:
        def make(name: str) -> Any:
            async def call(**args: Any) -> Any:
                self.count += 1
                future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
                self.pending[self.count] = (name, future)
                try:
                    return await future
                finally:
                    self.pending = {n: entry for n, entry in self.pending.items() if entry[1] is not future}

            return tool(call, name=name)

        tools = [make(name) for name in dict.fromkeys([*tool_names(self.plan), "extra"])]
        limits = {"run": {"concurrency": 3}, "retry": {"max_retries": 100}}
        return Engine(self.store, tools, limits, self.minds, clock=VirtualClock())

    @initialize(plan=plans(6))
    def begin(self, plan: Plan) -> None:
        self.plan = plan
        self.engine = self.make_engine()
        self.do(self.engine.open())
        self.do(self.engine.start(plan, run_id=RUN))

    @rule(
        data=st.data(),
        how=st.sampled_from(["ok", "ok", "big", "same", "transient", "tool", "permanent", "plan", "lost"]),
    )
    @precondition(lambda self: self.pending)
    def outcome_arrives(self, data: st.DataObject, how: str) -> None:
        number = data.draw(st.sampled_from(sorted(self.pending)))
        name, future = self.pending.pop(number)
        errors: dict[str, BaseException] = {
            "transient": ConnectionRefusedError("down"),
            "tool": ToolError("broken", category="tool_error"),
            "permanent": ToolError("no key", category="permanent_error"),
            "plan": ToolError("no prerequisite", category="decomposition_error"),
            "lost": ConnectionResetError("in the middle"),
        }
        if how in errors:
            future.set_exception(errors[how])
        else:
            future.set_result({"big": BIG, "n": number} if how == "big" else {"n": number if how == "ok" else 0})
        self.do(asyncio.sleep(0))
        assert name

    @rule(seconds=st.sampled_from([1, 40, 500]))
    def time_passes(self, seconds: int) -> None:
        self.do(asyncio.sleep(seconds))

    @rule()
    def process_dies_and_another_claims(self) -> None:
        assert self.engine is not None
        self.do(self.engine.close())
        self.pending.clear()
        self.engine = self.make_engine()
        self.do(self.engine.open())
        if self.status() == "running":
            self.do(self.engine.begin_resume(RUN))

    def status(self) -> str:
        assert self.engine is not None
        return self.do(self.engine.internals.head(RUN)).status

    def wish(self, work: Coroutine[Any, Any, Any]) -> None:
        with contextlib.suppress(Refused, PlanError):  # a fine answer; that the state stays sound is checked
            self.do(work)

    @rule(data=st.data(), action=st.sampled_from(["skip", "confirm", "refuse", "done", "failed", "rerun", "retry"]))
    def person_acts(self, data: st.DataObject, action: str) -> None:
        engine = self.engine
        assert engine is not None
        step = data.draw(st.sampled_from(sorted(self.do(engine.internals.state(RUN)).tracks)))
        wishes = {
            "skip": lambda: engine.skip(RUN, step),
            "confirm": lambda: engine.confirm(RUN, step),
            "refuse": lambda: engine.confirm(RUN, step, refuse=True),
            "done": lambda: engine.resolve(RUN, step, succeeded={"by": "hand"}),
            "failed": lambda: engine.resolve(RUN, step, failed=True),
            "rerun": lambda: engine.resolve(RUN, step, rerun=True),
            "retry": lambda: engine.begin_retry(RUN, [step], force=data.draw(st.booleans())),
        }
        self.wish(wishes[action]())

    @rule(clean=st.booleans())
    def person_retries(self, clean: bool) -> None:
        assert self.engine is not None
        self.wish(self.engine.begin_retry(RUN, clean=clean, force=True))

    @rule()
    def person_pauses_and_resumes(self) -> None:
        assert self.engine is not None
        self.wish(self.engine.pause(RUN))
        self.do(asyncio.sleep(1))
        self.wish(self.engine.begin_resume(RUN))

    @rule()
    def artifact_rots(self) -> None:
        self.store.rot()

    @rule(offer=st.sampled_from([None, "a", "b"]))
    def minds_change(self, offer: Any) -> None:
        self.minds.offer = offer

    @rule(data=st.data())
    def step_is_added(self, data: st.DataObject) -> None:
        engine = self.engine
        assert engine is not None
        self.added += 1
        needs = data.draw(
            st.lists(st.sampled_from(sorted(self.do(engine.internals.state(RUN)).tracks)), max_size=2, unique=True)
        )
        self.wish(engine.add(RUN, [{"id": f"add{self.added}", "tool": "extra", "needs": needs}]))

    @invariant()
    def live_equals_history(self) -> None:
        if self.engine is None:
            return
        records = self.do(self.engine.events(RUN))
        state = self.do(self.engine.internals.state(RUN))
        check_indexes(state)
        if state.seq == records[-1].seq and not state.backoff:  # time moves backoffs on without an event
            replayed = fold(RUN, records)
            replayed.tick(state.at + 10**6)
            state.tick(state.at)
            if not replayed.backoff and sorted(replayed.ready.members) == sorted(state.ready.members):
                assert snapshot(replayed)["tracks"] == snapshot(state)["tracks"]

    def teardown(self) -> None:
        try:
            if self.engine is not None:  # else the plan could not be drawn
                self._end_and_close(self.engine)
        finally:
            self.loop.close()

    def _end_and_close(self, engine: Engine) -> None:
        try:
            self.end()
        finally:
            self.do(engine.close())

    def end(self) -> None:
        """Whatever happened, the run can be brought to rest, and its history keeps the laws."""
        engine = self.engine
        assert engine is not None
        for _ in range(400):
            if self.pending:
                _, future = self.pending.pop(min(self.pending))
                future.set_result({"n": 0})
                self.do(asyncio.sleep(0))
                continue
            status = self.status()
            if status in ("completed", "failed", "cancelled"):
                break
            if status == "waiting":
                result = self.do(engine.show(RUN))
                on = result.waiting_on[0]
                if on["for"] == "paused":
                    self.do(engine.begin_resume(RUN))
                elif on["for"] == "confirm":
                    self.do(engine.confirm(RUN, on["step"]))
                else:
                    self.do(engine.resolve(RUN, on["step"], failed=True))
            else:
                self.do(asyncio.sleep(1000))
        else:
            raise AssertionError("the run does not come to rest")
        records = self.do(engine.events(RUN))
        state = check_history(records, Policy(), people=True)
        check_rest(state, records)
        assert not once_repeats(records, state)


TestLife = Life.TestCase
TestLife.settings = settings(
    max_examples=60 * SCALE, stateful_step_count=25, deadline=None, suppress_health_check=list(HealthCheck)
)
