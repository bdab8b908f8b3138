"""Why a call failed, in our own words: what becomes the message of an error's event."""

from __future__ import annotations

ERRORS: dict[str, dict[str, str]] = {
    # Why a step failed.
    "error.TIMEOUT": {"en": "timed out after {seconds:g} s", "zh": "超时：{seconds:g} 秒内没有完成"},
    "error.ANSWER_LOST": {
        "en": "the process died while the call was under way; its answer is lost",
        "zh": "调用进行中进程中断，结果丢失",
    },
    "error.CLOSED": {
        "en": "the engine was closed while the call was under way; its answer is lost",
        "zh": "调用进行中引擎被关闭，结果丢失",
    },
    "error.RUN_CANCELLED": {"en": "the run was cancelled while the call was under way", "zh": "调用进行中任务被取消"},
    "error.SKIPPED_LIVE": {"en": "the step was skipped while the call was under way", "zh": "调用进行中步骤被跳过"},
    "error.RATE_LIMITED": {
        "en": "asked to wait {asked:g} s, with {waited:g} s already waited of {limit:g} s allowed: {message}",
        "zh": "被要求等待 {asked:g} 秒，而允许的 {limit:g} 秒中已等待 {waited:g} 秒：{message}",
    },
    "error.ARGS_INVALID": {
        "en": "the arguments do not fit the tool {tool}: {faults}",
        "zh": "参数不符合工具 {tool} 的要求：{faults}",
    },
    "error.VARIABLE_UNSET": {
        "en": "the environment variable {name} is not set where the run is driven",
        "zh": "执行任务的环境中没有设置环境变量 {name}",
    },
    "error.PATH_MISSING": {
        "en": "{ref} is not there: the output of step {step!r} has no such part (there is: {there})",
        "zh": "{ref} 不存在：步骤 {step!r} 的输出中没有这一部分（现有：{there}）",
    },
    "error.HOLE_NOT_ACCEPTED": {
        "en": "step {step!r} was skipped, so {ref} is empty, and argument {argument!r} does not accept null",
        "zh": "步骤 {step!r} 已跳过，因此 {ref} 为空，而参数 {argument!r} 不接受空值",
    },
    "error.HOLE_LOST": {
        "en": "step {step!r} did its work, but its output was lost, so {ref} is empty and {argument!r} does not"
        " accept null; say what it was: rerail resolve {run} {step} --succeeded VALUE",
        "zh": "步骤 {step!r} 已经完成，但输出丢失，因此 {ref} 为空，而 {argument!r} 不接受空值；请说明输出是什么：rerail resolve {run} {step} --succeeded VALUE",
    },
    "error.ARTIFACT_GONE": {
        "en": "the output of step {step!r} is gone or damaged ({reason})",
        "zh": "步骤 {step!r} 的输出已丢失或损坏（{reason}）",
    },
    "error.ONCE_REPEATED": {
        "en": "the call would repeat what step {step!r} has done, may have done or is to do; it must not happen twice",
        "zh": "该调用会重复步骤 {step!r} 已经、可能已经或将要产生的效果，而它不得发生两次",
    },
    "error.TOOL_UNKNOWN": {
        "en": "no tool named {tool!r} was given to this run",
        "zh": "此任务没有名为 {tool!r} 的工具",
    },
    "error.OUTPUT_NOT_JSON": {
        "en": "the tool returned {type} that is not JSON ({reason}); return dicts with text keys, lists, texts, finite"
        " numbers, booleans or None",
        "zh": "工具返回了 {type}，它不是 JSON（{reason}）；请返回以文本为键的字典、列表、文本、有限的数、布尔值或 None",
    },
    "error.OUTPUT_TOO_LARGE": {
        "en": "the tool returned {size:,} bytes, over the limit of {limit:,}; use a file, or raise tools.max_output",
        "zh": "工具返回了 {size:,} 字节，超过上限 {limit:,}；请改用文件，或提高 tools.max_output",
    },
    "error.SUSPECT_OUTPUT": {
        "en": "reported success, but the output looks like an error: {seen} (trust_output: true accepts such answers)",
        "zh": "报告成功，但输出看起来像错误：{seen}（若并非错误，可用 trust_output: true 接受）",
    },
    "error.CHECK_FAILED": {
        "en": "the output does not meet the step's check: {faults}",
        "zh": "输出不符合步骤的 check：{faults}",
    },
    "error.VERIFY_PARTIAL": {
        "en": "the tool reported success, but verify found only a part of the effect: {what}",
        "zh": "工具报告成功，但 verify 只找到部分效果：{what}",
    },
    "error.VERIFY_DISBELIEVED": {
        "en": "the tool reported success, verify did not find the effect, and its absence is never believed",
        "zh": "工具报告成功，verify 没有找到效果，且不采信“不存在”",
    },
    "error.STILL_RUNNING": {
        "en": "timed out after {seconds:g} s, and had not ended after twice that time: it may still act",
        "zh": "超时：{seconds:g} 秒内没有完成，两倍时间后仍未结束，可能仍会生效",
    },
    "error.IN_DOUBT": {
        "en": "whether its effect happened is unknown: {reason}",
        "zh": "无法确定其效果是否已发生：{reason}",
    },
    "error.SILENT": {
        "en": "the process that made the call fell silent; it may still act",
        "zh": "发起调用的进程没有音讯，可能仍会生效",
    },
    "error.UNREADABLE": {
        "en": "raised {type}, which cannot be read: reading it raised {odd}",
        "zh": "抛出了 {type}，但无法读取：读取时抛出 {odd}",
    },
    "error.OWNER_LOST": {
        "en": "not called: this process may not own the run any more; its lease was last confirmed {seconds} s ago",
        "zh": "没有调用：本进程可能已不再拥有该任务；租约最近一次确认是在 {seconds} 秒前",
    },
    "error.OWNER_UNHEARD": {
        "en": "not done: the process that owns the run did not confirm that it still does",
        "zh": "没有执行：拥有该任务的进程没有确认它仍拥有该任务",
    },
    "error.CALL_OVER": {
        "en": "not done: the call is over, so nothing may act for it any more",
        "zh": "没有执行：调用已结束，不得再为其生效",
    },
    "error.KEY_LAPSED": {
        "en": "not called: the service may have forgotten the idempotency key by now",
        "zh": "没有调用：服务此时可能已忘记幂等键",
    },
    "error.VERIFY_FAILED": {
        "en": "reported success, but verify did not find the effect",
        "zh": "报告成功，但 verify 没有找到效果",
    },
    "error.CONFIRM_REFUSED": {"en": "{by} refused the confirmation", "zh": "{by} 拒绝了确认"},
    "error.RESOLVED_FAILED": {"en": "{by} declared the step failed", "zh": "{by} 判定该步骤失败"},
    "error.EMPTY": {"en": "{type} with no message", "zh": "{type}（没有错误信息）"},
    "error.RETURNED_FAILURE": {"en": "the tool returned a failure", "zh": "工具返回了失败"},
    "error.SYSTEM_EXIT": {"en": "the tool called sys.exit({status})", "zh": "工具调用了 sys.exit({status})"},
    "error.HTTP_STATUS": {"en": "HTTP {status} from {host}: {body}", "zh": "{host} 返回 HTTP {status}：{body}"},
    "error.EXIT_STATUS": {
        "en": "{command} ended with status {status}: {tail}",
        "zh": "{command} 以状态 {status} 结束：{tail}",
    },
    "error.HOST_NOT_ALLOWED": {
        "en": "the host {host!r} is not allowed; add it to tools.allow_hosts in rerail.toml",
        "zh": "不允许访问主机 {host!r}；请把它加入 rerail.toml 的 tools.allow_hosts",
    },
    "error.WORKER_DIED": {
        "en": "the worker process died (status {status}); its answer is lost",
        "zh": "工作进程已死亡（状态 {status}），结果丢失",
    },
}
