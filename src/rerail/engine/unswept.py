"""No search for garbage while very many records are made at once."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

MANY = 1_000  # records; below that a sweep costs nothing that anybody would notice


@contextmanager
def unswept() -> Iterator[None]:
    """Thousands of records are made in one go, and none of them is garbage: each sweep would look at all of them.

    For code that does not wait: nobody else shall find the collector switched off.
    """
    pause = gc.isenabled()
    if pause:
        gc.disable()
    try:
        yield
    finally:
        if pause:
            gc.enable()
