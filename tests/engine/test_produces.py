"""Files that steps produce, through the engine: checked, on record, made again when they rot (T1, T3, T4, P5)."""

from __future__ import annotations

import errno
import os
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import rerail
from rerail.core.events import RetryBegin
from rerail.engine.wishes import Wish
from rerail.errors import PlanError, Refused, StoreError
from rerail.ports import Batch, Unusable
from rerail.testing import VirtualClock, virtual_run

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

        @rerail.tool(effect="read")
        async def is_short(path: str) -> bool:
            return len(Path(path).read_bytes()) < 20

        @rerail.tool(effect="read")
        async def is_odd(path: str) -> None:
            if len(Path(path).read_bytes()) % 2 == 0:
                raise ValueError("an even number of bytes")

        return [write, send, read, is_short, is_odd]

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
        (["a.json", "a.json"], "a file is one step's alone"), ([{"path": "a", "format": "xml"}], "no format"),
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
            await engine._act(result.run_id, Wish("confirm", "somebody else, a moment earlier"))
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
    from rerail.adapters.stores.sqlite import SqliteStore

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
            assert (await engine.state(child.run_id)).home == run
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
