"""One event, one line; what a run waits for; which rung was taken."""

from __future__ import annotations

LINES: dict[str, dict[str, str]] = {
    # One event, one line.
    "cli.line.run_started": {"en": "run {run} started by {by}: {objective}", "zh": "{by} 启动任务 {run}：{objective}"},
    "cli.line.plan_accepted": {
        "en": "plan of {count:step|steps} (revision {revision})",
        "zh": "计划共 {count} 步（第 {revision} 版）",
    },
    "cli.line.plan_rejected": {"en": "a change by {by} was refused: {faults}", "zh": "{by} 的修改被拒绝：{faults}"},
    "cli.line.chain_root": {"en": "again: {step}, because: {reason}", "zh": "重试：{step}，原因：{reason}"},
    "cli.line.chain_step": {"en": "again: {step}, because it needs {needs}", "zh": "重试：{step}，因为依赖 {needs}"},
    "cli.line.chain_need": {
        "en": "it needs {need} (tool {tool}), which is {status}: {reason}",
        "zh": "依赖 {need}（工具 {tool}），状态 {status}：{reason}",
    },
    "cli.line.round": {
        "en": "retry round {round} by {by}: {roots}; {size:step|steps} in the chain",
        "zh": "{by} 发起第 {round} 轮重试：{roots}；链上共 {size} 步",
    },
    "cli.line.round_automatic": {
        "en": "automatic retry round {round}: {roots}; {size:step|steps} in the chain",
        "zh": "自动重试第 {round} 轮：{roots}；链上共 {size} 步",
    },
    "cli.line.round_done": {
        "en": "retry round {round} is over: {done:step|steps} ended well; still failed: {failed}",
        "zh": "第 {round} 轮重试结束：{done} 步成功；仍失败：{failed}",
    },
    "cli.line.replanned": {
        "en": "new plan (revision {revision}) by {by}: {reason}",
        "zh": "{by} 重新规划（第 {revision} 版）：{reason}",
    },
    "cli.line.evaluation": {"en": "verdict: {summary} (judge: {judge})", "zh": "结论：{summary}（评审：{judge}）"},
    "cli.line.waiting": {"en": "waiting: {on}", "zh": "等待：{on}"},
    "cli.line.resumed": {"en": "resumed by {by}", "zh": "{by} 恢复了任务"},
    "cli.line.taken_up": {"en": "taken up by {by}", "zh": "{by} 接手了任务"},
    "cli.line.resumed_lost": {
        "en": "resumed by {by}; answers lost: {lost}",
        "zh": "{by} 恢复了任务；结果丢失：{lost}",
    },
    "cli.line.acted": {"en": "{by}: {action} {what}", "zh": "{by}：{action} {what}"},
    "cli.line.cancelled": {"en": "cancelled by {by}{reason}", "zh": "{by} 取消了任务{reason}"},
    "cli.line.stopped": {
        "en": "no more steps are started: {words} ({reason}) [{code}]",
        "zh": "不再启动步骤：{words}（{reason}）[{code}]",
    },
    "cli.line.done": {"en": "{status}: {summary}", "zh": "{status}：{summary}"},
    "cli.line.gate": {"en": "waits for a confirmation: {call}", "zh": "等待确认：{call}"},
    "cli.line.started": {"en": "calls {tool}", "zh": "调用 {tool}"},
    "cli.line.started_again": {"en": "calls {tool} (attempt {attempt})", "zh": "调用 {tool}（第 {attempt} 次）"},
    "cli.line.succeeded": {"en": "succeeded in {elapsed}", "zh": "成功，用时 {elapsed}"},
    "cli.line.unverified": {
        "en": "succeeded in {elapsed}, but nobody could verify the effect",
        "zh": "成功，用时 {elapsed}，但无法核实效果",
    },
    "cli.line.failed": {
        "en": "attempt {attempt} failed: {message} [{code}, {category}]",
        "zh": "第 {attempt} 次失败：{message} [{code}, {category}]",
    },
    "cli.line.failed_before": {
        "en": "failed before its tool was called: {message} [{code}, {category}]",
        "zh": "调用前失败：{message} [{code}, {category}]",
    },
    "cli.line.lost": {
        "en": "the answer of attempt {attempt} is lost: {message} [{code}]",
        "zh": "第 {attempt} 次的结果丢失：{message} [{code}]",
    },
    "cli.line.unsure": {
        "en": "attempt {attempt} failed, and whether its effect happened is unknown: {message} [{code}, {category}]",
        "zh": "第 {attempt} 次失败，其效果是否发生未知：{message} [{code}, {category}]",
    },
    "cli.line.left_in_doubt": {
        "en": "left in doubt: a person says whether it happened",
        "zh": "存疑：由人判断是否已发生",
    },
    "cli.line.not_now": {"en": "'not now': {message}", "zh": "暂时不可用：{message}"},
    "cli.line.verified.there": {"en": "looked: the effect is there{reason}", "zh": "已核实：效果存在{reason}"},
    "cli.line.verified.absent": {"en": "looked: the effect is not there{reason}", "zh": "已核实：效果不存在{reason}"},
    "cli.line.verified.partial": {
        "en": "looked: only a part of the effect is there{reason}",
        "zh": "已核实：效果只完成了一部分{reason}",
    },
    "cli.line.verified.unknown": {"en": "looked: nobody can tell{reason}", "zh": "无法核实{reason}"},
    "cli.line.skipped": {"en": "{message} [{code}]", "zh": "{message} [{code}]"},
    "cli.line.kept": {"en": "kept: its inputs did not change", "zh": "保留：输入没有变化"},
    "cli.line.kept_needless": {
        "en": "kept, and out of date: a step it was made from was not needed this time",
        "zh": "保留，但已过时：它所依据的步骤这次不再需要",
    },
    "cli.line.kept_once": {
        "en": "kept although its inputs changed: its effect must not happen twice",
        "zh": "保留：输入已变化，但效果不能发生两次",
    },
    "cli.line.renewed": {"en": "its inputs changed, so it runs again", "zh": "输入已变化，重新执行"},
    "cli.line.retry": {
        "en": "retry {number} of {most} in {delay} ({left} left after that)",
        "zh": "{delay} 后第 {number}/{most} 次重试（之后还剩 {left} 次）",
    },
    "cli.line.retry_now": {
        "en": "retry {number} of {most} at once ({left} left after that)",
        "zh": "立即第 {number}/{most} 次重试（之后还剩 {left} 次）",
    },
    "cli.line.again": {
        "en": "called again, at no cost: that its process died was not its fault",
        "zh": "重新调用，不计次数：进程中断不是它的错",
    },
    "cli.line.wait": {"en": "waits {delay}, as its tool asked", "zh": "按工具要求等待 {delay}"},
    "cli.line.give_up": {
        "en": "nothing left to try in this round ({category}){reason}",
        "zh": "本轮没有可尝试的办法了（{category}）{reason}",
    },
    "cli.line.not_tried": {"en": "nothing more was tried: {reason}", "zh": "不再尝试：{reason}"},
    "cli.line.asked.reflect": {"en": "a mind is asked what to make of it", "zh": "请求反思"},
    "cli.line.asked.replan": {"en": "a new plan is asked for ({reason})", "zh": "请求重新规划（{reason}）"},
    "cli.line.consulted": {
        "en": "{model} answered ({question}), {tokens} tokens{cost}{problem}",
        "zh": "{model} 已回答（{question}），{tokens} tokens{cost}{problem}",
    },
    "cli.line.declined": {"en": "no {question}: {reason}", "zh": "没有进行 {question}：{reason}"},
    "cli.line.artifact": {"en": "artifact {name} ({size}, {digest})", "zh": "产物 {name}（{size}，{digest}）"},
    "cli.line.artifact_lost": {"en": "its output is gone: {reason}", "zh": "输出已丢失：{reason}"},
    "cli.wait.call": {"en": "it would call {call}", "zh": "将调用 {call}"},
    "cli.wait.call_again": {
        "en": "agreed to {before}; now it would be {call}",
        "zh": "已同意 {before}；现在将是 {call}",
    },
    "cli.wait.call_ahead": {
        "en": "agreed ahead to the plan's own call of {tool}; now it would be {call}",
        "zh": "已提前同意计划中对 {tool} 的调用；现在将是 {call}",
    },
    "cli.wait.changed_files": {"en": " (changed since: {files})", "zh": "（已变化：{files}）"},
    "cli.wait.made_from.fallback": {"en": "(made from the fallback of {step})", "zh": "（基于 {step} 的降级结果）"},
    "cli.wait.made_from.hole": {"en": "(made without the output of {step})", "zh": "（缺少 {step} 的输出）"},
    "cli.wait.confirm": {"en": "step {step} waits for a confirmation", "zh": "步骤 {step} 等待确认"},
    "cli.wait.in_doubt": {
        "en": "nobody knows whether the effect of step {step} ({tool}) happened",
        "zh": "步骤 {step}（{tool}）的效果是否发生未知",
    },
    "cli.wait.paused_by": {"en": "the run was paused by {by}", "zh": "任务已由 {by} 暂停"},
    "cli.wait.pausing_by": {
        "en": "the run was paused by {by}: what is under way comes to its end, nothing more is started",
        "zh": "任务已由 {by} 暂停：进行中的调用会执行完，不再启动新的",
    },
    "cli.wait.paused": {"en": "the run is paused", "zh": "任务已暂停"},
    # Rungs that were taken.
    "cli.rung.retry": {"en": "tried again", "zh": "重试"},
    "cli.rung.adjusted_arguments": {"en": "adjusted arguments {args}", "zh": "调整参数 {args}"},
    "cli.rung.alternative_tool": {"en": "another tool: {tool}", "zh": "换用工具 {tool}"},
    "cli.rung.producer": {"en": "the step that made its input ran again", "zh": "重新执行上游步骤"},
    "cli.rung.repair": {"en": "repaired by {by}: {reason}", "zh": "由 {by} 修复：{reason}"},
    "cli.rung.fallback": {"en": "fallback: {what}", "zh": "降级：{what}"},
    "cli.rung.skip": {"en": "skipped", "zh": "跳过"},
    "cli.rung.replan": {"en": "new plan", "zh": "重新规划"},
    "cli.rung.doubt": {"en": "left in doubt", "zh": "存疑"},
    "cli.rung.fail": {"en": "given up", "zh": "放弃"},
    "cli.healed.waits": {"en": "waited {count}× as asked", "zh": "按要求等待 {count} 次"},
    "cli.healed.retries": {"en": "{count:more attempt|more attempts}", "zh": "又尝试 {count} 次"},
    "cli.healed.by_hand": {"en": "set by hand by {by}", "zh": "由 {by} 手动设定"},
    "cli.healed.verified": {"en": "its answer was lost, its effect found", "zh": "结果丢失，但核实效果存在"},
    "cli.healed.rounds": {"en": "done again in {count:retry round|retry rounds}", "zh": "在 {count} 轮重试中重新执行"},
    "cli.healed.again": {"en": "called again", "zh": "重新调用"},
    # While it runs.
    "cli.live.so_far": {"en": "{done} of {total:step|steps} succeeded", "zh": "{total} 步中已成功 {done} 步"},
    "cli.live.more": {"en": "… and {count} more", "zh": "… 还有 {count} 个"},
    "cli.live.attempts": {"en": "{count}×", "zh": "{count} 次"},
    "cli.live.attempts_left": {"en": "{count}×, {left} left", "zh": "{count} 次，剩 {left} 次"},
    "cli.live.needs": {"en": "needs {needs}", "zh": "需要 {needs}"},
    "cli.live.confirm": {"en": "waits for a confirmation", "zh": "等待确认"},
    "cli.live.backoff": {"en": "again in {delay}: {reason}", "zh": "{delay} 后重试：{reason}"},
}
