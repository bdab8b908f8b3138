"""What a run may still spend on tokens and cost, while one turn is decided (contract H4).

Rules of this file:
- Nothing is kept: an allowance is made from the state for one turn of ``decide``, and only where a cap is set.
- Order is strict among calls that carry cost or tokens. One that has to wait holds back the later ones, so that small
  calls never starve a large one. Calls that cost nothing pass.
"""

from __future__ import annotations

from rerail.core.plan import Effect
from rerail.core.reserve import FREE, Need
from rerail.core.state import State
from rerail.core.tools import Tools
from rerail.i18n import tell

SLACK = 1e-9  # share of a cap: three calls of 0.1 fit a cap of 0.3
LEAST_TIME = 0.001  # seconds that any call gets, however little of the run's time is left


class Allowance:
    """What is committed in one turn: spent, reserved by calls under way, and given to calls of this turn."""

    __slots__ = ("_state", "_tools", "cost", "held", "short", "tokens", "unpriced")

    def __init__(self, state: State, tools: Tools) -> None:
        self._state, self._tools = state, tools
        self.cost = state.cost + state.reserved.cost
        self.tokens = state.tokens + state.reserved.tokens
        self.unpriced = state.reserved.unpriced > 0  # a call of unknown cost is under way
        self.held = False  # something that carries cost has to wait
        self.short = ""  # why the first call or question did not fit, if one did not

    def of_tool(self, tool: str) -> Need:
        """What a call of a tool needs: its declared cost, else the largest seen, else 0 for one that cannot report."""
        policy, largest, spec = self._state.policy, self._state.largest, self._tools.get(tool)
        if spec is None:
            return FREE  # it fails before its call
        cost, tokens = largest.cost.get(tool), largest.tokens.get(tool)
        if spec.cost is not None:
            cost = spec.cost
        elif cost is None and not (spec.reports and policy.max_cost is not None):
            cost = 0.0
        if tokens is None and not (spec.reports and policy.max_tokens is not None):
            tokens = 0
        return Need(cost, tokens)

    def of_question(self, question: str) -> Need:
        """What a question needs: the largest that this run has seen of its kind, since no setting bounds an answer."""
        policy, largest = self._state.policy, self._state.largest_question
        cost = largest.cost.get(question) if policy.max_cost is not None else 0.0
        return Need(cost, largest.tokens.get(question) if policy.max_tokens is not None else 0)

    def passes(self, tool: str) -> bool:
        """Whether a call of the tool is worth a look: behind a call that waits only a free one is."""
        return not self.held or self.of_tool(tool) == FREE

    def take(self, need: Need, *, step: str = "", question: str = "") -> bool:
        """Commit what a call or a question needs; False if it has to wait."""
        short = self._short(need)
        if short and not self.short:
            self.short = self._told(short, need, step, question)
        if short or (self.held and need != FREE) or (need.unknown and self.unpriced):
            self.held = True
            return False
        self.cost += need.cost or 0.0
        self.tokens += need.tokens or 0
        self.unpriced = self.unpriced or need.unknown
        return True

    def _short(self, need: Need) -> str:
        """The budget that has no room for it; a cap of 0 lets nothing start."""
        policy = self._state.policy
        for name, committed, own, cap in (
            ("max_cost", self.cost, need.cost, policy.max_cost),
            ("max_tokens", self.tokens, need.tokens, policy.max_tokens),
        ):
            if cap is None:
                continue
            full = committed >= cap * (1 - SLACK) if own is None else committed + own > cap * (1 + SLACK)
            if full or not cap:
                return name
        return ""

    def _told(self, name: str, need: Need, step: str, question: str) -> str:
        state, policy = self._state, self._state.policy
        spent, own, limit = (
            (state.cost, need.cost, policy.max_cost)
            if name == "max_cost"
            else (state.tokens, need.tokens, policy.max_tokens)
        )
        told = {"name": name, "spent": spent, "limit": limit}
        if not own:
            return tell("reason.used", **told)
        if step:
            return tell("reason.step_needs", **told, step=step, need=own)
        return tell("reason.question_needs", **told, question=question, need=own)


def in_time(state: State, timeout: float, effect: Effect, now: float) -> float:
    """Return the smaller of a call's timeout and the run's time left; a `once` call keeps its timeout."""
    most = state.policy.max_seconds
    if most is None or effect is Effect.ONCE:
        return timeout
    return min(timeout, max(LEAST_TIME, most - state.seconds(now)))


def allowance(state: State, tools: Tools) -> Allowance | None:
    """The allowance of one turn; None for a run without a cap on tokens or cost, which has nothing to reckon."""
    policy = state.policy
    return Allowance(state, tools) if policy.max_cost is not None or policy.max_tokens is not None else None
