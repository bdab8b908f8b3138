"""The acts on a run: its start, every command of a person or an agent, and what was refused (contract I13)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

from rerail.kernel import events as ev
from rerail.kernel.events import Record


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """One act: its author, how the name is known, the interface, the action and its outcome."""

    at: float
    run: str
    seq: int
    action: str
    by: str
    proof: str  # token, elicited; "" as claimed
    via: str
    step: str = ""
    outcome: str = ""  # of `resolve`: the answer; of a refusal: its code
    refused: bool = False
    name: str = ""  # the artifact that was read

    def to_dict(self) -> dict[str, Any]:
        """Return the entry as plain data."""
        return asdict(self)


def audit(records: Iterable[Record]) -> Iterator[AuditEntry]:
    """Yield the acts in a history."""
    for record in records:
        found = _act(record.event)
        if found is not None:
            yield AuditEntry(record.at, record.run, record.seq, **found)


def _act(event: ev.Event) -> dict[str, Any] | None:
    match event:
        case ev.RunStarted(by=by, via=via, proof=proof):
            return {"action": "start", "by": by, "via": via, "proof": proof}
        case ev.Acted(action=action, by=by, step=step, outcome=outcome, via=via, proof=proof):
            return {"action": action, "by": by, "step": step, "outcome": outcome, "via": via, "proof": proof}
        case ev.Cancelled(by=by, via=via, proof=proof):
            return {"action": "cancel", "by": by, "via": via, "proof": proof}
        case ev.Resumed(by=by, via=via, proof=proof) if by:
            return {"action": "resume", "by": by, "via": via, "proof": proof}
        case ev.RetryBegin(operation=("retry" | "clean") as action, by=by, automatic=False, via=via, proof=proof):
            return {"action": action, "by": by, "via": via, "proof": proof}
        case ev.Audited(action=action, by=by, step=step, code=code, name=name, via=via, proof=proof):
            return {
                "action": action, "by": by, "step": step, "outcome": code, "refused": bool(code), "name": name,
                "via": via, "proof": proof,
            }  # fmt: skip
        case _:
            return None
