"""Which effects were assumed, and which tools speak of an act (E3)."""

from __future__ import annotations

import pytest

from rerail.i18n import retold
from rerail.plan.model import Plan
from rerail.plan.step import Effect, Fallback, Step, Verify
from rerail.plan.tool_spec import ToolSpec
from rerail.plan.warnings import MOST_NAMED, acts, assumed, effect_warnings, said


def tools(*declared: str, **undeclared: str) -> dict[str, ToolSpec]:
    """Tools that declare their effect, and some, with their descriptions, that do not."""
    found = {name: ToolSpec(name) for name in declared}
    return found | {name: ToolSpec(name, text, declared=False) for name, text in undeclared.items()}


@pytest.mark.parametrize(
    ("name", "description"),
    [
        ("send", ""), ("charge_card", ""), ("stripe_charge", ""), ("sendMail", ""), ("SMTPSend", ""), ("mail.send", ""),
        ("crm__create_lead", ""), ("book-flight", ""), ("发送邮件", ""), ("订单支付", ""), ("x", "Sends a message."),
        ("x", "Pushes it on."), ("x", "Creating a row"), ("x", "Safely deletes rows."),
        ("x", "Reply to the client"), ("x", "发送短信给客户"), ("x", "删除用户"),
    ],
)  # fmt: skip
def test_e3_what_speaks_of_an_act(name: str, description: str) -> None:
    """E3: by a part of its name, or by the first word of its description; in English and in Chinese."""
    assert acts(name, description)


@pytest.mark.parametrize(
    ("name", "description"),
    [
        ("get_order", "Book it."), ("list_payments", ""), ("reads_mail", ""), ("sync_rows", "Copies rows."),
        ("sender", ""),
        ("postal_code", ""), ("x", ""), ("", ""), ("x", "The order of things"), ("x", "Returns what was sent."),
        ("查询订单支付", ""), ("x", "查询支付状态"), ("x", "计算要发送的邮件"), ("x", "Only"), ("x9", "…"),
    ],
)  # fmt: skip
def test_e3_what_does_not(name: str, description: str) -> None:
    """E3: what begins with a word for looking only looks, whatever follows."""
    assert not acts(name, description)


def test_e3_those_that_act_are_named_first() -> None:
    """E3: each tool once, declared ones never; a plan whose tools all declare their effect is not spoken of."""
    known = tools("safe", sync="", pay="", tidy="Removes old rows.")
    steps = [Step("a", "sync"), Step("b", "safe"), Step("c", "pay"), Step("d", "sync"), Step("e", "tidy")]
    assert assumed(steps, known) == ["pay", "tidy", "sync"]
    assert assumed([Step("b", "safe"), Step("x", "unknown")], known) == []
    assert effect_warnings(Plan("", (Step("b", "safe"),)), known) == []


def test_e3_every_tool_that_a_step_may_call_counts() -> None:
    """E3: alternatives of the step and of its tool, and a fallback's; a look at the effect is none."""
    known = tools("safe", one="", two="", three="", look="")
    known["safe"] = ToolSpec("safe", alternatives=("two",))
    step = Step("a", "safe", alternatives=("one",), fallback=Fallback(tool="three"), verify=Verify("look"))
    assert assumed([step], known) == ["one", "two", "three"]


def test_e3_a_steps_own_effect_declares_it() -> None:
    """E3: for that step, and no other."""
    known = tools(pay="")
    assert assumed([Step("a", "pay", effect=Effect.ONCE)], known) == []
    assert assumed([Step("a", "pay", effect=Effect.ONCE), Step("b", "pay")], known) == ["pay"]


def test_e3_one_warning_for_a_plan_and_what_follows_it() -> None:
    """E3: one short sentence, in both languages; very many tools are counted."""
    known = tools(sync="", pay="", last="")
    [fault] = effect_warnings(Plan("", (Step("a", "sync"),), Plan("", (Step("b", "pay"),))), known)
    assert (fault.code, fault.step) == ("EFFECT_ASSUMED", "")
    assert fault.message == (
        'assumed repeatable (called again after a failure): pay, sync. Declare it: @rerail.tool(effect="once")'
    )
    assert "pay, sync" in fault.said("zh") and "假定可重复" in fault.said("zh")
    many = [f"t{n}" for n in range(MOST_NAMED + 3)]
    assert f"t{MOST_NAMED - 1}, … (+3). Declare" in said(many) and f"t{MOST_NAMED}," not in said(many)
    assert "+" not in said(many[:MOST_NAMED]) and "假定" in retold(said(many), "zh")


def test_e3_a_required_effect_is_a_fault_of_each_step() -> None:
    """E3, P5: with the tool and what to write; a step that declares it, and tools that are only assumed, are fine."""
    known = {"pay": ToolSpec("pay", declared=False, must_declare=True), "sync": ToolSpec("sync", declared=False)}
    steps = (
        Step("a", "pay"), Step("b", "pay", effect=Effect.ONCE), Step("c", "sync"),
        Step("d", "sync", alternatives=("pay",)),
    )  # fmt: skip
    faults = Plan("", steps).check(known)
    assert [(fault.code, fault.step) for fault in faults] == [("EFFECT_UNDECLARED", "a"), ("EFFECT_UNDECLARED", "d")]
    assert "'pay'" in faults[0].message and "@rerail.tool(effect=" in faults[0].message
    assert "'pay'" in faults[0].said("zh") and "未声明" in faults[0].said("zh")
