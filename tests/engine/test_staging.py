"""Each attempt writes its declared files on its own, and they are in place once its success is on record (T1, T7)."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

import rerail
from rerail.context import Context
from rerail.engine.files.placement import NotPlaced, put_in_place
from rerail.errors import Refused, StoreError
from rerail.kernel.events import Acted, FileMade, StepFailed
from rerail.kernel.state import State
from rerail.ports import Owner
from rerail.testing import VirtualClock, virtual_run
from rerail.views.narration import Narrator
from rerail.workspace import digest_of, plain_name

QUICK: dict[str, Any] = {"retry": {"max_retry_rounds": 0}, "reflection": {"max_step_retries": 0}}
STAGE = Path(".rerail") / "stage"


def engine_in(folder: Path, *tools: Any, settings: Any = QUICK, real: bool = False) -> rerail.Engine:
    store = f"sqlite:///{folder}/runs.db"
    if real:
        return rerail.Engine(store, tools, settings)
    return rerail.Engine(store, tools, settings, clock=VirtualClock())


@rerail.tool
async def write(ctx: rerail.Context, name: str = "a.txt") -> str:
    ctx.write_text(name, f"attempt {ctx.attempt}")
    return "written"


@rerail.tool
async def read(ctx: rerail.Context, name: str = "a.txt") -> str:
    return ctx.path(name).read_text()


A = {"id": "a", "tool": "write", "produces": ["a.txt"]}
GATED = [A, {"id": "b", "tool": "read", "needs": ["a"], "confirm": True}]


def staged_at(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / STAGE).glob("*")) if (folder / STAGE).exists() else []


def test_a_file_is_in_place_once_its_step_succeeded_and_not_before(tmp_path: Path) -> None:
    """T1: while its attempt is at work nobody else sees it; then it is where it was declared, and nothing is left."""
    seen: list[Any] = []

    @rerail.tool
    async def make(ctx: rerail.Context) -> str:
        written = ctx.write_json("sub/a.json", {"n": 1})
        ctx.path("free.txt").write_text("mine")
        seen.extend([(ctx.workspace / "sub" / "a.json").exists(), ctx.read_json("./sub/a.json"), written.exists()])
        seen.append((ctx.workspace / "free.txt").exists())
        return str(written)

    async def main() -> rerail.RunResult:
        async with engine_in(tmp_path, make) as engine:
            return await engine.run({"steps": [{"id": "a", "tool": "make", "produces": ["sub/a.json"]}]})

    result = virtual_run(main)
    folder = tmp_path / "work" / result.run_id
    assert seen == [False, {"n": 1}, True, True]
    assert (folder / "sub" / "a.json").read_text().split() == ["{", '"n":', "1", "}"]
    assert staged_at(folder) == []
    # What an answer says of the file is true for whoever reads it later.
    assert result.steps["a"].output == str(folder / "sub" / "a.json")


def test_a_file_where_a_folder_is_needed_is_put_aside(tmp_path: Path) -> None:
    """T1: before the step is called, so that its file has a place; what lay there is in the archive, whole."""

    @rerail.tool
    async def stray(ctx: rerail.Context) -> None:
        (ctx.workspace / "sub").write_text("kept")
        (ctx.workspace / "gone").symlink_to("nowhere")

    @rerail.tool
    async def make(ctx: rerail.Context) -> None:
        ctx.write_text("sub/deep/a.txt", "made")
        ctx.write_text("gone/b.txt", "made")

    steps = [
        {"id": "s", "tool": "stray"},
        {"id": "a", "tool": "make", "needs": ["s"], "produces": ["sub/deep/a.txt", "gone/b.txt"]},
    ]

    async def main() -> rerail.RunResult:
        async with engine_in(tmp_path, stray, make) as engine:
            return await engine.run({"steps": steps})

    result = virtual_run(main)
    folder = tmp_path / "work" / result.run_id
    assert result.success, result.summary
    assert (folder / "sub" / "deep" / "a.txt").read_text() == (folder / "gone" / "b.txt").read_text() == "made"
    (archive,) = (folder / ".rerail" / "archive").iterdir()
    assert (archive / "sub").read_text() == "kept" and (archive / "gone").is_symlink()


def test_whoever_was_killed_between_record_and_file_is_no_loss(tmp_path: Path) -> None:
    """T1, E1: the success is on record, the file still where it was written: it is put in place, nothing runs again."""

    async def main() -> rerail.RunResult:
        async with engine_in(tmp_path, write, read) as engine:
            run = (await engine.run({"steps": GATED})).run_id
            folder, state = tmp_path / "work" / run, await engine.internals.state(run)
            back(folder, state)
            (folder / state.tracks["a"].call.staged / "a.md5").write_text("beside it")
            await engine.confirm(run)
            return await engine.wait(run)

    result = virtual_run(main)
    assert (result.success, result.steps["b"].output, result.steps["a"].attempts) == (True, "attempt 1", 1)
    assert (tmp_path / "work" / result.run_id / "a.md5").read_text() == "beside it"


def back(folder: Path, state: Any) -> None:
    """Bring a file back to where its attempt wrote it, as if its process had died before it was put in place."""
    own = folder / state.tracks["a"].call.staged / "a.txt"
    own.parent.mkdir(parents=True)
    (folder / "a.txt").replace(own)


def test_a_reader_and_a_clean_start_find_it_too(tmp_path: Path) -> None:
    """T1, T4: who asks for the file gets it; a backup holds it."""

    async def main() -> None:
        async with engine_in(tmp_path, write, read) as engine:
            run = (await engine.run({"steps": GATED})).run_id
            folder = tmp_path / "work" / run
            back(folder, await engine.internals.state(run))
            assert await engine.artifact(run, "a.txt") == "attempt 1"
            back(folder, await engine.internals.state(run))
            await engine.cancel(run)
            await engine.wait(run)
            back(folder, await engine.internals.state(run))
            await engine.begin_retry(run, clean=True)
            await engine.wait(run)
            kept = [path.read_text() for path in (folder / ".rerail" / "backup").rglob("a.txt")]
            assert kept == ["attempt 1"]
            assert (folder / "a.txt").read_text() == "attempt 2"

    virtual_run(main)


def test_the_digest_on_record_decides(tmp_path: Path) -> None:
    """T1: what somebody woken later writes to where an attempt wrote takes nobody's place; nor does a stray path."""
    own = tmp_path / STAGE / "a-1-x" / "a.txt"
    own.parent.mkdir(parents=True)
    own.write_text("late")
    (tmp_path / "a.txt").write_text("good")
    (tmp_path / "stray.txt").write_text("late")
    digest = digest_of(own)[0]
    with pytest.raises(NotPlaced, match=r"a\.txt"):  # and nobody goes on as if what is on record were there
        put_in_place(tmp_path, FileMade("a.txt", "other", "a", f"{STAGE}/a-1-x/a.txt"))
    put_in_place(tmp_path, FileMade("a.txt", digest_of(tmp_path / "a.txt")[0], "a", f"{STAGE}/a-1-x/a.txt"))
    put_in_place(tmp_path, FileMade("a.txt", digest, "a", "stray.txt"))
    put_in_place(tmp_path, FileMade("a.txt", digest, "a", f"{STAGE}/../../stray.txt"))
    assert (tmp_path / "a.txt").read_text() == "good"
    put_in_place(tmp_path, FileMade("a.txt", digest, "a", f"{STAGE}/a-1-x/a.txt"))
    assert (tmp_path / "a.txt").read_text() == "late"
    assert [path.read_text() for path in (tmp_path / ".rerail" / "archive").rglob("a.txt")] == ["good"]


def test_a_folder_in_the_way_is_put_aside(tmp_path: Path) -> None:
    """T1: nothing that lies in a file's place is lost, and nothing keeps it from its place."""
    own = tmp_path / STAGE / "a-1-x" / "a.txt"
    own.parent.mkdir(parents=True)
    own.write_text("good")
    (tmp_path / "a.txt").mkdir()
    (tmp_path / "a.txt" / "inner").write_text("kept")
    put_in_place(tmp_path, FileMade("a.txt", digest_of(own)[0], "a", f"{STAGE}/a-1-x/a.txt"))
    assert (tmp_path / "a.txt").read_text() == "good"
    assert [path.read_text() for path in (tmp_path / ".rerail" / "archive").rglob("inner")] == ["kept"]
    assert staged_at(tmp_path) == []


@pytest.mark.parametrize("hand", ["own", "given"])
def test_a_late_attempt_writes_over_nothing_with_its_own_hands(tmp_path: Path, hand: str) -> None:
    """X4, T1: a thread that nobody can stop has an old path, or asks for one; the file is the newer attempt's."""
    gate, late = threading.Event(), threading.Event()

    @rerail.tool(timeout=1.5)
    def scribble(ctx: rerail.Context) -> int:
        path = ctx.path("a.txt")
        if ctx.attempt == 1:
            gate.wait(10)
            try:
                (path if hand == "own" else ctx.path("a.txt")).write_text("old")
            finally:
                late.set()
            return 1
        path.write_text("new")
        return ctx.attempt

    async def main() -> rerail.RunResult:
        async with engine_in(tmp_path, scribble, settings={"retry": {"backoff_base": 0}}, real=True) as engine:
            result = await engine.run({"steps": [{"id": "a", "tool": "scribble", "produces": ["a.txt"]}]})
            gate.set()
            await asyncio.to_thread(late.wait, 10)
            return result

    result = asyncio.run(main())
    assert result.success and late.is_set()
    assert (tmp_path / "work" / result.run_id / "a.txt").read_text() == "new"


def test_what_an_attempt_left_that_failed_is_put_aside_by_the_next(tmp_path: Path) -> None:
    """T3: nothing of it is in the file's place, and nothing of it is lost."""

    @rerail.tool
    async def stumble(ctx: rerail.Context) -> str:
        ctx.write_text("a.txt", f"attempt {ctx.attempt}")
        if ctx.attempt == 1:
            raise rerail.ToolError("down", category="transient_error")
        return "done"

    async def main() -> rerail.RunResult:
        async with engine_in(tmp_path, stumble, settings={}) as engine:
            return await engine.run({"steps": [{"id": "a", "tool": "stumble", "produces": ["a.txt"]}]})

    result = virtual_run(main)
    folder = tmp_path / "work" / result.run_id
    assert (folder / "a.txt").read_text() == "attempt 2"
    assert [path.read_text() for path in (folder / ".rerail" / "archive").rglob("a.txt")] == ["attempt 1"]
    assert staged_at(folder) == []


@pytest.mark.parametrize("mended", [False, True])
def test_a_lost_answers_files_can_be_agreed_to(tmp_path: Path, mended: bool) -> None:
    """E3, X7: who says that a step in doubt succeeded gets the files that it wrote, or those put there instead."""

    @rerail.tool(effect="once")
    async def act(ctx: rerail.Context) -> str:
        ctx.write_text("a.txt", "by the tool")
        raise rerail.ToolError("the line broke", lost=True)

    steps = [{"id": "a", "tool": "act", "produces": ["a.txt"]}, {"id": "b", "tool": "read", "needs": ["a"]}]

    async def main() -> rerail.RunResult:
        async with engine_in(tmp_path, act, read) as engine:
            run = (await engine.run({"steps": steps})).run_id
            if mended:
                (tmp_path / "work" / run / "a.txt").write_text("by a person")
            await engine.resolve(run, "a", succeeded=None)
            return await engine.wait(run)

    result = virtual_run(main)
    assert result.steps["b"].output == ("by a person" if mended else "by the tool")


def test_files_that_no_attempt_left_are_not_agreed_to(tmp_path: Path) -> None:
    """X7, T1: nothing was written anywhere, so there is nothing to agree to."""

    @rerail.tool(effect="once")
    async def act() -> str:
        raise rerail.ToolError("the line broke", lost=True)

    async def main() -> None:
        async with engine_in(tmp_path, act) as engine:
            run = (await engine.run({"steps": [{"id": "a", "tool": "act", "produces": ["a.txt"]}]})).run_id
            with pytest.raises(Refused) as refused:
                await engine.resolve(run, "a", succeeded=None)
            assert refused.value.code == "FILE_DAMAGED"

    virtual_run(main)


@pytest.mark.parametrize("how", ["resume", "retry"])
def test_a_place_that_cannot_be_taken_stops_the_run_and_then_it_goes_on(tmp_path: Path, how: str) -> None:
    """E4, T1, T5: no success without its file; once the way is free it is put in place, and nothing runs again."""

    @rerail.tool
    async def make(ctx: rerail.Context) -> str:
        ctx.write_text("sub/a.txt", "good")
        (ctx.workspace / "sub").write_text("in the way")
        return "made"

    async def main() -> rerail.RunResult:
        async with engine_in(tmp_path, make) as engine:
            run = await engine.start({"steps": [{"id": "a", "tool": "make", "produces": ["sub/a.txt"]}]})
            with pytest.raises(StoreError) as stopped:
                await engine.wait(run)
            assert stopped.value.code == "FILE_NOT_PLACED"
            (tmp_path / "work" / run / "sub").unlink()
            return await getattr(engine, how)(run)

    result = virtual_run(main)
    assert (result.success, result.steps["a"].attempts) == (True, 1)
    assert (tmp_path / "work" / result.run_id / "sub" / "a.txt").read_text() == "good"


@rerail.tool(isolated=True)
def apart(ctx: rerail.Context) -> str:
    ctx.path("a.txt").write_text("from afar")
    return str((ctx.workspace / "a.txt").exists())


def test_a_tool_in_a_process_of_its_own_writes_there_too(tmp_path: Path) -> None:
    """T1, M3: the context that it gets says the same."""

    async def main() -> rerail.RunResult:
        async with engine_in(tmp_path, apart, real=True) as engine:
            return await engine.run({"steps": [{"id": "a", "tool": "apart", "produces": ["a.txt"]}]})

    result = asyncio.run(main())
    assert result.steps["a"].output == "False"
    assert (tmp_path / "work" / result.run_id / "a.txt").read_text() == "from afar"


def test_tools_that_go_their_own_ways_work_as_ever(tmp_path: Path) -> None:
    """T1: plain paths, links, files of another step, and a look at the effect in the file's own place."""

    @rerail.tool
    async def plainly(ctx: rerail.Context) -> str:
        (ctx.workspace / "p.txt").write_text("plain")
        (ctx.workspace / "real.txt").write_text("real")
        ctx.path("l.txt").symlink_to("real.txt")
        return "done"

    def is_there(args: Any, output: Any, before: Any, ctx: rerail.Context) -> bool:
        return (ctx.workspace / "v.txt").read_text() == "seen"

    @rerail.tool(verify=is_there)
    async def looked_at(ctx: rerail.Context) -> str:
        ctx.write_text("v.txt", "seen")
        return ctx.path("p.txt").read_text()

    steps = [
        {"id": "a", "tool": "plainly", "produces": ["p.txt", "l.txt"]},
        {"id": "b", "tool": "looked_at", "needs": ["a"], "produces": ["v.txt"]},
    ]

    async def main() -> rerail.RunResult:
        async with engine_in(tmp_path, plainly, looked_at) as engine:
            return await engine.run({"steps": steps})

    result = virtual_run(main)
    folder = tmp_path / "work" / result.run_id
    assert result.success, result.summary
    assert result.steps["b"].output == "plain"
    assert not (folder / "l.txt").is_symlink() and (folder / "l.txt").read_text() == "real"


def test_names_are_compared_however_they_are_spelt(tmp_path: Path) -> None:
    """T1: a declared file is itself under every name for it."""
    assert {plain_name(name) for name in ("a/b.txt", "./a/b.txt", "a/./b.txt", "a\\b.txt")} == {"a/b.txt"}
    ctx = Context(workspace=tmp_path, staging=tmp_path / STAGE / "x", files=("a/b.txt",))
    assert ctx.path("./a/b.txt") == tmp_path / STAGE / "x" / "a" / "b.txt"
    assert ctx.path("a/c.txt") == tmp_path / "a" / "c.txt"
    again = Context(**ctx.to_dict())
    assert again.path("a/b.txt") == ctx.path("a/b.txt")
    (tmp_path / "out").symlink_to("/tmp")
    with pytest.raises(ValueError, match=r"out/b\.txt"):
        Context(workspace=tmp_path, staging=tmp_path / STAGE / "x", files=("out/b.txt",)).path("out/b.txt")


@pytest.mark.parametrize("kind", ["file", "link"])
def test_nothing_is_put_in_place_by_one_who_may_not_write(tmp_path: Path, kind: str) -> None:
    """T7, E1: on record first. An owner that lost its run in the middle of a call leaves the newer file alone."""
    begun, gate = asyncio.Event(), asyncio.Event()

    @rerail.tool
    async def slow(ctx: rerail.Context) -> str:
        ctx.write_text("other.txt" if kind == "link" else "a.txt", "old")
        if kind == "link":
            ctx.path("a.txt").symlink_to("other.txt")
        begun.set()
        await gate.wait()
        return "done"

    async def main() -> None:
        async with engine_in(tmp_path, slow, real=True) as engine:
            run = await engine.start({"steps": [{"id": "a", "tool": "slow", "produces": ["a.txt"]}]})
            await begun.wait()
            store, head = engine._parts.store, await engine.internals.head(run)
            await store.claim(run, Owner("elsewhere", 1, 1.0), engine._parts.clock.now(), over=head.fence)
            place = tmp_path / "work" / run / "a.txt"
            place.write_text("new")
            gate.set()
            with pytest.raises(StoreError) as lost:
                await engine.wait(run)
            assert lost.value.code == "LEASE_LOST"
            assert place.read_text() == "new"

    asyncio.run(main())


@pytest.mark.parametrize("target", ["real.json", "staged.json", "gone.json", "outside", "loop.json"])
def test_a_link_is_its_content_and_stays_with_its_attempt(tmp_path: Path, target: str) -> None:
    """T1: a link of an attempt that fails is nowhere else; one that leads out of the workspace, or nowhere, fails."""
    outside = tmp_path / "outside.json"
    outside.write_text("{}")

    @rerail.tool
    async def link(ctx: rerail.Context, good: bool) -> str:
        (ctx.workspace / "real.json").write_text('{"n": 1}')
        ctx.write_json("staged.json", {"n": 1})
        ctx.path("loop.json").symlink_to("loop.json")
        ctx.path("a.json").symlink_to(outside if target == "outside" else target)
        ctx.write_text("b.json", "{}" if good else "no JSON")
        return "linked"

    async def main(good: bool) -> tuple[rerail.RunResult, Path]:
        step = {"id": "a", "tool": "link", "args": {"good": good}, "produces": ["a.json", "b.json", "staged.json"]}
        async with engine_in(tmp_path, link) as engine:
            result = await engine.run({"steps": [step]})
            return result, tmp_path / "work" / result.run_id / "a.json"

    failed, place = virtual_run(lambda: main(False))
    assert not failed.success and not place.exists() and not place.is_symlink()
    done, place = virtual_run(lambda: main(True))
    assert done.success is target.startswith(("real", "staged"))
    assert not place.is_symlink()
    assert (
        (place.read_text().split() == ["{", '"n":', "1", "}"] or place.read_text() == '{"n": 1}')
        if done.success
        else (not place.exists())
    )


@pytest.mark.parametrize("how", ["changed", "gone"])
def test_a_file_that_changed_before_it_was_put_in_place_is_no_success(tmp_path: Path, how: str) -> None:
    """T1, V1: what is on record is not what there is: the run does not complete, and its step runs again."""

    @rerail.tool
    async def pair(ctx: rerail.Context) -> str:
        ctx.write_text("a.txt", f"attempt {ctx.attempt}")
        ctx.write_text("b.txt", f"attempt {ctx.attempt}")
        return "made"

    @rerail.tool
    async def meddle(path: str) -> bool:
        first = Path(path).with_name("a.txt")  # which was looked at already
        if first.read_text() == "attempt 1":
            first.write_text("meddled") if how == "changed" else first.unlink()
        return True

    made = [{"path": "a.txt"}, {"path": "b.txt", "check": "meddle"}]

    async def main() -> rerail.RunResult:
        async with engine_in(tmp_path, pair, meddle) as engine:
            run = await engine.start({"steps": [{"id": "a", "tool": "pair", "produces": made}]})
            with pytest.raises(StoreError, match=r"a\.txt") as stopped:
                await engine.wait(run)
            assert stopped.value.code == "FILE_NOT_PLACED"
            assert (await engine.show(run)).status == "running"
            return await engine.retry(run)

    result = virtual_run(main)
    assert (result.success, result.steps["a"].attempts) == (True, 2)
    assert (tmp_path / "work" / result.run_id / "a.txt").read_text() == "attempt 2"


@pytest.mark.parametrize("how", ["cancel", "clean", "again"])
def test_a_file_that_cannot_be_placed_keeps_nobody_from_going_another_way(tmp_path: Path, how: str) -> None:
    """X7, T3, T4: the run can be cancelled, started over, and its step done again; what was written is kept."""

    @rerail.tool
    async def make(ctx: rerail.Context) -> str:
        ctx.write_text("sub/a.txt", f"attempt {ctx.attempt}")
        if ctx.attempt == 1:
            (ctx.workspace / "sub").write_text("in the way")
        else:
            (ctx.workspace / "sub").unlink(missing_ok=True)
        return "made"

    async def main() -> rerail.RunResult:
        async with engine_in(tmp_path, make) as engine:
            run = await engine.start({"steps": [{"id": "a", "tool": "make", "produces": ["sub/a.txt"]}]})
            with pytest.raises(StoreError):
                await engine.wait(run)
            if how == "cancel":
                await engine.cancel(run)
                return await engine.wait(run)
            return await (engine.retry(run, clean=True) if how == "clean" else engine.retry(run))

    result = virtual_run(main)
    folder = tmp_path / "work" / result.run_id
    if how == "cancel":
        assert result.status == "cancelled"
        assert [path.read_text() for path in (folder / STAGE).rglob("a.txt")] == ["attempt 1"]
        return
    assert result.success
    assert (folder / "sub" / "a.txt").read_text() == "attempt 2"
    assert [path.read_text() for path in (folder / ".rerail" / "archive").rglob("a.txt")] == ["attempt 1"]


def test_what_a_person_agrees_to_while_the_run_goes_on_is_in_place_when_it_ends(tmp_path: Path) -> None:
    """X7, T1: the files of a step declared to have succeeded are placed, listed, and nobody's but its attempt's."""
    begun, gate = asyncio.Event(), asyncio.Event()

    @rerail.tool(effect="once")
    async def act(ctx: rerail.Context) -> str:
        ctx.write_text("a.txt", "by the tool")
        raise rerail.ToolError("the line broke", lost=True)

    @rerail.tool
    async def hold() -> str:
        begun.set()
        await gate.wait()
        return "held"

    steps = [{"id": "a", "tool": "act", "produces": ["a.txt"]}, {"id": "h", "tool": "hold"}]

    async def main() -> tuple[rerail.RunResult, Any, str, list[Any]]:
        async with engine_in(tmp_path, act, hold, real=True) as engine:
            run = await engine.start({"steps": steps})
            await begun.wait()
            async for record in engine.watch(run):
                if isinstance(record.event, StepFailed):
                    break
            await engine.resolve(run, "a", succeeded=None)
            assert engine.internals.drives(run)
            gate.set()
            result = await engine.wait(run)
            return result, await engine.artifacts(run), await engine.why(run, "a"), await engine.events(run)

    result, artifacts, why, events = asyncio.run(main())
    folder = tmp_path / "work" / result.run_id
    assert result.success
    assert (folder / "a.txt").read_text() == "by the tool"
    assert staged_at(folder) == []
    digest, size = digest_of(folder / "a.txt")
    rows = {row["name"]: (row["step"], row["attempt"], row["digest"], row["size"], row["media"]) for row in artifacts}
    assert rows["a.txt"] == ("a", 1, digest, size, "text/plain")
    [resolved] = [record.event for record in events if isinstance(record.event, Acted)]
    for said in (why, Narrator(State("r")).lines(resolved)[0].words):
        assert "resolve" in said and "another" not in said


def test_artifacts_are_what_a_person_made_of_them(tmp_path: Path) -> None:
    """T2, I4: a file that was given another content is listed with that, and is still its step's."""

    async def main() -> None:
        async with engine_in(tmp_path, write, read) as engine:
            run = (await engine.run({"steps": GATED})).run_id
            await engine.confirm(run, edit={"a.txt": b"by a person, and longer"})
            assert (await engine.wait(run)).steps["b"].output == "by a person, and longer"
            [row] = [row for row in await engine.artifacts(run) if row["name"] == "a.txt"]
            digest, size = digest_of(tmp_path / "work" / run / "a.txt")
            assert (row["digest"], row["size"], row["step"], row["attempt"]) == (digest, size, "a", 1)
            assert size == len("by a person, and longer")

    virtual_run(main)


def test_what_lies_beside_a_declared_file_comes_along(tmp_path: Path) -> None:
    """T1: files that a tool names after a declared one are where its answer says; nothing is lost, or of ours."""

    @rerail.tool
    async def summed(ctx: rerail.Context) -> dict[str, Any]:
        (ctx.workspace / "out").mkdir()
        (ctx.workspace / "out" / "a.md5").write_text("older")
        path = ctx.write_text("out/a.txt", "good")
        beside = path.with_suffix(".md5")
        beside.write_text("sum")
        (path.parent / "more").mkdir()
        (path.parent / "more" / "b.txt").write_text("more")
        (path.parent.parent / "task.json").write_text("not ours")
        (path.parent.parent / ".rerail").mkdir()
        (path.parent.parent / ".rerail" / "x").write_text("not ours")
        return {
            "whole": str(beside), "relative": str(beside.relative_to(ctx.workspace)), "folder": str(path.parent.parent),
            "base": str(path.parent.parent.relative_to(ctx.workspace)), "said": f"wrote {beside} and {path}",
        }  # fmt: skip

    async def main() -> rerail.RunResult:
        async with engine_in(tmp_path, summed) as engine:
            return await engine.run({"steps": [{"id": "a", "tool": "summed", "produces": ["out/a.txt"]}]})

    result = virtual_run(main)
    folder = tmp_path / "work" / result.run_id
    assert result.steps["a"].output == {
        "whole": f"{folder}/out/a.md5", "relative": "out/a.md5", "folder": str(folder), "base": ".",
        "said": f"wrote {folder}/out/a.md5 and {folder}/out/a.txt",
    }  # fmt: skip
    assert (folder / "out" / "a.md5").read_text() == "sum"
    assert (folder / "out" / "more" / "b.txt").read_text() == "more"
    assert [path.read_text() for path in (folder / ".rerail" / "archive").rglob("a.md5")] == ["older"]
    assert not (folder / "task.json").exists() and not (folder / ".rerail" / "x").exists()


@pytest.mark.parametrize(("then", "content"), [("", "1"), ("plain", "2"), ("staged", "3")])
def test_what_a_tool_wrote_with_plain_paths_can_be_read(tmp_path: Path, then: str, content: str) -> None:
    """T1, M3: a declared file is found however it was written, and the content that was written last counts."""

    @rerail.tool
    async def mixed(ctx: rerail.Context) -> Any:
        (ctx.workspace / "a.json").write_text("1")
        seen = [ctx.read_json("a.json"), int(ctx.path("a.json").read_text())]
        if then == "plain":
            (ctx.workspace / "a.json").write_text("2")
        elif then == "staged":
            ctx.path("a.json").write_text("3")
        return seen

    async def main() -> rerail.RunResult:
        async with engine_in(tmp_path, mixed) as engine:
            return await engine.run({"steps": [{"id": "a", "tool": "mixed", "produces": ["a.json"]}]})

    result = virtual_run(main)
    folder = tmp_path / "work" / result.run_id
    assert result.steps["a"].output == [1, 1]
    assert (folder / "a.json").read_text() == content
    assert (folder / "a.json").stat().st_mtime > 0
