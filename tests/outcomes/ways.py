"""The ways in which a call can end, the kinds of tools it can happen to, and what it came to (X4).

Each row is one way. `tests/outcomes/test_matrix.py` runs it for real with every kind of tool that it names;
`tests/outcomes/table.py` writes the groups into docs/concepts.md.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tests.outcomes.endings import UNFIT

from rerail.kernel.outcome import Certainty

DONE, NOT_DONE, LOST = Certainty.DONE, Certainty.NOT_DONE, Certainty.LOST

PLAIN = ("sync", "async", "isolated", "langchain")
BY_STATUS = ("by_status", "isolated_by_status")
SAID_NOT_DONE = ("not_done", "isolated_not_done")
MCP = ("mcp_stdio", "mcp_http")


@dataclass(frozen=True)
class Way:
    """One way in which a first call ends."""

    name: str
    group: str  # the row of the table in the documentation
    certainty: Certainty
    kinds: tuple[str, ...]
    acts: bool = False  # the effect happens before the call ends
    again: bool = True  # its category lets the ladder call again, where the effect allows it
    always: bool = False  # every call ends so
    args: dict[str, Any] = field(default_factory=dict)
    step: dict[str, Any] = field(default_factory=dict)
    tool: str = ""  # another tool of the kind, with options of its own
    repeatable: Certainty | None = None  # what it came to for a repeatable tool, where that differs


ANSWERED = "an answer that passes its checks"
LIKE_ERROR = "an answer shaped like an error (`success: false`, `error`, `isError`, an error text)"
NO_CHECK = "an answer that fails its check, is not JSON, or is too large"
TOOL_ERROR = "`ToolError`, `NotDone(cause)`"
TOOL_ERROR_LOST = (
    "`ToolError(lost=True)`; it or `RateLimited` raised from, or while handling, an exception that is lost"
)
LIMITED = "`RateLimited`: not now"
REFUSED_ARGS = "arguments refused before the call; invalid params and unknown tool of an MCP server"
EXCEPTION = "any other exception of a function, whatever status it carries; `SystemExit`"
TIMEOUT = "no answer: a timeout, a cancel, a dead worker, a closed engine, a crash"
SAYS_STATUS = '`errors="by_status"`: nothing sent, 4xx but 408, 503 with Retry-After'
SAYS_OTHER = '`errors="by_status"`: any other status, or none'
SAYS_NOT_DONE = '`errors="not_done"`: whatever the tool raises or answers as an error'
EXIT_LISTED = "a command that could not be started, or an exit status listed as `not_done`"
EXIT_OTHER = "any other exit status, a command killed by a signal"
NOT_SENT = "HTTP, MCP: nothing sent (connection refused, name not found, TLS not agreed)"
STATUS_REFUSED = "HTTP, MCP: 4xx but 408, 503 with Retry-After"
STATUS_OTHER = "HTTP, MCP: a redirect, 408, any other 5xx"
BROKEN = "HTTP, MCP: a connection that broke, an answer cut off or unreadable"
IS_ERROR = "MCP: `isError`, any other error of the protocol"
NO_ROOM = "Ray: a call that never began (no room, not carried, cancelled before)"

GROUPS = (
    ANSWERED, LIKE_ERROR, NO_CHECK, TOOL_ERROR, TOOL_ERROR_LOST, LIMITED, REFUSED_ARGS, EXCEPTION,
    TIMEOUT, SAYS_NOT_DONE, SAYS_STATUS, SAYS_OTHER, EXIT_LISTED, EXIT_OTHER, NOT_SENT, STATUS_REFUSED,
    STATUS_OTHER, BROKEN, IS_ERROR, NO_ROOM,
)  # fmt: skip

SHORT = {"timeout": 0.4}

FUNCTIONS = [
    Way("answered", ANSWERED, DONE, (*PLAIN, *BY_STATUS, *SAID_NOT_DONE), acts=True),
    Way("answered null", ANSWERED, DONE, PLAIN, acts=True),
    Way("success false", LIKE_ERROR, LOST, PLAIN, acts=True),
    Way("success 0", LIKE_ERROR, LOST, PLAIN, acts=True),
    Way("error member", LIKE_ERROR, LOST, PLAIN, acts=True),
    Way("isError", LIKE_ERROR, LOST, PLAIN, acts=True),
    Way("error text", LIKE_ERROR, LOST, PLAIN, acts=True),
    Way("status member", LIKE_ERROR, LOST, PLAIN, acts=True),
    Way("failed check", NO_CHECK, LOST, (*PLAIN, *SAID_NOT_DONE), acts=True, always=True,
        step={"check": {"keys": ["number"]}}),
    Way("not JSON", NO_CHECK, LOST, PLAIN, acts=True),
    Way("a promise", NO_CHECK, LOST, ("sync", "async", "isolated"), acts=True),
    Way("too large", NO_CHECK, LOST, PLAIN, acts=True),
    Way("ToolError", TOOL_ERROR, NOT_DONE, (*PLAIN, *BY_STATUS)),
    Way("ToolError not lost", TOOL_ERROR, NOT_DONE, PLAIN),
    Way("ToolError from NotDone", TOOL_ERROR, NOT_DONE, PLAIN),
    Way("ToolError lost", TOOL_ERROR_LOST, LOST, (*PLAIN, *BY_STATUS), acts=True),
    Way("ToolError from", TOOL_ERROR_LOST, LOST, PLAIN, acts=True),
    Way("ToolError while", TOOL_ERROR_LOST, LOST, PLAIN, acts=True),
    Way("ToolError from None", TOOL_ERROR_LOST, LOST, PLAIN, acts=True),
    Way("RateLimited", LIMITED, NOT_DONE, (*PLAIN, *BY_STATUS)),
    Way("RateLimited while", TOOL_ERROR_LOST, LOST, PLAIN),
    Way("answered not now", LIKE_ERROR, LOST, PLAIN),
    Way("NotDone", TOOL_ERROR, NOT_DONE, (*PLAIN, *BY_STATUS)),
    Way("NotDone 500", TOOL_ERROR, NOT_DONE, (*PLAIN, *BY_STATUS)),
    Way("arguments refused", REFUSED_ARGS, NOT_DONE, PLAIN, always=True, again=False, args={"n": UNFIT}),
    Way("exception before", EXCEPTION, LOST, PLAIN),
    Way("exception after", EXCEPTION, LOST, PLAIN, acts=True),
    Way("assertion", EXCEPTION, LOST, PLAIN, acts=True),
    Way("SystemExit", EXCEPTION, LOST, PLAIN, acts=True),
    Way("connection refused", EXCEPTION, LOST, PLAIN),
    Way("connection broken", EXCEPTION, LOST, PLAIN, acts=True),
    Way("TimeoutError", EXCEPTION, LOST, PLAIN, acts=True),
    Way("raised 404", EXCEPTION, LOST, PLAIN, again=False),
    Way("raised 500", EXCEPTION, LOST, PLAIN, acts=True),
    Way("raised 429 Retry-After", EXCEPTION, LOST, ("sync", "async", "langchain")),
    Way("raised 503 Retry-After", EXCEPTION, LOST, ("sync", "async", "langchain")),
    Way("timeout", TIMEOUT, LOST, ("sync", "async"), acts=True, step=SHORT),
    Way("timeout", TIMEOUT, LOST, ("isolated",), acts=True, step={"timeout": 4.0}),  # a process has to start first
    Way("late", ANSWERED, DONE, ("sync",), acts=True, step=SHORT, repeatable=LOST),
    Way("worker killed", TIMEOUT, LOST, ("isolated", "isolated_by_status", "isolated_not_done"), acts=True),
    Way("worker exits", TIMEOUT, LOST, ("isolated", "isolated_not_done"), acts=True),
    Way("exception before", SAYS_NOT_DONE, NOT_DONE, SAID_NOT_DONE),
    Way("success false before", SAYS_NOT_DONE, NOT_DONE, SAID_NOT_DONE),
    Way("connection refused", SAYS_STATUS, NOT_DONE, BY_STATUS),
    Way("raised 404", SAYS_STATUS, NOT_DONE, BY_STATUS, again=False),
    Way("raised 409", SAYS_STATUS, NOT_DONE, BY_STATUS, again=False),
    Way("raised 425", SAYS_STATUS, NOT_DONE, BY_STATUS),
    Way("raised 429 Retry-After", SAYS_STATUS, NOT_DONE, ("by_status",)),
    Way("raised 503 Retry-After", SAYS_STATUS, NOT_DONE, ("by_status",)),
    Way("raised 408", SAYS_OTHER, LOST, BY_STATUS, acts=True),
    Way("raised 500", SAYS_OTHER, LOST, BY_STATUS, acts=True),
    Way("raised 502", SAYS_OTHER, LOST, BY_STATUS, acts=True),
    Way("raised 503", SAYS_OTHER, LOST, BY_STATUS, acts=True),
    Way("raised 504", SAYS_OTHER, LOST, BY_STATUS, acts=True),
    Way("raised 302", SAYS_OTHER, LOST, BY_STATUS, acts=True),
    Way("exception after", SAYS_OTHER, LOST, BY_STATUS, acts=True),
    Way("connection broken", SAYS_OTHER, LOST, BY_STATUS, acts=True),
    Way("refused after reset", SAYS_OTHER, LOST, BY_STATUS, acts=True),
    Way("timed out elsewhere", SAYS_OTHER, LOST, BY_STATUS, acts=True),
    Way("odd elsewhere", SAYS_OTHER, LOST, BY_STATUS, acts=True, again=False),
]  # fmt: skip

# A command's first call ends with these lines of a script, in the folder where calls and effects are counted.
SCRIPTS: dict[str, str] = {
    "answered": "echo x >> effects",
    "status 1": "echo x >> effects; echo reason >&2; exit 1",
    "status 1 before": "exit 1",
    "status listed": "exit 75",
    "killed by a signal": "echo x >> effects; kill -9 $$",
    "too large": "echo x >> effects; head -c 30000 /dev/zero",
    "timeout": "echo x >> effects; sleep 30",
    "error in JSON": 'echo x >> effects; echo \'{"error": "database is locked"}\'',
    "not JSON": "echo x >> effects; echo no json",
}

COMMANDS = [
    Way("answered", ANSWERED, DONE, ("shell",), acts=True),
    Way("status 1", EXIT_OTHER, LOST, ("shell",), acts=True),
    Way("killed by a signal", EXIT_OTHER, LOST, ("shell",), acts=True),
    Way("killed by a signal", EXIT_OTHER, LOST, ("shell",), acts=True, tool="not_done"),
    Way("status listed", EXIT_LISTED, NOT_DONE, ("shell",)),
    Way("status 1 before", SAYS_NOT_DONE, NOT_DONE, ("shell",), tool="not_done"),
    Way("not found", EXIT_LISTED, NOT_DONE, ("shell",), always=True, again=False, tool="missing"),
    Way("not found under limits", EXIT_LISTED, NOT_DONE, ("shell",), always=True, again=False, tool="missing_limited"),
    Way("no folder", EXIT_LISTED, NOT_DONE, ("shell",), always=True, again=False, tool="no_folder"),
    Way("arguments refused", REFUSED_ARGS, NOT_DONE, ("shell",), always=True, again=False, args={"way": "a\0b"}),
    Way("too large", NO_CHECK, LOST, ("shell",), acts=True),
    Way("not JSON", NO_CHECK, LOST, ("shell",), acts=True, tool="json"),
    Way("error in JSON", LIKE_ERROR, LOST, ("shell",), acts=True, tool="json"),
    Way("failed check", NO_CHECK, LOST, ("shell",), acts=True, always=True, args={"way": "answered"},
        step={"check": {"keys": ["number"]}}),
    Way("timeout", TIMEOUT, LOST, ("shell",), acts=True, step={"timeout": 0.6}),
]  # fmt: skip

REFUSALS = (400, 404, 409, 425, 429)
UNSURE = (408, 500, 502, 503, 504)
ONCE_ONLY = (400, 404, 409)  # their category is permanent: asking again would not help

REQUESTS = [
    Way("answered", ANSWERED, DONE, ("http",), acts=True),
    *(
        Way(f"status {status}", STATUS_REFUSED, NOT_DONE, ("http",), again=status not in ONCE_ONLY)
        for status in REFUSALS
    ),
    Way("status 429 Retry-After", STATUS_REFUSED, NOT_DONE, ("http",)),
    Way("status 503 Retry-After", STATUS_REFUSED, NOT_DONE, ("http",)),
    *(Way(f"status {status}", STATUS_OTHER, LOST, ("http",), acts=True) for status in UNSURE),
    Way("status 302", STATUS_OTHER, LOST, ("http",), acts=True),
    Way("status 307", STATUS_OTHER, LOST, ("http",), acts=True),
    Way("refused", NOT_SENT, NOT_DONE, ("http",), always=True, tool="closed"),
    Way("name not found", NOT_SENT, NOT_DONE, ("http",), always=True, tool="nowhere"),
    Way("TLS not agreed", NOT_SENT, NOT_DONE, ("http",), always=True, tool="tls"),
    Way("no answer", BROKEN, LOST, ("http",), acts=True),
    Way("no answer", BROKEN, LOST, ("http",), acts=True, tool="not_done"),
    Way("status 500 before", SAYS_NOT_DONE, NOT_DONE, ("http",), tool="not_done"),
    Way("cut off", BROKEN, LOST, ("http",), acts=True),
    Way("head cut off", BROKEN, LOST, ("http",), acts=True),
    Way("unreadable", BROKEN, LOST, ("http",), acts=True),
    Way("too large", NO_CHECK, LOST, ("http",), acts=True),
    Way("failed check", NO_CHECK, LOST, ("http",), acts=True, always=True, args={"way": "answered"},
        step={"check": {"keys": ["number"]}}),
    Way("success false", LIKE_ERROR, LOST, ("http",), acts=True),
    Way("error member", LIKE_ERROR, LOST, ("http",), acts=True),
    Way("arguments refused", REFUSED_ARGS, NOT_DONE, ("http",), always=True, again=False, args={"way": ".."}),
    Way("timeout", TIMEOUT, LOST, ("http",), acts=True, step={"timeout": 0.6}),
]  # fmt: skip

SERVERS = [
    Way("answered", ANSWERED, DONE, MCP, acts=True),
    Way("isError", IS_ERROR, LOST, MCP, acts=True),
    Way("isError of an exception", IS_ERROR, LOST, MCP, acts=True),
    Way("isError before", SAYS_NOT_DONE, NOT_DONE, MCP, tool="not_done"),
    Way("internal error", IS_ERROR, LOST, MCP, acts=True),
    Way("code of ours -32090", IS_ERROR, LOST, MCP, acts=True),
    Way("code of ours -32091", IS_ERROR, LOST, MCP, acts=True),
    Way("code of ours -32092", IS_ERROR, LOST, MCP, acts=True),
    Way("invalid params", REFUSED_ARGS, NOT_DONE, MCP, again=False),
    Way("unknown tool", REFUSED_ARGS, NOT_DONE, MCP, again=False),
    Way("success false", LIKE_ERROR, LOST, MCP, acts=True),
    Way("error text", LIKE_ERROR, LOST, MCP, acts=True),
    Way("failed check", NO_CHECK, LOST, MCP, acts=True, always=True, args={"way": "answered"},
        step={"check": {"keys": ["number"]}}),
    Way("timeout", TIMEOUT, LOST, MCP, acts=True, step={"timeout": 1.0}),
    Way("killed", BROKEN, LOST, ("mcp_stdio",), acts=True),
    Way("killed", BROKEN, LOST, ("mcp_stdio",), acts=True, tool="not_done"),
    *(
        Way(f"status {status}", STATUS_REFUSED, NOT_DONE, ("mcp_raw",), again=status not in ONCE_ONLY)
        for status in REFUSALS
    ),
    Way("status 429 Retry-After", STATUS_REFUSED, NOT_DONE, ("mcp_raw",)),
    Way("status 503 Retry-After", STATUS_REFUSED, NOT_DONE, ("mcp_raw",)),
    *(Way(f"status {status}", STATUS_OTHER, LOST, ("mcp_raw",), acts=True) for status in UNSURE),
    Way("status 302", STATUS_OTHER, LOST, ("mcp_raw",), acts=True),
    Way("status 307", STATUS_OTHER, LOST, ("mcp_raw",), acts=True),
    Way("cut off", BROKEN, LOST, ("mcp_raw",), acts=True),
    Way("unreadable", BROKEN, LOST, ("mcp_raw",), acts=True),
    Way("no result", BROKEN, LOST, ("mcp_raw",), acts=True),
    Way("refused", NOT_SENT, NOT_DONE, ("mcp_raw",), always=True, tool="gone"),
]  # fmt: skip

RAY = [
    Way("answered", ANSWERED, DONE, ("ray",), acts=True),
    Way("success false", LIKE_ERROR, LOST, ("ray",), acts=True),
    Way("not JSON", NO_CHECK, LOST, ("ray",), acts=True),
    Way("ToolError", TOOL_ERROR, NOT_DONE, ("ray",)),
    Way("ToolError from", TOOL_ERROR_LOST, LOST, ("ray",), acts=True),
    Way("RateLimited", LIMITED, NOT_DONE, ("ray",)),
    Way("NotDone", TOOL_ERROR, NOT_DONE, ("ray",)),
    Way("arguments refused", REFUSED_ARGS, NOT_DONE, ("ray",), always=True, again=False, args={"n": UNFIT}),
    Way("exception after", EXCEPTION, LOST, ("ray",), acts=True),
    Way("SystemExit", EXCEPTION, LOST, ("ray",), acts=True),
    Way("timeout", TIMEOUT, LOST, ("ray",), acts=True, step={"timeout": 1.0}),
    Way("worker killed", TIMEOUT, LOST, ("ray",), acts=True),
    Way("no room", NO_ROOM, NOT_DONE, ("ray",), always=True, step={"resources": {"nowhere": 1}}),
]

WAYS = [*FUNCTIONS, *COMMANDS, *REQUESTS, *SERVERS]
