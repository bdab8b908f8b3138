"""Virtual time: the event loop's clock jumps to the next timer without waiting.

    result = rerail.testing.virtual_run(main)       # backoffs and timeouts of hours pass at once

Everything that waits through asyncio (backoffs, timeouts, tools that sleep) takes no real time. Threads and processes
cannot be hurried: while one is at work (``clock.external()``), the clock stands still.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import selectors
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, TypeVar

T = TypeVar("T")


class _JumpingSelector(selectors.DefaultSelector):
    """A selector of real I/O that moves the clock where the loop would sleep until a timer."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.external = 0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if ready or timeout == 0:
            return ready
        if timeout is None or self.external:
            return super().select(0.005 if timeout is not None else None)
        self.now = max(self.now + timeout, math.nextafter(self.now, math.inf))  # large numbers swallow small steps
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop in which waiting costs nothing."""

    def __init__(self) -> None:
        self._jumping = _JumpingSelector()
        super().__init__(self._jumping)
        # A timer is due within this much of its time; a nanosecond is lost once years have passed.
        self._clock_resolution = 1e-6

    def time(self) -> float:
        """Return virtual seconds since the loop began."""
        return self._jumping.now

    def hold(self, by: int) -> None:
        """Begin (1) or end (-1) work that real time must pass for."""
        self._jumping.external += by


class VirtualClock:
    """The clock of a virtual loop; `jump` sets the machine's clock, as an operator would."""

    polls = False

    def __init__(self, start: float = 1_700_000_000.0) -> None:
        self.start = start

    def now(self) -> float:
        return self.start + asyncio.get_running_loop().time()

    def uptime(self) -> float:
        """Return 0: under virtual time no lease is renewed, and no process is frozen."""
        return 0.0

    def jump(self, seconds: float) -> None:
        """Set the wall clock forward or back; timers of the loop do not notice."""
        self.start += seconds

    @contextlib.contextmanager
    def external(self) -> Iterator[None]:
        """Stop the clock while a thread or process is at work."""
        loop = asyncio.get_running_loop()
        if not isinstance(loop, VirtualLoop):
            yield
            return
        loop.hold(1)
        try:
            yield
        finally:
            loop.hold(-1)


def virtual_run(main: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run a coroutine function on a virtual loop."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(main())
