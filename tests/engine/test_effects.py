"""Effects that must not happen twice, as programs meet them: exceptions after the effect, looks that lag, threads that
go on, services that know keys, doubts that a run goes on with (X4, V8, E2, E3)."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import rerail
from rerail.adapters.stores.memory import MemoryStore
from rerail.api import Engine
from rerail.errors import PlanError, Refused
from rerail.kernel import events as ev
from rerail.testing.virtual_time import VirtualClock, virtual_run

QUICK = {"retry": {"backoff_base": 0.0}}
Act = Callable[[Engine, str], Any]


def run(
    tools: list[Any], plan: Any = None, given: Any = None, act: Act | None = None, *, real: bool = False, **step: Any
) -> tuple[Any, list[Any]]:
    """A run of one step (or a plan), what it came to and its events; ``act`` goes on from where it waits."""
    what = plan or {"steps": [{"id": "a", "tool": tools[0].name, **step}]}

    async def main() -> tuple[Any, list[Any]]:
        clock = {} if real else {"clock": VirtualClock()}
        async with Engine(MemoryStore(), tools, given or QUICK, **clock) as engine:
            result = await engine.run(what)
            if act is not None:
                await act(engine, result.run_id)
                result = await engine.wait(result.run_id)
            return result, [record.event for record in await engine.events(result.run_id)]

    return asyncio.run(main()) if real else virtual_run(main)


def now() -> float:
    return asyncio.get_running_loop().time()


def of(events: list[Any], kind: type) -> list[Any]:
    return [event for event in events if isinstance(event, kind)]


# -- Exceptions and answers after the effect ----------------------------------------------------------------------


@pytest.mark.parametrize("error", [RuntimeError("x"), AttributeError("x"), AssertionError(), SystemExit(3), OSError()])
@pytest.mark.parametrize("kind", ["sync", "async"])
@pytest.mark.parametrize("retries", [None, 0])
def test_x4_an_exception_after_the_effect_is_called_once(error: BaseException, kind: str, retries: int | None) -> None:
    """X4, E3: no rung, no round and no budget calls it again; the person is shown what was raised."""
    paid: list[int] = []

    def sync() -> None:
        paid.append(1)
        raise error

    async def later() -> None:
        sync()

    tool = rerail.tool(sync if kind == "sync" else later, name="pay", effect="once")
    result, _ = run([tool], **({} if retries is None else {"retries": retries}))
    assert (result.status, result.in_doubt, len(paid)) == ("waiting", ("a",), 1)
    assert result.steps["a"].error["message"]


@pytest.mark.parametrize(
    ("answer", "calls"),
    [
        ({"rows": 97, "errors": 3}, "ok"),
        ({"success": 0, "failed": 5}, "doubt"),
        ({"success": 0.0}, "doubt"),
        ({"paid": True, "error": "x"}, "doubt"),
    ],
)
def test_x4_a_returned_value_makes_no_once_tool_run_again(answer: Any, calls: str) -> None:
    """X3, X9, X4: `errors: 3` beside data is a count; an answer shaped like an error tells nothing of the effect."""
    paid: list[int] = []

    @rerail.tool(effect="once")
    def pay() -> Any:
        paid.append(1)
        return answer

    result, _ = run([pay])
    assert len(paid) == 1
    assert result.status == ("completed" if calls == "ok" else "waiting")
    if "error" in answer:
        assert "trust_output" in result.steps["a"].error["message"]
    assert run([pay], trust_output=True)[0].success is (answer.get("success") != 0)


@pytest.mark.parametrize(
    ("errors", "raised", "calls", "status"),
    [
        ("not_done", rerail.ToolError("x", lost=True), 1, "in_doubt"),
        ("by_status", rerail.ToolError("x", status=404, lost=True), 1, "in_doubt"),
        ("not_done", RuntimeError("x"), 4, "failed"), ("not_done", {"success": False}, 4, "failed"),
        ("by_status", 404, 1, "failed"), ("by_status", 500, 1, "in_doubt"), ("by_status", 409, 1, "failed"),
        ("", 404, 1, "in_doubt"),
    ],
)  # fmt: skip
def test_x4_a_tool_that_knows_better_says_so(errors: str, raised: Any, calls: int, status: str) -> None:
    """X4: `errors` of a tool says how its errors are to be read."""
    made: list[int] = []

    class Status(Exception):
        status_code = raised if isinstance(raised, int) else 0

    def pay() -> Any:
        made.append(1)
        if isinstance(raised, dict):
            return raised
        raise Status("refused") if isinstance(raised, int) else raised

    tool = rerail.tool(pay, effect="once", **({"errors": errors} if errors else {}))
    result, _ = run([tool], given={**QUICK, "retry": {"max_retry_rounds": 0, "backoff_base": 0.0}})
    assert (len(made), result.steps["a"].status) == (calls, status)


def test_x4_not_done_around_one_exception() -> None:
    """X4: the cause is what is classified and told."""
    made: list[int] = []

    @rerail.tool(effect="once")
    def pay() -> Any:
        made.append(1)
        if len(made) == 1:
            raise rerail.NotDone(ConnectionError("no route"))
        return {"paid": True}

    result, events = run([pay])
    assert result.success and len(made) == 2
    assert of(events, ev.StepFailed)[0].error.message == "no route"


# -- Looks that lag ------------------------------------------------------------------------------------------------


def lagging(lag: float, *, lost: bool, **options: Any) -> tuple[Any, list[float]]:
    """A tool whose effect can be read only ``lag`` seconds later."""
    effects: list[float] = []

    async def seen() -> bool:
        return any(now() - at >= lag for at in effects)

    async def mail() -> Any:
        effects.append(now())
        if lost:
            raise ConnectionResetError("gone")
        return {"id": 1}

    return rerail.tool(mail, effect="once", verify=seen, timeout=10, **options), effects


SECONDS = st.integers(0, 240).map(lambda quarters: quarters / 4)


@given(
    lag=SECONDS, settle=st.one_of(st.none(), st.just("never"), SECONDS), lost=st.booleans(),
    base=st.sampled_from([0.0, 1.0]),
)  # fmt: skip
@settings(max_examples=100, deadline=None)
def test_v8_no_effect_is_doubled_where_settle_covers_the_lag(lag: float, settle: Any, lost: bool, base: float) -> None:
    """V8, a law: absence that is waited for as long as a read may lag, or never believed, doubles nothing."""
    tool, effects = lagging(lag, lost=lost, **({} if settle is None else {"settle": settle}))
    result, _ = run([tool], given={"retry": {"backoff_base": base}})
    covered = settle == "never" or lag < (5.0 if settle is None else settle) or not lag
    if covered:
        assert len(effects) == 1
        assert settle == "never" or result.success
    if settle == "never" and lag > 5:
        assert result.status == "waiting"


def test_v8_what_was_waited_is_in_the_history_and_in_why() -> None:
    """V8: how often it was looked for, at growing distances, and for how long."""
    tool, _ = lagging(2, lost=True)
    _, events = run([tool])
    (verified,) = of(events, ev.StepVerified)
    assert (verified.effect, verified.looks > 3, 2 <= verified.waited < 4) == ("there", True, True)
    tool, _ = lagging(2, lost=False)
    _, events = run([tool])
    assert 2 <= of(events, ev.StepSucceeded)[0].waited < 4


def test_v8_not_yet_is_no_absence() -> None:
    """V8: at its end it is a look that could not tell; until then it is asked again."""
    for until, status, calls in ((3.0, "completed", 1), (60.0, "waiting", 1)):
        made: list[float] = []

        async def seen(until: float = until, made: list[float] = made) -> Any:
            return True if now() - made[0] > until else rerail.NotYet

        async def mail(made: list[float] = made) -> None:
            made.append(now())
            raise TimeoutError

        tool = rerail.tool(mail, effect="once", verify=seen, schema={"type": "object"})
        result, _ = run([tool])
        assert (result.status, len(made)) == (status, calls)


def test_v8_the_effect_is_looked_for_right_before_a_repeat() -> None:
    """V8: what landed between the look and the repeat is found, and not done again."""
    effects: list[int] = []

    async def seen() -> bool:
        return bool(effects)

    @rerail.tool(effect="once", verify=seen, settle=0, timeout=1)
    async def late() -> None:
        asyncio.get_running_loop().call_later(1.05, effects.append, 1)
        await asyncio.sleep(100)

    result, events = run([late], given={"retry": {"jitter": False}})
    assert result.success and len(effects) == 1
    assert [event.effect for event in of(events, ev.StepVerified)] == ["absent", "there"]


def test_v8_both_words_agree_and_nothing_is_waited_for() -> None:
    """V8: the tool says that nothing happened, the look finds nothing: the ladder, at once."""
    made: list[float] = []

    async def seen() -> bool:
        return len(made) > 1

    @rerail.tool(effect="once", verify=seen)
    async def pay() -> Any:
        made.append(now())
        if len(made) == 1:
            raise rerail.ToolError("try again")
        return {}

    result, _ = run([pay])
    assert result.success and made[1] - made[0] < 0.5


def test_v8_a_call_that_goes_on_in_its_thread_is_not_doubled() -> None:
    """V8: while it may be under way none is made; its late answer is its answer."""
    effects: list[int] = []

    @rerail.tool(effect="once", verify=lambda: bool(effects), timeout=0.3)
    def slow() -> Any:
        time.sleep(1.0)
        effects.append(1)
        return {"id": 7}

    result, _ = run([slow], real=True)
    assert (result.success, result.steps["a"].output, len(effects)) == (True, {"id": 7}, 1)


@pytest.mark.parametrize("error", [rerail.ToolError("sold out"), RuntimeError("broke")], ids=["not done", "lost"])
def test_v8_an_error_that_comes_late_is_the_answer_too(error: Exception) -> None:
    """V8, X4: of a call that goes on in its thread; *not done* is known then, and the step may be called again."""
    made: list[int] = []

    @rerail.tool(effect="once", timeout=0.2, settle="never")
    def slow() -> Any:
        made.append(1)
        if len(made) == 1:
            time.sleep(0.35)
            raise error
        return {"id": 7}

    result, events = run([slow], real=True)
    known = isinstance(error, rerail.ToolError)
    assert (result.status, len(made)) == (("completed", 2) if known else ("waiting", 1))
    assert of(events, ev.StepFailed)[0].error.message == str(error)


def test_v8_a_call_that_does_not_end_leaves_the_step_in_doubt() -> None:
    """V8: after twice its timeout, whatever a look finds absent."""
    effects: list[int] = []
    go_on = threading.Event()

    @rerail.tool(effect="once", verify=lambda: bool(effects), timeout=0.2, settle=0)
    def stuck() -> Any:
        go_on.wait(20)
        effects.append(1)

    try:
        result, events = run([stuck], real=True)
        assert (result.status, result.in_doubt) == ("waiting", ("a",))
        assert of(events, ev.StepFailed)[0].acting
    finally:
        go_on.set()


# -- Partial writes and baselines ----------------------------------------------------------------------------------


def transfer(look: Callable[..., Any]) -> tuple[Any, dict[str, int], list[int]]:
    accounts, made = {"a": 100, "b": 0}, list[int]()

    def move() -> Any:
        made.append(1)
        accounts["a"] -= 30
        if len(made) == 1:
            raise RuntimeError("half")
        accounts["b"] += 30
        return {"ok": True}

    def verify(before: dict[str, int]) -> Any:
        return look(accounts, before)

    options = {"verify": verify, "probe": lambda: dict(accounts), "settle": 0}
    return rerail.tool(move, effect="once", **options), accounts, made


def test_v8_partly_done_is_in_doubt_and_never_repeated() -> None:
    """V8: a look may say so; the person is told what is there."""
    tool, accounts, made = transfer(lambda is_, was: is_ != was and rerail.Partial(dict(is_)))
    result, events = run([tool])
    assert (result.status, len(made), accounts) == ("waiting", 1, {"a": 70, "b": 0})
    (verified,) = of(events, ev.StepVerified)
    assert verified.effect == "partial" and '"a":70' in verified.reason


def test_v8_a_part_that_shows_after_a_success_is_in_doubt_although_the_key_is_known() -> None:
    """V8, E2: the service remembers the key, yet a look found the effect partly done: a person is asked."""
    made: list[int] = []

    def post(ctx: rerail.Context) -> Any:
        made.append(1)
        return {"id": 1}

    def verify(args: Any) -> Any:
        return rerail.Partial("1 of 2")

    result, _ = run([rerail.tool(post, effect="once", idempotent_for=3600, verify=verify)])
    assert (result.status, result.in_doubt, len(made)) == ("waiting", ("a",), 1)


def test_v8_the_first_probe_is_the_baseline_of_all_attempts() -> None:
    """V8: a partial write is no new beginning, so that a transfer of 30 is not called done after 60 left."""
    tool, accounts, _ = transfer(lambda is_, was: is_ == {"a": was["a"] - 30, "b": was["b"] + 30})
    result, events = run([tool])
    assert not result.success and accounts["b"] != 30
    assert {str(event.before) for event in of(events, ev.StepStarted)} == {"{'a': 100, 'b': 0}"}


def test_v8_an_output_that_a_look_brings_is_used() -> None:
    """V8, V6: in place of a null, and after a lost answer; one that does not pass the step's check is a hole."""

    @rerail.tool(effect="once", verify=lambda: rerail.Verified(output={"id": 7}))
    def null() -> None: ...

    @rerail.tool(effect="once", verify=lambda: rerail.Verified(output={"id": 7}), settle=0)
    def lost() -> None:
        raise TimeoutError

    for tool in (null, lost):
        assert run([tool])[0].steps["a"].output == {"id": 7}
    result, events = run([lost], check={"keys": ["number"]})
    assert result.steps["a"].output is None and of(events, ev.StepVerified)[0].hole


def test_v8_a_repeatable_step_becomes_no_hole() -> None:
    """V8: its effect is there, its output is not: it is called again."""
    made: list[int] = []

    @rerail.tool(verify=lambda: True)
    def put() -> Any:
        made.append(1)
        if len(made) == 1:
            raise TimeoutError
        return {"v": 2}

    result, _ = run([put])
    assert (result.steps["a"].output, len(made)) == ({"v": 2}, 2)


# -- Doubts that a run goes on with --------------------------------------------------------------------------------


def posting() -> tuple[list[Any], list[int]]:
    made: list[int] = []

    @rerail.tool(effect="once")
    def post() -> None:
        made.append(1)
        raise RuntimeError("after the effect")

    @rerail.tool(effect="read")
    def use(x: Any = None) -> Any:
        return {"x": x}

    return [post, use], made


def two(**step: Any) -> dict[str, Any]:
    return {"steps": [{"id": "a", "tool": "post", **step}, {"id": "b", "tool": "use", "needs": ["a"]}]}


@pytest.mark.parametrize(
    ("step", "given", "run_is", "step_is", "after"),
    [
        ({}, {}, "waiting", "in_doubt", "pending"),
        ({"critical": False}, {}, "completed", "skipped", "degraded"),
        ({"fallback": {"value": 5}}, {}, "completed", "degraded", "succeeded"),
        ({"critical": False, "on_doubt": "wait"}, {}, "waiting", "in_doubt", "pending"),
        ({"critical": False}, {"run": {"on_doubt": "wait"}}, "waiting", "in_doubt", "pending"),
        ({"on_doubt": "fail"}, {}, "failed", "failed", "skipped"),
        ({}, {"run": {"on_doubt": "fail"}}, "failed", "failed", "skipped"),
        ({"on_doubt": "fail", "critical": False}, {}, "completed", "skipped", "degraded"),
    ],
)
def test_e3_a_doubt_stops_only_what_needs_an_answer(
    step: Any, given: Any, run_is: str, step_is: str, after: str
) -> None:
    """E3, V1: an optional step, or one with a fallback value, does not stop the run; the verdict names the doubt."""
    tools, made = posting()
    result, _ = run(tools, two(**step), {**QUICK, **given})
    assert (result.status, result.steps["a"].status, result.steps["b"].status) == (run_is, step_is, after)
    assert (result.in_doubt, len(made)) == (("a",), 1)
    assert "in doubt" in result.summary
    if run_is == "completed":
        assert result.degraded


@pytest.mark.parametrize("step", [{"critical": False}, {"fallback": {"value": 5}}, {"on_doubt": "fail"}, {}])
def test_e3_while_a_doubt_is_open_nothing_calls_its_step(step: Any) -> None:
    """E3: no round, no retry, no force; only `resolve`, at rest too, or a clean start."""
    tools, made = posting()

    async def act(engine: Engine, run_id: str) -> None:
        for options in ({}, {"steps": ["a"]}, {"steps": ["a"], "force": True}):
            with pytest.raises(Refused) as refused:
                await engine.retry(run_id, **options)
            assert refused.value.code in ("RUN_IN_DOUBT", "RUN_COMPLETED", "NOTHING_TO_RETRY"), options
        with contextlib.suppress(Refused):  # what went on without it may be done again
            await engine.retry(run_id, force=True)
        with pytest.raises((Refused, PlanError)):
            await engine.repair(run_id, "a", args={"x": 1})
        assert len(made) == 1
        await engine.resolve(run_id, "a", failed=True)
        result = await engine.wait(run_id)
        assert result.in_doubt == () and len(made) == 1

    run(tools, two(**step), act=act)


@pytest.mark.parametrize("known", [None, 3600.0])
def test_e3_a_value_that_stands_in_for_a_doubt_stays_although_inputs_changed(known: float | None) -> None:
    """E3: a step runs while the step before it is done again, and its answer is lost; the run goes on and ends."""
    made: list[int] = []

    @rerail.tool
    async def read() -> Any:
        await asyncio.sleep(100 if made else 0)
        return {"n": len(made)}

    async def post(ctx: rerail.Context) -> Any:
        made.append(1)
        await asyncio.sleep(60)
        raise RuntimeError("after the effect")

    tool = rerail.tool(post, effect="once", **({"idempotent_for": known} if known else {}))
    step = {"id": "b", "tool": "post", "needs": ["a"], "retries": 0, "fallback": {"value": 5}}

    async def main() -> None:
        async with Engine(MemoryStore(), [read, tool], QUICK, clock=VirtualClock()) as engine:
            run_id = await engine.start({"steps": [{"id": "a", "tool": "read"}, step]})
            await asyncio.sleep(30)
            await engine.retry(run_id, steps=["a"], force=True)
            result = await engine.wait(run_id)
            assert (result.status, result.steps["b"].status) == ("completed", "degraded")
            assert (result.in_doubt, len(made)) == (("b",), 1)

    virtual_run(main)


def test_e3_a_running_once_call_that_a_person_skips_is_in_doubt() -> None:
    """X4, E3: its call was cancelled in the middle; a retry asks for an answer first, and makes no second call."""
    made: list[int] = []

    @rerail.tool(effect="once")
    async def pay() -> Any:
        made.append(1)
        await asyncio.sleep(60)
        return {"paid": True}

    async def main() -> None:
        async with Engine(MemoryStore(), [pay], QUICK, clock=VirtualClock()) as engine:
            run_id = await engine.start({"steps": [{"id": "a", "tool": "pay"}]})
            await asyncio.sleep(30)
            await engine.skip(run_id, "a")
            result = await engine.wait(run_id)
            assert (result.status, result.steps["a"].status, result.in_doubt) == ("completed", "skipped", ("a",))
            with pytest.raises(Refused) as refused:
                await engine.retry(run_id, steps=["a"], force=True)
            assert refused.value.code == "RUN_IN_DOUBT" and len(made) == 1

    virtual_run(main)


def test_e3_a_word_against_a_look_is_a_doubt_that_no_fallback_tool_ends() -> None:
    """V8, E3: the tool says *not done*, a look finds the effect; `fail` ends the step, and no call follows."""
    made: list[str] = []

    def pay() -> Any:
        made.append("pay")
        raise rerail.ToolError("nothing was done")

    @rerail.tool(effect="once")
    def other() -> Any:
        made.append("other")
        return {}

    tool = rerail.tool(pay, effect="once", verify=lambda args: True)
    result, _ = run([tool, other], on_doubt="fail", fallback={"tool": "other"})
    assert (result.status, result.in_doubt, made) == ("failed", ("a",), ["pay"])


def test_r3_a_repeat_under_the_key_is_made_from_what_the_lost_call_was_made_from() -> None:
    """E2, R3: inputs that changed between the lost call and its repeat make the result earned anew, or stale."""
    made: list[Any] = []

    @rerail.tool
    async def read() -> Any:
        return {"n": len(made)}

    def post(ctx: rerail.Context, n: Any) -> Any:
        made.append(n)
        if len(made) == 1:
            raise RuntimeError("after the effect")
        return {"posted": n}

    tool = rerail.tool(post, effect="once", idempotent_for=3600.0)
    steps = [{"id": "a", "tool": "read"}, {"id": "b", "tool": "post", "needs": ["a"], "args": {"n": "${a.n}"}}]

    async def main() -> None:
        slow = {"retry": {"backoff_base": 60.0, "jitter": False}}
        async with Engine(MemoryStore(), [read, tool], slow, clock=VirtualClock()) as engine:
            run_id = await engine.start({"steps": steps})
            await asyncio.sleep(10)
            await engine.retry(run_id, steps=["a"], force=True)
            result = await engine.wait(run_id)
            assert result.status == "completed" and made == [0, 0, 1]
            assert result.steps["b"].output == {"posted": 1}

    virtual_run(main)


def test_r3_a_rerun_of_a_doubt_whose_inputs_changed_is_stale() -> None:
    """E2, R3: a person wants the call in doubt again, as it was; its inputs changed before it was made."""
    made: list[Any] = []
    reads: list[int] = []

    @rerail.tool
    async def read() -> Any:
        reads.append(1)
        await asyncio.sleep(100 if len(reads) == 2 else 0)
        return {"n": len(reads)}

    @rerail.tool
    async def slow() -> None:
        await asyncio.sleep(200)

    @rerail.tool(effect="once")
    async def post(n: Any) -> Any:
        made.append(n)
        if len(made) == 1:
            raise RuntimeError("after the effect")
        return {"posted": n}

    steps = [{"id": "a", "tool": "read"}, {"id": "b", "tool": "post", "needs": ["a"], "args": {"n": "${a.n}"}}]

    async def main() -> None:
        async with Engine(MemoryStore(), [read, post, slow], QUICK, clock=VirtualClock()) as engine:
            run_id = await engine.start({"steps": [*steps, {"id": "c", "tool": "slow"}]})
            await asyncio.sleep(10)
            await engine.begin_retry(run_id, ["a"], force=True)
            await asyncio.sleep(10)
            await engine.resolve(run_id, "b", rerun=True)
            result = await engine.wait(run_id)
            assert made == [1, 1] and result.steps["b"].output == {"posted": 1}
            assert result.steps["b"].status in ("succeeded", "degraded") and result.steps["b"].stale

    virtual_run(main)


def test_e3_an_open_doubt_can_be_answered_with_the_same_call_at_rest() -> None:
    """E2, E3: `--rerun` makes the call in doubt again, under its own key; `--succeeded` supplies its output."""
    keys: list[str] = []

    @rerail.tool(effect="once")
    def post(ctx: rerail.Context) -> Any:
        keys.append(ctx.key)
        if len(keys) == 1:
            raise RuntimeError("after the effect")
        return {"id": 1}

    async def again(engine: Engine, run_id: str) -> None:
        await engine.resolve(run_id, "a", rerun=True)

    result, _ = run([post], given=QUICK, act=again, critical=False)
    assert (result.status, result.in_doubt, result.steps["a"].output) == ("completed", (), {"id": 1})
    assert len(keys) == 2 and len(set(keys)) == 1
    keys.clear()

    async def by_hand(engine: Engine, run_id: str) -> None:
        await engine.resolve(run_id, "a", succeeded={"id": 2})

    result, _ = run([post], given=QUICK, act=by_hand, critical=False)
    assert (result.in_doubt, result.steps["a"].output, len(keys)) == ((), {"id": 2}, 1)


def test_x4_a_later_refusal_never_settles_an_earlier_lost_attempt() -> None:
    """X4: a person wants the call again, and the tool refuses: whether the first one happened stays unknown."""
    made: list[int] = []

    @rerail.tool(effect="once")
    def pay() -> Any:
        made.append(1)
        raise RuntimeError("?") if len(made) == 1 else rerail.ToolError("no funds")

    async def again(engine: Engine, run_id: str) -> None:
        await engine.resolve(run_id, "a", rerun=True)

    result, _ = run([pay], act=again)
    assert (result.status, result.in_doubt, len(made)) == ("waiting", ("a",), 2)


# -- Services that know keys ---------------------------------------------------------------------------------------


def charging(*answers: Any, **options: Any) -> tuple[Any, list[tuple[str, Any, float]]]:
    made: list[tuple[str, Any, float]] = []

    def charge(ctx: rerail.Context, n: int = 0) -> Any:
        made.append((ctx.key, n, 0.0))
        answer = answers[min(len(made), len(answers)) - 1]
        if isinstance(answer, Exception):
            raise answer
        return answer

    return rerail.tool(charge, effect="once", **{"idempotent_for": 3600.0, **options}), made


def test_e2_a_lost_answer_is_asked_for_again_under_the_same_key() -> None:
    """E2: unasked, by the same tool, arguments and key."""
    tool, made = charging(ConnectionResetError("x"), RuntimeError("y"), {"id": 1})
    result, _ = run([tool], args={"n": 5})
    assert result.success and len(made) == 3 and len(set(made)) == 1


def test_e2_only_a_success_settles_it() -> None:
    """E2, X4: a refusal (409, 425) is tried again; when retries are spent the step is in doubt, not failed."""
    tool, made = charging(ConnectionResetError("x"), rerail.ToolError("still in progress", status=409))
    result, _ = run([tool])
    assert (result.status, result.in_doubt) == ("waiting", ("a",))
    assert 2 <= len(made) <= 4 and len({key for key, *_ in made}) == 1


def test_e2_no_other_rung_is_taken_while_the_key_holds() -> None:
    """E2: neither a hint nor another tool: they would be another call."""
    hint = rerail.ToolError("try this", suggest={"n": 9}, category="parameter_error")
    tool, made = charging(ConnectionResetError("x"), hint)
    other = rerail.tool(lambda n=0: {"by": "other"}, name="other")
    plan = {"steps": [{"id": "a", "tool": "charge", "args": {"n": 5}, "alternatives": ["other"]}]}
    result, events = run([tool, other], plan)
    assert result.in_doubt == ("a",) and {n for _, n, _ in made} == {5}
    assert not of(events, ev.Recovered)
    tool, made = charging(ConnectionResetError("x"))
    run([tool, other], plan)
    assert len(made) == 4  # none is left for the other tool, which may not be called


def test_e2_after_that_time_the_doubt_is_a_persons() -> None:
    """E2, E3: counted from the first intent."""
    tool, made = charging(ConnectionResetError("x"), idempotent_for=0.5)
    result, _ = run([tool], given={"retry": {"backoff_base": 10.0, "jitter": False}})
    assert (result.status, result.in_doubt, len(made)) == ("waiting", ("a",), 1)


def test_e2_a_process_that_naps_before_a_repeat_does_not_make_it_after_the_key_is_forgotten() -> None:
    """E2: the key was known when the repeat was decided, and is forgotten when the call would be made."""
    tool, made = charging(RuntimeError("after the effect"), {"id": 1}, idempotent_for=50.0)

    class Napping(MemoryStore):
        async def append(self, batch: Any) -> None:
            await super().append(batch)
            if any(b'"step_started"' in data and b'"attempt":2' in data for _, data in batch.rows):
                await asyncio.sleep(100)

    async def main() -> None:
        async with Engine(Napping(), [tool], QUICK, clock=VirtualClock()) as engine:
            result = await engine.run({"steps": [{"id": "a", "tool": "charge"}]})
            assert (result.status, result.in_doubt, len(made)) == ("waiting", ("a",), 1)
            assert result.steps["a"].error["code"] == "KEY_LAPSED"

    virtual_run(main)


def test_e2_a_tool_that_cannot_send_its_key_may_not_declare_it() -> None:
    """E2: a function without `ctx`, a command without `{key}`; a step may not say it for them."""
    with pytest.raises(ValueError, match="idempotency key"):
        rerail.tool(lambda: None, name="t", effect="once", idempotent_for=60)
    with pytest.raises(ValueError, match="idempotency key"):
        rerail.shell("t", ["true"], idempotent_for=60)
    assert rerail.shell("t", ["true", "{key}"], idempotent_for=60).spec.keyed
    assert rerail.http("t", "POST", "http://localhost/", idempotent_for=60).spec.keyed
    bare = rerail.tool(lambda: None, name="t", effect="once")
    with pytest.raises(PlanError, match="idempotency key"):
        run([bare], idempotent_for=60)


# -- Odd words -----------------------------------------------------------------------------------------------------


class Hostile(Exception):
    """An exception that fails at anything."""

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(name)


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_x3_an_exception_that_cannot_be_read_is_a_failure_all_the_same(kind: str) -> None:
    """X3, X4: a run does not stall of it; of a `once` tool it is lost."""
    made: list[int] = []

    def sync() -> None:
        made.append(1)
        raise Hostile("x")

    async def later() -> None:
        sync()

    tool = rerail.tool(sync if kind == "sync" else later, name="pay", effect="once")
    result, _ = run([tool])
    assert (result.status, result.in_doubt, len(made)) == ("waiting", ("a",), 1)


@pytest.mark.parametrize(
    "error", [asyncio.CancelledError(), BaseExceptionGroup("g", [KeyError("x")]), OSError("\udc80")]
)
def test_v8_whatever_a_look_raises_says_nothing_of_the_effect(error: BaseException) -> None:
    """V8: it is asked once more, and then cannot tell; what it says can be written down."""
    asked: list[int] = []

    async def look() -> bool:
        asked.append(1)
        raise error

    @rerail.tool(effect="once", verify=look, settle=0)
    async def pay() -> None:
        raise TimeoutError

    result, _ = run([pay])
    assert (result.status, result.in_doubt, len(asked)) == ("waiting", ("a",), 2)


def test_x4_a_returned_not_now_tells_nothing_of_the_effect() -> None:
    """X4, X8: only what is raised says that nothing happened; another tool is asked again after that time."""
    made: list[int] = []

    def busy() -> Any:
        made.append(1)
        return {"success": False, "code": "COOLDOWN_ACTIVE", "retry_after": 1} if len(made) == 1 else {"v": 1}

    assert run([rerail.tool(busy, effect="once")])[0].in_doubt == ("a",) and len(made) == 1
    made.clear()
    assert run([rerail.tool(busy)])[0].success and len(made) == 2


@pytest.mark.parametrize(
    "options",
    [{"timeout": float("inf")}, {"settle": float("inf")}, {"settle": -1}, {"settle": "sometimes"},
     {"on_doubt": "maybe"}, {"idempotent_for": 0}, {"idempotent_for": float("nan")}, {"errors": "x"},
     {"fenced": "yes"}],
    ids=str,
)  # fmt: skip
def test_p1_an_option_that_means_nothing_is_refused(options: dict[str, Any]) -> None:
    """P1: when the tool is made; what cannot be written down would make its run unreadable."""

    def pay(ctx: rerail.Context) -> None: ...

    with pytest.raises(ValueError, match=next(iter(options))):
        rerail.tool(pay, effect="once", **options)


def test_e1_an_infinite_setting_is_refused() -> None:
    """E1: it could not be read back."""
    for table, key in (("evaluation", "settle"), ("run", "step_timeout"), ("retry", "max_wait")):
        with pytest.raises(rerail.SettingsError, match=key):
            rerail.Settings.load({table: {key: float("inf")}})


# -- What a review found -------------------------------------------------------------------------------------------


def test_x8_a_wait_that_may_not_be_waited_ends_the_repeats_under_a_key() -> None:
    """X8, E2: the lost call is not made again in this round, and stays in doubt."""
    tool, made = charging(ConnectionResetError("x"), rerail.RateLimited("in an hour", retry_after=3600))
    assert run([tool])[0].in_doubt == ("a",) and len(made) == 2


def test_e2_a_refusal_is_tried_again_under_the_key_until_retries_are_spent() -> None:
    """E2: 409 and 425 are tried again, however often the same words come back."""
    refused = rerail.ToolError("in progress", status=409, category="parameter_error")
    tool, made = charging(ConnectionResetError("x"), refused, refused, {"id": 1})
    result, _ = run([tool])
    assert result.success and len(made) == 4


def test_e3_the_answer_to_a_doubt_replaces_the_value_that_stood_in() -> None:
    """E3: `--succeeded` is taken although the step has a value."""
    tools, made = posting()

    async def act(engine: Engine, run_id: str) -> None:
        await engine.resolve(run_id, "a", succeeded={"id": 7})

    result, _ = run(tools, two(fallback={"value": 5}), act=act)
    assert (result.steps["a"].output, result.in_doubt, len(made)) == ({"id": 7}, (), 1)


def test_e3_a_doubt_of_a_stopped_run_is_named() -> None:
    """E3, V1: the budget ends the repeats under a key; what they may have done is in the verdict."""
    tool, made = charging(ConnectionResetError("x"))
    result, _ = run([tool], given={**QUICK, "run": {"max_attempts": 2}})
    assert (result.status, result.in_doubt, len(made)) == ("failed", ("a",), 2)


def test_v8_a_repaired_step_is_called_although_a_look_finds_something() -> None:
    """V8, H7: another call has another effect; what a look finds of the one before is not its success."""
    paid: list[str] = []

    @rerail.tool(effect="once", verify=lambda args: args["to"] == "b" and "b" not in paid, settle=0)
    def pay(to: str) -> Any:
        paid.append(to)
        if to == "a":
            raise RuntimeError("?")
        return {"paid": to}

    async def act(engine: Engine, run_id: str) -> None:
        await engine.repair(run_id, "a", args={"to": "b"})

    settings = {**QUICK, "reflection": {"max_step_retries": 0}, "retry": {"max_retry_rounds": 0}}
    run([pay], given=settings, act=act, args={"to": "a"})
    assert paid == ["a", "b"]


def test_v8_a_look_that_cannot_tell_before_a_repeat_leaves_the_doubt() -> None:
    """V8: it was absent; whether it has shown since is not known."""
    answers: list[Any] = [False, rerail.NotYet]
    made: list[int] = []

    async def look() -> Any:
        return answers.pop(0) if answers else rerail.NotYet

    @rerail.tool(effect="once", verify=look, settle=0)
    async def pay() -> None:
        made.append(1)
        raise TimeoutError

    result, _ = run([pay], given={"retry": {"backoff_base": 5.0, "jitter": False}})
    assert (result.in_doubt, len(made)) == (("a",), 1)


@pytest.mark.parametrize(("acted", "comes_to"), [(True, ("completed", 1)), (False, ("completed", 2))])
def test_v8_a_retry_of_a_cancelled_run_looks_first(acted: bool, comes_to: tuple[str, int]) -> None:
    """V8, E3: the cancel came before the look; a person is not asked what a look can answer."""
    calls: list[int] = []
    effects: list[int] = []

    async def there(args: dict[str, Any], output: Any) -> bool:
        return bool(effects)

    @rerail.tool(effect="once", verify=there)
    async def pay() -> str:
        calls.append(1)
        if acted or len(calls) > 1:
            effects.append(1)
        await asyncio.sleep(50 if len(calls) == 1 else 0)
        return "paid"

    async def main() -> str:
        async with Engine(MemoryStore(), [pay], QUICK, clock=VirtualClock()) as engine:
            run = await engine.start({"steps": [{"id": "a", "tool": "pay"}]})
            await asyncio.sleep(1)
            await engine.cancel(run)
            cancelled = await engine.wait(run)
            assert (cancelled.status, cancelled.in_doubt) == ("cancelled", ("a",))
            return (await engine.retry(run)).status

    assert (virtual_run(main), len(calls)) == comes_to
    assert len(effects) == 1


def test_e3_a_rerun_of_a_cancelled_run_calls() -> None:
    """E3: the answer to a doubt of a cancelled run; it was accepted, nothing was called, and the doubt stayed."""
    calls: list[int] = []

    @rerail.tool(effect="once")
    async def pay() -> str:
        calls.append(1)
        if len(calls) == 1:
            await asyncio.sleep(50)
        return "paid"

    async def main() -> tuple[str, tuple[str, ...]]:
        async with Engine(MemoryStore(), [pay], QUICK, clock=VirtualClock()) as engine:
            run = await engine.start({"steps": [{"id": "a", "tool": "pay"}]})
            await asyncio.sleep(1)
            await engine.cancel(run)
            assert (await engine.wait(run)).in_doubt == ("a",)
            await engine.resolve(run, "a", rerun=True)
            found = await engine.wait(run)
            return found.status, found.in_doubt

    assert virtual_run(main) == ("completed", ()) and len(calls) == 2


# -- Another call in between ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("between", ["fallback", "alternative", "hint"])
def test_v8_a_call_is_looked_for_whatever_was_called_in_between(between: str) -> None:
    """V8: the effect shows while another tool, or other arguments, had their turn; in the next round it is found."""
    log: list[Any] = []
    shown: set[str] = set()

    def look(args: dict[str, Any]) -> bool:
        log.append(("look", args["to"]))
        return args["to"] in shown

    @rerail.tool(effect="once", verify=look, settle=0.1)
    def pay(to: str) -> None:
        log.append(("pay", to))
        if to == "bobby":
            shown.add("bob")
            raise rerail.ToolError("no such account", category="tool_error")
        if between == "hint":
            raise rerail.ToolError("who?", category="parameter_error", suggest={"to": "bobby"}, lost=True)
        raise rerail.ToolError("lost", category="tool_error", lost=True)

    @rerail.tool(effect="once" if between == "alternative" else "read")
    def other(to: str = "") -> None:
        shown.add("bob")
        raise rerail.ToolError("down", category="tool_error")

    steps: dict[str, Any] = {
        "fallback": {"fallback": {"tool": "other"}, "retries": 0},
        "alternative": {"alternatives": ["other"], "retries": 1},
        "hint": {"retries": 1},
    }
    result, _ = run([pay, other], args={"to": "bob"}, **steps[between])
    assert result.status == "completed" and log.count(("pay", "bob")) == 1
    assert log[-1] == ("look", "bob")


def test_v8_the_first_probe_is_the_baseline_whatever_was_called_in_between() -> None:
    """V8: a transfer half done, an alternative that failed, the transfer again: never taken for one good transfer."""
    account = {"a": 70, "b": 0}
    calls: list[str] = []

    def moved(before: Any) -> bool:
        return before["a"] - account["a"] == 30 and account["b"] - before["b"] == 30

    @rerail.tool(effect="once", probe=lambda: dict(account), verify=moved, settle=0.1, alternatives=["other"])
    def transfer() -> None:
        calls.append("transfer")
        account["a"] -= 30
        if len(calls) == 1:
            raise rerail.ToolError("deadlock", category="tool_error", lost=True)
        account["b"] += 30

    @rerail.tool(effect="once")
    def other() -> None:
        calls.append("other")
        raise rerail.ToolError("not available", category="parameter_error")

    result, _ = run([transfer, other])
    assert calls[:3] == ["transfer", "other", "transfer"]
    assert not result.success


def test_t5_a_retry_after_a_cancel_looks_for_effects_that_other_steps_need() -> None:
    """V8, T5: what was cut off is looked for first, also where the steps to do again come after it."""
    done: list[int] = []

    async def main() -> Any:
        @rerail.tool(effect="once", verify=lambda: bool(done), settle=0.1)
        async def pay() -> None:
            done.append(1)
            await asyncio.sleep(5)

        @rerail.tool(effect="read")
        def after() -> int:
            return 1

        steps = [{"id": "a", "tool": "pay"}, {"id": "b", "tool": "after", "needs": ["a"]}]
        async with Engine(MemoryStore(), [pay, after], QUICK, clock=VirtualClock()) as engine:
            started = await engine.start({"steps": steps})
            await asyncio.sleep(1)
            await engine.cancel(started)
            assert (await engine.wait(started)).status == "cancelled"
            return await engine.retry(started)

    result = virtual_run(main)
    assert (result.status, len(done)) == ("completed", 1)
