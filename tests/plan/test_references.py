"""References: how an argument points at an earlier output (P4). Data only: nothing is evaluated."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rerail.plan.references import (
    HOLE,
    BadReference,
    MissingPath,
    Mixed,
    Names,
    Ref,
    UnknownReference,
    compile_args,
    follow,
    parse,
    resolve,
    strings,
)
from rerail.testing.scripted import World
from rerail.testing.virtual_time import virtual_run


def names(*ids: str) -> Names:
    return Names(dict.fromkeys(ids), max(map(len, ids), default=0))


def resolved(args: Any, outputs: dict[str, Any], **more: Any) -> Any:
    return resolve(compile_args(args, names(*outputs)), outputs.__getitem__, **more)


OUTPUTS: dict[str, Any] = {
    "read": {"text": "hello", "n": 5, "none": None, "list": [{"path": "a.txt"}, {"path": "b.txt"}], "a.b": "odd",
             "": "e"},
    "list": [{"path": "x"}, ["y", "z"]],
    "flag": False,
}  # fmt: skip


# -- Whole strings keep their type --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("${read}", OUTPUTS["read"]),
        ("${read.text}", "hello"),
        ("${read.n}", 5),
        ("${read.none}", None),
        ("${flag}", False),
        ("${read.list}", OUTPUTS["read"]["list"]),
        ("${read.list[1]}", {"path": "b.txt"}),
        ("${read.list[1].path}", "b.txt"),
        ("${read.list[-1].path}", "b.txt"),
        ("${read.list.0.path}", "a.txt"),
        ("${list[0].path}", "x"),
        ("${list[1][0]}", "y"),
        ('${read["a.b"]}', "odd"),
        ("${read['a.b']}", "odd"),
        ('${read[""]}', "e"),
        ('${read["list"][0]["path"]}', "a.txt"),
        ('${read["te\\u0078t"]}', "hello"),
    ],
)
def test_a_whole_string_reference_keeps_its_type(text: str, value: Any) -> None:
    """P4: numbers, lists, mappings, null and false are what they were."""
    found = resolved({"x": text}, OUTPUTS)["x"]
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("say ${read.text}!", "say hello!"),
        ("${read.text}${read.n}", "hello5"),
        ("${read.n} of ${read.n}", "5 of 5"),
        (" ${read.n}", " 5"),
        ("${read.none}.", "null."),
        ("${flag}?", "false?"),
        ("list: ${read.list[0]}", 'list: {"path":"a.txt"}'),
        ("中文${read.text}🚂", "中文hello🚂"),
    ],
)
def test_inside_a_longer_string_it_is_interpolated(text: str, value: str) -> None:
    """P4: texts as they are, everything else as JSON."""
    assert resolved({"x": text}, OUTPUTS) == {"x": value}


def test_references_are_found_at_any_depth_and_keys_are_left_alone() -> None:
    """P4: in lists and mappings; a key is a key."""
    args = {"${read.n}": [{"deep": ["${read.n}", {"er": "${flag}"}]}], "plain": 1, "none": None}
    assert resolved(args, OUTPUTS) == {"${read.n}": [{"deep": [5, {"er": False}]}], "plain": 1, "none": None}


# -- Literals -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("$${read.text}", "${read.text}"),
        ("$${nobody}", "${nobody}"),
        ("a $${x} and ${read.n}", "a ${x} and 5"),
        ("${read.n}$${read.n}", "5${read.n}"),
        ("$$${read.n}", "$${read.n}"),
        ("$", "$"),
        ("$$", "$$"),
        ("$read", "$read"),
        ("{read}", "{read}"),
        ("$ {read}", "$ {read}"),
        ("", ""),
    ],
)
def test_a_doubled_dollar_is_a_literal(text: str, value: str) -> None:
    """P4: `$${` is a literal `${`, with and without references beside it."""
    assert resolved({"x": text}, OUTPUTS) == {"x": value}
    assert resolved({"x": text, "y": "${flag}"}, OUTPUTS) == {"x": value, "y": False}


# -- The id is the longest known one ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "step", "path"),
    [
        ("${a}", "a", ()),
        ("${a.b}", "a.b", ()),
        ("${a.b.c}", "a.b", ("c",)),
        ("${a.bc}", "a", ("bc",)),
        ("${a[0]}", "a[0]", ()),
        ("${a[0].x}", "a[0]", ("x",)),
        ("${a[1]}", "a", (1,)),
        ("${a b.c}", "a b", ("c",)),
        ("${步骤.一}", "步骤", ("一",)),
        ("${a}b}", "a}b", ()),
    ],
)
def test_the_longest_known_id_wins(text: str, step: str, path: tuple[Any, ...]) -> None:
    """P4: an id followed by `.`, `[` or `}`; ids may hold dots, brackets and spaces."""
    assert parse(text, names("a", "a.b", "a[0]", "a b", "步骤", "a}b")) == Ref(step, path)


def test_a_very_long_id() -> None:
    """P4, P6: 10 kB are an id like any other."""
    name = "x" * 10_000
    assert parse("${" + name + ".y}", names(name, "x")) == Ref(name, ("y",))


@given(st.text(min_size=1, max_size=12), st.lists(st.text(max_size=6), max_size=3))
def test_any_id_and_any_key_can_be_written(step: str, keys: list[str]) -> None:
    """P4: with quoted keys every path of every step can be said, and says itself the same way again."""
    ref = Ref(step, tuple(keys))
    if not any("\\u" in repr(key) or key != key.encode("utf-8", "replace").decode() for key in keys):
        assert parse(str(ref), names(step)) == ref


# -- Faults -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["${nobody}", "${nobody.x}", "${rea.d}", "${.x}", "${ read }", "${}", "${[0]}"])
def test_an_unknown_step(text: str) -> None:
    """P4, P5: named as it stands."""
    with pytest.raises(UnknownReference):
        parse(text, names("read"))


@pytest.mark.parametrize(
    "text",
    ["${read", "${read.", "${read.}", "${read[", "${read[]}", "${read[a]}", "${read[1.5]}", '${read["a]}',
     "${read['a]}", "${read.a..b}", "${read]}", '${read["a"x]}', "${"],
)  # fmt: skip
def test_not_a_reference(text: str) -> None:
    """P4, P5: neither passed on as text nor guessed at."""
    with pytest.raises((BadReference, UnknownReference)):
        parse(text, names("read"))


@given(st.text(alphabet="${}[].'\"ab0-\\ 步", max_size=30))
def test_any_text_is_parsed_or_refused(text: str) -> None:
    """P4: total: a text, a reference, several, or a fault; nothing else is raised."""
    try:
        found = parse(text, names("a", "b", "a.b", "0"))
    except (BadReference, UnknownReference):
        return
    assert isinstance(found, str | Ref | Mixed)


@pytest.mark.parametrize(
    "text",
    ["${read.nothing}", "${read.text.more}", "${read.list[2]}", "${read.list[-3]}", "${list.path}", "${flag.x}",
     "${flag[0]}", "${read.n[0]}", "${read.none.x}", "x ${read.nothing}"],
)  # fmt: skip
def test_a_path_that_is_not_there(text: str) -> None:
    """P4: said, never null."""
    with pytest.raises(MissingPath):
        resolved({"x": text}, OUTPUTS)


@pytest.mark.parametrize("text", ["${read.__class__}", "${read.text.upper()}", "${read.n + 1}", "${read['n'] | x}"])
def test_nothing_is_evaluated(text: str) -> None:
    """P4: data only, no expressions, no code."""
    with pytest.raises((MissingPath, BadReference, UnknownReference)):
        resolved({"x": text}, OUTPUTS)


# -- Holes --------------------------------------------------------------------------------------------------------


def test_a_hole_is_null_alone_and_the_word_null_in_a_text() -> None:
    """H9, P4: also through a path; marked where a caller has to know."""
    outputs = {**OUTPUTS, "gone": HOLE}
    args = {"a": "${gone}", "b": "${gone.x[0]}", "c": "see ${gone.x}", "d": "${read.n}"}
    assert resolved(args, outputs) == {"a": None, "b": None, "c": "see null", "d": 5}
    assert resolved(args, outputs, hole=HOLE) == {"a": HOLE, "b": HOLE, "c": HOLE, "d": 5}


# -- Through the engine -------------------------------------------------------------------------------------------


def test_references_reach_the_tools() -> None:
    """P4, X6: types kept, texts joined, literals read, odd ids found."""
    what = {
        "steps": [
            {"id": "a.b", "tool": "a", "args": {"lit": "$${x}"}},
            {"id": "a", "tool": "b"},
            {"id": "用 户", "tool": "c"},
            {
                "id": "last",
                "tool": "d",
                "args": {"n": "${a.b.n}", "m": "${a.n}", "s": "${a.b.n}/${用 户[0]}", "all": "${用 户}"},
            },
        ]
    }
    world = World(a=[{"n": 1}], b=[{"n": [2]}], c=[["u", {"v": None}]])
    assert world.run(what).success
    calls = {call.tool: dict(call.args) for call in world.calls}
    assert calls["a"] == {"lit": "${x}"}
    assert calls["d"] == {"n": 1, "m": [2], "s": "1/u", "all": ["u", {"v": None}]}


def test_a_path_into_a_text_reads_it_as_json_and_the_history_says_so() -> None:
    """P4: an answer that came as text is read on; the call names the references, and `why` and `logs` tell them."""
    text = '{"items": [{"id": 7}], "inner": "[1, 2]"}'
    args = {"x": "${a.body.items[0].id}", "y": "no ${a.body.inner[1]}", "all": "${a.body}", "z": "${a.ok}"}
    what = {"steps": [{"id": "a", "tool": "a"}, {"id": "b", "tool": "b", "args": args}]}
    world = World(a=[{"body": text, "ok": 1}])

    async def main() -> tuple[Any, ...]:
        async with world.engine(what) as engine:
            run = (await engine.run(what)).run_id
            return await engine.events(run), await engine.why(run, "b"), await engine.why(run, "b", lang="zh")

    events, why, zh = virtual_run(main)
    assert dict(world.calls[-1].args) == {"x": 7, "y": "no 2", "all": text, "z": 1}
    parsed = [event.parsed for event in events if event.type == "step_started"]
    assert parsed == [(), ("${a.body.items[0].id}", "${a.body.inner[1]}")]
    assert "a text was read as JSON for ${a.body.items[0].id}, ${a.body.inner[1]}" in why
    assert "按 JSON 读取" in zh


@pytest.mark.parametrize("text", ["{broken", "[1", "plain", '"{}"', "", "{\ud800}", "[" * 100_000])
def test_a_text_that_is_not_json_has_no_parts(text: str) -> None:
    """P4: a path into it is missing, as before."""
    with pytest.raises(MissingPath):
        follow(Ref("a", ("x",)), text)


def test_a_missing_path_fails_before_the_call() -> None:
    """P4: a dependency_error, and the tool is not called."""
    what = {"steps": [{"id": "a", "tool": "a"}, {"id": "b", "tool": "b", "args": {"x": "${a.no.such}"}}]}
    world = World()
    result = world.run(what)
    error = result.steps["b"].error
    assert (error["code"], error["category"]) == ("PATH_MISSING", "dependency_error")
    assert "${a.no.such}" in error["message"]
    assert world.calls_of("b") == 0
    assert [row["id"] for row in result.failed_steps] == ["b"]


def test_a_reference_orders_the_steps() -> None:
    """P4: the implied need holds, written after or before."""
    what = {"steps": [{"id": "b", "tool": "b", "args": {"x": "${a}"}}, {"id": "a", "tool": "a"}]}
    world = World()
    assert world.run(what).success
    assert world.order == ["a", "b"]


def test_references_are_found_in_any_mapping() -> None:
    """P4: arguments may be given as any mapping or sequence; what stands in it is read as in plain JSON."""
    args = MappingProxyType({"a": MappingProxyType({"b": ("${read.n}", "$${x}")})})
    assert sorted(strings(args)) == ["$${x}", "${read.n}"]
    assert resolved(args, OUTPUTS) == {"a": {"b": [5, "${x}"]}}
    assert resolved(MappingProxyType({"a": MappingProxyType({"b": ("$${x}",)})}), OUTPUTS) == {"a": {"b": ["${x}"]}}


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("${read", BadReference), ("${reed", BadReference), ("${reed.text", BadReference),
        ("${reed}", UnknownReference), ("${reed.text}", UnknownReference), ("${read['a'x}", BadReference),
        ("] ${read['a}", BadReference),
        ("]${read['a}", BadReference), ("${read[\"a\"x}", BadReference), ("${read[x]}", BadReference),
        ("${read.text", BadReference), ("${read.}", BadReference),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_reference(text: str, kind: type[ValueError]) -> None:
    """P4, P5: no end, no such step, or a path that nobody can read."""
    with pytest.raises(kind):
        parse(text, names("read"))
    with pytest.raises(kind) as raised:
        parse("words before " + text, names("read"))
    assert type(raised.value) is kind


def test_a_reference_without_end_is_shown_cut() -> None:
    """P5: a fault is read by people."""
    with pytest.raises(UnknownReference, match="…") as raised:
        parse("${" + "x" * 200 + "}", names("read"))
    assert "x" * 77 + "…" in str(raised.value) and "x" * 78 not in str(raised.value)


def test_a_text_with_literals_alone_is_a_text() -> None:
    """P4: ``$${`` is a literal, as often as it stands there."""
    assert parse("a $${b} $${c}", names("read")) == "a ${b} ${c}"
    assert parse("$${b}${read.n}", names("read")) == Mixed(("${b}", Ref("read", ("n",))))
