"""Histories that earlier versions wrote: today's code reads them as they were meant, and goes on with them (E5).

The files in the folders beside this one were written by `make.py`: those in `first` by the first code that ran, before
any release, the others by the version that their folder names. They are never written again.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest
from tests.histories.make import QUICK, Script, fields, summary

import rerail
from rerail.adapters.stores.memory import MemoryStore
from rerail.kernel.codec import FORMAT, NewerFormat, decode, encode
from rerail.kernel.events import Event, Record
from rerail.kernel.fold import fold
from rerail.ports import Batch, Head, Owner
from rerail.testing import VirtualClock, virtual_run
from rerail.views.graph import Graph
from rerail.views.narration import Narrator

HERE = Path(__file__).parent
FILES = {f"{path.parent.name}-{path.stem}": path for path in sorted(HERE.glob("*/*.jsonl"))}
# Types that today's code reads and no version has ever written.
NEVER = {"artifact_lost"}
# Where today's code means to see something else than the version that wrote it: steps that are added are a revision.
OTHERWISE: dict[str, dict[str, Any]] = {"first-acted": {"revision": 2}}


class Line(msgspec.Struct):
    """One event in its file."""

    run: str
    seq: int
    at: float
    event: msgspec.Raw


class Golden(NamedTuple):
    """A file: what its version made of it, and its events as they were stored."""

    said: dict[str, Any]
    lines: list[Line]

    @property
    def clock(self) -> VirtualClock:
        """A clock that goes on where the history ends: contents are kept for a day, whenever this test is run."""
        return VirtualClock(self.lines[-1].at + 1)

    def records(self, run: str) -> list[Record]:
        """The history of one of its runs."""
        return [Record(run, line.seq, line.at, decode(bytes(line.event))) for line in self.lines if line.run == run]

    async def store(self) -> MemoryStore:
        """A store that holds it, byte by byte."""
        store = MemoryStore()
        for run, said in self.said["runs"].items():
            lines = [line for line in self.lines if line.run == run]
            at = lines[0].at
            await store.create(Head(run, status=said["status"], parent=self.said["parents"][run], created_at=at))
            lease = await store.claim(run, Owner("elsewhere", 1, 1.0), at)
            rows = [(line.at, bytes(line.event)) for line in lines]
            blobs = {digest: content.encode() for digest, content in self.said["blobs"].items()}
            await store.append(Batch(run, 0, rows, lease.fence, blobs, said["status"]))
            await store.release(lease)
        return store


def read(name: str) -> Golden:
    """A file, by its name."""
    first, *rest = FILES[name].read_bytes().splitlines()
    return Golden(msgspec.json.decode(first), [msgspec.json.decode(line, type=Line) for line in rest])


def test_no_event_type_is_without_a_history() -> None:
    """E5: whoever adds one adds a history that has it, so that later versions are held to it."""
    known = {str(kind.__struct_config__.tag) for kind in Event.__args__}
    held = {record.type for name in FILES for golden in [read(name)] for run in golden.said["runs"]
            for record in golden.records(run)}  # fmt: skip
    assert known - held == NEVER
    assert {path.parent.name for path in FILES.values()} >= {"first", rerail.__version__}


@pytest.mark.parametrize("name", FILES)
def test_a_history_is_read_as_it_was_meant(name: str) -> None:
    """E5, V1, V2: the same verdict, and the same row for each step."""
    golden = read(name)

    async def look() -> dict[str, Any]:
        async with rerail.Engine(await golden.store(), clock=golden.clock) as engine:
            return {run: summary(await engine.show(run)) for run in golden.said["runs"]}

    expected = {run: {**said, **OTHERWISE.get(name, {})} for run, said in golden.said["runs"].items()}
    assert msgspec.to_builtins(virtual_run(look)) == expected


@pytest.mark.parametrize("name", FILES)
def test_every_view_shows_it(name: str) -> None:
    """E5, I1: events as data and as lines, its story and its graph; and what is read can be written."""
    golden = read(name)

    async def stories() -> None:
        async with rerail.Engine(await golden.store(), clock=golden.clock) as engine:
            for run in golden.said["runs"]:
                assert (await engine.why(run)) and (await engine.show(run)).to_dict()["run_id"] == run

    virtual_run(stories)
    for run in golden.said["runs"]:
        records = golden.records(run)
        state = fold(run, records)
        assert Graph.of_state(state).measures()[0]
        for record in records:
            assert decode(encode(record.event)) == record.event
            assert record.to_dict()["type"] == record.type
        told = [Narrator(state, lang).line(record.event) for lang in ("en", "zh") for record in records]
        assert sum(one is not None for one in told) > len(records) / 2


# What is done to a history, by kind, and then: how it ends, and which steps are called.
async def retry(engine: rerail.Engine) -> Any:
    return await engine.retry("run")


async def resume(engine: rerail.Engine) -> Any:
    return await engine.resume("run")


async def confirm(engine: rerail.Engine) -> Any:
    await engine.confirm("run")
    return await engine.wait("run")


async def resolve(engine: rerail.Engine) -> Any:
    await engine.resolve("run", "b", succeeded="it was sent")
    return await engine.wait("run")


async def forced(engine: rerail.Engine) -> Any:
    with pytest.raises(rerail.Refused):
        await engine.retry("run")
    return await engine.retry("run", steps=["a"], force=True)


async def forced_and_confirmed(engine: rerail.Engine) -> Any:
    assert (await forced(engine)).status == "waiting", "a yes was used up by success (X10)"
    return await confirm(engine)


async def forced_and_refused(engine: rerail.Engine) -> Any:
    assert (await forced(engine)).status == "waiting"
    with pytest.raises(rerail.Refused, match="approve"):
        await engine.confirm("run")
    await engine.skip("run", "a")
    return await engine.wait("run")


async def agreed_again(engine: rerail.Engine) -> Any:
    assert (await engine.retry("run", steps=["c"], force=True)).status == "waiting"
    return await confirm(engine)


THEN: dict[str, tuple[Any, list[str]]] = {
    "plain": (forced, ["a", "b"]), "success": (forced, ["a", "b"]), "failed": (retry, ["b", "c"]),
    "retried": (forced, ["a", "b", "c"]), "gate": (confirm, ["b"]), "doubt": (resolve, ["c"]),
    "interrupted": (resume, ["b", "c"]), "acted": (retry, ["a", "c", "d"]), "stopped": (retry, ["a", "b", "c", "d"]),
    "staged": (retry, ["learn"]), "replanned": (forced, ["a"]), "repaired": (forced, ["a", "b"]),
    "refused": (retry, ["b"]), "consulted": (forced, ["a"]), "verified": (forced, ["a", "b"]),
    "healed": (forced, ["a"]), "lost": (forced_and_confirmed, ["a", "b"]), "agreed": (agreed_again, ["c"]),
    "cleanup": (forced, ["a", "b", "free"]), "audited": (forced_and_refused, []),
}  # fmt: skip
CHANGED = {"a": ["something else"]}  # so that what depends on it has to look again


@pytest.mark.parametrize("name", FILES)
def test_a_history_goes_on(name: str, tmp_path: Path) -> None:
    """E5, E1, R3: what a person would do next is done, by today's code and tools; what is done is not done again."""
    golden = read(name)
    act, calls = THEN[name.rpartition("-")[2]]
    home = tmp_path / "run"
    home.mkdir()
    for file, content in golden.said["files"].items():
        (home / file).write_text(content)
    script = Script(**(CHANGED if act in (forced, forced_and_confirmed) else {}))

    async def go_on() -> Any:
        store = await golden.store()
        async with rerail.Engine(store, script.tools(), QUICK, clock=golden.clock, workspace=tmp_path) as engine:
            return await act(engine)

    result = virtual_run(go_on)
    assert result.status == "completed", result.summary
    assert script.calls == calls


# Classes that have another name by now; their tags are the same.
RENAMED = {"Asked": "QuestionAsked"}


@pytest.mark.parametrize("version", ["first", rerail.__version__])
def test_what_is_left_out_of_an_event_means_the_same_for_ever(version: str) -> None:
    """E5: values that are the default are not written down, so a default never changes, and new fields have one."""
    then = msgspec.json.decode((HERE / version / "fields.json").read_bytes())
    now = msgspec.json.decode(msgspec.json.encode(fields()))
    for class_then, known in then.items():
        kind = RENAMED.get(class_then, class_then)
        changed = {
            name: (value, now[kind].get(name)) for name, value in known.items() if now[kind].get(name, ...) != value
        }
        assert changed == {}, kind
        assert [name for name, value in now[kind].items() if name not in known and value == "(required)"] == []


def test_what_a_newer_version_wrote_is_refused_by_name() -> None:
    """E5: an event type or a format that is not known is never guessed at."""
    with pytest.raises(NewerFormat, match="step_teleported"):
        decode(b'{"type":"step_teleported","step":"a"}')
    with pytest.raises(NewerFormat, match=str(FORMAT + 1)):
        decode(b'{"v":%d,"type":"step_renewed","step":["a"]}' % (FORMAT + 1))
    assert decode(b'{"type":"step_renewed","step":"a","colour":"red"}') == decode(b'{"type":"step_renewed","step":"a"}')
