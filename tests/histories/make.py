"""Writes histories of every kind, as the store holds them, with whatever version of Rerail can be imported.

    python -m tests.histories.make FOLDER [KIND …]

Each kind becomes a file of JSON lines: a line for each event, with its bytes as they were stored, and before them one
that says what this version makes of it all. The files of a version are made once, and never again: they stand for what
users have. A kind that is new, for an event type that is new, is added to the folder of the version that brings it.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import sys
import tempfile
from collections.abc import Awaitable, Callable
from hashlib import sha256
from pathlib import Path
from typing import Any, get_args

import msgspec

import rerail
from rerail.adapters.stores.memory import MemoryStore
from rerail.errors import Refused
from rerail.kernel import events

QUICK: dict[str, Any] = {"retry": {"backoff_base": 0.0, "jitter": False}}
PLAIN: dict[str, Any] = {"retry": {"backoff_base": 0.0, "max_retry_rounds": 0}, "reflection": {"max_step_retries": 0}}
LARGE = "x" * 20_000
DOWN = rerail.ToolError("the service is down", category="tool_error")


class Script:
    """Tools that answer as it is written, by step, the last answer again and again; and who was called."""

    def __init__(self, **answers: list[Any]) -> None:
        self.answers, self.calls = answers, list[str]()
        self._begun: dict[str, asyncio.Event] = {}

    async def begun(self, step: str) -> None:
        """Wait until a step is called."""
        await self._begun.setdefault(step, asyncio.Event()).wait()

    def _answer(self, step: str) -> Any:
        self.calls.append(step)
        self._begun.setdefault(step, asyncio.Event()).set()
        given = self.answers.get(step, [step])
        answer = given.pop(0) if len(given) > 1 else given[0]
        if isinstance(answer, BaseException):
            raise answer
        return answer

    def tools(self) -> list[Any]:
        """One of each kind."""

        async def act(ctx: rerail.Context, value: Any = None) -> Any:
            ctx.progress(0.5, "half of it")
            answer = self._answer(ctx.step)
            if isinstance(answer, asyncio.Event):
                await answer.wait()
                return ctx.step
            return answer

        async def other(ctx: rerail.Context, value: Any = None) -> Any:
            return f"{self._answer(ctx.step)}, otherwise"

        async def send(ctx: rerail.Context, to: str = "Ada") -> Any:
            return self._answer(ctx.step)

        async def pay(ctx: rerail.Context, amount: int = 1) -> Any:
            return self._answer(ctx.step)

        async def make(ctx: rerail.Context) -> Any:
            answer = self._answer(ctx.step)
            ctx.write_json(f"{ctx.step}.json", {"by": ctx.step})
            return answer

        async def paid(ctx: rerail.Context) -> bool:
            return True

        once = [rerail.tool(send, effect="once"), rerail.tool(pay, effect="once", verify=paid)]
        return [rerail.tool(act), rerail.tool(other), *once, rerail.tool(make)]


class Told:
    """Somebody who is told when a run ends."""

    on = frozenset({"done", "failed", "waiting"})
    patience = 1.0

    async def send(self, notice: Any) -> Any:
        from rerail.ports import Delivery

        return [Delivery("webhook", "https://example.org/hook", True)]


class Making:
    """One history in the making: a store, a folder, and the runs that were begun."""

    def __init__(self, folder: Path) -> None:
        self.store, self.folder = MemoryStore(), folder

    def engine(self, script: Script, settings: Any = None, **options: Any) -> rerail.Engine:
        """An engine on this store."""
        return rerail.Engine(
            self.store, script.tools(), settings or QUICK, by="ada", workspace=self.folder / "work", **options
        )


def step(name: str, tool: str = "act", **rest: Any) -> dict[str, Any]:
    """A step of a plan."""
    return {"id": name, "tool": tool, **rest}


def chain(*names: str) -> list[dict[str, Any]]:
    """Steps that need each other in a row."""
    return [step(name, **({"args": {"value": f"${{{names[at - 1]}}}"}} if at else {})) for at, name in enumerate(names)]


# -- The kinds ----------------------------------------------------------------------------------------------------


async def success(making: Making) -> None:
    """All is well, and somebody is told."""
    async with making.engine(Script(a=[{"rows": [1, 2]}]), notifier=Told()) as engine:
        await engine.wait(await engine.start({"objective": "All is well", "steps": chain("a", "b", "c")}, run_id="run"))


async def plain(making: Making) -> None:
    """The same for versions that tell nobody."""
    async with making.engine(Script(a=[{"rows": [1, 2]}])) as engine:
        await engine.wait(await engine.start({"objective": "All is well", "steps": chain("a", "b", "c")}, run_id="run"))


async def failed(making: Making) -> None:
    """A step fails, in an automatic round too; what depends on it is skipped."""
    async with making.engine(Script(b=[DOWN])) as engine:
        steps = [*chain("a", "b", "c"), step("d", needs=["a"])]
        await engine.wait(await engine.start({"steps": steps}, run_id="run"))


async def retried(making: Making) -> None:
    """A person retries it, and it works; then a step is done again by force, to the same end and to another."""
    script = Script(a=["one", "one", "two"], b=[DOWN, DOWN, DOWN, DOWN, DOWN, DOWN, DOWN, DOWN, "mended"])
    async with making.engine(script) as engine:
        await engine.wait(await engine.start({"steps": chain("a", "b", "c")}, run_id="run"))
        script.answers["b"] = ["mended"]
        await engine.retry("run")
        await engine.retry("run", steps=["a"], force=True)
        await engine.retry("run", steps=["a"], force=True)


async def healed(making: Making) -> None:
    """Waits, retries, other arguments, another tool, a fallback, and an optional step that is left out."""
    wrong = rerail.ToolError("no such value", suggest={"value": 2})
    script = Script(
        a=[rerail.RateLimited("not now", retry_after=0.01), ConnectionError("connection refused"), "ok"],
        b=[wrong, "ok"], c=[DOWN, "ok"], d=[DOWN], e=[DOWN],
    )  # fmt: skip
    steps = [
        step("a"), step("b", args={"value": 1}), step("c", alternatives=["other"], retries=1),
        step("d", retries=0, fallback={"value": "template"}), step("e", retries=0, critical=False),
        step("f", args={"value": "${d} and ${e}"}),
    ]  # fmt: skip
    async with making.engine(script, {**QUICK, "reflection": {"max_consecutive_failures": 0}}) as engine:
        await engine.wait(await engine.start({"steps": steps}, run_id="run"))


async def replanned(making: Making) -> None:
    """A mind has nothing to say, knows no repair, offers a plan that is refused, and one that is not."""
    from rerail.testing.scripted import ScriptedMind

    missing = rerail.ToolError("missing prerequisite data", category="decomposition_error")
    mind = ScriptedMind(
        reflect=None,
        repair=None,
        replan=[
            {"steps": [step("a"), step("b", "nobody")], "reason": "somebody else"},
            {"steps": [step("a"), step("new"), step("b", "other", needs=["new"])], "reason": "a step was missing"},
        ],
    )
    script = Script(b=[missing, "ok"])
    settings = {**QUICK, "reflection": {"mode": "model", "max_task_replanning_attempts": 2}}
    async with making.engine(script, settings, model=mind) as engine:
        await engine.wait(await engine.start({"steps": [step("a"), step("b", needs=["a"])]}, run_id="run"))


async def repaired(making: Making) -> None:
    """A mind rewrites a step, and that one works."""
    from rerail.testing.scripted import ScriptedMind

    missing = rerail.ToolError("missing prerequisite data", category="decomposition_error")
    mind = ScriptedMind(repair={"args": {"value": "given"}, "reason": "it wants a value"})
    async with making.engine(Script(b=[missing, "ok"]), model=mind) as engine:
        await engine.wait(await engine.start({"steps": [step("a"), step("b", needs=["a"])]}, run_id="run"))


async def consulted(making: Making) -> None:
    """A model is asked what to make of a failure, and what it cost is written down."""
    from rerail.testing import ScriptedModel

    said = {
        "category": "parameter_error", "root_cause": "a guess", "recoverable": True, "suggestion": {"value": 2},
        "confidence": 90, "alternatives": [],
    }  # fmt: skip
    model = ScriptedModel(reflect=["no JSON at all", said], model="small", usage=(100, 20), cost=0.001)
    script = Script(a=[ValueError("value must be another"), "ok"])
    settings = {**QUICK, "evaluation": {"judge": False}}
    async with making.engine(script, settings, model=model) as engine:
        await engine.wait(await engine.start({"steps": [step("a", args={"value": 1})]}, run_id="run"))


async def gate(making: Making) -> None:
    """A step waits for a person to agree."""
    async with making.engine(Script()) as engine:
        steps = [step("a"), step("b", needs=["a"], confirm="Is this right?")]
        await engine.wait(await engine.start({"steps": steps}, run_id="run"))


async def agreed(making: Making) -> None:
    """People agree ahead, to a call, to another one that a hint made of it, and to one that they edited."""
    wrong = rerail.ToolError("no such value", suggest={"value": 2})
    script = Script(a=[{"n": 1}], b=[wrong, "ok"])
    steps = [step("a"), step("b", args={"value": "${a.n}"}, confirm="Is this right?"), step("c", needs=["b"])]
    steps[2] |= {"confirm": True, "args": {"value": "${b}"}}
    async with making.engine(script) as engine:
        await engine.start({"steps": [*steps, step("d", needs=["c"], confirm=True)]}, run_id="run")
        await engine.confirm("run", "d", ahead=True)
        for edits in ({}, {}, {"args": {"value": "by hand: ${b}"}}):
            await engine.wait("run")
            await engine.confirm("run", **edits)
        await engine.wait("run")


async def doubt(making: Making) -> None:
    """Nobody knows whether a step's effect happened."""
    async with making.engine(Script(b=[ConnectionResetError("reset")])) as engine:
        steps = [step("a"), step("b", "send", needs=["a"]), step("c", needs=["b"])]
        await engine.wait(await engine.start({"steps": steps}, run_id="run"))


async def refused(making: Making) -> None:
    """A step whose effect must not happen twice says itself that it did not happen."""
    async with making.engine(Script(b=[DOWN]), PLAIN) as engine:
        steps = [step("a"), step("b", "send", needs=["a"])]
        await engine.wait(await engine.start({"steps": steps}, run_id="run"))


async def verified(making: Making) -> None:
    """An answer is lost, somebody looks, and the effect is there."""
    async with making.engine(Script(b=[ConnectionResetError("reset")])) as engine:
        steps = [step("a"), step("b", "pay", needs=["a"])]
        await engine.wait(await engine.start({"steps": steps}, run_id="run"))


async def interrupted(making: Making) -> None:
    """The process died while a step was being called, after it had been interrupted before."""
    for again in (False, True):
        script = Script(b=[asyncio.Event()])
        engine = making.engine(script)
        await engine.open()
        try:
            if again:
                await engine.begin_resume("run")
            else:
                await engine.start({"steps": chain("a", "b", "c")}, run_id="run")
            await script.begun("b")
        finally:
            await engine.close()


async def acted(making: Making) -> None:
    """People pause, skip, resolve by hand, add a step, and cancel."""
    script = Script(a=[asyncio.Event()])
    async with making.engine(script) as engine:
        await engine.start({"steps": [step("a"), step("b", needs=["a"]), step("c", needs=["a"])]}, run_id="run")
        await script.begun("a")
        await engine.pause("run", by="bob")
        await engine.skip("run", "b", by="bob", reason="nobody needs it")
        await engine.resolve("run", "c", succeeded={"by": "hand"})
        await engine.add("run", [step("d", needs=["a"])])
        await engine.cancel("run", reason="enough")
        await engine.wait("run")


async def stopped(making: Making) -> None:
    """The breaker opens."""
    async with making.engine(Script(a=[DOWN], b=[DOWN], c=[DOWN]), {**PLAIN, "run": {"concurrency": 1}}) as engine:
        steps = [step(name) for name in "abcd"]
        await engine.wait(await engine.start({"steps": steps}, run_id="run"))


async def cleanup(making: Making) -> None:
    """A step of `finally` runs after a failure, and again after a person's retry."""
    steps = [step("a"), step("b", needs=["a"]), step("free", needs=["a"])]
    async with making.engine(Script(b=[DOWN, 1]), PLAIN) as engine:
        await engine.wait(await engine.start({"steps": steps, "finally": ["free"]}, run_id="run"))
        await engine.retry("run")


async def lost(making: Making) -> None:
    """A large output is gone when a step wants it that a person had to agree to, and is made again."""
    first, then = chain("a", "b")
    async with making.engine(Script(a=[LARGE])) as engine:
        await engine.wait(await engine.start({"steps": [first, {**then, "confirm": True}]}, run_id="run"))
    making.store._blobs.clear()
    async with making.engine(Script(a=[LARGE])) as engine:
        await engine.confirm("run")
        await engine.wait("run")


async def audited(making: Making) -> None:
    """A gate that a stranger tried, then one of its approvers; the run was started over MCP."""
    token = "rrl_history"
    tokens = {"ops": {"digest": f"sha256:{sha256(token.encode()).hexdigest()}", "roles": ["approve"]}}
    settings = {**PLAIN, "server": {"tokens": tokens}}
    gated = step("a", confirm={"text": "Is this right?", "by": ["approve"]})
    async with making.engine(Script(a=[{"n": 1}]), settings, via="mcp") as engine:
        await engine.wait(await engine.start({"steps": [gated]}, run_id="run"))
        with contextlib.suppress(Refused):
            await engine.confirm("run", by="stranger")
    os.environ["RERAIL_TOKEN"] = token
    async with making.engine(Script(a=[{"n": 1}]), settings) as engine:
        await engine.confirm("run")
        await engine.wait("run")
    del os.environ["RERAIL_TOKEN"]


async def staged(making: Making) -> None:
    """Stages with files, and what follows them, which fails at its second stage."""
    below = [step("judge", "make", stage="judging", produces=[{"path": "judge.json", "keys": ["by"]}])]
    below += [step("learn", "make", stage="learning", needs=["judge"], produces=["learn.json"])]
    steps = [
        step("read", "make", stage="reading", produces=[{"path": "read.json", "keys": ["by"]}]),
        step("write", "make", stage="writing", needs=["read"], produces=["write.json"]),
    ]
    plan = {"objective": "Read and write", "steps": steps, "follow_up": {"steps": below}}
    async with making.engine(Script(learn=[DOWN]), PLAIN) as engine:
        await engine.wait(await engine.start(plan, run_id="run"))
        [child] = await engine.list(parent="run")
        await engine.wait(child.run_id)


KINDS: dict[str, Callable[[Making], Awaitable[None]]] = {
    made.__name__: made
    for made in (
        success, plain, failed, retried, healed, replanned, repaired, consulted, gate, agreed, doubt, refused, verified,
        interrupted, acted, stopped, cleanup, lost, audited, staged,
    )
}  # fmt: skip


# -- Writing them down ------------------------------------------------------------------------------------------------

STEP = ("status", "code", "attempts", "output", "tool")


def summary(result: Any) -> dict[str, Any]:
    """What is compared of a run: its verdict, and a row for each step. Not its words, which may get better."""
    rows = {name: {key: getattr(row, key) for key in STEP} for name, row in result.steps.items()}
    for row, shown in zip(rows.values(), result.steps.values(), strict=True):
        row["degraded"], row["stale"] = bool(shown.degraded), bool(shown.stale)
        if isinstance(row["output"], str) and len(row["output"]) > 1000:
            row["output"] = f"{len(row['output'])} characters"
    return {
        "status": result.status, "success": result.success, "complete": result.complete, "degraded": result.degraded,
        "failed": [row["id"] for row in result.failed_steps], "consequences": sorted(result.consequences),
        "waiting": [[item["step"], item["for"]] for item in result.waiting_on], "round": result.round,
        "retries": result.retries, "revision": result.revision, "steps": rows,
    }  # fmt: skip


def cleaned(data: bytes) -> bytes:
    """An event without the folders of the machine that it was written on: tracebacks name them."""
    return re.sub(rb'File \\"[^"\\]*/([^/"\\]+)\\"', rb'File \\"\1\\"', data)


async def written(kind: str, folder: Path) -> None:
    """Make a history, and write it to its file."""
    with tempfile.TemporaryDirectory() as name:
        making = Making(Path(name))
        await KINDS[kind](making)
        async with making.engine(Script()) as engine:
            heads = sorted(await making.store.heads(), key=lambda head: (head.created_at, head.run))
            said = {head.run: summary(await engine.show(head.run)) for head in heads}
        lines, blobs = list[bytes](), dict[str, str]()
        for head in heads:
            for row in await making.store.read(head.run, 0, 100_000):
                place = json.dumps({"run": head.run, "seq": row.seq, "at": row.at})[:-1].encode()
                lines.append(place + b', "event": ' + cleaned(row.data) + b"}")
                event = json.loads(row.data)
                if event.get("blob") and (content := await making.store.blob(event["digest"])) is not None:
                    blobs[event["digest"]] = content.decode()
        home = making.folder / "work" / "run"
        files = {path.name: path.read_text() for path in sorted(home.glob("*.json")) if path.name != "task.json"}
        parents = {head.run: getattr(head, "parent", "") for head in heads}
        first = {"runs": said, "parents": parents, "files": files, "blobs": blobs}
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{kind}.jsonl").write_bytes(b"\n".join([json.dumps(first).encode(), *lines]) + b"\n")


# -- What is left out ---------------------------------------------------------------------------------------------


def fields() -> dict[str, dict[str, Any]]:
    """Every field of every value in an event, with its default: what has that value is not written down at all."""
    found: dict[str, dict[str, Any]] = {}
    kinds: list[Any] = list(events.Event.__args__)
    for kind in kinds:  # which grows
        if kind.__name__ in found:
            continue
        found[kind.__name__] = {
            field.name: "(required)" if field.required else msgspec.to_builtins(field.default_factory())
            if field.default is msgspec.NODEFAULT else msgspec.to_builtins(field.default)
            for field in msgspec.structs.fields(kind)
        }  # fmt: skip
        kinds += [one for field in msgspec.structs.fields(kind) for one in _structs(field.type)]
    return found


def _structs(kind: Any) -> list[Any]:
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return [kind]
    return [one for part in get_args(kind) for one in _structs(part)]


if __name__ == "__main__":
    home, *names = sys.argv[1:]
    for wanted in names or [kind for kind in KINDS if kind != "plain"]:
        asyncio.run(written(wanted, Path(home)))
    if not (Path(home) / "fields.json").exists():
        (Path(home) / "fields.json").write_text(json.dumps(fields(), indent=1) + "\n")
