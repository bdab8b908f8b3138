"""Health checks of a store, run by run, and the repairs that need no decision of a user.

Rules of this file:
- Checks change nothing. One unreadable run does not stop the check of the others.
- A repair loses nothing: leases of dead owners, commands that no process can apply, contents without a run.
  A history of an unlisted run is different: it is reported, and a user decides.
  A file with broken pages is never written to.
- Stores are accessed by their port alone.
"""

from __future__ import annotations

import shlex
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from rerail.engine.maintenance.prune import ALL
from rerail.engine.refusals import encode_answer
from rerail.engine.runs.owner import as_driven, is_arriving, is_dead, this_process
from rerail.engine.runs.reader import AT_REST, FORGOTTEN
from rerail.errors import Refused
from rerail.i18n import tell, words_of
from rerail.kernel import events as ev
from rerail.kernel.codec import Damaged, NewerFormat, decode
from rerail.kernel.events import Event
from rerail.kernel.step_state import RunStatus
from rerail.ports import Conflict, Flaw, Head, Store, Taken, Unusable
from rerail.values.json_values import digest

REPAIR: Final = "rerail doctor --repair"
PAGE: Final = 500  # rows per read


@dataclass(frozen=True, slots=True)
class Finding:
    """One fault."""

    kind: str  # pages | history | content | lease | copy | wish | orphans | workspace | unplanned
    where: str  # the run, or the folder; empty: the store itself
    detail: str
    hint: str = ""
    grave: bool = True  # data is lost, or a run cannot go on; else it only uses space
    mended: bool = False

    def to_dict(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__slots__}


async def examine(store: Store, folder: Path | None, now: float) -> AsyncIterator[Finding]:
    """Yield every fault of a store and its runs; ``folder`` holds the runs' files, if known.

    The store itself comes first: a repair has to know whether it can be written to.
    """
    flaws = await store.examine()
    broken = any(flaw.kind == "pages" for flaw in flaws)
    for flaw in flaws:
        yield _of_store(flaw, broken=broken)
    try:
        heads = [head for head in await store.heads(limit=ALL) if head.run != FORGOTTEN]
    except Unusable as problem:
        yield Finding("pages", "", tell("doctor.unlisted", error=problem), tell("doctor.hint.pages"))
        return
    checked: dict[str, tuple[str, str]] = {}
    for head in heads:
        try:
            async for finding in _Look(store, head, now, checked, broken=broken).all():
                yield finding
        except Unusable as problem:
            yield _history(head, tell("doctor.unreadable", error=problem))
    known = {head.run for head in heads}
    for path in _folders(folder):
        if path.name not in known:
            yield Finding("workspace", str(path), tell("doctor.workspace"), tell("doctor.hint.workspace"), grave=False)


async def mend(store: Store, finding: Finding, now: float) -> Finding:
    """Repair what needs no decision of a user; return the finding, and whether it was repaired."""
    match finding.kind:
        case "orphans":
            await store.clear()
        case "lease":
            head = await store.head(finding.where)
            if head is None or head.owner is None or not is_dead(head, now):
                return finding
            if head.status not in AT_REST:
                return finding  # a resume takes it, and records the fate of its calls (E11)
            try:
                await store.release(await store.claim(head.run, this_process(), now, over=head.fence))
            except Taken:
                return finding  # it has an owner again
        case "unplanned":
            head = await store.head(finding.where)
            if head is None or head.seq or not is_dead(head, now):
                return finding  # it was started again
            try:
                await store.release(await store.claim(head.run, this_process(), now, over=head.fence))
                await store.remove([replace(head, owner=None, fence=head.fence + 1)])
            except (Taken, Conflict):
                return finding  # it is being started again, or runs follow it
        case "wish":
            head = await store.head(finding.where)
            if head is None or head.status not in AT_REST or head.owner is not None:
                return finding  # the next owner of the run answers
            for number, _ in await store.inbox(head.run):
                await store.answer(head.run, number, encode_answer(Refused(tell("doctor.unanswered", run=head.run))))
        case _:
            return finding
    return replace(finding, mended=True)


def _of_store(flaw: Flaw, *, broken: bool) -> Finding:
    if flaw.kind == "pages":
        return Finding("pages", "", tell("doctor.pages", error=flaw.what), tell("doctor.hint.pages"))
    detail = tell(f"doctor.orphans.{flaw.what}", n=flaw.count)
    if flaw.what == "histories":
        return Finding("history", "", detail, tell("doctor.hint.pages" if broken else "doctor.hint.unlisted"))
    return Finding("orphans", "", detail, tell("doctor.hint.pages") if broken else REPAIR, False)


def _history(head: Head, detail: str) -> Finding:
    return Finding("history", head.run, detail, tell("doctor.hint.history"))


def _folders(folder: Path | None) -> list[Path]:
    """Yield the folders of runs, and the other entries among them."""
    try:
        return sorted(path for path in folder.iterdir() if path.is_dir()) if folder is not None else []
    except OSError:
        return []


class _Look:
    """The check of one run."""

    def __init__(
        self, store: Store, head: Head, now: float, checked: dict[str, tuple[str, str]], *, broken: bool
    ) -> None:
        self._store, self._head, self._now = store, head, now
        self._checked = checked  # contents → their fault and the error; shared, because contents are too
        self._mend = "doctor.hint.content_elsewhere" if broken else "doctor.hint.content"
        self._completed = head.status == RunStatus.COMPLETED  # at any time: then contents may have expired since
        self._named: dict[str, tuple[str, str]] = {}  # contents → their step, and their role in it

    async def all(self) -> AsyncIterator[Finding]:
        """Yield every fault of the run."""
        head, dead = self._head, is_dead(self._head, self._now)
        if head.owner is not None and is_arriving(head):
            if is_dead(as_driven(head), self._now):
                yield Finding("copy", head.run, tell("doctor.copy"), tell("doctor.hint.copy"))
            return  # it is incomplete, and may be
        if not head.seq:
            if dead:
                again = tell("doctor.hint.unplanned", run=head.run)
                yield Finding("unplanned", head.run, tell("doctor.unplanned"), again)
            return  # else it is being created
        broken = await self._broken()
        if broken:
            yield _history(head, broken)
        async for finding in self._contents():
            yield finding
        if head.owner is not None and dead:
            rest = head.status in AT_REST
            hint = REPAIR if rest else f"rerail resume {head.run}"
            yield Finding("lease", head.run, tell("doctor.lease", owner=head.owner), hint, grave=not rest)
        wishes = len(await self._store.inbox(head.run)) if dead else 0
        if wishes:
            rest = head.status in AT_REST
            hint = REPAIR if rest else f"rerail resume {head.run}"
            yield Finding("wish", head.run, tell("doctor.wish", n=wishes), hint)

    async def _broken(self) -> str:
        """Return the first fault of the history."""
        after, last = 0, None
        while rows := await self._store.read(self._head.run, after, PAGE):
            for row in rows:
                if row.seq != after + 1:
                    return tell("doctor.gap", first=after + 1, last=row.seq - 1)
                try:
                    event = decode(row.data)
                except Damaged as error:
                    return tell("doctor.no_event", seq=row.seq, error=error)
                except NewerFormat as error:
                    return tell("doctor.newer", seq=row.seq, error=error)
                self._note(event)
                last = last if isinstance(event, ev.Notified) else event
                after = row.seq
        bad = self._ends_badly(after, last)
        return bad if bad and not await self._moved_on() else ""

    async def _moved_on(self) -> bool:
        """True if the run was written, acquired or removed during the check: then mismatches are normal."""
        now, then = await self._store.head(self._head.run), self._head
        return now is None or now.owner is not None or (now.seq, now.fence) != (then.seq, then.fence)

    def _ends_badly(self, seq: int, last: Event | None) -> str:
        head = self._head
        if seq != head.seq:
            if head.owner is not None:
                return ""  # it is written during the check
            return tell("doctor.short", seq=seq, head=head.seq)
        if last is not None and head.owner is None and (head.status in AT_REST) != isinstance(last, ev.Done):
            return tell("doctor.status", status=head.status)
        return ""

    def _note(self, event: Event) -> None:
        """Note the contents that an event names. A loss that is already recorded is not reported again."""
        if isinstance(event, ev.Done) and event.status == RunStatus.COMPLETED:
            self._completed = True
        if isinstance(event, ev.ArtifactLost):
            self._named.pop(event.digest, None)
        elif getattr(event, "blob", False) and getattr(event, "digest", ""):
            self._named[event.digest] = event.step, "output"  # type: ignore[union-attr]
        if getattr(event, "args_blob", ""):
            self._named[event.args_blob] = event.step, "args"  # type: ignore[union-attr]

    async def _contents(self) -> AsyncIterator[Finding]:
        for name, (step, kind) in self._named.items():
            if name not in self._checked:
                self._checked[name] = await self._checked_content(name)
            wrong, error = self._checked[name]
            if wrong == "missing" and (self._completed or await self._store.head(self._head.run) is None):
                continue  # it may have expired, or was removed with the run
            if wrong:
                what = tell(f"doctor.content.{kind}", step=step, digest=name)
                hint = tell(self._mend, run=self._head.run, step=shlex.quote(step))
                yield Finding("content", self._head.run, tell(f"doctor.content.{wrong}", what=what, error=error), hint)

    async def _checked_content(self, name: str) -> tuple[str, str]:
        """Return the fault of a content; the run with a readable history is not lost with it."""
        try:
            data = await self._store.blob(name)
        except Unusable as problem:
            return "unreadable", words_of(problem)
        sound = isinstance(data, bytes) and digest(data) == name  # a damaged file may answer with a text
        return "missing" if data is None else "" if sound else "corrupt", ""
