"""What a run may still spend on tokens and cost, for one turn of ``decide`` (contract H4).

Rules of this file:
- Nothing is kept: an allowance is made from the state for one turn, and only where a cap is set.
- Calls that carry cost or tokens start in strict order. A waiting call holds back later ones, so that small
  calls never starve a large one. Calls without cost pass.
"""

from __future__ import annotations

from math import ceil

from rerail.i18n import tell
from rerail.kernel.accounts import FREE, SpendingNeed
from rerail.kernel.state import State
from rerail.kernel.step_state import Phase, Track
from rerail.plan.step import Effect
from rerail.plan.tool_spec import Tools

SLACK = 1e-9  # share of a cap, for rounding: three calls of 0.1 fit a cap of 0.3
LEAST_TIME = 0.001  # seconds that any call gets, even with no run time left; the time left is rounded up to these


def first_calls(state: State) -> list[Track]:
    """Return the steps of `finally` with their first call still to come: the caps keep room for each (P2)."""
    tracks = [track for step_id in state.finals if (track := state.tracks.get(step_id)) is not None]
    if not state.cleaned:
        return tracks
    waits = [t for t in tracks if t.phase is Phase.PENDING and not (t.dead or state.is_repeat(t))]
    return waits if state.cleaning is not None else []


def spent_caps(state: State) -> dict[str, float]:
    """Return the caps that stopped a run, or that leave no room for another call."""
    policy, stop = state.policy, state.stop_reason if state.stopped == "BUDGET_EXCEEDED" else ""
    used = {
        "max_attempts": state.calls, "max_tokens": state.tokens, "max_cost": state.cost,
        "max_seconds": state.seconds(state.at),
    }  # fmt: skip
    caps = {name: cap for name in used if (cap := getattr(policy, name)) is not None}
    return {name: cap for name, cap in caps.items() if name in stop or used[name] >= cap}


def raised(state: State) -> str:
    """Return the options of a retry that raise these caps."""
    return " ".join(["", *(word for name in spent_caps(state) for word in ("--set", f"run.{name}=N"))])


class Allowance:
    """The commitments of one turn: spent, reserved by calls under way, and granted to calls of this turn."""

    __slots__ = ("_state", "_tools", "cost", "held", "short", "tokens", "unpriced")

    def __init__(self, state: State, tools: Tools) -> None:
        self._state, self._tools = state, tools
        self.cost = state.cost + state.reserved.cost
        self.tokens = state.tokens + state.reserved.tokens
        self.unpriced = state.reserved.unpriced > 0  # a call of unknown cost is under way
        for track in first_calls(state) if state.finals else ():
            self.cost += self.kept_for(track)
        self.held = False  # a call with a cost has to wait
        self.short = ""  # why the first refused call or question did not fit

    def of_tool(self, tool: str) -> SpendingNeed:
        """Return a call's need: the declared cost, else the largest seen, else 0 for a tool that reports none."""
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
        return SpendingNeed(cost, tokens)

    def kept_for(self, track: Track) -> float:
        """Return the cost kept back for a step's first call in the clean-up."""
        if track.id not in self._state.finals or self._state.is_repeat(track):
            return 0.0
        spec = self._tools.get(track.step.tool)
        return spec.cost or 0.0 if spec is not None else 0.0

    def of_question(self, question: str) -> SpendingNeed:
        """Return a question's need: the largest of its kind in this run, since no setting bounds an answer."""
        policy, largest = self._state.policy, self._state.largest_question
        cost = largest.cost.get(question) if policy.max_cost is not None else 0.0
        return SpendingNeed(cost, largest.tokens.get(question) if policy.max_tokens is not None else 0)

    def passes(self, tool: str) -> bool:
        """True if a call of the tool may be considered: behind a waiting call, only a free one may."""
        return not self.held or self.of_tool(tool) == FREE

    def take(self, need: SpendingNeed, *, step: str = "", question: str = "", kept: float = 0.0) -> bool:
        """Commit the need of a call or a question; False if it has to wait. ``kept`` was kept back for this call."""
        self.cost -= kept
        short = self._short(need, step, question)
        self.short = self.short or short
        if short or (self.held and need != FREE) or (need.unknown and self.unpriced):
            self.held = True
            self.cost += kept
            return False
        self.cost += need.cost or 0.0
        self.tokens += need.tokens or 0
        self.unpriced = self.unpriced or need.unknown
        return True

    def _short(self, need: SpendingNeed, step: str, question: str) -> str:
        """Return which budget has no room for the need, in words; empty if all have. A cap of 0 lets nothing start."""
        state, policy = self._state, self._state.policy
        for name, spent, committed, own, cap in (
            ("max_cost", state.cost, self.cost, need.cost, policy.max_cost),
            ("max_tokens", state.tokens, self.tokens, need.tokens, policy.max_tokens),
        ):
            if cap is None:
                continue
            full = committed >= cap * (1 - SLACK) if own is None else committed + own > cap * (1 + SLACK)
            if full or not cap:
                told = {"name": name, "spent": spent, "limit": cap}
                if not own:
                    return self.short or tell("reason.used", **told)
                if step:
                    return self.short or tell("reason.step_needs", **told, step=step, need=own)
                return self.short or tell("reason.question_needs", **told, question=question, need=own)
        return ""


def in_time(state: State, timeout: float, effect: Effect, now: float) -> float:
    """Return the smaller of a call's timeout and the time left to the run, or to its clean-up.

    A `once` call of the run's work keeps its timeout.
    """
    most = state.policy.max_seconds
    if state.cleaning is not None:
        return min(timeout, _left(state.cleaning.until - now)) if state.cleaning.until else timeout
    if most is None or effect is Effect.ONCE:
        return timeout
    return min(timeout, _left(most - state.seconds(now)))


def _left(seconds: float) -> float:
    return max(LEAST_TIME, ceil(seconds * 1000 - 1e-6) / 1000)
