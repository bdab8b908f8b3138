"""Reading runs: finding, watching, showing. Nothing here writes.

Rules of this file:
- What a reader is told is durable: a live run's state is used only while all of it has been written down for good.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import msgspec

from rerail.core import events as ev
from rerail.core.codec import Damaged, NewerFormat, decode
from rerail.core.events import Event, Record
from rerail.core.fold import evolve
from rerail.core.memory import Lessons, learn
from rerail.core.nearest import nearest
from rerail.core.scrub import Scrub
from rerail.core.state import State
from rerail.core.track import RunStatus, Track
from rerail.core.values import unpack
from rerail.core.verdict import run_status
from rerail.core.views import RunResult, RunRow, result
from rerail.core.why import story
from rerail.engine.files import damaged, files_of
from rerail.engine.loop import Host, RunLoop
from rerail.engine.outputs import Contents, Gone
from rerail.engine.owner import is_dead
from rerail.errors import Refused, StoreError
from rerail.i18n import tell, words_of
from rerail.ports import Head, Unavailable, Unusable
from rerail.workspace import inside

# The class below has a method named `list`, which hides the builtin from annotations inside it.
Records: TypeAlias = list[Record]
Rows: TypeAlias = list[dict[str, Any]]
RunRows: TypeAlias = list[RunRow]
Heads: TypeAlias = list[Head]

AT_REST = frozenset({str(RunStatus.COMPLETED), str(RunStatus.FAILED), str(RunStatus.CANCELLED)})
OPEN = (str(RunStatus.PENDING), str(RunStatus.RUNNING))
FORGOTTEN = "~memory"  # a history of its own: when the failure memory was cleared, and by whom
LEARN_FROM = 100  # runs
PAGE = 2000
LAST = 16  # events of a run at rest among which its end is


@dataclass(slots=True)
class Live:
    """A run that this engine drives."""

    loop: RunLoop
    task: asyncio.Task[None]
    failing: float | None = None  # since when its lease cannot be renewed, by the loop's clock


class Reader:
    """Everything that can be asked of runs, live or finished."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._live: dict[str, Live] = {}
        self._homes: dict[str, str] = {}  # runs → those whose folder they use, if not their own

    async def find(self, run: str) -> str:
        """The id that a run's id or unambiguous prefix stands for."""
        if run in self._live:
            return run
        with store_errors():
            if await self._host.store.head(run) is not None:
                return run
            matches = await self._host.store.heads(prefix=run, limit=10) if run else []
            if len(matches) == 1:
                return matches[0].run
            if matches:
                names = ", ".join(head.run for head in matches)
                raise Refused(
                    tell("refuse.run.run_ambiguous", run=run, names=names),
                    "RUN_AMBIGUOUS",
                    hint=tell("hint.run.run_ambiguous"),
                )
            near = nearest(run, [head.run for head in await self._host.store.heads(limit=1000)])
        hint = tell("hint.run.did_you_mean", near=near) if near else tell("hint.run.no_such_run")
        raise Refused(tell("refuse.run.no_such_run", run=run), "RUN_UNKNOWN", hint=hint)

    async def head(self, run: str) -> Head:
        """A run as lists show it, with its owner."""
        with store_errors():
            head = await self._host.store.head(run)
        if head is None:
            raise Refused(tell("refuse.run.no_such_run", run=run), "RUN_UNKNOWN", hint=tell("hint.run.no_such_run"))
        return head

    @property
    def scrub(self) -> Scrub:
        """What keeps secrets out of all that leaves."""
        return self._host.performer.scrub

    def workspace(self, run: str) -> Path:
        """The folder where a run keeps its files; it need not be there yet.

        A follow-up shares its parent's, which is known once its history was read here.
        """
        return self._host.workspaces(self._homes.get(run, run))

    async def state(self, run: str) -> State:
        """A run's state, folded from its history."""
        live = self._live.get(run)
        if live is not None and live.loop.durable:
            return live.loop.state  # else it is ahead of what is written down for good
        return await self._folded(run)

    async def _folded(self, run: str) -> State:
        """The same, as a state of one's own, which may be changed."""
        state = State(run)
        async for record in self._records(run):
            evolve(state, record.event, record.at, record.seq)
        if state.home != run:
            self._homes[run] = state.home
        return state

    async def _records(self, run: str, after: int = 0) -> AsyncIterator[Record]:
        while True:
            with store_errors():
                rows = await self._host.store.read(run, after, PAGE)
            for row in rows:
                yield Record(run, row.seq, row.at, _decoded(run, row.seq, row.data))
            if len(rows) < PAGE:
                return
            after = rows[-1].seq

    async def events(self, run: str, after: int = 0) -> Records:
        """The history so far."""
        return [record async for record in self._records(await self.find(run), after)]

    async def page(self, run: str, after: int = 0, limit: int = PAGE) -> Records:
        """The next events of a history, so many at most; empty at its end."""
        with store_errors():
            rows = await self._host.store.read(run, after, limit)
        return [Record(run, row.seq, row.at, _decoded(run, row.seq, row.data)) for row in rows]

    async def changed(self, run: str, after: int, seconds: float) -> bool:
        """Wait until a history goes past an event, whoever writes it; False once the time is over."""
        with store_errors():
            return await self._host.store.changed(run, after, seconds)

    async def watch(self, run: str, after: int = 0) -> AsyncIterator[Record]:
        """Events as they come, from a sequence number on; ends when the run is at rest and all is delivered."""
        run = await self.find(run)
        while True:
            async for record in self._records(run, after):
                after = record.seq
                yield record
            head = await self.head(run)
            if head.seq <= after:
                if head.status in AT_REST:
                    return
                with store_errors():
                    await self._host.store.changed(run, after, 1.0)

    async def show(self, run: str) -> RunResult:
        """A run as it is now; the same object for a live or finished run."""
        run = await self.find(run)
        state = await self.state(run)
        return await self._result(state, abandoned=run not in self._live and await self._is_abandoned(state))

    async def _is_abandoned(self, state: State) -> bool:
        """Whether a run should be driven, and nobody does."""
        return run_status(state) is RunStatus.RUNNING and is_dead(await self.head(state.run), self._host.clock.now())

    async def _result(self, state: State, contents: Contents | None = None, *, abandoned: bool = False) -> RunResult:
        outputs, args = await self._outputs(state, contents), await self._large_args(state, contents)
        # Time that nobody spends is not spent: a resume will not count it either.
        return result(state, outputs, state.at if abandoned else self._host.clock.now(), args=args)

    async def _large_args(self, state: State, contents: Contents | None = None) -> dict[str, Any]:
        """The arguments of the latest calls that were too large for their events; those that are gone are left out."""
        contents = contents or Contents(self._host.store, self._host.memory)
        found: dict[str, Any] = {}
        for track in state.tracks.values():
            if track.call is not None and track.call.args_blob:
                with store_errors(), contextlib.suppress(Gone):
                    found[track.id] = unpack(await contents.get(track.call.args_blob))
        shown = [track.gate.shown for track in state.gates.values() if track.gate and track.gate.shown]
        calls = [call for one in shown for call in (one, one.before) if call is not None and call.args_blob]
        for call in calls if state.waiting else ():
            with store_errors(), contextlib.suppress(Gone):
                found[call.args_blob] = unpack(await contents.get(call.args_blob))
        return found

    async def _outputs(self, state: State, contents: Contents | None = None) -> dict[str, Any]:
        contents = contents or Contents(self._host.store, self._host.memory)
        with store_errors():
            return {
                track.id: await contents.value(track.result)
                for track in state.tracks.values()
                if track.result is not None and track.result.digest
            }

    async def list(self, *, status: Sequence[str] = (), parent: str | None = None, limit: int = 100) -> RunRows:
        """Runs, newest first."""
        return [await self.row(head) for head in await self.heads(status=status, parent=parent, limit=limit)]

    async def heads(
        self,
        *,
        status: Sequence[str] = (),
        parent: str | None = None,
        before: tuple[float, str] | None = None,
        limit: int = 100,
    ) -> Heads:
        """Runs as the store lists them, newest first: all that can be known without reading their histories.

        ``before`` is where a list like this ended: when its last run was made, and its id.
        """
        with store_errors():
            heads = await self._host.store.heads(status=status, parent=parent, before=before, limit=limit)
        return [head for head in heads if head.run != FORGOTTEN]

    async def unfinished(self) -> AsyncIterator[Head]:
        """All runs that somebody drives or should drive, newest first."""
        before: tuple[float, str] | None = None
        while page := await self.heads(status=OPEN, before=before, limit=PAGE):
            for head in page:
                yield head
            before = (page[-1].created_at, page[-1].run)

    async def row(self, head: Head) -> RunRow:
        """A run as lists show it."""
        return RunRow(
            head.run, head.status, head.objective, head.parent or None, head.created_at, head.updated_at, head.seq,
            str(head.owner) if head.owner is not None else None,
            interrupted=head.status == RunStatus.RUNNING and is_dead(head, self._host.clock.now()),
            degraded=head.status == RunStatus.COMPLETED and await self._ended_degraded(head),
        )  # fmt: skip

    async def _ended_degraded(self, head: Head) -> bool:
        """Whether a run at rest is degraded; its end says so, and the rest of its history need not be read."""
        with store_errors():
            rows = await self._host.store.read(head.run, max(0, head.seq - LAST), LAST)
        try:
            events = [_decoded(head.run, row.seq, row.data) for row in rows]
        except StoreError:
            return False  # its own page says what is wrong with it; a list goes on
        ends = [event for event in events if isinstance(event, ev.Done)]
        return bool(ends) and ends[-1].degraded

    async def why(self, run: str, step: str | None = None, lang: str = "en") -> str:
        """The story of a run, or of one of its steps, as a person would tell it."""
        run = await self.find(run)
        state = await self.state(run)
        if step is not None and step not in state.tracks:
            near = nearest(step, state.tracks)
            hint = tell("hint.run.did_you_mean", near=near) if near else tell("hint.run.see_run", run=run)
            raise Refused(tell("refuse.run.step_unknown", run=run, step=step), "STEP_UNKNOWN", hint=hint)
        return story(state, await self.events(run), step, lang)

    async def artifact(self, run: str, name: str) -> Any:
        """A named output of a step, from wherever it is kept; or a file that one left in the workspace."""
        run = await self.find(run)
        state = await self.state(run)
        track = state.tracks.get(name)
        if track is None or track.result is None:
            made = [one for one in state.tracks.values() if one.result is not None]
            for maker in made:
                if maker.result is not None and name in maker.result.files:
                    return await self._file(state, maker, name)
            near = nearest(name, [word for one in made if one.result for word in (one.id, *one.result.files)])
            hint = tell("hint.run.did_you_mean", near=near) if near else tell("hint.run.artifact_unknown", run=run)
            raise Refused(tell("refuse.run.artifact_unknown", run=run, name=name), "STEP_UNKNOWN", hint=hint)
        if not track.result.blob:
            return track.result.output
        return await self._kept(run, track, track.result.digest)

    async def _kept(self, run: str, track: Track, name: str) -> Any:
        """A value of a step that is kept in the store; `Refused` if it is gone."""
        try:
            with store_errors():
                return unpack(await Contents(self._host.store, 1).get(name))
        except Gone as gone:
            raise Refused(
                tell("refuse.run.artifact_gone", name=track.id, reason=gone.reason),
                "ARTIFACT_GONE",
                hint=tell("hint.run.artifact_gone", run=run, step=track.id),
            ) from None

    async def artifact_bytes(self, run: str, name: str) -> tuple[bytes, str]:
        """The same as bytes, with their media type: an output as JSON, a file as it is."""
        run = await self.find(run)
        state = await self.state(run)
        track = state.tracks.get(name)
        for maker in state.tracks.values() if track is None or track.result is None else ():
            if maker.result is not None and name in maker.result.files:
                media = {row["name"]: row["media"] for row in await self.artifacts(run)}
                return (await self._read(state, maker, name))[0], media.get(name, "application/octet-stream")
        return msgspec.json.encode(await self.artifact(run, name)), "application/json"

    async def large_args(self, records: Sequence[Record], step: str) -> dict[str, Any]:
        """The arguments of a step's calls that were too large for their events, by the name they are kept under."""
        contents, found = Contents(self._host.store, self._host.memory), {}
        for record in records:
            if isinstance(record.event, ev.StepStarted) and record.event.step == step and record.event.args_blob:
                with store_errors(), contextlib.suppress(Gone):
                    found[record.event.args_blob] = unpack(await contents.get(record.event.args_blob))
        return found

    async def _file(self, state: State, track: Track, name: str) -> Any:
        """What a file of the workspace says: data where it is JSON, else text."""
        data, kind = await self._read(state, track, name)
        return msgspec.json.decode(data) if kind == "json" else data.decode("utf-8", "replace")

    async def _read(self, state: State, track: Track, name: str) -> tuple[bytes, str]:
        """A file of the workspace, only as its step left it; and how it is read."""
        [wanted] = [item for item in files_of(track) if item.file.path == name]
        folder = self._host.workspaces(state.home)
        spoilt = await asyncio.to_thread(damaged, [wanted], folder, state.drafts)
        if spoilt:
            raise Refused(
                tell("refuse.run.artifact_gone", name=name, reason=spoilt[0].reason),
                "FILE_DAMAGED",
                hint=tell("hint.run.artifact_gone", run=state.run, step=track.id),
            )
        return await asyncio.to_thread(inside(folder, name).read_bytes), wanted.file.kind

    async def artifacts(self, run: str) -> Rows:
        """The artifacts of a run: name, producer, digest, size."""
        run = await self.find(run)
        latest: dict[str, dict[str, Any]] = {}
        async for record in self._records(run):
            if isinstance(record.event, ev.ArtifactCreated):
                made = record.event
                latest[made.name] = {
                    "name": made.name, "step": made.step, "attempt": made.attempt, "digest": made.digest,
                    "size": made.size, "media": made.media, "at": record.at,
                }  # fmt: skip
        return list(latest.values())

    # -- Failure memory (H10) -------------------------------------------------------------------------------------

    async def memory(self) -> Rows:
        """What the latest runs teach: per tool and error, which rung worked, and how often."""
        lessons = await self._lessons()
        return [{"failure": key, "rung": rung, "worked": count} for (key, rung), count in lessons.most_common()]

    async def _lessons(self) -> Lessons:
        lessons: Lessons = Counter()
        with store_errors():
            forgotten = await self._host.store.head(FORGOTTEN)
            heads = await self._host.store.heads(limit=LEARN_FROM)
        since = (await self.state(FORGOTTEN)).at if forgotten is not None else 0.0
        for head in heads:
            if head.run != FORGOTTEN and head.updated_at > since:
                learn([record async for record in self._records(head.run) if record.at > since], lessons)
        return lessons


def _decoded(run: str, seq: int, data: bytes) -> Event:
    try:
        return decode(data)
    except NewerFormat as error:
        raise StoreError(
            tell("refuse.run.store_newer", run=run, error=error), "STORE_NEWER", hint=tell("hint.run.store_newer")
        ) from None
    except Damaged as error:
        raise StoreError(tell("refuse.run.event_damaged", seq=seq, run=run, error=error)) from None


@contextlib.contextmanager
def store_errors() -> Any:
    """What a store cannot do, as the exception that callers catch."""
    try:
        yield
    except Unusable as error:
        raise StoreError(words_of(error), error.code) from error
    except Unavailable as error:
        raise StoreError(tell("refuse.store.out_of_reach", error=error)) from error
