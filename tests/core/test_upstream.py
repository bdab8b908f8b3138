"""Arguments that were never filled in, or slipped, get the value that a step before gave; others stay (H6)."""

from __future__ import annotations

from typing import Any

import pytest

from rerail.core.nearest import one_off
from rerail.core.texts import retold
from rerail.core.upstream import MOST
from rerail.errors import ToolError
from rerail.testing.scripted import World
from rerail.testing.virtual import virtual_run

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
