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
}
