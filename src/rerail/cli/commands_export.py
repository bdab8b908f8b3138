"""Commands that carry runs from store to store: export, import."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, BinaryIO

from cyclopts import Parameter
from rich.text import Text

from rerail.cli.commands_run import Hidden
from rerail.cli.options import FLAG, PLAIN, Common
from rerail.cli.output import Output, clean
from rerail.cli.session import Session, store_file
from rerail.cli.style import table
from rerail.engine.export import Carried, export_runs, import_runs, listed
from rerail.engine.reading import store_errors
from rerail.errors import Refused
from rerail.i18n import tell
from rerail.ports import Head, Store
from rerail.wiring import make_store


async def export(
    *runs: str,
    every: Annotated[bool, Parameter(name="--all", negative="", show_default=False)] = False,
    output: Annotated[Path | None, Parameter(name=("--output", "-o"))] = None,
    common: Common = PLAIN,
    out: Annotated[Output, Hidden],
) -> int:
    """Write runs at rest as JSON lines, with their contents. Exit code 1 if one was left out, or lacks a content."""
    from rerail.adapters.stores.remote import shown

    session = Session(common, out)
    url = session.settings.store.url
    if bool(runs) == every or (output is None and out.json):
        raise Refused(tell("cli.export.what" if bool(runs) == every else "cli.export.json"), "USAGE")
    if output is not None and output.exists():
        raise Refused(tell("cli.backup.exists", path=output), "USAGE")
    if (file := store_file(url)) is not None and not file.exists():
        raise Refused(tell("cli.error.store_missing", url=url), "STORE_FAILED", hint=tell("cli.hint.no_store"))
    with store_errors():
        store = make_store(url, session.settings)
        await store.open()
        try:
            heads = await listed(store) if every else [await _one(store, run) for run in runs]
            with _target(output, out) as made:
                rows = [row async for row in export_runs(store, heads, made, shown(url))]
        finally:
            await store.close()
    if output is not None and rows and not any(row.ok or row.outcome == "partial" for row in rows):
        output.unlink()  # a file of no run would only stand in the way of the next
    return _report(out, rows, "exported", to_stdout=output is None)


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
    """A file to write and to cut; it gets its name, or goes to stdout, once it is whole."""
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


async def import_(
    file: Path,
    /,
    *,
    own: Annotated[bool, FLAG] = False,
    common: Common = PLAIN,
    out: Annotated[Output, Hidden],
) -> int:
    """Read runs that were exported into the store, as copies. Exit code 1 if one is not there, whole, afterwards."""
    session = Session(common, out)
    try:
        source: BinaryIO = file.open("rb")
    except OSError as error:
        raise Refused(tell("cli.import.unreadable", file=file, reason=error.strerror), "USAGE") from error
    with contextlib.ExitStack() as opened, store_errors():
        opened.enter_context(source)
        if not source.seekable():  # a pipe: all of it is checked before anything is written
            kept = opened.enter_context(tempfile.TemporaryFile())
            shutil.copyfileobj(source, kept)
            source = kept
        store = make_store(session.settings.store.url, session.settings)
        await store.open()
        try:
            rows = [row async for row in import_runs(store, source, own=own)]
        finally:
            await store.close()
    return _report(out, rows, "imported")


def _report(out: Output, rows: list[Carried], what: str, *, to_stdout: bool = False) -> int:
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
        head = [out.say(f"cli.head.{word}") for word in ("run", "outcome", "reason")]
        say(*table(head, cells, out.out.width))
    same = sum(row.outcome == "same" for row in rows)
    done = sum(row.outcome == what for row in rows)
    say(Text(out.say(f"cli.carried.{what}", done=done, same=same, n=len(told))))
    return 1 if told else 0
