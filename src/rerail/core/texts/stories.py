"""The story of a run, as `why` tells it, and the lines of the verbose log."""

from __future__ import annotations

STORIES: dict[str, dict[str, str]] = {
    # Stories (why).
    "why.run": {"en": "Run {run}: {objective}", "zh": "任务 {run}：{objective}"},
    "why.step": {"en": "Step {step} calls {tool}{title}.", "zh": "步骤 {step} 调用 {tool}{title}。"},
    "why.instead": {
        "en": "The plan named {planned}; {tool} was chosen in its place.",
        "zh": "计划原定使用 {planned}，后改用 {tool}。",
    },
    "why.needs": {"en": "It needs {needs}.", "zh": "它依赖 {needs}。"},
    "why.gate": {"en": "{time}  {who}the gate opened: {call}", "zh": "{time}  {who}等待确认：{call}"},
    "why.edited_args": {"en": "(edited: {call})", "zh": "（已修改：{call}）"},
    "why.ahead": {"en": "(ahead, before its arguments were known)", "zh": "（提前，在参数确定之前）"},
    "why.started": {
        "en": "{time}  attempt {attempt}: called {tool}{args}",
        "zh": "{time}  第 {attempt} 次尝试：调用 {tool}{args}",
    },
    "why.fallback_call": {
        "en": "{time}  attempt {attempt}: called the fallback tool {tool}{args}",
        "zh": "{time}  第 {attempt} 次尝试：调用后备工具 {tool}{args}",
    },
    "why.succeeded": {
        "en": "{time}  attempt {attempt} succeeded in {elapsed}{output}",
        "zh": "{time}  第 {attempt} 次尝试成功，用时 {elapsed}{output}",
    },
    "why.unverified": {
        "en": "          (verify could not tell whether the effect is there)",
        "zh": "          （verify 无法判断效果是否存在）",
    },
    "why.failed": {
        "en": "{time}  {who}attempt {attempt} failed after {elapsed}: {message} [{code}, {category}]",
        "zh": "{time}  {who}第 {attempt} 次尝试在 {elapsed} 后失败：{message} [{code}, {category}]",
    },
    "why.cut_off": {
        "en": "{time}  {who}attempt {attempt} was cut off: {message}",
        "zh": "{time}  {who}第 {attempt} 次尝试被中断：{message}",
    },
    "why.failed_before": {
        "en": "{time}  {who}failed before its tool was called: {message} [{code}, {category}]",
        "zh": "{time}  {who}调用工具之前失败：{message} [{code}, {category}]",
    },
    "why.declared": {
        "en": "{time}  {who}attempt {attempt} failed: {message} [{code}, {category}]",
        "zh": "{time}  {who}第 {attempt} 次尝试失败：{message} [{code}, {category}]",
    },
    "why.place": {"en": "          at {place}", "zh": "          位于 {place}"},
    "why.confirm": {"en": " for a confirmation", "zh": "（等待确认）"},
    "why.lost": {
        "en": "          its answer is lost: the effect may or may not have happened",
        "zh": "          结果丢失：效果可能发生了，也可能没有",
    },
    "why.unsure": {
        "en": "          whether its effect happened is unknown: it must not happen twice, so it is not called again",
        "zh": "          其效果是否发生未知：该效果不能发生两次，因此不再调用",
    },
    "why.left_in_doubt": {
        "en": "          → {who}left in doubt: a person says whether it happened",
        "zh": "          → {who}存疑：由人判断是否已发生",
    },
    "why.waited": {"en": " ({looks} looks, {waited})", "zh": "（查看 {looks} 次，{waited}）"},
    "why.shown_late": {
        "en": "          its effect showed {waited} after the answer",
        "zh": "          答复后 {waited} 才看到其效果",
    },
    "why.verified": {
        "en": "{time}  {who}looked whether the effect is there: {effect}{reason}",
        "zh": "{time}  {who}核实效果是否存在：{effect}{reason}",
    },
    "why.skipped": {"en": "{time}  {message} [{code}]", "zh": "{time}  {message} [{code}]"},
    "why.kept": {
        "en": "{time}  kept: its inputs did not change, so its result stands",
        "zh": "{time}  保留：输入没有变化，结果继续有效",
    },
    "why.kept_needless": {
        "en": "{time}  kept, and out of date: a step it was made from was not needed this time",
        "zh": "{time}  保留，但已过时：它所依据的步骤这次不再需要",
    },
    "why.kept_once": {
        "en": "{time}  kept although its inputs changed: its effect must not happen twice",
        "zh": "{time}  输入已变化但仍保留：效果不能发生两次",
    },
    "why.renewed": {"en": "{time}  its inputs changed, so it runs again", "zh": "{time}  输入已变化，重新执行"},
    "why.retry": {
        "en": "          → {who}retry {number} of {most} in {delay} ({left} left after that)",
        "zh": "          → {who}{delay} 后第 {number}/{most} 次重试（之后还剩 {left} 次）",
    },
    "why.retry_now": {
        "en": "          → {who}retry {number} of {most} at once ({left} left after that)",
        "zh": "          → {who}立即第 {number}/{most} 次重试（之后还剩 {left} 次）",
    },
    "why.again": {
        "en": "          → {who}called again, at no cost: that its process died was not its fault",
        "zh": "          → {who}重新调用，不计次数：进程中断不是它的错",
    },
    "why.not_now": {
        "en": "          → {who}the tool said 'not now': waiting {delay} (counts neither as failure nor as retry)",
        "zh": "          → {who}工具表示“暂时不可用”：等待 {delay}（既不算失败也不算重试）",
    },
    "why.rung.adjusted_arguments": {
        "en": "          → {who}adjusted arguments: {args}",
        "zh": "          → {who}调整参数：{args}",
    },
    "why.rung.alternative_tool": {
        "en": "          → {who}another tool: {tool}",
        "zh": "          → {who}换用工具：{tool}",
    },
    "why.rung.producer": {
        "en": "          → {who}the step that made its input runs again",
        "zh": "          → {who}重新执行产生其输入的步骤",
    },
    "why.rung.repair": {
        "en": "          → {who}repaired by {by}: {reason}",
        "zh": "          → {who}由 {by} 修复：{reason}",
    },
    "why.rung.fallback": {"en": "          → {who}fallback: {what}", "zh": "          → {who}降级：{what}"},
    "why.ask.repair": {
        "en": "          → {who}asking for a repair of this step",
        "zh": "          → {who}请求修复此步骤",
    },
    "why.ask.replan": {"en": "          → {who}asking for a new plan", "zh": "          → {who}请求重新规划"},
    "why.give_up": {
        "en": "          → {who}nothing left to try in this round{because}",
        "zh": "          → {who}本轮没有可尝试的办法了{because}",
    },
    "why.refused": {"en": "            {who}(not tried: {reason})", "zh": "            {who}（未尝试：{reason}）"},
    "why.thought": {
        "en": "          {who}{by}: {cause} ({category}, {sure} % sure)",
        "zh": "          {who}{by}：{cause}（{category}，把握 {sure} %）",
    },
    "why.asked.reflect": {
        "en": "{time}  {who}the rules know no remedy; a mind is asked what to make of it",
        "zh": "{time}  {who}规则没有对策，请求反思",
    },
    "why.asked.replan": {
        "en": "{time}  nothing more is started ({reason}); a new plan is asked for",
        "zh": "{time}  不再启动步骤（{reason}）；请求重新规划",
    },
    "why.consulted": {
        "en": "{time}  {who}{model} was asked ({question}): {tokens} tokens{cost}, {elapsed}",
        "zh": "{time}  {who}询问了 {model}（{question}）：{tokens} tokens{cost}，{elapsed}",
    },
    "why.consulted_in_vain": {
        "en": "{time}  {who}{model} was asked ({question}) in vain: {problem} ({tokens} tokens{cost}, {elapsed})",
        "zh": "{time}  {who}询问 {model}（{question}）没有结果：{problem}（{tokens} tokens{cost}，{elapsed}）",
    },
    "why.declined": {
        "en": "{time}  {who}no {question}: {reason}",
        "zh": "{time}  {who}没有进行 {question}：{reason}",
    },
    "why.rejected": {
        "en": "{time}  {who}a change by {by} was refused: {faults}",
        "zh": "{time}  {who}{by} 的修改被拒绝：{faults}",
    },
    "why.replanned": {
        "en": "{time}  new plan (revision {revision}) by {by}: {reason}",
        "zh": "{time}  {by} 重新规划（第 {revision} 版）：{reason}",
    },
    "why.round": {
        "en": "{time}  retry round {round} by {by}: {roots}; {size:step|steps} in the chain",
        "zh": "{time}  {by} 发起第 {round} 轮重试：{roots}；链上共 {size} 步",
    },
    "why.damaged": {
        "en": "          {path} could not be kept: {reason}",
        "zh": "          {path} 无法保留：{reason}",
    },
    "why.acted": {"en": "{time}  {by}: {action}{what}", "zh": "{time}  {by}：{action}{what}"},
    "why.taken_up": {"en": "{time}  taken up by {by}", "zh": "{time}  {by} 接手了任务"},
    "why.resumed": {"en": "{time}  resumed by {by}{lost}", "zh": "{time}  {by} 恢复了任务{lost}"},
    "why.stopped": {
        "en": "{time}  no more steps are started: {words} ({reason}) [{code}]",
        "zh": "{time}  不再启动步骤：{words}（{reason}）[{code}]",
    },
    "why.cancelled": {"en": "{time}  cancelled by {by}{reason}", "zh": "{time}  {by} 取消了任务{reason}"},
    "why.waiting": {"en": "{time}  waiting for: {on}", "zh": "{time}  等待：{on}"},
    "why.done": {"en": "{time}  {status}: {summary}", "zh": "{time}  {status}：{summary}"},
    "why.because": {"en": ": {reason}", "zh": "：{reason}"},
    "why.and": {"en": "; {reason}", "zh": "；{reason}"},
    "why.now": {"en": "Now: {status}{detail}", "zh": "现在：{status}{detail}"},
    "why.next": {"en": "Next: {command}", "zh": "下一步：{command}"},
    "log.chain": {
        "en": "run {run}, retry round {round}: chain {chain}; roots: {reasons}",
        "zh": "任务 {run} 第 {round} 轮重试：重试链 {chain}；起因：{reasons}",
    },
    "log.skip": {
        "en": "run {run}: step {step} skipped: {message} (needs: {needs})",
        "zh": "任务 {run}：步骤 {step} 已跳过：{message}（依赖：{needs}）",
    },
    "log.owner_lost": {
        "en": "run {run}: another process owns it, or may; this one stops. Calls under way, whose answers are not recorded: "
        "{under_way}. Not called: {not_called}",
        "zh": "任务 {run}：已由（或可能已由）另一个进程接管，本进程停止。进行中、结果不再记录的调用：{under_way}。未调用：{not_called}",
    },
    "log.not_done": {
        "en": "run {run}, step {step}: not done, because this process may not own the run any more",
        "zh": "任务 {run} 步骤 {step}：没有执行，因为本进程可能已不再拥有该任务",
    },
    "why.now_run": {"en": "Now: {status}. {summary}", "zh": "现在：{status}。{summary}"},
    "why.with": {"en": " with {args}", "zh": "，参数 {args}"},
    "why.bytes": {"en": " ({size:,} bytes)", "zh": "（{size:,} 字节）"},
    "why.effect.there": {"en": "there", "zh": "存在"},
    "why.effect.absent": {"en": "absent", "zh": "不存在"},
    "why.effect.partial": {"en": "only a part", "zh": "只有一部分"},
    "why.effect.unknown": {"en": "unknown", "zh": "未知"},
    "why.permanent": {"en": " (permanent: trying again cannot help)", "zh": "（永久性错误：重试没有用）"},
    "why.somebody": {"en": "somebody", "zh": "某人"},
    "why.person": {"en": "a person", "zh": "某人"},
    "why.changed_since": {
        "en": "; done by a tool that has changed since, and kept: {names}",
        "zh": "；所用工具此后已改变，结果予以保留：{names}",
    },
    "why.answers_lost": {"en": "; answers lost: {names}", "zh": "；结果丢失：{names}"},
    "why.on.confirm": {"en": "confirm {step}", "zh": "确认 {step}"},
    "why.on.in_doubt": {"en": "in_doubt {step}", "zh": "{step} 结果不明"},
    "why.on.paused": {"en": "paused", "zh": "任务已暂停"},
}
