"""Rerail runs plans made of tool calls, and puts them back on the rails when they derail.

import rerail

@rerail.tool
def fetch(url: str) -> dict: ...

result = rerail.run({"steps": [{"id": "a", "tool": "fetch", "args": {"url": "…"}}]}, tools=[fetch])
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rerail.codes import Category
from rerail.errors import NotDone, PlanError, RateLimited, Refused, RerailError, SettingsError, StoreError, ToolError
from rerail.kernel.policy import Rung
from rerail.kernel.step_state import RunStatus, Status
from rerail.plan.step import Check, Effect, Fallback, Fault, Need, Step, Trust, Verify, When
from rerail.version import __version__

if TYPE_CHECKING:
    from rerail.adapters.tools.functions import tool
    from rerail.adapters.tools.http import http
    from rerail.adapters.tools.shell import shell
    from rerail.api import Engine, arun, run
    from rerail.context import Context
    from rerail.engine.looks import NotYet, Partial, Verified
    from rerail.kernel import events as events
    from rerail.kernel.events import Record as Event
    from rerail.kernel.retry import Preview
    from rerail.plan.model import Plan
    from rerail.settings.loading import Settings
    from rerail.views.results import RunResult, RunRow, StepRow

__all__ = [
    "Category", "Check", "Context", "Effect", "Engine", "Event", "Fallback", "Fault", "Need", "NotDone", "NotYet",
    "Partial", "Plan", "PlanError", "Preview", "RateLimited", "Refused", "RerailError", "RunResult", "RunRow",
    "RunStatus", "Rung", "Settings", "SettingsError", "Status", "Step", "StepRow", "StoreError", "ToolError", "Trust",
    "Verified", "Verify", "When", "__version__", "arun", "events", "http", "run", "shell", "tool",
]  # fmt: skip

# Loaded when first asked for, so that `import rerail` stays fast.
_LATER = {
    "Context": "rerail.context",
    "Engine": "rerail.api",
    "Event": "rerail.kernel.events:Record",
    "Plan": "rerail.plan.model",
    "Preview": "rerail.kernel.retry",
    "RunResult": "rerail.views.results",
    "Settings": "rerail.settings.loading",
    "RunRow": "rerail.views.results",
    "StepRow": "rerail.views.results",
    "NotYet": "rerail.engine.looks",
    "Partial": "rerail.engine.looks",
    "Verified": "rerail.engine.looks",
    "arun": "rerail.api",
    "events": "rerail.kernel.events:",
    "http": "rerail.adapters.tools.http",
    "run": "rerail.api",
    "shell": "rerail.adapters.tools.shell",
    "tool": "rerail.adapters.tools.functions",
}


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module 'rerail' has no attribute {name!r}")
    from importlib import import_module

    module, whole, attribute = _LATER[name].partition(":")
    found = import_module(module)
    value = getattr(found, attribute or name) if attribute or not whole else found
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
