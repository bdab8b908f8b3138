"""Effects that were assumed: the tools of a plan that declare none, those that speak of an act first (contract E3).

Rules of this file:
- A tool acts if its name or its description begins to speak of an act, in English or Chinese. It is a guess: it orders
  what is said and chooses what is logged, and decides nothing else.
- A name or description that begins with a word for looking is taken at that word: `get_order` orders nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from rerail.core.plan import Fault, Plan, Step, ToolShape, undeclared
from rerail.i18n import Told, tell

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
    """Whether a tool's name, or the first word of its description, speaks of an act."""
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
    """A word as it may stand in the table: sends, pushes and creating are send, push and create."""
    yield word
    if word.endswith("s"):
        yield from (word[:-1], word.removesuffix("es"))
    if word.endswith("ing"):
        yield from (word[:-3], f"{word[:-3]}e")


def assumed(steps: Iterable[Step], tools: Mapping[str, ToolShape]) -> list[str]:
    """The tools whose effect is assumed in these steps: those that act first, else in the steps' order."""
    return acting_first({name: tools[name].description for step in steps for name in undeclared(step, tools)})


def acting_first(tools: Mapping[str, str]) -> list[str]:
    """Names of tools, given with their descriptions: those that act first."""
    return sorted(tools, key=lambda name: not acts(name, tools[name]))


def said(names: list[str]) -> Told:
    """The sentence about tools whose effect is assumed."""
    more = len(names) - MOST_NAMED
    return tell("warn.plan.assumed", names=", ".join(names[:MOST_NAMED]) + (f", … (+{more})" if more > 0 else ""))


def effect_warnings(plan: Plan, tools: Mapping[str, ToolShape]) -> list[Fault]:
    """One warning for the tools whose effect is assumed, in a plan and in what follows it; none if all declare it."""
    steps: list[Step] = []
    part: Plan | None = plan
    while part is not None:
        steps += part.steps
        part = part.follow_up
    names = assumed(steps, tools)
    return [Fault("EFFECT_ASSUMED", said(names))] if names else []
