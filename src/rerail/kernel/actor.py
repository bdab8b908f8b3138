"""The sender of a command: by which interface, and how its name is known (contract I13)."""

from __future__ import annotations

from enum import StrEnum

import msgspec

HTTP = "http"
MCP = "mcp"  # an agent's way to a run


class Proof(StrEnum):
    """How the name of an actor is known; without one it is a claim (contract I13)."""

    TOKEN = "token"  # noqa: S105 - it came with its token
    ELICITED = "elicited"  # an MCP client says that a person answered it


class Actor(msgspec.Struct, frozen=True, omit_defaults=True):
    """How a command came, and how the name of its sender is known (contract I13)."""

    via: str = ""
    proof: str = ""
    roles: tuple[str, ...] = ()


NO_ACTOR = Actor()
