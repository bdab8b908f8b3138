"""Files that steps produce, through the engine: checked, on record, made again when they rot (T1, T3, T4, P5)."""

from __future__ import annotations

import asyncio
import errno
import os
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import pytest

import rerail
from rerail.engine.files.placement import damaged, files_of
from rerail.errors import PlanError, Refused, StoreError
from rerail.kernel.actions import Edits, confirm
from rerail.kernel.commands import Confirm
from rerail.kernel.events import FileMade, RetryBegin, StepSucceeded
from rerail.kernel.fold import evolve
from rerail.kernel.step_state import Phase
from rerail.ports import Batch, Lease, Unusable
from rerail.testing import VirtualClock, virtual_run
from rerail.workspace import digest_of, write_whole

QUICK: dict[str, Any] = {"retry": {"max_retry_rounds": 0}, "reflection": {"max_step_retries": 0}}


class World:
    """Tools that write, read and check files, and how often each step was called."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.calls = folder, Counter[str]()
        self.broken: set[str] = set()
        self.content: dict[str, str] = {}

    def tools(self) -> list[Any]:
        @rerail.tool
        async def write(ctx: rerail.Context, name: str, text: str = '{"n": 1}') -> str:
            self.calls[ctx.step] += 1
            if ctx.step in self.broken:
                raise rerail.ToolError("down", category="tool_error")
            ctx.write_text(name, self.content.get(name, text))
            return "written"

        @rerail.tool(effect="once")
        async def send(ctx: rerail.Context, name: str) -> str:
            self.calls[ctx.step] += 1
            ctx.write_text(name, '{"sent": true}')
            return "sent"

        @rerail.tool
        async def read(ctx: rerail.Context) -> str:
            self.calls[ctx.step] += 1
            if ctx.step in self.broken:
                raise rerail.ToolError("down", category="tool_error")
            return "read"

        @rerail.tool(effect="once", timeout=1)
        async def hang(ctx: rerail.Context, name: str) -> None:
            ctx.write_text(name, "[1]")
            await asyncio.sleep(30)

        @rerail.tool(effect="read")
        async def is_short(path: str) -> bool:
            return len(Path(path).read_bytes()) < 20

        @rerail.tool(effect="read")
        async def is_odd(path: str) -> None:
            if len(Path(path).read_bytes()) % 2 == 0:
                raise ValueError("an even number of bytes")

        @rerail.tool(effect="read")
        async def first_word(path: str) -> str:
            return Path(path).read_text().partition(" ")[0]

        return [write, send, read, hang, is_short, is_odd, first_word]

    def engine(self, **rest: Any) -> rerail.Engine:
        store = f"sqlite:///{self.folder}/runs.db"
        return rerail.Engine(rest.pop("store", store), self.tools(), QUICK, clock=VirtualClock(), **rest)


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def step(step_id: str, tool: str = "write", **rest: Any) -> dict[str, Any]:
    return {"id": step_id, "tool": tool, **rest}


A = step("a", args={"name": "a.json"}, produces=["a.json"])


# -- What a plan may say ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("produces", "said"),
    [
        (["../a.json"], "leaves the run's workspace"), (["/tmp/a.json"], "leaves the run's workspace"),
        (["task.json"], "a name that Rerail uses itself"), ([""], "names no file"),
        (["a.json", "a.json"], "a file is one step's alone"), ([{"path": "a", "format": "xml"}], "not a known format"),
        ([{"path": "a", "check": "is_shrt"}], "did you mean 'is_short'"), ([{"path": "a", "kys": ["b"]}], "'keys'"),
        ([{"path": "a", "schema": {"type": "objct"}}], "schema"), ([{"keys": ["b"]}], "a text"), ([7], "file names"),
        ([{"path": "a", "non_empty": "yes"}], "non_empty"),
    ],
)  # fmt: skip
def test_a_bad_file_is_a_fault_of_the_plan(world: World, produces: list[Any], said: str) -> None:
    """P5, T1: before anything runs."""

    async def main() -> None:
        async with world.engine() as engine:
            with pytest.raises(PlanError, match="(?s)" + said.replace("(", r"\(")):
                await engine.run({"steps": [step("a", args={"name": "a"}, produces=produces)]})

    virtual_run(main)
    assert not world.calls


def test_a_file_is_one_steps_alone(world: World) -> None:
    """P5, T1: two steps may not write the same file, however they spell it."""

    async def main() -> None:
        async with world.engine() as engine:
            with pytest.raises(PlanError, match="made by step 'a' already"):
                await engine.run({"steps": [A, step("b", args={"name": "x"}, produces=["./a.json"])]})

    virtual_run(main)


# -- What makes a file valid --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("file", "text", "said"),
    [
        ({"path": "a.yaml"}, "x: [1, 2]\n", None), ({"path": "a.yml", "keys": ["y"]}, "x: 1\n", "lacks 'y'"),
        ({"path": "a.yaml"}, "x: [1\n", "not YAML"), ({"path": "a.txt", "non_empty": True}, "", "empty"),
        ({"path": "a.txt", "format": "text", "non_empty": True}, "é", None),
        ({"path": "a.dat", "format": "json"}, "{", "not JSON"), ({"path": "a.dat", "keys": ["k"]}, "[]", "lacks 'k'"),
        ({"path": "a.txt", "check": "is_short"}, "short", None),
        ({"path": "a.txt", "check": "is_short"}, "x" * 50, "the check 'is_short' says no"),
        ({"path": "a.txt", "check": "is_odd"}, "even", "an even number of bytes"),
        ({"path": "a.txt", "check": "is_odd"}, "odd", None),
        ({"path": "a.txt", "check": "first_word"}, "one two", None),
        ({"path": "a.txt", "check": "first_word"}, " two", "the check 'first_word' says no"),
    ],
)  # fmt: skip
def test_what_makes_a_file_valid(world: World, file: dict[str, Any], text: str, said: str | None) -> None:
    """T1: it parses, has its keys, fits its schema, is not empty, meets a check of one's own."""

    async def main() -> rerail.RunResult:
        async with world.engine() as engine:
            return await engine.run({"steps": [step("a", args={"name": file["path"], "text": text}, produces=[file])]})

    result = virtual_run(main)
    assert result.success == (said is None)
    if said is not None:
        error = result.steps["a"].error
        assert error is not None
        assert said in error["message"]
    else:
        assert result.steps["a"].files == (file["path"],)


# -- Rot ----------------------------------------------------------------------------------------------------------

CHAIN = [
    A,
    step("b", args={"name": "b.json", "text": "[2]"}, produces=["b.json"], needs=["a"]),
    step("c", "read", needs=["b"]),
]


def test_content_that_did_not_change_ends_the_chain_early(world: World) -> None:
    """R3, T3: a file made again with the same content changes nothing for those who read it."""
    world.broken = {"c"}

    async def main() -> rerail.RunResult:
        async with world.engine() as engine:
            result = await engine.run({"steps": CHAIN})
            (world.folder / "work" / result.run_id / "a.json").unlink()
            world.broken = set()
            return await engine.retry(result.run_id)

    assert virtual_run(main).success
    assert world.calls == {"a": 2, "b": 1, "c": 2}


def test_content_that_changed_is_followed_down(world: World) -> None:
    """R3, T3: what was made from the old content is done again, although its step's output is the same."""
    world.broken = {"c"}

    async def main() -> rerail.RunResult:
        async with world.engine() as engine:
            result = await engine.run({"steps": CHAIN})
            (world.folder / "work" / result.run_id / "a.json").unlink()
            world.broken, world.content = set(), {"a.json": '{"n": 2}'}
            return await engine.retry(result.run_id)

    assert virtual_run(main).success
    assert world.calls == {"a": 2, "b": 2, "c": 2}


def test_several_damaged_files_are_made_again_together(world: World) -> None:
    """T1: found before the step that reads them, in a live run, all at once; nobody agrees to them unseen."""
    steps = [
        A,
        step("b", args={"name": "b.json"}, produces=["b.json"]),
        step("c", "read", needs=["a", "b"], confirm=True),
    ]

    async def main() -> rerail.RunResult:
        async with world.engine() as engine:
            result = await engine.run({"steps": steps})
            for name in ("a.json", "b.json"):
                (world.folder / "work" / result.run_id / name).write_text("{")
            with pytest.raises(Refused, match="is not what was made") as refused:
                await engine.confirm(result.run_id)
            assert refused.value.code == "FILE_DAMAGED"
            assert "--edit" in refused.value.hint
            await engine._commands.deliver(result.run_id, Confirm(by="somebody else, a moment earlier"))
            return await engine.wait(result.run_id)

    assert virtual_run(main).success
    assert world.calls == {"a": 2, "b": 2, "c": 1}


def test_a_once_step_is_not_called_again_for_its_file(world: World) -> None:
    """E3, T3: without somebody's word; with --force it is, and the dry run says so."""
    world.broken = {"c"}
    steps = [step("a", "send", args={"name": "a.json"}, produces=["a.json"]), step("c", "read", needs=["a"])]

    async def main() -> None:
        async with world.engine() as engine:
            result = await engine.run({"steps": steps})
            (world.folder / "work" / result.run_id / "a.json").unlink()
            world.broken = set()
            with pytest.raises(Refused, match="must not happen twice") as refused:
                await engine.retry(result.run_id)
            assert refused.value.code == "FILE_DAMAGED"
            assert world.calls == {"a": 1, "c": 1}
            preview = await engine.retry(result.run_id, force=True, dry_run=True)
            assert preview.once == ("a",)
            assert (await engine.retry(result.run_id, force=True)).success

    virtual_run(main)
    assert world.calls == {"a": 2, "c": 2}


# -- Starting over ------------------------------------------------------------------------------------------------


def test_starting_over_without_a_backup_does_not_happen(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """T4: a full disk: refused, nothing changed, and everything else still works."""
    world.broken = {"c"}

    async def main() -> None:
        async with world.engine() as engine:
            result = await engine.run({"steps": CHAIN})
            before = await engine.events(result.run_id)
            with monkeypatch.context() as patched:
                patched.setattr(os, "mkdir", _full)
                with pytest.raises(Refused, match="nothing was started over") as refused:
                    await engine.retry(result.run_id, clean=True)
            assert refused.value.code == "BACKUP_FAILED"
            assert await engine.events(result.run_id) == before
            assert (world.folder / "work" / result.run_id / "a.json").exists()
            world.broken = set()
            assert (await engine.retry(result.run_id, clean=True)).success
            [begin] = [
                record.event for record in await engine.events(result.run_id) if isinstance(record.event, RetryBegin)
            ]
            assert sorted(path.name for path in Path(begin.backup).iterdir()) == ["a.json", "b.json"]

    virtual_run(main)
    assert world.calls == {"a": 2, "b": 2, "c": 2}


def _full(*_: Any, **__: Any) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def test_a_store_that_fails_after_the_backup_loses_no_file(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """T4, E1: the files go only once it is on record that the run starts over; the useless backup goes too."""
    from rerail.adapters.stores.sqlite.store import SqliteStore

    world.broken = {"c"}
    append = SqliteStore.append

    async def full(store: SqliteStore, batch: Batch) -> None:
        if b"retry_begin" in b"".join(data for _, data in batch.rows):
            raise Unusable("the disk is full", "STORE_FULL")
        await append(store, batch)

    async def main() -> None:
        async with world.engine() as engine:
            result = await engine.run({"steps": CHAIN})
            folder = world.folder / "work" / result.run_id
            with monkeypatch.context() as patched:
                patched.setattr(SqliteStore, "append", full)
                with pytest.raises(StoreError, match="full"):
                    await engine.retry(result.run_id, clean=True)
            assert (folder / "a.json").exists()
            assert not list((folder / ".rerail" / "backup").iterdir())
            world.broken = set()
            assert (await engine.retry(result.run_id)).success

    virtual_run(main)
    assert world.calls == {"a": 1, "b": 1, "c": 2}


def test_a_follow_up_works_in_its_parents_folder(world: World) -> None:
    """T6: it finds the files, and is not called while one of them is damaged."""
    plan = {"steps": [A], "follow_up": {"steps": [step("f", "read", confirm=True)]}}

    async def main() -> None:
        async with world.engine() as engine:
            run = await engine.start(plan)
            await engine.wait(run)
            [child] = await engine.list(parent=run)
            await engine.wait(child.run_id)
            assert (await engine.internals.state(child.run_id)).home == run
            (world.folder / "work" / run / "a.json").write_text("{}")
            await engine.confirm(child.run_id)
            result = await engine.wait(child.run_id)
            error = result.steps["f"].error
            assert error is not None
            assert error["code"] == "FILE_DAMAGED"
            assert run in error["message"]
            assert world.calls == {"a": 1}
            preview = await engine.retry(child.run_id, dry_run=True)
            assert preview.roots == ("a",)  # the parent is mended, and starts what follows it anew
            assert (await engine.retry(child.run_id)).success

    virtual_run(main)
    assert world.calls == {"a": 2}


# -- What must not happen twice -----------------------------------------------------------------------------------


def test_a_once_step_is_not_called_again_for_a_bad_file(world: World) -> None:
    """E3, T1: it said that it succeeded, so the effect is there; somebody has to look, and nothing is repeated."""
    files = [{"path": "a.json", "keys": ["amount"]}]

    async def main() -> None:
        async with world.engine() as engine:
            run = (await engine.run({"steps": [step("a", "send", args={"name": "a.json"}, produces=files)]})).run_id
            shown = await engine.show(run)
            assert (shown.status, shown.steps["a"].status) == ("waiting", "in_doubt")
            with pytest.raises(Refused, match="not valid") as refused:
                await engine.resolve(run, "a", succeeded="sent")
            assert refused.value.code == "FILE_DAMAGED"
            (world.folder / "work" / run / "a.json").write_text('{"amount": 7}')
            await engine.resolve(run, "a", succeeded="sent")
            result = await engine.wait(run)
            assert result.success
            assert result.steps["a"].files == ("a.json",)

    virtual_run(main)
    assert world.calls == {"a": 1}


def test_a_once_step_is_not_called_again_for_a_poor_answer(world: World) -> None:
    """E3, V6: the same where its output does not meet the step's check."""

    async def main() -> rerail.RunResult:
        async with world.engine() as engine:
            return await engine.run({"steps": [step("a", "send", args={"name": "x"}, check={"keys": ["id"]})]})

    assert virtual_run(main).steps["a"].status == "in_doubt"
    assert world.calls == {"a": 1}


def test_a_stage_with_a_finished_once_step_needs_force(world: World) -> None:
    """T4, R5: naming its stage is not the word that it may happen again."""
    steps = [
        step("a", "send", args={"name": "a.json"}, produces=["a.json"], stage="one"),
        step("c", "read", needs=["a"], stage="two"),
    ]
    world.broken = {"c"}

    async def main() -> None:
        async with world.engine() as engine:
            run = (await engine.run({"steps": steps})).run_id
            world.broken = set()
            with pytest.raises(Refused) as refused:
                await engine.retry(run, stage="one")
            assert refused.value.code == "STEP_SUCCEEDED"
            assert (await engine.retry(run, stage="two")).success

    virtual_run(main)
    assert world.calls == {"a": 1, "c": 2}


def test_an_explicit_failure_is_no_effect_to_warn_of(world: World) -> None:
    """R7: a dry run names what did happen, or may have."""

    @rerail.tool(effect="once")
    async def refuse() -> None:
        raise rerail.ToolError("no", category="tool_error")

    async def main() -> None:
        store = f"sqlite:///{world.folder}/runs.db"
        async with rerail.Engine(store, [refuse], QUICK, clock=VirtualClock()) as engine:
            run = (await engine.run({"steps": [{"id": "a", "tool": "refuse"}]})).run_id
            assert (await engine.retry(run, dry_run=True)).once == ()

    virtual_run(main)


# -- Edits --------------------------------------------------------------------------------------------------------

GATED = [
    A, step("b", args={"name": "sub/a.json"}, produces=["sub/a.json"]),
    step("c", "read", needs=["a", "b"], confirm=True),
]  # fmt: skip


def test_an_edit_that_is_refused_touches_nothing(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """T2: somebody else was faster, the content is bad, the disk is full: the file is what it was."""

    async def main() -> None:
        async with world.engine() as engine:
            run = (await engine.run({"steps": GATED})).run_id
            folder = world.folder / "work" / run
            before = (folder / "a.json").read_bytes()
            for bad in (b"{", b""):
                with pytest.raises(Refused, match="was not replaced"):
                    await engine.confirm(run, edit={"a.json": bad})
            with monkeypatch.context() as patched:
                patched.setattr(os, "fsync", _full)
                with pytest.raises(Refused, match="No space"):
                    await engine.confirm(run, edit={"a.json": b"[]"})
            await engine.cancel(run)
            await engine.wait(run)
            with pytest.raises(Refused):
                await engine.confirm(run, edit={"a.json": b"[1]"})
            assert (folder / "a.json").read_bytes() == before
            assert not list((folder / ".rerail" / "edit").iterdir())

    virtual_run(main)


def test_an_exact_path_beats_a_name(world: World) -> None:
    """T2: and both files are there under their own."""

    async def main() -> None:
        async with world.engine() as engine:
            run = (await engine.run({"steps": GATED})).run_id
            folder = world.folder / "work" / run
            await engine.confirm(run, edit={"a.json": b"[1]"})
            assert (await engine.wait(run)).success
            assert (folder / "a.json").read_bytes() == b"[1]"
            assert (folder / "sub" / "a.json").read_bytes() == b'{"n": 1}'

    virtual_run(main)
    assert world.calls == {"a": 1, "b": 1, "c": 1}


def test_an_edit_on_record_is_put_in_place_by_whoever_comes(world: World) -> None:
    """T2, E1: the process died after the word was written down and before the file was."""

    async def main() -> None:
        async with world.engine() as engine:
            run = (await engine.run({"steps": GATED})).run_id
            folder = world.folder / "work" / run
            draft = folder / ".rerail" / "edit" / "x" / "a.json"
            draft.parent.mkdir(parents=True)
            draft.write_bytes(b"[2]")
            digest = digest_of(draft)[0]
            file = FileMade("a.json", digest, "a", ".rerail/edit/x/a.json")
            loop = await engine._leases.acquire(run)
            loop.note(*confirm(loop.state, "c", "me", edits=Edits(files=[file])))
            await loop.commit()
            await engine._leases.release(loop.lease)
            assert (folder / "a.json").read_bytes() != b"[2]"
            assert (await engine.resume(run)).success
            assert (folder / "a.json").read_bytes() == b"[2]"
            archived = [path.read_bytes() for path in (folder / ".rerail" / "archive").rglob("a.json")]
            assert archived == [b'{"n": 1}']

    virtual_run(main)
    assert world.calls == {"a": 1, "b": 1, "c": 1}


def test_a_draft_is_for_the_content_it_was_given_for(world: World) -> None:
    """T2: once the step has made its file anew, an old draft does not take its place; nor does one from elsewhere."""

    async def main() -> None:
        async with world.engine() as engine:
            run = (await engine.run({"steps": GATED})).run_id
            folder = world.folder / "work" / run
            (world.folder / "foreign.json").write_text("[9]")
            draft = folder / ".rerail" / "edit" / "x" / "a.json"
            draft.parent.mkdir(parents=True)
            draft.write_bytes(b"[2]")
            state = await engine.internals.state(run)
            file = FileMade("a.json", digest_of(draft)[0], "a", ".rerail/edit/x/a.json")
            foreign = FileMade("sub/a.json", "", "b", "../../foreign.json")
            for event in confirm(state, "c", "me", edits=Edits(files=[file, foreign])):
                evolve(state, event, state.at, state.seq + 1)
            assert set(state.drafts) == {"a.json", "sub/a.json"}
            damaged([item for track in state.tracks.values() for item in files_of(track)][1:2], folder, state.drafts)
            assert (world.folder / "foreign.json").exists()
            state.tracks["a"].attempt += 1
            state.move(state.tracks["a"], Phase.RUNNING)
            evolve(
                state, StepSucceeded("a", state.tracks["a"].attempt, files={"a.json": "new"}), state.at, state.seq + 1
            )
            assert state.drafts["a.json"].digest == "new"
            assert not state.drafts["a.json"].draft.startswith(".rerail/edit/")

    virtual_run(main)


def test_edits_that_nobody_agreed_to_are_swept(world: World) -> None:
    """T2: once they are old; what is on record, or still to be asked about, and what is new, is left alone."""

    async def main() -> None:
        async with world.engine() as engine:
            run = (await engine.run({"steps": GATED})).run_id
            folder = world.folder / "work" / run
            for name in ("orphan", "recorded", "posted", "new"):
                draft = folder / ".rerail" / "edit" / name / "a.json"
                draft.parent.mkdir(parents=True)
                draft.write_bytes(b"[2]" if name == "recorded" else b"[3]")
                if name != "new":
                    os.utime(draft.parent, (1, 1))

            def drafted(name: str, digest: str = "") -> FileMade:
                return FileMade("a.json", digest, "a", f".rerail/edit/{name}/a.json")

            loop = await engine._leases.acquire(run)
            recorded = drafted("recorded", digest_of(folder / ".rerail" / "edit" / "recorded" / "a.json")[0])
            loop.note(*confirm(loop.state, "c", "me", edits=Edits(files=[recorded])))
            await loop.commit()
            await engine._leases.release(loop.lease)
            wish = Confirm(by="me", step="c", files=(drafted("posted"),))
            await engine._parts.store.post(run, msgspec.json.encode(wish))
            assert (await engine.resume(run)).success
            assert (folder / "a.json").read_bytes() == b"[2]"
            assert {path.name for path in (folder / ".rerail" / "edit").iterdir()} == {"posted", "new"}

    virtual_run(main)


def test_what_attempts_that_died_left_is_swept(world: World) -> None:
    """T1, V7: once it is old; where a call in doubt wrote is kept, for whoever finds out what became of it."""

    async def main() -> None:
        async with world.engine() as engine:
            doubtful = {
                "id": "d",
                "tool": "hang",
                "args": {"name": "d.json"},
                "produces": [{"path": "d.json", "format": "json"}],
            }
            found = await engine.run({"steps": [*GATED, doubtful]})
            assert found.status == "waiting"
            stage = world.folder / "work" / found.run_id / ".rerail" / "stage"
            [doubt] = stage.glob("d-*")
            for name in ("a-1-died", "a-1-new"):
                (stage / name).mkdir()
            for path in (doubt, stage / "a-1-died"):
                os.utime(path, (1, 1))
        async with world.engine() as engine:
            await engine.confirm(found.run_id, "c")
            assert (await engine.wait(found.run_id)).status == "waiting"
            await engine.resolve(found.run_id, "d", succeeded=1)
            assert (await engine.wait(found.run_id)).success
            left = {path.name for path in stage.iterdir()} if stage.is_dir() else set()
            assert left == {"a-1-new"}
            assert (stage.parent.parent / "d.json").read_text() == "[1]"

    virtual_run(main)


def test_a_late_attempt_does_not_write_over_a_newer_one(tmp_path: Path) -> None:
    """X4, T1: a thread that nobody can stop finds its call cancelled when it writes."""
    gate, late = threading.Event(), threading.Event()

    @rerail.tool(timeout=0.2)
    def write(ctx: rerail.Context) -> int:
        if ctx.attempt == 1:
            gate.wait(10)
            try:
                ctx.write_text("a.txt", "old")
            finally:
                late.set()
            return 1
        ctx.write_text("a.txt", "new")
        return ctx.attempt

    settings = {"retry": {"backoff_base": 0}}
    plan = {"steps": [{"id": "a", "tool": "write", "produces": ["a.txt"]}]}

    async def main() -> rerail.RunResult:
        async with rerail.Engine(f"sqlite:///{tmp_path}/r.db", [write], settings) as engine:
            result = await engine.run(plan)
            gate.set()
            await asyncio.to_thread(late.wait, 10)
            return result

    result = asyncio.run(main())
    assert result.success
    assert (tmp_path / "work" / result.run_id / "a.txt").read_text() == "new"


# -- What follows -------------------------------------------------------------------------------------------------

FOLLOWED = {
    "steps": [{**A, "stage": "one"}],
    "follow_up": {"steps": [step("f", "read", stage="two"), step("g", "send", args={"name": "g"}, stage="three")]},
}


def test_stages_of_what_follows_are_reached_from_its_parent(world: World) -> None:
    """T6: whether it failed or completed; --force without more means what is not done yet."""
    world.broken = {"f"}

    async def main() -> None:
        async with world.engine() as engine:
            run = await engine.start(FOLLOWED)
            await engine.wait(run)
            [child] = await engine.list(parent=run)
            await engine.wait(child.run_id)
            target, preview = await engine.begin_retry(run, force=True, dry_run=True)
            assert (target, preview.roots if preview else None) == (child.run_id, ("f",))
            world.broken = set()
            assert (await engine.retry(run)).success
            target, _ = await engine.begin_retry(run, stage="two", force=True, dry_run=True)
            assert target == child.run_id
            target, preview = await engine.begin_retry(run, stage="one", force=True, dry_run=True)
            assert target == run
            assert preview is not None
            assert preview.once == (f"g ({child.run_id})",)  # what follows starts anew, and would do it again

    virtual_run(main)


def test_mending_for_what_follows_counts(world: World) -> None:
    """T4, T6: the parent is done again because its follow-up is retried; that has a limit too."""
    world.broken = {"f"}

    async def main() -> None:
        async with world.engine() as engine:
            run = await engine.start(FOLLOWED)
            await engine.wait(run)
            for number in range(1, 5):
                [child, *_] = await engine.list(parent=run)
                await engine.wait(child.run_id)
                (world.folder / "work" / run / "a.json").write_text("{")
                if number == 4:
                    with pytest.raises(Refused) as refused:
                        await engine.retry(run)
                    assert refused.value.code == "RETRY_LIMIT"
                    return
                assert (await engine.retry(run)).retries == number

    virtual_run(main)
    assert world.calls["a"] == 4


def test_nothing_is_done_again_while_what_follows_is_at_work(world: World) -> None:
    """T6, T7: two runs do not write into one folder at once."""
    hold = asyncio.Event()

    @rerail.tool
    async def held() -> None:
        await hold.wait()

    plan = {"steps": [A], "follow_up": {"steps": [{"id": "f", "tool": "held"}]}}

    async def main() -> None:
        store = f"sqlite:///{world.folder}/runs.db"
        async with rerail.Engine(store, [*world.tools(), held], QUICK) as engine:
            run = await engine.start(plan)
            await engine.wait(run)
            [child] = await engine.list(parent=run)
            for options in ({"force": True, "steps": ["a"]}, {"force": True, "stage": None, "clean": True}):
                with pytest.raises(Refused) as refused:
                    await engine.retry(run, **options)
                assert refused.value.code == "RUN_LIVE"
                assert child.run_id in str(refused.value)
            hold.set()
            await engine.wait(child.run_id)

    asyncio.run(main())
    assert world.calls == {"a": 1}


def test_a_clean_start_that_was_killed_is_finished_by_the_next(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """T4: that the run starts over is on record, and its old files are still there: they go before its first step."""
    from rerail.engine.runs import retries

    world.broken = {"c"}

    async def died(*_: Any) -> None:
        raise StoreError("killed here")

    async def main() -> None:
        async with world.engine() as engine:
            run = (await engine.run({"steps": CHAIN})).run_id
            folder = world.folder / "work" / run
            (folder / "scratch.txt").write_text("mine")
            with monkeypatch.context() as patched:
                patched.setattr(retries, "cleared", died)
                with pytest.raises(StoreError, match="killed"):
                    await engine.retry(run, clean=True)
            head = await engine.internals.head(run)
            await engine._parts.store.release(Lease(run, head.owner, head.fence))  # type: ignore[arg-type]
            assert (folder / "scratch.txt").exists()
            world.broken = set()
            assert (await engine.retry(run)).success
            assert not (folder / "scratch.txt").exists()
            assert [path.name for path in (folder / ".rerail" / "backup").rglob("scratch.txt")] == ["scratch.txt"]

    virtual_run(main)


# -- Where files are to be --------------------------------------------------------------------------------------------


def making(**made: list[str]) -> list[dict[str, Any]]:
    """Steps that produce these files."""
    return [{"id": step, "tool": "make", "produces": files} for step, files in made.items()]


@pytest.mark.parametrize(
    ("steps", "said"),
    [
        (making(a=["out"], b=["out/x.json"]), "needs a folder there"),
        (making(a=["out/x.json"], b=["./out"]), "needs a folder there"),
        (making(a=["x/y", "x/y/z"]), "needs a folder there"),
        (making(a=["x.json"], b=[".//x.json"]), "made by step 'a' already"),
    ],
)
def test_a_file_where_another_needs_a_folder_is_refused(steps: list[dict[str, Any]], said: str) -> None:
    """T1: found before anything runs, however the paths are spelled."""
    faults = rerail.Plan.load({"steps": steps}).check()
    assert [fault.code for fault in faults] == ["BAD_FILE"]
    assert said in str(faults[0].message)


def test_what_follows_makes_no_file_of_its_parents() -> None:
    """T1, T6: both work in one folder, so the one would damage the other's."""
    plan = {"steps": making(a=["a.json"]), "follow_up": {"steps": making(b=["b.json"], c=["a.json"])}}
    [fault] = rerail.Plan.load(plan).check()
    assert (fault.code, fault.step) == ("BAD_FILE", "c")
    assert "made by step 'a' already" in str(fault.message)
    plan["follow_up"] = {"steps": making(b=["b.json"])}
    assert rerail.Plan.load(plan).check() == []


@pytest.mark.parametrize("act", ["confirm", "skip", "resolve"])
def test_a_clean_start_that_was_killed_is_finished_before_a_person_acts(
    world: World, monkeypatch: pytest.MonkeyPatch, act: str
) -> None:
    """T4, X7: nothing of what the run is to lose is there for what follows, nor taken for what a step left."""
    from rerail.engine.runs import retries

    async def died(*_: Any) -> None:
        raise StoreError("killed here")

    async def main() -> None:
        async with world.engine() as engine:
            run = (await engine.run({"steps": [step("g", "read", confirm=True), *CHAIN]})).run_id
            folder = world.folder / "work" / run
            assert (folder / "a.json").exists()
            (folder / "scratch.txt").write_text("mine")
            await engine.cancel(run)
            await engine.wait(run)
            with monkeypatch.context() as patched:
                patched.setattr(retries, "cleared", died)
                with pytest.raises(StoreError, match="killed"):
                    await engine.retry(run, clean=True)
            head = await engine.internals.head(run)
            await engine._parts.store.release(Lease(run, head.owner, head.fence))  # type: ignore[arg-type]
            assert (folder / "scratch.txt").exists()
            if act == "resolve":
                with pytest.raises(Refused) as refused:
                    await engine.resolve(run, "a", succeeded=None)
                assert refused.value.code == "FILE_DAMAGED"
            else:
                await (engine.confirm(run, "g") if act == "confirm" else engine.skip(run, "g"))
                assert (await engine.wait(run)).status == "completed"
            assert not (folder / "scratch.txt").exists()

    virtual_run(main)


def test_what_is_brought_back_from_a_backup_stays(world: World) -> None:
    """T4: files are taken away once; who brings one back while the run waits, times and all, has it."""
    import shutil

    async def main() -> None:
        async with world.engine() as engine:
            plan = {"steps": [step("g", "read", confirm=True), {**A, "needs": ["g"]}]}
            run = (await engine.run(plan)).run_id
            await engine.confirm(run)
            await engine.wait(run)
            await engine.retry(run, clean=True, force=True)
            place = world.folder / "work" / run / "a.json"
            assert not place.exists()
            [kept] = (world.folder / "work" / run / ".rerail" / "backup").rglob("a.json")
            shutil.copy2(kept, place)
            await engine.resolve(run, "a", succeeded=None)
            assert place.exists()

    virtual_run(main)


# -- Files that people put there ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["log-12:30.txt", "报告\u3000终.txt", "Task.json", "a\nb.txt", os.fsdecode(b"\xff.txt")]
)
def test_starting_over_keeps_files_of_any_name(world: World, name: str) -> None:
    """T4: a backup holds what is there, also what no step could declare; the dry run names it."""

    async def main() -> None:
        world.broken = {"b"}
        async with world.engine() as engine:
            run = (await engine.run({"steps": [A, step("b", "read", needs=["a"])]})).run_id
            folder = world.folder / "work" / run
            (folder / name).write_text("mine")
            _, preview = await engine.begin_retry(run, clean=True, dry_run=True)
            assert preview is not None and len(preview.backs_up) == 2
            msgspec.json.encode(preview.backs_up)  # as it can be shown
            world.broken.clear()
            assert (await engine.retry(run, clean=True)).success
            [backup] = (folder / ".rerail" / "backup").iterdir()
            assert (backup / name).read_text() == "mine" and not (folder / name).exists()

    virtual_run(main)


def test_a_long_name_of_wide_letters_can_be_written(tmp_path: Path) -> None:
    """T1: file systems count bytes, not letters."""
    path = tmp_path / ("报" * 83)
    write_whole(path, b"all of it")
    assert path.read_bytes() == b"all of it"
