"""Work that a cancellation must not cut in half: starting and stopping processes."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


async def uninterrupted(work: Coroutine[Any, Any, T]) -> tuple[T, bool]:
    """The result of the work, which is always brought to its end, and whether the caller was cancelled meanwhile."""
    task = asyncio.ensure_future(work)
    cancelled = False
    while not task.done():
        try:
            # Not the task's exception here: that would look like the caller's own cancellation.
            await asyncio.wait([task])
        except asyncio.CancelledError:
            cancelled = True
    return task.result(), cancelled


async def finished(work: Coroutine[Any, Any, None]) -> None:
    """Bring the work to its end; a cancellation that came meanwhile takes effect then."""
    _, cancelled = await uninterrupted(work)
    if cancelled:
        raise asyncio.CancelledError
