"""The command that decides a recorded run again: replay."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Annotated, Any

import msgspec
from rich.text import Text

from rerail.cli.commands_run import Hidden
from rerail.cli.options import PLAIN, Common
from rerail.cli.output import Output, clean, one_line
from rerail.cli.session import Session
from rerail.cli.style import table
from rerail.core.replay import Replay, Spent, Unanswered
from rerail.i18n import span
from rerail.settings import overrides_from


async def replay(run: str, /, *, common: Common = PLAIN, out: Annotated[Output, Hidden]) -> int:
    """Decide a recorded run again under other settings, and tell what would have been different."""
    changes = overrides_from(list(common.set))  # for the run, not for this command
    async with Session(replace(common, set=()), out).replaying(run) as (engine, found):
        told = await engine.replay(found, changes)
    if out.json:
        out.document(told.to_dict())
    else:
        out.print(*_lines(out, told))
    return 0


def _lines(out: Output, told: Replay) -> Iterator[Text]:
    yield Text(out.say("cli.replay.title", run=told.run), "bold")
    for name, (old, new) in told.settings.items():
        yield Text(out.say("cli.replay.setting", name=name, old=_value(old), new=_value(new)))
    if not told.branch:
        yield Text(out.say("cli.replay.same"), "green")
    else:
        yield Text(out.say("cli.replay.branch", seq=told.branch))
        for action in told.instead:
            what = " ".join(_said(value) for key, value in action.items() if key != "does" and value is not None)
            does = out.say("cli.replay.does", does=action["does"], what=what)
            yield Text("  " + one_line(does, max(20, out.out.width - 2)), "cyan")
    if told.drift:
        yield Text(out.say("cli.replay.drift", seq=told.drift), "yellow")
    yield from _sums(out, told)
    yield from _steps(out, told)
    yield from _unknown(out, told)
    if told.not_replayed:
        yield Text(out.say("cli.replay.not_replayed", n=told.not_replayed), "dim")


def _said(value: object) -> str:
    return span(value) if isinstance(value, float) else str(value)  # the only number there is a delay


def _sums(out: Output, told: Replay) -> Iterator[Text]:
    def row(name: str, old: str, new: str) -> list[Text]:
        shown = new if told.known or name == "outcome" else out.say("cli.replay.at_least", value=new)
        return [Text(out.say(f"cli.replay.{name}")), Text(old), Text(shown, "" if old == new else "bold")]

    was, would = told.recorded, told.replayed
    rows = [
        row("outcome", out.say(f"status.{was.status}"), out.say(f"status.{would.status}")),
        row("calls", str(was.calls), str(would.calls)),
        row("waited", span(was.waited), span(would.waited)),
        row("seconds", span(was.seconds), span(would.seconds)),
    ]
    if was.tokens or would.tokens:
        rows.append(row("tokens", f"{was.tokens:,}", f"{would.tokens:,}"))
    if was.cost or would.cost:
        rows.append(row("cost", f"{was.cost:.4f}", f"{would.cost:.4f}"))
    yield from table(["", out.say("cli.head.recorded"), out.say("cli.head.replayed")], rows, out.out.width)


def _steps(out: Output, told: Replay) -> Iterator[Text]:
    rows = [
        [Text(clean(row.step)), Text(_step(out, row.recorded)), Text(_step(out, row.replayed), "bold")]
        for row in told.steps
        if row.changed
    ]
    if rows:
        heads = [out.say(f"cli.head.{name}") for name in ("step", "recorded", "replayed")]
        yield from table(heads, rows, out.out.width)
    elif told.branch:
        yield Text(out.say("cli.replay.unchanged"))


def _step(out: Output, spent: Spent) -> str:
    if not spent.status:
        return "-"  # it is not part of the plan there
    words = out.say(f"status.{spent.status}")
    return out.say("cli.replay.step", status=words, calls=spent.calls, waited=span(spent.waited))


def _unknown(out: Output, told: Replay) -> Iterator[Text]:
    if told.unknown:
        yield Text(out.say("cli.replay.unknown"), "yellow")
        yield from (Text(clean(_missing(out, one))) for one in told.unknown[:20])
    elif not told.known:
        yield Text(out.say("cli.replay.unfinished"), "yellow")


def _missing(out: Output, one: Unanswered) -> str:
    key = one.what if one.what in ("call", "look", "person", "tool") else "mind"
    return out.say(
        f"cli.replay.unknown.{key}", what=one.what, step=one.step, tool=one.tool, call=one.call, round=one.round
    )


def _value(value: Any) -> str:
    return msgspec.json.encode(value).decode()
