"""A clock that also counts while the machine or the process is suspended (contract E11)."""

from __future__ import annotations

import time
from typing import Final

_CLOCK: Final[int | None] = getattr(time, "CLOCK_BOOTTIME", None)


def uptime() -> float:
    """Return the seconds since the machine started, suspension included where the system counts it."""
    return time.clock_gettime(_CLOCK) if _CLOCK is not None else time.monotonic()
