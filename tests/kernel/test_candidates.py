"""Arguments that were never filled in, or slipped, get the value that a step before gave; others stay (H6)."""

from __future__ import annotations

from typing import Any

import pytest

from rerail.codes import Category
from rerail.errors import ToolError
from rerail.i18n import retold
from rerail.kernel import events as ev
from rerail.kernel.candidates import KEPT, MOST, singled, supplied, supposed
from rerail.kernel.events import Error, Record
from rerail.kernel.fold import evolve, fold
from rerail.kernel.policy import Rung
from rerail.kernel.state import State
from rerail.plan.model import Plan
from rerail.plan.step import Need, Step, When
from rerail.testing.scripted import World
from rerail.testing.virtual_time import virtual_run
from rerail.values.names import one_off

BOOKED = {"booking_id": "3426812", "seats": ["12A", "12B"], "price": {"total": 230.5, "currency": "EUR"}}
ONCE = {"retry": {"max_retry_rounds": 0}}


def answered(right: Any, given: dict[str, Any], argument: str = "booking_id") -> Any:
    """A tool that knows one value only."""

    def call(**args: Any) -> Any:
        return {"ok": 1} if args[argument] == right else ToolError("Booking not found", category="parameter_error")

    world = World(book=[given], use=[call])
    return world


def used(world: World, args: dict[str, Any], effect: str = "once", needs: tuple[str, ...] = ("book",)) -> Any:
    world.option("use", effect=effect)
    steps = [{"id": "book", "tool": "book"}, {"id": "use", "tool": "use", "args": args, "needs": list(needs)}]
    return world.run({"steps": steps}, settings=ONCE)


@pytest.mark.parametrize("blank", ["<booking_id>", "<the id>", "{{booking_id}}", "TODO", "YOUR_BOOKING_ID", "…"])
def test_a_blank_is_filled_with_what_a_step_before_gave_under_that_name(blank: str) -> None:
    """H6: even for a tool that must not act twice, for a blank is nobody's wish; the first call did nothing."""
    world = answered("3426812", BOOKED)
    result = used(world, {"booking_id": blank})
    assert result.success
    assert [call.args for call in world.calls if call.tool == "use"][1:] == [{"booking_id": "3426812"}]


def test_the_name_in_the_blank_counts_too_and_names_are_compared_without_their_spelling() -> None:
    """H6: `<bookingId>` for an argument that is called otherwise."""
    world = answered("3426812", BOOKED, "reference")
    assert used(world, {"reference": "<bookingId>"}).success


@pytest.mark.parametrize(
    ("tool", "given", "filled"),
    [
        ("create_booking", {"id": "3426812", "seat": {"row": 12}}, True),
        ("getBooking", {"booking": {"id": "3426812"}}, True),
        ("list_booking_fees", {"id": "3426812"}, False),  # the id of a fee
        ("create_booking", {"items": [{"id": "3426812"}, {"id": "3426813"}]}, False),  # two readings
        ("create_booking", {"number": "3426812"}, False),
    ],
)
def test_an_id_belongs_to_what_its_tool_is_named_after(tool: str, given: Any, filled: bool) -> None:
    """H6: `create_booking` need not say of its `id` that it is a booking's."""

    def call(**args: Any) -> Any:
        return {"ok": 1} if args["booking_id"] == "3426812" else ToolError("no", category="parameter_error")

    world = World(**{tool: [given], "use": [call]})
    steps = [{"id": "a", "tool": tool}, {"id": "use", "tool": "use", "args": {"booking_id": "<booking_id>"},
             "needs": ["a"]}]  # fmt: skip
    assert world.run({"steps": steps}, settings=ONCE).success is filled


def test_the_history_says_which_step_the_value_came_from() -> None:
    """H1, H6, T12: the reflection names it, in the reader's language."""
    world = answered("3426812", BOOKED)
    steps = [{"id": "book", "tool": "book"}, {"id": "use", "tool": "use", "args": {"booking_id": "TODO"},
             "needs": ["book"]}]  # fmt: skip

    async def main() -> list[Any]:
        async with world.engine({"steps": steps}) as engine:
            result = await engine.run({"steps": steps})
            assert result.steps["use"].args == {"booking_id": "3426812"}
            return list(await engine.events(result.run_id))

    (said,) = [event for event in virtual_run(main) if event.type == "reflected"]
    assert said.root_cause == "Booking not found (a value was taken from what step 'book' gave)"
    assert said.suggestion == {"booking_id": "3426812"}
    assert retold(said.root_cause, "zh") == "Booking not found（改用步骤 'book' 给出的值）"


@pytest.mark.parametrize("mistyped", ["3426813", "342681", "34268122", "3462812"])
def test_a_slip_is_put_right_for_a_tool_that_reads(mistyped: str) -> None:
    """H6: one sign another, less, more, or two swapped."""
    assert used(answered("3426812", BOOKED), {"booking_id": mistyped}, "read").success


@pytest.mark.parametrize("effect", ["repeatable", "once"])
def test_a_slip_is_left_alone_where_the_tool_changes_something(effect: str) -> None:
    """H6: it may be another booking, and acting on the wrong one cannot be undone."""
    world = answered("3426812", BOOKED)
    result = used(world, {"booking_id": "3426813"}, effect)
    assert not result.success
    assert world.calls_of("use") == 1


def test_another_value_altogether_is_left_alone() -> None:
    """H6: that it was not found does not make it another wish."""
    world = answered("3426812", BOOKED)
    assert not used(world, {"booking_id": "9999999"}, "read").success
    assert world.calls_of("use") == 1


@pytest.mark.parametrize("args", [{"booking_id": "TODO"}, {"booking_id": "3426815"}])
def test_two_values_that_could_be_meant_are_none(args: dict[str, Any]) -> None:
    """H6: whatever has two readings has none."""
    world = answered("3426812", {"out": {"booking_id": "3426812"}, "back": {"booking_id": "3426813"}})
    assert not used(world, args, "read").success
    assert world.calls_of("use") == 1


def test_a_blank_beside_one_that_nobody_can_fill_stays() -> None:
    """H6: half a guess is no call."""
    world = answered("3426812", BOOKED)
    assert not used(world, {"booking_id": "TODO", "passport": "<passport>"}).success
    assert world.calls_of("use") == 1


def test_only_steps_that_it_needs_count_however_far_before() -> None:
    """H6: what runs beside a step is no source; what its needs needed is."""
    beside = answered("3426812", BOOKED)
    assert not used(beside, {"booking_id": "TODO"}, needs=()).success
    far = answered("3426812", BOOKED)
    steps = [
        {"id": "book", "tool": "book"}, {"id": "pay", "tool": "pay", "needs": ["book"]},
        {"id": "use", "tool": "use", "args": {"booking_id": "TODO"}, "needs": ["pay"]},
    ]  # fmt: skip
    assert far.run({"steps": steps}, settings=ONCE).success


def test_a_value_of_the_wrong_type_is_not_tried() -> None:
    """H5: adjusted arguments fit the schema, whoever proposes them."""
    world = answered("3426812", {"booking_id": {"inner": 7}})
    schema = {"type": "object", "properties": {"booking_id": {"type": "string"}}}
    world.option("use", schema=schema)
    steps = [{"id": "book", "tool": "book"}, {"id": "use", "tool": "use", "args": {"booking_id": "<inner>"},
             "needs": ["book"]}]  # fmt: skip
    assert not world.run({"steps": steps}, settings=ONCE).success
    assert world.calls_of("use") == 1


def test_short_values_and_numbers_that_were_given_are_no_slips() -> None:
    """H6: 12 is not 13 mistyped, and a value that a step before gave is meant as it is."""
    short = answered("12A", BOOKED, "seat")
    assert not used(short, {"seat": "12C"}, "read").success
    given = answered("x", {"booking_id": "3426812", "other": "3426813"})
    assert not used(given, {"booking_id": "3426813"}, "read").success
    assert given.calls_of("use") == 1


def test_without_reflection_nothing_is_guessed() -> None:
    """H6: with step-level reflection off only plain retry, fallback and skip remain."""
    world = answered("3426812", BOOKED)
    steps = [{"id": "book", "tool": "book"}, {"id": "use", "tool": "use", "args": {"booking_id": "TODO"},
             "needs": ["book"]}]  # fmt: skip
    off = {**ONCE, "reflection": {"enable_step_level_reflection": False}}
    assert not world.run({"steps": steps}, settings=off).success


def test_what_is_too_much_to_look_at_is_not_looked_at() -> None:
    """H6: behind thousands of steps nobody can say what was meant, and a failure costs no more in a large plan."""
    world = answered("3426812", BOOKED)
    size = MOST + 10
    chain = [{"id": f"c{at}", "tool": "c", "needs": [f"c{at - 1}"] if at else ["book"]} for at in range(size)]
    world.script["c"] = [None]
    use = {"id": "use", "tool": "use", "args": {"booking_id": "TODO"}, "needs": [f"c{size - 1}"]}
    result = world.run({"steps": [{"id": "book", "tool": "book"}, *chain, use]}, settings=ONCE)
    assert result.status == "failed"
    assert {call.args["booking_id"] for call in world.calls if call.tool == "use"} == {"TODO"}


def test_a_text_is_no_slip_of_another() -> None:
    """H6: measuring takes the square of a word's length; whole texts are not measured."""
    assert one_off("x" * 100, ["x" * 99]) == ["x" * 99]
    assert one_off("x" * 101, ["x" * 100]) == []


def test_a_slip_beside_a_blank_is_left_alone() -> None:
    """H6: as long as something was never filled in, nobody knows what was meant."""
    world = answered("3426812", BOOKED)
    result = used(world, {"booking_id": "3426813", "other": "<nobody gave this>"}, effect="read")
    assert not result.success and len([call for call in world.calls if call.tool == "use"]) == 1


def test_a_step_that_is_reached_two_ways_is_looked_at_once() -> None:
    """H6: one value is one value, however many steps it came through."""
    world = answered("3426812", BOOKED)
    world.option("use", effect="once")
    steps = [
        {"id": "book", "tool": "book"}, {"id": "x", "tool": "x", "needs": ["book"]},
        {"id": "y", "tool": "y", "needs": ["book", "x"]},
        {"id": "use", "tool": "use", "args": {"booking_id": "TODO"}, "needs": ["x", "y", "book"]},
    ]  # fmt: skip
    assert world.run({"steps": steps}, settings=ONCE).success


@pytest.mark.parametrize(
    "blank", ["[booking_id]", "{booking_id}", "%BOOKING_ID%", "$booking_id", "$BOOKING_ID$", "[seat.price-total]"]
)
def test_a_blank_may_be_framed_otherwise_by_the_name_of_what_it_is_for(blank: str) -> None:
    """H6: as models write them; what stands inside is the argument's name, or that of a value which was given."""
    given = {"booking_id": "3426812", "seat price total": "3426812"}
    world = answered("3426812", given)
    assert used(world, {"booking_id": blank}).success


@pytest.mark.parametrize("title", ["[draft]", "{draft}", "$5", "%d", "[1]", "$USD", "[booking_id] and more", "[]"])
def test_what_only_looks_framed_is_left_alone(title: str) -> None:
    """H6: nobody gave a draft; that a booking has a title is no reason to give this one the same."""
    world = answered("Rome", {"title": "Rome"}, "title")
    assert not used(world, {"title": title}, "read").success
    assert world.calls_of("use") == 1


def test_a_framed_name_of_the_argument_waits_for_a_value_like_any_blank() -> None:
    """H6: a slip beside it is left alone, as nobody knows what was meant."""
    world = answered("3426812", BOOKED)
    assert not used(world, {"booking_id": "3426813", "passport": "[passport]"}, effect="read").success
    assert world.calls_of("use") == 1


def looked_up(args: dict[str, Any], effect: str = "read", **more: Any) -> tuple[Any, World]:
    """A distance between two places, each looked up by a step of its own."""

    def distance(**args: Any) -> Any:
        there = args.get("end") == "83214" and args.get("start", "94016") == "94016"
        return {"km": 980} if there else ToolError("distance not found", category="parameter_error")

    codes = {
        "San Francisco": {"zip": "94016", "at": [1, 2]},
        "Rivermist": {"zip": "83214"},
        "Oakendale": {"zip": "47329"},
    }
    world = World(zip=[lambda city: codes[city]], other=[{"zip": "83214"}], distance=[distance])
    world.option("distance", effect=effect)
    steps = [
        {"id": "a", "tool": "zip", "args": {"city": "San Francisco"}},
        {"id": "b", "tool": more.get("tool", "zip"), "args": {"city": more.get("city", "Rivermist")}},
        {"id": "c", "tool": "zip", "args": {"city": "Oakendale"}},
        {"id": "use", "tool": "distance", "args": args, "needs": more.get("needs", ["a", "b"])},
    ]
    return world.run({"steps": steps}, settings=ONCE), world


def test_a_blank_gets_what_the_twin_of_the_step_beside_it_gave() -> None:
    """H6: one of two lookups is referred to, the other is needed and is not: it is the one that was forgotten."""
    result, world = looked_up({"start": "${a.zip}", "end": "<end>"})
    assert result.success
    assert world.calls[-1].args == {"start": "94016", "end": "83214"}


@pytest.mark.parametrize(
    ("args", "more"),
    [
        ({"start": "${a.zip}", "end": "<end>"}, {"effect": "once"}),  # it acts
        ({"start": "${a.zip}", "end": "<end>"}, {"effect": "repeatable"}),
        ({"start": "${a.zip}", "end": "<end>"}, {"needs": ["a"]}),  # the other is not needed
        ({"start": "${a.zip}", "end": "<end>"}, {"needs": ["a", "b", "c"]}),  # two others
        ({"start": "${a.zip}", "end": "<end>", "via": "<via>"}, {}),  # two blanks
        ({"start": "${a.zip}", "end": "<end>"}, {"tool": "other"}),  # of another tool
        ({"start": "${a.zip}", "end": "<end>", "by": "${b.zip}"}, {}),  # referred to for something else
        ({"start": "${a.zip}", "end": "<end>", "by": "from ${b.zip}"}, {}),
        ({"start": "94016", "end": "<end>"}, {}),  # nothing beside it refers to a step
        ({"start": "${a.at}", "end": "<end>"}, {}),  # no single value
        ({"start": "${a.at[0]}", "end": "<end>"}, {}),  # nothing at that place
        ({"start": "${a.zip}", "end": "29238"}, {}),  # no blank
    ],
)
def test_the_twin_of_a_step_is_left_alone_where_that_is_no_more_than_a_guess(
    args: dict[str, Any], more: dict[str, Any]
) -> None:
    """H6: whatever has two readings has none, and a tool that acts is not called on what no name vouches for."""
    result, world = looked_up(args, **more)
    assert not result.success
    assert world.calls_of("distance") == 1


def test_the_twin_of_a_step_counts_by_the_type_of_what_it_gave() -> None:
    """H6: a number is not what was meant where its twin gave a text."""

    def distance(**args: Any) -> Any:
        return {"km": 1} if args["end"] == 5 else ToolError("no", category="parameter_error")

    world = World(zip=[lambda city: {"zip": 5 if city == "b" else "94016"}], distance=[distance])
    world.option("distance", effect="read")
    steps = [
        {"id": "a", "tool": "zip", "args": {"city": "a"}}, {"id": "b", "tool": "zip", "args": {"city": "b"}},
        {"id": "use", "tool": "distance", "args": {"start": "${a.zip}", "end": "<end>"}, "needs": ["a", "b"]},
    ]  # fmt: skip
    assert not world.run({"steps": steps}, settings=ONCE).success
    assert world.calls_of("distance") == 1


def test_the_twin_of_a_step_that_was_left_out_gave_nothing() -> None:
    """H6, H9: what was skipped is no source."""
    world = World(zip=[lambda city: {"zip": "94016"} if city == "a" else ToolError("no", category="permanent_error")],
                  distance=[ToolError("distance not found", category="parameter_error")])  # fmt: skip
    world.option("distance", effect="read")
    steps = [
        {"id": "a", "tool": "zip", "args": {"city": "a"}},
        {"id": "b", "tool": "zip", "args": {"city": "b"}, "critical": False},
        {"id": "use", "tool": "distance", "args": {"start": "${a.zip}", "end": "<end>"}, "needs": ["a", "b"]},
    ]  # fmt: skip
    assert not world.run({"steps": steps}, settings=ONCE).success
    assert world.calls_of("distance") == 1


LARGE = {
    "history": [{"card_id": f"card-{at}", "note": "n" * 100} for at in range(20)],
    "booking_id": "3426812", "paid": True, "note": "n", "text": "t" * 65, "n" * 65: 7,
}  # fmt: skip


def test_a_blank_is_filled_from_an_output_that_is_too_large_for_the_history() -> None:
    """H6: the few values that it has under one name alone are kept with the event."""
    world = answered("3426812", LARGE)
    assert used(world, {"booking_id": "<booking_id>"}).success


def test_what_a_large_output_has_several_of_is_not_kept() -> None:
    """H6: nor what is long; and a slip is put right only where everything that is near could be seen."""
    several = answered("card-7", LARGE, "card_id")
    assert not used(several, {"card_id": "<card_id>"}).success
    slip = answered("3426812", LARGE)
    assert not used(slip, {"booking_id": "3426813"}, "read").success
    assert several.calls_of("use") == slip.calls_of("use") == 1


def test_what_is_kept_of_a_large_output_is_little() -> None:
    """H6: short values that are there under one name alone, those further out first; nothing of what is too much."""
    assert singled(LARGE) == {"booking_id": "3426812"}
    assert singled({"inner": {"ID": 2}, "id": 1}) == {}  # two readings
    assert singled({"inner": {"id": 1}, "Id": 1}) == {"id": 1}
    assert singled({"inner": {f"deep{at}": at for at in range(40)}, "out": 1, "flag": False, "none": None}) == {
        "out": 1, **{f"deep{at}": at for at in range(KEPT - 1)},
    }  # fmt: skip
    assert singled({"a": {"b": {"c": {"d": 1}}}}) == {"d": 1}
    assert singled({"a": {"b": {"c": {"d": {"e": 1}}}}}) == {}
    assert singled("text") == singled(["text"]) == singled(7) == {}
    assert singled({"id": 1, "rows": list(range(MOST))}) == {}
    assert singled({"id": 1, "rows": [[0] * 100] * 100}) == {}


def refused() -> World:
    """A tool that knows one token only, and speaks of others as of a lock that stays shut."""

    def call(**args: Any) -> Any:
        return {"ok": 1} if args["token"] == "t-77123" else ToolError("Invalid access token")

    return World(login=[{"token": "t-77123"}], use=[call])


def logged_in(world: World, args: dict[str, Any]) -> Any:
    use = {"id": "use", "tool": "use", "args": args, "needs": ["login"]}
    return world.run({"steps": [{"id": "login", "tool": "login"}, use]})


@pytest.mark.parametrize("effect", ["read", "repeatable", "once"])
def test_a_no_for_good_to_a_blank_is_no_word_about_what_was_meant(effect: str) -> None:
    """H6: `<token>` is an invalid token; the one that the login gave was not yet tried."""
    world = refused()
    world.option("use", effect=effect)
    assert logged_in(world, {"token": "<token>"}).success
    assert world.calls_of("use") == 2


@pytest.mark.parametrize("token", ["t-77124", "t-00000", "<the key of the safe>", "t-77123 "])
def test_a_no_for_good_to_anything_else_costs_one_call(token: str) -> None:
    """H3, R6: no slip is put right and nothing is tried again, in no round."""
    world = refused()
    world.option("use", effect="read")
    if token.startswith("<"):
        world.script["login"] = [{"number": "t-77123"}]
    assert not logged_in(world, {"token": token}).success
    assert world.calls_of("use") == 1


def test_a_no_for_good_to_what_was_filled_in_stands() -> None:
    """H3, H6: the blank is filled once."""
    world = refused()
    world.script["login"] = [{"token": "another"}]
    assert not logged_in(world, {"token": "<token>"}).success
    assert [call.args["token"] for call in world.calls if call.tool == "use"] == ["<token>", "another"]


def test_a_persons_no_is_not_got_round_by_filling_a_blank() -> None:
    """H5, X7: who refused a call refused it, whatever was left open in it."""
    world = refused()
    use = {"id": "use", "tool": "use", "args": {"token": "<token>"}, "needs": ["login"], "confirm": True}
    steps = [{"id": "login", "tool": "login"}, use]

    async def main() -> Any:
        async with world.engine({"steps": steps}) as engine:
            waiting = await engine.run({"steps": steps})
            assert waiting.status == "waiting"
            await engine.confirm(waiting.run_id, "use", refuse=True)
            return await engine.wait(waiting.run_id)

    assert virtual_run(main).status == "failed"  # and nobody is asked again
    assert world.calls_of("use") == 0


def test_a_no_for_good_stands_whatever_else_it_says() -> None:
    """H3, H6: that somebody else's key would fit is no reason to use it."""
    world = refused()
    world.script["use"] = [ToolError("Invalid access token, did you mean 't-77123'?", category="permanent_error")]
    assert not logged_in(world, {"token": "t-77124"}).success
    assert world.calls_of("use") == 1


def offered(outputs: dict[str, Any], args: dict[str, Any], *, reads: bool = False) -> list[Any]:
    """What is proposed to a step that needs others, each of which gave something; None: it failed."""
    state = needing(outputs, args)
    track = state.tracks["z"]
    return [proposed for proposed, _ in supplied(track, args, state.template(track), reads=reads)]


def needing(outputs: dict[str, Any], args: dict[str, Any]) -> State:
    """A state with such a step, `z`."""
    events: list[Any] = []
    for name, output in outputs.items():
        events.append(ev.StepStarted(name, 1, "t"))
        if output is None:
            error = Error("TOOL_FAILED", Category.TOOL, "no")
            events += [ev.StepFailed(name, 1, error), ev.Reflected(name, 1, Category.TOOL, Rung.FAIL)]
        else:
            events.append(ev.StepSucceeded(name, 1, output, name))
    first = [Step(name, "t") for name in outputs]
    both = tuple(Need(name, When.DONE) for name in outputs)
    steps = (*first, Step("l", "t", needs=both[-1:]), Step("m", "t", needs=both[-1:]),
             Step("z", "t", args, needs=(*both, Need("l"), Need("m"))))  # fmt: skip
    history = [ev.RunStarted(), ev.PlanAccepted(Plan("", steps)), *events]
    return fold("r", [Record("r", n + 1, 1.0 + n, event) for n, event in enumerate(history)])


@pytest.mark.parametrize(
    ("outputs", "found"),
    [
        ({"a": {"code": "V"}}, True),
        ({"a": {"p": {"q": {"r": {"code": "V"}}}}}, True),
        ({"a": {"p": {"q": {"r": {"s": {"code": "V"}}}}}}, False),
        ({"a": [[[{"code": "V"}]]]}, True),
        ({"a": [[[[{"code": "V"}]]]]}, False),
        ({"a": {"code": True}}, False),
        ({"a": {"code": "V", "rest": list(range(1_900))}}, True),
        ({"a": {"code": "V", "rest": list(range(3_000))}}, False),
        ({"a": {"code": "V"}, "b": None}, True),
        ({"a": {"code": "V"}, "b": {"other": 1}}, True),
        ({"a": {"code": "V"}, "b": {"code": "W"}}, False),
        ({"a": None}, False),
    ],
)
def test_a_blank_is_filled_from_all_that_the_steps_before_gave(outputs: dict[str, Any], found: bool) -> None:
    """H6: however the plan joins them, four levels deep, and as long as it is not too much; a truth is no value."""
    assert offered(outputs, {"code": "<code>"}) == ([{"code": "V"}] if found else [])


@pytest.mark.parametrize(
    ("outputs", "args", "found"),
    [
        ({"a": {"Booking-ID": "7"}}, {"booking_id": "9"}, {"booking_id": ("a", "7")}),
        ({"a": {"code": "7"}, "b": {"seat": 4}}, {"code": "9", "seat": 5}, {"code": ("a", "7"), "seat": ("b", 4)}),
        ({"a": {"code": "7"}}, {"code": "7"}, {}),
        ({"a": {"code": "7"}}, {"code": 9}, {}),
        ({"a": {"code": "7"}, "b": {"code": "8"}}, {"code": "9"}, {}),
        ({"a": {"code": "7"}}, {"other": "9"}, {}),
        ({"a": {"code": "7"}}, {"code": ["9"]}, {}),
        ({"a": None}, {"code": "9"}, {}),
        ({"a": {"code": "7"}}, {"code": "${a.code}"}, {}),  # it was sent, and is no guess
        ({"a": {"code": "7"}}, {"code": "no. ${a.code}", "b": 1}, {}),
    ],
)
def test_a_person_is_told_what_another_value_may_have_meant(
    outputs: dict[str, Any], args: dict[str, Any], found: dict[str, Any]
) -> None:
    """H6, H7: the one other value of the same type that was given under that name; two are none."""
    assert supposed(needing(outputs, args).tracks["z"]) == found


def test_nobody_is_asked_about_a_value_that_was_refused_itself() -> None:
    """H7: rules filled the blank with it, and the tool did not want that either."""
    state = needing({"a": {"code": "7"}}, {"code": "<code>"})
    track = state.tracks["z"]
    assert supposed(track) == {"code": ("a", "7")}
    evolve(state, ev.StepStarted("z", 1, "t", args={"code": "7"}), 9.0, state.seq + 1)
    assert supposed(track) == {}


def test_an_amount_is_no_slip_of_another() -> None:
    """H6: 230.6 is not 230.5 mistyped; only names and whole numbers are."""
    world = answered(12230.5, {"price": 12230.5}, "amount")
    assert not used(world, {"amount": 12230.6}, "read").success
    assert world.calls_of("use") == 1


@pytest.mark.parametrize(("count", "kept"), [(998, KEPT), (999, 0)])
def test_how_much_of_a_large_output_is_looked_at_is_counted_over_all_its_levels(count: int, kept: int) -> None:
    """H6: it, its members and theirs, two thousand in all; beyond, nothing is kept."""
    output = {"one": {f"a{n}": n for n in range(998)}, "two": {f"b{n}": n for n in range(count)}}
    assert len(singled(output)) == kept


def test_a_value_that_is_too_short_to_be_slipped_from_is_none() -> None:
    """H6: both must have five signs: 12345 may be meant by 1234, but not 1234 by 12345."""
    longer = answered("1234", {"booking_id": "1234"})
    assert not used(longer, {"booking_id": "12345"}, "read").success and longer.calls_of("use") == 1
    enough = answered("12345", {"booking_id": "12345"})
    assert used(enough, {"booking_id": "123456"}, "read").success
