"""Every sentence people read, in one catalogue, by key and language (SPEC T12).

Rules of this file:
- Code elsewhere asks for a key; it holds no sentences of its own. Codes and JSON never change with the language.
- English is complete. A key that has no Chinese yet falls back to English, never to an error.
- The formats of the Chinese skip message are fixed by the contract, to the letter.
"""

from __future__ import annotations

import string
from collections.abc import Mapping
from typing import Any

from rerail.core.refusals import REFUSALS
from rerail.core.texts_notify import NOTIFY

TEXTS: dict[str, dict[str, str]] = {
    **REFUSALS,
    **NOTIFY,
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
    "why.give_up": {"en": "          → nothing left to try in this round{because}"},
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
    # -- The command line ---------------------------------------------------------------------------------------------
    "cli.error": {"en": "error:", "zh": "错误："},
    "cli.hint": {"en": "hint:", "zh": "提示："},
    "cli.error.plan_or_objective": {
        "en": "give either a plan or --objective",
        "zh": "请提供计划文件，或使用 --objective",
    },
    "cli.plan.failed": {"en": "no plan was made: {reason}", "zh": "未能生成计划：{reason}"},
    "cli.plan.made": {
        "en": "{count:step|steps}, {calls:call|calls} of the model, {tokens} tokens",
        "zh": "{count} 个步骤，调用模型 {calls} 次，{tokens} tokens",
    },
    "cli.plan.next": {"en": "next: {command}", "zh": "下一步：{command}"},
    "cli.prompts.action": {
        "en": "{action!r} is no action; write show or eject",
        "zh": "未知操作 {action!r}；可用 show、eject",
    },
    "cli.prompts.role": {
        "en": "there is no prompt {role!r}; known: {roles}",
        "zh": "没有提示词 {role!r}；可用：{roles}",
    },
    "cli.prompts.more": {
        "en": "one of them: rerail prompts show ROLE; to change them: rerail prompts eject",
        "zh": "查看：rerail prompts show ROLE；修改：rerail prompts eject",
    },
    "cli.prompts.there": {"en": "there already: {files}", "zh": "文件已存在：{files}"},
    "cli.prompts.force": {"en": "overwrite them with --force", "zh": "用 --force 覆盖"},
    "cli.prompts.ejected": {
        "en": 'copied to {folder}; to use them, write in rerail.toml: [model] prompts = "{folder}"',
        "zh": '已复制到 {folder}；在 rerail.toml 中启用：[model] prompts = "{folder}"',
    },
    "cli.error.unknown_command": {"en": "there is no command {word!r}", "zh": "没有命令 {word!r}"},
    "cli.error.unknown_option": {"en": "there is no option {word!r}", "zh": "没有选项 {word!r}"},
    "cli.error.too_many": {"en": "nothing is known to do with: {words}", "zh": "多余的参数：{words}"},
    "cli.error.did_you_mean": {"en": "did you mean: {near}"},
    "cli.error.see_help": {"en": "see: rerail --help"},
    "cli.error.see_command_help": {"en": "see: rerail {command} --help"},
    "cli.error.no_store": {
        "en": "there is no run {run!r}: the store {url} does not exist",
        "zh": "没有任务 {run!r}：存储 {url} 不存在",
    },
    "cli.hint.no_store": {"en": "name the store with --store, or go to the folder where the run was started"},
    "cli.hint.store": {"en": "name another place with --store"},
    "cli.error.store_missing": {"en": "there is no store {url}", "zh": "存储 {url} 不存在"},
    "cli.hint.undecorated": {
        "en": "{file} has a function {name!r} without @rerail.tool",
        "zh": "{file} 中的函数 {name!r} 没有 @rerail.tool",
    },
    "cli.hint.tools": {"en": "load tools with --tools file.py or --tools module:attr; see them with: rerail tools"},
    "cli.error.origin": {"en": "the tools of run {run} cannot be loaded again: {reason}"},
    "cli.hint.origin": {"en": "say where they are now with --tools file.py"},
    "cli.interrupted": {"en": "interrupted", "zh": "已中断"},
    "cli.interrupted.run": {
        "en": "interrupted; run {runs} was left as it is and can be resumed",
        "zh": "已中断；任务 {runs} 保持原样，可以恢复",
    },
    "cli.help.usage": {"en": "Usage: rerail COMMAND …", "zh": "用法：rerail 命令 …"},
    "cli.help.about": {
        "en": "Runs plans made of tool calls, and puts them back on the rails when they derail.",
        "zh": "执行由工具调用组成的计划，出轨时把它们拉回正轨。",
    },
    "cli.help.running": {"en": "Running", "zh": "执行"},
    "cli.help.looking": {"en": "Looking", "zh": "查看"},
    "cli.help.acting": {"en": "Acting on a run", "zh": "操作任务"},
    "cli.help.setup": {"en": "Surroundings", "zh": "环境"},
    "cli.help.everywhere": {
        "en": "Everywhere: --store FILE  --tools FILE.py  --json  --lang en|zh  --set table.key=value  --no-color  -q\n"
        "RUN is a run's id or the beginning of it. More: rerail COMMAND --help",
        "zh": "通用选项：--store FILE  --tools FILE.py  --json  --lang en|zh  --set table.key=value  --no-color  -q\n"
        "RUN 是任务编号或其开头。更多：rerail 命令 --help",
    },
    "cli.command.run": {"en": "Run a plan and stay with it to its end.", "zh": "执行计划直到结束。"},
    "cli.command.start": {
        "en": "Start a plan (stays attached for now, like run).",
        "zh": "启动计划（目前与 run 一样保持连接）。",
    },
    "cli.command.plan": {"en": "Make a plan with the model; run nothing.", "zh": "用模型生成计划；不执行。"},
    "cli.command.check": {"en": "List every fault of a plan; run nothing.", "zh": "列出计划的所有错误；不执行。"},
    "cli.command.retry": {
        "en": "Do again what failed and what depends on it.",
        "zh": "重新执行失败的步骤及依赖它们的步骤。",
    },
    "cli.command.resume": {"en": "Continue an interrupted or paused run.", "zh": "继续中断或暂停的任务。"},
    "cli.command.ls": {"en": "List the runs, newest first.", "zh": "列出任务，最新的在前。"},
    "cli.command.show": {"en": "Show a run: its steps and its verdict.", "zh": "显示任务：步骤和结论。"},
    "cli.command.why": {"en": "Tell the story of a run or of one step.", "zh": "讲述任务或某一步的经过。"},
    "cli.command.logs": {"en": "Print everything that happened, line by line.", "zh": "逐行打印发生的一切。"},
    "cli.command.watch": {"en": "Follow a run live, whoever drives it.", "zh": "实时跟踪任务，无论由谁执行。"},
    "cli.command.graph": {
        "en": "Draw the steps as a tree, as Mermaid or as SVG.",
        "zh": "把步骤画成树、Mermaid 或 SVG。",
    },
    "cli.command.artifacts": {
        "en": "List what the steps made, or print one.",
        "zh": "列出各步骤的产物，或打印其中一个。",
    },
    "cli.command.confirm": {
        "en": "Let a step that waits for it run, or refuse it.",
        "zh": "批准或拒绝等待确认的步骤。",
    },
    "cli.command.resolve": {"en": "Say what became of a step in doubt.", "zh": "说明结果不明的步骤究竟如何。"},
    "cli.command.repair": {"en": "Change a step that failed, and do it again.", "zh": "修改失败的步骤并重新执行。"},
    "cli.command.skip": {"en": "Do without a step.", "zh": "略过一个步骤。"},
    "cli.command.add": {"en": "Add steps to a live run.", "zh": "向进行中的任务添加步骤。"},
    "cli.command.pause": {"en": "Start nothing more until the run is resumed.", "zh": "恢复之前不再启动新步骤。"},
    "cli.command.cancel": {"en": "End a run.", "zh": "结束任务。"},
    "cli.command.tools": {"en": "List the tools that can be called.", "zh": "列出可调用的工具。"},
    "cli.command.config": {"en": "Print every setting and where it comes from.", "zh": "打印每项设置及其来源。"},
    "cli.command.prompts": {
        "en": "Show what models are told, or copy it to change it.",
        "zh": "显示给模型的提示词，或复制出来修改。",
    },
    "cli.command.memory": {
        "en": "Show which rung mended which failure before; --clear forgets.",
        "zh": "显示哪种恢复方式修复过哪种失败；--clear 清除。",
    },
    "cli.command.mcp": {
        "en": "Serve other agents over MCP, on stdio or HTTP.",
        "zh": "通过 MCP（stdio 或 HTTP）为其他智能体服务。",
    },
    "cli.command.doctor": {"en": "Check that everything a run needs is there.", "zh": "检查任务所需的一切是否就绪。"},
    "cli.command.demo": {
        "en": "See a plan fail, heal, be killed and finish.",
        "zh": "观看一个计划失败、修复、被杀死并完成。",
    },
    "cli.status.pending": {"en": "pending", "zh": "待执行"},
    "cli.status.running": {"en": "running", "zh": "执行中"},
    "cli.status.waiting": {"en": "waiting", "zh": "等待中"},
    "cli.status.completed": {"en": "completed", "zh": "已完成"},
    "cli.status.degraded": {"en": "completed, degraded", "zh": "已完成（降级）"},
    "cli.status.failed": {"en": "failed", "zh": "失败"},
    "cli.status.cancelled": {"en": "cancelled", "zh": "已取消"},
    "cli.status.interrupted": {"en": "interrupted", "zh": "已中断"},
    "cli.head.run": {"en": "run", "zh": "任务"},
    "cli.head.status": {"en": "status", "zh": "状态"},
    "cli.head.before": {"en": "before", "zh": "之前"},
    "cli.head.started": {"en": "started", "zh": "开始时间"},
    "cli.head.events": {"en": "events", "zh": "事件"},
    "cli.head.objective": {"en": "objective", "zh": "目标"},
    "cli.head.step": {"en": "step", "zh": "步骤"},
    "cli.head.tool": {"en": "tool", "zh": "工具"},
    "cli.head.attempts": {"en": "", "zh": ""},
    "cli.head.time": {"en": "time", "zh": "用时"},
    "cli.head.note": {"en": "", "zh": ""},
    "cli.head.key": {"en": "setting", "zh": "设置"},
    "cli.head.value": {"en": "value", "zh": "值"},
    "cli.head.source": {"en": "source", "zh": "来源"},
    "cli.head.artifact": {"en": "artifact", "zh": "产物"},
    "cli.head.size": {"en": "size", "zh": "大小"},
    "cli.head.media": {"en": "kind", "zh": "类型"},
    "cli.head.digest": {"en": "digest", "zh": "摘要"},
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
    "log.chain": {
        "en": "run {run}, round {round}: retry chain {chain}; roots: {reasons}",
        "zh": "任务 {run} 第 {round} 轮：重试链 {chain}；起因：{reasons}",
    },
    "log.skip": {
        "en": "run {run}: step {step} skipped: {message} (needs: {needs})",
        "zh": "任务 {run}：步骤 {step} 已跳过：{message}（依赖：{needs}）",
    },
    "cli.line.round": {
        "en": "retry {round} by {by}: {roots}; {size:step|steps} in the chain",
        "zh": "{by} 发起第 {round} 轮重试：{roots}；链上共 {size} 步",
    },
    "cli.line.round_automatic": {
        "en": "automatic retry {round}: {roots}; {size:step|steps} in the chain",
        "zh": "自动重试第 {round} 轮：{roots}；链上共 {size} 步",
    },
    "cli.line.round_done": {
        "en": "retry {round} is over: {done:step|steps} ended well; still failed: {failed}",
        "zh": "第 {round} 轮重试结束：{done} 步成功；仍失败：{failed}",
    },
    "cli.line.replanned": {
        "en": "new plan (revision {revision}) by {by}: {reason}",
        "zh": "{by} 重新规划（第 {revision} 版）：{reason}",
    },
    "cli.line.evaluation": {"en": "verdict: {summary} (judge: {judge})", "zh": "结论：{summary}（评审：{judge}）"},
    "cli.line.waiting": {"en": "waiting: {on}", "zh": "等待：{on}"},
    "cli.line.resumed": {"en": "resumed by {by}", "zh": "{by} 恢复了任务"},
    "cli.line.resumed_lost": {
        "en": "resumed by {by}; answers lost: {lost}",
        "zh": "{by} 恢复了任务；结果丢失：{lost}",
    },
    "cli.line.acted": {"en": "{by}: {action} {what}"},
    "cli.line.cancelled": {"en": "cancelled by {by} {reason}", "zh": "{by} 取消了任务 {reason}"},
    "cli.line.stopped": {
        "en": "no more steps are started: {words} ({reason}) [{code}]",
        "zh": "不再启动步骤：{words}（{reason}）[{code}]",
    },
    "cli.line.done": {"en": "{status}: {summary}"},
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
    "cli.line.not_now": {"en": "'not now': {message}", "zh": "暂时不可用：{message}"},
    "cli.line.verified.there": {"en": "looked: the effect is there {reason}", "zh": "已核实：效果存在 {reason}"},
    "cli.line.verified.absent": {"en": "looked: the effect is not there {reason}", "zh": "已核实：效果不存在 {reason}"},
    "cli.line.verified.unknown": {"en": "looked: nobody can tell {reason}", "zh": "无法核实 {reason}"},
    "cli.line.skipped": {"en": "{message} [{code}]"},
    "cli.line.kept": {"en": "kept: its inputs did not change", "zh": "保留：输入没有变化"},
    "cli.line.kept_stale": {
        "en": "kept although its inputs changed: its effect must not happen twice",
        "zh": "保留：输入已变化，但效果不能发生两次",
    },
    "cli.line.renewed": {"en": "its inputs changed, so it runs again", "zh": "输入已变化，重新执行"},
    "cli.line.retry": {
        "en": "attempt {attempt} of {of} in {delay} ({left} left after that)",
        "zh": "{delay} 后第 {attempt}/{of} 次尝试（之后还剩 {left} 次）",
    },
    "cli.line.retry_now": {
        "en": "attempt {attempt} of {of} at once ({left} left after that)",
        "zh": "立即第 {attempt}/{of} 次尝试（之后还剩 {left} 次）",
    },
    "cli.line.wait": {"en": "waits {delay}, as its tool asked", "zh": "按工具要求等待 {delay}"},
    "cli.line.give_up": {
        "en": "nothing left to try in this round ({category})",
        "zh": "本轮没有可尝试的办法了（{category}）",
    },
    "cli.line.asked.reflect": {"en": "a mind is asked what to make of it", "zh": "请求反思"},
    "cli.line.asked.replan": {"en": "a new plan is asked for ({reason})", "zh": "请求重新规划（{reason}）"},
    "cli.line.consulted": {
        "en": "{model} answered ({question}), {tokens} tokens{cost}{problem}",
        "zh": "{model} 已回答（{question}），{tokens} tokens{cost}{problem}",
    },
    "cli.line.declined": {"en": "no {question}: {reason}"},
    "cli.line.artifact": {"en": "artifact {name} ({size}, {digest})", "zh": "产物 {name}（{size}，{digest}）"},
    "cli.line.artifact_lost": {"en": "its output is gone: {reason}", "zh": "输出已丢失：{reason}"},
    "cli.wait.call": {"en": "it would call {tool}({args})", "zh": "将调用 {tool}({args})"},
    "cli.wait.made_from.fallback": {"en": "(made from the fallback of {step})", "zh": "（基于 {step} 的降级结果）"},
    "cli.wait.made_from.hole": {"en": "(made without the output of {step})", "zh": "（缺少 {step} 的输出）"},
    "cli.wait.confirm": {"en": "step {step} waits for a confirmation", "zh": "步骤 {step} 等待确认"},
    "cli.wait.in_doubt": {
        "en": "nobody knows whether the effect of step {step} ({tool}) happened",
        "zh": "步骤 {step}（{tool}）的效果是否发生未知",
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
    "cli.rung.fail": {"en": "given up", "zh": "放弃"},
    "cli.healed.waits": {"en": "waited {count}× as asked", "zh": "按要求等待 {count} 次"},
    "cli.healed.retries": {"en": "retried {count}×", "zh": "重试 {count} 次"},
    "cli.healed.by_hand": {"en": "set by hand by {by}", "zh": "由 {by} 手动设定"},
    "cli.healed.verified": {"en": "its answer was lost, its effect found", "zh": "结果丢失，但核实效果存在"},
    "cli.healed.rounds": {"en": "done again in {count:round|rounds}", "zh": "在 {count} 轮重试中重新执行"},
    "cli.healed.again": {"en": "called again", "zh": "重新调用"},
    # While it runs.
    "cli.live.so_far": {"en": "{done} of {total:step|steps} succeeded", "zh": "{total} 步中已成功 {done} 步"},
    "cli.live.more": {"en": "… and {count} more", "zh": "… 还有 {count} 个"},
    "cli.live.attempts": {"en": "{count}×", "zh": "{count} 次"},
    "cli.live.attempts_left": {"en": "{count}×, {left} left", "zh": "{count} 次，剩 {left} 次"},
    "cli.live.needs": {"en": "needs {needs}", "zh": "需要 {needs}"},
    "cli.live.confirm": {"en": "waits for a confirmation", "zh": "等待确认"},
    "cli.live.backoff": {"en": "again in {delay}: {reason}", "zh": "{delay} 后重试：{reason}"},
    # The report.
    "cli.report.cost": {"en": "calls: {calls}, time: {seconds}", "zh": "{calls} 次调用，{seconds}"},
    "cli.report.failed": {"en": "Failed", "zh": "失败"},
    "cli.report.reason": {
        "en": "{tool}, attempt {attempts}: {message} [{code}, {category}]",
        "zh": "{tool}，第 {attempts} 次：{message} [{code}, {category}]",
    },
    "cli.report.reason_uncalled": {
        "en": "{tool}, never called: {message} [{code}, {category}]",
        "zh": "{tool}，未调用：{message} [{code}, {category}]",
    },
    "cli.report.in_doubt": {"en": "In doubt", "zh": "结果不明"},
    "cli.report.stopped": {"en": "Stopped early", "zh": "提前停止"},
    "cli.report.breaker": {
        "en": "{count:different step|different steps} failed in a row with no success between, so nothing more was "
        "started: fix the cause, then retry",
        "zh": "连续 {count} 个步骤失败，因此不再启动新步骤：请排除原因后重试",
    },
    "cli.report.breaker_setting": {
        "en": "reflection.max_consecutive_failures = {limit} sets how many it takes; 0 switches it off",
        "zh": "由 reflection.max_consecutive_failures = {limit} 设定；0 表示关闭",
    },
    "cli.report.budget": {
        "en": "a budget of the run was used up ({names}): raise it with --set, then retry",
        "zh": "任务预算已用完（{names}）：用 --set 提高后重试",
    },
    "cli.report.consequences": {"en": "Skipped because of that", "zh": "因此跳过"},
    "cli.report.never": {"en": "Never started", "zh": "未启动"},
    "cli.report.degraded": {"en": "Degraded", "zh": "降级"},
    "cli.report.skipped": {"en": "Done without", "zh": "已略过"},
    "cli.report.healed": {"en": "Healed", "zh": "已修复"},
    "cli.report.disputed": {"en": "Disputed (said to have failed, but it succeeded)", "zh": "有争议"},
    "cli.report.waiting": {"en": "Waiting for somebody", "zh": "等待人工处理"},
    "cli.report.next": {"en": "Next", "zh": "下一步"},
    "cli.show.title": {
        "en": "run {run} · started {at} · {retries:retry|retries} · plan revision {revision}",
        "zh": "任务 {run} · 开始于 {at} · 重试 {retries} 次 · 计划第 {revision} 版",
    },
    "cli.show.owner": {"en": "driven by process {owner}", "zh": "由进程 {owner} 执行"},
    "cli.show.hidden": {
        "en": "{count:step|steps} not shown; see them all with --all",
        "zh": "有 {count} 步未显示；用 --all 查看全部",
    },
    "cli.ls.none": {"en": "no runs", "zh": "没有任务"},
    "cli.ls.more": {"en": "there are more; see them with --limit 0", "zh": "还有更多；用 --limit 0 查看"},
    "cli.artifacts.none": {"en": "no artifacts", "zh": "没有产物"},
    "cli.check.ok": {"en": "ok: {steps:step|steps}, depth {depth}, width {width}"},
    "cli.check.faults": {"en": "{count:fault|faults}:", "zh": "{count} 个错误："},
    "cli.check.no_tools": {
        "en": "tools and arguments were not checked; pass --tools to check them too",
        "zh": "没有检查工具和参数；加上 --tools 一并检查",
    },
    "cli.check.warning": {"en": "warning:", "zh": "警告："},
    "cli.handed_over": {
        "en": "done: process {owner} drives run {run} and took it",
        "zh": "已交给执行任务 {run} 的进程 {owner}",
    },
    "cli.resolve.which": {
        "en": "say exactly one of --succeeded VALUE, --failed, --rerun",
        "zh": "请给出 --succeeded VALUE、--failed、--rerun 之一",
    },
    "cli.resolve.as_text": {
        "en": "note: the value is not JSON, so it is taken as a text: {value}",
        "zh": "注意：该值不是 JSON，按文本处理：{value}",
    },
    # Retrying.
    "cli.retry.which": {"en": "name a run, or say --all-failed", "zh": "请给出任务编号，或使用 --all-failed"},
    "cli.retry.all_or_steps": {"en": "--all-failed takes neither --step nor --stage"},
    "cli.retry.none": {"en": "no run failed or was interrupted", "zh": "没有失败或中断的任务"},
    "cli.retry.would": {"en": "{count:step|steps} would run again", "zh": "将重新执行 {count} 步"},
    "cli.retry.passed": {"en": "--force passed: {checks}", "zh": "--force 越过了：{checks}"},
    "cli.mcp.serving": {"en": "serving MCP at {url} (Ctrl-C ends it)", "zh": "MCP 服务：{url}（Ctrl-C 结束）"},
    "cli.retry.follow_up": {
        "en": "run {run} completed; its follow-up {target} is retried",
        "zh": "任务 {run} 已完成；重试其后续任务 {target}",
    },
    "cli.preview.title": {
        "en": "retry of {run}: {count} of {total:step|steps}, nothing has run yet",
        "zh": "重试 {run}：{total} 步中的 {count} 步，尚未执行",
    },
    "cli.preview.roots": {"en": "Roots: {roots}", "zh": "根源：{roots}"},
    "cli.preview.rerun": {"en": "Would run again", "zh": "将重新执行"},
    "cli.preview.kept": {"en": "Kept", "zh": "保留"},
    "cli.preview.once": {
        "en": "Would happen again, and must not happen twice: {steps}",
        "zh": "将再次发生、但不应发生两次：{steps}",
    },
    "cli.preview.estimate": {
        "en": "estimate from the last time: {seconds} ({tools} of tools' time)",
        "zh": "按上次估计：{seconds}（工具用时 {tools}）",
    },
    "cli.clean.about": {
        "en": "run {run} would start over: {count:step runs|steps run} again",
        "zh": "任务 {run} 将从头开始：{count} 步全部重新执行",
    },
    "cli.clean.ask": {"en": "Start over? [y/N]", "zh": "从头开始？[y/N]"},
    "cli.clean.declined": {"en": "nothing was done", "zh": "未做任何操作"},
    "cli.clean.no_terminal": {
        "en": "starting run {run} over needs a confirmation, and there is no terminal to ask on",
        "zh": "任务 {run} 从头开始需要确认，但没有终端可以询问",
    },
    "cli.clean.all": {"en": "starting every failed run over needs --yes", "zh": "全部从头开始需要 --yes"},
    # Drawing, tools, doctor, demo.
    "cli.graph.faulty": {"en": "the plan has faults and cannot be drawn:", "zh": "计划有错误，无法绘制："},
    "cli.graph.written": {"en": "written to {file}", "zh": "已写入 {file}"},
    "cli.graph.unwritable": {"en": "cannot write {file}: {reason}", "zh": "无法写入 {file}：{reason}"},
    "cli.graph.elsewhere": {"en": "name another file, or leave it out to print on stdout"},
    "cli.tools.none": {"en": "no tools", "zh": "没有工具"},
    "cli.tools.timeout": {"en": "timeout {seconds}", "zh": "超时 {seconds}"},
    "cli.tools.alternatives": {"en": "alternatives: {names}", "zh": "替代：{names}"},
    "cli.effect.read": {"en": "only reads", "zh": "只读"},
    "cli.effect.repeatable": {"en": "repeatable", "zh": "可重复"},
    "cli.effect.once": {"en": "must not happen twice (once)", "zh": "不可重复（once）"},
    "cli.memory.empty": {"en": "nothing learnt yet", "zh": "还没有学到什么"},
    "cli.head.failure": {"en": "failure", "zh": "失败"},
    "cli.head.rung": {"en": "rung", "zh": "恢复方式"},
    "cli.head.worked": {"en": "worked", "zh": "成功次数"},
    "cli.doctor.defaults": {"en": "no rerail.toml, the defaults hold", "zh": "没有 rerail.toml，使用默认值"},
    "cli.doctor.absent": {"en": "{file} is not there yet and can be made", "zh": "{file} 尚不存在，可以创建"},
    "cli.doctor.no_place": {
        "en": "{file} is not there, and {folder} cannot be written",
        "zh": "{file} 不存在，且 {folder} 不可写",
    },
    "cli.doctor.read_only": {"en": "{file} cannot be written", "zh": "{file} 不可写"},
    "cli.doctor.tools": {"en": "{count}: {names}", "zh": "{count} 个：{names}"},
    "cli.demo.missing": {
        "en": "this installation has no demo (rerail.demo is missing)",
        "zh": "此安装不含演示（缺少 rerail.demo）",
    },
}


class _Words(string.Formatter):
    """Formatting that counts: ``{n:step|steps}`` becomes "1 step" or "2 steps"."""

    def format_field(self, value: Any, format_spec: str) -> Any:
        if "|" in format_spec:
            one, _, many = format_spec.partition("|")
            return f"{value:,} {one if value == 1 else many}"
        return super().format_field(value, format_spec)


_words = _Words()


def say(key: str, lang: str = "en", /, **values: Any) -> str:
    """The sentence for a key, in that language if it is there."""
    entry = TEXTS[key]
    return _words.vformat(entry.get(lang, entry["en"]), (), values)


class Told(str):
    """A sentence in English that can be said again in another language."""

    __slots__ = ("key", "values")

    key: str
    values: Mapping[str, Any]


def tell(key: str, /, **values: Any) -> Told:
    """The sentence for a key, for an exception: whoever shows it to people chooses the language."""
    told = Told(say(key, **values))
    told.key, told.values = key, values
    return told


def retold(text: str, lang: str) -> str:
    """A sentence in a language, as far as it came from the catalogue; as plain text in any case."""
    return say(text.key, lang, **text.values) if isinstance(text, Told) else str(text)


def has(key: str) -> bool:
    """Whether the catalogue knows the key."""
    return key in TEXTS


def at_once(seconds: float) -> bool:
    """Whether a wait is none at all: "in 0 ms" is nothing that people say."""
    return seconds < 0.0005


def span(seconds: float) -> str:
    """A duration as people say it."""
    if seconds < 0.0995:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 99.5:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes < 100 else f"{minutes // 60} h {minutes % 60} min"


def reason_in(lang: str, code: str, message: str, data: Mapping[str, Any]) -> str:
    """An error's message in a language, if it was made from the catalogue; tools' own words stay as they are."""
    key = f"error.{data.get('text', code)}"
    if lang == "en" or key not in TEXTS or lang not in TEXTS[key]:
        return message
    try:
        return say(key, lang, **data)
    except (KeyError, IndexError, ValueError):
        return message  # an error of the same code, worded by its tool
