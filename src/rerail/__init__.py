"""Rerail runs plans made of tool calls, and puts them back on the rails when they derail.

import rerail

@rerail.tool
def fetch(url: str) -> dict: ...

result = rerail.run({"steps": [{"id": "a", "tool": "fetch", "args": {"url": "…"}}]}, tools=[fetch])
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rerail.core.codes import Category
from rerail.core.plan import Effect, Fault, Need, Step, When
from rerail.core.policy import Rung
from rerail.core.track import RunStatus, Status
from rerail.errors import NotDone, PlanError, RateLimited, Refused, RerailError, SettingsError, StoreError, ToolError
from rerail.version import __version__

if TYPE_CHECKING:
    from rerail.adapters.tools.functions import tool
    from rerail.adapters.tools.http import http
    from rerail.adapters.tools.shell import shell
    from rerail.context import Context
    from rerail.core.events import Record as Event
    from rerail.core.views import RunResult, RunRow, StepRow
    from rerail.engine.looks import NotYet, Partial, Verified
    from rerail.plans import Plan
    from rerail.settings import Settings
    from rerail.wiring import Engine, run

__all__ = [
    "Category",
    "Context",
    "Effect",
    "Engine",
    "Event",
    "Fault",
    "Need",
    "NotDone",
    "NotYet",
    "Partial",
    "Plan",
    "PlanError",
    "RateLimited",
    "Refused",
    "RerailError",
    "RunResult",
    "RunRow",
    "RunStatus",
    "Rung",
    "Settings",
    "SettingsError",
    "Status",
    "Step",
    "StepRow",
    "StoreError",
    "ToolError",
    "Verified",
    "When",
    "__version__",
    "http",
    "run",
    "shell",
    "tool",
]

# Loaded when first asked for, so that `import rerail` stays fast.
_LATER = {
    "Context": "rerail.context",
    "Engine": "rerail.wiring",
    "Event": "rerail.core.events:Record",
    "Plan": "rerail.plans",
    "RunResult": "rerail.core.views",
    "Settings": "rerail.settings",
    "RunRow": "rerail.core.views",
    "StepRow": "rerail.core.views",
    "NotYet": "rerail.engine.looks",
    "Partial": "rerail.engine.looks",
    "Verified": "rerail.engine.looks",
    "http": "rerail.adapters.tools.http",
    "run": "rerail.wiring",
    "shell": "rerail.adapters.tools.shell",
    "tool": "rerail.adapters.tools.functions",
}


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module 'rerail' has no attribute {name!r}")
    from importlib import import_module

    module, _, attribute = _LATER[name].partition(":")
    value = getattr(import_module(module), attribute or name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
