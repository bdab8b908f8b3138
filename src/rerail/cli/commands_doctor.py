"""The command that looks whether all is well: with this machine, with the settings, with the store and its runs."""

from __future__ import annotations

import os
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Annotated, NamedTuple

from rich.text import Text

from rerail.cli.commands_run import Hidden
from rerail.cli.commands_setup import tool_rows
from rerail.cli.options import FLAG, PLAIN, Common
from rerail.cli.output import Output, clean
from rerail.cli.session import Session, store_file
from rerail.cli.style import icon
from rerail.engine.examining import Finding, examine, mend
from rerail.engine.pruning import ALL
from rerail.engine.reading import store_errors
from rerail.errors import RerailError
from rerail.i18n import tell
from rerail.version import __version__
from rerail.wiring import make_store, workspaces_of

SHOWN = 10  # findings of one kind that are told one by one


class Check(NamedTuple):
    """One thing that was looked at."""

    name: str
    ok: bool
    detail: str
    hint: str = ""


async def doctor(
    *,
    repair: Annotated[bool, FLAG] = False,
    quick: Annotated[bool, FLAG] = False,
    common: Common = PLAIN,
    out: Annotated[Output, Hidden],
) -> int:
    """Check that everything a run needs is there, and that the store and its runs are sound.

    Changes nothing without --repair. Exit code 1 if something is wrong."""
    checks = [_python(), _sqlite(), Check("lang", True, out.lang)]
    findings: list[Finding] = []
    try:
        session = Session(common, out)
    except RerailError as error:
        checks.append(Check("settings", False, error.message, error.hint))
    else:
        files = sorted({source for source in session.sources.values() if source.endswith("rerail.toml")})
        checks.append(Check("settings", True, ", ".join(files) or tell("cli.doctor.defaults")))
        checks.append(await _store(session))
        if checks[-1].ok and not quick and _is_there(session):
            runs, findings = await _looked_through(session, repair=repair)
            checks.append(_verdict(runs, findings))
        checks.append(await _tools(session))
    if out.json:
        rows = [check._asdict() for check in checks]
        found = [finding.to_dict() for finding in findings]
        document = {"ok": all(check.ok for check in checks), "version": __version__, "checks": rows, "findings": found}
        out.document(document)
    else:
        for check in checks:
            _say(out, check)
            if check.name == "runs":
                _say_findings(out, findings)
    return 0 if all(check.ok for check in checks) else 1


def _say(out: Output, check: Check) -> None:
    sign = icon("succeeded" if check.ok else "failed", fancy=out.fancy)
    out.print(Text.assemble(sign, " ", (f"{check.name:<9}", "bold"), clean(out.told(check.detail))))
    if check.hint:
        out.print(Text.assemble("            ", (clean(out.typed(out.told(check.hint))), "cyan")))


# -- The store and its runs ---------------------------------------------------------------------------------------


def _is_there(session: Session) -> bool:
    file = store_file(session.settings.store.url)
    return session.settings.store.url != "memory://" and (file is None or file.exists())


async def _looked_through(session: Session, *, repair: bool) -> tuple[int, list[Finding]]:
    """How many runs there are, and what is wrong; mended, where that is wanted and loses nothing."""
    url, now = session.settings.store.url, time.time()
    # Runs of servers keep their files in a place that other stores use, too, unless the settings name one.
    known = store_file(url) is not None or session.settings.store.workspace is not None
    folder = workspaces_of(session.settings)("-").parent if known else None
    try:
        with store_errors():
            store = make_store(url, session.settings)
            await store.open()
            try:
                findings = [finding async for finding in examine(store, folder, now)]
                if repair and not any(finding.kind == "pages" for finding in findings):
                    findings = [await mend(store, finding, now) for finding in findings]
                runs = len(await store.heads(limit=ALL)) if not any(f.kind == "pages" for f in findings) else 0
            finally:
                await store.close()
    except RerailError as error:
        return 0, [Finding("pages", "", error.message, error.hint or tell("doctor.hint.pages"))]
    return runs, findings


def _verdict(runs: int, findings: list[Finding]) -> Check:
    ok = not any(finding.grave and not finding.mended for finding in findings)
    if not findings:
        return Check("runs", True, tell("cli.doctor.sound", runs=runs))
    return Check("runs", ok, tell("cli.doctor.found", runs=runs, n=len(findings)))


def _say_findings(out: Output, findings: list[Finding]) -> None:
    told: Counter[str] = Counter()
    for finding in findings:
        told[finding.kind] += 1
        if told[finding.kind] > SHOWN:
            continue
        sign = icon("succeeded" if finding.mended else "failed" if finding.grave else "say", fancy=out.fancy)
        where = f"{clean(finding.where)}: " if finding.where else ""
        mended = f" ({out.say('cli.doctor.mended')})" if finding.mended else ""
        out.print(Text.assemble("    ", sign, " ", where + clean(out.told(finding.detail)) + mended))
        if finding.hint and not finding.mended:
            out.print(Text.assemble("            ", (clean(out.typed(out.told(finding.hint))), "cyan")))
    for kind, count in told.items():
        if count > SHOWN:
            out.print(Text(f"      {kind}: " + out.say("cli.doctor.more", n=count - SHOWN), "dim"))


# -- The surroundings ---------------------------------------------------------------------------------------------


def _python() -> Check:
    version = ".".join(map(str, sys.version_info[:3]))
    return Check("python", sys.version_info >= (3, 11), f"{version}, rerail {__version__}")


def _sqlite() -> Check:
    import apsw

    return Check("sqlite", True, f"{apsw.sqlite_lib_version()} (apsw {apsw.apsw_version()})")


async def _store(session: Session) -> Check:
    from rerail.adapters.stores.remote import shown

    url = session.settings.store.url
    file = store_file(url)
    if file is not None and not file.exists():
        return _absent(session.out, file)
    try:
        with store_errors():
            store = make_store(url, session.settings)
            await store.open()  # no engine: that would clear up what is to be looked at
            await store.close()
    except RerailError as error:
        return Check("store", False, error.message, error.hint or tell("cli.hint.store_broken", url=shown(url)))
    if file is not None and not os.access(file, os.W_OK):
        return Check("store", False, tell("cli.doctor.read_only", file=file))
    return Check("store", True, shown(url))


def _absent(out: Output, file: Path) -> Check:
    """A store that is not there yet is fine, if it can be made."""
    folder = next(parent for parent in file.absolute().parents if parent.exists())
    if folder.is_dir() and os.access(folder, os.W_OK):
        return Check("store", True, tell("cli.doctor.absent", file=file))
    return Check("store", False, tell("cli.doctor.no_place", file=file, folder=folder), tell("cli.hint.store"))


async def _tools(session: Session) -> Check:
    try:
        found = await tool_rows(session)
    except RerailError as error:
        return Check("tools", False, error.message, error.hint)
    if not found:
        return Check("tools", True, "0")
    names = ", ".join(row["name"] for row in found[:8])
    return Check("tools", True, tell("cli.doctor.tools", count=len(found), names=names))
