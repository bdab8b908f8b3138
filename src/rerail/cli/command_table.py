"""The table of commands: the bare help's contents, and each command's function.

Rules of this file:
- It imports next to nothing, so that `rerail --help` costs no more than Python itself: a command's module is loaded on
  use.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class CommandEntry(NamedTuple):
    """A command: its name, arguments and function; the catalogue describes it."""

    name: str
    usage: str
    path: str


_RUN, _LOOK = "rerail.cli.commands.run", "rerail.cli.commands.inspect"
_ACT, _SETUP, _SERVE = "rerail.cli.commands.actions", "rerail.cli.commands.setup", "rerail.cli.commands.serve"
_MIND, _SHELL = "rerail.cli.commands.plan", "rerail.cli.shell.command_lines"

GROUPS: dict[str, tuple[CommandEntry, ...]] = {
    "cli.help.running": (
        CommandEntry("run", "PLAN | --objective", f"{_RUN}:run"),
        CommandEntry("start", "PLAN", f"{_RUN}:start"),
        CommandEntry("plan", "OBJECTIVE", f"{_MIND}:plan"),
        CommandEntry("check", "PLAN", f"{_RUN}:check"),
        CommandEntry("crashtest", "PLAN", "rerail.cli.commands.crashtest:crashtest"),
        CommandEntry("retry", "RUN | --all-failed", "rerail.cli.commands.retry:retry"),
        CommandEntry("resume", "RUN", f"{_RUN}:resume"),
        CommandEntry("worker", "", "rerail.cli.commands.run:worker"),
    ),
    "cli.help.looking": (
        CommandEntry("ls", "", f"{_LOOK}:ls"),
        CommandEntry("show", "RUN", f"{_LOOK}:show"),
        CommandEntry("why", "RUN [STEP]", f"{_LOOK}:why"),
        CommandEntry("replay", "RUN --set KEY=VALUE", "rerail.cli.commands.inspect:replay"),
        CommandEntry("logs", "RUN", f"{_LOOK}:logs"),
        CommandEntry("watch", "RUN", f"{_LOOK}:watch"),
        CommandEntry("graph", "RUN | PLAN", f"{_LOOK}:graph"),
        CommandEntry("artifacts", "RUN [NAME]", f"{_LOOK}:artifacts"),
    ),
    "cli.help.acting": (
        CommandEntry("confirm", "RUN [STEP]", f"{_ACT}:confirm"),
        CommandEntry("resolve", "RUN STEP", f"{_ACT}:resolve"),
        CommandEntry("repair", "RUN STEP", f"{_ACT}:repair"),
        CommandEntry("skip", "RUN STEP", f"{_ACT}:skip"),
        CommandEntry("add", "RUN STEPS_FILE", f"{_ACT}:add"),
        CommandEntry("pause", "RUN", f"{_ACT}:pause"),
        CommandEntry("cancel", "RUN", f"{_ACT}:cancel"),
    ),
    "cli.help.setup": (
        CommandEntry("tools", "", f"{_SETUP}:tools"),
        CommandEntry("config", "", f"{_SETUP}:config"),
        CommandEntry("prompts", "show|eject", f"{_MIND}:prompts"),
        CommandEntry("memory", "[--clear]", f"{_SETUP}:memory"),
        CommandEntry("shell", "", f"{_SHELL}:shell"),
        CommandEntry("export", "RUN… | --all", "rerail.cli.commands.store:export"),
        CommandEntry("import", "FILE", "rerail.cli.commands.store:import_"),
        CommandEntry("prune", "--older-than AGE", "rerail.cli.commands.store:prune"),
        CommandEntry("backup", "TARGET", "rerail.cli.commands.store:backup"),
        CommandEntry("serve", "[ADDRESS]", f"{_SERVE}:serve"),
        CommandEntry("mcp", "", f"{_SERVE}:mcp"),
        CommandEntry("token", "[add NAME | revoke NAME]", "rerail.cli.commands.security:token"),
        CommandEntry("audit", "[RUN]", "rerail.cli.commands.security:audit"),
        CommandEntry("doctor", "[--repair]", "rerail.cli.commands.setup:doctor"),
        CommandEntry("demo", "", "rerail.demo.demo:demo"),
    ),
}

COMMANDS: dict[str, CommandEntry] = {command.name: command for group in GROUPS.values() for command in group}

# Options of every command that may also stand before it; the second group takes a value.
FLAGS = ("--json", "--no-color", "--quiet", "-q")
VALUED = ("--store", "--tools", "--lang", "--set")

# The parser takes a lone hyphen for an option; for these commands it means stdin, and is passed on under this name.
READS_STDIN = ("run", "start", "check", "crashtest", "graph", "add")
STDIN = "<stdin>"

# Slash commands of reports and the shell: `/retry 7c1f` (contract T11).
ALSO = {"tasks": "ls", "status": "show"}  # `/status` without a run is `ls`
_OF_LS = ("--limit", "-n", "--status")  # options of `ls` with a value


def unslashed(words: Sequence[str]) -> list[str]:
    """Return the words without a command's leading slash, as the parser knows them; options follow it."""
    name, rest = words[0].removeprefix("/"), list(words[1:])
    if name == "status" and not _names_a_run(rest):
        return ["ls", *rest]
    return [ALSO.get(name, name), *rest]


def _names_a_run(words: Sequence[str]) -> bool:
    """Return True if a word is neither an option nor the value of one."""
    before = ""
    for word in words:
        if not word.startswith("-") and before not in (*VALUED, *_OF_LS):
            return True
        before = word
    return False
