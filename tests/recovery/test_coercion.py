"""Values that are made to fit a schema, where only one thing can have been meant (H6)."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from tests.values.schemas import MAIL, TREE

from rerail.recovery.coercion import coerce
from rerail.values.json_values import key
from rerail.values.schema import OPEN

INT = {"type": "integer"}
INTS = {"type": "array", "items": INT}
CLOSED = {"properties": {"user_id": INT, "title": {"type": "string"}}, "additionalProperties": False}


@pytest.mark.parametrize(
    ("schema", "value", "result"),
    [
        (INT, "5", 5),
        (INT, " -12 ", -12),
        (INT, "5.0", 5),
        ({"type": "number"}, "2.5", 2.5),
        ({"type": "number"}, "1e3", 1000.0),
        ({"type": "boolean"}, "True", True),
        ({"type": "boolean"}, "false", False),
        ({"type": "string"}, 5, "5"),
        ({"type": "string"}, 2.5, "2.5"),
        (INTS, "[1, 2]", [1, 2]),
        (INTS, '["1", 2]', [1, 2]),
        (INTS, 5, [5]),
        (INTS, "5", [5]),
        (INTS, ["1", 2], [1, 2]),
        ({"type": "array", "items": {"type": "object"}}, {"a": 1}, [{"a": 1}]),
        ({"type": "array", "items": {"type": "string"}}, "[draft] hello", ["[draft] hello"]),
        ({"type": "object"}, '{"a": 1}', {"a": 1}),
        ({"type": ["integer", "null"]}, "5", 5),
        ({"enum": ["small", "large"]}, "LARGE", "large"),
        ({"enum": ["small", "large"]}, "larg", "large"),
        ({"enum": ["in_progress", "done"]}, "In Progress", "in_progress"),
        ({"enum": [1, 2]}, "2", 2),
        ({"enum": [1, 2]}, " 2.0", 2),
        ({"enum": [True, "maybe"]}, "True", True),
        ({"enum": ["1", "2"]}, 2, "2"),
        ({"const": "metric"}, "Metric", "metric"),
        (CLOSED, {"userId": "7", "titel": "x"}, {"user_id": 7, "title": "x"}),
        ({"required": ["title"]}, {"titel": "x"}, {"title": "x"}),
        ({"properties": {"a": {"default": 3, **INT}}, "required": ["a"]}, {}, {"a": 3}),
        (
            {"properties": {"a": {"$ref": "#/$defs/a"}}, "required": ["a"], "$defs": {"a": {"default": [1]}}},
            {},
            {"a": [1]},
        ),
        ({"anyOf": [INT, {"type": "null"}]}, "5", 5),
        ({"anyOf": [{"type": "array", "items": {"type": "string"}}, {"type": "string"}]}, 5, "5"),
        ({"allOf": [{"$ref": "#/$defs/a"}, {"minimum": 3}], "$defs": {"a": INT}}, "5", 5),
        ({"if": {"required": ["a"]}, "then": {"properties": {"b": INT}}}, {"a": 1, "b": "2"}, {"a": 1, "b": 2}),
        ({"dependentSchemas": {"a": {"properties": {"b": INT}}}}, {"a": 1, "b": "2"}, {"a": 1, "b": 2}),
        (
            {"patternProperties": {"^n": INT}, "additionalProperties": {"type": "string"}},
            {"n": "1", "s": 2},
            {"n": 1, "s": "2"},
        ),
        ({"prefixItems": [INT, {"type": "string"}]}, ["1", 2], [1, "2"]),
        ({"items": [INT], "additionalItems": {"type": "string"}}, ["1", 2], [1, "2"]),
        (TREE, ["1", {"a": "2"}], [1, {"a": 2}]),
        (MAIL, {"to": "a", "copies": "3", "tags": "x", "size": "Small", "ref": OPEN}, None),
        (MAIL, {"to": OPEN, "copies": "3", "tags": "x"}, {"to": OPEN, "copies": 3, "tags": ["x"]}),
    ],
)
def test_h6_safe_conversions(schema: Any, value: object, result: object) -> None:
    """H6: another spelling of the same request is put right without a model."""
    before = copy.copy(value)
    got = coerce(schema, value)
    assert key(got) == key(value if result is None else result)
    assert value == before


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"type": "integer", "maximum": 9}, 10),
        ({"type": "integer", "maximum": 9}, "10"),
        (INT, "012"),
        (INT, "5.5"),
        (INT, "1_000"),
        (INT, ""),
        (INT, None),
        (INT, True),
        ({"type": "number"}, "NaN"),
        ({"type": "number"}, "1e999"),
        ({"type": "boolean"}, 1),
        ({"type": "boolean"}, "yes"),
        ({"type": "string"}, None),
        ({"type": "string"}, float("inf")),
        ({"items": {"type": "string"}}, [10**5000]),
        ({"type": "array"}, None),
        ({"type": "object"}, "{broken"),
        ({"type": "object"}, "[1]"),
        ({"type": "object"}, '{"a": NaN}'),
        # Another request, however near the word.
        ({"enum": ["us-east-1", "us-east-2"]}, "us-east-3"),
        ({"enum": ["increase", "keep"]}, "decrease"),
        ({"enum": ["north", "south"]}, "nouth"),
        ({"enum": [10, 20]}, "11"),
        # A sign is no separator, and a number is no truth.
        ({"enum": [5, 7]}, "-5"),
        ({"enum": [5, 7]}, -5),
        ({"enum": [-1.5]}, "1.5"),
        ({"enum": [1e20]}, "1e-20"),
        ({"enum": [1e20]}, 1e-20),
        ({"enum": ["1", "2"]}, -1),
        ({"enum": ["15"]}, "1-5"),
        ({"enum": [True]}, "1"),
        ({"enum": [1]}, "true"),
        # Said of two options alike.
        ({"enum": ["2", 2]}, "2 "),
        ({"enum": ["a", "b"]}, "c"),
        ({"anyOf": [{"enum": ["nort"]}, {"enum": ["norh"]}]}, "nor1"),
        # Two names for one place, and a place that is taken.
        (CLOSED, {"titel": "x", "tilte": "y"}),
        (CLOSED, {"title": "x", "titel": "y"}),
        (CLOSED, {"other": 1}),
        ({"required": ["a"]}, {}),
        ({"properties": {"a": INT}, "required": ["a"]}, {}),
        # A name that is known is no slip of another, and what depends on nothing that is there does not count.
        ({"properties": {"title": True, "titles": True}, "required": ["title"]}, {"titles": "x"}),
        ({"dependencies": {"a": ["b"], "c": {"properties": {"n": INT}}}, "required": ["z"]}, {"n": "1"}),
        # One of two can be mended: half a repair is none.
        ({"properties": {"a": INT, "b": INT}}, {"a": "1", "b": "x"}),
        ({"type": "array", "items": {"$ref": "#"}}, 5),
    ],
)
def test_h6_what_would_be_another_request_is_left_alone(schema: Any, value: object) -> None:
    """H6: nothing is clamped, dropped, guessed or made up; then the value stays the same object."""
    assert coerce(schema, value) is value


def test_h6_a_property_that_is_allowed_keeps_its_name() -> None:
    """H6: an extra property is not renamed to an optional one that happens to be near."""
    schema = {"properties": {"title": {"type": "string"}, "n": INT}}
    assert coerce(schema, {"titel": "x", "n": "1"}) == {"titel": "x", "n": 1}


def test_h6_defaults_are_not_shared() -> None:
    """H6: a default put into one call's arguments does not leak into the schema."""
    schema: dict[str, Any] = {"properties": {"a": {"default": []}}, "required": ["a"]}
    got: Any = coerce(schema, {})
    got["a"].append(1)
    assert schema["properties"]["a"]["default"] == []
