"""The commands, as data: what the bare help shows, and where each one lives.

Rules of this file:
- Nothing is imported here, so that `rerail --help` costs no more than Python itself; a command's module is loaded when
  the command is typed.
"""

from __future__ import annotations

from typing import NamedTuple


class Command(NamedTuple):
    """A command: its name, what it takes, and the function behind it; what it does is a text of the catalogue."""

    name: str
    usage: str
    path: str


_RUN, _LOOK = "rerail.cli.commands_run", "rerail.cli.commands_look"
_ACT, _SETUP, _SERVE = "rerail.cli.commands_act", "rerail.cli.commands_setup", "rerail.cli.commands_serve"
_MIND, _SHELL = "rerail.cli.commands_mind", "rerail.cli.commands_shell"

GROUPS: dict[str, tuple[Command, ...]] = {
    "cli.help.running": (
        Command("run", "PLAN | --objective", f"{_RUN}:run"),
        Command("start", "PLAN", f"{_RUN}:start"),
        Command("plan", "OBJECTIVE", f"{_MIND}:plan"),
        Command("check", "PLAN", f"{_RUN}:check"),
        Command("crashtest", "PLAN", "rerail.cli.commands_crash:crashtest"),
        Command("retry", "RUN | --all-failed", f"{_RUN}:retry"),
        Command("resume", "RUN", f"{_RUN}:resume"),
        Command("worker", "", "rerail.cli.commands_work:worker"),
    ),
    "cli.help.looking": (
        Command("ls", "", f"{_LOOK}:ls"),
        Command("show", "RUN", f"{_LOOK}:show"),
        Command("why", "RUN [STEP]", f"{_LOOK}:why"),
        Command("replay", "RUN --set KEY=VALUE", "rerail.cli.commands_replay:replay"),
        Command("logs", "RUN", f"{_LOOK}:logs"),
        Command("watch", "RUN", f"{_LOOK}:watch"),
        Command("graph", "RUN | PLAN", f"{_LOOK}:graph"),
        Command("artifacts", "RUN [NAME]", f"{_LOOK}:artifacts"),
    ),
    "cli.help.acting": (
        Command("confirm", "RUN [STEP]", f"{_ACT}:confirm"),
        Command("resolve", "RUN STEP", f"{_ACT}:resolve"),
        Command("repair", "RUN STEP", f"{_ACT}:repair"),
        Command("skip", "RUN STEP", f"{_ACT}:skip"),
        Command("add", "RUN STEPS_FILE", f"{_ACT}:add"),
        Command("pause", "RUN", f"{_ACT}:pause"),
        Command("cancel", "RUN", f"{_ACT}:cancel"),
    ),
    "cli.help.setup": (
        Command("tools", "", f"{_SETUP}:tools"),
        Command("config", "", f"{_SETUP}:config"),
        Command("prompts", "show|eject", f"{_MIND}:prompts"),
        Command("memory", "[--clear]", f"{_SETUP}:memory"),
        Command("shell", "", f"{_SHELL}:shell"),
        Command("export", "RUN… | --all", "rerail.cli.commands_export:export"),
        Command("import", "FILE", "rerail.cli.commands_export:import_"),
        Command("prune", "--older-than AGE", "rerail.cli.commands_care:prune"),
        Command("backup", "TARGET", "rerail.cli.commands_care:backup"),
        Command("serve", "[ADDRESS]", f"{_SERVE}:serve"),
        Command("mcp", "", f"{_SERVE}:mcp"),
        Command("doctor", "[--repair]", "rerail.cli.commands_doctor:doctor"),
        Command("demo", "", ""),
    ),
}

COMMANDS: dict[str, Command] = {command.name: command for group in GROUPS.values() for command in group}

# Options that every command takes, and which of them take a value: they may also stand before the command.
FLAGS = ("--json", "--no-color", "--quiet", "-q")
VALUED = ("--store", "--tools", "--lang", "--set")

# The parser takes a lone hyphen for an option; for these commands it means stdin, and is passed on under this name.
READS_STDIN = ("run", "start", "check", "crashtest", "graph", "add")
STDIN = "<stdin>"
