"""X10: a yes is to exactly the call that was shown; whatever changes the call opens its gate again."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import rerail
from rerail.adapters.stores.memory import MemoryStore
from rerail.kernel import events as ev
from rerail.kernel.events import Record
from rerail.plan.step import Step
from rerail.ports import Lease
from rerail.testing import ScriptedMind, virtual_run
from rerail.views.narration import gate_said
from rerail.views.why import story

QUICK: dict[str, Any] = {"retry": {"backoff_base": 0.0, "jitter": False, "max_retry_rounds": 0}}
PAY = {"id": "pay", "tool": "pay", "args": {"amount": 10, "to": "alice"}, "confirm": "Pay?"}
MALLORY = rerail.ToolError("no such account", suggest={"to": "mallory", "amount": 9999})


class Bank:
    """Tools that move money, each call with its arguments; answers are scripted by tool, the last one again."""

    def __init__(self, **answers: list[Any]) -> None:
        self.answers, self.calls, self.store = answers, list[tuple[str, dict[str, Any]]](), MemoryStore()

    def _said(self, name: str, **args: Any) -> Any:
        self.calls.append((name, args))
        given = self.answers.get(name, [{"paid": True}])
        answer = given.pop(0) if len(given) > 1 else given[0]
        if isinstance(answer, BaseException):
            raise answer
        return answer

    def tools(self) -> list[Any]:
        """Two ways to pay, one to ask what is owed, one to write it down."""

        async def pay(amount: int, to: str, note: str = "") -> Any:
            return self._said("pay", amount=amount, to=to, **({"note": note} if note else {}))

        async def wire(amount: int, to: str) -> Any:
            return self._said("wire", amount=amount, to=to)

        async def owed() -> Any:
            return self._said("owed")

        async def bill(ctx: rerail.Context) -> Any:
            ctx.write_text("bill.txt", str(self._said("bill")))
            return "written"

        async def read(ctx: rerail.Context) -> Any:
            return self._said("read", text=(ctx.workspace / "bill.txt").read_text())

        return [rerail.tool(pay), rerail.tool(wire), rerail.tool(owed), rerail.tool(bill), rerail.tool(read)]

    def engine(self, **options: Any) -> rerail.Engine:
        """An engine on this bank's store."""
        settings = options.pop("settings", QUICK)
        return rerail.Engine(self.store, self.tools(), settings, by="ada", **options)

    def paid(self) -> list[tuple[Any, ...]]:
        """Who was paid what, by which tool."""
        return [(name, args["amount"], args["to"]) for name, args in self.calls if name in ("pay", "wire")]


def lived(bank: Bank, act: Callable[[rerail.Engine, str], Any], *steps: Any, **options: Any) -> tuple[Any, Any]:
    """Start a plan, let somebody act once it waits, and wait for it; its result and its history."""

    async def main() -> tuple[Any, Any]:
        async with bank.engine(**options) as engine:
            run = await engine.start({"steps": list(steps) or [PAY]}, run_id="r")
            await engine.wait(run)
            await act(engine, run)
            return await engine.wait(run), await engine.events(run)

    return virtual_run(main)


# -- The text of a gate -------------------------------------------------------------------------------------------


def test_the_text_of_a_gate_shows_values_not_references() -> None:
    """P4, X10: references in `confirm` are interpolated like those of arguments, and imply the need."""
    asks = {**PAY, "confirm": "Pay ${owed.sum} to ${owed.to}, as $${usual}?"}
    bank = Bank(owed=[{"sum": 7, "to": "bob"}])

    async def main() -> Any:
        async with bank.engine() as engine:
            waits = await engine.run({"steps": [asks, {"id": "owed", "tool": "owed"}]})
            told = await engine.why(waits.run_id)
            await engine.confirm(waits.run_id, "pay")
            return waits, told, await engine.wait(waits.run_id), await engine.events(waits.run_id)

    waits, told, done, events = virtual_run(main)
    assert waits.waiting_on[0]["question"] == "Pay 7 to bob, as ${usual}?"
    assert "Pay 7 to bob" in told
    assert [record.event.on[0]["question"] for record in events if isinstance(record.event, ev.Waiting)] == [
        "Pay 7 to bob, as ${usual}?"
    ]
    assert (done.status, bank.paid()) == ("completed", [("pay", 10, "alice")])


def test_a_changed_output_upstream_is_asked_about_anew() -> None:
    """X10, P4: the gate opens again, with the new value in its text."""
    asks = {**PAY, "confirm": "Pay ${owed}?", "args": {"amount": "${owed}", "to": "alice"}}
    bank = Bank(owed=[1, 2])

    async def act(engine: rerail.Engine, run: str) -> None:
        await engine.retry(run, ["owed"], force=True)
        assert (await engine.wait(run)).waiting_on[0]["question"] == "Pay 2?"
        await engine.confirm(run, "pay")

    lived(bank, act, {"id": "owed", "tool": "owed"}, asks)
    assert bank.paid() == [("pay", 2, "alice")]


def test_the_text_of_a_gate_holds_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    """X10: nor one that comes together only in the text: every text that is shown is redacted as a whole."""
    monkeypatch.setenv("BANK_TOKEN", "tok-12345678")
    bank = Bank(owed=[{"a": "tok-1234", "b": "5678", "long": "x" * 3984}])  # cut off within the secret

    async def act(engine: rerail.Engine, run: str) -> None:
        question = (await engine.show(run)).waiting_on[0]["question"]
        assert question.startswith("Pay with ") and "tok-" not in question
        await engine.confirm(run, "pay", refuse=True)

    lived(bank, act, {"id": "owed", "tool": "owed"}, {**PAY, "confirm": "Pay with ${owed.long} ${owed.a}${owed.b}?"})


@pytest.mark.parametrize(
    ("text", "code"), [("${nobody}?", "UNKNOWN_REFERENCE"), ("${owed[?", "BAD_REFERENCE"), ("${pay}", "SELF_NEED")]
)
def test_a_faulty_reference_in_the_text_of_a_gate(text: str, code: str) -> None:
    """P5, P4: it is a fault of the plan; a path that misses fails the step before its call, as in arguments."""
    steps = [{"id": "owed", "tool": "owed"}, {**PAY, "confirm": text}]
    assert [fault.code for fault in rerail.Plan.load({"steps": steps}).check()] == [code]
    bank = Bank(owed=[{"sum": 7}])

    async def main() -> Any:
        async with bank.engine(settings={**QUICK, "reflection": {"max_step_retries": 0}}) as engine:
            return await engine.run({"steps": [steps[0], {**PAY, "confirm": "${owed.nowhere}?"}]})

    assert virtual_run(main).steps["pay"].code == "PATH_MISSING"
    assert bank.paid() == []


def gates(records: list[Record]) -> list[ev.GateOpened]:
    return [record.event for record in records if isinstance(record.event, ev.GateOpened)]


def waits(result: Any) -> Any:
    assert result.status == "waiting", result.summary
    return result.waiting_on[0]


# -- What changes the call opens the gate again ---------------------------------------------------------------------


def test_x10_a_tools_hint_is_not_paid_on_the_old_yes() -> None:
    """X10: the gate says what was agreed to and what it would be now; then that very call is made."""
    bank = Bank(pay=[MALLORY, {"paid": True}])

    async def act(engine: rerail.Engine, run: str) -> None:
        first = waits(await engine.show(run))
        assert (first["tool"], first["args"], "before" in first) == ("pay", {"amount": 10, "to": "alice"}, False)
        await engine.confirm(run)
        again = waits(await engine.wait(run))
        assert bank.paid() == [("pay", 10, "alice")]
        assert again["args"] == {"amount": 9999, "to": "mallory"} and again["before"]["digest"] == first["digest"]
        both = 'agreed to pay(amount=10, to="alice"); now it would be pay(amount=9999, to="mallory")'
        assert gate_said(again) == both and both in await engine.why(run) and both in await engine.why(run, "pay")
        await engine.confirm(run, digest=again["digest"])

    result, records = lived(bank, act)
    assert result.success and bank.paid() == [("pay", 10, "alice"), ("pay", 9999, "mallory")]
    agreed = [record.event.digest for record in records if record.type == "acted"]
    assert agreed == [record.event.agreed for record in records if record.type == "step_started"]
    assert agreed == [gate.digest for gate in gates(records)] and len(set(agreed)) == 2


def test_x10_the_same_call_after_a_plain_failure_does_not_ask_twice() -> None:
    """X10, H3: a retry with backoff, and a person's retry of the round after it, are the same call."""
    bank = Bank(pay=[ConnectionRefusedError("down"), ConnectionRefusedError("down"), {"paid": True}])

    async def act(engine: rerail.Engine, run: str) -> None:
        await engine.confirm(run)
        assert (await engine.wait(run)).status == "failed"
        await engine.retry(run)

    result, records = lived(bank, act, {**PAY, "retries": 1})
    assert result.success and len(bank.paid()) == 3 and len(gates(records)) == 1


def test_x10_a_new_output_upstream_asks_again() -> None:
    """X10, R3: also where the step had not succeeded, and its yes was not used up."""
    bank = Bank(owed=[{"n": 10}, {"n": 11}], pay=[ConnectionRefusedError("down"), {"paid": True}])
    steps = [{"id": "owed", "tool": "owed"}, {**PAY, "retries": 0, "args": {"amount": "${owed.n}", "to": "alice"}}]

    async def act(engine: rerail.Engine, run: str) -> None:
        await engine.confirm(run)
        assert (await engine.wait(run)).status == "failed"
        await engine.retry(run, steps=["owed"], force=True)
        again = waits(await engine.wait(run))
        assert (again["args"]["amount"], again["before"]["args"]["amount"]) == (11, 10)
        await engine.confirm(run)

    result, _ = lived(bank, act, *steps)
    assert result.success and bank.paid() == [("pay", 10, "alice"), ("pay", 11, "alice")]


def test_x10_a_gate_that_waits_shows_what_its_call_is_by_now() -> None:
    """X10, X7: who saw an older call agrees to nothing; the refusal tells the call."""
    bank = Bank(owed=[{"n": 10}, {"n": 11}])
    steps = [{"id": "owed", "tool": "owed"}, {**PAY, "args": {"amount": "${owed.n}", "to": "alice"}}]

    async def act(engine: rerail.Engine, run: str) -> None:
        old = waits(await engine.show(run))["digest"]
        await engine.retry(run, steps=["owed"], force=True)
        assert waits(await engine.wait(run))["args"]["amount"] == 11
        with pytest.raises(rerail.Refused, match=r'pay\(amount=11, to="alice"\)') as refused:
            await engine.confirm(run, digest=old)
        assert refused.value.code == "GATE_CHANGED" and not bank.paid()
        await engine.confirm(run)

    result, _ = lived(bank, act, *steps)
    assert result.success and bank.paid() == [("pay", 11, "alice")]


def test_x10_an_output_supplied_by_hand_is_shown_too() -> None:
    """X10, X7: a step that was skipped stays as it is to those that need it, and what they get is another thing."""
    bank = Bank(owed=[ConnectionRefusedError("down")])
    owed = {"id": "owed", "tool": "owed", "critical": False, "retries": 0}
    gate = {**PAY, "args": {"amount": 5, "to": "alice"}, "needs": ["owed"]}

    async def act(engine: rerail.Engine, run: str) -> None:
        assert waits(await engine.show(run))["made_from_degraded"] == {"owed": "hole"}
        await engine.resolve(run, "owed", succeeded=7)
        assert waits(await engine.wait(run))["made_from_degraded"] == {}
        await engine.confirm(run)

    result, records = lived(bank, act, owed, gate)
    assert result.success and len(gates(records)) == 2


def test_x10_success_uses_a_yes_up() -> None:
    """X10, T4: force and clean ask again, with the same call."""
    bank = Bank()

    async def act(engine: rerail.Engine, run: str) -> None:
        await engine.confirm(run)
        assert (await engine.wait(run)).success
        for how in ({"steps": ["pay"], "force": True}, {"clean": True}):
            assert "before" not in waits(await engine.retry(run, **how))
            await engine.confirm(run)
            assert (await engine.wait(run)).success

    _, records = lived(bank, act)
    assert len(bank.paid()) == 3 == len(gates(records)) and len({gate.digest for gate in gates(records)}) == 1


@pytest.mark.parametrize("way", ["alternative", "fallback"])
def test_x10_another_tool_is_another_call(way: str) -> None:
    """X10, H3: the gate opens again with the tool that would be called; a fallback's call takes no other arguments."""
    bank = Bank(pay=[rerail.ToolError("out of order", category="tool_error")])
    other = {"alternatives": ["wire"]} if way == "alternative" else {
        "fallback": {"tool": "wire", "args": {"amount": 10, "to": "alice"}}
    }  # fmt: skip

    async def act(engine: rerail.Engine, run: str) -> None:
        await engine.confirm(run)
        again = waits(await engine.wait(run))
        assert (again["tool"], again["before"]["tool"], bank.paid()) == ("wire", "pay", [("pay", 10, "alice")])
        with pytest.raises(rerail.Refused) as refused:
            await engine.confirm(run, "pay", ahead=True)
        assert refused.value.code == "STEP_NOT_WAITING" and "plan's own" in str(refused.value)
        if way == "fallback":
            with pytest.raises(rerail.Refused, match="fallback 'wire'"):
                await engine.confirm(run, args={"amount": 1})
            await engine.confirm(run)
        else:
            await engine.confirm(run, args={"amount": 1})

    result, records = lived(bank, act, {**PAY, "retries": 1 if way == "alternative" else 0, **other})
    assert result.success and bank.paid()[1:] == [("wire", 10 if way == "fallback" else 1, "alice")]
    if way == "alternative":  # the revision names the tool that was shown, and all its arguments
        [new] = next(
            record.event.course.steps for record in records if record.type == "acted" and record.event.course.steps
        )
        assert (new.tool, new.args) == ("wire", {"amount": 1, "to": "alice"})


def test_x10_a_minds_choice_is_asked_for() -> None:
    """X10, H7: what a mind repairs is another call, and a yes ahead does not cover it."""
    bank = Bank(pay=[rerail.ToolError("wrong", category="decomposition_error"), {"paid": True}])
    mind = ScriptedMind(repair={"args": {"amount": 12, "to": "alice"}, "reason": "more"})

    async def main() -> Any:
        async with bank.engine(model=mind) as engine:
            await engine.start({"steps": [{"id": "owed", "tool": "owed"}, {**PAY, "needs": ["owed"]}]}, run_id="r")
            await engine.confirm("r", "pay", ahead=True)
            again = waits(await engine.wait("r"))
            assert (again["args"]["amount"], again["before"]["args"]["amount"]) == (12, 10)
            with pytest.raises(rerail.Refused):
                await engine.confirm("r", "pay", ahead=True)
            await engine.confirm("r")
            return await engine.wait("r")

    assert virtual_run(main).success and bank.paid() == [("pay", 10, "alice"), ("pay", 12, "alice")]


# -- Ahead ------------------------------------------------------------------------------------------------------------


def test_x10_a_yes_ahead_is_to_the_plans_own_call() -> None:
    """X10: with whatever its inputs come to, also after a plain failure and a new output; never with a hint."""
    bank = Bank(owed=[{"n": 10}, {"n": 11}], pay=[ConnectionRefusedError("down"), MALLORY, {"paid": True}])
    steps = [{"id": "owed", "tool": "owed"}, {**PAY, "retries": 2, "args": {"amount": "${owed.n}", "to": "alice"}}]

    async def main() -> Any:
        async with bank.engine() as engine:
            await engine.start({"steps": steps}, run_id="r")
            with pytest.raises(rerail.Refused) as refused:
                await engine.confirm("r", "pay")
            assert refused.value.hint.endswith("rerail confirm r pay --ahead")
            for edits in ({"args": {"amount": 1}}, {"edit": {"a": b""}}):
                with pytest.raises(rerail.Refused, match="takes no edits"):
                    await engine.confirm("r", "pay", ahead=True, **edits)
            await engine.confirm("r", "pay", ahead=True)
            with pytest.raises(rerail.Refused):
                await engine.confirm("r", "pay", ahead=True)  # it is agreed to already
            again = waits(await engine.wait("r"))
            assert again["args"] == {"amount": 9999, "to": "mallory"}
            assert again["before"]["args"] == {"amount": 10, "to": "alice"}
            await engine.confirm("r", refuse=True)
            return await engine.wait("r"), await engine.events("r")

    result, records = virtual_run(main)
    assert result.status == "failed" and bank.paid() == [("pay", 10, "alice")] * 2
    assert [gate.attempt for gate in gates(records)] == [2], "no gate opened before"


def test_x10_a_hint_before_the_first_call_says_that_the_yes_was_ahead() -> None:
    """X10: no call was made under it, so it names the plan's own."""
    bank = Bank(owed=[{"n": "10"}])
    steps = [{"id": "owed", "tool": "owed"}, {**PAY, "args": {"amount": "${owed.n}", "to": "alice"}}]

    async def main() -> Any:
        async with bank.engine() as engine:
            await engine.start({"steps": steps}, run_id="r")
            await engine.confirm("r", "pay", ahead=True)  # the rules make a number of what is a text
            again = waits(await engine.wait("r"))
            assert gate_said(again) == (
                'agreed ahead to the plan\'s own call of pay; now it would be pay(amount=10, to="alice")'
            )
            assert "(ahead, before its arguments were known)" in await engine.why("r", "pay")
            await engine.confirm("r")
            return await engine.wait("r")

    assert virtual_run(main).success and bank.paid() == [("pay", 10, "alice")]


# -- Edit, then agree -------------------------------------------------------------------------------------------------


def test_x10_edited_arguments_are_checked_agreed_to_and_stay() -> None:
    """X10, P5: every fault at once; the history says who changed what; references that were not edited stay."""
    bank = Bank(owed=[{"n": 10}, {"n": 20}])
    steps = [{"id": "owed", "tool": "owed"}, {**PAY, "args": {"amount": "${owed.n}", "to": "alice"}}]

    async def act(engine: rerail.Engine, run: str) -> None:
        with pytest.raises(rerail.PlanError) as faulty:
            await engine.confirm(run, args={"amount": "much", "colour": "red"})
        assert {fault.code for fault in faulty.value.faults} == {"BAD_ARGS"} and len(faulty.value.faults) == 2
        assert not bank.paid() and waits(await engine.show(run))
        await engine.confirm(run, args={"to": "bob", "note": "for ${owed.n}"}, by="bob")
        assert (await engine.wait(run)).success
        assert waits(await engine.retry(run, steps=["owed"], force=True))["args"]["amount"] == 20
        await engine.confirm(run)

    result, records = lived(bank, act, *steps)
    assert result.success
    assert [args for name, args in bank.calls if name == "pay"] == [
        {"amount": 10, "to": "bob", "note": "for ${owed.n}"}, {"amount": 20, "to": "bob", "note": "for ${owed.n}"},
    ]  # fmt: skip
    acted = next(record.event for record in records if record.type == "acted")
    assert acted.by == "bob" and acted.call.args == {"amount": 10, "to": "bob", "note": "for ${owed.n}"}
    [new] = acted.course.steps
    assert isinstance(new, Step) and new.args == {"amount": "${owed.n}", "to": "bob", "note": "for $${owed.n}"}
    told = story(virtual_state(records), records, "pay")
    assert 'bob: confirm pay (edited: pay(amount=10, to="bob", note="for ${owed.n}"))' in told


def virtual_state(records: list[Record]) -> Any:
    from rerail.kernel.fold import fold

    return fold("r", records)


def test_x10_a_reference_that_is_edited_away_stays_a_need() -> None:
    """X10, P4: the step still comes after what it needed, and reads the same files."""
    bank = Bank(owed=[{"n": 10}, {"n": 20}])
    steps = [{"id": "owed", "tool": "owed"}, {**PAY, "args": {"amount": "${owed.n}", "to": "alice"}}]

    async def act(engine: rerail.Engine, run: str) -> None:
        await engine.confirm(run, args={"amount": 3})

    result, records = lived(bank, act, *steps)
    assert result.success and bank.paid() == [("pay", 3, "alice")]
    assert [need.id for need, _ in virtual_state(records).tracks["pay"].needs] == ["owed"]


def test_x10_what_a_hint_made_of_a_call_can_be_edited() -> None:
    """X10: all arguments are written as they were shown, for the next round begins with the plan's own."""
    bank = Bank(pay=[MALLORY, ConnectionRefusedError("down"), {"paid": True}])

    async def act(engine: rerail.Engine, run: str) -> None:
        await engine.confirm(run)
        waits(await engine.wait(run))
        await engine.confirm(run, args={"amount": 1})
        assert (await engine.wait(run)).success

    result, records = lived(bank, act)
    assert result.success and bank.paid() == [("pay", 10, "alice"), *[("pay", 1, "mallory")] * 2]
    assert virtual_state(records).tracks["pay"].step.args == {"amount": 1, "to": "mallory"}


def test_x10_an_edit_that_changes_nothing_is_a_plain_yes() -> None:
    """X10: and makes no revision."""
    bank = Bank()

    async def act(engine: rerail.Engine, run: str) -> None:
        await engine.confirm(run, args={"amount": 10})

    result, records = lived(bank, act)
    acted = next(record.event for record in records if record.type == "acted")
    assert result.success and result.revision == 1 and acted.call is None


def test_x10_large_arguments_are_shown_whole_and_edited() -> None:
    """X10, E7: they are kept beside the history, which is shortened for people."""
    text, bank = "x" * 5000, Bank(pay=[MALLORY, {"paid": True}])
    step = {**PAY, "args": {"amount": 10, "to": "alice", "note": text}}

    async def act(engine: rerail.Engine, run: str) -> None:
        gate = waits(await engine.show(run))
        assert gate["args"]["note"] == text and len(gate_said(gate)) < 400
        await engine.confirm(run, args={"amount": 2})
        again = waits(await engine.wait(run))
        assert (
            again["args"]["note"] == text == again["before"]["args"]["note"] and again["before"]["args"]["amount"] == 2
        )
        await engine.confirm(run, args={"to": "bob"})

    result, records = lived(bank, act, step)
    assert result.success and bank.paid() == [("pay", 2, "alice"), ("pay", 9999, "bob")]
    assert all(gate.args is None and gate.args_blob for gate in gates(records))
    assert max(len(str(record.event)) for record in records if record.type != "plan_accepted") < 12_000


def test_x10_the_files_that_a_call_reads_are_part_of_it(tmp_path: Path) -> None:
    """X10, T2: an edited file is agreed to with the call; another gate that reads it shows its call anew."""
    bank = Bank(bill=["10"], read=[rerail.RateLimited("later", retry_after=1), {"ok": 1}])
    made = {"id": "bill", "tool": "bill", "produces": ["bill.txt"]}
    steps = [made, *({"id": name, "tool": "read", "needs": ["bill"], "confirm": True} for name in ("one", "two"))]

    async def act(engine: rerail.Engine, run: str) -> None:
        rows = {row["step"]: row for row in (await engine.show(run)).waiting_on}
        assert rows["one"]["files"] == ["bill.txt"] and rows["one"]["digest"] == rows["two"]["digest"]
        await engine.confirm(run, "one", edit={"bill.txt": b"11"})
        again = waits(await engine.wait(run))
        assert again["step"] == "two" and again["digest"] != rows["two"]["digest"]
        with pytest.raises(rerail.Refused) as refused:
            await engine.confirm(run, "two", digest=rows["two"]["digest"])
        assert refused.value.code == "GATE_CHANGED"
        await engine.confirm(run)

    result, _ = lived(bank, act, *steps, workspace=tmp_path)
    assert result.success and [args for name, args in bank.calls if name == "read"] == [{"text": "11"}] * 3


def test_x10_a_file_that_is_made_again_asks_again(tmp_path: Path) -> None:
    """X10: the gate names the file that changed, for its arguments are the same."""
    bank = Bank(bill=["10", "11"], read=[ConnectionRefusedError("down"), {"ok": 1}])
    made = {"id": "bill", "tool": "bill", "produces": ["bill.txt"]}

    async def act(engine: rerail.Engine, run: str) -> None:
        await engine.confirm(run)
        assert (await engine.wait(run)).status == "failed"
        again = waits(await engine.retry(run, steps=["bill"], force=True))
        assert again["changed_files"] == ["bill.txt"]
        assert gate_said(again) == "agreed to read(); now it would be read() (changed since: bill.txt)"
        await engine.confirm(run)

    steps = [made, {"id": "read", "tool": "read", "needs": ["bill"], "confirm": True, "retries": 0}]
    assert lived(bank, act, *steps, workspace=tmp_path)[0].success


# -- From elsewhere, and from before ----------------------------------------------------------------------------------


def test_x10_another_process_agrees_to_what_it_shows() -> None:
    """X10, T7: with no process driving the run, and after one died before its gate was shown."""
    bank = Bank()

    async def main() -> Any:
        async with bank.engine() as engine:
            await engine.start({"steps": [PAY]}, run_id="r")
            await engine.wait("r")
        async with bank.engine() as engine:
            digest = waits(await engine.show("r"))["digest"]
            await engine.confirm("r", digest=digest)
            assert (await engine.wait("r")).success
        async with bank.engine() as engine:
            await engine.begin_retry("r", clean=True)
            live = engine._live["r"]
            live.task.cancel()  # it dies right after the retry was written down
            with contextlib.suppress(BaseException):
                await live.task
            head = await engine.internals.head("r")
            if head.owner is not None:
                await bank.store.release(Lease("r", head.owner, head.fence))
        async with bank.engine() as engine:
            await engine.confirm("r")
            return await engine.wait("r")

    assert virtual_run(main).success and len(bank.paid()) == 2


def test_x10_a_paused_run_shows_its_gates() -> None:
    """X10, X7: nothing is called for that; who agrees meanwhile is heard."""
    bank = Bank(owed=[{"n": 10}])

    async def main() -> Any:
        async with bank.engine() as engine:
            await engine.start({"steps": [{"id": "owed", "tool": "owed"}, {**PAY, "needs": ["owed"]}]}, run_id="r")
            await engine.wait("r")
            await engine.pause("r")
            result = await engine.wait("r")
            assert {row["for"] for row in result.waiting_on} == {"paused", "confirm"}
            await engine.confirm("r", "pay")
            assert (await engine.wait("r")).status == "waiting" and not bank.paid()
            return await engine.resume("r")

    assert virtual_run(main).success


def test_x10_what_cannot_be_called_asks_nobody() -> None:
    """X10, P4: a step that fails before its call fails before its gate."""
    bank = Bank(owed=[{"m": 1}])
    steps = [{"id": "owed", "tool": "owed"}, {**PAY, "retries": 0, "args": {"amount": "${owed.n}", "to": "alice"}}]

    async def act(engine: rerail.Engine, run: str) -> None:
        return None

    result, records = lived(bank, act, *steps)
    assert result.status == "failed" and result.steps["pay"].code == "PATH_MISSING" and not gates(records)


def test_x10_refusing_takes_no_edits() -> None:
    """X10, X7: a no is a no."""
    bank = Bank()

    async def act(engine: rerail.Engine, run: str) -> None:
        with pytest.raises(rerail.Refused):
            await engine.confirm(run, refuse=True, args={"amount": 1})
        await engine.confirm(run, refuse=True)

    result, _ = lived(bank, act)
    assert result.steps["pay"].code == "CONFIRM_REFUSED" and not bank.paid()
