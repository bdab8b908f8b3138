"""The commands, as data: what the bare help shows, and where each one lives.

Rules of this file:
- Nothing is imported here, so that `rerail --help` costs no more than Python itself; a command's module is loaded when
  the command is typed.
"""

from __future__ import annotations

from typing import NamedTuple


class Command(NamedTuple):
    """A command: its name, what it does in one line, and the function behind it."""

    name: str
    usage: str
    help: str
    path: str


_RUN, _LOOK = "rerail.cli.commands_run", "rerail.cli.commands_look"
_ACT, _SETUP, _SERVE = "rerail.cli.commands_act", "rerail.cli.commands_setup", "rerail.cli.commands_serve"
_MIND = "rerail.cli.commands_mind"

GROUPS: dict[str, tuple[Command, ...]] = {
    "cli.help.running": (
        Command("run", "PLAN | --objective", "Run a plan and stay with it to its end.", f"{_RUN}:run"),
        Command("start", "PLAN", "Start a plan (stays attached for now, like run).", f"{_RUN}:start"),
        Command("plan", "OBJECTIVE", "Make a plan with the model; run nothing.", f"{_MIND}:plan"),
        Command("check", "PLAN", "List every fault of a plan; run nothing.", f"{_RUN}:check"),
        Command("retry", "RUN | --all-failed", "Do again what failed and what depends on it.", f"{_RUN}:retry"),
        Command("resume", "RUN", "Continue an interrupted or paused run.", f"{_RUN}:resume"),
    ),
    "cli.help.looking": (
        Command("ls", "", "List the runs, newest first.", f"{_LOOK}:ls"),
        Command("show", "RUN", "Show a run: its steps and its verdict.", f"{_LOOK}:show"),
        Command("why", "RUN [STEP]", "Tell the story of a run or of one step.", f"{_LOOK}:why"),
        Command("logs", "RUN", "Print everything that happened, line by line.", f"{_LOOK}:logs"),
        Command("watch", "RUN", "Follow a run live, whoever drives it.", f"{_LOOK}:watch"),
        Command("graph", "RUN | PLAN", "Draw the steps as a tree, as Mermaid or as SVG.", f"{_LOOK}:graph"),
        Command("artifacts", "RUN [NAME]", "List what the steps made, or print one.", f"{_LOOK}:artifacts"),
    ),
    "cli.help.acting": (
        Command("confirm", "RUN [STEP]", "Let a step that waits for it run, or refuse it.", f"{_ACT}:confirm"),
        Command("resolve", "RUN STEP", "Say what became of a step in doubt.", f"{_ACT}:resolve"),
        Command("repair", "RUN STEP", "Change a step that failed, and do it again.", f"{_ACT}:repair"),
        Command("skip", "RUN STEP", "Do without a step.", f"{_ACT}:skip"),
        Command("add", "RUN STEPS_FILE", "Add steps to a live run.", f"{_ACT}:add"),
        Command("pause", "RUN", "Start nothing more until the run is resumed.", f"{_ACT}:pause"),
        Command("cancel", "RUN", "End a run.", f"{_ACT}:cancel"),
    ),
    "cli.help.setup": (
        Command("tools", "", "List the tools that can be called.", f"{_SETUP}:tools"),
        Command("config", "", "Print every setting and where it comes from.", f"{_SETUP}:config"),
        Command("prompts", "show|eject", "Show what models are told, or copy it to change it.", f"{_MIND}:prompts"),
        Command(
            "memory", "[--clear]", "Show which rung mended which failure before; --clear forgets.", f"{_SETUP}:memory"
        ),
        Command("mcp", "", "Serve other agents over MCP, on stdio or HTTP.", f"{_SERVE}:mcp"),
        Command("doctor", "", "Check that everything a run needs is there.", f"{_SETUP}:doctor"),
        Command("demo", "", "See a plan fail, heal, be killed and finish.", ""),
    ),
}

COMMANDS: dict[str, Command] = {command.name: command for group in GROUPS.values() for command in group}

# Options that every command takes, and which of them take a value: they may also stand before the command.
FLAGS = ("--json", "--no-color", "--quiet", "-q")
VALUED = ("--store", "--tools", "--lang", "--set")

# The parser takes a lone hyphen for an option; for these commands it means stdin, and is passed on under this name.
READS_STDIN = ("run", "start", "check", "graph", "add")
STDIN = "<stdin>"
