"""Rights to answer for a person: gates with named approvers, four eyes, runs that an agent started (contract I13).

Rules of this file:
- A name counts only with its token. What a header, an environment or an MCP client says of itself is a claim.
- An agent does not answer what was asked because of it: over MCP, a run that was started over MCP has its gates, doubts
  and skips answered by a person whom the client asks, and only where the settings trust that (`elicited`).
- These rules hold for the process that applies a command. A process that writes the store by itself is trusted.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from rerail.i18n import tell
from rerail.kernel.actions import Refusal, gate
from rerail.kernel.actor import MCP, Actor, Proof
from rerail.kernel.state import State
from rerail.kernel.step_state import Track
from rerail.plan.step import Approval


class Sent(Protocol):
    """What these rules read of a command."""

    @property
    def action(self) -> str: ...
    @property
    def by(self) -> str: ...
    @property
    def actor(self) -> Actor: ...
    @property
    def files(self) -> Sequence[object]: ...


RIGHTS = frozenset({"APPROVER_NEEDED", "FOUR_EYES", "PERSON_NEEDED"})  # refusals for want of rights


def require_rights(state: State, command: Sent) -> None:
    """Refuse a command that its sender has no right to give."""
    actor = command.actor
    answers = command.action in ("confirm", "refuse", "resolve", "skip")
    starts_over = command.action == "retry" and getattr(command, "clean", False) and (state.doubts or state.unsettled)
    if (answers or starts_over) and actor.via == MCP and state.via == MCP and actor.proof != Proof.ELICITED:
        raise Refusal("PERSON_NEEDED", tell("refuse.run.person_needed", run=state.run), tell("hint.run.person_needed"))
    if command.action in ("confirm", "refuse"):
        _require_approver(state, gate(state, getattr(command, "step", None)), command)


def _require_approver(state: State, track: Track, command: Sent) -> None:
    wanted = track.step.confirm
    if not isinstance(wanted, Approval) or not (wanted.by or wanted.four_eyes):
        return
    actor, named = command.actor, command.actor.proof == Proof.TOKEN
    if wanted.by and not (named and {command.by, *actor.roles} & set(wanted.by)):
        told = tell("refuse.run.approver_needed", step=track.id, names=", ".join(wanted.by), by=command.by or "-")
        raise Refusal("APPROVER_NEEDED", told, tell("hint.run.approver_needed"))
    if not wanted.four_eyes or command.action == "refuse":
        return
    if not named:
        told = tell("refuse.run.four_eyes_unnamed", step=track.id)
        raise Refusal("FOUR_EYES", told, tell("hint.run.approver_needed"))
    edited = getattr(command, "args", None) or command.files
    if edited or command.by == track.editor:
        raise Refusal("FOUR_EYES", tell("refuse.run.four_eyes", step=track.id), tell("hint.run.four_eyes"))
