"""The ladder, the budgets and the backoff, as data (SPEC H3, H4).

Rules of this file:
- A rung is a name here, a row in the table below, and one function in ``recover``.
- A policy is recorded with the run it governs, so that folding a history never depends on today's settings.
"""

from __future__ import annotations

from enum import StrEnum
from hashlib import blake2b

import msgspec

from rerail.core.codes import Category


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
    DOUBT = "doubt"  # the effect may have happened: nothing more is tried, and a person is asked
    FAIL = "fail"


_LAST = (Rung.FALLBACK, Rung.SKIP, Rung.REPLAN)

# Where a category enters, and what it goes on to. Rungs that are not listed are not used.
LADDER: dict[Category, tuple[Rung, ...]] = {
    Category.TRANSIENT: (Rung.RETRY, Rung.ALTERNATIVE, *_LAST),
    Category.PARAMETER: (Rung.ADJUST, Rung.REPAIR, *_LAST),
    Category.TOOL: (Rung.ALTERNATIVE, Rung.RETRY, Rung.REPAIR, *_LAST),
    Category.DEPENDENCY: (Rung.PRODUCER, Rung.REPAIR, *_LAST),
    Category.DECOMPOSITION: (Rung.REPAIR, *_LAST),
    Category.PERMANENT: (Rung.ALTERNATIVE, Rung.FALLBACK, Rung.SKIP),
    Category.UNKNOWN: (Rung.RETRY, Rung.REPAIR, *_LAST),
}

LEAST_WAIT = 2.0  # seconds that a "not now" counts for at least, so that one of no time does not go on for ever

WITHOUT_REFLECTION = frozenset({Rung.RETRY, Rung.FALLBACK, Rung.SKIP})
NEEDS_RECOVERABLE = frozenset({Rung.RETRY, Rung.ADJUST, Rung.ALTERNATIVE, Rung.PRODUCER, Rung.REPAIR})


class Policy(msgspec.Struct, frozen=True, omit_defaults=True):
    """Everything that bounds a run; the defaults are the contract's."""

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
    settle: float | str = 5.0  # seconds until an effect that must not happen twice can be read; "never"
    on_doubt: str = ""  # wait or fail, where neither the step nor its tool says
    minds: tuple[str, ...] = ()  # which questions somebody is there to answer: reflect, repair, replan, judge


def backoff(policy: Policy, retry: int, *seed: object) -> float:
    """How long to wait before the n-th retry (1 is the first): exponential, capped, with full jitter.

    The jitter comes from the seed alone (run, step, attempt), so a replay waits as long as the original did.
    """
    ceiling = min(policy.backoff_cap, policy.backoff_base * policy.backoff_factor ** min(retry - 1, 64))
    return ceiling * _chance(seed) if policy.jitter else ceiling


def _chance(seed: tuple[object, ...]) -> float:
    """A number in [0, 1) drawn from the seed."""
    digest = blake2b("\0".join(map(str, seed)).encode(), digest_size=7).digest()
    return int.from_bytes(digest, "big") / (1 << 56)
