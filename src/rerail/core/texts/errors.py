"""Why a call failed, in our own words: what becomes the message of an error's event."""

from __future__ import annotations

ERRORS: dict[str, dict[str, str]] = {
    # Why a step failed.
    "error.TIMEOUT": {"en": "timed out after {seconds:g} s", "zh": "超时：{seconds:g} 秒内没有完成"},
    "error.ANSWER_LOST": {
        "en": "the process died while the call was under way; its answer is lost",
        "zh": "调用进行中进程中断，结果丢失",
    },
    "error.CLOSED": {"en": "the engine was closed while the call was under way; its answer is lost"},
    "error.RUN_CANCELLED": {"en": "the run was cancelled while the call was under way", "zh": "调用进行中任务被取消"},
    "error.SKIPPED_LIVE": {"en": "the step was skipped while the call was under way"},
    "error.RATE_LIMITED": {
        "en": "asked to wait {asked:g} s, with {waited:g} s already waited of {limit:g} s allowed: {message}"
    },
    "error.ARGS_INVALID": {"en": "the arguments do not fit the tool {tool}: {faults}"},
    "error.PATH_MISSING": {
        "en": "{ref} is not there: the output of step {step!r} has no such part (there is: {there})"
    },
    "error.HOLE_NOT_ACCEPTED": {
        "en": "step {step!r} was skipped, so {ref} is empty, and argument {argument!r} does not accept null"
    },
    "error.HOLE_LOST": {
        "en": "step {step!r} did its work, but its output was lost, so {ref} is empty and {argument!r} does not"
        " accept null; say what it was: rerail resolve {run} {step} --succeeded VALUE"
    },
    "error.ARTIFACT_GONE": {"en": "the output of step {step!r} is gone or damaged ({reason})"},
    "error.ONCE_REPEATED": {
        "en": "the call would repeat what step {step!r} has done, may have done or is to do; it must not happen twice",
        "zh": "该调用会重复步骤 {step!r} 已经、可能已经或将要产生的效果，而它不得发生两次",
    },
    "error.TOOL_UNKNOWN": {"en": "no tool named {tool!r} was given to this run"},
    "error.OUTPUT_NOT_JSON": {
        "en": "the tool returned {type} that is not JSON ({reason}); return dicts with text keys, lists, texts, finite"
        " numbers, booleans or None"
    },
    "error.OUTPUT_TOO_LARGE": {
        "en": "the tool returned {size:,} bytes, over the limit of {limit:,}; use a file, or raise tools.max_output"
    },
    "error.SUSPECT_OUTPUT": {"en": "reported success, but the output looks like an error: {seen}"},
    "error.CHECK_FAILED": {"en": "the output does not meet the step's check: {faults}"},
    "error.VERIFY_FAILED": {"en": "reported success, but verify did not find the effect"},
    "error.CONFIRM_REFUSED": {"en": "{by} refused the confirmation", "zh": "{by} 拒绝了确认"},
    "error.RESOLVED_FAILED": {"en": "{by} declared the step failed"},
    "error.EMPTY": {"en": "{type} with no message", "zh": "{type}（没有错误信息）"},
    "error.RETURNED_FAILURE": {"en": "the tool returned a failure"},
    "error.SYSTEM_EXIT": {"en": "the tool called sys.exit({status})"},
    "error.HTTP_STATUS": {"en": "HTTP {status} from {host}: {body}"},
    "error.EXIT_STATUS": {"en": "{command} ended with status {status}: {tail}"},
    "error.HOST_NOT_ALLOWED": {"en": "the host {host!r} is not allowed; add it to tools.allow_hosts in rerail.toml"},
    "error.WORKER_DIED": {"en": "the worker process died (status {status}); its answer is lost"},
}
