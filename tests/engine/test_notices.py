"""Notices: who is told of what, when, how often, and how little can go wrong because of it (T10)."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

import rerail
from rerail.adapters.stores.memory import MemoryStore
from rerail.errors import SettingsError, ToolError
from rerail.kernel import events as ev
from rerail.kernel.commands import RecordNotices
from rerail.kernel.fold import fold
from rerail.ports import Batch, Delivery, Notice, Unusable
from rerail.settings.loading import Settings, describe
from rerail.testing.scripted import Took, World
from rerail.testing.virtual_time import virtual_run

PLAIN = {"reflection": {"max_step_retries": 0}, "retry": {"max_retry_rounds": 0}}
BROKE = ToolError("it broke", category="tool_error")
ONE: dict[str, Any] = {"objective": "say it", "steps": [{"id": "a", "tool": "a"}]}
GATE: dict[str, Any] = {"objective": "ask", "steps": [{"id": "a", "tool": "a", "confirm": "really?"}]}


class Told:
    """A notifier that remembers; it may take its time."""

    patience = 3600.0

    def __init__(self, *on: str, seconds: float = 0.0, ok: bool = True) -> None:
        self.on = frozenset(on or ("done", "failed", "waiting"))
        self.seconds, self.ok = seconds, ok
        self.notices: list[Notice] = []
        self.started = 0

    async def send(self, notice: Notice) -> list[Delivery]:
        """Remember it, later."""
        self.started += 1
        await asyncio.sleep(self.seconds)
        self.notices.append(notice)
        return [Delivery("command", "notify", self.ok, 1 if self.ok else 3, "" if self.ok else "exit status 1")]

    @property
    def documents(self) -> list[Mapping[str, Any]]:
        return [notice.document for notice in self.notices]


def engine_of(world: World, plan: Any, told: Told | None, **options: Any) -> Any:
    """An engine on virtual time that tells this notifier."""
    return world.engine(plan, settings={**PLAIN, **options.pop("settings", {})}, notifier=told, **options)


def of(events: list[Any], kind: str) -> list[Any]:
    return [event for event in events if event.type == kind]


# -- What is told -------------------------------------------------------------------------------------------------


def test_an_end_is_told_once_and_written_down() -> None:
    """T10, X5: after `done`, which stays the only one; the document says what a person would ask first."""
    told, world = Told(), World(a=[{"ok": 1}])

    async def main() -> tuple[Any, list[Any], str]:
        async with engine_of(world, ONE, told) as engine:
            run = await engine.start(ONE, run_id="r")
            result = await engine.wait(run)
            await asyncio.sleep(1)
            return result, await engine.events(run), await engine.why(run)

    result, events, story = virtual_run(main)
    done = of(events, "done")[0]
    (document,) = told.documents
    assert document == {
        "id": f"r-{done.seq}", "event": "done", "run": "r", "status": "completed", "objective": "say it",
        "summary": result.summary, "parent": None, "success": True, "complete": True, "degraded": False,
        "failed_steps": [], "waiting_on": [], "seq": done.seq, "at": done.at,
    }  # fmt: skip
    assert [event.type for event in events][-2:] == ["done", "notified"]
    assert len(of(events, "done")) == 1
    said = events[-1]
    assert (said.kind, said.target, said.ok, said.attempts, said.about) == ("command", "notify", True, 1, "done")
    assert said.notice == document["id"]
    assert "told of it (done): notify, 1 attempt" in story


def test_what_is_told_when() -> None:
    """T10: done, failed (a cancel too) and waiting, each once, and again when it happens again."""
    told, world = Told(), World(a=[BROKE, {"ok": 1}])

    async def main() -> None:
        async with engine_of(world, GATE, told) as engine:
            run = await engine.start(GATE, run_id="r")
            await engine.wait(run)
            await engine.confirm(run)
            await engine.wait(run)
            await asyncio.sleep(1)
            await engine.retry(run, force=True)
            await engine.wait(run)
            other = await engine.start(GATE, run_id="s")
            await engine.wait(other)
            await engine.cancel(other)
            await engine.wait(other)
            await asyncio.sleep(1)

    virtual_run(main)
    rows = [(found["run"], found["event"], found["status"]) for found in told.documents]
    assert rows == [
        ("r", "waiting", "waiting"), ("r", "failed", "failed"), ("r", "done", "completed"),
        ("s", "waiting", "waiting"), ("s", "failed", "cancelled"),
    ]  # fmt: skip
    [gate] = told.documents[0]["waiting_on"]
    assert {name: gate[name] for name in ("step", "for", "question", "tool", "args")} == {
        "step": "a", "for": "confirm", "question": "really?", "tool": "a", "args": {},
    }  # fmt: skip
    assert told.documents[1]["failed_steps"][0]["id"] == "a"
    assert len({found["id"] for found in told.documents}) == 5


@pytest.mark.parametrize(("on", "events"), [(("failed",), ["failed"]), (("waiting",), ["waiting"]), (("done",), [])])
def test_only_what_was_asked_for_is_told(on: tuple[str, ...], events: list[str]) -> None:
    """T10: `notify.on`."""
    told, world = Told(*on), World(a=[BROKE])

    async def main() -> None:
        async with engine_of(world, GATE, told) as engine:
            run = await engine.start(GATE)
            await engine.wait(run)
            await engine.confirm(run)
            await engine.wait(run)

    virtual_run(main)
    assert [found["event"] for found in told.documents] == events


def test_a_follow_up_is_told_too_and_names_its_parent() -> None:
    """T10, T6: and it starts once, whatever was written after its parent's end."""
    told, world = Told(seconds=5), World(b=[None])
    plan = {**ONE, "follow_up": {"steps": [{"id": "b", "tool": "b"}]}}

    async def main() -> tuple[list[Any], list[Any]]:
        store = MemoryStore()
        async with engine_of(world, plan, told, store=store) as engine:
            run = await engine.start(plan, run_id="r")
            await engine.wait(run)
            await asyncio.sleep(20)
            done = of(await engine.events(run), "done")[0]
            with pytest.raises(rerail.Refused):
                await engine.retry(run)  # looks for a follow-up that is missing: there is none
            return [done], await engine.list()

    (done,), rows = virtual_run(main)
    assert sorted(row.run_id for row in rows) == ["r", f"r-f{done.seq}"]
    assert sorted((found["run"], found["parent"]) for found in told.documents) == [
        ("r", None), (f"r-f{done.seq}", "r"),
    ]  # fmt: skip


# -- How little can go wrong --------------------------------------------------------------------------------------


def test_notices_of_a_follow_up_come_after_those_of_its_parent() -> None:
    """T10: a slow first notice is not overtaken by the next one of the same task."""

    class Slowest(Told):
        async def send(self, notice: Notice) -> list[Delivery]:
            self.seconds = 0.0 if self.started else 5.0
            return await super().send(notice)

    told = Slowest()
    plan = {**ONE, "follow_up": {"objective": "after", "steps": [{"id": "b", "tool": "b"}]}}

    async def main() -> None:
        async with engine_of(World(), {"steps": [{"id": "a", "tool": "a"}, {"id": "b", "tool": "b"}]}, told) as engine:
            await engine.run(plan, run_id="r")
            await asyncio.sleep(20)

    virtual_run(main)
    assert [document["parent"] for document in told.documents] == [None, "r"]


def test_nobody_waits_for_a_notice() -> None:
    """T10: the verdict is there at once, the run free for others; only closing waits, so that it is really sent."""
    told, world = Told(seconds=500), World()

    async def main() -> tuple[float, float, list[Any]]:
        loop, store = asyncio.get_running_loop(), MemoryStore()
        async with engine_of(world, ONE, told, store=store) as engine:
            await engine.run(ONE)
            at_once = loop.time()
            run = (await engine.list())[0]
            assert run.owner is None
            assert not told.notices
        closed = loop.time()
        await store.open()
        return at_once, closed, await store.read(run.run_id)

    at_once, closed, rows = virtual_run(main)
    assert at_once < 2
    assert 500 <= closed < 502
    assert b'"notified"' in rows[-1].data


def test_a_notice_that_fails_is_written_down_and_harms_nothing() -> None:
    """T10: visible in `why`, and the run is what it was."""
    told, world = Told(ok=False), World()

    async def main() -> tuple[Any, str]:
        async with engine_of(world, ONE, told) as engine:
            result = await engine.run(ONE)
            await asyncio.sleep(1)
            return await engine.show(result.run_id), await engine.why(result.run_id)

    result, story = virtual_run(main)
    assert (result.status, result.success) == ("completed", True)
    assert "could not be told of it (done): notify, 3 attempts: exit status 1" in story


def test_a_notifier_that_breaks_harms_nothing() -> None:
    """T10: even one that keeps to nothing."""

    class Broken(Told):
        async def send(self, notice: Notice) -> list[Delivery]:
            self.started += 1
            raise RuntimeError("odd")

    told = Broken()

    async def main() -> Any:
        async with engine_of(World(), ONE, told) as engine:
            return await engine.run(ONE)

    assert virtual_run(main).success
    assert told.started == 1


def test_a_store_that_is_gone_by_then_harms_nothing() -> None:
    """T10, E4: what came of it is not written, and that is all."""

    class Full(MemoryStore):
        full = False

        async def append(self, batch: Batch) -> None:
            if self.full:
                raise Unusable("full")
            await super().append(batch)

    store, told = Full(), Told(seconds=5)

    async def main() -> Any:
        async with engine_of(World(), ONE, told, store=store) as engine:
            result = await engine.run(ONE)
            store.full = True
            return result

    assert virtual_run(main).success
    assert len(told.notices) == 1


# -- Never twice --------------------------------------------------------------------------------------------------


def test_nothing_is_sent_again_by_whoever_comes_next() -> None:
    """T10: a process that died before it could tell is not made up for, and one that told is not repeated."""
    told, world, store = Told(), World(a=[BROKE]), MemoryStore()

    async def main() -> None:
        async with engine_of(world, ONE, None, store=store) as engine:  # it dies before it could tell
            await engine.wait(await engine.start(ONE, run_id="r"))
            await engine.wait(await engine.start(GATE, run_id="s"))
        async with engine_of(world, ONE, told, store=store) as engine:
            await engine.show("r")
            await engine.wait("r")
            with pytest.raises(rerail.Refused):
                await engine.resume("r")
            with pytest.raises(rerail.Refused):
                await engine.resume("s")
            with pytest.raises(rerail.PlanError):
                await engine.repair("r", "a", tool="nowhere")
            await asyncio.sleep(5)

    virtual_run(main)
    assert told.notices == []


def test_a_notice_that_is_late_finds_whoever_has_the_run_by_then() -> None:
    """T7, T10: the same engine retries it meanwhile: its loop writes it down, in its order."""
    told, world = Told("failed", seconds=30), World(a=[BROKE, Took(100, {"ok": 1})])

    async def main() -> list[Any]:
        async with engine_of(world, ONE, told) as engine:
            run = (await engine.run(ONE)).run_id
            await engine.retry(run)
            return await engine.events(run)

    types = [event.type for event in virtual_run(main)]
    assert types.count("done") == 2
    assert types.index("done") < types.index("notified") < len(types) - 1
    assert types[types.index("notified") - 1] == "step_started"


def test_a_notice_that_is_late_makes_nobody_ask_twice() -> None:
    """T10, H8: what is written down while a new plan is being thought of is no reason to ask for another one."""
    told = Told("failed", seconds=30)
    wrong, gap = ToolError("no", category="permanent_error"), ToolError("a gap", category="decomposition_error")
    world = World(a=[wrong, gap, {"ok": 1}])
    asked: list[str] = []

    class Slow:
        name, answers = "slow", ("replan",)

        async def answer(self, question: Any) -> Any:
            asked.append(question.kind)
            await asyncio.sleep(50)
            return {"plan": {"steps": [{"id": "b", "tool": "a"}]}, "reason": "so"}

    async def main() -> tuple[Any, list[Any]]:
        async with engine_of(world, ONE, told, model=Slow()) as engine:
            run = (await engine.run(ONE)).run_id
            return await engine.retry(run, force=True), await engine.events(run)

    result, events = virtual_run(main)
    types = [event.type for event in events]
    assert types.index("notified") < types.index("replanned")
    assert (result.status, asked) == ("completed", ["replan"])


def test_what_is_written_down_of_a_notice_is_no_reason_for_another() -> None:
    """T10: also where somebody else has to write it, and takes the run up for that."""
    told, world = Told(), World(a=[BROKE])

    async def main() -> list[Any]:
        async with engine_of(world, ONE, told) as engine:
            run = (await engine.run(ONE)).run_id
            await asyncio.sleep(1)
            late = [ev.Notified("command", "x", True)]
            assert await engine._commands.hand_over(run, RecordNotices(value=late))
            await engine.wait(run)
            await asyncio.sleep(5)
            return await engine.events(run)

    events = virtual_run(main)
    assert len(told.notices) == 1
    assert [event.target for event in of(events, "notified")] == ["notify", "x"]
    assert len(of(events, "done")) == 1


def test_a_run_is_not_taken_for_driven_while_its_notice_is_written_down() -> None:
    """T10, X7: whoever moves it then waits for a moment, and is not sent away."""

    class Slow(MemoryStore):
        async def append(self, batch: Batch) -> None:
            if any(b'"notified"' in data for _, data in batch.rows):
                await asyncio.sleep(1)
            await super().append(batch)

    told, world = Told("waiting", seconds=1.0), World()

    async def main() -> tuple[Any, list[Any]]:
        async with engine_of(world, GATE, told, store=Slow()) as engine:
            run = await engine.start(GATE)
            await engine.wait(run)
            await asyncio.sleep(1.5)
            assert not of(await engine.events(run), "notified")
            result = await engine.retry(run, clean=True)
            await asyncio.sleep(5)
            return result, await engine.events(run)

    result, events = virtual_run(main)
    assert result.status == "waiting"
    assert [event.type for event in events if event.type in ("notified", "waiting", "retry_begin")] == [
        "waiting", "notified", "retry_begin", "waiting", "notified",
    ]  # fmt: skip


async def test_a_notice_reaches_a_run_that_another_process_drives(tmp_path: Path) -> None:
    """T7, T10: through the inbox, like what people want of it."""
    store, told = f"sqlite:///{tmp_path}/runs.db", Told("failed", seconds=1.5)
    go = asyncio.Event()
    calls = 0

    async def a() -> int:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise ToolError("no", category="tool_error")
        await asyncio.wait_for(go.wait(), 20)
        return 1

    first = rerail.Engine(store, [a], PLAIN, notifier=told)
    second = rerail.Engine(store, [a], PLAIN)
    async with first, second:
        run = (await first.run(ONE)).run_id
        await second.begin_retry(run)
        async with asyncio.timeout(20):
            while not of(await second.events(run), "notified"):  # noqa: ASYNC110 - through a database
                await asyncio.sleep(0.05)
        go.set()
        assert (await second.wait(run)).success
    assert len(told.notices) == 1


def test_a_waiting_run_can_be_moved_while_its_notice_is_written_down() -> None:
    """T10, X7: whatever the moment."""
    for delay in (0.0, 0.5, 1.0, 1.5):
        told, world = Told("waiting", seconds=1.0), World()

        async def main(told: Told = told, world: World = world, delay: float = delay) -> tuple[Any, list[Any]]:
            async with engine_of(world, GATE, told) as engine:
                run = await engine.start(GATE)
                await engine.wait(run)
                await asyncio.sleep(delay)
                await engine.confirm(run)
                result = await engine.wait(run)
                await asyncio.sleep(2)
                return result, await engine.events(run)

        result, events = virtual_run(main)
        assert result.success
        assert len(of(events, "notified")) == 1


def test_the_history_remembers_which_end_a_follow_up_follows() -> None:
    """T6, T10: by the number of `done`, whatever comes after it."""
    told = Told()

    async def main() -> list[Any]:
        async with engine_of(World(), ONE, told) as engine:
            run = (await engine.run(ONE)).run_id
            await asyncio.sleep(1)
            return await engine.events(run)

    events = virtual_run(main)
    state = fold("r", events)
    assert state.rested_at == of(events, "done")[0].seq == state.seq - 1
    assert state.rest is not None
    assert fold("r", events[:-1]).rested_at == state.rested_at
    assert isinstance(events[-1].event, ev.Notified)


# -- Settings -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "wrong",
    [
        {"command": "mail hunter2"}, {"command": ["x", 5]}, {"webhook": "ftp://hunter2"}, {"webhook": ["hunter2"]},
        {"webhook": "http://host:hunter2/"}, {"webhook": "http://[hunter2/"},
        {"on": ["dne"]}, {"on": "done"}, {"timeout": 0}, {"retries": -1},
    ],
    ids=str,
)  # fmt: skip
def test_mistakes_are_told_without_secrets(wrong: dict[str, Any]) -> None:
    """SPEC 11, T10: a shell's line is no command, and nothing that may be secret is repeated."""
    with pytest.raises(SettingsError) as refused:
        rerail.Engine("memory://", [], {"notify": wrong})
    assert "hunter2" not in str(refused.value)
    assert "notify" in str(refused.value)


def test_secrets_are_not_shown() -> None:
    """SPEC 11, T10: `rerail config` shows where notices go, and no more."""
    given = {"webhook": "https://me:hunter2@host:99/hunter2?hunter2", "command": ["mail", "hunter2"]}
    rows = {row["key"]: row["value"] for row in describe(Settings.load({"notify": given}), {})}
    assert rows["notify.webhook"] == "https://host:99/…"
    assert rows["notify.command"] == ["mail", "…"]
    odd = describe(Settings.load({"notify": {"webhook": "http://[hunter2/"}}), {})
    assert "hunter2" not in json.dumps(odd)


@pytest.mark.parametrize(
    ("hosts", "fine"),
    [([], True), (["127.0.0.1"], True), (["127.0.0.1:9"], True), (["127.0.0.1:8"], False), (["*.example"], False)],
)
def test_the_list_of_hosts_holds_for_webhooks(hosts: list[str], fine: bool) -> None:
    """T10: `tools.allow_hosts`, before anything runs."""
    given = {"tools": {"allow_hosts": hosts}, "notify": {"webhook": "http://x:hunter2@127.0.0.1:9/"}}
    if fine:
        rerail.Engine("memory://", [], given)
        return
    with pytest.raises(SettingsError, match=r"'127\.0\.0\.1' is not on the list") as refused:
        rerail.Engine("memory://", [], given)
    assert "hunter2" not in str(refused.value)


# -- A whole process ----------------------------------------------------------------------------------------------


def cli(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "rerail.cli", *words]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60)


def test_a_command_is_told_by_a_process_that_ends(tmp_path: Path) -> None:
    """T10: the verdict first, then the notice, and the process does not end before it; `why` and `logs` tell of it."""
    (tmp_path / "tools.py").write_text("import rerail\n\n@rerail.tool\ndef a() -> int:\n    return 1\n")
    (tmp_path / "plan.json").write_text(json.dumps(ONE))
    (tmp_path / "tell.py").write_text(
        "#!" + sys.executable + "\n"
        "import os, subprocess, sys\n"
        "words = [sys.executable, '-m', 'rerail.cli', 'ls', '--json']\n"
        "listed = subprocess.run(words, capture_output=True, text=True)\n"
        "open('told.txt', 'a').write(os.environ['RERAIL_EVENT'] + ' ' + listed.stdout)\n"
    )
    (tmp_path / "tell.py").chmod(0o755)
    (tmp_path / "rerail.toml").write_text('[notify]\ncommand = ["./tell.py"]\non = ["done"]\n')
    below = tmp_path / "below"
    below.mkdir()
    done = cli(tmp_path, "run", "plan.json", "--tools", "tools.py", "--json")
    assert done.returncode == 0, done.stderr
    run = json.loads(done.stdout)["run_id"]
    event, _, listed = (tmp_path / "told.txt").read_text().partition(" ")
    assert (event, [row["status"] for row in json.loads(listed)]) == ("done", ["completed"])
    assert "told of it (done): tell.py" in cli(tmp_path, "why", run).stdout
    assert "notified (done): command tell.py" in cli(tmp_path, "logs", run).stdout
    assert "已通知（done）" in cli(tmp_path, "why", run, "--lang", "zh").stdout
    assert cli(tmp_path, "ls").stdout.count("completed") == 1


def until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_process_that_is_killed_first_tells_nobody_and_nobody_makes_up_for_it(tmp_path: Path) -> None:
    """T10, E1: at most one process tries to tell; its attempts stop with it."""
    (tmp_path / "tools.py").write_text("import rerail\n\n@rerail.tool\ndef a() -> int:\n    return 1\n")
    (tmp_path / "plan.json").write_text(json.dumps(ONE))
    code = "import os, time; open('begun', 'a').write('x'); time.sleep(5); open('told', 'a').write('x')"
    (tmp_path / "rerail.toml").write_text(f"[notify]\ncommand = {json.dumps([sys.executable, '-c', code])}\n")
    words = [sys.executable, "-m", "rerail.cli", "run", "plan.json", "--tools", "tools.py"]
    process = subprocess.Popen(words, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    until((tmp_path / "begun").exists)
    process.kill()
    process.communicate()
    (row,) = json.loads(cli(tmp_path, "ls", "--json").stdout)
    assert row["status"] == "completed"
    assert cli(tmp_path, "retry", row["run_id"]).returncode == 2
    assert "notified" not in cli(tmp_path, "logs", row["run_id"], "--json").stdout
    assert (tmp_path / "begun").read_text() == "x"
