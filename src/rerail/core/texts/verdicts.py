"""What a run or a step came to: skips, stops, what is stale or degraded, warnings, summaries."""

from __future__ import annotations

VERDICTS: dict[str, dict[str, str]] = {
    # Why a step did not run.
    "skip.SKIP_UPSTREAM_FAILED": {"en": "skipped: upstream step failed", "zh": "跳过：上游依赖步骤失败"},
    "skip.upstream_part": {"en": "step {step} ({tool}): {reason}", "zh": "步骤{step}({tool}): {reason}"},
    "skip.upstream": {"en": "{words} - {parts}", "zh": "{words} - {parts}"},
    "skip.SKIP_OPTIONAL": {
        "en": "optional step skipped after {retries:retry|retries}: {reason}",
        "zh": "可选步骤在重试 {retries} 次后跳过：{reason}",
    },
    "skip.SKIP_OPTIONAL_UNTRIED": {
        "en": "optional step skipped without a retry: {reason}",
        "zh": "可选步骤未重试即跳过：{reason}",
    },
    "skip.SKIP_USER": {"en": "skipped by {by}", "zh": "由 {by} 跳过"},
    "skip.SKIP_CONDITION": {"en": "not needed: it runs only if {steps} fails", "zh": "不需要：仅当 {steps} 失败时执行"},
    "skip.BREAKER_OPEN": {"en": "never started: too many different steps failed in a row"},
    "skip.BUDGET_EXCEEDED": {"en": "never started: a budget of the run was used up"},
    "skip.RUN_CANCELLED": {"en": "never started: the run was cancelled"},
    # Why no more steps are started.
    "stop.BREAKER_OPEN": {"en": "too many different steps failed in a row", "zh": "连续失败的步骤过多"},
    "stop.BUDGET_EXCEEDED": {"en": "a budget of the run was used up", "zh": "任务预算已用完"},
    # Why a result may be out of date, or is less than whole.
    "stale.once": {"en": "its inputs changed, but its effect must not happen twice"},
    "stale.stopped": {"en": "it was to be done again, and the run stopped before it was"},
    "stale.upstream": {"en": "a step it was made from failed when it was tried again"},
    "degraded.fallback": {"en": "a fallback stood in: {reason}", "zh": "使用了降级结果：{reason}"},
    "degraded.hole": {"en": "made without the output of step {step!r}, which was skipped"},
    # What may go wrong with a plan that may run.
    "warn.plan.hole": {
        "en": "argument {argument!r} is made from step {other!r}, which may be skipped, and {tool!r} does not accept "
        "null there: let it (str | None), or give {other!r} a fallback",
        "zh": "参数 {argument!r} 来自可选步骤 {other!r}，而 {tool!r} 在此不接受空值："
        "请允许空值（str | None），或为 {other!r} 提供 fallback",
    },
    # Summaries (V7).
    "summary.success": {"en": "{total:step|steps}, all succeeded"},
    "summary.healed": {"en": "{total:step|steps}, all succeeded, after {retries:retry|retries}"},
    "summary.degraded": {"en": "done, but not whole: {degraded:step|steps} degraded and {skipped} skipped of {total}"},
    "summary.fallback_plan": {"en": "done by the fallback plan ({total:step|steps}), planning failed: {reason}"},
    "summary.failed": {"en": "{names}; {consequences:step|steps} skipped because of that"},
    "summary.failed_alone": {"en": "{names}"},
    "summary.cancelled": {"en": "{never} of {total:step|steps} never started"},
    "summary.stopped": {"en": "stopped early, {reason}; failed: {names}; {never} of {total:step|steps} never started"},
    "summary.stopped_last": {"en": "stopped early, {reason}; failed: {names}"},
    "summary.waiting": {"en": "for a person: {on}"},
    "summary.running": {"en": "{done} of {total:step|steps} done"},
    "summary.incomplete": {"en": "all steps succeeded, but the goal is not reached: {missing}"},
}
