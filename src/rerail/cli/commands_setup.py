"""Commands about the surroundings: tools, config, demo."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Annotated, Any

import msgspec
from rich.text import Text

from rerail.cli.commands_run import Hidden
from rerail.cli.options import PLAIN, Common
from rerail.cli.output import Output, clean, one_line
from rerail.cli.session import Session
from rerail.cli.style import table
from rerail.core.assumed import acting_first, said
from rerail.i18n import say, span, tell
from rerail.settings import describe
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
