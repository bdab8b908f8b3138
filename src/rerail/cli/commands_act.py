"""Commands by which people act on a run (SPEC X7, T7): confirm, resolve, skip, add, pause, cancel.

Each reaches the run's owner through the store; with no living owner it is applied here, and the run goes on here.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from cyclopts import Parameter
from rich.text import Text

from rerail.cli.attend import Attended, exit_code, show_report, stay
from rerail.cli.commands_run import DETACH, Hidden, handed_over, typed_line
from rerail.cli.inputs import as_mapping, as_value, load_steps, read_edits
from rerail.cli.launch import detach, detaches, under
from rerail.cli.options import FLAG, PLAIN, Common
from rerail.cli.output import Output, one_line
from rerail.cli.picture import Picture
from rerail.cli.render import outlook_lines
from rerail.cli.session import Session, ownership
from rerail.core.command import Add, Cancel, Command, Confirm, Pause, Refuse, Repair, Resolve, Skip
from rerail.core.lines import waited_for_one
from rerail.errors import Refused
from rerail.i18n import tell
from rerail.wiring import Engine


async def confirm(
    run: str,
    step: str | None = None,
    /,
    *,
    refuse: Annotated[bool, FLAG] = False,
    ahead: Annotated[bool, FLAG] = False,
    args: str | None = None,
    edit: Annotated[tuple[str, ...], FLAG] = (),
    digest: str | None = None,
    yes: Annotated[bool, Parameter(name=("--yes", "-y"), negative=())] = False,
    dry_run: Annotated[bool, FLAG] = False,
    wait: Annotated[bool, FLAG] = False,
    detached: Annotated[bool, DETACH] = False,
    common: Common = PLAIN,
    out: Annotated[Output, Hidden],
) -> int:
    """Agree to the call that a gated step waits with, as it is or edited, or refuse it."""
    if refuse and (edit or args is not None or ahead):
        return out.usage(out.say("cli.confirm.edit_or_refuse"), f"rerail confirm {run} --refuse")
    session, edits = Session(common, out), read_edits(edit)
    given = as_mapping(args) if args is not None else {}
    if not (refuse or ahead or dry_run):
        digest = await _agreed(session, run, step, given, digest, yes=yes)
    yes_to = Confirm(step=step, digest=digest or "", ahead=ahead, args=given, edit=edits)
    command = Refuse(step=step) if refuse else yes_to
    behind = not dry_run and await detaches(session, run, wait=wait, detach=detached)
    if behind and not await _owner(session, run):
        return await detach(session, under(session, run, command))
    return await _act(run, command, common, out, dry_run=dry_run)


async def _agreed(
    session: Session, run: str, step: str | None, args: Mapping[str, Any], digest: str | None, *, yes: bool
) -> str | None:
    """Show the call that a person agrees to, and ask for the word on a terminal; the call's digest (X10).

    None if no call is shown yet: the engine says what to do then.
    """
    out = session.out
    async with session.engine(run=run) as engine:
        waits = (await engine.show(run)).waiting_on
    gates = [item for item in waits if item["for"] == "confirm" and step in (None, item["step"])]
    if len(gates) != 1 or not gates[0].get("digest"):
        return digest
    [gate] = gates
    if digest is not None and digest != gate["digest"]:
        return digest  # it is refused, and the refusal shows the call
    shown = waited_for_one({**gate, "args": {**(gate["args"] or {}), **args}} if args else gate, out.lang)
    out.note(Text(out.say("cli.confirm.edited", call=shown) if args else shown))
    if not (yes or out.json or digest) and sys.stdin.isatty() and sys.stderr.isatty():
        out.err.print(out.say("cli.confirm.ask"), end=" ")
        if (await typed_line()).strip().lower() not in ("y", "yes", "是"):
            raise Refused(tell("cli.confirm.declined"), "CONFIRM_NEEDED")
    return str(gate["digest"])


async def resolve(
    run: str,
    step: str,
    /,
    *,
    succeeded: Annotated[str | None, Parameter(allow_leading_hyphen=True)] = None,
    failed: Annotated[bool, FLAG] = False,
    rerun: Annotated[bool, FLAG] = False,
    dry_run: Annotated[bool, FLAG] = False,
    common: Common = PLAIN,
    out: Annotated[Output, Hidden],
) -> int:
    """Say what became of a step whose effect is in doubt, or set its output by hand."""
    if [succeeded is not None, failed, rerun].count(True) != 1:
        return out.usage(tell("cli.resolve.which"), f"rerail resolve {run} {step} --succeeded VALUE")

    value = as_value(succeeded) if succeeded is not None else None
    if isinstance(value, str) and value == succeeded and value.lstrip()[:1] in ("{", "["):
        out.note(Text(out.say("cli.resolve.as_text", value=one_line(value, 80)), "yellow"))

    outcome: Literal["succeeded", "failed", "rerun"] = "failed" if failed else "rerun" if rerun else "succeeded"
    return await _act(run, Resolve(step=step, outcome=outcome, value=value), common, out, dry_run=dry_run)


async def repair(
    run: str,
    step: str,
    /,
    *,
    args: str | None = None,
    remove: Annotated[tuple[str, ...] | None, FLAG] = None,
    tool: str | None = None,
    needs: Annotated[tuple[str, ...] | None, FLAG] = None,
    dry_run: Annotated[bool, FLAG] = False,
    common: Common = PLAIN,
    out: Annotated[Output, Hidden],
) -> int:
    """Change a step that failed, and do it and what depends on it again; what is done is kept."""
    command = Repair(
        step=step, tool=tool, args=as_mapping(args) if args is not None else None,
        remove=list(remove) if remove is not None else None, needs=list(needs) if needs is not None else None,
    )  # fmt: skip
    return await _act(run, command, common, out, dry_run=dry_run)


async def skip(
    run: str,
    step: str,
    /,
    *,
    reason: str = "",
    dry_run: Annotated[bool, FLAG] = False,
    common: Common = PLAIN,
    out: Annotated[Output, Hidden],
) -> int:
    """Do without a step: those that need it go on, with nothing in its place."""
    return await _act(run, Skip(step=step, reason=reason), common, out, dry_run=dry_run)


async def add(run: str, steps_file: str, /, *, common: Common = PLAIN, out: Annotated[Output, Hidden]) -> int:
    """Add steps to a run that is not at rest; a bad change is refused and the old plan stays."""
    return await _act(run, Add(steps=tuple(load_steps(steps_file))), common, out)


async def pause(run: str, /, *, common: Common = PLAIN, out: Annotated[Output, Hidden]) -> int:
    """Start nothing more until somebody resumes the run; calls under way end.

    Exit code 0 if it was paused."""
    code = await _act(run, Pause(), common, out, patient=True)
    return 0 if code == exit_code("waiting") else code


async def cancel(run: str, /, *, reason: str = "", common: Common = PLAIN, out: Annotated[Output, Hidden]) -> int:
    """End a run: calls under way are cancelled, nothing more starts.

    Exit code 0 if it was cancelled, whatever the run came to."""
    code = await _act(run, Cancel(reason=reason), common, out, patient=True)
    return 0 if code == exit_code("cancelled") else code


async def _act(
    run: str, command: Command, common: Common, out: Output, *, patient: bool = False, dry_run: bool = False
) -> int:
    """Act on a run; if nobody else drives it, stay with it."""
    if dry_run:
        return await _foreseen(run, command, common, out)
    async with Session(common, out).acting(run, patient=patient) as (engine, found, owner):
        picture = Picture.of(found, await engine.events(found))
        await engine.do(found, command)
        if owner:
            return await handed_over(engine, out, found, owner)
        if await _is_driven_here(engine, found):
            return await stay(engine, out, picture, handed_to=None)
        return await _recorded(engine, out, found)


async def _foreseen(run: str, command: Command, common: Common, out: Output) -> int:
    """Show what an action would lead to."""
    async with Session(common, out).reopened(run) as (engine, found):
        _, preview = await engine.do(found, command, dry_run=True)
        assert preview is not None
        if out.json:
            out.document({"run_id": found, **preview.to_dict()})
        else:
            out.print(*outlook_lines(out, Picture.of(found, await engine.events(found)), preview))
    return 0


async def _owner(session: Session, run: str) -> str:
    """The living owner of a run, if it has one."""
    async with session.engine(run=run) as engine:
        return (await ownership(engine, await engine.find(run))).owner


async def _is_driven_here(engine: Engine, run: str) -> bool:
    """Whether the action set the run going in this process."""
    return not (await ownership(engine, run)).interrupted


async def _recorded(engine: Engine, out: Output, run: str) -> int:
    """The action was written down, but the run cannot go on here: its tools are not known."""
    picture, found = Picture.of(run, await engine.events(run)), await engine.show(run)
    attended = Attended(found, picture, interrupted=found.status == "running")
    show_report(out, attended)
    if out.json:
        out.document({**found.to_dict(), "handed_to": None})
    return attended.code
