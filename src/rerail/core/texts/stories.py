"""The story of a run, as `why` tells it, and the lines of the verbose log."""

from __future__ import annotations

STORIES: dict[str, dict[str, str]] = {
    # Stories (why).
    "why.run": {"en": "Run {run}: {objective}"},
    "why.step": {"en": "Step {step} calls {tool}{title}."},
    "why.needs": {"en": "It needs {needs}."},
    "why.started": {"en": "{time}  attempt {attempt}: called {tool}{args}"},
    "why.fallback_call": {"en": "{time}  attempt {attempt}: called the fallback tool {tool}{args}"},
    "why.succeeded": {"en": "{time}  attempt {attempt} succeeded in {elapsed}{output}"},
    "why.unverified": {"en": "          (verify could not tell whether the effect is there)"},
    "why.failed": {"en": "{time}  {who}attempt {attempt} failed after {elapsed}: {message} [{code}, {category}]"},
    "why.cut_off": {"en": "{time}  {who}attempt {attempt} was cut off: {message}"},
    "why.failed_before": {"en": "{time}  {who}failed before its tool was called: {message} [{code}, {category}]"},
    "why.place": {"en": "          at {place}"},
    "why.confirm": {"en": " for a confirmation"},
    "why.lost": {"en": "          its answer is lost: the effect may or may not have happened"},
    "why.verified": {"en": "{time}  {who}looked whether the effect is there: {effect}{reason}"},
    "why.skipped": {"en": "{time}  {message} [{code}]"},
    "why.kept": {"en": "{time}  kept: its inputs did not change, so its result stands"},
    "why.kept_stale": {"en": "{time}  kept although its inputs changed: its effect must not happen twice"},
    "why.renewed": {"en": "{time}  its inputs changed, so it runs again"},
    "why.retry": {"en": "          → retry {attempt} of {of} in {delay} ({left} left after that)"},
    "why.retry_now": {"en": "          → retry {attempt} of {of} at once ({left} left after that)"},
    "why.again": {"en": "          → called again, at no cost: that its process died was not its fault"},
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
    "why.thought": {"en": "          {by}: {cause} ({category}, {sure} % sure)"},
    "why.asked.reflect": {"en": "{time}  {who}the rules know no remedy; a mind is asked what to make of it"},
    "why.asked.replan": {"en": "{time}  nothing more is started ({reason}); a new plan is asked for"},
    "why.consulted": {"en": "{time}  {model} was asked ({question}): {tokens} tokens{cost}, {elapsed}"},
    "why.consulted_in_vain": {
        "en": "{time}  {model} was asked ({question}) in vain: {problem} ({tokens} tokens{cost}, {elapsed})"
    },
    "why.declined": {"en": "{time}  no {question}: {reason}"},
    "why.rejected": {"en": "{time}  a change by {by} was refused: {faults}"},
    "why.replanned": {"en": "{time}  new plan (revision {revision}) by {by}: {reason}"},
    "why.round": {"en": "{time}  retry round {round} by {by}: {roots}; {size:step|steps} in the chain"},
    "why.acted": {"en": "{time}  {by}: {action}{what}"},
    "why.resumed": {"en": "{time}  resumed by {by}{lost}"},
    "why.stopped": {"en": "{time}  no more steps are started: {words} ({reason}) [{code}]"},
    "why.cancelled": {"en": "{time}  cancelled by {by}"},
    "why.waiting": {"en": "{time}  waiting for: {on}"},
    "why.done": {"en": "{time}  {status}: {summary}"},
    "why.now": {"en": "Now: {status}{detail}"},
    "why.next": {"en": "Next: {command}"},
    "log.chain": {
        "en": "run {run}, round {round}: retry chain {chain}; roots: {reasons}",
        "zh": "任务 {run} 第 {round} 轮：重试链 {chain}；起因：{reasons}",
    },
    "log.skip": {
        "en": "run {run}: step {step} skipped: {message} (needs: {needs})",
        "zh": "任务 {run}：步骤 {step} 已跳过：{message}（依赖：{needs}）",
    },
}
