"""What the interactive shell says, in both languages (SPEC T11, T12)."""

from __future__ import annotations

SHELL: dict[str, dict[str, str]] = {
    "cli.command.shell": {
        "en": "Type commands at a prompt, with completion and what happens meanwhile.",
        "zh": "在提示符下输入命令，带补全，并显示期间发生的事。",
    },
    "cli.about.shell": {
        "en": "Type commands at a prompt: every command of the command line but those that want the terminal for themselves (shell, serve, mcp, worker), with or without a slash.\n\nTab completes commands, runs, stages, steps and options; what happens to runs meanwhile appears above the prompt. The options given here hold for every line. Lines from a pipe are run in order, without a prompt; the exit code is the worst of theirs.",
        "zh": "在提示符下输入命令：命令行的所有命令（独占终端的 shell、serve、mcp、worker 除外），带不带斜杠都可以。\n\nTab 补全命令、任务、阶段、步骤和选项；期间任务发生的事会显示在提示符上方。此处给出的选项对每一行有效。来自管道的各行依次执行，不显示提示符；退出码是其中最差的一个。",
    },
    "refuse.shell.no_extra": {
        "en": "a prompt needs the extra 'shell'; lines from a pipe do without it",
        "zh": "提示符需要附加组件 'shell'；来自管道的各行不需要它",
    },
    "hint.shell.no_extra": {"en": "pip install 'rerail[shell]'", "zh": "pip install 'rerail[shell]'"},
    "cli.shell.welcome": {
        "en": "Rerail {version}. /help lists the commands, Tab completes, Ctrl-D leaves.",
        "zh": "Rerail {version}。/help 列出命令，Tab 补全，Ctrl-D 退出。",
    },
    "cli.shell.help.here": {"en": "In the shell", "zh": "在 shell 中"},
    "cli.shell.help.end": {
        "en": "The slash may be left out. RUN is a run's id or the beginning of it. More: /help COMMAND",
        "zh": "斜杠可以省略。RUN 是任务编号或其开头。更多：/help 命令",
    },
    "cli.shell.word.tasks": {"en": "List the runs: the same as ls.", "zh": "列出任务：与 ls 相同。"},
    "cli.shell.word.status": {
        "en": "Show a run, or list the runs: the same as show and ls.",
        "zh": "显示一个任务，或列出任务：与 show 和 ls 相同。",
    },
    "cli.shell.word.help": {"en": "Show this list, or the help of a command.", "zh": "显示本列表，或某个命令的帮助。"},
    "cli.shell.word.quiet": {
        "en": "Tell nothing above the prompt; again: the essential.",
        "zh": "提示符上方不显示任何消息；再次输入则恢复重要消息。",
    },
    "cli.shell.word.verbose": {
        "en": "Tell every event above the prompt; again: the essential.",
        "zh": "提示符上方显示每个事件；再次输入则恢复重要消息。",
    },
    "cli.shell.word.quit": {
        "en": "Leave; runs that a worker has go on. Also exit, or Ctrl-D.",
        "zh": "退出；由工作进程执行的任务会继续。也可用 exit 或 Ctrl-D。",
    },
    "cli.shell.events.none": {
        "en": "Nothing is told above the prompt now.",
        "zh": "现在提示符上方不显示任何消息。",
    },
    "cli.shell.events.essential": {
        "en": "The essential is told above the prompt: what starts, fails, is retried, waits and ends.",
        "zh": "提示符上方显示重要消息：启动、失败、重试、等待和结束。",
    },
    "cli.shell.events.all": {
        "en": "Every event is told above the prompt now.",
        "zh": "现在提示符上方显示每个事件。",
    },
    "cli.shell.error.quote": {
        "en": "the line has an opening {quote} and no closing one",
        "zh": "这一行有开头的 {quote}，却没有结尾的",
    },
    "cli.shell.error.backslash": {
        "en": "the line ends with a backslash and nothing behind it",
        "zh": "这一行以反斜杠结尾，后面没有内容",
    },
    "cli.shell.error.quote_hint": {
        "en": "close the quotation, or put a backslash before the sign",
        "zh": "补上结尾的引号，或在该符号前加反斜杠",
    },
    "cli.shell.error.not_here": {
        "en": "{name!r} cannot be used inside of the shell",
        "zh": "{name!r} 不能在 shell 中使用",
    },
    "cli.shell.error.see_help": {"en": "/help lists the commands", "zh": "/help 列出所有命令"},
    "cli.shell.code": {"en": "exit code {code}", "zh": "退出码 {code}"},
    "cli.shell.line_code": {"en": "line {number}: exit code {code}", "zh": "第 {number} 行：退出码 {code}"},
    "cli.shell.lost": {"en": "interrupted: its process is gone", "zh": "已中断：执行它的进程已不在"},
}
