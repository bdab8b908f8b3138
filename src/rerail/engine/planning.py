"""A plan for an objective: the model is asked, and what it answers is checked (SPEC P7)."""

from __future__ import annotations

from dataclasses import dataclass

from rerail.core import events as ev
from rerail.core.plan import Plan
from rerail.core.policy import Policy
from rerail.engine.loop import Host
from rerail.errors import Refused
from rerail.i18n import tell, words_of
from rerail.mind import plan as planning
from rerail.mind.questions import consulted
from rerail.ports import Consultation, Question


@dataclass(frozen=True, slots=True)
class Planned:
    """What came of asking for a plan: the plan, or why there is none, and what it cost."""

    plan: Plan | None
    consultations: tuple[Consultation, ...] = ()
    by: str = ""
    problem: str = ""

    def consulted(self) -> list[ev.Event]:
        """The calls of the model, as the run that follows records them."""
        return [consulted("plan", "", call) for call in self.consultations]


async def planned_for(objective: str, host: Host, policy: Policy) -> Planned:
    """Ask for a plan with the host's tools; nothing is run."""
    mind = host.mind
    if mind is None or "plan" not in mind.answers:
        raise Refused(tell("refuse.run.no_model"), "NO_MODEL", hint=tell("hint.run.no_model"))
    question = Question(
        "plan", "", "", objective, (), host.specs, tokens_left=policy.max_tokens, cost_left=policy.max_cost
    )
    answer = await host.performer.ask(mind, question, host.mind_timeout)
    calls, by = tuple(answer.consultations), mind.name
    if answer.failed or answer.value is None:
        return Planned(None, calls, by, answer.failed or tell("reason.no_plan"))
    try:
        return Planned(planning.read(objective, host.specs, answer.value), calls, by)
    except planning.Unplanned as problem:
        return Planned(None, calls, by, words_of(problem))
