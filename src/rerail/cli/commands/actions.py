"""Commands on a run: confirm, resolve, skip, add, pause, cancel (contract X7, T7).

Each reaches the run's owner through the store; with no living owner it is applied here, and the run goes on here.
"""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import UNSET
from msgspec.structs import replace
from rich.text import Text

from rerail.api import Engine
from rerail.cli.background.launcher import detaches, leave_to_worker
from rerail.cli.commands.run import foreseen, handed_over
from rerail.cli.display.follow import Attended, exit_code, show_report, stay
from rerail.cli.display.report import warnings
from rerail.cli.display.run_view import Picture
from rerail.cli.input_files import as_mapping, as_value, has_terminal, load_steps, read_edits, require_yes
from rerail.cli.options import FLAG, PLAIN, Common, Detached, Flag, Listed, Out, Yes
from rerail.cli.output import Output, one_line
from rerail.cli.session import Session, ownership
from rerail.errors import Refused
from rerail.i18n import tell
from rerail.kernel.commands import Add, Cancel, Command, Confirm, Pause, Refuse, Repair, Resolve, Skip
from rerail.views.narration import waited_for_one


async def confirm(
    run: str,
    step: str | None = None,
    /,
    *,
    refuse: Flag = False,
    ahead: Flag = False,
    args: str | None = None,
    edit: Listed = (),
    digest: str | None = None,
    yes: Yes = False,
    dry_run: Flag = False,
    wait: Flag = False,
    detached: Detached = False,
    common: Common = PLAIN,
    out: Out,
) -> int:
    """Confirm the call of a gated step, unchanged or edited, or refuse it."""
    if refuse and (edit or args is not None or ahead):
        return out.usage(out.say("cli.confirm.edit_or_refuse"), f"rerail confirm {run} --refuse")
    if wait and detached:
        return out.usage(out.say("cli.worker.wait_or_detach"), f"rerail confirm {run} --wait")
    session, edits = Session(common, out), read_edits(edit)
    given = as_mapping(args) if args is not None else {}
    yes_to = Confirm(step=step, digest=digest or "", ahead=ahead, args=given, edit=edits)
    if dry_run:
        return await _previewed(session, run, Refuse(step=step) if refuse else yes_to)
    async with session.acting(run) as (engine, found, owner):
        command: Command = Refuse(step=step)
        if not refuse:
            agreed = digest if ahead else await _agreed(engine, out, found, yes_to, yes=yes)
            command = replace(yes_to, digest=agreed or "")
        state = await engine.internals.state(found)
        behind = not owner and detaches(session, staged=state.staged, wait=wait, detach=detached)
        if behind and state.unshown and not state.paused:  # this engine goes on until the call is shown
            await engine.wait(await engine.begin_resume(found))
        return await _done(session, engine, found, owner, command, behind=behind)


async def _agreed(engine: Engine, out: Output, run: str, command: Confirm, *, yes: bool) -> str | None:
    """Show the gated call and ask for a confirmation on a terminal; return the call's digest (contract X10).

    None if no call is shown yet: the engine then says what to do.
    """
    step, args, digest = command.step, command.args, command.digest or None
    waits = (await engine.show(run)).waiting_on
    gates = [item for item in waits if item["for"] == "confirm" and step in (None, item["step"])]
    if len(gates) != 1 or not gates[0].get("digest"):
        return digest
    [gate] = gates
    if digest is not None and digest != gate["digest"]:
        return digest  # the engine refuses it, and the refusal shows the call
    shown = waited_for_one({**gate, "args": {**(gate["args"] or {}), **args}} if args else gate, out.lang)
    out.note(Text(out.say("cli.confirm.edited", call=shown) if args else shown))
    if not (yes or out.json or digest) and has_terminal():
        await require_yes(out, out.say("cli.confirm.ask"), tell("cli.confirm.declined"))
    return str(gate["digest"])


async def resolve(
    run: str,
    step: str,
    /,
    *,
    succeeded: str | None = None,
    failed: Flag = False,
    rerun: Flag = False,
    attempt: int | None = None,
    dry_run: Flag = False,
    common: Common = PLAIN,
    out: Out,
) -> int:
    """Resolve a step with its effect in doubt, or set its output by hand."""
    if [succeeded is not None, failed, rerun].count(True) != 1:
        return out.usage(tell("cli.resolve.which"), f"rerail resolve {run} {step} --succeeded VALUE")

    value = as_value(succeeded) if succeeded is not None else UNSET
    if isinstance(value, str) and value == succeeded and value.lstrip()[:1] in ("{", "["):
        told = tell("cli.resolve.no_json", value=one_line(value, 80))
        raise Refused(told, "VALUE_INVALID", hint=tell("cli.resolve.as_text"))

    outcome: Literal["succeeded", "failed", "rerun"] = "failed" if failed else "rerun" if rerun else "succeeded"
    command = Resolve(step=step, outcome=outcome, value=value, attempt=attempt)
    return await _act(run, command, common, out, dry_run=dry_run)


async def repair(
    run: str,
    step: str,
    /,
    *,
    args: str | None = None,
    remove: Annotated[tuple[str, ...] | None, FLAG] = None,
    tool: str | None = None,
    needs: Annotated[tuple[str, ...] | None, FLAG] = None,
    dry_run: Flag = False,
    common: Common = PLAIN,
    out: Out,
) -> int:
    """Change a failed step, and rerun it with its dependents; finished steps are kept."""
    command = Repair(
        step=step, tool=tool, args=as_mapping(args) if args is not None else None,
        remove=list(remove) if remove is not None else None, needs=list(needs) if needs is not None else None,
    )  # fmt: skip
    return await _act(run, command, common, out, dry_run=dry_run)


async def skip(
    run: str, step: str, /, *, reason: str = "", dry_run: Flag = False, common: Common = PLAIN, out: Out
) -> int:
    """Skip a step: its dependents go on without its output."""
    return await _act(run, Skip(step=step, reason=reason), common, out, dry_run=dry_run)


async def add(run: str, steps_file: str, /, *, dry_run: Flag = False, common: Common = PLAIN, out: Out) -> int:
    """Add steps to a run; a run at rest goes on with them. A bad change is refused and the old plan stays."""
    return await _act(run, Add(steps=tuple(load_steps(steps_file))), common, out, dry_run=dry_run)


async def pause(run: str, /, *, common: Common = PLAIN, out: Out) -> int:
    """Start nothing more until the run is resumed; calls under way end."""
    code = await _act(run, Pause(), common, out, patient=True)
    return 0 if code == exit_code("waiting") else code


async def cancel(run: str, /, *, reason: str = "", common: Common = PLAIN, out: Out) -> int:
    """End a run: calls under way are cancelled, nothing more starts."""
    code = await _act(run, Cancel(reason=reason), common, out, patient=True)
    return 0 if code == exit_code("cancelled") else code


async def _act(
    run: str, command: Command, common: Common, out: Output, *, patient: bool = False, dry_run: bool = False
) -> int:
    """Apply a command to a run; stay with it if no other process drives it."""
    session = Session(common, out)
    if dry_run:
        return await _previewed(session, run, command)
    async with session.acting(run, patient=patient) as (engine, found, owner):
        return await _done(session, engine, found, owner, command)


async def _done(
    session: Session, engine: Engine, run: str, owner: str, command: Command, *, behind: bool = False
) -> int:
    """Send a command to a run's owner, or apply it and stay; ``behind`` leaves the run to a worker."""
    picture = Picture.of(run, await engine.events(run))
    if behind:
        engine.internals.reserve()
    if isinstance(command, Add) and not owner:
        _, would = await engine.do(run, command, dry_run=True)
        session.out.note(*warnings(session.out, would.once if would is not None else (), (), done=True))
    await engine.do(run, command)
    if behind:
        return await leave_to_worker(session, engine, run, picture.seq)
    if owner:
        return await handed_over(engine, session.out, run, owner)
    if not (await ownership(engine, run)).interrupted:
        return await stay(engine, session.out, picture, handed_to=None)
    return await _recorded(engine, session.out, run)


async def _previewed(session: Session, run: str, command: Command) -> int:
    async with session.reopened(run) as (engine, found):
        return await foreseen(engine, session.out, found, command)


async def _recorded(engine: Engine, out: Output, run: str) -> int:
    """Report a recorded command of a run that cannot go on here: its tools are unknown."""
    picture, found = Picture.of(run, await engine.events(run)), await engine.show(run)
    attended = Attended(found, picture)
    show_report(out, attended)
    if out.json:
        out.document({**found.to_dict(), "handed_to": None})
    return attended.code
