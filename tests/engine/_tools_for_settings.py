"""A module that `[tools] modules` names in the tests of settings."""

from __future__ import annotations

import rerail


@rerail.tool
def from_a_module() -> str:
    """Say where it came from."""
    return "a module"
