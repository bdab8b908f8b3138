"""Commands that look after a store: prune, backup."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter
from rich.text import Text

from rerail.cli.commands_run import Hidden, typed_line
from rerail.cli.options import FLAG, PLAIN, Common
from rerail.cli.output import Output, clean
from rerail.cli.session import Session, store_file
from rerail.cli.style import moment, table
from rerail.core.lines import size
from rerail.engine import pruning
from rerail.engine.owner import is_dead
from rerail.engine.pruning import ALL, Pruned, Wanted
from rerail.engine.reading import AT_REST, store_errors
from rerail.errors import Refused
from rerail.i18n import tell
from rerail.ports import Store
from rerail.wiring import make_store, workspaces_of

UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}
SHOWN = 30  # runs that are named one by one


async def prune(
    *,
    older_than: str | None = None,
    status: Annotated[tuple[Literal["completed", "failed", "cancelled"], ...], FLAG] = (),
    keep: int | None = None,
    files: Annotated[bool, FLAG] = False,
    dry_run: Annotated[bool, FLAG] = False,
    yes: Annotated[bool, Parameter(name=["--yes", "-y"], negative="", show_default=False)] = False,
    common: Common = PLAIN,
    out: Annotated[Output, Hidden],
) -> int:
    """Remove runs that ended long ago: history, actions and contents that no other run needs.

    A run that others follow goes with them or not at all; one that is unfinished, waiting or driven stays."""
    session = Session(common, out)
    session.require_store()
    if older_than is None and keep is None:
        raise Refused(tell("cli.prune.which"), "USAGE")
    if keep is not None and keep < 0:
        raise Refused(tell("cli.prune.negative", n=keep), "USAGE")
    wanted = Wanted(time.time() - _seconds(older_than or "0s"), status or AT_REST, keep or 0)
    file = store_file(session.settings.store.url)
    if file is not None and not file.exists():
        return _report(out, [], 0, None, dry_run=dry_run)
    folders = workspaces_of(session.settings) if files else None
    with store_errors():
        store = make_store(session.settings.store.url, session.settings)
        await store.open()
        try:
            rows = [row async for family, _ in pruning.prune(store, wanted, dry_run=True) for row in family]
            going = [row for row in rows if row.outcome == "due"]
            if not going:
                return _report(out, rows, 0, None, dry_run=dry_run)
            for flaw in await store.examine():  # takes as long as the file is large: only when something is to go
                if flaw.kind == "pages":  # what its lists and indexes say is not to be believed
                    raise Refused(tell("cli.prune.damaged", error=flaw.what), "STORE_FAILED", hint="rerail doctor")
            if dry_run:
                return _report(out, rows, 0, None, dry_run=True)
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
        finally:
            await store.close()
    return _report(out, rows, contents, freed, dry_run=False)


def _seconds(text: str) -> float:
    found = re.fullmatch(r"\s*(\d{1,9}(?:\.\d{1,9})?)\s*([smhdw])\s*", text)
    if found is None:
        raise Refused(tell("cli.prune.how_old", text=text), "USAGE")
    return float(found[1]) * UNITS[found[2]]


async def _confirmed(out: Output, count: int, *, files: bool) -> None:
    """What is removed is gone: that needs somebody's word, as starting over does (T4)."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise Refused(tell("cli.prune.no_terminal", n=count), "CONFIRM_NEEDED", hint="rerail prune … --yes")
    out.note(Text(out.say("cli.prune.about_files" if files else "cli.prune.about", n=count)))
    out.err.print(out.say("cli.prune.ask"), end=" ")
    if (await typed_line()).strip().lower() not in ("y", "yes", "是"):
        raise Refused(tell("cli.prune.declined"), "CONFIRM_NEEDED")


async def _under_way(store: Store) -> bool:
    """Whether somebody drives a run: writing the whole file anew would make them wait for it."""
    return any(
        head.owner is not None and not is_dead(head, time.time())
        for head in await store.heads(status=("pending", "running", "waiting"), limit=ALL)
    )


def _remove_folder(out: Output, folders: Callable[[str], Path], row: Pruned) -> None:
    folder = folders(row.run)
    if row.outcome != "removed" or folder.name != row.run or not folder.is_dir() or folder.is_symlink():
        return  # one that has gone with its parent's, or a name that leads elsewhere
    try:
        shutil.rmtree(folder)
    except OSError as error:
        out.notice(tell("cli.prune.files_stay", path=folder, error=error.strerror or error))


def _report(out: Output, rows: Sequence[Pruned], contents: int, freed: int | None, *, dry_run: bool) -> int:
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
        head = [out.say(f"cli.head.{word}") for word in ("run", "status", "ended", "reason")]
        out.print(*table(head, cells, out.out.width))
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


async def backup(
    target: str,
    /,
    *,
    force: Annotated[bool, FLAG] = False,
    common: Common = PLAIN,
    out: Annotated[Output, Hidden],
) -> int:
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
    if not file.exists():
        raise Refused(tell("cli.error.store_missing", url=url), "STORE_FAILED", hint=tell("cli.hint.no_store"))
    from rerail.adapters.stores.sqlite_backup import back_up

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
    """Where a copy of the file may go."""
    from rerail.adapters.stores.sqlite_backup import beside

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
