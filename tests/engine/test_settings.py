"""Settings: every key bites, every mistake is named with the nearest key, every value knows its source (SPEC 11)."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from operator import attrgetter
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.engine._server_for_settings import SERVER_BITES
from tests.engine.left_behind import resumed

import rerail
from rerail.adapters.stores.memory import MemoryStore
from rerail.api import Engine
from rerail.codes import Category
from rerail.errors import PlanError, RateLimited, Refused, SettingsError, StoreError, ToolError
from rerail.factory import make_executor, make_model, make_store
from rerail.kernel.policy import Policy, merged
from rerail.ports import Batch, ModelFailed, Prompt, Reply, Unavailable
from rerail.settings.loading import TABLES, Settings, describe, overrides_from
from rerail.settings.tables import ROLES
from rerail.testing.model_server import Answer, Asked, ModelServer
from rerail.testing.scripted import ScriptedMind, Took, World
from rerail.testing.virtual_time import VirtualClock, virtual_run

DOWN = ConnectionRefusedError("down")
BROKE = ToolError("it broke", category="tool_error")
GAP = ToolError("a gap", category="decomposition_error")
ONE: dict[str, Any] = {"steps": [{"id": "a", "tool": "a"}]}


def keys() -> list[str]:
    """Every key that can be set, those of tables inside tables included."""

    def inside(name: str, table: Any) -> list[str]:
        fields = [(f"{name}.{key}", getattr(table, key)) for key in table.__struct_fields__]
        return [
            key for name, one in fields for key in (inside(name, one) if hasattr(one, "__struct_fields__") else [name])
        ]

    settings = Settings()
    return [key for table in TABLES for key in inside(table, getattr(settings, table))]


def defaults() -> dict[str, Any]:
    return {row["key"]: row["value"] for row in describe(Settings(), {})}


# -- The defaults -------------------------------------------------------------------------------------------------

CONTRACT = {
    "run.concurrency": 8, "run.tool_concurrency": {}, "run.provider_concurrency": {}, "run.step_timeout": 300,
    "run.max_attempts": None, "run.max_tokens": None, "run.max_cost": None, "run.max_seconds": None,
    "run.on_doubt": None, "evaluation.settle": 5.0, "tools.idempotent_for": {},
    "retry.backoff_base": 1.0, "retry.backoff_factor": 2.0, "retry.backoff_cap": 30.0, "retry.jitter": True,
    "retry.max_wait": 600, "retry.max_retry_rounds": 1, "retry.max_retries": 3,
    "reflection.enable_step_level_reflection": True, "reflection.mode": "hybrid", "reflection.max_step_retries": 3,
    "reflection.max_single_step_repairs": 1, "reflection.max_task_replanning_attempts": 1,
    "reflection.max_consecutive_failures": 3, "reflection.replan": "keep", "reflection.memory": False,
    "evaluation.judge": True, "evaluation.shortcut": True, "evaluation.history_window": (5, 12),
    "artifacts.memory": 10, "artifacts.ttl_hours": 24,
    "store.url": "sqlite:///.rerail/runs.db", "store.durability": "full", "store.reconnect_seconds": 30,
    "worker.jobs": None, "worker.runs": 16, "worker.grace": 30, "store.workspace": None,
    "workers.silent_is_dead": False,
    "ray.steps": False, "ray.address": None, "ray.env": {}, "ray.cpus": 1, "ray.max_wait": 600, "ray.gone_after": 40,
    "model.name": None, "model.base_url": None, "model.temperature": 0, "model.timeout": 60, "model.prices": {},
    "mcp.servers": {},
    "notify.command": [], "notify.webhook": None, "notify.on": ("done", "failed", "waiting"), "notify.timeout": 10,
    "notify.retries": 2,
    "server.host": "127.0.0.1", "server.port": 8420, "server.token": None,
}  # fmt: skip


def test_the_defaults_are_the_contracts() -> None:
    """SPEC 11: each value of the table."""
    assert {key: value for key, value in defaults().items() if key in CONTRACT} == CONTRACT
    assert Settings().policy() == Policy()


# -- Every key bites ----------------------------------------------------------------------------------------------


def run(world: World, what: Any, given: Mapping[str, Any], **options: Any) -> tuple[Any, list[Any]]:
    async def main() -> tuple[Any, list[Any]]:
        async with world.engine(what, settings=given, **options) as engine:
            result = await engine.wait(await engine.start(what, run_id="r"))
            return result, await engine.events("r")

    return virtual_run(main)


def most_at_once(given: Mapping[str, Any], **options: Any) -> int:
    now = most = 0

    async def t() -> None:
        nonlocal now, most
        now += 1
        most = max(most, now)
        await asyncio.sleep(1)
        now -= 1

    async def main() -> None:
        async with Engine("memory://", [rerail.tool(t, **options)], given, clock=VirtualClock()) as engine:
            await engine.run({"steps": [{"tool": "t"} for _ in range(12)]})

    virtual_run(main)
    return most


def calls(given: Mapping[str, Any], outcome: Any = DOWN, **more: Any) -> int:
    world = World(a=[outcome])
    run(world, {"steps": [{"id": "a", "tool": "a", **more}]}, given)
    return world.calls_of("a")


def doubted(given: Mapping[str, Any]) -> str:
    """What a run comes to whose `once` tool raised."""
    return str(run(World(a=[RuntimeError("?")]).option("a", effect="once"), ONE, given)[0].status)


def settled_in(given: Mapping[str, Any]) -> int:
    """For how many seconds an effect that is not there is looked for."""
    world = World(a=[TimeoutError("?"), {"v": 1}]).option("a", effect="once", verify=lambda output: output is not None)
    verified = [event for event in run(world, ONE, given)[1] if event.type == "step_verified"]
    return round(verified[0].waited)


def keyed_calls(given: Mapping[str, Any]) -> int:
    """How often a `once` tool is called whose first answer is lost."""
    made: list[str] = []

    def a(ctx: rerail.Context) -> dict[str, int]:
        made.append(ctx.key)
        if len(made) == 1:
            raise ConnectionResetError("gone")
        return {"v": 1}

    async def main() -> None:
        async with Engine("memory://", [rerail.tool(a, effect="once")], given, clock=VirtualClock()) as engine:
            await engine.run(ONE)

    virtual_run(main)
    return len(made)


def spent(given: Mapping[str, Any]) -> int:
    """How many steps of a chain run whose tool spends a hundred tokens, a hundred in cost and a hundred seconds."""
    done: list[int] = []

    async def t(ctx: rerail.Context) -> None:
        done.append(1)
        ctx.usage(tokens=100, cost=100.0)
        await asyncio.sleep(100)

    async def main() -> None:
        async with Engine("memory://", [t], given, clock=VirtualClock()) as engine:
            await engine.run(
                {"steps": [{"id": str(i), "tool": "t", "needs": [str(i - 1)] * (i > 0)} for i in range(5)]}
            )

    virtual_run(main)
    return len(done)


def delays(given: Mapping[str, Any]) -> list[float]:
    merged = {table: dict(values) for table, values in given.items()}
    merged.setdefault("retry", {}).setdefault("jitter", False)
    _, events = run(World(a=[DOWN]), ONE, merged)
    return [event.delay for event in events if event.type == "retry_scheduled"][:3]


def times_refused(given: Mapping[str, Any]) -> int:
    """How often a person may retry."""
    world = World(a=[BROKE])

    async def main() -> int:
        async with world.engine(ONE, settings={**given, "reflection": {"max_step_retries": 0}}) as engine:
            name = (await engine.run(ONE)).run_id
            for count in range(9):
                try:
                    await engine.retry(name)
                except rerail.Refused:
                    return count
            return 9

    return virtual_run(main)


def asked(given: Mapping[str, Any], outcome: Any = GAP, **answers: Any) -> dict[str, int]:
    """Which questions a mind was asked, and how often."""
    mind = ScriptedMind(**(answers or {"repair": None, "replan": None, "judge": {"complete": True}, "reflect": None}))
    run(World(a=[outcome]), ONE, given, model=mind)
    kinds = [question.kind for question in mind.asked]
    return {kind: kinds.count(kind) for kind in dict.fromkeys(kinds)}


def repaired(given: Mapping[str, Any]) -> int:
    mind = ScriptedMind(repair=lambda question: {"args": {"n": len(mind.asked)}})
    run(World(a=[lambda **args: ToolError(f"gap {args}", category="decomposition_error")]), ONE, given, model=mind)
    return len(mind.asked)


def replanned(given: Mapping[str, Any]) -> int:
    mind = ScriptedMind(replan=lambda question: {"steps": [{"id": "a", "tool": "a", "args": {"n": len(mind.asked)}}]})
    run(World(a=[lambda **args: ToolError(f"gap {args}", category="decomposition_error")]), ONE, given, model=mind)
    return len(mind.asked)


def kept_by_a_replan(given: Mapping[str, Any]) -> int:
    what = {"steps": [{"id": "k", "tool": "k"}, {"id": "a", "tool": "a", "needs": ["k"]}]}
    world = World(a=[GAP, {"v": 1}])
    run(world, what, given, model=ScriptedMind(replan=what))
    return world.calls_of("k")


def started_before_the_breaker(given: Mapping[str, Any]) -> int:
    world = World({f"t{i}": [BROKE] for i in range(9)})
    what = {"steps": [{"id": str(i), "tool": f"t{i}", "retries": 0} for i in range(9)]}
    run(world, what, {"run": {"concurrency": 1}, "retry": {"max_retry_rounds": 0}, **given})
    return len(world.calls)


def remembers(given: Mapping[str, Any]) -> list[str]:
    store = MemoryStore()
    what = {"steps": [{"id": "a", "tool": "a", "alternatives": ["b"]}]}
    run(World(a=[DOWN]), what, {}, store=store)
    world = World(a=[DOWN])

    async def again() -> None:
        async with world.engine(what, settings=given, store=store, clock=VirtualClock(1_800_000_000)) as engine:
            await engine.run(what)

    virtual_run(again)
    return world.order


def category(given: Mapping[str, Any], text: str = "the flux is low") -> str:
    result, _ = run(World(a=[RuntimeError(text)]), ONE, {**given, "retry": {"max_retry_rounds": 0}})
    return str(result.steps["a"].error["category"])


def judged_events(given: Mapping[str, Any]) -> int:
    """How many raw events a judge sees beside the table."""
    mind = ScriptedMind(judge={"complete": True})
    what = {"steps": [{"id": str(i), "tool": "a"} for i in range(20)]}
    run(World(), what, {"evaluation": {"shortcut": False, **given["evaluation"]}}, model=mind)
    return len(getattr(mind.asked[0], "events", ()) or getattr(mind.asked[0], "history", ()))


class Reads(MemoryStore):
    def __init__(self) -> None:
        super().__init__()
        self.reads = 0

    async def blob(self, digest: str) -> bytes | None:
        self.reads += 1
        return await super().blob(digest)


def fetched(given: Mapping[str, Any]) -> int:
    """How many of three large outputs have to be fetched for the step that needs them."""
    names = ["p0", "p1", "p2"]
    what = {
        "steps": [{"id": n, "tool": n} for n in names]
        + [{"id": "c", "tool": "c", "args": {n: "${" + n + ".text}" for n in names}}]
    }
    store, seen = Reads(), []
    world = World({n: [{"text": n * 1000}] for n in names}, c=[lambda **args: seen.append(store.reads) or 1])
    run(world, what, given, store=store)
    return seen[0]


def kept_after(given: Mapping[str, Any]) -> bool:
    """Whether a content is still there ten hours after its run completed."""
    store = MemoryStore()
    result, _ = run(World(a=[{"text": "x" * 2000}]), ONE, {}, store=store)
    assert result.success

    async def later() -> bool:
        async with Engine(store, [], given, clock=VirtualClock(1_700_000_000 + 36_000)):
            return bool(store._blobs)

    return virtual_run(later)


def opened(given: Mapping[str, Any]) -> str:
    return Engine(None, [], given)._parts.store.url


def synchronous(given: Mapping[str, Any]) -> int:
    """What SQLite itself says of its durability: 2 is FULL, 1 is NORMAL."""
    import tempfile

    import apsw

    made: list[apsw.Connection] = []

    async def main(folder: str) -> int:
        store = make_store(f"sqlite:///{folder}/runs.db", Settings.load(given))
        await store.open()
        try:
            return min(int(connection.pragma("synchronous")) for connection in made)  # the writer's; readers are FULL
        finally:
            await store.close()

    apsw.connection_hooks.append(made.append)
    try:
        with tempfile.TemporaryDirectory() as folder:
            return asyncio.run(main(folder))
    finally:
        apsw.connection_hooks.remove(made.append)


def patience(given: Mapping[str, Any]) -> float:
    """How long a run waits for a database that is away."""

    class Away(MemoryStore):
        async def append(self, batch: Batch) -> None:
            raise Unavailable("connection refused")

    async def main() -> float:
        async with Engine(Away(), World().tools(ONE), given, clock=VirtualClock()) as engine:
            with pytest.raises(StoreError):
                await engine.wait(await engine.start(ONE))
            return round(asyncio.get_running_loop().time())

    return virtual_run(main)


def blotted(given: Mapping[str, Any]) -> bool:
    """Whether the value of `PASSPHRASE` is kept out of an output."""

    async def tells() -> str:
        return os.environ["PASSPHRASE"]

    async def main() -> Any:
        async with Engine("memory://", [rerail.tool(tells)], given) as engine:
            return (await engine.run({"objective": "o", "steps": [{"id": "a", "tool": "tells"}]})).steps["a"].output

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PASSPHRASE", "open sesame")
        return bool(asyncio.run(main()) == "***")


def tool_names(given: Mapping[str, Any]) -> list[str]:
    return sorted(Engine("memory://", [], given).tools)


def names_when_open(given: Mapping[str, Any]) -> list[str]:
    async def main() -> list[str]:
        async with Engine("memory://", [], given) as engine:
            return sorted(engine.tools)

    return asyncio.run(main())


SENDS: dict[str, Any] = {"steps": [{"id": "a", "tool": "send", "retries": 1}]}


def specs_under(given: Mapping[str, Any]) -> Mapping[str, Any]:
    """The tools of an engine with a function that declares no effect."""
    return Engine("memory://", [rerail.tool(lambda: None, name="send")], given).tools


def lost_answer(given: Mapping[str, Any]) -> tuple[str, int]:
    """What a run comes to whose tool declares no effect and loses its answer, and how often it is called."""
    called = 0

    async def send() -> None:
        nonlocal called
        called += 1
        raise TimeoutError

    async def main() -> Any:
        async with Engine("memory://", [send], {**given, **QUICK_ONCE}, clock=VirtualClock()) as engine:
            return await engine.run(SENDS)

    return virtual_run(main).status, called


QUICK_ONCE = {"retry": {"max_retry_rounds": 0}}


def taken_from_silence(given: Mapping[str, Any]) -> tuple[str, int]:
    """What a run comes to whose `once` call was under way when its owner fell silent, and how often it is called."""
    return resumed(settings=given)


def notified(**more: Any) -> Callable[[Mapping[str, Any]], list[tuple[str, bool, int]]]:
    """Who was told that a run completed, whether that worked, and how often it was tried."""

    async def main(given: Mapping[str, Any]) -> list[tuple[str, bool, int]]:
        store = MemoryStore()
        settings = {"notify": {**more, **given["notify"]}}
        async with Engine(store, World().tools(ONE), settings) as engine:
            run = (await engine.run(ONE)).run_id
        async with Engine(store, [], {}) as engine:
            told = [event for event in await engine.events(run) if event.type == "notified"]
        return [(event.kind, event.ok, event.attempts) for event in told]

    return lambda given: asyncio.run(main(given))


def http_code(given: Mapping[str, Any]) -> str:
    """What becomes of a request to a host of this machine that nobody listens on."""
    tool = rerail.http("get", "GET", "http://127.0.0.1:9/x")
    settings = {**given, "reflection": {"max_step_retries": 0}, "retry": {"max_retry_rounds": 0}}
    result = rerail.run({"steps": [{"id": "a", "tool": "get"}]}, tools=[tool], settings=settings)
    return str(result.steps["a"].error["code"])


def mind_wait(given: Mapping[str, Any]) -> float:
    class Slow(ScriptedMind):
        async def answer(self, question: Any) -> Any:
            await asyncio.sleep(10_000)

    _, events = run(World(), ONE, {**given, "evaluation": {"shortcut": False}}, model=Slow(judge=None))
    return round(events[-1].at - events[0].at)


def questioned(given: Mapping[str, Any], role: str, answer: Any) -> tuple[list[Asked], Reply | ModelFailed]:
    """What a model's server is asked in that role, if it always gives that answer, and how that ends."""

    async def main(address: str) -> Reply | ModelFailed:
        table = {"name": "m", "base_url": address, "timeout": 20, **given["model"]}
        model = make_model(Settings.load({"model": table, "retry": {"backoff_base": 0}}))
        assert model is not None
        try:
            return await model.complete(Prompt(role, "", "?", {"type": "object"}))
        except ModelFailed as failed:
            return failed

    with ModelServer([answer] * 9) as server:
        ended = asyncio.run(main(server.base_url))
    return server.asked, ended


def sent(what: Callable[[Asked], Any], role: str = "plan") -> Callable[[Mapping[str, Any]], Any]:
    """What the first request holds."""
    return lambda given: what(questioned(given, role, {})[0][0])


def tried(given: Mapping[str, Any], role: str = "plan", status: int = 404) -> list[str]:
    """Which models are asked while the server only refuses."""
    return [asked.model for asked in questioned(given, role, Answer.status(status))[0]]


def told(role: str = "plan", answer: Any = None) -> Callable[[Mapping[str, Any]], str]:
    """Words of the failure that tell settings apart: a variable, an address, a time."""

    def look(given: Mapping[str, Any]) -> str:
        found = re.search(r"KEY_\w|http://127.0.0.1:1/\w+|within [\d.]+", str(questioned(given, role, answer or {})[1]))
        assert found is not None
        return found[0]

    return look


def planned(given: Mapping[str, Any]) -> list[Asked]:
    """What a model's server is asked for a plan with many tools, if it only ever talks nonsense."""
    tools = [rerail.tool(lambda: None, name=f"tool{i}", description="words " * 20) for i in range(100)]

    async def main(address: str) -> None:
        table = {"name": "m", "base_url": address, "timeout": 20, **given["model"]}
        async with Engine("memory://", tools, {"model": table}) as engine:
            assert (await engine.plan("anything")).plan is None

    with ModelServer(["nonsense"] * 9) as server:
        asyncio.run(main(server.base_url))
    return server.asked


def role_bites(role: str) -> dict[str, Any]:
    at = "http://127.0.0.1:1/"  # nobody listens there
    return {
        f"model.{role}.name": ("a", "b", sent(lambda asked: asked.model, role), "a", "b"),
        f"model.{role}.base_url": (f"{at}x", f"{at}y", told(role), f"{at}x", f"{at}y"),
        f"model.{role}.key_env": ("KEY_A", "KEY_B", told(role), "KEY_A", "KEY_B"),
        f"model.{role}.temperature": (0.5, None, sent(lambda asked: asked.body["temperature"], role), 0.5, 0.0),
        f"model.{role}.timeout": (0.2, 0.4, told(role, Answer.slow(9)), "within 0.2", "within 0.4"),
        f"model.{role}.fallback": ("a", "b", lambda given: tried(given, role), ["m", "a"], ["m", "b"]),
    }  # fmt: skip


def verbose(given: Mapping[str, Any], tmp_path: Path) -> str:
    """What a person reads on the terminal of a run that retries a chain."""
    (tmp_path / "tools.py").write_text(
        "import rerail\n@rerail.tool\ndef a():\n    raise ValueError('no')\n@rerail.tool\ndef b():\n    pass\n"
    )
    plan = {"steps": [{"id": "a", "tool": "a"}, {"id": "b", "tool": "b", "needs": ["a"]}]}
    (tmp_path / "plan.json").write_text(json.dumps(plan))
    value = str(given["log"]["verbose"]).lower()
    done = subprocess.run(
        [sys.executable, "-m", "rerail.cli", "run", "plan.json", "--tools", "tools.py", "--set", f"log.verbose={value}",
         "--set", "store.url=memory://"],
        cwd=tmp_path, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.returncode == 1, done.stderr
    # Without ids and times, and without the room that they take.
    return re.sub(r"[0-9a-f]{10}|[0-9.]+\s*(?:ms|µs|s|min)?\b|\s+", "*", done.stdout + done.stderr)


def working(given: Mapping[str, Any]) -> int:
    """How many processes do what failed: each of four runs takes a while when it is retried."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        (place / "tools.py").write_text(
            "import os, pathlib, time, rerail\n@rerail.tool\ndef a():\n"
            "    if not pathlib.Path(__file__).with_name('fix').exists():\n        raise ValueError('no')\n"
            "    time.sleep(1.5)\n    return os.getpid()\n"
        )
        (place / "plan.json").write_text(json.dumps(ONE))
        (place / "rerail.toml").write_text("[retry]\nmax_retry_rounds = 0\n[reflection]\nmax_step_retries = 0\n")

        def typed(*words: str) -> Any:
            done = subprocess.run(
                [sys.executable, "-m", "rerail.cli", *words, "--json"], cwd=place, capture_output=True, timeout=60
            )
            return json.loads(done.stdout)

        for _ in range(4):
            typed("run", "plan.json", "--tools", "tools.py")
        (place / "fix").touch()
        rows = typed("retry", "--all-failed", "--set", f"worker.jobs={given['worker']['jobs']}")
        return len({typed("show", row["run_id"])["steps"]["a"]["output"] for row in rows})


PROMPTS = str(Path(__file__).with_name("_prompts_for_settings"))
MODULE = str(Path(__file__).with_name("_tools_for_settings.py"))
TIME = {"command": sys.executable, "args": ["-m", "mcp_server_time"]}
Bite = tuple[Any, Any, Callable[..., Any], Any, Any]


# key → one value, another, what to look at, and what must be seen with each.
def on_ray(given: dict[str, Any]) -> Any:
    """Where calls are made; what becomes of each value there is proved in tests/cluster."""
    return make_executor(Settings.load({"ray": {"steps": True, **given["ray"]}}))


def worker_with(given: dict[str, Any], *words: str, runs: int, seconds: float, stop: bool = False) -> dict[str, Any]:
    """What a worker came to say of so many runs that each take so long."""
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        (place / "tools.py").write_text(
            "import time\nfrom pathlib import Path\nfrom rerail import tool, Context\n@tool\n"
            "def nap(seconds: float, folder: str, ctx: Context):\n"
            "    (Path(folder) / ctx.run).touch()\n    time.sleep(seconds)\n"
            "    most = len(list(Path(folder).glob('*')))\n    (Path(folder) / ctx.run).unlink()\n    return most\n"
        )
        (place / "plan.json").write_text(
            json.dumps({"steps": [{"id": "a", "tool": "nap", "args": {"seconds": seconds, "folder": f"{name}/at"}}]})
        )
        (place / "at").mkdir()
        sets = [word for key, value in given["worker"].items() for word in ("--set", f"worker.{key}={value}")]
        base = [sys.executable, "-m", "rerail.cli"]
        rest = ["--tools", "tools.py", "--json"]
        for _ in range(runs):
            subprocess.run([*base, "start", "plan.json", "--queue", *rest], cwd=place, capture_output=True, check=True)
        worker = subprocess.Popen([*base, "worker", *words, *sets, *rest], cwd=place, stdout=subprocess.PIPE)
        if stop:
            while not list((place / "at").iterdir()):
                time.sleep(0.01)
            worker.terminate()
        told: dict[str, Any] = json.loads(worker.communicate(timeout=60)[0])
        shown = [
            json.loads(subprocess.run([*base, "show", run, "--json"], cwd=place, capture_output=True).stdout)
            for run in told["ended"]
        ]
        return {**told, "most": max((one["steps"]["a"]["output"] for one in shown), default=0)}


def most_runs_at_once(given: dict[str, Any]) -> int:
    most: int = worker_with(given, "--until-idle", runs=3, seconds=0.8)["most"]
    return most


def cut_short(given: dict[str, Any]) -> int:
    return len(worker_with(given, runs=1, seconds=2.0, stop=True)["cut_short"])


BITES: dict[str, Bite] = {
    "run.concurrency": (3, 5, most_at_once, 3, 5),
    "run.tool_concurrency": ({"t": 2}, {"t": 4}, most_at_once, 2, 4),
    "run.provider_concurrency": ({"p": 2}, {"p": 4}, lambda given: most_at_once(given, provider="p"), 2, 4),
    "run.step_timeout": (5, 50, lambda given: run(World(a=[Took(20)]), ONE, given)[0].success, False, True),
    "run.max_attempts": (2, None, spent, 2, 5),
    "run.max_tokens": (200, None, spent, 2, 5),
    "run.max_cost": (300.0, None, spent, 3, 5),
    "run.max_seconds": (150, None, spent, 2, 5),
    "run.on_doubt": ("fail", None, doubted, "failed", "waiting"),
    "retry.backoff_base": (2.0, 3.0, delays, [2, 4, 8], [3, 6, 12]),
    "retry.backoff_factor": (1.0, 3.0, delays, [1, 1, 1], [1, 3, 9]),
    "retry.backoff_cap": (1.5, 3.0, delays, [1, 1.5, 1.5], [1, 2, 3]),
    "retry.jitter": (False, True, lambda given: delays(given) == [1, 2, 4], True, False),
    "retry.max_wait": (
        50, 500, lambda given: calls(given, RateLimited("later", retry_after=100), retries=0), 1, 6,
    ),
    "retry.max_retry_rounds": (0, 2, lambda given: calls(given, retries=0), 1, 3),
    "retry.max_retries": (1, 4, times_refused, 1, 4),
    "reflection.enable_step_level_reflection": (
        True, False, lambda given: calls(given, lambda **a: ToolError("n", suggest={"n": len(a)})) > 2, True, False,
    ),
    "reflection.mode": (
        "rules", "model", lambda given: "reflect" in asked(given, RuntimeError("odd"), reflect=None), False, True,
    ),
    "reflection.max_step_retries": (1, 5, lambda given: calls({**given, "retry": {"max_retry_rounds": 0}}), 2, 6),
    "reflection.max_single_step_repairs": (
        0, 2, lambda given: repaired({**given, "retry": {"max_retry_rounds": 0}}), 0, 2,
    ),
    "reflection.max_task_replanning_attempts": (0, 2, replanned, 0, 2),
    "reflection.max_consecutive_failures": (2, 0, started_before_the_breaker, 2, 9),
    "reflection.replan": ("keep", "full", kept_by_a_replan, 1, 2),
    "reflection.memory": (False, True, remembers, ["a", "a", "a", "b"], ["a", "b"]),
    **{
        f"classify.{name}": (
            [], ["the flux"], category, "unknown_error", str(name),
        )
        for name in Category if name is not Category.UNKNOWN
    },
    "classify.unknown_error": (
        [], ["refused by the"],
        lambda given: category(given, "connection refused by the host"), "transient_error", "unknown_error",
    ),
    "log.verbose": (False, True, verbose, None, None),
    "evaluation.judge": (
        False, True, lambda given: "judge" in asked({"evaluation": {"shortcut": False, **given["evaluation"]}}),
        False, True,
    ),
    "evaluation.shortcut": (True, False, lambda given: "judge" in asked(given, {"v": 1}), False, True),
    "evaluation.history_window": ([1, 2], [5, 12], lambda given: 5 <= judged_events(given) <= 12, False, True),
    "evaluation.settle": (3, 7, settled_in, 3, 7),
    "artifacts.memory": (0, 3, fetched, 3, 0),
    "artifacts.ttl_hours": (9, 11, kept_after, False, True),
    "store.url": ("memory://", "sqlite:///somewhere.db", opened, "memory://", "sqlite:///somewhere.db"),
    "store.durability": ("full", "normal", synchronous, 2, 1),
    "store.reconnect_seconds": (4, 20, patience, 4, 20),
    "worker.jobs": (1, 2, working, 1, 2),
    "worker.runs": (1, 3, most_runs_at_once, 1, 3),
    "worker.grace": (0, 30, cut_short, 1, 0),
    "workers.silent_is_dead": (False, True, taken_from_silence, ("waiting", 1), ("completed", 2)),
    "store.workspace": (
        "/tmp/one", "/tmp/two", lambda given: str(Engine("memory://", settings=given).internals.workspace("r")),
        "/tmp/one/r", "/tmp/two/r",
    ),
    "secrets.env": (["X_*"], ["PASSPHRASE*"], blotted, False, True),
    "tools.modules": ([], [MODULE], tool_names, [], ["from_a_module"]),
    "tools.allow_hosts": (
        ["example.com"], ["127.0.0.1"], lambda given: http_code(given) == "HOST_NOT_ALLOWED", True, False,
    ),
    "tools.max_output": (
        10, 10_000, lambda given: run(World(a=["x" * 100]), ONE, given)[0].success, False, True,
    ),
    "tools.default_effect": ("once", "repeatable", lost_answer, ("waiting", 1), ("failed", 2)),
    "tools.require_effect": (
        False, True, lambda given: [fault.code for fault in rerail.Plan.load(SENDS).check(specs_under(given))],
        [], ["EFFECT_UNDECLARED"],
    ),
    "tools.shell": ({}, {"say": ["echo", "{text}"]}, tool_names, [], ["say"]),
    "tools.idempotent_for": ({}, {"a": 60}, keyed_calls, 1, 2),
    "tools.http": ({}, {"fetch": {"url": "http://localhost/{id}"}}, tool_names, [], ["fetch"]),
    "mcp.servers": ({}, {"time": TIME}, names_when_open, [], ["convert_time", "get_current_time"]),
    "notify.command": ([], [sys.executable, "-c", "0"], notified(), [], [("command", True, 1)]),
    "notify.webhook": (None, "http://127.0.0.1:1/x", notified(retries=0), [], [("webhook", False, 1)]),
    "notify.on": (
        ["failed"], ["done"], notified(command=[sys.executable, "-c", "0"]), [], [("command", True, 1)],
    ),
    "notify.timeout": (
        0.2, 20, notified(command=[sys.executable, "-c", "import time; time.sleep(1)"], retries=0),
        [("command", False, 1)], [("command", True, 1)],
    ),
    "notify.retries": (
        0, 1, notified(command=[sys.executable, "-c", "1/0"]), [("command", False, 1)], [("command", False, 2)],
    ),
    "model.timeout": (5, 50, mind_wait, 5, 50),
    "model.name": ("a", "b", sent(lambda asked: asked.model), "a", "b"),
    "model.base_url": (
        "http://127.0.0.1:1/x", "http://127.0.0.1:1/y", told(), "http://127.0.0.1:1/x", "http://127.0.0.1:1/y",
    ),
    "model.key_env": ("KEY_A", "KEY_B", told(), "KEY_A", "KEY_B"),
    "model.temperature": (0.5, None, sent(lambda asked: asked.body.get("temperature")), 0.5, None),
    "model.retries": (0, 3, lambda given: len(tried(given, status=500)), 1, 4),
    "model.fallback": ("a", None, tried, ["m", "a"], ["m"]),
    "model.output": ("tool", "text", sent(lambda asked: asked.wants), "tool", "text"),
    "model.prices": (
        {"m": [1.0, 0.0]}, {"m": [0.0, 1.0]},
        lambda given: questioned(given, "plan", Answer.of({}, usage=(2_000_000, 3_000_000)))[1].cost, 2.0, 3.0,
    ),
    "model.max_reasks": (0, 2, lambda given: len(planned(given)), 1, 3),
    "model.max_context_chars": (1000, 60_000, lambda given: len(planned(given)[0].user) > 9_000, False, True),
    "model.prompts": (None, PROMPTS, lambda given: "as the house does" in planned(given)[0].system, False, True),
    **{key: bite for role in ROLES for key, bite in role_bites(role).items()},
    "ray.steps": (True, False, lambda given: make_executor(Settings.load(given)) is not None, True, False),
    "ray.address": ("10.0.0.1:6379", "local", lambda given: on_ray(given).address, "10.0.0.1:6379", "local"),
    "ray.env": ({"env_vars": {"A": "1"}}, {}, lambda given: on_ray(given).env, {"env_vars": {"A": "1"}}, {}),
    "ray.cpus": (0.5, 2, lambda given: on_ray(given).asked({})["num_cpus"], 0.5, 2),
    "ray.gone_after": (5, 50, lambda given: on_ray(given).gone_after, 5, 50),
    "ray.max_wait": (5, 50, lambda given: on_ray(given).max_wait, 5, 50),
    **SERVER_BITES,
}  # fmt: skip


def test_every_key_has_a_test() -> None:
    """SPEC 11: a key that is added says here how it bites."""
    assert sorted(BITES) == sorted(keys())


@pytest.mark.parametrize("key", sorted(BITES))
def test_every_key_bites(key: str, tmp_path: Path) -> None:
    """SPEC 11: two values of it are told apart by what a run does."""
    table, _, name = key.partition(".")
    one, other, look, first, second = BITES[key]
    if look is verbose:
        assert verbose({table: {name: one}}, tmp_path) != verbose({table: {name: other}}, tmp_path)
        return
    assert look({table: {name: one}}) == first
    assert look({table: {name: other}}) == second


# -- Mistakes -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", keys())
def test_a_misspelled_key_names_the_nearest(key: str) -> None:
    """SPEC 11: unknown keys are errors."""
    table, _, name = key.partition(".")
    wrong = name[:-1] if len(name.rpartition(".")[2]) > 4 and f"{table}.{name[:-1]}" not in keys() else name + "x"
    with pytest.raises(SettingsError) as refused:
        Settings.load({table: {wrong: 1}})
    assert f"did you mean {name.rpartition('.')[2]!r}" in str(refused.value)
    assert refused.value.code == "SETTINGS_INVALID"


@pytest.mark.parametrize(
    ("key", "instead"), [("ray.coordinator", "rerail worker"), ("mcp.from_plans", "[mcp.servers]")]
)
def test_a_removed_key_says_what_to_do_instead(key: str, instead: str, tmp_path: Path) -> None:
    """SPEC 11: a key of an earlier version is no unknown key, wherever it stands."""
    table, _, name = key.partition(".")
    (tmp_path / "rerail.toml").write_text(f"[{table}]\n{name} = {{}}\n")
    for load, source in (
        (lambda: Settings.load({table: {name: {}}}), "caller"),
        (lambda: discover(tmp_path), "rerail.toml"),
        (lambda: discover(tmp_path / "..", {f"RERAIL_{key.replace('.', '_').upper()}": "{}"}), "RERAIL_"),
    ):
        with pytest.raises(SettingsError) as refused:
            load()
        assert f"{key} (" in refused.value.message and "is gone" in refused.value.message
        assert source in refused.value.message and instead in refused.value.hint


def test_a_misspelled_table_names_the_nearest() -> None:
    """SPEC 11: and one that is like nothing lists them all."""
    with pytest.raises(SettingsError, match="'reflection'"):
        Settings.load({"reflecton": {}})
    with pytest.raises(SettingsError, match="evaluation"):
        Settings.load({"zzzzzz": {}})
    with pytest.raises(SettingsError):
        Settings.load({"run": 5})


@pytest.mark.parametrize(
    ("table", "key", "value"),
    [
        ("run", "concurrency", -1), ("run", "concurrency", "many"), ("run", "concurrency", 1.5),
        ("run", "concurrency", None), ("run", "step_timeout", 0), ("run", "step_timeout", float("nan")),
        ("run", "tool_concurrency", {"a": "x"}),
        ("run", "tool_concurrency", {"a": -1}), ("run", "provider_concurrency", {"a": -1}), ("run", "max_attempts", -1),
        ("run", "max_cost", -0.5), ("retry", "backoff_factor", 0.5), ("retry", "backoff_base", float("nan")),
        ("retry", "jitter", "perhaps"), ("retry", "max_retries", -1), ("reflection", "mode", "rule"),
        ("reflection", "replan", "some"), ("reflection", "max_step_retries", -1), ("classify", "tool_error", "text"),
        ("evaluation", "history_window", [5]), ("evaluation", "history_window", [12, 5]),
        ("artifacts", "ttl_hours", -1), ("artifacts", "memory", -1), ("store", "durability", "ful"),
        ("store", "reconnect_seconds", -1), ("tools", "max_output", 0), ("tools", "modules", "x.py"),
        ("tools", "default_effect", "onse"), ("tools", "require_effect", "perhaps"),
        ("model", "timeout", 0), ("model", "retries", -1), ("model", "temperature", -0.1), ("model", "output", "jsn"),
        ("model", "prices", {"m": [1]}), ("model", "prices", {"m": [1, -1]}), ("model", "prices", {"m": 1}),
        ("model", "base_url", "localhost:11434"), ("model", "key_env", "sk-123-456"), ("model", "max_reasks", -1),
        ("model", "max_context_chars", 10), ("model", "plan", "openai:x"), ("model", "plan.timeout", 0),
        ("model", "judge.base_url", "ftp://x"), ("model", "judge.key_env", "a b"), ("model", "plan.retries", 1),
    ],
)  # fmt: skip
def test_a_value_that_makes_no_sense_is_refused(table: str, key: str, value: Any) -> None:
    """SPEC 11: with its name and where it came from."""
    with pytest.raises(SettingsError) as refused:
        Settings.load({table: {key: value}})
    assert f"{table}.{key}" in str(refused.value)


def test_a_wrong_choice_names_the_nearest() -> None:
    """SPEC 11: and lists the others."""
    with pytest.raises(SettingsError) as refused:
        Settings.load({"store": {"durability": "ful"}})
    assert "did you mean 'full'" in str(refused.value)
    assert "normal" in str(refused.value)


def test_the_same_mistakes_in_python() -> None:
    """SPEC 12: Settings(retry={...}) is checked as well."""
    assert Settings(retry={"max_retries": 7}).retry.max_retries == 7  # type: ignore[arg-type]
    with pytest.raises(SettingsError, match="max_retries"):
        Settings(retry={"max_retrys": 7})  # type: ignore[arg-type]
    with pytest.raises(SettingsError):
        Engine("memory://", [], {"rnu": {}})


def test_a_tool_declared_wrongly_is_named() -> None:
    """SPEC 11, M2: with the nearest key."""
    with pytest.raises(SettingsError) as refused:
        Engine("memory://", [], {"tools": {"shell": {"say": {"argv": ["echo"], "timout": 5}}}})
    assert "say" in str(refused.value)
    assert "timeout" in str(refused.value)


def test_two_tools_of_one_name_are_refused() -> None:
    """SPEC 11: which one would be called?"""

    async def say() -> None: ...

    with pytest.raises(SettingsError, match="say"):
        Engine("memory://", [say], {"tools": {"shell": {"say": ["echo"]}}})


# -- Where values come from ---------------------------------------------------------------------------------------


def discover(
    folder: Path, environ: Mapping[str, str] | None = None, **overrides: Any
) -> tuple[Settings, dict[str, str]]:
    return Settings.discover(folder, environ or {}, overrides or None)


def test_rerail_toml_is_found_upwards(tmp_path: Path) -> None:
    """SPEC 11: the nearest one counts, alone."""
    deep = tmp_path / "a" / "b" / "c"
    deep.mkdir(parents=True)
    (tmp_path / "rerail.toml").write_text("[run]\nconcurrency = 2\n[retry]\nmax_retries = 9\n")
    assert discover(deep)[0].run.concurrency == 2
    (tmp_path / "a" / "rerail.toml").write_text("[run]\nconcurrency = 3\n")
    settings, sources = discover(deep)
    assert (settings.run.concurrency, settings.retry.max_retries) == (3, 3)
    assert sources["run.concurrency"] == str(tmp_path / "a" / "rerail.toml")


def test_no_file_at_all(tmp_path: Path) -> None:
    """SPEC 11: the defaults hold."""
    settings, sources = discover(tmp_path)
    assert settings == Settings()
    assert sources == {}


def test_file_environment_command_line_in_rising_order(tmp_path: Path) -> None:
    """SPEC 11: each value knows its source; tables are merged key by key."""
    (tmp_path / "rerail.toml").write_text("[retry]\nmax_retries = 1\nmax_wait = 1.0\nbackoff_cap = 1.0\n")
    environ = {"RERAIL_RETRY_MAX_RETRIES": "2", "RERAIL_RETRY_MAX_WAIT": "2"}
    settings, sources = discover(tmp_path, environ, retry={"max_retries": 3})
    assert (settings.retry.max_retries, settings.retry.max_wait, settings.retry.backoff_cap) == (3, 2.0, 1.0)
    assert sources["retry.max_retries"] == "command line"
    assert sources["retry.max_wait"] == "environment RERAIL_RETRY_MAX_WAIT"
    assert sources["retry.backoff_cap"].endswith("rerail.toml")
    rows = {row["key"]: (row["value"], row["source"]) for row in describe(settings, sources)}
    assert rows["retry.max_retries"] == (3, "command line")
    assert rows["retry.jitter"] == (True, "default")
    assert set(rows) == set(keys())


@pytest.mark.parametrize(
    ("name", "text", "key", "value"),
    [
        ("RERAIL_RUN_CONCURRENCY", "4", "run.concurrency", 4),
        ("RERAIL_RUN_STEP_TIMEOUT", "2.5", "run.step_timeout", 2.5),
        ("RERAIL_RUN_MAX_ATTEMPTS", "none", "run.max_attempts", None),
        ("RERAIL_RETRY_JITTER", "false", "retry.jitter", False),
        ("RERAIL_RUN_TOOL_CONCURRENCY", '{"a": 2}', "run.tool_concurrency", {"a": 2}),
        ("RERAIL_CLASSIFY_TRANSIENT_ERROR", '["x", "y"]', "classify.transient_error", ["x", "y"]),
        ("RERAIL_EVALUATION_HISTORY_WINDOW", "[1, 2]", "evaluation.history_window", (1, 2)),
        ("RERAIL_STORE_URL", "sqlite:///x.db", "store.url", "sqlite:///x.db"),
        ("RERAIL_REFLECTION_ENABLE_STEP_LEVEL_REFLECTION", "false", "reflection.enable_step_level_reflection", False),
        ("RERAIL_REFLECTION_MODE", "rules", "reflection.mode", "rules"),
        ("RERAIL_MODEL_NAME", "openai:gpt-5", "model.name", "openai:gpt-5"),
        ("RERAIL_MODEL_MAX_CONTEXT_CHARS", "2000", "model.max_context_chars", 2000),
        ("RERAIL_MODEL_PLAN_NAME", "openai:gpt-5", "model.plan.name", "openai:gpt-5"),
        ("RERAIL_MODEL_JUDGE_KEY_ENV", "MY_KEY", "model.judge.key_env", "MY_KEY"),
    ],
)
def test_the_environment(tmp_path: Path, name: str, text: str, key: str, value: Any) -> None:
    """SPEC 11: RERAIL_<TABLE>_<KEY>, read as JSON where it is JSON."""
    settings, sources = discover(tmp_path, {name: text})
    assert attrgetter(key)(settings) == value
    assert sources == {key: f"environment {name}"}


def test_tables_inside_tables_are_merged_key_by_key(tmp_path: Path) -> None:
    """SPEC 11: a file, a variable and the command line may each set one key of a role; `--set model.plan.name=x`."""
    (tmp_path / "rerail.toml").write_text("[model]\nname = 'a:b'\n[model.plan]\nname = 'c:d'\ntimeout = 1\n")
    overrides = overrides_from(["model.plan.temperature=0.5", "model.judge.name=e:f"])
    settings, sources = Settings.discover(tmp_path, {"RERAIL_MODEL_PLAN": '{"timeout": 2}'}, overrides)
    plan = settings.model.plan
    assert (settings.model.name, plan.name, plan.timeout, plan.temperature) == ("a:b", "c:d", 2.0, 0.5)
    assert settings.model.judge.name == "e:f"
    assert sources["model.plan.timeout"] == "environment RERAIL_MODEL_PLAN"
    assert sources["model.plan.temperature"] == "command line"
    assert sources["model.plan.name"].endswith("rerail.toml")
    rows = {row["key"]: row["source"] for row in describe(settings, sources)}
    assert rows["model.plan.timeout"] == "environment RERAIL_MODEL_PLAN"
    assert rows["model.repair.name"] == "default"


def test_a_key_written_into_the_settings_is_not_repeated() -> None:
    """SPEC 11, M4: people put the key where the name of its variable belongs."""
    with pytest.raises(SettingsError) as refused:
        Settings.load({"model": {"key_env": "sk-abc-123"}})
    assert "abc" not in str(refused.value)
    assert "not the key" in str(refused.value)


def test_every_key_can_be_set_by_the_environment(tmp_path: Path) -> None:
    """SPEC 11: also those whose names hold several words."""
    for key, value in defaults().items():
        name = "RERAIL_" + key.replace(".", "_").upper()
        settings, sources = discover(tmp_path, {name: json.dumps(msgspec.to_builtins(value))})
        assert sources == {key: f"environment {name}"}, key
        assert settings == Settings()


def test_mistakes_in_the_environment(tmp_path: Path) -> None:
    """SPEC 11: unknown keys of a table are errors, other variables are left alone."""
    with pytest.raises(SettingsError) as refused:
        discover(tmp_path, {"RERAIL_RUN_CONCURENCY": "4"})
    assert "did you mean 'concurrency'" in str(refused.value)
    assert "RERAIL_RUN_CONCURENCY" in str(refused.value)
    with pytest.raises(SettingsError, match="RERAIL_RUN_CONCURRENCY"):
        discover(tmp_path, {"RERAIL_RUN_CONCURRENCY": "many"})
    others = {"RERAIL_LANG": "zh", "RERAIL_FIELD_DATA": "/x", "PATH": "x", "RERAIL_": "x", "RERAIL_RUN": "x"}
    assert discover(tmp_path, others) == (Settings(), {})


def test_mistakes_in_the_file(tmp_path: Path) -> None:
    """SPEC 11: named with the file."""
    for text in ("[run]\nconcurency = 2\n", "[rnu]\nx = 1\n", "[run\n", "run = 5\n", "[run]\nconcurrency = 'x'\n"):
        (tmp_path / "rerail.toml").write_text(text)
        with pytest.raises(SettingsError) as refused:
            discover(tmp_path)
        assert "rerail.toml" in str(refused.value), text
    (tmp_path / "rerail.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(SettingsError):
        discover(tmp_path)


def test_values_of_the_command_line() -> None:
    """SPEC 12: --set table.key=value."""
    assert overrides_from(["run.concurrency=3", "retry.jitter=false", "store.url=memory://", "run.max_cost=none"]) == {
        "run": {"concurrency": 3, "max_cost": None}, "retry": {"jitter": False}, "store": {"url": "memory://"},
    }  # fmt: skip
    for bad in ("run.concurrency", "concurrency=3", "=3", "run="):
        with pytest.raises(SettingsError):
            Settings.load(overrides_from([bad]))


def test_settings_travel_with_the_run() -> None:
    """SPEC 12, H4: what was given to a run in code stays with it, unless it is given anew; that is recorded."""
    store, world = MemoryStore(), World(a=[BROKE])

    async def first() -> Any:
        settings = {"reflection": {"max_step_retries": 0}, "retry": {"max_retry_rounds": 0}}
        async with world.engine(ONE, store=store, settings=settings) as engine:
            await engine.wait(await engine.start(ONE, run_id="r"))
            return (await engine.events("r"))[0].policy

    async def again(**given: Any) -> list[Any]:
        async with world.engine(ONE, store=store, settings={"retry": {"max_retry_rounds": 0}, **given}) as engine:
            await engine.retry("r", force=True)
            return [event for event in await engine.events("r") if event.type == "retry_begin"]

    assert virtual_run(first).max_step_retries == 0
    [begin] = virtual_run(again)
    assert begin.policy is None and world.calls_of("a") == 2
    *_, begin = virtual_run(lambda: again(reflection={"max_step_retries": 3}))
    assert begin.policy.max_step_retries == 3
    assert world.calls_of("a") == 4  # the same failure twice is not tried a third time
    *_, begin = virtual_run(again)
    assert begin.policy is None and world.calls_of("a") == 6


def settings_from(path: Path, text: str, **given: Any) -> Settings:
    """What a file says today, and what is given beside it."""
    (path / "rerail.toml").write_text(text)
    return Settings.discover(path, {"RERAIL_RUN_CONCURRENCY": "2"}, given)[0]


def test_values_from_files_follow_the_file_of_the_day(tmp_path: Path) -> None:
    """SPEC 12: what was given on the command line stays; file and environment are those of the process that goes on."""
    first = settings_from(tmp_path, "[run]\nmax_attempts = 9\n[retry]\nmax_retries = 1\n", run={"max_attempts": 3})
    today = settings_from(tmp_path, "[run]\nmax_attempts = 8\n[retry]\nmax_retries = 7\n")
    assert first.policy().given == ("max_attempts",) and today.policy().given == ()
    policy = merged(today.policy(), first.policy())
    assert (policy.max_attempts, policy.max_retries, policy.concurrency) == (3, 7, 2)
    anew = settings_from(tmp_path, "", run={"max_attempts": None})
    policy = merged(anew.policy(), policy)
    assert (policy.max_attempts, policy.given) == (None, ("max_attempts",))
    assert merged(today.policy(), policy).max_attempts is None


def test_limits_hold_across_a_crash_and_a_resume() -> None:
    """SPEC 12, H4: three calls in all, whoever makes them."""
    store, world = MemoryStore(), World({name: [Took(10, 1)] for name in "abcdef"})
    what = {"steps": [{"id": n, "tool": n, "needs": list("abcdef"[i - 1 : i])} for i, n in enumerate("abcdef")]}

    async def killed() -> None:
        async with world.engine(what, store=store, settings={"run": {"max_attempts": 3}}) as engine:
            await engine.start(what, run_id="r")
            await asyncio.sleep(15)

    async def resumed() -> Any:
        async with world.engine(what, store=store) as engine:
            return await engine.resume("r")

    virtual_run(killed)
    result = virtual_run(resumed)
    assert (result.stopped, len(world.calls)) == ("BUDGET_EXCEEDED", 3)


def test_a_spent_time_stays_spent() -> None:
    """SPEC 12, H4: a retry is no way around `run.max_seconds`."""
    world, store = World(a=[Took(20, BROKE)]).option("a", effect="once"), MemoryStore()
    settings = {"run": {"max_seconds": 10}, "reflection": {"max_step_retries": 0}}

    async def main() -> Any:
        async with world.engine(ONE, store=store, settings=settings) as engine:
            await engine.wait(await engine.start(ONE, run_id="r"))
        async with world.engine(ONE, store=store) as engine:
            with pytest.raises(Refused, match="max_seconds: 20 of 10 used") as caught:
                await engine.retry("r")
            return caught.value.code

    assert virtual_run(main) == "BUDGET_EXCEEDED" and world.calls_of("a") == 1


def test_what_is_assumed_of_a_tool_stays_with_the_run() -> None:
    """SPEC 12, E3: a run that was started with `default_effect = once` repeats nothing after a resume either."""
    store, calls = MemoryStore(), list[int]()

    def charge() -> None:
        calls.append(1)
        raise RuntimeError("after the effect")

    def fetch() -> int:
        return 1

    plan = {"steps": [{"id": "a", "tool": "fetch", "confirm": True}, {"id": "b", "tool": "charge", "needs": ["a"]}]}

    async def main() -> Any:
        given = {"tools": {"default_effect": "once"}}
        async with Engine(store, [charge, fetch], given) as engine:
            await engine.wait(await engine.start(plan, run_id="r"))
        async with Engine(store, [charge, fetch]) as engine:
            await engine.confirm("r")
            return await engine.wait("r")

    result = asyncio.run(main())
    assert (result.steps["b"].status, calls) == ("in_doubt", [1])


def test_what_a_plan_may_use_stays_with_the_run() -> None:
    """SPEC 12, E3: nothing is added that the run's own settings would refuse."""
    store = MemoryStore()

    @rerail.tool(effect="read")
    def look() -> int:
        return 1

    def charge() -> int:
        return 1

    async def main() -> list[str]:
        plan = {"steps": [{"id": "a", "tool": "look", "confirm": True}]}
        async with Engine(store, [look, charge], {"tools": {"require_effect": True}}) as engine:
            await engine.wait(await engine.start(plan, run_id="r"))
        async with Engine(store, [look, charge]) as engine:
            with pytest.raises(PlanError) as refused:
                await engine.add("r", [{"id": "b", "tool": "charge"}])
            return [fault.code for fault in refused.value.faults]

    assert asyncio.run(main()) == ["EFFECT_UNDECLARED"]


def test_verbose_logs_the_chain_and_each_skip(caplog: pytest.LogCaptureFixture) -> None:
    """SPEC 11, `log.verbose`: a program that embeds the engine finds the same in its log."""
    what = {"steps": [{"id": "a", "tool": "a"}, {"id": "b", "tool": "b", "needs": ["a"]}]}
    caplog.set_level("INFO", "rerail")
    run(World(a=[GAP]), what, {"log": {"verbose": False}})
    assert not caplog.records
    run(World(a=[GAP]), what, {"log": {"verbose": True}})
    logged = [record.getMessage() for record in caplog.records]
    assert "run r, retry round 1: chain a → b; roots: a: a gap" in logged
    assert any(line.startswith("run r: step b skipped") and line.endswith("(needs: a)") for line in logged)


def test_secrets_in_settings_are_not_shown() -> None:
    """I4: what `config` and the server show has no header, key or password, wherever it stands."""
    settings = Settings.load(
        {
            "store": {"url": "postgresql://u:STOREPASS@db/x?sslpassword=QUERYPASS"},
            "model": {"base_url": "https://u:MODELPASS@host/v1"},
            "tools": {
                "http": {
                    "rates": {
                        "url": "https://h/{c}?api_key=KEYPASS&x=1",
                        "headers": {"X-Any": "HEADERPASS"},
                    }
                }
            },
        },
    )
    shown = str([row for row in describe(settings, {}) if row["key"] != "secrets.env"])
    assert "PASS" not in shown
    for kept in ("postgresql://…@db/x", "https://…@host/v1", "X-Any", "https://h/{c}?api_key=…"):
        assert kept in shown


def test_settings_in_code_may_be_dotted() -> None:
    """Section 11: as on the command line and in `replay`; what is wrong is told as for nested ones."""
    dotted = Settings.load({"run.concurrency": 1, "model.plan.name": "x"})
    assert dotted == Settings.load({"run": {"concurrency": 1}, "model": {"plan": {"name": "x"}}})
    with pytest.raises(SettingsError, match=r"unknown setting run\.concurency"):
        Settings.load({"run.concurency": 1})


def test_the_words_that_a_setting_knows_are_named() -> None:
    """Section 11: also inside a list."""
    for table, key, words in (("notify", "on", "done, failed, waiting"), ("server", "allow", "shell, http")):
        with pytest.raises(SettingsError, match=f"expected one of {words}"):
            Settings.load({table: {key: ["x"]}})
