"""Commands about models: plan, prompts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import yaml
from rich.text import Text

from rerail.adapters.models.mind import Prompts, shipped
from rerail.cli.options import PLAIN, Common, Flag, Out, Target
from rerail.cli.output import Output
from rerail.cli.session import Session
from rerail.errors import PlanError, Refused
from rerail.i18n import tell
from rerail.mind.questions import ROLES
from rerail.plan.model import Plan
from rerail.plan.step import When


async def plan(objective: str, /, *, output: Target = None, common: Common = PLAIN, out: Out) -> int:
    """Make a plan for an objective with the model; run nothing."""
    session = Session(common, out)
    async with session.engine(session.given, session.load(session.given)) as engine:
        planned = await engine.plan(objective)
    if planned.plan is None:
        raise PlanError(tell("cli.plan.failed", reason=planned.problem), code="PLANNING_FAILED")
    data = tidy(planned.plan)
    tokens = sum(call.input_tokens + call.output_tokens for call in planned.consultations)
    cost = sum(call.cost for call in planned.consultations)
    if output is not None:
        output.write_text(as_text(data, output.suffix), encoding="utf-8")
    if out.json:
        out.document({"plan": data, "calls": len(planned.consultations), "tokens": tokens, "cost": cost})
        return 0
    if output is None:
        out.raw(as_text(data, ".yaml"))
    counted = out.say("cli.plan.made", count=len(planned.plan.steps), calls=len(planned.consultations), tokens=tokens)
    out.note(Text(counted, "dim"))
    if output is not None:
        out.note(Text(out.say("cli.plan.next", command=f"rerail run {output}"), "dim"))
    return 0


def tidy(made: Plan) -> dict[str, Any]:
    """Return a plan in its written form: a plain need is its id."""
    data: dict[str, Any] = msgspec.to_builtins(made)
    for row, step in zip(data["steps"], made.steps, strict=True):
        if step.needs:
            row["needs"] = [n.step if n.when is When.SUCCESS else msgspec.to_builtins(n) for n in step.needs]
    return data


def as_text(data: dict[str, Any], suffix: str) -> str:
    """Return a plan as YAML, or as JSON for a file named so."""
    if suffix == ".json":
        return msgspec.json.format(msgspec.json.encode(data), indent=2).decode() + "\n"
    return yaml.safe_dump(data, allow_unicode=True, sort_keys=False, width=100)


async def prompts(
    action: str = "show", what: str | None = None, /, *, force: Flag = False, common: Common = PLAIN, out: Out
) -> int:
    """Show the prompts in use, or put a copy of them into a folder to change them."""
    session = Session(common, out)
    folder = session.settings.model.prompts
    used = Prompts(Path(folder) if folder else None)
    if action == "show":
        return _show(out, used, what)
    if action == "eject":
        return _eject(out, Path(what or "prompts"), force=force)
    raise Refused(tell("cli.prompts.action", action=action), "USAGE")


def _show(out: Output, used: Prompts, role: str | None) -> int:
    if role is not None and role not in ROLES:
        raise Refused(tell("cli.prompts.role", role=role, roles=", ".join(ROLES)), "USAGE")
    rows = [
        {"role": name, "source": str(used.path(name) or "rerail"), "text": used(name)}
        for name in ROLES
        if role in (None, name)
    ]
    if out.json:
        out.document(rows)
    elif role is not None:
        out.raw(rows[0]["text"])
    else:
        out.print(*(f"{row['role']:<8} {row['source']}" for row in rows))
        out.note(Text(out.say("cli.prompts.more"), "dim"))
    return 0


def _eject(out: Output, folder: Path, *, force: bool) -> int:
    files = {role: folder / f"{role}.md" for role in ROLES}
    there = [str(path) for path in files.values() if path.exists()]
    if there and not force:
        raise Refused(tell("cli.prompts.there", files=", ".join(there)), "USAGE", hint=tell("cli.prompts.force"))
    folder.mkdir(parents=True, exist_ok=True)
    for role, path in files.items():
        path.write_text(shipped(role), encoding="utf-8")
    if out.json:
        out.document({"folder": str(folder), "files": [str(path) for path in files.values()]})
    else:
        out.print(out.say("cli.prompts.ejected", folder=str(folder)))
    return 0
