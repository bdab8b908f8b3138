"""Every sentence people read, in one catalogue, by key and language (SPEC T12).

Rules of this file:
- Code elsewhere asks for a key; it holds no sentences of its own. Codes and JSON never change with the language.
- English is complete. A key that has no Chinese yet falls back to English, never to an error.
- The formats of the Chinese skip message are fixed by the contract, to the letter.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

TEXTS: dict[str, dict[str, str]] = {
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
    "error.PATH_MISSING": {"en": "{ref} is not there: the output of step {step!r} has no such part"},
    "error.HOLE_NOT_ACCEPTED": {
        "en": "step {step!r} was skipped, so {ref} is empty, and argument {argument!r} does not accept null"
    },
    "error.ARTIFACT_GONE": {"en": "the output of step {step!r} is gone or damaged ({reason})"},
    "error.TOOL_UNKNOWN": {"en": "no tool named {tool!r} was given to this run"},
    "error.OUTPUT_NOT_JSON": {
        "en": "the tool returned {type}, which is not JSON; return dicts, lists, texts, numbers, booleans or None"
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
    # Why a step did not run.
    "skip.SKIP_UPSTREAM_FAILED": {"en": "skipped: upstream step failed", "zh": "跳过：上游依赖步骤失败"},
    "skip.upstream_part": {"en": "step {step} ({tool}): {reason}", "zh": "步骤{step}({tool}): {reason}"},
    "skip.upstream": {"en": "{words} - {parts}", "zh": "{words} - {parts}"},
    "skip.SKIP_OPTIONAL": {
        "en": "optional step skipped after {retries} retries: {reason}",
        "zh": "可选步骤在重试 {retries} 次后跳过：{reason}",
    },
    "skip.SKIP_USER": {"en": "skipped by {by}", "zh": "由 {by} 跳过"},
    "skip.SKIP_CONDITION": {"en": "not needed: it runs only if {steps} fails", "zh": "不需要：仅当 {steps} 失败时执行"},
    "skip.BREAKER_OPEN": {"en": "never started: too many different steps failed in a row"},
    "skip.BUDGET_EXCEEDED": {"en": "never started: a budget of the run was used up"},
    "skip.RUN_CANCELLED": {"en": "never started: the run was cancelled"},
    # Why a result may be out of date, or is less than whole.
    "stale.once": {"en": "its inputs changed, but its effect must not happen twice"},
    "stale.upstream": {"en": "a step it was made from failed when it was tried again"},
    "degraded.fallback": {"en": "a fallback stood in: {reason}", "zh": "使用了降级结果：{reason}"},
    "degraded.hole": {"en": "made without the output of step {step!r}, which was skipped"},
    # Summaries (V7).
    "summary.success": {"en": "all {total} steps succeeded"},
    "summary.healed": {"en": "{done} of {total} steps succeeded after {retries} retries"},
    "summary.degraded": {"en": "completed with holes: {degraded} of {total} steps degraded, {skipped} skipped"},
    "summary.failed": {"en": "failed: {names}; {consequences} more skipped because of that"},
    "summary.cancelled": {"en": "cancelled: {never} of {total} steps never started"},
    "summary.stopped": {"en": "stopped ({code}): {names} failed, {never} of {total} steps never started"},
    "summary.waiting": {"en": "waiting: {on}"},
    "summary.running": {"en": "running: {done} of {total} steps done"},
    "summary.incomplete": {"en": "all steps succeeded, but the goal is not reached: {missing}"},
    # Stories (why).
    "why.run": {"en": "Run {run}: {objective}"},
    "why.step": {"en": "Step {step} calls {tool}{title}."},
    "why.needs": {"en": "It needs {needs}."},
    "why.started": {"en": "{time}  attempt {attempt}: called {tool}{args}"},
    "why.fallback_call": {"en": "{time}  attempt {attempt}: called the fallback tool {tool}{args}"},
    "why.succeeded": {"en": "{time}  attempt {attempt} succeeded in {elapsed}{output}"},
    "why.unverified": {"en": "          (verify could not tell whether the effect is there)"},
    "why.failed": {"en": "{time}  attempt {attempt} failed after {elapsed}: {message} [{code}, {category}]"},
    "why.failed_before": {"en": "{time}  failed before its tool was called: {message} [{code}, {category}]"},
    "why.lost": {"en": "          its answer is lost: the effect may or may not have happened"},
    "why.verified": {"en": "{time}  looked whether the effect is there: {effect}. {reason}"},
    "why.skipped": {"en": "{time}  {message} [{code}]"},
    "why.kept": {"en": "{time}  kept: its inputs did not change, so its result stands"},
    "why.kept_stale": {"en": "{time}  kept although its inputs changed: its effect must not happen twice"},
    "why.renewed": {"en": "{time}  its inputs changed, so it runs again"},
    "why.retry": {"en": "          → retry {attempt} of {of} in {delay} ({left} left after that)"},
    "why.not_now": {
        "en": "          → the tool said 'not now': waiting {delay} (counts neither as failure nor as retry)"
    },
    "why.rung.adjusted_arguments": {"en": "          → adjusted arguments: {args}"},
    "why.rung.alternative_tool": {"en": "          → another tool: {tool}"},
    "why.rung.producer": {"en": "          → the step that made its input runs again"},
    "why.rung.repair": {"en": "          → repaired by {by}: {reason}"},
    "why.rung.fallback": {"en": "          → fallback: {what}"},
    "why.ask.repair": {"en": "          → asking for a repair of this step"},
    "why.ask.replan": {"en": "          → asking for a new plan"},
    "why.give_up": {"en": "          → nothing left to try{because}"},
    "why.refused": {"en": "            (not tried: {reason})"},
    "why.declined": {"en": "{time}  no {question}: {reason}"},
    "why.rejected": {"en": "{time}  a change by {by} was refused: {faults}"},
    "why.replanned": {"en": "{time}  new plan (revision {revision}) by {by}: {reason}"},
    "why.round": {"en": "{time}  retry round {round} by {by}: {roots}; {size} steps in the chain"},
    "why.acted": {"en": "{time}  {by}: {action}{what}"},
    "why.resumed": {"en": "{time}  resumed by {by}{lost}"},
    "why.stopped": {"en": "{time}  the run stopped starting steps: {code} ({reason})"},
    "why.cancelled": {"en": "{time}  cancelled by {by}"},
    "why.waiting": {"en": "{time}  waiting for: {on}"},
    "why.done": {"en": "{time}  {status}: {summary}"},
    "why.now": {"en": "Now: {status}{detail}"},
    "why.next": {"en": "Next: {command}"},
}


def say(key: str, lang: str = "en", /, **values: Any) -> str:
    """The sentence for a key, in that language if it is there."""
    entry = TEXTS[key]
    return entry.get(lang, entry["en"]).format_map(values)


def has(key: str) -> bool:
    """Whether the catalogue knows the key."""
    return key in TEXTS


def reason_in(lang: str, code: str, message: str, data: Mapping[str, Any]) -> str:
    """An error's message in a language, if it was made from the catalogue; tools' own words stay as they are."""
    key = f"error.{data.get('text', code)}"
    if lang == "en" or key not in TEXTS or lang not in TEXTS[key]:
        return message
    try:
        return say(key, lang, **data)
    except (KeyError, IndexError, ValueError):
        return message  # an error of the same code, worded by its tool
