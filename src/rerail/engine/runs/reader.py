"""Reads runs: find, watch, show. Nothing here writes.

Rules of this file:
- A client sees durable facts only: a live run's state is used while everything in it is committed.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeAlias, TypeVar, cast

import msgspec

from rerail.engine.files.placement import damaged, files_of
from rerail.engine.journal import BlobMissing, Contents
from rerail.engine.parts import EngineParts
from rerail.engine.refusals import refusals
from rerail.engine.run_loop import RunLoop
from rerail.engine.runs.owner import is_dead, is_interrupted
from rerail.errors import Refused, StoreError
from rerail.i18n import tell, words_of
from rerail.kernel import events as ev
from rerail.kernel.actions import track_named
from rerail.kernel.codec import Damaged, NewerFormat, decode
from rerail.kernel.events import Event, Record
from rerail.kernel.failure_memory import Lessons, learn
from rerail.kernel.fold import evolve
from rerail.kernel.state import State
from rerail.kernel.step_state import RunStatus, Track
from rerail.kernel.verdict import run_status
from rerail.ports import Head, Unavailable, Unusable
from rerail.values.json_values import unpack
from rerail.values.names import nearest
from rerail.values.redaction import Scrub
from rerail.views.audit import AuditEntry, audit
from rerail.views.results import RunResult, RunRow
from rerail.views.results import result as run_result
from rerail.views.why import story
from rerail.workspace import inside

P = ParamSpec("P")
R = TypeVar("R")
# The class below has a method named `list`, which hides the builtin from annotations inside it.
Records: TypeAlias = list[Record]
Rows: TypeAlias = list[dict[str, Any]]
RunRows: TypeAlias = list[RunRow]
Heads: TypeAlias = list[Head]

AT_REST = frozenset({str(RunStatus.COMPLETED), str(RunStatus.FAILED), str(RunStatus.CANCELLED)})
OPEN = (str(RunStatus.PENDING), str(RunStatus.RUNNING))
FORGOTTEN = "~memory"  # a history of its own: when the failure memory was cleared, and by which user
MAX_LESSONS = 100  # the latest runs that the failure memory learns from
MAX_AUDITED = 1_000  # runs that one audit reads
PAGE = 2000
LAST = 16  # the last events of a run at rest, which include its end


@dataclass(slots=True)
class LiveRun:
    """A run that this engine drives."""

    loop: RunLoop
    task: asyncio.Task[None]
    failing: float | None = None  # since when its lease cannot be renewed, in the event loop's time


class RunReader:
    """Answers questions about runs, live or finished."""

    def __init__(self, parts: EngineParts, live: Mapping[str, LiveRun]) -> None:
        """``live`` holds the runs that this engine drives."""
        self._parts, self._live = parts, live
        self._homes: dict[str, str] = {}  # runs → the runs that own their folder, if not they themselves

    async def find(self, run: str) -> str:
        """Return the full id for a run's id or unambiguous prefix."""
        return run if run in self._live else (await self.find_head(run)).run

    async def find_head(self, run: str) -> Head:
        """Return the head of a run, by its id or unambiguous prefix."""
        if not isinstance(run, str):
            raise Refused(tell("refuse.run.no_such_run", run=run), "RUN_UNKNOWN", hint=tell("hint.run.no_such_run"))
        with store_errors():
            if (found := await self._parts.store.head(run)) is not None:
                return found
            matches = await self._parts.store.heads(prefix=run, limit=10) if run else []
            if len(matches) == 1:
                return matches[0]
            if matches:
                names = ", ".join(head.run for head in matches)
                hint = tell("hint.run.run_ambiguous")
                raise Refused(tell("refuse.run.run_ambiguous", run=run, names=names), "RUN_AMBIGUOUS", hint=hint)
            near = nearest(run, [head.run for head in await self._parts.store.heads(limit=1000)])
        hint = tell("hint.run.did_you_mean", near=near) if near else tell("hint.run.no_such_run")
        raise Refused(tell("refuse.run.no_such_run", run=run), "RUN_UNKNOWN", hint=hint)

    async def head(self, run: str) -> Head:
        with store_errors():
            head = await self._parts.store.head(run)
        if head is None:
            raise Refused(tell("refuse.run.no_such_run", run=run), "RUN_UNKNOWN", hint=tell("hint.run.no_such_run"))
        return head

    def never_planned(self, head: Head) -> bool:
        """Whether a run was created and will get no plan: its creator is gone (contract E4)."""
        return not head.seq and is_dead(head, self._parts.clock.now())

    @property
    def scrub(self) -> Scrub:
        """The redactor of everything that leaves the engine."""
        return self._parts.performer.scrub

    def workspace(self, run: str) -> Path:
        """Return the folder for a run's files; it may not exist yet.

        A follow-up shares its parent's folder, which is known once its history was read here.
        """
        return self._parts.workspaces(self._homes.get(run, run))

    def note_home(self, state: State) -> None:
        """Remember which folder a run uses."""
        if state.home != state.run:
            self._homes[state.run] = state.home

    async def state(self, run: str) -> State:
        live = self._live.get(run)
        if live is not None and live.loop.journal.durable:
            return live.loop.state  # else it is ahead of the store
        return await self.folded(run)

    async def folded(self, run: str) -> State:
        """Return a run's state as a copy that may be changed."""
        state = State(run)
        async for record in self.records(run):
            evolve(state, record.event, record.at, record.seq)
        self.note_home(state)
        return state

    async def records(self, run: str, after: int = 0) -> AsyncIterator[Record]:
        while True:
            with store_errors():
                rows = await self._parts.store.read(run, after, PAGE)
            for row in rows:
                yield Record(run, row.seq, row.at, _decoded(run, row.seq, row.data))
            if len(rows) < PAGE:
                return
            after = rows[-1].seq

    async def events(self, run: str, after: int = 0) -> Records:
        found = [record async for record in self.records(run, after)]
        return found or [record async for record in self.records(await self.find(run), after)]

    async def page(self, run: str, after: int = 0, limit: int = PAGE) -> Records:
        with store_errors():
            rows = await self._parts.store.read(run, after, limit)
        return [Record(run, row.seq, row.at, _decoded(run, row.seq, row.data)) for row in rows]

    async def audit_trail(
        self, run: str | None = None, *, since: float = 0.0, by: str | None = None, refused: bool = False
    ) -> list[AuditEntry]:
        """Return the acts on a run, or on the latest runs, oldest first (contract I13)."""
        heads, rows = await self.heads(limit=MAX_AUDITED), list[AuditEntry]()
        if run is not None:
            heads = [await self.head(await self.find(run))]
        for head in heads:
            if head.updated_at >= since:
                rows += audit(await self.events(head.run))
        chosen = [row for row in rows if row.at >= since and row.by == (by or row.by) and (row.refused or not refused)]
        return sorted(chosen, key=lambda row: row.at)

    async def changed(self, run: str, after: int, seconds: float) -> bool:
        """Wait until a history grows past an event; False at the timeout."""
        with store_errors():
            return await self._parts.store.changed(run, after, seconds)

    async def watch(self, run: str, after: int = 0, *, until_waiting: bool = False) -> AsyncIterator[Record]:
        """Yield events as they come, after a sequence number; ends when the run is at rest and all is delivered.

        A run that waits for a user is watched on, until somewhere the user answers; ``until_waiting`` ends there, too.
        """
        run = await self.find(run)
        while True:
            async for record in self.records(run, after):
                after = record.seq
                yield record
            if run not in self._live:
                head = await self.head(run)
                waits = until_waiting and head.status == RunStatus.WAITING and head.owner is None
                if head.seq <= after and (waits or head.status in AT_REST or self.never_planned(head)):
                    return
            with store_errors():
                await self._parts.store.changed(run, after, 1.0)

    async def show(self, run: str) -> RunResult:
        """Return a run as it is now; live and finished runs look the same."""
        return await self.result(await self.state(await self.find(run)))

    async def result(self, state: State, contents: Contents | None = None) -> RunResult:
        outputs, args = await self._values(state, contents or Contents(self._parts.store, self._parts.memory))
        now, lost = self._parts.clock.now(), False
        if run_status(state) is RunStatus.RUNNING and state.run not in self._live:
            lost = is_interrupted(await self.head(state.run), now)
        # The time without an owner does not count; a resume does not count it either.
        found = run_result(state, outputs, state.at if lost else now, args=args, interrupted=lost)
        if state.seq:
            return found
        head = await self.head(state.run)  # all that is known of a run that never got its plan
        return replace(found, objective=head.objective, parent=head.parent, created_at=head.created_at)

    async def _values(self, state: State, contents: Contents) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return all outputs, and the latest calls' arguments that were too large for their events, if not expired."""
        with store_errors():
            outputs = {
                track.id: await contents.value(track.result) if track.result.blob else track.result.output
                for track in state.tracks.values()
                if track.result is not None and track.result.digest
            }
        found: dict[str, Any] = {}
        for track in state.tracks.values():
            if track.call is not None and track.call.args_blob:
                with store_errors(), contextlib.suppress(BlobMissing):
                    found[track.id] = unpack(await contents.get(track.call.args_blob))
        shown = [track.gate.shown for track in state.gates.values() if track.gate and track.gate.shown]
        calls = [call for one in shown for call in (one, one.before) if call is not None and call.args_blob]
        for call in calls if state.waiting else ():
            with store_errors(), contextlib.suppress(BlobMissing):
                found[call.args_blob] = unpack(await contents.get(call.args_blob))
        return outputs, found

    async def list(self, *, status: str | Sequence[str] = (), parent: str | None = None, limit: int = 100) -> RunRows:
        """Return rows of runs, newest first; ``status`` is one or several."""
        odd = {status} if isinstance(status, str) and status else set(status)
        if odd := odd.difference(RunStatus):
            told = {"words": ", ".join(sorted(odd)), "known": ", ".join(RunStatus)}
            raise Refused(tell("refuse.run.no_status", **told), "USAGE")
        return [await self.row(head) for head in await self.heads(status=status, parent=parent, limit=limit)]

    async def heads(
        self,
        *,
        status: str | Sequence[str] = (),
        parent: str | None = None,
        before: tuple[float, str] | None = None,
        limit: int = 100,
    ) -> Heads:
        """Return the heads of runs, newest first; no history is read.

        ``before`` is where the previous page ended: the time its last run was made, and that run's id.
        """
        wanted = (status,) if isinstance(status, str) else status
        with store_errors():
            heads = await self._parts.store.heads(status=wanted, parent=parent, before=before, limit=limit)
        return [head for head in heads if head.run != FORGOTTEN]

    async def unfinished(self) -> AsyncIterator[Head]:
        """Yield all runs that are driven or should be, newest first."""
        before: tuple[float, str] | None = None
        while page := await self.heads(status=OPEN, before=before, limit=PAGE):
            for head in page:
                yield head
            before = (page[-1].created_at, page[-1].run)

    async def row(self, head: Head) -> RunRow:
        return RunRow(
            head.run, RunStatus(head.status), head.objective, head.parent or None, head.created_at, head.updated_at,
            head.seq, str(head.owner) if head.owner is not None else None,
            interrupted=is_interrupted(head, self._parts.clock.now()),
            degraded=head.status == RunStatus.COMPLETED and await self._ended_degraded(head),
        )  # fmt: skip

    async def _ended_degraded(self, head: Head) -> bool:
        """Whether a run at rest is degraded; its last events say so."""
        with store_errors():
            rows = await self._parts.store.read(head.run, max(0, head.seq - LAST), LAST)
        try:
            events = [_decoded(head.run, row.seq, row.data) for row in rows]
        except StoreError:
            return False  # the run's own page reports the damage; a list goes on
        ends = [event for event in events if isinstance(event, ev.Done)]
        return bool(ends) and ends[-1].degraded

    async def why(self, run: str, step: str | None = None, lang: str = "en") -> str:
        """Return the story of a run, or of one of its steps, in prose."""
        run = await self.find(run)
        state = await self.state(run)
        if step is not None:
            with refusals():
                track_named(state, step)
        return story(state, await self.events(run), step, lang)

    async def artifact(self, run: str, name: str) -> Any:
        """Return a step's output by its name, or a file that a step produced."""
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
        return await self.kept_value(run, track, track.result.digest)

    async def kept_value(self, run: str, track: Track, name: str) -> Any:
        """Return a value that is kept in the store; `Refused` if it expired."""
        try:
            with store_errors():
                return unpack(await Contents(self._parts.store, 1).get(name))
        except BlobMissing as gone:
            hint = tell("hint.run.artifact_gone", run=run, step=track.id)
            told = tell("refuse.run.artifact_gone", name=track.id, reason=gone.reason)
            raise Refused(told, "ARTIFACT_GONE", hint=hint) from None

    async def artifact_bytes(self, run: str, name: str) -> tuple[bytes, str]:
        """Return an artifact as bytes with its media type: an output as JSON, a file as it is."""
        run = await self.find(run)
        state = await self.state(run)
        track = state.tracks.get(name)
        for maker in state.tracks.values() if track is None or track.result is None else ():
            if maker.result is not None and name in maker.result.files:
                media = {row["name"]: row["media"] for row in await self.artifacts(run)}
                return (await self._read(state, maker, name))[0], media.get(name, "application/octet-stream")
        return msgspec.json.encode(await self.artifact(run, name)), "application/json"

    async def large_args(self, records: Sequence[Record], step: str) -> dict[str, Any]:
        """Return the arguments of a step's calls that were too large for their events, by content name."""
        contents, found = Contents(self._parts.store, self._parts.memory), {}
        for record in records:
            if isinstance(record.event, ev.StepStarted) and record.event.step == step and record.event.args_blob:
                with store_errors(), contextlib.suppress(BlobMissing):
                    found[record.event.args_blob] = unpack(await contents.get(record.event.args_blob))
        return found

    async def _file(self, state: State, track: Track, name: str) -> Any:
        """Return a file's content: data where it is JSON, else text."""
        data, kind = await self._read(state, track, name)
        return msgspec.json.decode(data) if kind == "json" else data.decode("utf-8", "replace")

    async def _read(self, state: State, track: Track, name: str) -> tuple[bytes, str]:
        """Return a file's bytes and kind; `Refused` if it changed since its step produced it."""
        [wanted] = [item for item in files_of(track) if item.file.path == name]
        folder = self._parts.workspaces(state.home)
        spoilt = await asyncio.to_thread(damaged, [wanted], folder, state.drafts)
        if spoilt:
            hint = tell("hint.run.artifact_gone", run=state.run, step=track.id)
            told = tell("refuse.run.artifact_gone", name=name, reason=spoilt[0].reason)
            raise Refused(told, "FILE_DAMAGED", hint=hint)
        return await asyncio.to_thread(inside(folder, name).read_bytes), wanted.file.kind

    async def artifacts(self, run: str) -> Rows:
        """Return the artifacts of a run: name, producer, digest, size."""
        run = await self.find(run)
        latest: dict[str, dict[str, Any]] = {}
        async for record in self.records(run):
            if isinstance(record.event, ev.ArtifactCreated):
                made = record.event
                latest[made.name] = {
                    "name": made.name, "step": made.step, "attempt": made.attempt, "digest": made.digest,
                    "size": made.size, "media": made.media, "at": record.at,
                }  # fmt: skip
        return list(latest.values())

    # -- Failure memory (H10) -------------------------------------------------------------------------------------

    async def memory(self) -> Rows:
        """Return which rung worked in the latest runs, and how often, by tool and error."""
        lessons = await self.lessons()
        return [{"failure": key, "rung": rung, "worked": count} for (key, rung), count in lessons.most_common()]

    async def lessons(self) -> Lessons:
        """Return what worked in the latest runs since the memory was cleared."""
        lessons: Lessons = Counter()
        with store_errors():
            forgotten = await self._parts.store.head(FORGOTTEN)
            heads = await self._parts.store.heads(limit=MAX_LESSONS)
        since = (await self.state(FORGOTTEN)).at if forgotten is not None else 0.0
        for head in heads:
            if head.run != FORGOTTEN and head.updated_at > since:
                learn([record async for record in self.records(head.run) if record.at > since], lessons)
        return lessons


def _decoded(run: str, seq: int, data: bytes) -> Event:
    try:
        return decode(data)
    except NewerFormat as error:
        told = tell("refuse.run.store_newer", run=run, error=error)
        raise StoreError(told, "STORE_NEWER", hint=tell("hint.run.store_newer")) from None
    except Damaged as error:
        raise StoreError(tell("refuse.run.event_damaged", seq=seq, run=run, error=error)) from None


@contextlib.contextmanager
def store_errors() -> Any:
    try:
        yield
    except Unusable as error:
        raise StoreError(words_of(error), error.code) from error
    except Unavailable as error:
        raise StoreError(tell("refuse.store.out_of_reach", error=error)) from error


def part(name: str, method: Callable[Concatenate[Any, P], R]) -> Callable[Concatenate[Any, P], R]:
    """Return a method that one of the parts implements; `Refused` while the engine is not open."""

    @functools.wraps(method)
    def delegate(self: Any, /, *args: P.args, **options: P.kwargs) -> R:
        if not self.is_open:
            raise not_open()
        return method(getattr(self, name), *args, **options)

    return cast("Callable[Concatenate[Any, P], R]", delegate)


def not_open() -> Refused:
    """Return the refusal of an engine that is not open."""
    return Refused(tell("refuse.settings.not_open"), "USAGE", hint=tell("hint.settings.not_open"))
