"""The ladder, the budgets and the backoff, as data (contract H3, H4).

Rules of this file:
- A rung is a name here, a row in the table below, and one function in ``ladder``.
- A policy is recorded with the run it governs, so that folding a history never depends on today's settings.
"""

from __future__ import annotations

from enum import StrEnum
from hashlib import blake2b

import msgspec

from rerail.codes import Category


class Rung(StrEnum):
    """One way to answer a failure."""

    RETRY = "retry"
    ADJUST = "adjusted_arguments"
    ALTERNATIVE = "alternative_tool"
    PRODUCER = "producer"
    REPAIR = "repair"
    FALLBACK = "fallback"
    SKIP = "skip"
    REPLAN = "replan"
    DOUBT = "doubt"  # the effect may have happened: no further try, a user is asked
    FAIL = "fail"


_LAST = (Rung.FALLBACK, Rung.SKIP, Rung.REPLAN)

# Category → its rungs, in order. Rungs that are not listed are not used.
LADDER: dict[Category, tuple[Rung, ...]] = {
    Category.TRANSIENT: (Rung.RETRY, Rung.ALTERNATIVE, *_LAST),
    Category.PARAMETER: (Rung.ADJUST, Rung.REPAIR, *_LAST),
    Category.TOOL: (Rung.ALTERNATIVE, Rung.RETRY, Rung.REPAIR, *_LAST),
    Category.DEPENDENCY: (Rung.PRODUCER, Rung.REPAIR, *_LAST),
    Category.DECOMPOSITION: (Rung.REPAIR, *_LAST),
    Category.PERMANENT: (Rung.ALTERNATIVE, Rung.FALLBACK, Rung.SKIP),
    Category.UNKNOWN: (Rung.RETRY, Rung.REPAIR, *_LAST),
}

LEAST_WAIT = 2.0  # seconds of a wait for a tool that said "not now" before, so that a zero wait cannot loop

CLEANUP_SECONDS = 60.0  # for the steps of `finally` after a cancel, and past `run.max_seconds` (P2)

WITHOUT_REFLECTION = frozenset({Rung.RETRY, Rung.FALLBACK, Rung.SKIP})
NEEDS_RECOVERABLE = frozenset({Rung.RETRY, Rung.ADJUST, Rung.ALTERNATIVE, Rung.PRODUCER, Rung.REPAIR})


class Policy(msgspec.Struct, frozen=True, omit_defaults=True):
    """All bounds of a run; the defaults are the contract's."""

    concurrency: int = 8  # 0 = unbounded
    tool_concurrency: dict[str, int] = {}
    provider_concurrency: dict[str, int] = {}
    step_timeout: float = 300.0
    max_attempts: int | None = None
    max_tokens: int | None = None
    max_cost: float | None = None
    max_seconds: float | None = None
    backoff_base: float = 1.0
    backoff_factor: float = 2.0
    backoff_cap: float = 30.0
    jitter: bool = True
    max_wait: float = 600.0
    max_retry_rounds: int = 1
    max_retries: int = 3
    reflect: bool = True
    reflection_mode: str = "hybrid"
    max_step_retries: int = 3
    max_single_step_repairs: int = 1
    max_task_replanning_attempts: int = 1
    max_consecutive_failures: int = 3
    replan: str = "keep"
    judge: bool = True
    shortcut: bool = True
    settle: float | str = 5.0  # seconds until a `once` effect can be read; "never"
    on_doubt: str = ""  # wait or fail, where neither the step nor its tool decides
    default_effect: str = ""  # of functions that declare none (`tools.default_effect`)
    require_effect: bool = False
    given: tuple[str, ...] = ()  # fields set on the command line or in code: they stay with the run
    minds: tuple[str, ...] = ()  # the questions that a configured mind answers: reflect, repair, replan, judge


def merged(today: Policy, recorded: Policy) -> Policy:
    """Return today's policy with the values that stay with a run: those given to it, unless they are given anew."""
    stay = [name for name in recorded.given if name not in today.given]
    if not stay:
        return today
    return msgspec.structs.replace(
        today, **{name: getattr(recorded, name) for name in stay}, given=(*today.given, *stay)
    )


def has_caps(policy: Policy) -> bool:
    """Return True if a budget of the whole run bounds its calls."""
    caps = (policy.max_attempts, policy.max_tokens, policy.max_cost, policy.max_seconds)
    return any(cap is not None for cap in caps)


def backoff(policy: Policy, retry: int, *seed: object) -> float:
    """Return the wait before the n-th retry (1 is the first): exponential, capped, with full jitter.

    The jitter comes from the seed alone (run, step, attempt), so a replay waits as long as the original did.
    """
    ceiling = _ceiling(policy, retry)
    return ceiling * _chance(seed) if policy.jitter else ceiling


def pause(policy: Policy, wish: float, waits: int) -> float:
    """Return the wait after a "not now": as long as asked; after earlier waits at least as long as a backoff."""
    return max(wish, LEAST_WAIT, _ceiling(policy, waits)) if waits else wish


def _ceiling(policy: Policy, retry: int) -> float:
    return min(policy.backoff_cap, policy.backoff_base * policy.backoff_factor ** min(retry - 1, 64))


def _chance(seed: tuple[object, ...]) -> float:
    """Return a number in [0, 1) drawn from the seed."""
    digest = blake2b("\0".join(map(str, seed)).encode(), digest_size=7).digest()
    return int.from_bytes(digest, "big") / (1 << 56)
