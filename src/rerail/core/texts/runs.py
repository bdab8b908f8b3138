"""Why a wish about a run or a store was refused, and what to do instead."""

from __future__ import annotations

RUNS: dict[str, dict[str, str]] = {
    # Runs and what people do to them.
    "refuse.run.run_in_doubt": {
        "en": "nobody knows whether the effect of step {step!r} happened",
        "zh": "步骤 {step!r} 的效果是否发生未知",
    },
    "refuse.run.nothing_to_retry": {
        "en": "run {run} completed with nothing degraded or skipped",
        "zh": "任务 {run} 已完成，没有降级或跳过的步骤",
    },
    "refuse.run.step_unknown": {"en": "run {run} has no step {step!r}", "zh": "任务 {run} 没有步骤 {step!r}"},
    "refuse.run.run_at_rest": {"en": "run {run} is {status}", "zh": "任务 {run} 的状态是 {status}"},
    "refuse.run.moved": {"en": "run {run} was moved to {to}", "zh": "任务 {run} 已移到 {to}"},
    "refuse.run.copied": {"en": "run {run} is a copy from {store}", "zh": "任务 {run} 是来自 {store} 的副本"},
    "refuse.run.arriving": {
        "en": "run {run} has not arrived whole: {owner} began to import it here",
        "zh": "任务 {run} 尚未完整到达：{owner} 正在把它导入到这里",
    },
    "refuse.run.run_paused": {"en": "run {run} is paused already", "zh": "任务 {run} 已经暂停"},
    "refuse.run.run_live": {"en": "run {run} is being driven", "zh": "任务 {run} 正在执行"},
    "refuse.run.step_ended": {"en": "step {step!r} is {status} already", "zh": "步骤 {step!r} 已经是 {status}"},
    "refuse.run.run_waits_confirm": {"en": "run {run} waits for a confirmation", "zh": "任务 {run} 正在等待确认"},
    "refuse.run.stage_unknown": {
        "en": "run {run} has no stage {stage!r}; stages: {stages}",
        "zh": "任务 {run} 没有阶段 {stage!r}；可用阶段：{stages}",
    },
    "refuse.run.retry_unclear": {
        "en": "a retry takes steps, or a stage, or starts from scratch: not several of these at once",
        "zh": "重试只能指定步骤、指定阶段或从头开始其中之一，不能同时使用多个",
    },
    "hint.run.retry_unclear": {
        "en": "rerail retry {run} --step STEP, --stage STAGE or --clean",
        "zh": "rerail retry {run} --step STEP、--stage STAGE 或 --clean",
    },
    "refuse.run.retry_limit": {
        "en": "run {run} was retried {retries:time|times}; the limit is {max_retries}",
        "zh": "任务 {run} 已重试 {retries} 次；上限为 {max_retries}",
    },
    "refuse.run.not_retryable": {
        "en": "this error cannot be mended by trying again: {reason}",
        "zh": "此错误无法通过重试解决：{reason}",
    },
    "refuse.run.run_completed": {"en": "run {run} completed", "zh": "任务 {run} 已完成"},
    "refuse.run.step_succeeded": {"en": "step {step!r} succeeded already", "zh": "步骤 {step!r} 已经成功"},
    "refuse.run.no_steps": {"en": "there are no steps to add", "zh": "没有要添加的步骤"},
    "refuse.run.run_id_invalid": {"en": "{run!r} cannot be the id of a run", "zh": "{run!r} 不能作为任务编号"},
    "refuse.run.no_model": {"en": "there is no model to make a plan", "zh": "没有可用来生成计划的模型"},
    "refuse.run.lease_lost": {"en": "another process took run {run} over", "zh": "另一个进程接管了任务 {run}"},
    "refuse.run.unrenewed": {
        "en": "run {run} could not be said to be alive for {seconds} s, so somebody else may have it by now: {error}",
        "zh": "任务 {run} 已有 {seconds} 秒无法续租，可能已被其他进程接管：{error}",
    },
    "refuse.run.store_newer": {
        "en": "run {run} was written by a newer version of Rerail: {error}",
        "zh": "任务 {run} 由更新版本的 Rerail 写入：{error}",
    },
    "refuse.run.run_ambiguous": {"en": "{run!r} could be any of: {names}", "zh": "{run!r} 可能是其中任意一个：{names}"},
    "refuse.run.artifact_gone": {"en": "artifact {name!r} is gone: {reason}", "zh": "产物 {name!r} 已丢失：{reason}"},
    "refuse.run.unknown_tool": {
        "en": "no tool named {name!r} is loaded; load it with --tools",
        "zh": "没有加载名为 {name!r} 的工具；请用 --tools 加载",
    },
    "refuse.run.value_invalid": {"en": "the value is not JSON: {error}", "zh": "该值不是 JSON：{error}"},
    "refuse.run.gate_not_reached": {
        "en": "step {step!r} does not wait for a confirmation yet",
        "zh": "步骤 {step!r} 还没有等待确认",
    },
    "refuse.run.gate_changed": {
        "en": "the gate of step {step!r} shows another call now: {call}",
        "zh": "步骤 {step!r} 的确认内容已变为另一次调用：{call}",
    },
    "hint.run.gate_changed": {
        "en": "look at it, then agree: rerail confirm {run} {step}",
        "zh": "查看后再确认：rerail confirm {run} {step}",
    },
    "refuse.run.gate_fallback": {
        "en": "step {step!r} would call its fallback {tool!r}: its arguments cannot be edited here",
        "zh": "步骤 {step!r} 将调用其后备工具 {tool!r}：此处不能修改其参数",
    },
    "hint.run.confirm_ahead": {
        "en": "to agree before its arguments are known: rerail confirm {run} {step} --ahead",
        "zh": "如需在参数确定之前确认：rerail confirm {run} {step} --ahead",
    },
    "refuse.run.ahead_edits": {
        "en": "a confirmation ahead takes no edits: the arguments are not known yet",
        "zh": "提前确认不能附带修改：参数尚未确定",
    },
    "hint.run.ahead_edits": {
        "en": "edit once the step waits: rerail confirm {run} --args JSON",
        "zh": "等步骤等待确认时再修改：rerail confirm {run} --args JSON",
    },
    "refuse.run.ahead_changed": {
        "en": "step {step!r} cannot be confirmed ahead: its call is not the plan's own any more",
        "zh": "步骤 {step!r} 不能提前确认：它的调用已不是计划原有的调用",
    },
    "hint.run.ahead_changed": {
        "en": "agree to the call once it is shown: rerail confirm {run} {step}",
        "zh": "等显示该调用后再确认：rerail confirm {run} {step}",
    },
    "refuse.run.step_is": {"en": "step {step!r} is {status}", "zh": "步骤 {step!r} 的状态是 {status}"},
    "refuse.run.not_in_doubt": {
        "en": "step {step!r} is not in doubt, it is {status}",
        "zh": "步骤 {step!r} 并非结果不明，它的状态是 {status}",
    },
    "refuse.run.no_gate": {
        "en": "step {step!r} does not wait for a confirmation",
        "zh": "步骤 {step!r} 没有在等待确认",
    },
    "refuse.run.run_is_paused": {"en": "run {run} is paused", "zh": "任务 {run} 已暂停"},
    "refuse.run.stopping": {"en": "run {run} is stopping ({stopped})", "zh": "任务 {run} 正在停止（{stopped}）"},
    "refuse.run.which_gate": {
        "en": "name the step to confirm; waiting: {waiting}",
        "zh": "请指明要确认的步骤；正在等待：{waiting}",
    },
    "refuse.run.nothing_failed": {
        "en": "no step of run {run} failed or was left out",
        "zh": "任务 {run} 没有失败或遗漏的步骤",
    },
    "refuse.run.step_running": {"en": "step {step!r} is running", "zh": "步骤 {step!r} 正在执行"},
    "refuse.run.not_recorded": {"en": "not recorded", "zh": "没有记录"},
    "refuse.run.no_answer": {
        "en": "the owner of run {run} did not answer within {seconds:g} s",
        "zh": "任务 {run} 的执行者在 {seconds:g} 秒内没有回应",
    },
    "refuse.run.event_damaged": {
        "en": "event {seq} of run {run} is damaged: {error}",
        "zh": "任务 {run} 的事件 {seq} 已损坏：{error}",
    },
    "refuse.run.action_not_recorded": {"en": "the action could not be recorded", "zh": "该操作无法记录"},
    "refuse.run.taken_over": {
        "en": "another process took run {run} over; this one stopped",
        "zh": "另一个进程接管了任务 {run}；本进程已停止",
    },
    "refuse.run.broken": {"en": "run {run} stopped: {broken}", "zh": "任务 {run} 已停止：{broken}"},
    "refuse.run.not_in_place": {
        "en": "run {run} stopped: a finished step's files could not be put in place: {reason}",
        "zh": "任务 {run} 已停止：已完成步骤的文件无法放到位：{reason}",
    },
    "refuse.run.stopped_by_store": {"en": "run {run} stopped: {error}", "zh": "任务 {run} 已停止：{error}"},
    "refuse.run.stopped_out_of_reach": {
        "en": "run {run} stopped: the store is out of reach: {error}",
        "zh": "任务 {run} 已停止：无法访问存储：{error}",
    },
    "refuse.run.changes_hands": {
        "en": "run {run} changes hands too fast; try again",
        "zh": "任务 {run} 的执行者更换过于频繁；请再试一次",
    },
    "refuse.run.foreign": {
        "en": "what is asked for here can use the tools that are here:",
        "zh": "在此提交的操作只能使用此处加载的工具：",
    },
    "refuse.run.tools_missing": {
        "en": "run {run} cannot go on without its tools:",
        "zh": "任务 {run} 缺少工具，无法继续：",
    },
    "refuse.run.change_refused": {
        "en": "the change was refused; the plan stays as it was",
        "zh": "修改被拒绝；计划保持不变",
    },
    "refuse.run.mcp": {
        "en": "the run's plan names MCP servers ({names}), which plans no longer open. Name them in the settings under"
        " [mcp.servers], as the plan has them: rerail logs {run} --json",
        "zh": "此任务的计划指定了 MCP 服务器（{names}），计划不再启动服务器。请按计划中的写法"
        "（rerail logs {run} --json）在设置的 [mcp.servers] 中指定它们",
    },
    "refuse.run.repair_unchanged": {
        "en": "nothing of the step changes; give args, remove, tool or needs",
        "zh": "步骤没有任何变化；请给出 args、remove、tool 或 needs",
    },
    "refuse.run.repair_no_arg": {
        "en": "there is no argument {name!r} to remove; there are: {names}",
        "zh": "没有可移除的参数 {name!r}；现有：{names}",
    },
    "refuse.run.repair_both": {
        "en": "argument {name!r} is given a value and removed; only one of them can be",
        "zh": "参数 {name!r} 既给了值又要移除；只能二选一",
    },
    "refuse.run.no_object": {
        "en": '{text!r} is no JSON object; write it as {{"name": value}}',
        "zh": '{text!r} 不是 JSON 对象；请写成 {{"name": value}}',
    },
    "refuse.run.secret": {
        "en": "this holds the value of {name}, which would be kept in the history for everybody to read;"
        " let the tool read it from the environment",
        "zh": "其中含有 {name} 的值，会留在历史记录中让所有人看到；请让工具从环境变量读取",
    },
    "refuse.run.plan_faulty": {
        "en": "the plan cannot be run; nothing was started:",
        "zh": "计划无法执行；没有启动任何步骤：",
    },
    "refuse.run.resolve_how": {
        "en": "say exactly one of succeeded=VALUE, failed=True, rerun=True",
        "zh": "请给出 succeeded=VALUE、failed=True、rerun=True 之一",
    },
    "refuse.run.driven_by": {
        "en": "run {run} is being driven by process {owner}",
        "zh": "任务 {run} 正由进程 {owner} 执行",
    },
    "refuse.run.no_such_run": {"en": "there is no run {run!r}", "zh": "没有任务 {run!r}"},
    "refuse.run.run_without_plan": {
        "en": "run {run} died before its plan was recorded",
        "zh": "任务 {run} 在计划被记录之前就中断了",
    },
    "refuse.run.taken_first": {
        "en": "process {owner} took run {run} over first",
        "zh": "进程 {owner} 先接管了任务 {run}",
    },
    "refuse.run.action_unreadable": {"en": "the action cannot be read: {error}", "zh": "无法读取该操作：{error}"},
    "refuse.run.id_taken": {"en": "there is a run {run!r} already", "zh": "已经有任务 {run!r}"},
    "refuse.run.artifact_unknown": {"en": "run {run} has no artifact {name!r}", "zh": "任务 {run} 没有产物 {name!r}"},
    "refuse.run.stopped_before": {
        "en": "the run stopped before the action could be recorded",
        "zh": "任务在该操作被记录之前停止了",
    },
    "refuse.run.not_driven": {"en": "run {run} is not being driven any more", "zh": "任务 {run} 已不再执行"},
    "refuse.run.action_unknown": {"en": "unknown action {action!r}", "zh": "未知操作 {action!r}"},
    "hint.run.run_in_doubt": {
        "en": "use: rerail resolve {run} {step} --succeeded VALUE | --failed | --rerun",
        "zh": "使用：rerail resolve {run} {step} --succeeded VALUE | --failed | --rerun",
    },
    "hint.run.look_first": {
        "en": "use: rerail resume {run}: it looks first whether it did (verify of step {step!r})",
        "zh": "使用：rerail resume {run}：会先核实效果是否发生（步骤 {step!r} 的 verify）",
    },
    "hint.run.nothing_to_retry": {"en": "name the steps to run again", "zh": "请指明要重新执行的步骤"},
    "hint.run.did_you_mean": {"en": "did you mean {near!r}?", "zh": "您是不是要找 {near!r}？"},
    "hint.run.see_run": {"en": "see: rerail show {run}", "zh": "查看：rerail show {run}"},
    "hint.run.gates": {
        "en": "what waits for a confirmation: {waiting}",
        "zh": "正在等待确认的步骤：{waiting}",
    },
    "hint.run.gate_not_reached": {
        "en": "refuse it once it does, or do without it: rerail skip {run} {step}",
        "zh": "等它提出确认时再拒绝，或跳过：rerail skip {run} {step}",
    },
    "hint.run.run_at_rest": {"en": "use: rerail retry {run}", "zh": "使用：rerail retry {run}"},
    "hint.run.moved": {
        "en": "go on with it there: --store {to}",
        "zh": "请在那里继续：--store {to}",
    },
    "hint.run.copied": {
        "en": "go on with it there; if the original is given up: rerail import FILE --own",
        "zh": "请在那里继续；如果已放弃原任务：rerail import FILE --own",
    },
    "hint.run.arriving": {
        "en": "if the import was cut off, type it again: rerail import FILE",
        "zh": "如果导入中断了，请再执行一次：rerail import FILE",
    },
    "hint.run.run_paused": {"en": "use: rerail resume {run}", "zh": "使用：rerail resume {run}"},
    "hint.run.run_live": {
        "en": "wait for it, or look on: rerail watch {run}",
        "zh": "请等它结束，或旁观：rerail watch {run}",
    },
    "hint.run.run_waits_confirm": {"en": "use: rerail confirm {run}", "zh": "使用：rerail confirm {run}"},
    "hint.run.retry_limit": {
        "en": "use: rerail retry {run} --clean to start over, or --force to pass the limit",
        "zh": "使用：rerail retry {run} --clean 从头开始，或用 --force 越过上限",
    },
    "hint.run.not_retryable": {"en": "fix its cause, then retry with --force", "zh": "请先排除原因，再用 --force 重试"},
    "hint.run.run_completed": {
        "en": "use: rerail retry {run} --force --step STEP; without --step for what was degraded or skipped",
        "zh": "使用：rerail retry {run} --force --step STEP；不带 --step 则重试降级或跳过的步骤",
    },
    "hint.run.step_succeeded": {"en": "use --force to run it again", "zh": "用 --force 重新执行"},
    "hint.run.run_id_invalid": {
        "en": "use up to {limit} printable characters, no slash and no colon, not beginning with - ~ or a dot",
        "zh": "请使用至多 {limit} 个可打印字符，不含斜杠和冒号，且不以 -、~ 或点开头",
    },
    "hint.run.no_model": {
        "en": "name one with model.name (docs/howto/models.md; pip install 'rerail[llm]'), or give a plan",
        "zh": "用 model.name 指定模型（docs/howto/models.md；pip install 'rerail[llm]'），或提供计划",
    },
    "hint.run.store_newer": {"en": "upgrade rerail", "zh": "请升级 rerail"},
    "hint.run.run_ambiguous": {"en": "type more of the id", "zh": "请多输入几位编号"},
    "hint.run.artifact_gone": {
        "en": "make it again: rerail retry {run} --step {step} --force",
        "zh": "重新生成：rerail retry {run} --step {step} --force",
    },
    "hint.run.not_in_doubt": {"en": "use: rerail retry {run}", "zh": "使用：rerail retry {run}"},
    "hint.run.stopping": {"en": "wait for its end, then retry", "zh": "请等它结束后再重试"},
    "hint.run.driven_by": {
        "en": "wait for it, or look on: rerail watch {run}; single steps can be done again meanwhile: "
        "rerail retry {run} --step STEP",
        "zh": "请等它结束，或旁观：rerail watch {run}；期间可以重做个别步骤：rerail retry {run} --step STEP",
    },
    "hint.run.no_such_run": {"en": "see: rerail ls", "zh": "查看：rerail ls"},
    "hint.run.run_without_plan": {"en": "start it again", "zh": "请重新启动"},
    "hint.run.id_taken": {"en": "see: rerail show {run}", "zh": "查看：rerail show {run}"},
    "hint.run.artifact_unknown": {"en": "see: rerail artifacts {run}", "zh": "查看：rerail artifacts {run}"},
    # Stores.
    "refuse.store.store_newer": {
        "en": "{path} was written by a newer Rerail (its format is {version}, this one knows {count}). Upgrade: pip install --upgrade rerail",
        "zh": "{path} 由更新版本的 Rerail 写入（其格式为 {version}，本版本支持到 {count}）。请升级：pip install --upgrade rerail",
    },
    "refuse.store.out_of_reach": {"en": "the store is out of reach: {error}", "zh": "无法访问存储：{error}"},
    "refuse.store.cannot_create": {
        "en": "{path} cannot be created ({strerror}). Check the folder, or name another file with --store.",
        "zh": "无法创建 {path}（{strerror}）。请检查目录，或用 --store 指定其他文件。",
    },
    "refuse.store.is_folder": {
        "en": "{path} is a folder. Name a file in it, as in --store sqlite:///{path}/runs.db",
        "zh": "{path} 是目录。请指定其中的文件，例如 --store sqlite:///{path}/runs.db",
    },
    "refuse.store.no_folder": {
        "en": "{path} cannot be created: {folder} is not a folder. Name another file with --store.",
        "zh": "无法创建 {path}：{folder} 不是目录。请用 --store 指定其他文件。",
    },
    "refuse.store.folder_read_only": {
        "en": "The folder of {path} cannot be written. Make it writable, or name another file with --store.",
        "zh": "{path} 所在的目录不可写。请设为可写，或用 --store 指定其他文件。",
    },
    "refuse.store.no_access": {
        "en": "{path} cannot be read or written. Change its permissions, or name another file with --store.",
        "zh": "无法读写 {path}。请修改其权限，或用 --store 指定其他文件。",
    },
    "refuse.store.read_only": {
        "en": "{path} cannot be written. Change its permissions, or name another file with --store.",
        "zh": "无法写入 {path}。请修改其权限，或用 --store 指定其他文件。",
    },
    "refuse.store.bad_file_system": {
        "en": "The file system of {path} cannot hold a store. Name a file on a local disk with --store.",
        "zh": "{path} 所在的文件系统不能存放存储。请用 --store 指定本地磁盘上的文件。",
    },
    "refuse.store.not_ours": {
        "en": "{path} is a database of another program. Name another file with --store.",
        "zh": "{path} 是其他程序的数据库。请用 --store 指定其他文件。",
    },
    "refuse.store.no_file": {
        "en": "{url} names no file. Name one, or use memory:// for a store in memory.",
        "zh": "{url} 没有指定文件。请指定一个，或用 memory:// 把存储放在内存中。",
    },
    "refuse.store.sqlite_refused": {
        "en": "SQLite refused the work on {path}: {error}. Please report this.",
        "zh": "SQLite 拒绝了对 {path} 的操作：{error}。请报告此问题。",
    },
    "refuse.store.moved": {
        "en": "{path} was moved, deleted or replaced while in use. Put it back, then try again.",
        "zh": "{path} 在使用中被移动、删除或替换。请恢复它，然后再试。",
    },
    "refuse.store.not_open": {
        "en": "{path} is not open. Open the store first.",
        "zh": "{path} 没有打开。请先打开存储。",
    },
    "refuse.store.locked": {
        "en": "{path} is locked by another process. Try again; if it stays, see who holds it.",
        "zh": "{path} 被另一个进程锁定。请再试；如果一直如此，请查看是谁占用了它。",
    },
    "refuse.store.disk_full": {
        "en": "The disk of {path} is full. Free some space, then resume.",
        "zh": "{path} 所在的磁盘已满。请腾出空间后恢复任务。",
    },
    "refuse.store.not_writable": {
        "en": "{path} cannot be written. Make it writable, or name another file with --store.",
        "zh": "无法写入 {path}。请设为可写，或用 --store 指定其他文件。",
    },
    "refuse.store.no_database": {
        "en": "{path} is not a database. Name another file with --store, or move this one out of the way.",
        "zh": "{path} 不是数据库。请用 --store 指定其他文件，或把这个文件移开。",
    },
    "refuse.store.damaged": {
        "en": "{path} is damaged ({error}). Restore a copy, or name another file with --store.",
        "zh": "{path} 已损坏（{error}）。请恢复备份，或用 --store 指定其他文件。",
    },
    "refuse.store.no_io": {
        "en": "{path} cannot be read or written now ({error}). Check the disk, then try again.",
        "zh": "目前无法读写 {path}（{error}）。请检查磁盘后再试。",
    },
    "refuse.store.cannot_open": {
        "en": "{path} cannot be opened now ({error}). Check the folder, then try again.",
        "zh": "目前无法打开 {path}（{error}）。请检查目录后再试。",
    },
    "refuse.store.no_memory": {
        "en": "There is not enough memory to use {path}. Try again when there is.",
        "zh": "内存不足，无法使用 {path}。请在内存充足时再试。",
    },
    "refuse.store.too_busy": {
        "en": "{path} is too busy to be locked. Try again.",
        "zh": "{path} 过于繁忙，无法锁定。请再试。",
    },
    "refuse.store.interrupted": {
        "en": "The work on {path} was interrupted. Try again.",
        "zh": "对 {path} 的操作被中断。请再试。",
    },
}
