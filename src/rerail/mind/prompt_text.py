"""Prompt texts: the compact, bounded view that models get of a run, with untrusted text fenced (contract M4).

Rules of this file:
- Steps are never cut: the table has a row for each, however many there are. Only their contents are cut.
- All text from tools, users and plans is data. It stands between fences with unpredictable names. A
  template's gaps are filled in one pass, so that no data can open a gap or close a fence.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from itertools import accumulate
from typing import Any

import msgspec

from rerail.i18n import tell
from rerail.plan.tool_spec import ToolSpec
from rerail.ports import Prompt, Question, Sample
from rerail.values.json_values import digest

ROOM = 60_000  # characters of a prompt, unless the table of steps alone needs more
_GAP = re.compile(r"\{\{(\w+)\}\}")
_NAME = re.compile(r"[^\W_](?:[\w .:/@-]{0,198}[\w])?")
CUT = "…"


class BadTemplate(ValueError):
    """A prompt file that cannot be used; the message says why."""


def filled(template: str, role: str, values: Mapping[str, str], schema: Mapping[str, Any]) -> Prompt:
    """Fill a prompt template: the part above the first line of dashes is the system message, the rest the question."""
    system, dashes, user = template.partition("\n---\n")
    if not dashes:
        raise BadTemplate(tell("mind.prompt.no_dashes", role=role))
    unknown = sorted({name for name in _GAP.findall(template) if name not in values})
    if unknown:
        gaps = ", ".join("{{" + name + "}}" for name in values)
        raise BadTemplate(tell("mind.prompt.unknown_gap", role=role, unknown=unknown[0], gaps=gaps))

    def fill(part: str) -> str:
        return _GAP.sub(lambda gap: values[gap[1]], part).strip()

    return Prompt(role, fill(system), fill(user), schema)


def fenced(label: str, text: str, of: Callable[[bytes], str] = digest) -> str:
    """Return untrusted text as data, between marks that do not occur in it."""
    mark = of(f"{label}\n{text}".encode("utf-8", "replace"))[:12]
    while mark in text:
        mark = of((mark + text).encode("utf-8", "replace"))[:12]
    return f"<data {mark} {label}>\n{text}\n</data {mark}>"


def cut(text: str, limit: int) -> str:
    """Return a text cut to a number of characters, with the number left out."""
    if len(text) <= limit:
        return text
    kept = max(0, limit - 24)
    return f"{text[:kept]}{CUT} ({len(text) - kept:,} more)"


def shown(value: Any, limit: int) -> str:
    """Return a JSON value as text, cut to a number of characters."""
    if isinstance(value, Sample):
        return cut(value.text, limit - 24) + f" ({value.size:,} bytes in all)"
    return cut(as_json(value), limit)


def as_json(value: Any) -> str:
    """Return a value as JSON; a value outside of JSON (a schema may hold any) in Python's notation."""
    try:
        return msgspec.json.encode(value, enc_hook=repr).decode()
    except (TypeError, ValueError, RecursionError):
        return ascii(value)


def name(text: Any) -> str:
    """Return an id or a tool's name for a line of a prompt: quoted if it could be taken for more than a name."""
    words = str(text)
    return words if _NAME.fullmatch(words) else as_json(words)


# -- The parts of a question ------------------------------------------------------------------------------------------


def table(rows: Sequence[Mapping[str, Any]], room: int) -> str:
    """Return one line per step, always all of them; if room is scarce, errors are shortened first, then needs."""
    for errors, needs in ((300, 12), (120, 12), (60, 6), (0, 3), (0, 0)):
        lines = [_row(row, errors, needs) for row in rows]
        text = "\n".join(["id | tool | status | attempts | needs | error", *lines])
        if len(text) <= room:
            break
    return text


def _row(row: Mapping[str, Any], errors: int, most: int) -> str:
    needs = [name(need) for need in row["needs"]]
    listed = ", ".join(needs[:most]) + (f" (+{len(needs) - most})" if len(needs) > most else "")
    status = f"{row['status']} ({row['code']})" if row.get("code") else str(row["status"])
    error = cut(" ".join(str(row["error"] or "").split()), errors) if errors else ""
    return f"{name(row['id'])} | {name(row['tool'])} | {status} | {row['attempts']} | {listed or '-'} | {error or '-'}"


def tools(specs: Mapping[str, ToolSpec], room: int, used: Iterable[str] = ()) -> str:
    """Return the tools with their schemas; if room is scarce, tools outside of the plan lose theirs first."""
    mine = set(used)
    for whole, words in (("all", 300), ("mine", 300), ("mine", 80), ("none", 60), ("none", 0)):
        chosen = specs.keys() if whole == "all" else mine if whole == "mine" else ()
        lines = [_tool(spec, spec.name in chosen, words) for spec in specs.values()]
        if sum(map(len, lines)) + len(lines) <= room:
            return "\n".join(lines)
    # Too many to name: those of the plan come first. A tool that is not shown cannot be requested.
    first = [spec for spec in specs.values() if spec.name in mine]
    rest = [spec for spec in specs.values() if spec.name not in mine]
    return _as_many([_tool(spec, False, 0) for spec in (*first, *rest)], room, "tools")


def _as_many(lines: Sequence[str], room: int, what: str) -> str:
    """Return the first lines that fit, and the number left out."""
    ends = accumulate(len(line) + 1 for line in lines)
    kept = list(lines[: sum(end <= room for end in ends)])
    left = len(lines) - len(kept)
    return "\n".join([*kept, f"{CUT} ({left:,} {what} are not shown)"] if left else kept)


def _tool(spec: ToolSpec, schema: bool, words: int) -> str:
    said = cut(" ".join(spec.description.split()), words) if words else ""
    shape = f" args: {as_json(spec.schema.source)}" if schema else ""
    return f"- {name(spec.name)} [{spec.effect}]{': ' if said else ''}{said}{shape}"


def definitions(rows: Sequence[Mapping[str, Any]], room: int, done: Container[str] = ()) -> str:
    """Return each step's definition, one a line; if room is scarce they are cut, and finished ones are dropped."""
    if not rows:
        return "none"
    share = max(120, room // len(rows) - 1)
    lines = [shown(row, share) for row in rows]
    if sum(map(len, lines)) + len(lines) <= room:
        return "\n".join(lines)
    order = sorted(range(len(rows)), key=lambda i: rows[i]["id"] in done)  # stable: otherwise in plan order
    return _as_many([lines[i] for i in order], room, "steps")


def outputs(values: Mapping[str, Any], room: int) -> str:
    """Return the outputs of steps, each with an equal share of the room."""
    if not values:
        return "none"
    share = max(40, min(2000, room // len(values) - 20))
    return cut("\n".join(f"{step}: {shown(value, share)}" for step, value in values.items()), room)


def attempts(rows: Sequence[Mapping[str, Any]], room: int) -> str:
    """Return the failed attempts of a step, the latest last."""
    if not rows:
        return "none"
    share = max(200, room // len(rows))
    return "\n".join(
        f"attempt {row['attempt']}: tool {row['tool']}, args {shown(row['args'], share // 2)} -> "
        f"{row['error']['category']} {row['error']['code']}: {cut(str(row['error']['message']), share // 2)}"
        for row in rows
    )


def events(rows: Sequence[Mapping[str, Any]], fewest: int, room: int) -> str:
    """Return the latest events that fit, one a line, but never fewer than `fewest`."""
    share = max(160, room // max(1, len(rows)))
    lines = [cut(as_json(row), min(600, share)) for row in rows]
    while len(lines) > fewest and sum(map(len, lines)) > room:
        lines.pop(0)
    return "\n".join(lines) or "none"


def pieces(question: Question, room: int = ROOM) -> dict[str, str]:
    """Return all parts of a question for a template: the table takes what it needs, the rest shares what is left."""
    steps = table(question.table, room // 2)
    left = max(4_000, room - len(steps) - 6_000)
    used = [str(row["tool"]) for row in question.table]
    done = {row["id"] for row in question.table if row["status"] in ("succeeded", "degraded")}
    return {
        "objective": fenced("objective", cut(question.objective or "-", 4_000)),
        "steps": fenced("steps", steps),
        "tools": fenced("tools", tools(question.tools, left // 2, used)),
        "definitions": fenced("definitions", definitions(question.definitions, left // 4, done)),
        "step": fenced("step", shown(question.definition, left // 6)) if question.definition else "-",
        "step_id": cut(name(question.step), 240) if question.step else "-",
        "error": fenced("error", shown(question.error, left // 6)) if question.error else "-",
        "attempts": fenced("attempts", attempts(question.attempts, left // 6)),
        "outputs": fenced("outputs", outputs(question.outputs, left // 4)),
        "events": fenced("events", events(question.events, question.fewest, left // 8)),
        "reason": fenced("reason", cut(question.reason, 2_000)) if question.reason else "-",
    }


# -- Answers ----------------------------------------------------------------------------------------------------------


class Unreadable(ValueError):
    """The answer has no JSON object."""


MAX_ANSWER = 2_000_000


def parsed(answer: Any) -> dict[str, Any]:
    """Return the JSON object in an answer: as it is, in a code fence, or with words around it."""
    if isinstance(answer, Mapping):
        return dict(answer)
    if not isinstance(answer, str):
        raise Unreadable(tell("mind.answer.kind", name=type(answer).__name__))
    text = answer.strip()
    if not text:
        raise Unreadable(tell("mind.answer.empty"))
    if len(text) > MAX_ANSWER:
        raise Unreadable(tell("mind.answer.too_long", count=len(text)))
    for candidate in (text, *_fences(text), text[text.find("{") : text.rfind("}") + 1]):
        try:
            found = msgspec.json.decode(candidate.encode("utf-8", "replace"))
        except (msgspec.DecodeError, RecursionError):
            continue
        if isinstance(found, dict):
            return found
    raise Unreadable(tell("mind.answer.no_object", text=cut(text, 120)))


DEEPEST = 100  # levels of an answer
MOST = 200_000  # values of one level


def refuse_odd(value: Any) -> None:
    """Raise `Unreadable` for an answer that is too deep or too large to process."""
    level = [value]
    for _ in range(DEEPEST):
        level = [item for one in level for item in _inside(one)]
        if not level:
            return
        if len(level) > MOST:
            raise Unreadable(tell("mind.answer.too_large"))
    raise Unreadable(tell("mind.answer.too_deep"))


def _inside(value: Any) -> Iterable[Any]:
    if isinstance(value, Mapping):
        return value.values()
    return value if isinstance(value, list | tuple) else ()


def _fences(text: str) -> list[str]:
    """Return the contents of the first code fences; without a regex, for an answer may have a million characters."""
    parts = text.split("```", 7)[1::2]  # the pieces inside, if the number of fences is even
    return [part.partition("\n")[2] for part in parts[:3]]
