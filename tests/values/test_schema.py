"""Schemas: what is wrong with a value (P5, H9, V6), and how it is made to fit (H6)."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, event, given, settings
from hypothesis import strategies as st
from jsonschema import Draft7Validator, Draft202012Validator
from tests.kernel.calls import calls
from tests.values.schemas import MAIL, TREE

from rerail.recovery.coercion import coerce
from rerail.values.json_values import SchemaFault, is_open, key, place, show
from rerail.values.schema import OPEN, Schema, faults, problems


def said(schema: Any, value: object) -> list[str]:
    return [str(fault) for fault in faults(schema, value)]


def nested(inner: object, depth: int) -> object:
    for level in range(depth):
        inner = [inner] if level % 2 else {"a": inner}
    return inner


# --- What a person or a model reads ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ({"to": "a"}, []),
        ({}, ['missing required argument "to"']),
        ({"to": 5}, ["to: expected string, got 5"]),
        ({"to": None}, ["to: expected string, got null"]),
        ({"to": "a", "titel": "b"}, ['unknown argument "titel"; did you mean "title"?']),
        ({"to": "a", "zzz": "b"}, ['unknown argument "zzz"']),
        ({"to": "a", "copies": "abc"}, ['copies: expected integer, got "abc"']),
        ({"to": "a", "copies": True}, ["copies: expected integer, got true"]),
        ({"to": "a", "copies": 0}, ["copies: expected at least 1, got 0"]),
        ({"to": "a", "copies": 10}, ["copies: expected at most 9, got 10"]),
        ({"to": "a", "title": ""}, ['title: expected at least 1 character, got 0: ""']),
        (
            {"to": "a", "size": "larg"},
            ['size: got "larg"; expected one of "small", "large"; did you mean "large"?'],
        ),
        ({"to": "a", "tags": ["x", 1, 2]}, ["tags[1]: expected string, got 1", "tags[2]: expected string, got 2"]),
        ({"to": "a", "options": {"colour": 3}}, ["options.colour: expected string or null, got 3"]),
        ("abc", ['expected object, got "abc"']),
        (
            {"titel": "b", "copies": 0, "urgent": "yes"},
            [
                'unknown argument "titel"; did you mean "title"?',
                "copies: expected at least 1, got 0",
                'urgent: expected boolean, got "yes"',
                'missing required argument "to"',
            ],
        ),
    ],
)
def test_p5_every_fault_is_listed_in_words_that_help(args: object, words: list[str]) -> None:
    """P5: all faults of a step's arguments are named at once, each with its place and the nearest right word."""
    assert said(MAIL, args) == words


@pytest.mark.parametrize(
    ("schema", "value", "words"),
    [
        ({"anyOf": [{"type": "string"}, {"type": "null"}]}, 5, ["expected string or null, got 5"]),
        # One alternative is of the value's type: its faults are the ones worth reading.
        (
            {"anyOf": [{"type": "null"}, {"type": "object", "required": ["a", "b"]}]},
            {},
            ['missing required argument "a"', 'missing required argument "b"'],
        ),
        (
            {"oneOf": [{"type": "array", "items": {"type": "integer"}}, {"type": "integer"}]},
            [1, "x"],
            ['[1]: expected integer, got "x"'],
        ),
        # Two of the type, but only one with the right tag.
        (
            {
                "oneOf": [
                    {"type": "object", "properties": {"kind": {"const": "cat"}}, "required": ["lives"]},
                    {"type": "object", "properties": {"kind": {"const": "dog"}}, "required": ["tricks"]},
                ]
            },
            {"kind": "dog"},
            ['missing required argument "tricks"'],
        ),
        (
            {"anyOf": [{"minimum": 5}, {"maximum": 1}]},
            3,
            ["fits none of 2 alternatives: (1) expected at least 5, got 3; (2) expected at most 1, got 3"],
        ),
        (
            {"anyOf": [{"$ref": "#/$defs/a"}, {"const": "x"}], "$defs": {"a": {"type": "integer"}}},
            None,
            ['expected integer or "x", got null'],
        ),
        (
            {"oneOf": [{"type": "integer"}, {"minimum": 5}, False]},
            7,
            ["got 7, which fits alternatives 1 and 2; make it fit only one"],
        ),
        ({"not": {"type": "null"}}, None, ["got null, which is ruled out here"]),
        (False, 1, ["got 1; nothing is allowed here"]),
        ({"enum": []}, 1, ["got 1; nothing is allowed here"]),
        ({"const": {"a": [1]}}, 2, ['got 2; expected {"a": [1]}']),
        ({"type": "integer", "enum": [1, 2]}, "x", ['expected integer, got "x"']),
        ({"enum": list(range(20))}, 99, ["got 99; expected one of 0, 1, 2, 3, 4, 5, 6, 7, 8, 9 and 10 more"]),
        ({"uniqueItems": True}, [1, 2, 1], ["items 0 and 2 are the same: 1; each may occur once"]),
        ({"contains": {"type": "null"}}, [1], ["expected at least 1 item of the wanted kind, got 0"]),
        ({"contains": True, "maxContains": 1}, [1, 2], ["expected at most 1 item of the kind, got 2"]),
        ({"multipleOf": 0.1}, 0.35, ["expected a multiple of 0.1, got 0.35"]),
        ({"pattern": "^a"}, "ba", ['expected a text that matches "^a", got "ba"']),
        (
            {"propertyNames": {"maxLength": 2}},
            {"abc": 1},
            ['the name "abc" is not allowed: expected at most 2 characters, got 3: "abc"'],
        ),
        (
            {"dependentRequired": {"a": ["b"]}},
            {"a": 1},
            ['missing argument "b", required because "a" is given'],
        ),
        ({"properties": {"a b": {"items": {"type": "null"}}}}, {"a b": [1]}, ['["a b"][0]: expected null, got 1']),
    ],
)
def test_p5_messages_of_combinations(schema: Any, value: object, words: list[str]) -> None:
    """P5: a fault says what to do, also where several readings were possible."""
    assert said(schema, value) == words


def test_v6_the_word_for_a_property_can_be_chosen() -> None:
    """V6: a check of an output speaks of keys, not of arguments."""
    check = Schema({"required": ["id"], "properties": {"id": {}}, "additionalProperties": False}, noun="key")
    assert [str(fault) for fault in check.faults({"ID": 1})] == [
        'unknown key "ID"; did you mean "id"?',
        'missing required key "id"',
    ]


def test_v6_a_fault_knows_its_place_and_keyword() -> None:
    """V6: what is reported can be used by a program too."""
    assert faults(MAIL, {"to": "a", "tags": [1]}) == [SchemaFault(("tags", 0), "expected string, got 1", "type")]


def test_p5_values_in_messages_are_short() -> None:
    """P5: a huge or deep value does not fill the screen."""
    for value in ("x" * 10_000, list(range(10_000)), {str(n): n for n in range(10_000)}, nested(1, 900), 10**5000):
        (fault,) = faults({"type": "null"}, value)
        assert len(fault.message) < 120


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"a": [1, 2.5, None, True], "b": {}}, '{"a": [1, 2.5, null, true], "b": {}}'),
        ([], "[]"),
        ("数据", '"数据"'),
        ([OPEN], "[OPEN]"),
    ],
)
def test_p5_values_are_shown_as_json(value: object, text: str) -> None:
    """P5: values are shown as they are written in a plan."""
    assert show(value) == text
    assert place(("a", 0, "b-c", "d.e")) == 'a[0].b-c["d.e"]'


# --- What fits -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("schema", "good", "bad"),
    [
        ({"type": "integer"}, [1, 1.0, -3, 10**400], [True, 1.5, "1", None, float("nan")]),
        ({"type": "number"}, [1, 1.5], [False, "1"]),
        ({"type": ["integer", "null"]}, [1, None], ["1", 1.5]),
        ({"enum": [1, [True], {"a": 1}]}, [1.0, [True], {"a": 1.0}], [True, [1], {"a": True}, "1"]),
        ({"enum": [1, 2], "const": 2}, [2], [1, 3]),
        ({"const": False}, [False], [0, None]),
        (
            {"uniqueItems": True},
            [[1, True, "1", [1], [True]], [{"a": 1}, {"a": 2}]],
            [[1, 1.0], [{"a": 1}, {"a": 1.0}]],
        ),
        ({"multipleOf": 0.1}, [0.3, 1, 1e30], [0.35, float("inf"), float("nan")]),
        ({"multipleOf": 2}, [4, 4.0, 10**5000], [3, 4.5]),
        ({"items": [{"type": "integer"}], "additionalItems": False}, [[], [1]], [["a"], [1, 2]]),
        ({"prefixItems": [{"type": "integer"}], "items": {"type": "null"}}, [[1, None]], [[1, 2], [None]]),
        ({"dependencies": {"a": ["b"], "c": {"minProperties": 2}}}, [{"b": 1}, {"a": 1, "b": 1}], [{"a": 1}, {"c": 1}]),
        ({"contains": {"const": 1}, "minContains": 0}, [[], [2]], []),
        ({"minContains": 2}, [[], [1]], []),
        ({"then": False}, [1], []),
        ({"if": {"type": "integer"}, "then": {"minimum": 5}, "else": {"type": "null"}}, [5, None], [4, "x"]),
        ({"patternProperties": {"^x": {"type": "integer"}}, "additionalProperties": False}, [{"x1": 1}], [{"y": 1}]),
        (
            {"properties": {"xa": {"minimum": 3}}, "patternProperties": {"^x": {"type": "integer"}}},
            [{"xa": 3}],
            [{"xa": 1}, {"xa": 3.5}],
        ),
        ({"pattern": "b"}, ["abc", 5], ["ac"]),
        ({"minLength": 2}, ["数据"], ["数"]),
        (
            {"$ref": "#/$defs/a~1b/properties/c%20d", "$defs": {"a/b": {"properties": {"c d": {"type": "null"}}}}},
            [None],
            [1],
        ),
        ({"$ref": "#/definitions/a", "minimum": 3, "definitions": {"a": {"type": "integer"}}}, [3], [2, 3.5]),
        (TREE, [1, [1, {"a": [2]}]], [None, [None], {"a": {"b": "c"}}]),
        ({"title": "t", "default": 1, "format": "email", "nonsense": [1]}, [1, "x"], []),
    ],
)
def test_p5_keywords(schema: Any, good: list[object], bad: list[object]) -> None:
    """P5: each keyword accepts and refuses as the standard says."""
    assert not problems(schema)
    assert [value for value in good if not Schema(schema).accepts(value)] == []
    assert [value for value in bad if Schema(schema).accepts(value)] == []


@pytest.mark.parametrize(
    ("schema", "value", "fits"),
    [
        (MAIL, OPEN, True),
        (MAIL, {"to": OPEN, "tags": OPEN, "copies": OPEN, "size": OPEN}, True),
        (MAIL, {"to": "a", "tags": ["x", OPEN]}, True),
        (MAIL, {"to": OPEN, "copies": 0}, False),
        (MAIL, {"titel": OPEN, "to": "a"}, False),
        ({"not": {"const": {"a": 1}}}, {"a": OPEN}, True),
        ({"not": {"type": "object"}}, OPEN, True),
        ({"oneOf": [{"required": ["a"]}, {"properties": {"a": {"const": 1}}}]}, {"a": OPEN}, True),
        ({"enum": [[1, 2]]}, [OPEN, 2], True),
        ({"uniqueItems": True}, [OPEN, OPEN], True),
        ({"uniqueItems": True}, [OPEN, 1, 1], False),
        ({"contains": {"const": 1}, "maxContains": 1}, [OPEN, 1], True),
        ({"contains": {"const": 1}, "maxContains": 1}, [OPEN, 1, 1], False),
        ({"contains": {"const": 1}}, [OPEN, 2], True),
        ({"if": {"properties": {"a": {"const": 1}}}, "then": False}, {"a": OPEN}, True),
        ({"if": True, "then": False, "else": False}, {"a": OPEN}, False),
        ({"maxItems": 1}, [OPEN, OPEN], False),
    ],
)
def test_p5_a_value_not_known_yet_fits_everything(schema: Any, value: object, fits: bool) -> None:
    """P5: a reference to an output that is still to come is no fault, and hides none that is certain."""
    assert Schema(schema).accepts(value) is fits


def test_h9_null_is_refused_where_it_is_not_accepted() -> None:
    """H9: a hole is a fault unless the argument takes null."""
    assert said(MAIL, {"to": "a", "options": {"colour": None}}) == []
    assert said(MAIL, {"to": None}) == ["to: expected string, got null"]
    assert said({"properties": {"a": {"anyOf": [{"type": "string"}, {"type": "null"}]}}}, {"a": None}) == []


def test_v6_values_that_are_no_json_are_survived() -> None:
    """V6: an output that is not JSON is a fault, never an exception."""
    schema = Schema({**MAIL, "patternProperties": {"^x": {"enum": ["a"]}}})
    for value in ((1,), {1: 2}, {"xa": {1, 2}}, object(), b"x", {"tags": (1,)}):
        assert schema.faults(value)


# --- Schemas that are not sound --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        (5, "#: expected a schema, that is an object, true or false; got 5"),
        ({"type": "strng"}, '#/type: unknown type "strng"; did you mean "string"?'),
        (
            {"type": "any"},
            '#/type: unknown type "any"; the types are array, boolean, integer, null, number, object and string',
        ),
        ({"type": []}, "#/type: expected at least one type"),
        ({"type": [[]]}, "#/type: unknown type []"),
        ({"properties": {"a": {"type": 5}}}, "#/properties/a/type: unknown type 5"),
        ({"properties": {"a": 5}}, "#/properties/a: expected a schema, got 5"),
        ({"properties": {"a": ["b"]}}, '#/properties/a: expected a schema, got ["b"]'),
        ({"dependencies": {"a": ["b"], "c": {"type": 5}}}, "#/dependencies/c/type: unknown type 5"),
        ({"properties": []}, "#/properties: expected an object of schemas, got []"),
        ({"required": True}, "#/required: expected a list of names, got true"),
        ({"required": [1]}, "#/required: expected a list of names, got [1]"),
        ({"minLength": -1}, "#/minLength: expected a whole number of at least 0, got -1"),
        ({"exclusiveMinimum": True}, "#/exclusiveMinimum: expected a number, got true"),
        ({"multipleOf": 0}, "#/multipleOf: expected a number above 0, got 0"),
        ({"pattern": "("}, '#/pattern: the pattern "(" cannot be used'),
        ({"pattern": 5}, "#/pattern: expected a regular expression, got 5"),
        ({"patternProperties": {"[": True}}, '#/patternProperties: the pattern "[" cannot be used'),
        ({"allOf": []}, "#/allOf: expected a list of at least one schema, got []"),
        ({"anyOf": {}}, "#/anyOf: expected a list of at least one schema, got {}"),
        ({"oneOf": [None]}, "#/oneOf/0: expected a schema, got null"),
        ({"items": "x"}, '#/items: expected a schema, got "x"'),
        ({"items": [True], "prefixItems": [True]}, "#/items: expected a schema, because prefixItems is given"),
        ({"enum": "x"}, '#/enum: expected a list, got "x"'),
        ({"uniqueItems": 1}, "#/uniqueItems: expected true or false, got 1"),
        ({"dependentRequired": {"a": "b"}}, "#/dependentRequired: expected lists of names by name"),
        ({"unevaluatedProperties": False}, "#/unevaluatedProperties: not supported"),
        ({"items": {"unevaluatedItems": False}}, "#/items/unevaluatedItems: not supported"),
        ({"$dynamicRef": "#a"}, "#/$dynamicRef: not supported"),
        ({"$ref": 5}, "#/$ref: expected a string, got 5"),
        ({"$ref": "https://x.org/a.json"}, '#/$ref: "https://x.org/a.json" lies outside of the schema'),
        ({"$ref": "#anchor"}, '#/$ref: "#anchor" names nothing in the schema'),
        (
            {"$ref": "#/$defs/mial", "$defs": {"mail": True}},
            '#/$ref: "#/$defs/mial" names nothing in the schema; did you mean "#/$defs/mail"?',
        ),
        ({"$ref": "#/enum/0", "enum": [5]}, '#/$ref: "#/enum/0" names nothing in the schema'),
        ({"$ref": "#/x", "x": {"type": 5}}, "#/x/type: unknown type 5"),
        ({"$ref": "#"}, "#: $ref leads back to itself: # → #"),
        (
            {
                "$ref": "#/$defs/a",
                "$defs": {"a": {"anyOf": [{"$ref": "#/$defs/b"}]}, "b": {"not": {"$ref": "#/$defs/a"}}},
            },
            "#/$defs/a: $ref leads back to itself: #/$defs/a → #/$defs/b → #/$defs/a",
        ),
        (
            {"items": {"$id": "http://x.org/i", "items": {"$ref": "#/$defs/a"}}, "$defs": {"a": True}},
            '#/items/items/$ref: "#/$defs/a" stands inside a schema with an $id of its own',
        ),
    ],
)
def test_p5_problems_of_a_schema(schema: object, words: str) -> None:
    """P5: a broken or unsupported schema is refused before it is used, with the place of the problem."""
    (problem,) = problems(schema)
    assert problem.startswith(words)
    with pytest.raises(ValueError, match="#"):
        Schema(schema)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("rules", "value"),
    [
        ({"type": "string"}, 1), ({"enum": [1, 2]}, 3), ({"const": 1}, 2), ({"minimum": 1}, 0), ({"maximum": 1}, 2),
        ({"exclusiveMinimum": 1}, 1), ({"exclusiveMaximum": 1}, 1), ({"minLength": 1}, ""), ({"maxLength": 1}, "ab"),
        ({"minItems": 1}, []), ({"maxItems": 0}, [1]), ({"minProperties": 1}, {}), ({"maxProperties": 0}, {"a": 1}),
        ({"multipleOf": 2}, 3), ({"pattern": "a"}, "b"), ({"additionalProperties": False}, {"a": 1}),
        ({"required": ["a"]}, {}), ({"propertyNames": {"maxLength": 1}}, {"ab": 1}),
        ({"dependentRequired": {"a": ["b"]}}, {"a": 1}), ({"dependencies": {"a": ["b"]}}, {"a": 1}),
        ({"contains": {"type": "string"}}, [1]), ({"uniqueItems": True}, [1, 1]), ({"not": {"type": "null"}}, None),
        ({"oneOf": [{"minimum": 1}, {"maximum": 5}]}, 3), ({"anyOf": [{"minimum": 5}, {"maximum": 1}]}, 3),
    ],
)  # fmt: skip
def test_p5_a_fault_names_the_keyword_that_says_so(rules: dict[str, Any], value: object) -> None:
    """P5: by which alternatives are told apart; what is refused for one of them is told by that one."""
    (fault,) = faults(rules, value)
    assert fault.keyword in rules and fault.path == ()
    assert [fault.keyword for fault in faults({"contains": True, "maxContains": 1}, [1, 2])] == ["maxContains"]


def test_p5_a_condition_without_a_branch_allows_everything() -> None:
    """P5: `if` alone says nothing, and neither does the branch that is left out."""
    text = {"if": {"type": "string"}}
    assert not faults(text, 5) and not faults({**text, "then": {"minLength": 1}}, 5)
    assert not faults({**text, "else": {"minimum": 9}}, "a") and not faults(text, "a")
    assert faults({**text, "then": {"minLength": 9}}, "a") and faults({**text, "else": {"minimum": 9}}, 5)


def test_p5_all_problems_are_listed() -> None:
    """P5: every problem is listed at once."""
    assert len(problems({"type": "x", "minLength": "a", "properties": {"a": {"enum": 1}, "b": None}})) == 4


def test_p5_a_schema_without_end_is_refused() -> None:
    """P5: a schema that contains itself, or is nested beyond reason, is a problem and no crash."""
    loop: dict[str, Any] = {}
    loop["properties"] = {"a": loop}
    deep: dict[str, Any] = {}
    for _ in range(2000):
        deep = {"not": deep}
    for schema in (loop, deep):
        (problem,) = problems(schema)
        assert "levels deep" in problem


@pytest.mark.parametrize(
    "schema", [MAIL, TREE, True, {}, {"properties": {"a": {"$id": "#/properties/a"}}}, {"$schema": "x"}]
)
def test_p5_sound_schemas_have_no_problems(schema: object) -> None:
    """P5: nothing is refused without a reason."""
    assert problems(schema) == []


# --- Size ------------------------------------------------------------------------------------------------------------


def test_v6_deep_values_are_checked() -> None:
    """V6: a value nested 900 levels deep is accepted or refused, with the place of the fault, like any other."""
    schema = Schema(TREE)
    assert schema.accepts(nested(1, 900))
    (fault,) = schema.faults(nested("x", 900))
    assert len(fault.path) == 900
    assert coerce(schema, nested("5x", 900)) == nested("5x", 900)
    assert not Schema({"uniqueItems": True}).accepts([nested(1, 900), nested(1, 900)])
    assert Schema({"const": nested(1, 900)}).accepts(nested(1.0, 900))
    assert not Schema({"not": TREE["$defs"]["tree"], "$defs": TREE["$defs"]}).accepts(nested(1, 900))


def test_v6_values_without_end_are_refused() -> None:
    """V6: a value that contains itself is a fault and no crash."""
    loop: list[object] = []
    loop.append(loop)
    assert [fault.keyword for fault in Schema(TREE).faults(loop)] == ["depth"]


def test_v6_schemas_that_branch_everywhere_end() -> None:
    """V6: alternatives that all look into the same parts do not multiply the work at each level."""
    branch = {"type": "array", "items": {"$ref": "#"}}
    schema = Schema({"anyOf": [branch, {**branch, "maxItems": 9}, {**branch, "minItems": 0}]})
    value: object = "x"
    for _ in range(40):
        value = [value]
    assert not schema.accepts(value)
    assert coerce(schema, value) is value


def test_p5_long_chains_of_references_are_followed() -> None:
    """P5: definitions that refer on and on are compiled and checked without recursion through them all."""
    chain = {f"d{n}": {"properties": {"a": {"$ref": f"#/$defs/d{n + 1}"}}} for n in range(2000)}
    schema = Schema({"$ref": "#/$defs/d0", "$defs": {**chain, "d2000": {"type": "null"}}})
    assert schema.accepts({"a": {"a": 1}})


def test_p5_a_plain_check_costs_one_call_for_each_member() -> None:
    """P5: the check before each call costs next to nothing: nothing is compiled twice, and nothing built that fits."""
    kinds = ({"type": "string"}, {"type": "integer"}, {"type": "boolean"})
    cost: dict[int, int] = {}
    for count in (0, 30, 60):
        members = {f"p{n}": kinds[n % 3] for n in range(count)}
        schema = Schema({**MAIL, "properties": members, "required": sorted(members)})
        value = {f"p{n}": ("a", 1, True)[n % 3] for n in range(count)}
        assert schema.faults(value) == []
        cost[count] = calls(lambda schema=schema, value=value: schema.faults(value))
    assert cost[60] - cost[30] == cost[30] - cost[0] == 30
    assert cost[0] <= 10


# --- Laws, with the jsonschema library as the oracle -----------------------------------------------------------------

NAMES = st.sampled_from(["a", "b", "c", "ab", "x y"])
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-2, 6)
    | st.sampled_from([0.0, 1.0, 0.5, 2.5, -1.5])
    | st.sampled_from(["", "a", "b", "ab", "abc", "5", "true", "A"])
)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(NAMES, inner, max_size=4), max_leaves=8
)
TYPES = st.sampled_from(["string", "integer", "number", "boolean", "null", "array", "object"])
SIZES = st.integers(0, 3) | st.just(2.0)
PATTERNS = st.sampled_from(["a", "^a", "b$", "^$", "[0-9]", "^x"])


Keywords = dict[str, st.SearchStrategy[Any]]
NUMBERS = st.integers(-2, 5) | st.sampled_from([0.5, 1.0, 2.5])
TYPE = TYPES | st.lists(TYPES, min_size=1, max_size=3, unique=True)
PLAIN: Keywords = {
    "type": TYPE,
    "enum": st.lists(VALUES, min_size=1, max_size=4),
    "const": VALUES,
    "minimum": NUMBERS,
    "maximum": NUMBERS,
    "exclusiveMinimum": NUMBERS,
    "exclusiveMaximum": NUMBERS,
    "multipleOf": st.sampled_from([1, 2, 3, 0.5, 2.5]),
    "minLength": SIZES,
    "maxLength": SIZES,
    "pattern": PATTERNS,
    "minItems": SIZES,
    "maxItems": SIZES,
    "uniqueItems": st.booleans(),
    "minProperties": SIZES,
    "maxProperties": SIZES,
    "required": st.lists(NAMES, max_size=2, unique=True),
    "title": st.just("t"),
    "default": VALUES,
}


@st.composite
def some(draw: Any, keywords: Keywords, most: int) -> dict[str, Any]:
    """A schema of a few keywords: with all at once nothing would fit."""
    words = draw(st.lists(st.sampled_from(sorted(keywords)), max_size=most, unique=True))
    return {word: draw(keywords[word]) for word in words}


def schemas(draft7: bool = False) -> st.SearchStrategy[Any]:
    home = "definitions" if draft7 else "$defs"
    refs = st.sampled_from(["#", f"#/{home}/n0", f"#/{home}/n1", f"#/{home}/x~1y"])
    ref = refs.map(lambda to: {"$ref": to})

    def outer(inner: st.SearchStrategy[Any], plain: int = 1) -> st.SearchStrategy[Any]:
        maps, lists = st.dictionaries(NAMES, inner, max_size=3), st.lists(inner, min_size=1, max_size=3)
        names = st.lists(NAMES, max_size=2, unique=True)
        words: Keywords = {
            "properties": maps,
            "patternProperties": st.dictionaries(PATTERNS, inner, max_size=2),
            "propertyNames": inner,
            "allOf": lists,
            **dict.fromkeys(("additionalProperties", "contains", "not", "if", "then", "else"), inner),
            **dict.fromkeys(("anyOf", "oneOf"), lists),
        }
        if draft7:
            words |= {"items": inner | lists, "additionalItems": inner}
            words |= {"dependencies": st.dictionaries(NAMES, inner | names, max_size=2)}
        else:
            words |= {"items": inner, "prefixItems": lists, "minContains": SIZES, "maxContains": SIZES, "$ref": refs}
            words |= {"dependentSchemas": maps, "dependentRequired": st.dictionaries(NAMES, names, max_size=2)}
        return st.builds(lambda one, two: {**two, **one}, some(words, 3), some(PLAIN, plain))

    leaves = st.booleans() | ref | TYPE.map(lambda name: {"type": name}) | some(PLAIN, 2)
    parts = leaves | outer(leaves) | outer(leaves | outer(leaves))
    targets = st.fixed_dictionaries({"n0": parts, "n1": parts, "x/y": parts})
    return st.builds(lambda root, inner: {**root, home: inner}, outer(parts), targets)


def sound(schema: Any) -> Schema:
    """The compiled schema; drawn schemas have no problem except references in a circle."""
    found = problems(schema)
    assert all("leads back to itself" in problem for problem in found)
    assume(not found)
    return Schema(schema)


LAW = settings(
    deadline=None, max_examples=300, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much]
)


@LAW
@given(schemas(), st.lists(VALUES, min_size=1, max_size=6))
def test_p5_accepts_what_jsonschema_accepts(source: Any, values: list[Any]) -> None:
    """P5, V6: accepted and refused as by the reference library, draft 2020-12."""
    schema, oracle = sound(source), Draft202012Validator(source)
    for value in values:
        expected = oracle.is_valid(value)
        event(f"accepted: {expected}")
        assert schema.accepts(value) is expected
        assert (schema.faults(value) == []) is expected


@LAW
@given(schemas(draft7=True), st.lists(VALUES, min_size=1, max_size=6))
def test_p5_accepts_what_jsonschema_accepts_in_draft_7(source: Any, values: list[Any]) -> None:
    """P5, V6: accepted and refused as by the reference library, draft-07 (where nothing stands beside a $ref)."""
    # The library fails on a draft-07 schema whose items is a boolean beside additionalItems.
    assume('"items": true' not in json.dumps(source) and '"items": false' not in json.dumps(source))
    schema, oracle = sound(source), Draft7Validator(source)
    for value in values:
        assert schema.accepts(value) is oracle.is_valid(value)


def opened(value: Any, draw: Any) -> Any:
    if draw(st.integers(0, 3)) == 0:
        return OPEN
    if isinstance(value, list):
        return [opened(item, draw) for item in value]
    return {name: opened(item, draw) for name, item in value.items()} if isinstance(value, dict) else value


@LAW
@given(schemas(), VALUES, st.data())
def test_p5_not_knowing_a_part_makes_no_fault(source: Any, value: Any, data: st.DataObject) -> None:
    """P5: a value that fits still fits when parts of it are not known yet."""
    schema = sound(source)
    assume(schema.accepts(value))
    part = opened(value, data.draw)
    event(f"open: {is_open(part)}")
    assert schema.accepts(part)


@LAW
@given(schemas(), VALUES)
def test_p5_the_slow_way_for_deep_values_gives_the_same_answer(source: Any, value: Any) -> None:
    """P5: checking the innermost parts first finds the same faults."""
    schema = sound(source)
    assert schema._run_deep(schema._check, value, {}) == schema._run(schema._check, value, {})


def respelled(value: Any, draw: Any) -> Any:
    """The value with parts of it written as text."""
    if isinstance(value, list):
        value = [respelled(item, draw) for item in value]
    if isinstance(value, dict):
        value = {name: respelled(item, draw) for name, item in value.items()}
    if draw(st.integers(0, 2)):
        return value
    return value.upper() if isinstance(value, str) else json.dumps(value)


@LAW
@given(schemas(), VALUES, st.data())
def test_h6_coerce_laws(source: Any, value: Any, data: st.DataObject) -> None:
    """H6: what fits is not touched; what is changed fits; the value given is not altered; once is enough."""
    schema = sound(source)
    value = respelled(value, data.draw)
    before = json.dumps(value)
    got = coerce(schema, value)
    event("fits" if schema.accepts(value) else "mended" if got is not value else "left")
    assert json.dumps(value) == before
    if schema.accepts(value):
        assert got is value
    elif got is not value:
        assert schema.accepts(got)
        assert Draft202012Validator(source).is_valid(got)
    assert coerce(schema, got) is got


ARGUMENTS = st.fixed_dictionaries(
    {"to": st.sampled_from(["a", "a", 5, None])},
    optional={
        "titel": st.sampled_from(["x", 7, ""]),
        "size": st.sampled_from(["small", "Large", "larg", "s"]),
        "copies": st.sampled_from([1, "3", 3.0, "4.0", 12]),
        "urgent": st.sampled_from([True, "true", "FALSE", 1]),
        "tags": st.sampled_from([["a"], "a", '["a", 1]', 1, [1, "b"], None]),
        "options": st.sampled_from([{}, '{"colour": null}', {"colour": 5}, "{"]),
    },
)


@LAW
@given(ARGUMENTS)
def test_h6_coerce_laws_on_likely_arguments(args: dict[str, Any]) -> None:
    """H6: on arguments as models write them, only the members that do not fit are changed, and then all of it fits."""
    schema = Schema(MAIL)
    got: Any = coerce(schema, args)
    event("fits" if schema.accepts(args) else "mended" if got is not args else "left")
    if got is not args:
        assert schema.accepts(got)
        assert not schema.accepts(args)
        assert len(got) == len(args)
        wrong = {fault.path[0] for fault in schema.faults(args) if fault.path}
        assert all(got[name] is args[name] for name in args if name in MAIL["properties"] and name not in wrong)


FITTING = st.fixed_dictionaries(
    {"to": st.text()},
    optional={
        "title": st.text(min_size=1),
        "size": st.sampled_from(["small", "large"]),
        "copies": st.integers(1, 9),
        "urgent": st.booleans(),
        "tags": st.lists(st.text(), min_size=2),
        "options": st.fixed_dictionaries({"colour": st.none() | st.text()}),
    },
)
NAMES_ASKEW = {"to": "TO", "title": "titel", "size": "Size", "urgent": "urgnet", "tags": "Tags"}


@LAW
@given(FITTING, st.data())
def test_h6_coerce_undoes_another_spelling(args: dict[str, Any], data: st.DataObject) -> None:
    """H6: the same request with names misspelled and values as text comes back as it was meant."""
    other: dict[str, Any] = {}
    for name, value in args.items():
        as_text = data.draw(st.booleans(), label=f"{name} as text")
        askew = data.draw(st.booleans(), label=f"{name} askew")
        text = value.upper() if name == "size" else value if isinstance(value, str) else json.dumps(value)
        other[NAMES_ASKEW.get(name, name) if askew else name] = text if as_text else value
    event(f"respelled: {other != args}")
    assert coerce(MAIL, other) == args


@given(VALUES, VALUES)
def test_v6_sameness(one: Any, two: Any) -> None:
    """V6: two values are the same JSON exactly if enum says so in the reference library."""
    assert (key(one) == key(two)) is Draft202012Validator({"const": one}).is_valid(two)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda inner: (
            st.lists(inner) | st.dictionaries(st.sampled_from([*Draft202012Validator.VALIDATORS, "definitions"]), inner)
        ),
        max_leaves=20,
    )
)
def test_p5_any_json_may_be_offered_as_a_schema(source: Any) -> None:
    """P5: problems never raises, and a schema without problems can be used."""
    if not problems(source):
        Schema(source).faults([{"a": 1}, "x", None])


def test_a_value_in_a_sentence_is_cut_where_there_is_no_room() -> None:
    """P5: eighty signs, whole or with a mark that something is missing."""
    assert show(["x" * 76]) == '["' + "x" * 76 + '"]' and len(show(["x" * 76])) == 80
    assert show(["x" * 77]) == '["' + "x" * 77 + "…"


def test_p5_a_reference_may_be_written_with_percent_signs() -> None:
    """P5: letters beyond ASCII take several of them, which are read together."""
    schema = {"$defs": {"größe": {"type": "integer"}, "a/b~c": {"type": "string"}}}
    assert Schema({**schema, "$ref": "#/$defs/gr%C3%B6%C3%9Fe"}).faults("x")
    assert not Schema({**schema, "$ref": "#/$defs/gr%C3%B6%C3%9Fe"}).faults(5)
    assert not Schema({**schema, "$ref": "#/$defs/a~1b~0c"}).faults("x")


def test_v6_things_that_are_no_json_are_only_the_same_as_themselves() -> None:
    """V6: two of them in a list are two."""
    one, two = object(), object()
    assert key(one) == key(one) != key(two) and not faults({"uniqueItems": True}, [one, two])
