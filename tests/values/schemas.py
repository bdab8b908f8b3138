"""Schemas that several tests use."""

from __future__ import annotations

from typing import Any

MAIL: dict[str, Any] = {
    "type": "object",
    "properties": {
        "to": {"type": "string"},
        "title": {"type": "string", "minLength": 1},
        "size": {"enum": ["small", "large"]},
        "copies": {"type": "integer", "minimum": 1, "maximum": 9},
        "urgent": {"type": "boolean"},
        "tags": {"type": "array", "items": {"type": "string"}},
        "options": {"type": "object", "properties": {"colour": {"type": ["string", "null"]}}},
    },
    "required": ["to"],
    "additionalProperties": False,
}
TREE: dict[str, Any] = {
    "$ref": "#/$defs/tree",
    "$defs": {
        "tree": {
            "anyOf": [
                {"type": "integer"},
                {"type": "array", "items": {"$ref": "#/$defs/tree"}},
                {"type": "object", "additionalProperties": {"$ref": "#/$defs/tree"}},
            ]
        }
    },
}
