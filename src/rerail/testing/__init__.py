"""Testing as a feature: scripted tools, minds and models, virtual time, crash tests, store contract.

from rerail.testing import World, virtual_run
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rerail.testing.crashes import CrashReport, crash_in_process, crashtest
    from rerail.testing.model_server import Answer, Asked, ModelServer
    from rerail.testing.models import ScriptedModel, Stall
    from rerail.testing.scripted import Called, ScriptedMind, Took, World
    from rerail.testing.store_contract import StoreContract
    from rerail.testing.virtual import VirtualClock, VirtualLoop, virtual_run

__all__ = [
    "Answer",
    "Asked",
    "Called",
    "CrashReport",
    "ModelServer",
    "ScriptedMind",
    "ScriptedModel",
    "Stall",
    "StoreContract",
    "Took",
    "VirtualClock",
    "VirtualLoop",
    "World",
    "crash_in_process",
    "crashtest",
    "virtual_run",
]

# The contract suite needs pytest, which users of the rest may not have.
_HOMES = {
    "Answer": "model_server",
    "Asked": "model_server",
    "CrashReport": "crashes",
    "ModelServer": "model_server",
    "ScriptedModel": "models",
    "Stall": "models",
    "StoreContract": "store_contract",
    "VirtualClock": "virtual",
    "VirtualLoop": "virtual",
    "crash_in_process": "crashes",
    "crashtest": "crashes",
    "virtual_run": "virtual",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'rerail.testing' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"rerail.testing.{_HOMES.get(name, 'scripted')}"), name)
