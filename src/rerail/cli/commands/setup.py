"""Commands on tools, settings and this machine: tools, config, memory, doctor."""

from __future__ import annotations

import os
import sys
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from rich.text import Text

from rerail.cli.options import PLAIN, Common, Flag, Out
from rerail.cli.output import Output, clean, one_line
from rerail.cli.session import Session, store_file
from rerail.cli.style import icon
from rerail.engine.maintenance.health_check import Finding, examine, mend
from rerail.engine.maintenance.prune import ALL
from rerail.errors import RerailError
from rerail.factory import declared_tools, workspaces_of
from rerail.i18n import say, span, tell
from rerail.plan.warnings import acting_first, said
from rerail.ports import Surveyed
from rerail.settings.loading import describe
from rerail.version import __version__


async def config(*, common: Common = PLAIN, out: Out) -> int:
    """Print every setting, its value, and where the value comes from."""
    session = Session(common, out)
    rows = describe(session.settings, session.sources)
    if out.json:
        out.document(rows)
        return 0
    cells = []
    for row in rows:
        style = "dim" if row["source"] == say("source.default") else "bold"
        value = one_line(msgspec.json.encode(row["value"]).decode(), 60)
        cells.append([Text(row["key"], style), Text(value, style), Text(clean(_source(out, row["source"])), style)])
    out.print(*out.listing(("key", "value", "source"), cells))
    return 0


def _source(out: Output, source: str) -> str:
    return out.say("source.default") if source == say("source.default") else out.told(source)


async def memory(*, clear: Flag = False, common: Common = PLAIN, out: Out) -> int:
    """Show what the latest runs teach: per tool and error, which rung mended it. Used with reflection.memory = true."""
    session = Session(common, out)
    session.require_store()
    async with session.engine(making=clear) as engine:
        if clear:
            await engine.internals.forget()
        rows = await engine.internals.memory()
    if out.json:
        out.document(rows)
    elif not rows:
        out.print(out.say("cli.memory.empty"))
    else:
        cells = [[Text(one_line(row["failure"], 90)), Text(row["rung"]), Text(str(row["worked"]))] for row in rows]
        out.print(*out.listing(("failure", "rung", "worked"), cells))
    return 0


# -- Tools --------------------------------------------------------------------------------------------------------


async def tools(*, common: Common = PLAIN, out: Out) -> int:
    """List the tools that --tools and the settings give: arguments, effect, timeout, and where each comes from."""
    session = Session(common, out)
    rows = await tool_rows(session)
    if out.json:
        out.document(rows)
    elif not rows:
        out.print(out.say("cli.tools.none"))
        out.note(Text("  rerail tools --tools file.py", "cyan"))
    else:
        for row in rows:
            out.print(*_tool_lines(out, row))
        if names := acting_first({row["name"]: row["description"] for row in rows if not row["declared"]}):
            out.notice(said(names))
    return 0


async def tool_rows(session: Session) -> list[dict[str, Any]]:
    loaded = [(tool, source) for source in session.given for tool in session.load([source])]
    loaded += [(tool, "rerail.toml") for tool in declared_tools(session.settings)]
    sources = {tool.spec.name: source for tool, source in loaded}
    async with session.toolbox() as engine:  # two tools of one name are refused here as in a run
        specs = list(engine.tools.values())
    return [spec.to_dict(sources.get(spec.name) or f"mcp.servers.{spec.provider}") for spec in specs]


def _tool_lines(out: Output, row: Mapping[str, Any]) -> list[Text]:
    title = Text.assemble((clean(row["name"]), "bold"), f"({arguments(row['schema'])})")
    effect = out.say(f"cli.effect.{row['effect']}")
    facts = [effect if row["declared"] else out.say("cli.tools.assumed", effect=effect)]
    if row["timeout"] is not None:
        facts.append(out.say("cli.tools.timeout", seconds=span(row["timeout"])))
    if row["alternatives"]:
        facts.append(out.say("cli.tools.alternatives", names=", ".join(row["alternatives"])))
    facts.append(row["source"])
    lines = [title, Text("    " + one_line(" · ".join(facts)), "dim")]
    if row["description"]:
        lines.insert(1, Text("    " + one_line(row["description"], 160)))
    return lines


def arguments(schema: Any) -> str:
    """Format a tool's arguments as a signature: name: type, and = for an optional one."""
    if not isinstance(schema, Mapping):
        return "…" if schema is True else ""
    required = set(schema.get("required", ()))
    shown = []
    for name, part in schema.get("properties", {}).items():
        kind = f": {_kind(part)}" if _kind(part) else ""
        default = ""
        if name not in required:
            given = part.get("default", ...) if isinstance(part, Mapping) else ...
            default = f" = {msgspec.json.encode(given).decode()}" if given is not ... else " = …"
        shown.append(clean(f"{name}{kind}{default}"))
    if schema.get("additionalProperties", True) is not False and not schema.get("properties"):
        shown.append("…")
    return ", ".join(shown)


def _kind(part: Any) -> str:
    if not isinstance(part, Mapping):
        return ""
    kind = part.get("type", "")
    if "enum" in part:
        return " | ".join(msgspec.json.encode(value).decode() for value in part["enum"][:6])
    return " | ".join(map(str, kind)) if isinstance(kind, list) else str(kind)


BROKEN = ("refuse.store.damaged", "refuse.store.no_database")  # what only a backup mends
SHOWN = 10  # findings of one kind that are reported one by one


class DoctorCheck(NamedTuple):
    name: str
    ok: bool
    detail: str
    hint: str = ""


async def doctor(*, repair: Flag = False, quick: Flag = False, common: Common = PLAIN, out: Out) -> int:
    """Check that everything a run needs is there, and that the store and its runs are sound."""
    import apsw

    version = ".".join(map(str, sys.version_info[:3]))
    checks = [
        DoctorCheck("python", sys.version_info >= (3, 11), f"{version}, rerail {__version__}"),
        DoctorCheck("sqlite", True, f"{apsw.sqlite_lib_version()} (apsw {apsw.apsw_version()})"),
        DoctorCheck("lang", True, out.lang),
    ]
    findings: list[Finding] = []
    try:
        session = Session(common, out)
    except RerailError as error:
        checks.append(DoctorCheck("settings", False, error.message, error.hint))
    else:
        files = sorted({source for source in session.sources.values() if source.endswith("rerail.toml")})
        checks.append(DoctorCheck("settings", True, ", ".join(files) or tell("cli.doctor.defaults")))
        checks.append(await _store(session))
        file = store_file(session.settings.store.url)
        there = session.settings.store.url != "memory://" and (file is None or file.exists())
        if checks[-1].ok and not quick and there:
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


def _say(out: Output, check: DoctorCheck) -> None:
    sign = icon("succeeded" if check.ok else "failed", fancy=out.fancy)
    out.print(Text.assemble(sign, " ", (f"{check.name:<9}", "bold"), clean(out.told(check.detail))))
    if check.hint:
        out.print(Text.assemble("            ", (clean(out.typed(out.told(check.hint))), "cyan")))


# -- The store and its runs ---------------------------------------------------------------------------------------


async def _looked_through(session: Session, *, repair: bool) -> tuple[int, list[Finding]]:
    """Count the runs and report their faults; repair on request, where that loses nothing."""
    now = time.time()
    # Server stores keep runs' files in a place that other stores use, too, unless the settings name one.
    known = store_file(session.settings.store.url) is not None or session.settings.store.workspace is not None
    folder = workspaces_of(session.settings)("-").parent if known else None
    try:
        async with session.store() as store:
            findings = [finding async for finding in examine(store, folder, now)]
            sound = not any(finding.kind == "pages" for finding in findings)
            if repair and sound:
                findings = [await mend(store, finding, now) for finding in findings]
            runs = len(await store.heads(limit=ALL)) if sound else 0
    except RerailError as error:
        return 0, [Finding("pages", "", error.message, error.hint or tell("doctor.hint.pages"))]
    return runs, findings


def _verdict(runs: int, findings: list[Finding]) -> DoctorCheck:
    ok = not any(finding.grave and not finding.mended for finding in findings)
    if not findings:
        return DoctorCheck("runs", True, tell("cli.doctor.sound", runs=runs))
    return DoctorCheck("runs", ok, tell("cli.doctor.found", runs=runs, n=len(findings)))


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


async def _store(session: Session) -> DoctorCheck:
    from rerail.adapters.stores.remote import shown

    url = session.settings.store.url
    file = store_file(url)
    if file is not None and not file.exists():
        return _absent(session.out, file)
    try:
        async with session.store() as store:  # no engine: that would clean up before the check
            if isinstance(store, Surveyed):
                await store.probe()
    except RerailError as error:
        broken = getattr(error.message, "key", "") in BROKEN
        hint = tell("cli.hint.store_broken", url=shown(url)) if broken else ""
        return DoctorCheck("store", False, error.message, error.hint or hint)
    return DoctorCheck("store", True, shown(url))


def _absent(out: Output, file: Path) -> DoctorCheck:
    """Accept a missing store if it can be created."""
    folder = next(parent for parent in file.absolute().parents if parent.exists())
    if folder.is_dir() and os.access(folder, os.W_OK):
        return DoctorCheck("store", True, tell("cli.doctor.absent", file=file))
    return DoctorCheck("store", False, tell("cli.doctor.no_place", file=file, folder=folder), tell("cli.hint.store"))


async def _tools(session: Session) -> DoctorCheck:
    try:
        found = await tool_rows(session)
    except RerailError as error:
        return DoctorCheck("tools", False, error.message, error.hint)
    if not found:
        return DoctorCheck("tools", True, "0")
    names = ", ".join(row["name"] for row in found[:8])
    return DoctorCheck("tools", True, tell("cli.doctor.tools", count=len(found), names=names))
