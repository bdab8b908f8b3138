"""Looks at the effect of a call: `verify`, `probe`, and the wait before absence counts (contract V8).

Rules of this file:
- A look is read-only and may fail: an exception, and an answer shaped like an error, say nothing about the effect.
- Each look gets values of its own, those of the intent: neither the tool nor an earlier look can change its question,
  and it changes nothing of the run.
- Reads may lag behind effects: absence is reported only once it is settled, or as unknown.
- A `verify` function returns true, false, `Verified`, `Partial` or `NotYet`.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from rerail.context import excerpt
from rerail.engine.failures import says_failed
from rerail.i18n import about, tell, words_of
from rerail.kernel.outcome import Saw
from rerail.ports import Clock, Tool
from rerail.recovery.disguised_errors import suspect
from rerail.values.json_values import NotJson, fresh, holds, pack, plain_text, unpack

if TYPE_CHECKING:
    from rerail.engine.launch import Launch

LOOK_TIMEOUT: Final = 60.0
FIRST_DELAY: Final = 0.1  # seconds between the first two looks; each gap is twice the one before
LONGEST_DELAY: Final = 10.0
SHORTEST_DELAY: Final = 0.001  # a shorter remaining time might never pass on the clock


class _NotKnown:
    """No output was supplied; a supplied null counts as one."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "…"


NOT_KNOWN: Final = _NotKnown()


@dataclass(frozen=True, slots=True)
class Verified:
    """The answer of `verify` that the effect is there, with the lost output if it is known."""

    output: Any = NOT_KNOWN


@dataclass(frozen=True, slots=True)
class Partial:
    """The answer of `verify` that a part of the effect is there: a `once` step is in doubt then."""

    what: Any = ""


class NotYet(Exception):
    """The answer of `verify` that it cannot tell yet; returned or raised, as the class or as an instance."""


@dataclass(frozen=True, slots=True)
class Sight:
    """The result of the looks at one effect."""

    saw: Saw
    output: Any = NOT_KNOWN
    reason: str = ""
    looks: int = 1
    waited: float = 0.0


@dataclass(frozen=True, slots=True)
class Patience:
    """How long to wait for an effect, and whether its absence then counts."""

    seconds: float = 0.0
    believed: bool = True


@dataclass(slots=True)
class Looker:
    """Runs the looks of tools and steps."""

    tools: Mapping[str, Tool]
    clock: Clock

    async def look(self, launch: Launch, output: bytes, patience: Patience) -> Sight:
        """Look at the effect of a call, with its answer as JSON, until it is there or its absence is settled."""
        loop = asyncio.get_running_loop()
        begun, looks, delay = loop.time(), 0, FIRST_DELAY
        while True:
            sight = await self._asked(launch, output)
            looks, waited = looks + 1, loop.time() - begun
            absent = sight.saw is Saw.ABSENT
            left = patience.seconds - waited
            if not (absent or sight.reason == "not_yet") or left <= 0:
                break
            await asyncio.sleep(max(min(delay, left), SHORTEST_DELAY))
            delay = min(delay * 2, LONGEST_DELAY)
        if absent and not patience.believed:
            sight = Sight(Saw.DISBELIEVED, reason=tell("reason.verify_never"))
        elif sight.reason == "not_yet":
            sight = Sight(Saw.UNKNOWN, reason=tell("reason.verify_not_yet"))
        return replace(sight, looks=looks, waited=round(waited, 3))

    async def _asked(self, launch: Launch, output: bytes) -> Sight:
        """Look once; retry once if the look raises or times out, then unknown."""
        problem = ""
        for _ in range(2):
            try:
                async with asyncio.timeout(LOOK_TIMEOUT):
                    return await self._once(launch, output)
            except NotYet:
                return Sight(Saw.UNKNOWN, reason="not_yet")
            except BaseException as error:  # a failed look is data
                if isinstance(error, KeyboardInterrupt | GeneratorExit) or _is_cancelled(error):
                    raise
                problem = _storable(excerpt(about(type(error).__name__, words_of(error)), 300))
        return Sight(Saw.UNKNOWN, reason=tell("reason.verify_raised", error=problem))

    async def _once(self, launch: Launch, output: bytes) -> Sight:
        verify = launch.step.verify
        if verify is not None:
            tool = self.tools[verify.tool]
            with self.outside(not tool.is_async):
                seen = await tool.call(unpack(launch.verify_args), launch.ctx)
            _refuse_error(seen)
            if seen is None and verify.expect is None:
                return _sight(None)
            return Sight(Saw.THERE if contains(seen, verify.expect) else Saw.ABSENT)
        args, before = unpack(launch.asked), fresh(launch.before)
        with self.outside(launch.tool.looks_outside):
            found = await launch.tool.verify(args, unpack(output), before, launch.ctx)
        _refuse_error(found)
        return _sight(found)

    async def probe(self, launch: Launch) -> Any:
        """Look before the call, to compare with later looks; None if the look fails."""
        try:
            async with asyncio.timeout(LOOK_TIMEOUT):
                with self.outside(launch.tool.looks_outside):
                    seen = await launch.tool.probe(unpack(launch.asked), launch.ctx)
            return fresh(seen)
        except (Exception, SystemExit):  # noqa: BLE001  # as above
            return None

    def outside(self, outside: bool) -> AbstractContextManager[None]:
        """Mark real time: the look works outside of the event loop."""
        return self.clock.external() if outside else contextlib.nullcontext()


def _refuse_error(seen: Any) -> None:
    """Raise if a look answered with an error: it failed, and proves nothing about the effect."""
    if says_failed(seen) or suspect(seen) is not None:
        raise LookupError(excerpt(repr(seen), 200))


def _sight(found: Any) -> Sight:
    """Return the meaning of a `verify` function's answer."""
    if isinstance(found, Verified):
        return Sight(Saw.THERE, found.output)
    if isinstance(found, Partial):
        return Sight(Saw.PARTIAL, reason=_words(found.what))
    if found is None:
        return Sight(Saw.UNKNOWN, reason=tell("reason.verify_unknown"))
    if found is NotYet or isinstance(found, NotYet):
        raise NotYet
    if found is Verified or found is Partial:
        return Sight(Saw.THERE if found is Verified else Saw.PARTIAL)
    return Sight(Saw.THERE if found else Saw.ABSENT)


def _words(what: Any) -> str:
    try:
        return _storable(what) if isinstance(what, str) else excerpt(pack(what).data.decode(), 500)
    except NotJson:
        return _storable(str(what))


def _storable(words: str) -> str:
    return plain_text(excerpt(words, 500), 500)


def _is_cancelled(error: BaseException) -> bool:
    """True if the engine cancels the look; False if the look itself raised a cancellation."""
    task = asyncio.current_task()
    return isinstance(error, asyncio.CancelledError) and task is not None and bool(task.cancelling())


def contains(seen: Any, expect: Any) -> bool:
    """True if an answer shows what was expected; without an expectation, if it is not empty."""
    return bool(seen) if expect is None else holds(seen, expect)
