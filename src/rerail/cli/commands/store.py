"""Commands on a store as a whole: prune, backup, export, import."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, BinaryIO, Literal

from rich.text import Text

from rerail.cli.input_files import has_terminal, require_yes
from rerail.cli.options import FLAG, PLAIN, Common, Every, Flag, Out, Target, Yes
from rerail.cli.output import Output, clean
from rerail.cli.session import Session, store_file
from rerail.cli.style import moment
from rerail.engine.maintenance import prune as pruning
from rerail.engine.maintenance.export import Carried, export_runs, import_runs, listed
from rerail.engine.maintenance.prune import ALL, Pruned, PruneRequest
from rerail.engine.runs.owner import is_dead
from rerail.engine.runs.reader import AT_REST, store_errors
from rerail.errors import Refused
from rerail.factory import workspaces_of
from rerail.i18n import tell
from rerail.ports import Head, Store
from rerail.values.json_values import size

UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}
SHOWN = 30  # runs that are named one by one


async def prune(
    *,
    older_than: str | None = None,
    status: Annotated[tuple[Literal["completed", "failed", "cancelled"], ...], FLAG] = (),
    keep: int | None = None,
    files: Flag = False,
    dry_run: Flag = False,
    yes: Yes = False,
    common: Common = PLAIN,
    out: Out,
) -> int:
    """Remove runs that ended long ago: history, actions and contents that no other run needs."""
    session = Session(common, out)
    session.require_store()
    if older_than is None and keep is None:
        raise Refused(tell("cli.prune.which"), "USAGE")
    if keep is not None and keep < 0:
        raise Refused(tell("cli.prune.negative", n=keep), "USAGE")
    wanted = PruneRequest(time.time() - seconds_of(older_than or "0s"), status or AT_REST, keep or 0)
    file = store_file(session.settings.store.url)
    if file is not None and not file.exists():
        return _pruned(out, [], 0, None, dry_run=dry_run)
    folders = workspaces_of(session.settings) if files else None
    async with session.store() as store:
        rows = [row async for family, _ in pruning.prune(store, wanted, dry_run=True) for row in family]
        going = [row for row in rows if row.outcome == "due"]
        if not going:
            return _pruned(out, rows, 0, None, dry_run=dry_run)
        for flaw in await store.examine():  # takes as long as the file is large: only before a removal
            if flaw.kind == "pages":  # its lists and indexes are not reliable
                raise Refused(tell("cli.prune.damaged", error=flaw.what), "STORE_FAILED", hint="rerail doctor")
        if dry_run:
            return _pruned(out, rows, 0, None, dry_run=True)
        if not yes:
            await _confirmed(out, len(going), files=files)
        rows, contents = [], 0
        async for family, dropped in pruning.prune(store, wanted):
            rows += family
            contents += dropped
            if folders is not None:
                for row in family:
                    _remove_folder(out, folders, row)
        freed = None if await _under_way(store) else await store.shrink()
    return _pruned(out, rows, contents, freed, dry_run=False)


def seconds_of(text: str) -> float:
    """Return the seconds of a span such as 30d, 12h, 90m; refused otherwise."""
    found = re.fullmatch(r"\s*(\d{1,9}(?:\.\d{1,9})?)\s*([smhdw])\s*", text)
    if found is None:
        raise Refused(tell("cli.prune.how_old", text=text), "USAGE")
    return float(found[1]) * UNITS[found[2]]


async def _confirmed(out: Output, count: int, *, files: bool) -> None:
    """Ask before a removal, which is final, as before a restart (contract T4)."""
    if not has_terminal():
        raise Refused(tell("cli.prune.no_terminal", n=count), "CONFIRM_NEEDED", hint="rerail prune … --yes")
    out.note(Text(out.say("cli.prune.about_files" if files else "cli.prune.about", n=count)))
    await require_yes(out, out.say("cli.prune.ask"), tell("cli.prune.declined"))


async def _under_way(store: Store) -> bool:
    """Return True if a run is driven: rewriting the whole file would block its owner."""
    return any(
        head.owner is not None and not is_dead(head, time.time())
        for head in await store.heads(status=("pending", "running", "waiting"), limit=ALL)
    )


def _remove_folder(out: Output, folders: Callable[[str], Path], row: Pruned) -> None:
    folder = folders(row.run)
    if row.outcome != "removed" or folder.name != row.run or not folder.is_dir() or folder.is_symlink():
        return  # removed with its parent's, or a name that leads elsewhere
    try:
        shutil.rmtree(folder)
    except OSError as error:
        out.notice(tell("cli.prune.files_stay", path=folder, error=error.strerror or error))


def _pruned(out: Output, rows: Sequence[Pruned], contents: int, freed: int | None, *, dry_run: bool) -> int:
    gone = [row for row in rows if row.outcome != "kept"]
    if out.json:
        document = {"dry_run": dry_run, "runs": [row.to_dict() for row in rows], "contents": contents, "freed": freed}
        out.document(document)
        return 0
    kept = [row for row in rows if row.outcome == "kept"]
    if shown := [*(gone if dry_run else []), *kept][:SHOWN]:
        cells = [
            [Text(clean(row.run)), Text(row.status), Text(moment(row.updated_at), "dim"), Text(out.told(row.reason))]
            for row in shown
        ]
        out.print(*out.listing(("run", "status", "ended", "reason"), cells))
    if not rows:
        out.print(out.say("cli.prune.none"))
    elif dry_run:
        out.print(out.say("cli.prune.due", n=len(gone)))
    else:
        out.print(out.say("cli.prune.removed", n=len(gone), contents=contents))
        if freed:
            out.print(out.say("cli.prune.freed", size=size(freed)))
        elif freed is None and gone:
            out.note(Text(out.say("cli.prune.not_freed"), "dim"))
    return 0


async def backup(target: str, /, *, force: Flag = False, common: Common = PLAIN, out: Out) -> int:
    """Copy the store to a file, while runs go on: the store as it is at one moment, looked through and opened."""
    from rerail.adapters.stores.remote import shown

    session = Session(common, out)
    url = session.settings.store.url
    file = store_file(url)
    if file is None:
        if url.startswith("memory://"):
            raise Refused(tell("cli.backup.memory"), "STORE_FAILED")
        kind = "redis" if url.startswith(("redis", "unix")) else "postgres"
        hint = tell("cli.backup.hint.redis") if kind == "redis" else tell("cli.backup.hint.postgres")
        raise Refused(tell("cli.backup.elsewhere", url=shown(url)), "STORE_FAILED", hint=hint)
    session.require_file()
    from rerail.adapters.stores.sqlite.maintenance import back_up

    place = _place(target, file, force=force)
    with store_errors():
        made = await asyncio.to_thread(back_up, file.absolute(), place, force=force)
    if out.json:
        out.document({"path": made.path, "runs": made.runs, "events": made.events, "size": made.size})
    else:
        text = out.say(
            "cli.backup.done", path=clean(made.path), runs=made.runs, events=made.events, size=size(made.size)
        )
        out.print(text)
    return 0


def _place(target: str, file: Path, *, force: bool) -> Path:
    """Return a permitted target of the copy."""
    from rerail.adapters.stores.sqlite.maintenance import beside

    place = Path(target).absolute()
    if place.is_dir():
        raise Refused(tell("cli.backup.is_folder", path=place), "USAGE")
    if not place.parent.is_dir():
        raise Refused(tell("cli.backup.no_folder", path=place.parent), "USAGE")
    ours = [name for name in (file, *beside(file)) if name.exists()]
    if any(name.exists() and name.samefile(one) for name in (place, *beside(place)) for one in ours):
        raise Refused(tell("cli.backup.itself", path=place), "USAGE")
    if place.exists() and not force:
        raise Refused(tell("cli.backup.exists", path=place), "USAGE", hint=f"rerail backup {target} --force")
    for left in beside(place):
        if os.path.lexists(left) and not force:
            told = tell("refuse.store.left_beside", path=left, target=place)
            raise Refused(told, "USAGE", hint=f"rerail backup {target} --force")
    return place


async def export(*runs: str, every: Every = False, output: Target = None, common: Common = PLAIN, out: Out) -> int:
    """Write runs at rest as JSON lines, with their contents. Exit code 1 if one was left out, or lacks a content."""
    from rerail.adapters.stores.remote import shown

    session = Session(common, out)
    url = session.settings.store.url
    if bool(runs) == every or (output is None and out.json):
        raise Refused(tell("cli.export.what" if bool(runs) == every else "cli.export.json"), "USAGE")
    if output is not None and output.exists():
        raise Refused(tell("cli.backup.exists", path=output), "USAGE")
    session.require_file()
    async with session.store(reads=True) as store:
        heads = await listed(store) if every else [await _one(store, run) for run in runs]
        with _target(output, out) as made:
            rows = [row async for row in export_runs(store, heads, made, shown(url))]
    if output is not None and rows and not any(row.ok or row.outcome == "partial" for row in rows):
        output.unlink()  # an empty file would only obstruct the next export
    return _carried(out, rows, "exported", to_stdout=output is None)


async def _one(store: Store, run: str) -> Head:
    found = await listed(store, run)
    found = [head for head in found if head.run == run] or found
    if not found:
        raise Refused(tell("refuse.run.no_such_run", run=run), "RUN_UNKNOWN", hint=tell("hint.run.no_such_run"))
    if len(found) > 1:
        names = ", ".join(head.run for head in found[:10])
        raise Refused(tell("refuse.run.run_ambiguous", run=run, names=names), "RUN_AMBIGUOUS")
    return found[0]


@contextlib.contextmanager
def _target(output: Path | None, out: Output) -> Iterator[BinaryIO]:
    """Open a file for writing and truncating; it gets its name, or goes to stdout, once complete."""
    if output is None:
        with tempfile.TemporaryFile() as made:
            yield made
            made.seek(0)
            try:
                shutil.copyfileobj(made, sys.stdout.buffer)
                sys.stdout.buffer.flush()
            except BrokenPipeError:
                out.out.on_broken_pipe()
        return
    part = output.with_name(f".{output.name}.{os.getpid()}")
    try:
        with part.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        part.replace(output)
    except OSError as error:
        raise Refused(tell("cli.export.unwritable", file=output, reason=error.strerror), "USAGE") from error
    finally:
        part.unlink(missing_ok=True)


async def import_(file: Path, /, *, own: Flag = False, common: Common = PLAIN, out: Out) -> int:
    """Read runs that were exported into the store, as copies. Exit code 1 if one is not there, whole, afterwards."""
    session = Session(common, out)
    try:
        source: BinaryIO = file.open("rb")
    except OSError as error:
        raise Refused(tell("cli.import.unreadable", file=file, reason=error.strerror), "USAGE") from error
    with contextlib.ExitStack() as opened:
        opened.enter_context(source)
        if not source.seekable():  # a pipe: all of it is checked before anything is written
            kept = opened.enter_context(tempfile.TemporaryFile())
            shutil.copyfileobj(source, kept)
            source = kept
        async with session.store() as store:
            rows = [row async for row in import_runs(store, source, own=own)]
    return _carried(out, rows, "imported")


def _carried(out: Output, rows: list[Carried], what: str, *, to_stdout: bool = False) -> int:
    told = [row for row in rows if not row.ok]
    if out.json:
        out.document([row.to_dict() for row in rows])
        return 1 if told else 0
    say = out.note if to_stdout else out.print
    if told:
        cells = [
            [Text(clean(row.run)), Text(out.say(f"cli.carried.{row.outcome}"), "red"), Text(out.told(row.reason))]
            for row in told
        ]
        say(*out.listing(("run", "outcome", "reason"), cells))
    same = sum(row.outcome == "same" for row in rows)
    done = sum(row.outcome == what for row in rows)
    say(Text(out.say(f"cli.carried.{what}", done=done, same=same, n=len(told))))
    return 1 if told else 0
