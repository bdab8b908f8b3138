"""What is said about notifications: the part of the catalogue for `[notify]` (SPEC T10, T12)."""

from __future__ import annotations

NOTIFY: dict[str, dict[str, str]] = {
    "why.notified": {
        "en": "{time}  {kind} told of it ({about}): {target}, {attempts:attempt|attempts}",
        "zh": "{time}  已通知（{about}）：{kind} {target}，尝试 {attempts} 次",
    },
    "why.not_notified": {
        "en": "{time}  {kind} could not be told of it ({about}): {target}, {attempts:attempt|attempts}: {error}",
        "zh": "{time}  通知失败（{about}）：{kind} {target}，尝试 {attempts} 次：{error}",
    },
    "cli.line.notified": {
        "en": "notified ({about}): {kind} {target}",
        "zh": "已通知（{about}）：{kind} {target}",
    },
    "cli.line.not_notified": {
        "en": "not notified ({about}): {kind} {target}: {error}",
        "zh": "通知失败（{about}）：{kind} {target}：{error}",
    },
    "refuse.notify.no_address": {
        "en": "{source}: notify.webhook is no address that begins with http:// or https://",
        "zh": "{source}：notify.webhook 不是以 http:// 或 https:// 开头的地址",
    },
    "refuse.notify.host": {
        "en": "notify.webhook: the host {host!r} is not on the list of tools.allow_hosts",
        "zh": "notify.webhook：主机 {host!r} 不在 tools.allow_hosts 列表中",
    },
    "hint.notify.host": {
        "en": "add it to tools.allow_hosts, or take the webhook out",
        "zh": "请把它加入 tools.allow_hosts，或去掉该 webhook",
    },
    # Why somebody could not be told.
    "reason.notify.not_ended": {"en": "it did not end within {seconds:g} s", "zh": "在 {seconds:g} 秒内没有结束"},
    "reason.notify.status": {"en": "exit status {number}", "zh": "退出状态 {number}"},
    "reason.notify.killed": {"en": "killed by signal {number}", "zh": "被信号 {number} 终止"},
    "reason.notify.not_started": {"en": "it cannot be started: {why}", "zh": "无法启动：{why}"},
    "reason.notify.http": {"en": "HTTP status {number}", "zh": "HTTP 状态码 {number}"},
    "reason.notify.late": {"en": "no answer in time", "zh": "没有及时响应"},
    "reason.notify.broke": {"en": "the connection broke ({why})", "zh": "连接中断（{why}）"},
    "reason.notify.no_connection": {"en": "no connection ({why})", "zh": "无法连接（{why}）"},
    "reason.notify.refused": {"en": "refused ({code})", "zh": "被拒绝（{code}）"},
}
