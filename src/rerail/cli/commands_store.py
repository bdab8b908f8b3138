"""Commands about stores as a whole: store copy."""

from __future__ import annotations

import contextlib
import time
from typing import Annotated

from rich.text import Text

from rerail.cli.commands_run import Hidden
from rerail.cli.options import FLAG, PLAIN, Common
from rerail.cli.output import Output, clean
from rerail.cli.session import Session, as_url, store_file
from rerail.cli.style import table
from rerail.engine.copying import Copied, copy_runs
from rerail.engine.owner import is_dead
from rerail.engine.reading import OPEN, store_errors
from rerail.engine.silence import outlast
from rerail.errors import Refused
from rerail.i18n import tell
from rerail.ports import Unavailable, Unusable
from rerail.wiring import make_store, user_name

TOLD_EVERY = 200  # runs
SHOWN = {
    "copied": "green", "moved": "green", "same": "dim", "driven": "yellow", "open": "yellow", "differs": "red",
    "damaged": "red", "partial": "red", "failed": "red",
}  # fmt: skip


async def store(
    action: str,
    source: str,
    target: str,
    /,
    *,
    run: Annotated[tuple[str, ...], FLAG] = (),
    move: Annotated[bool, FLAG] = False,
    common: Common = PLAIN,
    out: Annotated[Output, Hidden],
) -> int:
    """Copy runs from one store to another: histories and contents, compared on arrival. Files of runs stay as they are.

    A run that is not at rest would go on in both: it is left out, or moved with --move.
    Exit code 1 if some run is not in the target, whole, afterwards."""
    if action != "copy":
        raise Refused(tell("cli.store.action", action=action), "USAGE")
    from rerail.adapters.stores.remote import shown

    session = Session(common, out)
    one, other = _placed(source), _placed(target)
    if one == other:
        raise Refused(tell("cli.store.same", url=shown(one)), "USAGE")
    if (file := store_file(one)) is not None and not file.exists():
        raise Refused(tell("cli.error.store_missing", url=one), "STORE_FAILED", hint=tell("cli.hint.no_store"))
    rows: list[Copied] = []
    with store_errors():
        there, here = make_store(one, session.settings), make_store(other, session.settings)
        await there.open()
        try:
            await here.open()
            try:

                async def outlasted() -> None:
                    with contextlib.suppress(Unusable):  # damaged where it is listed; then each is judged as it is
                        heads = await there.heads(status=OPEN, limit=10**9)
                        await outlast(there, [one for one in heads if not run or one.run in run], time.time, out.notice)

                async for copied in copy_runs(
                    there, here, list(run), lambda head: is_dead(head, time.time()), move=move, by=user_name(),
                    patience=session.settings.store.reconnect_seconds, outlasted=outlasted if move else None,
                ):  # fmt: skip
                    rows.append(copied)
                    if not len(rows) % TOLD_EVERY:
                        out.note(Text(out.say("cli.store.progress", n=len(rows)), "dim"))
            except (Unavailable, Unusable):
                if not out.json:
                    _report(out, rows)  # so far
                raise
            finally:
                await here.close()
        finally:
            await there.close()
    unknown = sorted(set(run) - {row.run for row in rows})
    if unknown:
        raise Refused(tell("cli.store.unknown", runs=", ".join(unknown), url=shown(one)), "RUN_UNKNOWN")
    _report(out, rows)
    return 0 if all(row.ok for row in rows) else 1


def _placed(store: str) -> str:
    """A store's address that holds in any folder: a run that is moved says where it went."""
    url = as_url(store)
    file = store_file(url)
    return url if file is None else as_url(str(file.resolve()))


def _report(out: Output, rows: list[Copied]) -> None:
    if out.json:
        out.document([row.to_dict() for row in rows])
        return
    told = [row for row in rows if not row.ok or row.expired]
    cells = [
        [
            Text(clean(row.run)),
            Text(out.say(f"cli.store.{'same_there' if row.outcome == 'same' else row.outcome}"), SHOWN[row.outcome]),
            Text(out.told(row.reason) or (out.say("cli.store.expired", n=row.expired) if row.expired else "")),
        ]
        for row in told
    ]
    if cells:
        head = [out.say(f"cli.head.{word}") for word in ("run", "outcome", "reason")]
        out.print(*table(head, cells, out.out.width))
    count = {word: sum(row.outcome == word for row in rows) for word in SHOWN}
    done = {word: count[word] for word in ("copied", "moved", "same")}
    out.print(out.say("cli.store.done", **done, others=len(told)))
