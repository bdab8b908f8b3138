"""Warnings about a plan that can run: undeclared effects (contract E3), null for an argument (contract H9).

Rules of this file:
- A tool counts as acting if its name or description begins with a verb of action, in English or Chinese. This guess
  orders messages and selects what is logged; it decides nothing else.
- A name or description that begins with a verb of reading counts as reading: `get_order` orders nothing.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Iterator, Mapping
from typing import Any, Final

from rerail.i18n import Told, tell
from rerail.plan.model import Plan, undeclared
from rerail.plan.references import Mixed, Names, Ref, compile_args
from rerail.plan.step import Fault, Step, names_of
from rerail.plan.tool_spec import ToolSpec
from rerail.values.schema import OPEN

ACTS: Final = frozenset({
    "send", "pay", "charge", "refund", "transfer", "withdraw", "deposit", "donate", "buy", "purchase", "sell",
    "order", "book", "reserve", "cancel", "create", "add", "insert", "append", "delete", "remove", "drop", "purge",
    "destroy", "post", "publish", "submit", "upload", "deploy", "release", "email", "mail", "sms", "notify",
    "message", "reply", "forward", "invite", "register", "subscribe", "unsubscribe", "enroll", "sign", "approve",
    "reject", "grant", "revoke", "issue", "bill", "invoice", "ship", "dispatch", "print", "trigger", "launch",
    "provision", "terminate", "commit", "push", "merge", "tweet", "update", "write",
})  # fmt: skip
LOOKS: Final = frozenset({
    "get", "list", "read", "fetch", "find", "search", "look", "lookup", "load", "query", "count", "check", "show",
    "view", "describe", "is", "has", "return", "validate", "verify", "compute", "calculate", "parse",
})  # fmt: skip
ACTS_ZH: Final = (
    "发送", "发布", "发放", "发货", "发邮件", "支付", "付款", "转账", "退款", "扣款", "充值", "购买", "下单", "预订",
    "预定", "预约", "订购", "取消", "创建", "新建", "新增", "添加", "插入", "删除", "移除", "清空", "提交", "上传",
    "部署", "通知", "推送", "邀请", "注册", "订阅", "审批", "批准", "签署", "打印", "更新", "写入", "修改",
)  # fmt: skip
LOOKS_ZH: Final = (
    "查询", "获取", "读取", "列出", "搜索", "查找", "检查", "统计", "查看", "下载", "校验", "计算", "返回",
)  # fmt: skip
MOST_NAMED: Final = 8  # tools in one sentence
_PART: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[^\x00-\x7f]+")


def acts(name: str, description: str = "") -> bool:
    """True if a tool's name, or the first word of its description, is a verb of action."""
    parts = [part.lower() for part in _PART.findall(name)]
    if _looks(parts):
        return False
    if any(part in ACTS or any(word in part for word in ACTS_ZH) for part in parts):
        return True
    words = [part.lower() for part in _PART.findall(description[:200])]
    first = next((word for word in words if word in ACTS or not word.endswith("ly")), "")  # "Safely sends …"
    return not _looks([first]) and (bool(ACTS & set(_forms(first))) or first.startswith(ACTS_ZH))


def _looks(parts: list[str]) -> bool:
    return bool(parts) and (not LOOKS.isdisjoint(_forms(parts[0])) or parts[0].startswith(LOOKS_ZH))


def _forms(word: str) -> Iterator[str]:
    """Return a word's forms in the table: sends, pushes and creating are send, push and create."""
    yield word
    if word.endswith("s"):
        yield from (word[:-1], word.removesuffix("es"))
    if word.endswith("ing"):
        yield from (word[:-3], f"{word[:-3]}e")


def assumed(steps: Iterable[Step], tools: Mapping[str, ToolSpec]) -> list[str]:
    """Return the tools with an assumed effect in these steps: acting ones first, else in the steps' order."""
    names = {name: tools[name].description for step in steps for name in undeclared(step, tools)}
    return acting_first(names) if names else []


def acting_first(tools: Mapping[str, str]) -> list[str]:
    """Return names of tools, given with their descriptions: acting ones first."""
    return sorted(tools, key=lambda name: not acts(name, tools[name]))


def said(names: list[str]) -> Told:
    more = len(names) - MOST_NAMED
    return tell("warn.plan.assumed", names=", ".join(names[:MOST_NAMED]) + (f", … (+{more})" if more > 0 else ""))


def plans_in(plan: Plan | None) -> Iterator[Plan]:
    """Yield a plan and its follow-ups."""
    while plan is not None:
        yield plan
        plan = plan.follow_up


def effect_warnings(plan: Plan, tools: Mapping[str, ToolSpec]) -> list[Fault]:
    """Return one warning for the tools with an assumed effect in a plan and its follow-ups; none if all declare it."""
    names = assumed((step for part in plans_in(plan) for step in part.steps), tools)
    return [Fault("EFFECT_ASSUMED", said(names))] if names else []


Path = tuple[str | int, ...]


def hole_warnings(plan: Plan, tools: Mapping[str, ToolSpec]) -> list[Fault]:
    """Return warnings for arguments that need the output of an optional step; the plan may run anyway."""
    found: list[Fault] = []
    for part in plans_in(plan):
        names = names_of(part.steps)
        # These can end without an output; a fallback value is always an output.
        optional = {one.id for one in part.steps if not one.critical and (one.fallback is None or one.fallback.tool)}
        for step in part.steps if optional else ():
            if step.tool in tools and step.args:
                for argument, other in not_accepted(step, tools[step.tool], names, optional):
                    message = tell("warn.plan.hole", argument=argument, other=other, tool=tools[step.tool].name)
                    found.append(Fault("HOLE_POSSIBLE", message, step.id))
    return found


def not_accepted(step: Step, tool: ToolSpec, names: Names, missing: Container[str]) -> Iterator[tuple[str, str]]:
    """Return the arguments that need the outputs of these steps, each with its source step."""
    try:
        template = compile_args(step.args, names)
    except ValueError:
        return  # a bad reference has a fault of its own
    if not any(ref.step in missing for ref in template.refs):
        return
    places: dict[Path, str] = {}
    args = _without(template.value, missing, places, ())
    for fault in tool.schema.faults(args):
        if fault.path in places:
            yield ".".join(map(str, fault.path)), places[fault.path]


def _without(value: Any, optional: Container[str], places: dict[Path, str], path: Path) -> Any:
    """Return the arguments as if every one of these steps was skipped; other outputs are still unknown."""
    if isinstance(value, Ref | Mixed):
        refs = [value] if isinstance(value, Ref) else [part for part in value.parts if isinstance(part, Ref)]
        missing = next((ref.step for ref in refs if ref.step in optional), None)
        if missing is None:
            return OPEN
        places[path] = missing
        return None
    if isinstance(value, dict):
        return {key: _without(item, optional, places, (*path, key)) for key, item in value.items()}
    if isinstance(value, list):
        return [_without(item, optional, places, (*path, index)) for index, item in enumerate(value)]
    return value
