"""What the help of the command line says."""

from __future__ import annotations

COMMAND_HELP: dict[str, dict[str, str]] = {
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
        "en": "Start a plan in a worker process, and leave it to itself.",
        "zh": "在工作进程中启动计划，并让它在后台执行。",
    },
    "cli.command.plan": {"en": "Make a plan with the model; run nothing.", "zh": "用模型生成计划；不执行。"},
    "cli.command.check": {"en": "List every fault of a plan; run nothing.", "zh": "列出计划的所有错误；不执行。"},
    "cli.command.crashtest": {
        "en": "Kill a plan at every moment, and see what becomes of it.",
        "zh": "在每个时刻杀死计划的进程，看结果如何。",
    },
    "cli.command.retry": {
        "en": "Do again what failed and what depends on it.",
        "zh": "重新执行失败的步骤及依赖它们的步骤。",
    },
    "cli.command.resume": {"en": "Continue an interrupted or paused run.", "zh": "继续中断或暂停的任务。"},
    "cli.command.worker": {
        "en": "Drive the runs of a shared store that wait for somebody.",
        "zh": "执行共享存储中等待处理的任务。",
    },
    "cli.command.ls": {"en": "List the runs, newest first.", "zh": "列出任务，最新的在前。"},
    "cli.command.show": {"en": "Show a run: its steps and its verdict.", "zh": "显示任务：步骤和结论。"},
    "cli.command.why": {"en": "Tell the story of a run or of one step.", "zh": "讲述任务或某一步的经过。"},
    "cli.command.logs": {"en": "Print everything that happened, line by line.", "zh": "逐行打印发生的一切。"},
    "cli.command.watch": {"en": "Follow a run live, whoever drives it.", "zh": "实时跟踪任务，无论由谁执行。"},
    "cli.command.graph": {
        "en": "Draw the steps as a tree or as Mermaid.",
        "zh": "把步骤画成树或 Mermaid。",
    },
    "cli.command.artifacts": {
        "en": "List what the steps made, or print one.",
        "zh": "列出各步骤的产物，或打印其中一个。",
    },
    "cli.command.confirm": {
        "en": "Agree to the call of a step that waits for it, or refuse it.",
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
    "cli.command.serve": {
        "en": "Serve a live page and an HTTP API for the runs of the store.",
        "zh": "提供实时网页和 HTTP API，查看并操作存储中的任务。",
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
    "cli.help.command_usage": {"en": "Usage: {usage}", "zh": "用法：{usage}"},
    "cli.help.options_here": {"en": "[OPTIONS]", "zh": "[选项]"},
    "cli.help.arguments": {"en": "Arguments", "zh": "参数"},
    "cli.help.options": {"en": "Options", "zh": "选项"},
    "cli.help.common": {"en": "Options of every command", "zh": "所有命令通用的选项"},
    "cli.help.choices": {"en": "[one of: {choices}]", "zh": "[可选：{choices}]"},
    "cli.help.default": {"en": "[default: {value}]", "zh": "[默认：{value}]"},
    "cli.arg.run": {"en": "The run's id, or the beginning of it.", "zh": "任务编号，或其开头。"},
    "cli.arg.step": {"en": "The step.", "zh": "步骤。"},
    "cli.arg.plan": {"en": "A YAML or JSON file; - for stdin.", "zh": "YAML 或 JSON 文件；- 表示标准输入。"},
    "cli.arg.parent": {"en": "The run that this one follows up.", "zh": "本任务所接续的任务。"},
    "cli.arg.dry_run": {"en": "Only show what it would lead to.", "zh": "只显示会带来什么结果。"},
    "cli.arg.reason": {"en": "Why, for the history.", "zh": "原因，写入历史。"},
    "cli.arg.store": {
        "en": "Where runs are kept: a file, or an address such as sqlite:///runs.db.",
        "zh": "任务的存储位置：文件，或 sqlite:///runs.db 这样的地址。",
    },
    "cli.arg.tools": {
        "en": "A file.py or module:attr with tools; may be given several times.",
        "zh": "含工具的 file.py 或 module:attr；可多次给出。",
    },
    "cli.arg.json": {
        "en": "Print one JSON document on stdout and nothing else.",
        "zh": "在标准输出上只打印一个 JSON 文档。",
    },
    "cli.arg.lang": {
        "en": "The language of messages (default: RERAIL_LANG, else the locale).",
        "zh": "消息的语言（默认：RERAIL_LANG，否则按区域设置）。",
    },
    "cli.arg.set": {
        "en": "A setting for this call, such as retry.max_retries=5; may be given several times.",
        "zh": "本次调用的设置，例如 retry.max_retries=5；可多次给出。",
    },
    "cli.arg.no_color": {"en": "No colours (NO_COLOR does the same).", "zh": "不使用颜色（与 NO_COLOR 相同）。"},
    "cli.arg.quiet": {"en": "No progress, only the result.", "zh": "不显示进度，只显示结果。"},
    "cli.about.run": {
        "en": "Run a plan and stay with it until it is at rest or waits for a person.\n\nExit code: 0 success (degraded too), 1 failed or cancelled, 2 refused, 3 waiting.",
        "zh": "执行计划，直到它结束或等待人工处理。\n\n退出码：0 成功（含降级），1 失败或取消，2 被拒绝，3 等待中。",
    },
    "cli.arg.run.objective": {
        "en": "What is to be reached, in words; the model makes the plan.",
        "zh": "用文字描述的目标；由模型生成计划。",
    },
    "cli.arg.run.fallback": {
        "en": "The plan to run if the model makes none; the verdict says degraded then.",
        "zh": "模型没有生成计划时执行的计划；此时结论为降级。",
    },
    "cli.about.start": {
        "en": "Start a plan in a process of its own, and leave it to itself.\n\nIt outlives this command and its terminal;"
        " follow it with rerail logs RUN --follow, or rerail watch RUN.",
        "zh": "在独立进程中启动计划，并让它在后台执行。\n\n它不随本命令和终端结束；"
        "可用 rerail logs RUN --follow 或 rerail watch RUN 跟踪。",
    },
    "cli.arg.start.queue": {
        "en": "Leave it to a rerail worker that shares the store, here or on another machine.",
        "zh": "交给共享此存储的 rerail worker 执行，可在本机或其他机器上。",
    },
    "cli.about.worker": {
        "en": "Drive the runs of a shared store that wait for somebody: those of start --queue, and those whose process"
        " died.\n\nA run needs tools that this worker was given (--tools, tools.modules); others are left to other"
        " workers. Ctrl-C or SIGTERM hands over: nothing new starts, and calls under way get worker.grace seconds.",
        "zh": "执行共享存储中等待处理的任务：start --queue 提交的任务，以及进程已死亡的任务。\n\n"
        "任务所需的工具必须提供给此工作进程（--tools、tools.modules）；其余任务留给其他工作进程。"
        "Ctrl-C 或 SIGTERM 会移交任务：不再启动新步骤，进行中的调用有 worker.grace 秒时间结束。",
    },
    "cli.arg.worker.jobs": {
        "en": "Runs at once (default: worker.runs, 16).",
        "zh": "同时执行的任务数（默认：worker.runs，16）。",
    },
    "cli.arg.worker.until_idle": {
        "en": "End once no run waits, and none is under way here.",
        "zh": "没有任务等待、也没有任务在此执行时结束。",
    },
    "cli.arg.start.wait": {"en": "Stay with it, as run does.", "zh": "与 run 一样保持连接。"},
    "cli.arg.wait": {
        "en": "Stay with the run until it is at rest or waits for a person.",
        "zh": "保持连接，直到任务结束或等待人工处理。",
    },
    "cli.arg.detached": {"en": "Leave the run to a process of its own.", "zh": "让任务在独立进程中执行。"},
    "cli.arg.take_over": {
        "en": "Take the run from a process of this machine that is stopped or silent; one that is at work keeps it.",
        "zh": "从本机已暂停或没有响应的进程手中接管任务；正在工作的进程不受影响。",
    },
    "cli.arg.retry.jobs": {
        "en": "How many processes work on them at once; goes with --all-failed.",
        "zh": "同时使用多少个进程；与 --all-failed 一起使用。",
    },
    "cli.arg.confirm.edit": {
        "en": "A file with what a file that the step reads should say instead: requirements.json, or NAME=FILE if yours is"
        " called something else. It must be as valid as the old one, which goes to the archive.",
        "zh": "用此文件替换该步骤读取的文件：requirements.json，或名称不同时写 NAME=FILE。"
        "它必须与旧文件一样有效；旧文件会被归档。",
    },
    "cli.about.plan": {
        "en": "Make a plan for an objective with the model; run nothing.\n\nThe plan is checked against the tools; its faults are fed back to the model a bounded number of times.",
        "zh": "用模型为目标生成计划；不执行。\n\n计划会对照工具检查；其错误会在限定次数内反馈给模型。",
    },
    "cli.arg.plan.objective": {"en": "What is to be reached, in words.", "zh": "用文字描述的目标。"},
    "cli.arg.plan.output": {
        "en": "Where to write it, as YAML (or JSON, if the name says so); else it is printed.",
        "zh": "写入的文件，格式为 YAML（文件名以 .json 结尾时为 JSON）；不给出则打印。",
    },
    "cli.about.check": {
        "en": "List every fault of a plan; run nothing.\n\nWith --tools the tools and their arguments are checked as well, and warnings tell what may go wrong: an argument\nthat is made from an optional step's output and does not accept null. Warnings leave the exit code at 0.",
        "zh": "列出计划的所有错误；不执行。\n\n加上 --tools 时也检查工具和参数，并对可能出错之处给出警告：来自可选步骤的输出而不接受空值的参数。\n警告不影响退出码 0。",
    },
    "cli.about.crashtest": {
        "en": "Run a plan once undisturbed, then once for every crash point: its process dies there (kill -9), and another "
        "one resumes it.\nEach time the store, and a ledger of the calls that is kept outside of it, are held against the "
        "guarantees: no\nacknowledged event lost, no effect repeated that must not be, no step missing from the verdict, the "
        "same outcome.\nThe tools are really called; store and workspace are made anew for each run. Gates are confirmed, "
        "and doubts answered\nfrom the ledger where it knows. Exit code: 0 kept, 1 a guarantee was broken or no crash point\nwas reached, 2 refused.",
        "zh": "先不受干扰地执行计划一次，再为每个崩溃点执行一次：进程在那里死去（kill -9），由另一个进程恢复。\n"
        "每次都用存储和存储之外的调用台账核对各项保证：已确认的事件不丢失、不应重复的效果不重复、\n"
        "结论不遗漏步骤、结果相同。工具会被真实调用；每次执行都使用新的存储和工作目录。确认步骤会自动批准，\n"
        "疑问在台账知道答案时据此回答。退出码：0 保证成立，1 有保证被违反或没有到达任何崩溃点，2 被拒绝。",
    },
    "cli.arg.crashtest.points": {
        "en": "Try so many crash points, drawn by the seed; without it, every one.",
        "zh": "只尝试这么多个崩溃点，由种子抽取；不给出则全部尝试。",
    },
    "cli.arg.crashtest.seed": {"en": "Draws the crash points of --points.", "zh": "用于抽取 --points 的崩溃点。"},
    "cli.arg.crashtest.jobs": {
        "en": "Crash points tried at a time; the tools are called side by side then.",
        "zh": "同时尝试的崩溃点数；工具会被并行调用。",
    },
    "cli.arg.crashtest.keep": {
        "en": "Keep the store, the files and the ledger of every run in this folder.",
        "zh": "把每次执行的存储、文件和台账保留在此文件夹中。",
    },
    "cli.arg.crashtest.yes": {"en": "Do not ask.", "zh": "不询问。"},
    "cli.about.retry": {
        "en": "Do again exactly what failed and what depends on it.\n\nA plan with stages is left to a process of its own,"
        " which outlives this command; for others this one stays.",
        "zh": "只重新执行失败的步骤以及依赖它们的步骤。\n\n带有阶段的计划由独立进程执行，不随本命令结束；其他计划由本命令执行。",
    },
    "cli.arg.retry.step": {
        "en": "A step to run again; may be given several times.",
        "zh": "要重新执行的步骤；可多次给出。",
    },
    "cli.arg.retry.stage": {"en": "Resume from this stage.", "zh": "从此阶段恢复。"},
    "cli.arg.retry.clean": {
        "en": "Start over: everything runs again. Asks first.",
        "zh": "从头开始：全部重新执行。会先询问。",
    },
    "cli.arg.retry.force": {
        "en": "Pass the retry limit, an error that cannot be mended by trying again, or a success.",
        "zh": "越过重试上限、无法通过重试解决的错误，或已成功的结果。",
    },
    "cli.arg.retry.dry_run": {
        "en": "Only show what would run again and why, what is kept, and which effects would happen twice.",
        "zh": "只显示将重新执行什么及原因、保留什么，以及哪些效果会发生两次。",
    },
    "cli.arg.retry.yes": {"en": "Do not ask.", "zh": "不询问。"},
    "cli.arg.retry.all_failed": {
        "en": "Retry every run that failed or was interrupted.",
        "zh": "重试所有失败或中断的任务。",
    },
    "cli.about.resume": {
        "en": "Continue an interrupted or paused run; nothing that is done is called again.",
        "zh": "继续中断或暂停的任务；已完成的不再调用。",
    },
    "cli.about.ls": {
        "en": "List the runs, newest first; interrupted ones are marked.",
        "zh": "列出任务，最新的在前；中断的会标出。",
    },
    "cli.arg.ls.status": {
        "en": "Only runs of this status; may be given several times.",
        "zh": "只列出此状态的任务；可多次给出。",
    },
    "cli.arg.ls.limit": {"en": "How many; 0 for all.", "zh": "列出多少个；0 表示全部。"},
    "cli.about.show": {
        "en": "Show a run: its steps, its verdict, and what to do next.",
        "zh": "显示任务：步骤、结论，以及下一步该做什么。",
    },
    "cli.arg.show.output": {"en": "Print only the output of this step.", "zh": "只打印此步骤的输出。"},
    "cli.arg.show.everything": {
        "en": "Every step, also of a plan with thousands.",
        "zh": "显示每一步，即使计划有数千步。",
    },
    "cli.about.why": {
        "en": "Tell the story of a run, or of one of its steps: what happened, in order, and why.\n\nWith --json the failed attempts come along, each with its traceback.",
        "zh": "讲述任务或其中一步的经过：按顺序说明发生了什么、为什么。\n\n加上 --json 时附带失败的尝试，每个都有其 traceback。",
    },
    "cli.arg.why.step": {"en": "The step; without it, the whole run.", "zh": "步骤；不给出则讲述整个任务。"},
    "cli.about.logs": {
        "en": "Print everything that happened, one line an event, and what tools and workers printed.\n\nWith --json one document is printed, a list of events; with --follow too, at the end, when the run is at rest.",
        "zh": "打印发生的一切，每个事件一行，包括工具和工作进程打印的内容。\n\n加上 --json 时打印一个文档，即事件列表；与 --follow 同用时在任务结束后打印。",
    },
    "cli.arg.logs.tail": {"en": "Only the last so many lines.", "zh": "只打印最后若干行。"},
    "cli.arg.logs.follow": {
        "en": "Go on as things happen, until the run is at rest; Ctrl-C ends it.",
        "zh": "持续打印，直到任务结束；按 Ctrl-C 停止。",
    },
    "cli.arg.logs.step": {"en": "Only the events of this step.", "zh": "只打印此步骤的事件。"},
    "cli.about.watch": {
        "en": "Follow a run live, whoever drives it, until it is at rest or waits for a person.\n\nWith --json one document is printed, at the end: a list of the run's events. The exit code is that of the run.",
        "zh": "实时跟踪任务，无论由谁执行，直到它结束或等待人工处理。\n\n加上 --json 时在最后打印一个文档：任务的事件列表。退出码与任务相同。",
    },
    "cli.about.graph": {
        "en": "Draw the steps of a run, with what each of them is now, or of a plan.",
        "zh": "画出任务的步骤及其当前状态，或画出计划的步骤。",
    },
    "cli.arg.graph.run_or_plan": {
        "en": "A run's id or the beginning of it, a YAML or JSON file, or - for a plan on stdin.",
        "zh": "任务编号或其开头、YAML 或 JSON 文件，或用 - 表示标准输入中的计划。",
    },
    "cli.arg.graph.as_mermaid": {"en": "As Mermaid text.", "zh": "输出为 Mermaid 文本。"},
    "cli.about.artifacts": {
        "en": "List what the steps of a run made, or print one of them.",
        "zh": "列出任务各步骤的产物，或打印其中一个。",
    },
    "cli.arg.artifacts.name": {
        "en": "The artifact to print; a step's id names its output.",
        "zh": "要打印的产物；步骤编号即其输出的名称。",
    },
    "cli.about.confirm": {
        "en": "Agree to the call of a step that waits for a person, or refuse it.\n\nThe yes is to exactly the call that is"
        " shown: tool, arguments, files. Where anything of it changes, the gate opens again. A plan with stages that nobody"
        " drives then goes on in a process of its own; others go on here.",
        "zh": "批准或拒绝等待确认的步骤。\n\n确认只针对所显示的那次调用：工具、参数、文件；其中任何一项变化都会重新等待确认。"
        "无人执行的带阶段计划随后由独立进程继续执行；其他计划由本命令继续执行。",
    },
    "cli.arg.confirm.ahead": {
        "en": "Agree before the arguments are known; holds only for the plan's own tool and arguments.",
        "zh": "在参数确定之前确认；仅对计划原有的工具和参数有效。",
    },
    "cli.arg.confirm.args": {
        "en": "Arguments to change first, as a JSON object; the others stay. The yes is to the edited call.",
        "zh": "先修改的参数，JSON 对象；其余不变。确认针对修改后的调用。",
    },
    "cli.arg.confirm.digest": {
        "en": "The digest of the call that was seen (`show --json`); another call is not agreed to.",
        "zh": "所看到的调用的摘要（`show --json`）；若已变为另一次调用则不确认。",
    },
    "cli.arg.confirm.yes": {"en": "Do not ask on the terminal.", "zh": "不在终端上询问。"},
    "cli.arg.confirm.step": {
        "en": "The step; may be left out if only one waits.",
        "zh": "步骤；只有一个在等待时可以省略。",
    },
    "cli.arg.confirm.refuse": {"en": "Say no: the step fails.", "zh": "拒绝：该步骤失败。"},
    "cli.about.resolve": {
        "en": "Say what became of a step whose effect is in doubt, or set its output by hand.",
        "zh": "说明效果不明的步骤究竟如何，或手动设定其输出。",
    },
    "cli.arg.resolve.succeeded": {
        "en": "It happened, and this is its output: JSON, or a text.",
        "zh": "它已发生，这是其输出：JSON 或文本。",
    },
    "cli.arg.resolve.failed": {"en": "It did not happen, and the step has failed.", "zh": "它没有发生，该步骤失败。"},
    "cli.arg.resolve.rerun": {"en": "Call it again.", "zh": "再次调用。"},
    "cli.about.repair": {
        "en": "Change a step that failed, and do it and what depends on it again; what is done is kept.",
        "zh": "修改失败的步骤，并重新执行它和依赖它的步骤；已完成的保留。",
    },
    "cli.arg.repair.args": {
        "en": "The arguments that change, as a JSON object; the others stay.",
        "zh": "要修改的参数，写成 JSON 对象；其余不变。",
    },
    "cli.arg.repair.remove": {"en": "An argument to remove; again for more.", "zh": "要移除的参数；可多次给出。"},
    "cli.arg.repair.tool": {
        "en": "Another tool; with --args it gets those and no others.",
        "zh": "另一个工具；同时给出 --args 时只使用这些参数。",
    },
    "cli.arg.repair.needs": {"en": "Other needs, one by one.", "zh": "另外的依赖，逐个给出。"},
    "cli.about.skip": {
        "en": "Do without a step: those that need it go on, with nothing in its place.",
        "zh": "略过一个步骤：依赖它的步骤继续，其位置为空。",
    },
    "cli.about.add": {
        "en": "Add steps to a run that is not at rest; a bad change is refused and the old plan stays.",
        "zh": "向未结束的任务添加步骤；不当的修改会被拒绝，原计划不变。",
    },
    "cli.arg.add.steps_file": {
        "en": "A YAML or JSON file with a list of steps; - for stdin.",
        "zh": "含步骤列表的 YAML 或 JSON 文件；- 表示标准输入。",
    },
    "cli.about.pause": {
        "en": "Start nothing more until somebody resumes the run; calls under way end.\n\nExit code 0 if it was paused.",
        "zh": "在有人恢复任务之前不再启动新步骤；进行中的调用会结束。\n\n已暂停则退出码为 0。",
    },
    "cli.about.cancel": {
        "en": "End a run: calls under way are cancelled, nothing more starts.\n\nExit code 0 if it was cancelled, whatever the run came to.",
        "zh": "结束任务：取消进行中的调用，不再启动新步骤。\n\n已取消则退出码为 0，无论任务结果如何。",
    },
    "cli.about.tools": {
        "en": "List the tools that --tools and the settings give: arguments, effect, timeout, and where each comes from.",
        "zh": "列出 --tools 和设置所提供的工具：参数、效果、超时，以及各自的来源。",
    },
    "cli.about.config": {
        "en": "Print every setting, its value, and where the value comes from.",
        "zh": "打印每项设置、其值以及值的来源。",
    },
    "cli.about.prompts": {
        "en": "Show the prompts in use, or put a copy of them into a folder to change them.",
        "zh": "显示正在使用的提示词，或把它们复制到目录中以便修改。",
    },
    "cli.arg.prompts.action": {"en": "show or eject.", "zh": "show 或 eject。"},
    "cli.arg.prompts.what": {
        "en": "For show: plan, reflect, repair, replan or judge. For eject: the folder (default: prompts).",
        "zh": "对 show：plan、reflect、repair、replan 或 judge。对 eject：目录（默认：prompts）。",
    },
    "cli.arg.prompts.force": {"en": "Let eject overwrite files that are there.", "zh": "允许 eject 覆盖已有的文件。"},
    "cli.about.memory": {
        "en": "Show what the latest runs teach: per tool and error, which rung mended it. Used with reflection.memory = true.",
        "zh": "显示最近的任务所积累的经验：每种工具和错误由哪种恢复方式修复。在 reflection.memory = true 时使用。",
    },
    "cli.arg.memory.clear": {
        "en": "Forget it: only what happens from now on is learnt from.",
        "zh": "清除：只从今后发生的事情中学习。",
    },
    "cli.about.serve": {
        "en": "Serve a live page and an HTTP API: start runs, watch them, act on them. Only this machine is served, at server.host and server.port, unless ADDRESS (HOST:PORT) says otherwise; any other address needs a token.\n\nThe token is RERAIL_TOKEN, or server.token. Plans from outside may only use the tools given here (--tools, rerail.toml); shell and HTTP tools only if --allow says so. Runs of other processes on the same store appear, too.",
        "zh": "提供实时网页和 HTTP API：启动、观察、操作任务。默认只服务本机（server.host 和 server.port），除非用 ADDRESS（HOST:PORT）另行指定；其他地址必须设置令牌。\n\n令牌取自 RERAIL_TOKEN 或 server.token。外来计划只能使用此处给出的工具（--tools、rerail.toml）；shell 和 HTTP 工具须用 --allow 放开。同一存储中其他进程的任务也会显示。",
    },
    "cli.arg.serve.address": {
        "en": "Where to listen: HOST:PORT, or a port alone.",
        "zh": "监听地址：HOST:PORT，或只写端口。",
    },
    "cli.arg.serve.expose": {
        "en": "Let other machines in, on every address of this one; needs a token.",
        "zh": "监听本机所有地址，允许其他机器访问；需要令牌。",
    },
    "cli.arg.serve.allow": {
        "en": "Let plans from outside use tools of this kind, too: shell or http.",
        "zh": "允许外来计划也使用这类工具：shell 或 http。",
    },
    "cli.arg.serve.read_only": {
        "en": "Only show runs; nothing can be started or changed.",
        "zh": "只供查看；不能启动或更改任何任务。",
    },
    "cli.arg.serve.open_page": {"en": "Open the page in a browser.", "zh": "在浏览器中打开网页。"},
    "cli.about.mcp": {
        "en": "Serve other agents over MCP: they submit plans, watch them, retry them. On stdio, unless told otherwise.\n\nPlans may only use the tools given here (--tools, rerail.toml). If RERAIL_TOKEN is set, HTTP callers must know it.",
        "zh": "通过 MCP 为其他智能体服务：它们提交、查看、重试计划。默认使用 stdio。\n\n计划只能使用此处给出的工具（--tools、rerail.toml）。设置了 RERAIL_TOKEN 时，HTTP 调用者必须知道它。",
    },
    "cli.arg.mcp.http": {
        "en": "Serve over HTTP at HOST:PORT instead; only this machine is served.",
        "zh": "改为在 HOST:PORT 上通过 HTTP 服务；只服务本机。",
    },
    "cli.arg.mcp.expose": {
        "en": "Let other machines in, too; needs RERAIL_TOKEN.",
        "zh": "也允许其他机器访问；需要 RERAIL_TOKEN。",
    },
    "cli.about.doctor": {
        "en": "Check that everything a run needs is there, and that the store and its runs are sound. Changes nothing without --repair. Exit code 1 if something is wrong.",
        "zh": "检查任务所需的一切是否就绪，以及存储及其任务是否完好。不给出 --repair 时不做任何修改。有问题时退出码为 1。",
    },
    "cli.error.missing": {"en": "{name} is missing", "zh": "缺少 {name}"},
    "cli.error.missing_value": {"en": "{name} needs a value", "zh": "{name} 需要一个值"},
    "cli.error.unknown_option_near": {
        "en": "there is no option {word!r}. Did you mean {near}?",
        "zh": "没有选项 {word!r}。您是不是要找 {near}？",
    },
    "cli.error.bad_value": {"en": "{value!r} is no value for {name}", "zh": "{value!r} 不能作为 {name} 的值"},
    "cli.error.bad_choice": {
        "en": "{value!r} is no value for {name}; choose from: {choices}",
        "zh": "{value!r} 不能作为 {name} 的值；可选：{choices}",
    },
    "cli.error.bad_choice_near": {
        "en": '{value!r} is no value for {name}. Did you mean "{near}"?',
        "zh": '{value!r} 不能作为 {name} 的值。您是不是要找 "{near}"？',
    },
    "cli.error.usage": {"en": "the command line cannot be read: {message}", "zh": "无法读取命令行：{message}"},
}
