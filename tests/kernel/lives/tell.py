"""Everything that today's code tells of a history, as lines of text that can be read and compared.

    python -m tests.kernel.lives.tell [NAME …]         # writes NAME.txt anew, where telling otherwise was meant
    python -m tests.kernel.lives.tell --live SEED …    # writes SEED.jsonl: the history of that simulated life

A history is written once and stays; what is told of it is written anew by whoever means to tell it otherwise, and the
change shows where. Of views, only what an event changed is told.
"""

from __future__ import annotations

import asyncio
import copy
import getpass
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec

from rerail.kernel import actions, retry
from rerail.kernel import stages as pipeline
from rerail.kernel.actions import Faulty, Refusal
from rerail.kernel.codec import decode, encode
from rerail.kernel.decide import Action, Note, decide
from rerail.kernel.events import Event, Record
from rerail.kernel.fold import fold
from rerail.kernel.preview import outlook
from rerail.kernel.retry import FileDamage
from rerail.kernel.state import State
from rerail.plan.step import Effect
from rerail.plan.tool_spec import ToolSpec
from rerail.values.json_values import pack
from rerail.views.attempts import revisions, step_detail
from rerail.views.chat_messages import ToolMessages
from rerail.views.live_run import Board, run_view
from rerail.views.narration import Narrator
from rerail.views.replay.replay import replay
from rerail.views.results import question_table, result
from rerail.views.why import failures, story

HERE = Path(__file__).parent
WRITTEN = HERE.parents[1] / "histories" / "0.1.0"
KINDS = ("acted", "consulted", "doubt", "failed", "healed", "replanned", "staged", "stopped")
LONG = 120  # characters of a text that are told whole
# Under other settings: one of each kind, so that some of them make a difference.
OTHERWISE: tuple[dict[str, Any], ...] = (
    {"max_step_retries": 0}, {"max_step_retries": 3, "backoff_base": 2.0}, {"max_retry_rounds": 0},
    {"concurrency": 1}, {"max_consecutive_failures": 1}, {"step_timeout": 5.0}, {"max_attempts": 4},
)  # fmt: skip


def files() -> dict[str, Path]:
    """The histories: those of lives, and those that the newest version wrote."""
    found = [*HERE.glob("*.jsonl"), *(WRITTEN / f"{name}.jsonl" for name in KINDS)]
    return {path.stem: path for path in sorted(found)}


def read(path: Path) -> tuple[list[Record], dict[str, ToolSpec]]:
    """A history, and what is known of its tools."""
    first, *rest = map(msgspec.json.decode, path.read_bytes().splitlines())
    rows = [row for row in rest if row["run"] == "run"]
    records = [Record("run", row["seq"], row["at"], decode(msgspec.json.encode(row["event"]))) for row in rows]
    known = first.get("tools", {name: {} for name in ("act", "other", "send", "pay", "make")})
    tools = {name: ToolSpec(name, effect=Effect(one.get("effect", "repeatable")),
                            verifiable=one.get("verifiable", False)) for name, one in known.items()}  # fmt: skip
    return records, tools


def told(records: Sequence[Record], tools: Mapping[str, ToolSpec]) -> Iterator[str]:
    """Everything, from its first event to its end."""
    yield from _course(records, tools)
    state, last = fold("run", records), records[-1].at
    board = Board.of("run", records)
    yield "# at the end"
    outputs = {track.id: track.result.output for track in state.tracks.values() if track.result is not None}
    yield from _lines("result", result(state, outputs, last + 1).to_dict())
    yield from _lines("table", question_table(state))
    yield from _lines("task", pipeline.task_view(state))
    yield from _lines("revision", revisions(records))
    yield from _lines("failure", failures(records))
    for track in state.tracks.values():
        seen = step_detail(board, track, records, {})
        yield from _lines(f"detail {track.id}", {name: seen[name] for name in ("tries", "downstream")})
    for step in (None, *state.tracks):
        yield from (f"why {step or ''}: {line}" for line in story(state, records, step).splitlines())
    yield from (f"zh: {line}" for line in story(state, records, None, "zh").splitlines())
    for at in sorted({len(records) // 2, len(records)} - {0}):
        yield f"# what may be done after {at}"
        yield from _wishes(records[:at], tools)
    for changes in OTHERWISE:
        yield f"# under {changes}"
        yield from _replayed(replay("run", records, tools, changes).to_dict())
    yield "# without tools"
    yield from _replayed(replay("run", records, {}, {"max_step_retries": 0}, missing=tools).to_dict())


def _replayed(seen: dict[str, Any]) -> Iterator[str]:
    """What would have been different."""
    rows = [row for row in seen.pop("steps") if row["changed"]]
    yield from _lines("", {name: seen[name] for name in ("same", "known", "drift")} if seen["same"] else seen)
    for row in rows:
        yield f"{row['step']} {_json(row['recorded'])} {_json(row['replayed'])} {row['other_output']}"


def _course(records: Sequence[Record], tools: Mapping[str, ToolSpec]) -> Iterator[str]:
    """Each event: in words, what it changes of the view, which messages it makes, and what is decided then."""
    board, messages = Board("run"), ToolMessages("run")
    before: dict[str, Any] = {}
    for record in records:
        board.feed(record)
        state = board.state
        line = Narrator(state).line(record.event)
        yield f"# {record.seq} {record.type}: {_short(line and line.words)}"
        view = run_view(board, record.at)
        view["exec"] = {name: value for name, value in view["exec"].items() if name != "used"}
        view["budgets"] = {row.pop("name"): list(row.values()) for row in view["budgets"]}
        for name in ("at", "updated_at", "seq", "elapsed"):
            del view[name]
        yield from _difference("", before, view)
        before = copy.deepcopy(view)
        for message in messages.feed(record):
            payload = {name: value for name, value in message.payload.items() if name not in ("runId", "seq")}
            yield f"says {message.name} {_json(payload)}"
        # A state of its own: what is decided may let time pass in it.
        yield from (f"then {one}" for one in map(_action, decide(state, tools, record.at)))


def _action(action: Action) -> str:
    if not isinstance(action, Note):
        return repr(action)
    names = ("step", "rung", "code", "delay", "stale", "question", "status", "failed", "roots", "needs")
    rows = []
    for event in action.events:
        row = {name: value for name in names if (value := getattr(event, name, None))}
        rows.append(f"{type(event).__struct_config__.tag} {_json(row)}")
    return "note " + "; ".join(rows)


def _wishes(records: Sequence[Record], tools: Mapping[str, ToolSpec]) -> Iterator[str]:
    """What each command would do, or why it would not."""
    at = records[-1].at
    state = fold("run", records)
    first = next(iter(state.tracks), "")
    damage = [FileDamage(first, "made.json", "it is gone")]
    whole: dict[str, Callable[[], Any]] = {
        "retry": lambda: retry.retry(state, "ann").to_dict(),
        "retry --force": lambda: retry.retry(state, "ann", force=True).to_dict(),
        "retry --clean": lambda: retry.retry(state, "ann", clean=True).to_dict(),
        "retry of what is lost": lambda: retry.retry(state, "ann", force=True, damage=damage).to_dict(),
        "pause": lambda: actions.pause(state, "ann"),
        "resume": lambda: actions.resume(state, "ann"),
        "cancel": lambda: actions.cancel(state, "ann"),
        "confirm": lambda: actions.confirm(state, None, "ann"),
    }
    for name, wish in whole.items():
        yield f"{name}: {_granted(wish)}"
    for step in state.tracks:
        single: dict[str, Callable[[State], list[Event]]] = {
            "skip": lambda state, step=step: actions.skip(state, step, "ann"),
            "confirm": lambda state, step=step: actions.confirm(state, step, "ann"),
            "refuse": lambda state, step=step: actions.refuse(state, step, "ann"),
            "succeeded": lambda state, step=step: actions.resolve_succeeded(state, step, "ann", 1, pack(1), blob=False),
            "failed": lambda state, step=step: actions.resolve_failed(state, step, "ann"),
            "rerun": lambda state, step=step: actions.resolve_rerun(state, step, "ann"),
            "repair": lambda state, step=step: actions.repair(state, step, {"args": {"n": 1}}, tools, "ann"),
            "retry": lambda state, step=step: retry.retry_live(state, [step], "ann"),
            "retry at rest": lambda state, step=step: list(retry.retry(state, "ann", steps=[step]).events),
        }
        refused: dict[str, list[str]] = {}
        for name, act in single.items():
            found = _granted(lambda act=act, step=step: _led(records, tools, step, act, at))
            if found.startswith("refused"):
                refused.setdefault(found.split(": ")[1], []).append(name)
            else:
                yield f"{name} {step}: {found}"
        yield f"{step} refused: {_json(refused)}"


def _led(
    records: Sequence[Record], tools: Mapping[str, ToolSpec], step: str, act: Callable[[State], list[Event]], at: float
) -> Any:
    """What an action would lead to."""
    state = fold("run", records)
    seen = outlook(state, tools, step, act(state), at).to_dict()
    return {name: value for name, value in seen.items() if value}


def _granted(wish: Callable[[], Any]) -> str:
    try:
        found = wish()
    except Refusal as refusal:
        return f"refused: {refusal.code}: {refusal.message} ({refusal.hint})"
    except Faulty as faulty:
        return f"faulty: {faulty}"
    if isinstance(found, list):
        return "; ".join(encode(event).decode() for event in found)
    return _json({name: value for name, value in found.items() if value not in (None, [], {})})


# -- As text ----------------------------------------------------------------------------------------------------------


def _difference(name: str, old: Any, new: Any) -> Iterator[str]:
    """What is another in a view, one member a line."""
    if isinstance(old, dict) and isinstance(new, dict):
        for key in dict.fromkeys([*old, *new]):
            yield from _difference(f"{name}.{key}" if name else key, old.get(key), new.get(key))
    elif isinstance(new, dict):  # what is new, as far as it says anything
        yield from (line for key, value in new.items() if value for line in _difference(f"{name}.{key}", None, value))
    elif isinstance(old, list) and isinstance(new, list) and new[: len(old)] == old and len(new) > len(old) > 0:
        yield from (f"{name}+ {_json(one)}" for one in new[len(old) :])
    elif old != new:
        yield f"{name} {_json(new)}"


def _lines(name: str, value: Any) -> Iterator[str]:
    """A value, one member or item a line."""
    if isinstance(value, Mapping):
        for key, one in value.items():
            many = isinstance(one, Mapping | list) and len(_json(one)) > LONG
            label = f"{name}.{key}" if name else str(key)
            yield from _lines(label, one) if many else [f"{label} {_json(one)}"]
    elif isinstance(value, list):
        for one in value:
            yield f"{name} {_json(one)}"
    else:
        yield f"{name} {_json(value)}"


def _json(value: Any) -> str:
    return msgspec.json.encode(_cut(value), enc_hook=str).decode()


def _cut(value: Any) -> Any:
    """Plain data with long texts cut."""
    if isinstance(value, Mapping):
        return {str(key): _cut(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_cut(one) for one in value]
    if isinstance(value, float):
        return round(value, 6)
    return _short(value) if isinstance(value, str) else value


def _short(text: str | None) -> str:
    if text is None or len(text) <= LONG:
        return text or "-"
    return f"{text[:40]}… ({len(text)}, {sha256(text.encode()).hexdigest()[:8]})"


# -- Writing ------------------------------------------------------------------------------------------------------


def live(seed: int) -> None:
    """Write the history of a simulated life down."""
    from tests.simulation.chance import Dice
    from tests.simulation.generators import draw_plan
    from tests.simulation.scenario import FAR, Life

    from rerail.testing.virtual_time import VirtualLoop

    async def whole() -> tuple[list[Record], dict[str, Any]]:
        dice = Dice(seed)
        plan = draw_plan(dice)
        places = ("reading", "", "writing")
        steps = [
            msgspec.structs.replace(step, title=f"the {n}th", stage=places[min(n // 2, 2)]) if n % 3 else step
            for n, step in enumerate(plan.steps)
        ]
        found = Life(dice, msgspec.structs.replace(plan, steps=tuple(steps)) if seed % 2 else plan)
        async with asyncio.timeout(FAR):
            await found.play()
            await found.close()
        tools = {name: tool for one in found.processes for name, tool in one.engine.tools.items()}
        return await found.records(), tools

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        records, tools = runner.run(whole())
    known = {name: {"effect": str(spec.effect), "verifiable": spec.verifiable} for name, spec in tools.items()}
    rows = [{"run": "run", "seq": one.seq, "at": one.at, "event": _bare(one.event)} for one in records]
    lines = [msgspec.json.encode(row) for row in ({"tools": known}, *rows)]
    (HERE / f"{seed}.jsonl").write_bytes(b"\n".join([*lines, b""]))


def _bare(event: Event) -> Any:
    """An event without what is only of the machine that it was made on."""
    plain = msgspec.json.decode(encode(event))
    if plain.get("error", {}).get("traceback"):
        plain["error"]["traceback"] = 'File "/opt/tools.py", line 7, in call'
    return {name: "ann" if value == getpass.getuser() else value for name, value in plain.items()}


def main(words: Sequence[str]) -> None:
    """Write histories, or what is told of them."""
    if words[:1] == ["--live"]:
        for seed in words[1:]:
            live(int(seed))
        return
    for name, path in files().items():
        if not words or name in words:
            (HERE / f"{name}.txt").write_text("\n".join([*told(*read(path)), ""]), "utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
