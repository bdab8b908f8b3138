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
    "skip.SKIP_OPTIONAL_DOUBT": {
        "en": "not critical: the run goes on without it, and its effect stays in doubt: {reason}",
        "zh": "非关键步骤：任务继续，其效果存疑：{reason}",
    },
    "skip.SKIP_OPTIONAL_UNTRIED": {
        "en": "optional step skipped without a retry: {reason}",
        "zh": "可选步骤未重试即跳过：{reason}",
    },
    "skip.SKIP_USER": {"en": "skipped by {by}", "zh": "由 {by} 跳过"},
    "skip.SKIP_CONDITION": {"en": "not needed: it runs only if {steps} fails", "zh": "不需要：仅当 {steps} 失败时执行"},
    "skip.BREAKER_OPEN": {
        "en": "never started: too many different steps failed in a row",
        "zh": "未启动：连续失败的步骤过多",
    },
    "skip.BUDGET_EXCEEDED": {"en": "never started: a budget of the run did not allow it", "zh": "未启动：任务预算不足"},
    "begun.RUN_CANCELLED": {
        "en": "not finished: the run was cancelled while it was under way",
        "zh": "未完成：执行过程中任务已取消",
    },
    "begun.BREAKER_OPEN": {
        "en": "not tried again: too many different steps failed in a row",
        "zh": "未再尝试：连续失败的步骤过多",
    },
    "begun.BUDGET_EXCEEDED": {
        "en": "not tried again: a budget of the run did not allow it",
        "zh": "未再尝试：任务预算不足",
    },
    "skip.RUN_CANCELLED": {"en": "never started: the run was cancelled", "zh": "未启动：任务已取消"},
    # Why no more steps are started.
    "stop.BREAKER_OPEN": {"en": "too many different steps failed in a row", "zh": "连续失败的步骤过多"},
    "stop.BUDGET_EXCEEDED": {"en": "a budget of the run allows no more calls", "zh": "任务预算不足"},
    # Why a result may be out of date, or is less than whole.
    "stale.once": {
        "en": "its inputs changed, but its effect must not happen twice",
        "zh": "输入已变化，但效果不能发生两次",
    },
    "stale.stopped": {
        "en": "it was to be done again, and the run stopped before it was",
        "zh": "本应重新执行，但任务在此之前停止了",
    },
    "stale.upstream": {
        "en": "a step it was made from failed when it was tried again",
        "zh": "它所依据的步骤在重试时失败了",
    },
    "stale.needless": {
        "en": "a step it was made from was not needed this time, and gave nothing",
        "zh": "它所依据的步骤这次不再需要，没有给出结果",
    },
    "stale.definition changed": {"en": "definition changed", "zh": "定义已改变"},
    "degraded.fallback": {"en": "a fallback stood in: {reason}", "zh": "使用了降级结果：{reason}"},
    "degraded.hole": {
        "en": "made without the output of step {step!r}, which was skipped",
        "zh": "缺少已跳过的步骤 {step!r} 的输出",
    },
    "degraded.lost": {
        "en": "made without the output of step {step!r}: its answer was lost, only its effect was found",
        "zh": "缺少步骤 {step!r} 的输出：其结果丢失，仅核实到效果存在",
    },
    # What may go wrong with a plan that may run.
    "warn.plan.hole": {
        "en": "argument {argument!r} is made from step {other!r}, which may be skipped, and {tool!r} does not accept "
        "null there: let it (str | None), or give {other!r} a fallback",
        "zh": "参数 {argument!r} 来自可选步骤 {other!r}，而 {tool!r} 在此不接受空值："
        "请允许空值（str | None），或为 {other!r} 提供 fallback",
    },
    # Summaries (V7).
    "summary.success": {"en": "{total:step|steps}, all succeeded", "zh": "{total} 步，全部成功"},
    "summary.healed": {
        "en": "{total:step|steps}, all succeeded, after {retries:more attempt|more attempts}",
        "zh": "{total} 步，又尝试 {retries} 次后全部成功",
    },
    "summary.less.degraded": {
        "en": "done, but not whole: {degraded} of {total:step|steps} degraded",
        "zh": "已完成但不完整：{total} 步中 {degraded} 步降级",
    },
    "summary.less.skipped": {
        "en": "done, but not whole: {skipped} of {total:step|steps} skipped",
        "zh": "已完成但不完整：{total} 步中 {skipped} 步跳过",
    },
    "summary.less.stale": {
        "en": "done, but not whole: {stale} of {total:step|steps} out of date",
        "zh": "已完成但不完整：{total} 步中 {stale} 步结果可能过时",
    },
    "summary.less.degraded.skipped": {
        "en": "done, but not whole: {degraded:step|steps} degraded and {skipped} skipped of {total}",
        "zh": "已完成但不完整：{total} 步中 {degraded} 步降级、{skipped} 步跳过",
    },
    "summary.less.degraded.stale": {
        "en": "done, but not whole: {degraded:step|steps} degraded and {stale} out of date of {total}",
        "zh": "已完成但不完整：{total} 步中 {degraded} 步降级、{stale} 步结果可能过时",
    },
    "summary.less.skipped.stale": {
        "en": "done, but not whole: {skipped:step|steps} skipped and {stale} out of date of {total}",
        "zh": "已完成但不完整：{total} 步中 {skipped} 步跳过、{stale} 步结果可能过时",
    },
    "summary.less.degraded.skipped.stale": {
        "en": "done, but not whole: {degraded:step|steps} degraded, {skipped} skipped and {stale} out of date of {total}",
        "zh": "已完成但不完整：{total} 步中 {degraded} 步降级、{skipped} 步跳过、{stale} 步结果可能过时",
    },
    "summary.forgone": {
        "en": "done by a new plan ({total:step|steps}) that leaves out what was not done: {names}",
        "zh": "由新计划完成（{total} 步），其中舍去了未完成的步骤：{names}",
    },
    "summary.in_doubt": {
        "en": "{summary}; in doubt, answer with resolve: {names}",
        "zh": "{summary}；存疑，请用 resolve 答复：{names}",
    },
    "summary.instead": {
        "en": "{summary}; by another tool than planned: {names}",
        "zh": "{summary}；所用工具与计划不同：{names}",
    },
    "summary.fallback_plan": {
        "en": "done by the fallback plan ({total:step|steps}), planning failed: {reason}",
        "zh": "由后备计划完成（{total} 步），规划失败：{reason}",
    },
    "summary.failed": {
        "en": "{names}; {consequences:step|steps} skipped because of that",
        "zh": "{names}；因此跳过 {consequences} 步",
    },
    "summary.failed_alone": {"en": "{names}", "zh": "{names}"},
    "summary.cancelled": {"en": "{never} of {total:step|steps} never started", "zh": "{total} 步中有 {never} 步未启动"},
    "summary.cancelled_kept": {
        "en": "{done} of {total:step|steps} done before that, and kept",
        "zh": "{total} 步中有 {done} 步此前已完成并保留",
    },
    "summary.cancelled_undone": {"en": "no step was done before that", "zh": "此前没有步骤完成"},
    "summary.cancelled_open": {"en": "no step was done before that: {names}", "zh": "此前没有步骤完成：{names}"},
    "summary.stopped": {
        "en": "stopped early, {reason}; failed: {names}; {never} of {total:step|steps} never started",
        "zh": "提前停止，{reason}；失败：{names}；{total} 步中有 {never} 步未启动",
    },
    "summary.stopped_last": {
        "en": "stopped early, {reason}; failed: {names}",
        "zh": "提前停止，{reason}；失败：{names}",
    },
    "summary.waiting": {"en": "waits for a person: {on}", "zh": "需要人工处理：{on}"},
    "summary.running": {"en": "{done} of {total:step|steps} done", "zh": "{total} 步中已完成 {done} 步"},
    "summary.incomplete": {
        "en": "all steps succeeded, but the goal is not reached: {missing}",
        "zh": "所有步骤都成功，但目标没有达到：{missing}",
    },
    "summary.on.confirm": {"en": "{step} has to be confirmed", "zh": "{step}：等待确认"},
    "summary.on.in_doubt": {"en": "{step} is in doubt", "zh": "{step}：结果不明"},
    "summary.on.paused": {"en": "the run is paused", "zh": "任务已暂停"},
    "status.pending": {"en": "pending", "zh": "待执行"},
    "status.ready": {"en": "ready", "zh": "就绪"},
    "status.running": {"en": "running", "zh": "执行中"},
    "status.waiting": {"en": "waiting", "zh": "等待中"},
    "status.succeeded": {"en": "succeeded", "zh": "成功"},
    "status.degraded": {"en": "degraded", "zh": "降级"},
    "status.failed": {"en": "failed", "zh": "失败"},
    "status.skipped": {"en": "skipped", "zh": "已跳过"},
    "status.cancelled": {"en": "cancelled", "zh": "已取消"},
    "status.in_doubt": {"en": "in_doubt", "zh": "结果不明"},
    "status.completed": {"en": "completed", "zh": "已完成"},
}
