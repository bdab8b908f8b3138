"""Recovery when a step fails: the named scenarios of section 13 about the ladder, the judge and the verdict."""

from __future__ import annotations

from typing import Any

import pytest

import rerail
from rerail.errors import RateLimited, Refused, ToolError
from rerail.testing.scripted import ScriptedMind, Took, World
from rerail.testing.virtual_time import virtual_run

FAIL = ToolError("it broke", category="tool_error")
NO_RETRIES = {"reflection": {"max_step_retries": 0}}


def one(tool: str, **more: Any) -> dict[str, Any]:
    return {"objective": "one step", "steps": [{"id": tool, "tool": tool, **more}]}


def history(world: World, what: Any, **options: Any) -> tuple[Any, list[Any]]:
    async def main() -> tuple[Any, list[Any]]:
        async with world.engine(what, **options) as engine:
            result = await engine.run(what)
            return result, await engine.events(result.run_id)

    return virtual_run(main)


def rungs(events: list[Any]) -> list[str]:
    return [str(event.rung) for event in events if event.type == "recovered"]


def test_timeout() -> None:
    """X4, H2, T12: it times out, and again: not success, and the reason says timeout (超时 in Chinese)."""
    world = World(slow=[Took(60)])
    what = one("slow", timeout=5)

    async def main() -> tuple[Any, str]:
        async with world.engine(what, settings=NO_RETRIES) as engine:
            result = await engine.run(what)
            return result, await engine.why(result.run_id, "slow", "zh")

    result, zh = virtual_run(main)
    assert not result.success
    assert "timed out" in result.failed_steps[0]["reason"]
    assert result.steps["slow"].error["category"] == "transient_error"
    assert "超时" in zh
    assert world.calls_of("slow") == 2  # its own round tried it again


def test_false_alarm() -> None:
    """R5, V3: all succeeded, the judge says one is missing: not called again, success, disputed."""
    what = {"steps": [{"id": "a", "tool": "a"}, {"id": "b", "tool": "b"}]}
    mind = ScriptedMind(judge={"complete": False, "failed_steps": [{"id": "b", "reason": "missing from the history"}]})
    world = World()
    result, _ = history(world, what, model=mind, settings={"evaluation": {"shortcut": False}})
    assert result.success and result.complete
    assert result.disputed == ("b",)
    assert world.order == ["a", "b"]


def test_shortcut() -> None:
    """V5: after a retry round the judge is always asked; with another step failed it is no success."""
    what = {"steps": [{"id": "a", "tool": "a"}, {"id": "b", "tool": "b"}]}
    mind = ScriptedMind(judge={"complete": True, "success": True})
    world = World(a=[FAIL, None], b=[FAIL])
    result, events = history(world, what, model=mind, settings=NO_RETRIES)
    assert not result.success  # a judge can never raise a failed run
    assert [row["id"] for row in result.failed_steps] == ["b"]
    assert len([event for event in events if event.type == "evaluation"]) == len(mind.asked) == 2
    clean = ScriptedMind(judge={"complete": True})
    assert history(World(), what, model=clean)[0].success
    assert not clean.asked  # no retry round and all succeeded: the judge may be skipped


def test_judge_that_breaks_changes_nothing() -> None:
    """V4: a broken judge, or one that cannot be read: the computed verdict stands, and says so."""
    what = one("a")
    for answer in (RuntimeError("no model"), "all fine!", 42):
        result, _ = history(
            World(), what, model=ScriptedMind(judge=answer), settings={"evaluation": {"shortcut": False}}
        )
        assert result.success and result.judge == "unavailable"


def test_judge_names_a_poor_step() -> None:
    """V3: a step named unsatisfactory with evidence becomes a root, unless its effect forbids it."""
    what = {"steps": [{"id": "a", "tool": "a"}, {"id": "m", "tool": "m"}]}
    poor = {"unsatisfactory": [{"step": "a", "evidence": "empty"}, {"step": "m", "evidence": "rude"}]}
    mind = ScriptedMind(judge=[poor, {"complete": True}])
    world = World(a=[{"v": 1}, {"v": 2}]).option("m", effect="once")
    result, _ = history(world, what, model=mind, settings={"evaluation": {"shortcut": False}})
    assert world.calls_of("a") == 2 and world.calls_of("m") == 1
    assert result.success and result.complete


def test_fallback_tool_is_called_once() -> None:
    """H4, H9: a fallback tool gets a single call that counts as no retry."""
    world = World(model=[ConnectionError("down")], template=[{"from": "template"}])
    result, events = history(world, one("model", fallback={"tool": "template", "args": {}}))
    assert world.order == ["model"] * 4 + ["template"]
    assert result.steps["model"].status == "degraded" and result.steps["model"].output == {"from": "template"}
    assert rungs(events) == ["fallback"]


def test_params() -> None:
    """H2, H5, H6: 数据源不存在 → parameter_error → the hinted argument → succeeds."""

    def upload(datasource_id: str) -> Any:
        if datasource_id != "ds_001":
            return ToolError(f"数据源不存在: {datasource_id}", suggest={"datasource_id": "ds_001"})
        return {"uploaded": datasource_id}

    world = World(data_upload=[upload])
    result, events = history(world, one("data_upload", args={"datasource_id": "ds_invalid"}))
    failed = next(event for event in events if event.type == "step_failed")
    assert failed.error.category == "parameter_error"
    (recovered,) = [event for event in events if event.type == "recovered"]
    assert recovered.rung == "adjusted_arguments" and recovered.args == {"datasource_id": "ds_001"}
    assert result.steps["data_upload"].output == {"uploaded": "ds_001"}


@pytest.mark.parametrize("category", ["tool_error", None])
def test_alternative(category: str | None) -> None:
    """H3: 工具服务连接超时 → as a tool_error at once to the alternative; by text alone transient, and there too."""
    world = World(process_data=[ToolError("工具服务连接超时", category=category)])
    result, events = history(world, one("process_data", alternatives=["alternative_processor"]))
    calls = 1 if category else 3
    assert world.order == ["process_data"] * calls + ["alternative_processor"]
    assert result.success and rungs(events) == ["alternative_tool"]
    assert result.steps["process_data"].tool == "alternative_processor"


def test_replan() -> None:
    """H3, H7, H8: 缺少必要的前置数据 → decomposition_error → repair fails → a new plan with the missing step."""
    what = {
        "steps": [
            {"id": "load", "tool": "load"},
            {"id": "feature_engineering", "tool": "features", "needs": ["load"]},
        ]
    }

    def features(**args: Any) -> Any:
        return {"ok": 1} if "data" in args else ToolError("缺少必要的前置数据")

    world = World(features=[features], clean=[{"data": [1]}])
    world.option("load", effect="once")
    new = {
        "steps": [
            *what["steps"][:1],
            {"id": "clean", "tool": "clean", "needs": ["load"]},
            {"id": "feature_engineering", "tool": "features", "args": {"data": "${clean.data}"}},
        ]
    }
    mind = ScriptedMind(repair={"args": {"more": 1}, "reason": "try with more"}, replan=new)
    result, events = history(world, what, model=mind)
    assert world.order == ["load", "features", "features", "clean", "features"]
    assert [event.type for event in events if event.type in ("recovered", "replanned")] == ["recovered", "replanned"]
    assert result.success and result.revision == 3  # a repair, then a replan
    assert next(e for e in events if e.type == "step_failed").error.category == "decomposition_error"


def test_failed_replan_leaves_the_old_plan() -> None:
    """H8, P5: a new plan with an unknown tool is refused with its faults; the old plan and its verdict stay."""
    mind = ScriptedMind(replan={"steps": [{"id": "z", "tool": "rm_rf"}]})
    result, events = history(World(a=[ValueError("bad")]), one("a"), model=mind, settings=NO_RETRIES)
    rejected = next(event for event in events if event.type == "plan_rejected")
    assert "rm_rf" in rejected.faults[0]
    assert not result.success and list(result.steps) == ["a"]
    assert len(mind.asked) == 1  # max_task_replanning_attempts is hard


def test_silent_noop() -> None:
    """V8: a tool says ok and did nothing; verify notices, and the ladder mends it."""
    sent: list[str] = []

    def send(to: str) -> Any:
        if len(sent) or world.calls_of("send") > 1:
            sent.append(to)
        return {"ok": True}

    async def was_sent(args: dict[str, Any]) -> bool:
        return args["to"] in sent

    world = World(send=[send]).option("send", effect="once", verify=was_sent)
    result, events = history(world, one("send", args={"to": "a@b.c"}))
    assert result.success and sent == ["a@b.c"]
    assert next(e for e in events if e.type == "step_failed").error.code == "VERIFY_FAILED"


@pytest.mark.parametrize("mode", ["hybrid", "model"])
def test_an_effect_that_is_not_there_is_nobodys_to_change(mode: str) -> None:
    """V8, H5: a mind that changes the call would have another effect pass for the one that was planned."""
    sent: list[str] = []

    def send(to: str) -> Any:
        if to != "a@b.c":  # the one that is wanted never arrives
            sent.append(to)
        return {"ok": True}

    async def was_sent(args: dict[str, Any]) -> bool:
        return args["to"] in sent

    mind = ScriptedMind(
        reflect={"category": "parameter_error", "suggestion": {"to": "eve@b.c"}, "recoverable": True,
                 "confidence": 100, "root_cause": "x"},
        repair={"step": {"id": "send", "tool": "send", "args": {"to": "eve@b.c"}}, "reason": "better"},
    )  # fmt: skip
    world = World(send=[send]).option("send", effect="once", verify=was_sent)
    settings = {"reflection": {"mode": mode}}
    result, _ = history(world, one("send", args={"to": "a@b.c"}), model=mind, settings=settings)
    assert not result.success and not sent and not mind.asked


def test_lost_answer() -> None:
    """E3, V8, X4: a `once` tool acts, its answer is lost, verify finds the effect: succeeded, not called again."""
    sent: list[str] = []

    async def was_sent(args: dict[str, Any]) -> Any:
        return rerail.Verified(output={"id": 7}) if args["to"] in sent else False

    def send(to: str) -> Any:
        sent.append(to)
        return ConnectionResetError("connection reset by peer")

    world = World(send=[send]).option("send", effect="once", verify=was_sent)
    result, _ = history(world, one("send", args={"to": "a@b.c"}))
    assert result.success and world.calls_of("send") == 1
    assert result.steps["send"].output == {"id": 7}


def test_lost_answer_without_verify_waits_for_a_person() -> None:
    """E3, X4, X7: without verify a `once` tool is in doubt; a person resolves it, and dependents get the value."""
    what = {"steps": [{"id": "pay", "tool": "pay"}, {"id": "note", "tool": "note", "args": {"r": "${pay.receipt}"}}]}
    world = World(pay=[TimeoutError("no answer")]).option("pay", effect="once")

    async def main() -> tuple[Any, Any]:
        async with world.engine(what) as engine:
            waiting = await engine.run(what)
            with pytest.raises(Refused) as refused:
                await engine.retry(waiting.run_id)
            assert refused.value.code == "RUN_IN_DOUBT" and "resolve" in refused.value.hint
            await engine.resolve(waiting.run_id, "pay", succeeded={"receipt": 9})
            return waiting, await engine.wait(waiting.run_id)

    waiting, result = virtual_run(main)
    assert waiting.status == "waiting" and waiting.steps["pay"].status == "in_doubt"
    assert result.success and world.calls_of("pay") == 1
    assert dict(world.calls[-1].args) == {"r": 9}


def test_not_now() -> None:
    """X8: 'not now' is obeyed, and counts neither as a failure nor as a retry; retry.max_wait bounds it."""
    world = World(api=[RateLimited("slow down", retry_after=40)] * 6 + [{"ok": 1}])
    result, events = history(world, one("api"))
    assert result.success and world.calls_of("api") == 7
    waits = [event for event in events if event.type == "retry_scheduled"]
    assert all(event.not_now and event.retries_left == 3 and event.delay == 40 for event in waits)
    world = World(api=[RateLimited("slow down", retry_after=40)])
    result, events = history(world, one("api"), settings={"retry": {"max_wait": 100}})
    assert not result.success
    assert world.calls_of("api") == 3  # two waits of 40 s; the third may not be waited, and no round follows
    (failed,) = [event for event in events if event.type == "reflected"]
    assert failed.rung == "fail" and failed.refused == (
        "has to wait 40 s, with 80 s already waited of 100 s allowed: slow down",
    )


def test_not_now_for_too_long() -> None:
    """X8: of a wait that may not be waited only alternative, fallback and skip remain; a person's retry calls anew."""
    hour = {"api": [RateLimited("come back in an hour", retry_after=3600)]}
    world = World(**hour, spare=[{"from": "spare"}])
    result, _ = history(world, one("api", alternatives=["spare"]))
    assert result.success and (world.calls_of("api"), world.calls_of("spare")) == (1, 1)
    world = World(**hour)
    result, _ = history(world, one("api", fallback={"value": 7}))
    assert result.degraded and world.calls_of("api") == 1
    world = World(**hour)
    result, _ = history(world, one("api", critical=False))
    assert result.success and result.steps["api"].code == "SKIP_OPTIONAL" and world.calls_of("api") == 1
    world = World(api=[RateLimited("come back in an hour", retry_after=3600), {"ok": 1}], after=[1], clean=[1])
    what = {"steps": [
        {"id": "api", "tool": "api"},
        {"id": "clean", "tool": "clean", "needs": [{"step": "api", "when": "failure"}]},
    ]}  # fmt: skip

    async def main() -> tuple[Any, Any]:
        async with world.engine(what) as engine:
            first = await engine.run(what)
            return first, await engine.retry(first.run_id)

    first, second = virtual_run(main)
    assert (first.status, second.status) == ("failed", "completed")
    assert world.order == ["api", "clean", "api"]  # at once: no automatic round would take the step


def test_permanent() -> None:
    """H3, R6, T4: a permanent error fails at once; no round runs for it alone; a retry needs force."""
    world = World(a=[ToolError("API密钥无效")])

    async def main() -> Any:
        async with world.engine(one("a")) as engine:
            result = await engine.run(one("a"))
            assert world.calls_of("a") == 1
            with pytest.raises(Refused) as refused:
                await engine.retry(result.run_id)
            assert refused.value.code == "NOT_RETRYABLE"
            preview = await engine.retry(result.run_id, force=True, dry_run=True)
            assert preview.passed == ("NOT_RETRYABLE",)
            return await engine.retry(result.run_id, force=True)

    assert not virtual_run(main).success
    assert world.calls_of("a") == 2


def test_limit() -> None:
    """R6, T4: people's retries are bounded by max_retries; force passes the limit and says so."""
    world = World(a=[FAIL])

    async def main() -> Any:
        async with world.engine(one("a"), settings=NO_RETRIES) as engine:
            run = (await engine.run(one("a"))).run_id
            for _ in range(3):
                await engine.retry(run)
            with pytest.raises(Refused) as refused:
                await engine.retry(run)
            assert refused.value.code == "RETRY_LIMIT" and "--clean" in refused.value.hint
            assert (await engine.retry(run, force=True, dry_run=True)).passed == ("RETRY_LIMIT",)
            forced = await engine.retry(run, force=True)
            clean = await engine.retry(run, clean=True)
            return forced, clean

    forced, clean = virtual_run(main)
    assert forced.retries == 4 and clean.retries == 0


def test_confirm() -> None:
    """X7, T2, T5: a gate holds the step until a person agrees; the confirmation is remembered on retry."""
    what = {
        "steps": [{"id": "draft", "tool": "draft"}, {"id": "send", "tool": "send", "needs": ["draft"], "confirm": True}]
    }
    world = World(send=[FAIL, {"sent": 1}])

    async def main() -> tuple[Any, Any, Any]:
        async with world.engine(what, settings={**NO_RETRIES, "retry": {"max_retry_rounds": 0}}) as engine:
            waiting = await engine.run(what)
            with pytest.raises(Refused) as refused:
                await engine.retry(waiting.run_id)
            assert refused.value.code == "RUN_WAITS_CONFIRM"
            await engine.confirm(waiting.run_id, "send")
            failed = await engine.wait(waiting.run_id)
            return waiting, failed, await engine.retry(waiting.run_id)

    waiting, failed, result = virtual_run(main)
    assert waiting.status == "waiting" and world.calls_of("draft") == 1
    assert failed.status == "failed" and result.success


def test_confirm_refused() -> None:
    """X7, R1: a refused gate fails its step for good; no other tool gets round a person's no."""
    what = {"steps": [{"id": "send", "tool": "send", "confirm": "Really?", "alternatives": ["other"]}]}
    world = World()

    async def main() -> Any:
        async with world.engine(what) as engine:
            waiting = await engine.run(what)
            await engine.confirm(waiting.run_id, "send", refuse=True)
            return await engine.wait(waiting.run_id)

    result = virtual_run(main)
    assert result.steps["send"].error["code"] == "CONFIRM_REFUSED" and not world.calls
    assert result.status == "failed"
