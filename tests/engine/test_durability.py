"""What must survive: crashes, stores that fail, clocks that jump, tools that change, contents that go (E1-E7)."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

import rerail
from rerail.adapters.stores.memory import MemoryStore
from rerail.api import Engine
from rerail.errors import Refused, StoreError, ToolError
from rerail.kernel.codec import decode
from rerail.ports import Batch, Head, Owner, Unavailable, Unusable
from rerail.testing.scripted import Took, World
from rerail.testing.virtual_time import VirtualClock, virtual_run
from rerail.values.json_values import digest

BROKE = ToolError("it broke", category="tool_error")
PLAIN = {"reflection": {"max_step_retries": 0}, "retry": {"max_retry_rounds": 0}}
BIG = {"text": "x" * 2000}


def plan(*steps: tuple[str, ...], **changes: dict[str, Any]) -> dict[str, Any]:
    """Steps as (id, needs…), each calling a tool of its own name."""
    return {"steps": [{"id": s[0], "tool": s[0], "needs": list(s[1:]), **changes.get(s[0], {})} for s in steps]}


def of(events: list[Any], kind: str) -> list[Any]:
    return [event for event in events if event.type == kind]


def with_engine(work: Any, *args: Any, **options: Any) -> Any:
    """Do something with an engine on virtual time."""

    async def main() -> Any:
        async with Engine(*args, clock=options.pop("clock", None) or VirtualClock(), **options) as engine:
            return await work(engine)

    return virtual_run(main)


def stored(store: MemoryStore, run: str = "r") -> list[Any]:
    """The events a store holds, read past the engine."""

    async def main() -> list[Any]:
        return [decode(row.data) for row in await store.read(run, 0, 10_000)]

    return asyncio.run(main())


def interrupted(world: World, what: Any, store: MemoryStore, seconds: float = 1, **options: Any) -> None:
    """Start a plan as run "r" and let its process die after some seconds."""

    async def main() -> None:
        async with world.engine(what, store=store, **options) as engine:
            await engine.start(what, run_id="r")
            await asyncio.sleep(seconds)

    virtual_run(main)


def resumed(world: World, what: Any, store: MemoryStore, **options: Any) -> tuple[Any, list[Any]]:
    async def main() -> tuple[Any, list[Any]]:
        async with world.engine(what, store=store, **options) as engine:
            return await engine.resume("r"), await engine.events("r")

    return virtual_run(main)


# -- E1, E2: durable before anything follows ----------------------------------------------------------------------


def test_the_intent_is_durable_before_the_call_and_the_result_before_what_follows() -> None:
    """E1, E2: a tool finds its own intent, and the results it was made from, in the store."""
    store = MemoryStore()
    seen: dict[str, list[str]] = {}

    async def note(ctx: rerail.Context) -> dict[str, Any]:
        rows = await store.read(ctx.run, 0, 1000)
        told = [decode(row.data) for row in rows]
        seen[ctx.step] = [f"{type(event).__name__} {getattr(event, 'step', '')}" for event in told]
        return {"step": ctx.step}

    what = {"steps": [{"id": "a", "tool": "note"}, {"id": "b", "tool": "note", "needs": ["a"]}]}
    assert with_engine(lambda engine: engine.run(what), store, [note]).success
    assert "StepStarted a" in seen["a"]
    assert "StepSucceeded a" not in seen["a"]
    assert seen["b"].index("StepSucceeded a") < seen["b"].index("StepStarted b")


def test_what_people_do_is_durable_when_it_returns() -> None:
    """E1, X7: an acknowledged action is in the store."""
    store, world = MemoryStore(), World(a=[Took(10)])
    what = plan(("a",), ("b", "a"))

    async def work(engine: Engine) -> None:
        run = await engine.start(what)
        await asyncio.sleep(1)
        await engine.skip(run, "b", by="ann")
        rows = [decode(row.data) for row in await store.read(run, 0, 100)]
        assert any(type(event).__name__ == "Acted" for event in rows)

    with_engine(work, store, world.tools(what))


def test_a_resumed_run_never_calls_a_finished_step_again() -> None:
    """E1: killed, resumed, killed, resumed: what was done before the first kill is still known."""
    store = MemoryStore()
    world = World({name: [Took(10, {"v": name})] for name in "abcd"})
    before = {"b": "a", "c": "b", "d": "c"}
    what = {
        "steps": [{"id": n, "tool": n, "args": {"x": f"${{{before[n]}.v}}"} if n in before else {}} for n in "abcd"]
    }
    interrupted(world, what, store, 15)

    async def second() -> None:
        async with world.engine(what, store=store) as engine:
            await engine.begin_resume("r")
            await asyncio.sleep(15)

    virtual_run(second)
    result, events = resumed(world, what, store)
    assert result.success
    assert world.order == ["a", "b", "b", "c", "c", "d"]
    assert dict(world.calls[-1].args) == {"x": "c"}
    assert len(of(events, "resumed")) == 2
    assert len(of(events, "done")) == 1
    attempts = [(event.step, event.attempt) for event in of(events, "step_started")]
    assert len(set(attempts)) == len(attempts)


def test_a_crash_in_a_backoff_waits_for_what_is_left_of_it() -> None:
    """E1, H4: the wait is in the history."""
    store, world = MemoryStore(), World(a=[ConnectionRefusedError("down"), {"v": 1}])
    settings = {"retry": {"jitter": False, "backoff_base": 25}}
    interrupted(world, plan(("a",)), store, 5, settings=settings)
    result, events = resumed(world, plan(("a",)), store, settings=settings, clock=VirtualClock(1_700_000_010))
    assert result.success
    first, second = of(events, "step_started")
    assert second.at - first.at == pytest.approx(25)


def test_a_crash_while_a_gate_waits_changes_nothing() -> None:
    """E1, T2: nor does one after the confirmation."""
    store, world = MemoryStore(), World(g=[Took(10)])
    what = plan(("g",), g={"confirm": True})
    interrupted(world, what, store)

    async def confirm() -> None:
        async with world.engine(what, store=store) as engine:
            assert (await engine.show("r")).status == "waiting"
            await engine.confirm("r")
            await asyncio.sleep(1)

    virtual_run(confirm)
    assert resumed(world, what, store)[0].success


def test_a_step_that_takes_its_process_along_is_not_called_for_ever() -> None:
    """H4, E3: budgets are hard and survive crashes: a call that always kills the process ends the run, some day."""
    store, world = MemoryStore(), World(a=[Took(1000)])
    interrupted(world, plan(("a",)), store)

    async def again() -> str:
        async with world.engine(plan(("a",)), store=store) as engine:
            await engine.begin_resume("r")
            await asyncio.sleep(40)  # longer than any backoff
            return (await engine.show("r")).status

    statuses = []
    for _ in range(20):
        statuses.append(virtual_run(again))
        if statuses[-1] != "running":
            break
    assert statuses[-1] == "failed"
    assert world.calls_of("a") <= 20  # three at no cost and four of its budget, in each of two rounds


# -- E2: the idempotency key --------------------------------------------------------------------------------------


class Keys:
    """A tool that notes the idempotency key of each call."""

    def __init__(self, *outcomes: Any) -> None:
        self.keys: list[str] = []
        self.outcomes = list(outcomes)

    def tool(self, **options: Any) -> Any:
        async def t(ctx: rerail.Context, n: int = 0) -> Any:
            self.keys.append(ctx.key)
            outcome = self.outcomes.pop(0) if self.outcomes else {"v": 1}
            if isinstance(outcome, Took):
                await asyncio.sleep(outcome.seconds)
                outcome = outcome.outcome
            if isinstance(outcome, Exception):
                raise outcome
            return outcome

        return rerail.tool(t, **options)


ONE = {"steps": [{"id": "a", "tool": "t"}]}


def test_the_key_stays_across_retries_and_rounds() -> None:
    """E2: of the same arguments."""
    down = ConnectionRefusedError("down")
    keys = Keys(down, down, down, down, down)

    async def work(engine: Engine) -> None:
        assert (await engine.run(ONE)).success

    with_engine(work, "memory://", [keys.tool()])
    assert len(keys.keys) == 6
    assert len(set(keys.keys)) == 1
    assert keys.keys[0]


def test_the_key_stays_across_a_crash_and_a_persons_retry() -> None:
    """E2: also in another process."""
    store, keys = MemoryStore(), Keys(Took(100), BROKE, {"v": 1})

    async def first(engine: Engine) -> None:
        await engine.start(ONE, run_id="r")
        await asyncio.sleep(1)

    async def second(engine: Engine) -> None:
        assert (await engine.resume("r")).status == "failed"
        assert (await engine.retry("r")).status == "completed"

    with_engine(first, store, [keys.tool()], settings=PLAIN)
    with_engine(second, store, [keys.tool()], settings=PLAIN)
    assert len(keys.keys) == 3
    assert len(set(keys.keys)) == 1


def test_other_arguments_steps_and_runs_have_other_keys() -> None:
    """E2: adjusted arguments are another call."""
    keys = Keys(ToolError("no", suggest={"n": 1}))
    what = {"steps": [{"id": "a", "tool": "t"}, {"id": "b", "tool": "t"}]}

    async def work(engine: Engine) -> None:
        await engine.run(what)
        await engine.run(what)

    with_engine(work, "memory://", [keys.tool()])
    assert len(keys.keys) == 5
    assert len(set(keys.keys)) == 5


@pytest.mark.parametrize("how", [{"clean": True}, {"steps": ["a"], "force": True}])
def test_clean_and_forced_reruns_draw_a_new_key(how: dict[str, Any]) -> None:
    """E2: it is meant to happen again."""
    keys = Keys()

    async def work(engine: Engine) -> None:
        run = (await engine.run(ONE)).run_id
        assert (await engine.retry(run, **how)).success

    with_engine(work, "memory://", [keys.tool()])
    assert len(set(keys.keys)) == 2


def test_e2_a_rerun_of_a_doubt_keeps_its_key() -> None:
    """E2, E3: resolve --rerun makes the same call again, and a service that knows its key can tell."""
    keys = Keys(TimeoutError("no answer"))

    async def work(engine: Engine) -> None:
        run = (await engine.run(ONE)).run_id
        await engine.resolve(run, "a", rerun=True)
        assert (await engine.wait(run)).success

    with_engine(work, "memory://", [keys.tool(effect="once")])
    assert len(keys.keys) == 2 and len(set(keys.keys)) == 1


# -- E3: lost answers after a crash -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("effect", "status"), [("read", "completed"), ("repeatable", "completed"), ("once", "waiting")]
)
def test_a_call_that_was_in_flight(effect: str, status: str) -> None:
    """E3: read and repeatable tools are called again, a `once` tool is in doubt; the resume names what was lost."""
    store, world = MemoryStore(), World(a=[Took(100), {"v": 1}]).option("a", effect=effect)
    interrupted(world, plan(("a",)), store)
    result, events = resumed(world, plan(("a",)), store, settings=PLAIN)
    assert result.status == status
    assert world.calls_of("a") == (1 if effect == "once" else 2)
    assert of(events, "resumed")[0].lost == ("a",)


def test_a_steps_effect_beats_its_tools() -> None:
    """P1, E3: the step's word first, both ways."""
    for on_step, on_tool, status in (("once", "read", "waiting"), ("repeatable", "once", "completed")):
        store, world = MemoryStore(), World(a=[Took(100), {"v": 1}]).option("a", effect=on_tool)
        what = plan(("a",), a={"effect": on_step})
        interrupted(world, what, store)
        assert resumed(world, what, store)[0].status == status


@pytest.mark.parametrize(("there", "calls"), [(True, 1), (False, 2)])
def test_verify_is_asked_first_after_a_crash(there: bool, calls: int) -> None:
    """E3, V8: effect there: not called again; not there: called again."""
    done = [there]

    async def verify() -> Any:
        return rerail.Verified(output={"v": 9}) if done[0] else False

    def act() -> Any:
        done[0] = True
        return {"v": 2}

    store = MemoryStore()
    world = World(a=[Took(100), act]).option("a", effect="once", verify=verify)
    interrupted(world, plan(("a",)), store)
    result, _ = resumed(world, plan(("a",)), store)
    assert result.success
    assert world.calls_of("a") == calls
    assert result.steps["a"].output == {"v": 9 if there else 2}


# -- E4: a store that fails ---------------------------------------------------------------------------------------


class Failing(MemoryStore):
    """A store that fails at the n-th append, half-way, with an error of choice."""

    def __init__(self, error: Exception, at: int, *, written: bool = False) -> None:
        super().__init__()
        self.error, self.left, self.written = error, at, written

    async def append(self, batch: Batch) -> None:
        self.left -= 1
        if self.left == 0:
            if self.written:
                await super().append(batch)
            raise self.error
        await super().append(batch)


@pytest.mark.parametrize("at", [1, 2, 3])
@pytest.mark.parametrize("written", [False, True], ids=["not written", "written, not acknowledged"])
def test_a_store_that_fails_stops_the_run_cleanly(at: int, written: bool) -> None:
    """E4: `run` raises StoreError, there is no done, nothing is reported as success; then it is resumed."""
    store, world = Failing(Unusable("disk full"), at, written=written), World()
    what = plan(("a",), ("b", "a"))

    async def first() -> None:
        async with world.engine(what, store=store) as engine:
            with pytest.raises(StoreError) as refused:
                await engine.wait(await engine.start(what, run_id="r"))
            assert "disk full" in str(refused.value)
            assert (await engine.show("r")).status != "completed" or (at == 3 and written)

    virtual_run(first)
    if at == 3 and written:
        return  # the done itself was written; only nobody heard of it
    assert not [event for event in stored(store) if type(event).__name__ == "Done"]
    if at == 1 and not written:
        return  # it failed before the run was there
    result, events = resumed(world, what, store)
    assert result.success
    assert len(of(events, "done")) == 1


def test_run_raises_too() -> None:
    """E4: start + wait in one."""
    store, world = MemoryStore(), World(a=[Took(1)])

    async def work(engine: Engine) -> None:
        asyncio.get_running_loop().call_later(0.5, setattr, store, "broken", Unusable("disk full"))
        with pytest.raises(StoreError):
            await engine.run(plan(("a",)))

    with_engine(work, store, world.tools(plan(("a",))))


def test_wait_raises_also_when_it_comes_late() -> None:
    """E4: who asks after the run has stopped is told so, too."""
    store, world = MemoryStore(), World(a=[Took(1)])

    async def work(engine: Engine) -> None:
        run = await engine.start(plan(("a",)))
        await asyncio.sleep(0.5)
        store.broken = Unusable("disk full")
        await asyncio.sleep(5)
        with pytest.raises(StoreError):
            await engine.wait(run)

    with_engine(work, store, world.tools(plan(("a",))))


def test_a_persons_action_that_cannot_be_written_is_not_acknowledged() -> None:
    """E4, X7: it raises."""
    store, world = MemoryStore(), World(a=[Took(10)])

    async def work(engine: Engine) -> None:
        run = await engine.start(plan(("a",), ("b", "a")))
        await asyncio.sleep(1)
        store.broken = Unusable("disk full")
        with pytest.raises(StoreError):
            await engine.skip(run, "b")

    with_engine(work, store, world.tools(plan(("a",), ("b", "a"))))


class Away(MemoryStore):
    """A database that is out of reach for a while, from a moment on."""

    def __init__(self, since: float, until: float) -> None:
        super().__init__()
        self.since, self.until = since, until
        self.refused = 0

    async def append(self, batch: Batch) -> None:
        if self.since <= asyncio.get_running_loop().time() < self.until:
            self.refused += 1
            raise Unavailable("connection refused")
        await super().append(batch)


def test_a_lost_database_is_reconnected() -> None:
    """E4: for store.reconnect_seconds; nothing is lost or doubled."""
    store, world = Away(0.5, 20), World(a=[Took(1)])
    what = plan(("a",), ("b", "a"))

    async def work(engine: Engine) -> None:
        assert (await engine.run(what)).success
        assert asyncio.get_running_loop().time() >= 20

    with_engine(work, store, world.tools(what), {"store": {"reconnect_seconds": 30}})
    assert store.refused > 1
    assert world.order == ["a", "b"]


def test_a_database_that_stays_away() -> None:
    """E4: past reconnect_seconds the run stops and says so."""
    store, world = Away(0.5, 1000), World(a=[Took(1)])

    async def work(engine: Engine) -> None:
        with pytest.raises(StoreError) as refused:
            await engine.run(plan(("a",)))
        assert "out of reach" in str(refused.value)
        assert 5 <= asyncio.get_running_loop().time() < 10

    with_engine(work, store, world.tools(plan(("a",))), {"store": {"reconnect_seconds": 5}})


def test_contents_out_of_reach_for_a_moment() -> None:
    """E4, E6: reading an artifact waits for the database as writing does."""

    class Gone(MemoryStore):
        async def blob(self, digest: str) -> bytes | None:
            if asyncio.get_running_loop().time() < 10:
                raise Unavailable("connection refused")
            return await super().blob(digest)

    what = {"steps": [{"id": "p", "tool": "p"}, {"id": "c", "tool": "c", "args": {"x": "${p.text}"}}]}
    world = World(p=[BIG])
    options = {"artifacts": {"memory": 0}}
    assert with_engine(lambda engine: engine.run(what), Gone(), world.tools(what), options).success


def test_an_append_whose_acknowledgement_was_lost_is_not_doubled() -> None:
    """E4: it is recognised as one's own."""
    for at in (1, 2, 3):
        store, world = Failing(Unavailable("connection reset"), at, written=True), World()
        what = plan(("a",), ("b", "a"))
        result = with_engine(lambda engine, what=what: engine.run(what), store, world.tools(what))
        assert result.success
        assert world.order == ["a", "b"]
        names = [type(event).__name__ for event in stored(store, result.run_id)]
        assert names.count("StepSucceeded") == 2
        assert names.count("Done") == 1


# -- E5: definitions that changed ---------------------------------------------------------------------------------


def tools_of(version: int, calls: list[str]) -> list[Any]:
    """The same tools in two versions; only `a` is written differently."""
    if version == 1:

        async def a() -> Any:
            calls.append("old a")
            return {"v": 1}

    else:

        async def a() -> Any:
            calls.append("new a")
            return {"v": 2}

    async def b(x: int) -> Any:
        calls.append(f"b {x}")
        await asyncio.sleep(10)
        return {"b": x}

    return [rerail.tool(a), rerail.tool(b)]


CHANGED = {"steps": [{"id": "a", "tool": "a"}, {"id": "b", "tool": "b", "args": {"x": "${a.v}"}}]}


def test_a_changed_tool_is_named_kept_and_run_again_with_force() -> None:
    """E5: resume names the finished steps concerned, marks them stale and keeps them; a forced retry runs them."""
    store, calls = MemoryStore(), []

    async def first(engine: Engine) -> None:
        await engine.start(CHANGED, run_id="r")
        await asyncio.sleep(1)

    async def second(engine: Engine) -> None:
        result = await engine.resume("r")
        (event,) = of(await engine.events("r"), "resumed")
        assert event.stale == ("a",)
        assert result.steps["a"].stale
        assert result.steps["a"].output == {"v": 1}
        assert (result.success, result.degraded) == (True, True)
        assert calls == ["old a", "b 1", "b 1"]
        with pytest.raises(Refused):
            await engine.retry("r")
        again = await engine.retry("r", force=True)
        assert calls[3:] == ["new a", "b 2"]
        assert not again.steps["a"].stale
        assert not again.degraded

    with_engine(first, store, tools_of(1, calls))
    with_engine(second, store, tools_of(2, calls))


def test_the_same_tools_are_not_stale() -> None:
    """E5: the same text is the same tool, in another process too."""
    store, calls = MemoryStore(), []

    async def first(engine: Engine) -> None:
        await engine.start(CHANGED, run_id="r")
        await asyncio.sleep(1)

    async def second(engine: Engine) -> None:
        result = await engine.resume("r")
        assert not result.degraded
        assert of(await engine.events("r"), "resumed")[0].stale == ()

    with_engine(first, store, tools_of(1, calls))
    with_engine(second, store, tools_of(1, calls))


def test_a_change_is_noticed_by_a_retry_as_well() -> None:
    """E5, R7: a run at rest, retried with changed tools: the change is not silently taken for the old result."""
    store, calls = MemoryStore(), []
    what = {"steps": [*CHANGED["steps"], {"id": "c", "tool": "a", "needs": ["b"], "args": {"wrong": 1}}]}
    what["steps"][2] = {"id": "c", "tool": "b", "args": {"x": "${b.none}"}}  # fails before its call

    async def first(engine: Engine) -> None:
        assert (await engine.wait(await engine.start(what, run_id="r"))).status == "failed"

    async def second(engine: Engine) -> None:
        kept = await engine.retry("r")
        assert kept.steps["a"].stale
        await engine.retry("r", force=True)
        assert "new a" in calls

    with_engine(first, store, tools_of(1, calls), settings=PLAIN)
    with_engine(second, store, tools_of(2, calls), settings=PLAIN)


def test_a_tool_that_is_gone_is_named() -> None:
    """E5, P5: a run cannot go on without the tools of its unfinished steps."""
    store, calls = MemoryStore(), []

    async def first(engine: Engine) -> None:
        await engine.start(CHANGED, run_id="r")
        await asyncio.sleep(1)

    async def second(engine: Engine) -> None:
        with pytest.raises(rerail.PlanError) as refused:
            await engine.resume("r")
        assert "'b'" in str(refused.value)
        assert (await engine.list())[0]["owner"] is None  # and it is free for who has them

    with_engine(first, store, tools_of(1, calls))
    with_engine(second, store, tools_of(1, calls)[:1])


def test_a_history_of_a_newer_version_is_refused() -> None:
    """E5, E4: by name, not guessed at; the store's other runs are not harmed, the lease is given back."""
    store, world = MemoryStore(), World(a=[Took(10)])
    interrupted(world, plan(("a",)), store)

    async def newer() -> None:
        lease = await store.claim("r", Owner("x", 1, 1.0), 1.0)
        seq = (await store.read("r", 0, 100))[-1].seq
        await store.append(Batch("r", seq, [(1.0, b'{"type":"step_teleported","step":"a"}')], lease.fence))
        await store.release(lease)

    asyncio.run(newer())

    async def work(engine: Engine) -> None:
        for ask in (engine.show, engine.resume, engine.retry, engine.events, engine.why, engine.cancel):
            with pytest.raises(StoreError) as refused:
                await ask("r")  # type: ignore[operator]
            assert refused.value.code == "STORE_NEWER", ask
            assert "newer" in str(refused.value)
        (row,) = await engine.list()
        assert row["owner"] is None
        assert (await engine.run(plan(("a",)))).success

    with_engine(work, store, world.tools(plan(("a",))))


def test_a_damaged_history_is_refused() -> None:
    """E4: a row that is no event."""
    store, world = MemoryStore(), World(a=[Took(10)])
    interrupted(world, plan(("a",)), store)

    async def damage() -> None:
        lease = await store.claim("r", Owner("x", 1, 1.0), 1.0)
        await store.append(Batch("r", (await store.read("r", 0, 100))[-1].seq, [(1.0, b"\x00\xff")], lease.fence))
        await store.release(lease)

    asyncio.run(damage())

    async def work(engine: Engine) -> None:
        with pytest.raises(StoreError):
            await engine.resume("r")

    with_engine(work, store, world.tools(plan(("a",))))


def test_unknown_fields_of_known_events_are_ignored() -> None:
    """E5: most changes need no new format."""
    event = decode(b'{"type":"step_succeeded","step":"a","attempt":1,"flavour":"new"}')
    assert (event.step, event.attempt) == ("a", 1)  # type: ignore[union-attr]


# -- E6: artifacts ------------------------------------------------------------------------------------------------

PASS_ON = {"steps": [{"id": "p", "tool": "p"}, {"id": "c", "tool": "c", "args": {"x": "${p.text}"}}]}


class Counting(MemoryStore):
    """Counts how often contents are read."""

    def __init__(self) -> None:
        super().__init__()
        self.reads: list[str] = []

    async def blob(self, digest: str) -> bytes | None:
        self.reads.append(digest)
        return await super().blob(digest)


@pytest.mark.parametrize(("size", "blob"), [(10, False), (2000, True)])
def test_large_outputs_are_contents_named_by_their_digest(size: int, blob: bool) -> None:
    """E6, E7: above 1 KB the history holds only the name; the value comes back whole, from anywhere."""
    store, world = MemoryStore(), World(p=[{"text": "é" * size}])
    result = with_engine(lambda engine: engine.run(PASS_ON), store, world.tools(PASS_ON))
    (event,) = [e for e in stored(store, result.run_id) if type(e).__name__ == "StepSucceeded" and e.step == "p"]
    assert event.blob is blob
    assert (event.output is None) is blob
    assert result.steps["p"].output == {"text": "é" * size}
    assert dict(world.calls[-1].args) == {"x": "é" * size}

    async def look(engine: Engine) -> None:
        assert (await engine.show(result.run_id)).steps["p"].output == {"text": "é" * size}
        assert await engine.artifact(result.run_id, "p") == {"text": "é" * size}
        row = next(row for row in await engine.artifacts(result.run_id) if row["name"] == "p")
        assert row["digest"] == event.digest
        if blob:
            data = await store.blob(row["digest"])
            assert data is not None
            assert digest(data) == row["digest"]

    with_engine(look, store, [])


@pytest.mark.parametrize(("producers", "reads"), [(10, False), (12, True)])
def test_ten_values_are_kept_in_memory(producers: int, reads: bool) -> None:
    """E6: older ones come from the store."""
    names = [f"p{i}" for i in range(producers)]
    what = {
        "steps": [{"id": n, "tool": n, "needs": names[i - 1 : i]} for i, n in enumerate(names)]
        + [{"id": "c", "tool": "c", "args": {n: "${" + n + ".text}" for n in names}}]
    }
    store, world = Counting(), World({n: [{"text": n * 1000}] for n in names})

    async def work(engine: Engine) -> None:
        run = await engine.start(what)
        async for event in engine.watch(run):
            if event.type == "step_started" and event.step == "c":
                assert bool(store.reads) is reads
                assert len(store.reads) == len(set(store.reads))  # none of them twice

    with_engine(work, store, world.tools(what))
    assert dict(world.calls[-1].args) == {n: n * 1000 for n in names}


def test_a_tool_cannot_change_another_steps_input() -> None:
    """E6, X6: each gets a value of its own, small or large, from memory or from the store."""
    for text in ("x", "x" * 3000):
        what = {
            "steps": [
                {"id": "p", "tool": "p"},
                {"id": "c", "tool": "c", "args": {"v": "${p}"}},
                {"id": "d", "tool": "d", "needs": ["c"], "args": {"v": "${p}"}},
            ]
        }

        def spoil(v: Any) -> Any:
            v["list"].append("spoilt")
            v["text"] = "spoilt"
            return 1

        world = World(p=[{"text": text, "list": []}], c=[spoil])
        result = with_engine(lambda engine, what=what: engine.run(what), "memory://", world.tools(what))
        assert dict(world.calls[-1].args) == {"v": {"text": text, "list": []}}
        assert result.steps["p"].output == {"text": text, "list": []}


@pytest.mark.parametrize("damage", ["gone", "corrupt"])
@pytest.mark.parametrize("effect", ["repeatable", "once"])
def test_an_artifact_that_is_gone_or_corrupt_puts_its_producer_back(damage: str, effect: str) -> None:
    """E6, H4, R3: on a retry the producer runs again, with a notice; a `once` producer never."""
    store = MemoryStore()
    world = World(p=[BIG], c=[BROKE, {"v": 1}]).option("p", effect=effect)

    async def work(engine: Engine) -> Any:
        run = (await engine.run(PASS_ON)).run_id
        name = next(row["digest"] for row in await engine.artifacts(run) if row["name"] == "p")
        if damage == "gone":
            del store._blobs[name]
        else:
            store._blobs[name] = b'{"text": "something else"}'
        return await engine.retry(run), await engine.events(run)

    result, events = with_engine(work, store, world.tools(PASS_ON), PLAIN)
    if effect == "once":
        assert world.order == ["p", "c"]
        assert result.steps["c"].error["code"] == "ARTIFACT_GONE"
        assert result.status == "failed"
    else:
        assert world.order == ["p", "c", "p", "c"]
        assert result.success
        assert dict(world.calls[-1].args) == {"x": "x" * 2000}
        assert any("p" in str(getattr(event, "reason", "")) or event.type == "artifact_lost" for event in events)


def test_contents_expire_only_after_a_run_has_completed() -> None:
    """E6: after ttl_hours; never while it is unfinished, failed, cancelled or waiting."""
    store, world = MemoryStore(), World(p=[{"text": "x" * 2000}])
    names: dict[str, str] = {}
    gate = {"steps": [{"id": "p", "tool": "p"}, {"id": "g", "tool": "g", "needs": ["p"], "confirm": True}]}
    bad = {"steps": [{"id": "p", "tool": "p"}, {"id": "bad", "tool": "bad", "needs": ["p"]}]}
    world.script["bad"] = [BROKE]
    world.option("g")

    def text(run: str) -> Any:
        return lambda: {"text": run * 1000}

    async def work(engine: Engine) -> None:
        for run, what in (("completed", PASS_ON), ("failed", bad), ("waiting", gate), ("cancelled", gate)):
            world.script["p"] = [text(run)]
            await engine.start(what, run_id=run)
            await engine.wait(run)
            names[run] = next(row["digest"] for row in await engine.artifacts(run) if row["name"] == "p")
        await engine.cancel("cancelled")
        await engine.wait("cancelled")
        for run in names:
            assert (await engine.show(run)).status == run

    tools = world.tools({"steps": [*PASS_ON["steps"], *gate["steps"][1:], *bad["steps"][1:]]})
    with_engine(work, store, tools, PLAIN)

    async def later(engine: Engine) -> list[str]:
        return [run for run, name in names.items() if await store.blob(name) is not None]

    start = 1_700_000_000
    assert with_engine(later, store, [], clock=VirtualClock(start + 23 * 3600)) == list(names)
    kept = with_engine(later, store, [], clock=VirtualClock(start + 25 * 3600))
    assert kept == ["failed", "waiting", "cancelled"]

    async def gone(engine: Engine) -> None:
        with pytest.raises(Refused) as refused:
            await engine.artifact("completed", "p")
        assert refused.value.code == "ARTIFACT_GONE"
        assert "retry" in refused.value.hint
        assert (await engine.show("completed")).success

    with_engine(gone, store, [], clock=VirtualClock(start + 26 * 3600))


def test_large_arguments_are_kept_outside_the_history() -> None:
    """E7: resolved arguments above 1 KB are contents as well; a lost call is looked at with the same ones."""
    store = MemoryStore()
    looked: list[Any] = []

    async def verify(args: dict[str, Any]) -> Any:
        looked.append(args)
        return rerail.Verified(output={"ok": 1})

    world = World(p=[BIG], c=[Took(100)]).option("c", effect="once", verify=verify)
    interrupted(world, PASS_ON, store)
    (started,) = [e for e in stored(store) if type(e).__name__ == "StepStarted" and e.step == "c"]
    assert started.args is None
    assert started.args_blob
    result, _ = resumed(world, PASS_ON, store)
    assert result.success
    assert looked == [{"x": "x" * 2000}]


def test_a_doubt_whose_arguments_are_gone_does_not_stop_the_run() -> None:
    """E3, E6: verify cannot be asked properly, so the effect is unknown, and a person decides."""
    store = MemoryStore()

    async def verify(args: dict[str, Any]) -> bool:
        return True

    world = World(p=[BIG], c=[Took(100)]).option("c", effect="once", verify=verify)
    interrupted(world, PASS_ON, store)
    store._blobs.clear()
    result, _ = resumed(world, PASS_ON, store)
    assert (result.status, result.steps["c"].status) == ("waiting", "in_doubt")


# -- E7: long histories -------------------------------------------------------------------------------------------


def test_a_long_history_opens() -> None:
    """E7: thousands of steps with large outputs: what is folded holds names, not values."""
    size = 2000
    what = {"steps": [{"id": f"s{i}", "tool": "t"} for i in range(size)]}
    store = MemoryStore()
    count = 0

    async def t() -> Any:
        nonlocal count
        count += 1
        return {"text": f"{count} " * 600}

    async def first(engine: Engine) -> None:
        assert (await engine.wait(await engine.start(what, run_id="r"))).success

    async def second(engine: Engine) -> None:
        state = await engine.internals.state("r")
        assert len(state.tracks) == size
        assert all(track.result is not None and track.result.output is None for track in state.tracks.values())

    with_engine(first, store, [t])
    with_engine(second, store, [t])


# -- T7: one owner at a time --------------------------------------------------------------------------------------


def test_a_fenced_owner_can_write_nothing() -> None:
    """T7, E4: another process took over: the old one stops with LEASE_LOST, its late answers change nothing."""
    store, world = MemoryStore(), World(a=[Took(10)])

    async def work(engine: Engine) -> None:
        run = await engine.start(plan(("a",), ("b", "a")))
        await asyncio.sleep(1)
        head = await store.head(run)
        assert head is not None
        before = await store.read(run, 0, 100)
        await store.claim(run, Owner("elsewhere", 1, 1.0), 1_700_009_999.0, over=head.fence)
        with pytest.raises(StoreError) as refused:
            await engine.wait(run)
        assert refused.value.code == "LEASE_LOST"
        assert await store.read(run, 0, 100) == before
        with pytest.raises((StoreError, Refused)):
            await engine.skip(run, "b")
        assert await store.read(run, 0, 100) == before

    with_engine(work, store, world.tools(plan(("a",), ("b", "a"))))
    assert world.order == ["a"]


def test_a_living_owner_elsewhere_is_respected_and_a_silent_one_taken_over() -> None:
    """T7: refused while it renews, taken over once it has been silent; a living pid of this machine is never."""
    store, world = MemoryStore(), World()
    what = plan(("a",))

    async def work(engine: Engine) -> None:
        now = 1_700_000_000.0
        for run, owner, renewed in (
            ("alive", Owner("elsewhere", 1, 1.0), now),
            ("silent", Owner("elsewhere", 1, 1.0), now - 3600),
            ("dead", Owner(socket.gethostname(), 999_999_999, 1.0), now),
        ):
            await engine.wait(await engine.start(what, run_id=f"{run}-src"))
            rows = await store.read(f"{run}-src", 0, 2)
            await store.create(Head(run, 0, "running", "", "", now, now, owner, 1, renewed))
            await store.append(Batch(run, 0, [(row.at, row.data) for row in rows], 1, status="running"))
        with pytest.raises(Refused) as refused:
            await engine.retry("alive")
        assert refused.value.code == "RUN_LIVE"
        assert "elsewhere" in str(refused.value)
        before = await store.read("alive")
        with pytest.raises((Refused, StoreError)):
            await engine.resume("alive")  # the owner is asked, and this one does not answer
        assert await store.read("alive") == before
        assert (await engine.resume("silent")).success
        assert (await engine.resume("dead")).success

    with_engine(work, store, world.tools(what))


# -- Clocks -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("jump", [-3600.0, 3600.0, -1e6])
def test_a_clock_that_jumps_during_a_backoff(jump: float) -> None:
    """H3, E1: what counts is the delay: a clock set back does not make a short wait long, nor break the run."""
    world, clock = World(a=[ConnectionRefusedError("down"), {"v": 1}]), VirtualClock()
    settings = {"retry": {"jitter": False, "backoff_base": 20}}

    async def work(engine: Engine) -> float:
        run = await engine.start(plan(("a",)))
        await asyncio.sleep(5)
        clock.jump(jump)
        assert (await engine.wait(run)).success
        return asyncio.get_running_loop().time()

    took = with_engine(work, "memory://", world.tools(plan(("a",))), settings, clock=clock)
    assert took <= 30
    assert world.calls_of("a") == 2


def test_a_clock_that_jumps_during_calls() -> None:
    """X4, V2: timeouts, order and statistics hold; no time is negative."""
    world, clock = World(a=[Took(10)], b=[Took(10)]), VirtualClock()

    async def work(engine: Engine) -> Any:
        run = await engine.start(plan(("a",), ("b", "a")))
        await asyncio.sleep(5)
        clock.jump(-7200)
        await asyncio.sleep(8)
        clock.jump(86_400)
        result = await engine.wait(run)
        events = await engine.events(run)
        assert [event.seq for event in events] == list(range(1, len(events) + 1))
        return result

    result = with_engine(work, "memory://", world.tools(plan(("a",), ("b", "a"))), clock=clock)
    assert result.success
    assert result.steps["a"].elapsed == pytest.approx(10)
    assert all(value >= 0 for value in result.exec["seconds"].values())


def test_a_clock_set_back_between_two_lives() -> None:
    """E1: a backoff that began "tomorrow" ends within its delay."""
    store, world = MemoryStore(), World(a=[ConnectionRefusedError("down"), {"v": 1}])
    settings = {"retry": {"jitter": False, "backoff_base": 20}}
    interrupted(world, plan(("a",)), store, 5, settings=settings)

    async def work(engine: Engine) -> float:
        assert (await engine.resume("r")).success
        return asyncio.get_running_loop().time()

    clock = VirtualClock(1_700_000_000 - 86_400)
    took = with_engine(work, store, world.tools(plan(("a",))), settings, clock=clock)
    assert took <= 30


# -- Follow-ups ---------------------------------------------------------------------------------------------------


def test_a_follow_up_is_not_lost_with_its_process() -> None:
    """T6, E1: the process dies after the parent's done and before the follow-up is there: it can still be had."""

    class Dying(MemoryStore):
        runs = 0

        async def create(self, head: Head) -> None:
            self.runs += 1
            if self.runs == 2:
                raise Unavailable("gone")
            await super().create(head)

    store, world = Dying(), World()
    what = {**plan(("a",)), "follow_up": plan(("f",))}
    world.option("f")

    async def first() -> None:
        async with world.engine(what, store=store) as engine:
            await engine.start(what, run_id="r")
            await asyncio.sleep(1)

    async def second() -> Any:
        async with world.engine(what, store=store) as engine:
            parent = await engine.show("r")
            assert parent.status == "completed"
            if not await engine.list(parent="r"):
                await engine.retry("r")  # of a completed run with an unfinished follow-up: needs no force
            (row,) = await engine.list(parent="r")
            return await engine.wait(row["run_id"])

    virtual_run(first)
    assert virtual_run(second).success
    assert world.order == ["a", "f"]


def test_a_run_that_died_before_its_plan_was_there_is_started_again_whatever_was_tried_on_it() -> None:
    """E1, X7: nothing can be done to it, nothing is written to it, and its name can be used."""

    async def main() -> None:
        store = MemoryStore()
        gone = Owner("elsewhere", 1, 1.0)
        await store.create(Head("r", 0, "pending", "o", "", 0.0, 0.0, gone, 1, 0.0))
        async with Engine(store, World().tools({"steps": [{"id": "a", "tool": "a"}]}), clock=VirtualClock()) as engine:
            tried: list[Callable[[], Coroutine[Any, Any, Any]]] = [
                lambda: engine.begin_resume("r"), lambda: engine.begin_retry("r"),
                lambda: engine.begin_retry("r", clean=True), lambda: engine.pause("r"), lambda: engine.cancel("r"),
                lambda: engine.skip("r", "a"), lambda: engine.confirm("r", "a"),
                lambda: engine.add("r", [{"id": "b", "tool": "a"}]), lambda: engine.repair("r", "a", args={}),
            ]  # fmt: skip
            for wish in tried:
                with pytest.raises(Refused, match=r"never got its plan|has no step"):
                    await wish()
            assert await engine.events("r") == []
            assert await engine.start({"steps": [{"id": "a", "tool": "a"}]}, run_id="r") == "r"
            assert (await engine.wait("r")).success

    virtual_run(main)
