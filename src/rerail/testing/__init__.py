"""Testing as a feature: scripted tools, minds and models, virtual time, crash tests, store contract.

from rerail.testing import World, virtual_run
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rerail.testing.crash_testing.trials import crash_in_process, crashtest
    from rerail.testing.crash_testing.verdict import CrashReport
    from rerail.testing.model_server import Answer, Asked, ModelServer
    from rerail.testing.scripted import Called, ScriptedMind, ScriptedModel, Stall, Took, World
    from rerail.testing.store_contract import StoreContract
    from rerail.testing.virtual_time import VirtualClock, VirtualLoop, virtual_run

__all__ = [
    "Answer", "Asked", "Called", "CrashReport", "ModelServer", "ScriptedMind", "ScriptedModel", "Stall",
    "StoreContract", "Took", "VirtualClock", "VirtualLoop", "World", "crash_in_process", "crashtest", "virtual_run",
]  # fmt: skip

# The contract suite needs pytest, which users of the other modules may not have.
_HOMES = {
    "crash_testing.trials": ("crash_in_process", "crashtest"),
    "crash_testing.verdict": ("CrashReport",),
    "model_server": ("Answer", "Asked", "ModelServer"),
    "store_contract": ("StoreContract",),
    "virtual_time": ("VirtualClock", "VirtualLoop", "virtual_run"),
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'rerail.testing' has no attribute {name!r}")
    from importlib import import_module

    home = next((home for home, names in _HOMES.items() if name in names), "scripted")
    return getattr(import_module(f"rerail.testing.{home}"), name)
