"""Commands about the surroundings: tools, config, doctor, demo."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import msgspec
from rich.text import Text

from rerail.cli.commands_run import Hidden
from rerail.cli.options import PLAIN, Common
from rerail.cli.output import Output, clean, one_line
from rerail.cli.session import Session, store_file
from rerail.cli.style import icon, table
from rerail.core.texts import say, span, tell
from rerail.errors import RerailError
from rerail.settings import describe
from rerail.version import __version__
from rerail.wiring import declared_tools


async def config(*, common: Common = PLAIN, out: Annotated[Output, Hidden]) -> int:
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
    out.print(*table([out.say(f"cli.head.{name}") for name in ("key", "value", "source")], cells, out.out.width))
    return 0


def _source(out: Output, source: str) -> str:
    return out.say("source.default") if source == say("source.default") else out.told(source)


async def memory(*, clear: bool = False, common: Common = PLAIN, out: Annotated[Output, Hidden]) -> int:
    """Show what the latest runs teach: per tool and error, which rung mended it. Used with reflection.memory = true."""
    session = Session(common, out)
    session.require_store()
    async with session.engine(making=clear) as engine:
        if clear:
            await engine.forget()
        rows = await engine.memory()
    if out.json:
        out.document(rows)
    elif not rows:
        out.print(out.say("cli.memory.empty"))
    else:
        cells = [[Text(one_line(row["failure"], 90)), Text(row["rung"]), Text(str(row["worked"]))] for row in rows]
        out.print(*table([out.say(f"cli.head.{name}") for name in ("failure", "rung", "worked")], cells, out.out.width))
    return 0


# -- Tools --------------------------------------------------------------------------------------------------------


async def tools(*, common: Common = PLAIN, out: Annotated[Output, Hidden]) -> int:
    """List the tools that --tools and the settings give: arguments, effect, timeout, and where each comes from."""
    session = Session(common, out)
    rows = await _tool_rows(session)
    if out.json:
        out.document(rows)
    elif not rows:
        out.print(out.say("cli.tools.none"))
        out.note(Text("  rerail tools --tools file.py", "cyan"))
    else:
        for row in rows:
            out.print(*_tool_lines(out, row))
    return 0


async def _tool_rows(session: Session) -> list[dict[str, Any]]:
    loaded = [(tool, source) for source in session.given for tool in session.load([source])]
    loaded += [(tool, "rerail.toml") for tool in declared_tools(session.settings)]
    sources = {tool.spec.name: source for tool, source in loaded}
    async with session.toolbox() as engine:  # two tools of one name are refused here as in a run
        specs = list(engine.tools.values())
    return [spec.to_dict(sources.get(spec.name) or f"mcp.servers.{spec.provider}") for spec in specs]


def _tool_lines(out: Output, row: Mapping[str, Any]) -> list[Text]:
    title = Text.assemble((clean(row["name"]), "bold"), f"({arguments(row['schema'])})")
    facts = [out.say(f"cli.effect.{row['effect']}")]
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
    """A tool's arguments as a signature: name: type, and = where it may be left out."""
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


# -- Doctor -------------------------------------------------------------------------------------------------------


class Check(NamedTuple):
    """One thing that was looked at."""

    name: str
    ok: bool
    detail: str
    hint: str = ""


async def doctor(*, common: Common = PLAIN, out: Annotated[Output, Hidden]) -> int:
    """Check that everything a run needs is there; changes nothing. Exit code 1 if something is wrong."""
    checks = [_python(), _sqlite(), Check("lang", True, out.lang)]
    try:
        session = Session(common, out)
    except RerailError as error:
        checks.append(Check("settings", False, error.message, error.hint))
    else:
        files = sorted({source for source in session.sources.values() if source.endswith("rerail.toml")})
        checks.append(Check("settings", True, ", ".join(files) or tell("cli.doctor.defaults")))
        checks += [await _store(session), await _tools(session)]
    if out.json:
        rows = [check._asdict() for check in checks]
        out.document({"ok": all(check.ok for check in checks), "version": __version__, "checks": rows})
    else:
        for check in checks:
            sign = icon("succeeded" if check.ok else "failed", fancy=out.fancy)
            out.print(Text.assemble(sign, " ", (f"{check.name:<9}", "bold"), clean(out.told(check.detail))))
            if check.hint:
                out.print(Text.assemble("            ", (clean(out.told(check.hint)), "cyan")))
    return 0 if all(check.ok for check in checks) else 1


def _python() -> Check:
    version = ".".join(map(str, sys.version_info[:3]))
    return Check("python", sys.version_info >= (3, 11), f"{version}, rerail {__version__}")


def _sqlite() -> Check:
    import apsw

    return Check("sqlite", True, f"{apsw.sqlite_lib_version()} (apsw {apsw.apsw_version()})")


async def _store(session: Session) -> Check:
    url = session.settings.store.url
    file = store_file(url)
    if file is not None and not file.exists():
        return _absent(session.out, file)
    try:
        async with session.engine():
            pass
    except RerailError as error:
        return Check("store", False, error.message, error.hint)
    if file is not None and not os.access(file, os.W_OK):
        return Check("store", False, tell("cli.doctor.read_only", file=file))
    from rerail.adapters.stores.remote import shown

    return Check("store", True, shown(url))


def _absent(out: Output, file: Path) -> Check:
    """A store that is not there yet is fine, if it can be made."""
    folder = next(parent for parent in file.absolute().parents if parent.exists())
    if folder.is_dir() and os.access(folder, os.W_OK):
        return Check("store", True, tell("cli.doctor.absent", file=file))
    return Check("store", False, tell("cli.doctor.no_place", file=file, folder=folder), tell("cli.hint.store"))


async def _tools(session: Session) -> Check:
    try:
        found = await _tool_rows(session)
    except RerailError as error:
        return Check("tools", False, error.message, error.hint)
    if not found:
        return Check("tools", True, "0")
    names = ", ".join(row["name"] for row in found[:8])
    return Check("tools", True, tell("cli.doctor.tools", count=len(found), names=names))


# -- Demo ---------------------------------------------------------------------------------------------------------


def run_demo(words: Sequence[str]) -> int:
    """Hand over to the demo, which reads its own options."""
    try:
        main = import_module("rerail.demo").main
    except ModuleNotFoundError as error:
        if error.name != "rerail.demo":
            raise
        with Output(json="--json" in words) as out:
            return out.usage(tell("cli.demo.missing"), "pip install --upgrade rerail")
    code: int = main(list(words))
    return code
