"""Commands as tools (SPEC M2): an argument list with placeholders, never a shell string made of data.

Rules of this file:
- Each placeholder stays inside one argument, whatever its value holds: spaces, quotes, `;` and `$(…)` are just text.
- A command is one session: cancelling it ends everything that it started, TERM first, then KILL. It ends with the
  process that started it, too (`guardian`).
- An exit status says nothing of the effect, unless the tool lists it as `not_done` (X4).

An argument whose value begins with `-` is passed on, and most programs read it as an option. Where values come from
outside, put "--" in front of them (`["grep", "-r", "--", "{pattern}", "{folder}"]`), or join them to the option that
they belong to (`"--pattern={pattern}"`).
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import os
import shutil
import signal
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Unpack, get_args

from rerail.adapters.executors.endings import finished, uninterrupted
from rerail.adapters.executors.guardian import GUARDIAN, Watched
from rerail.adapters.tools.specs import Looks, Options, confinement, make_spec, unknown
from rerail.adapters.tools.templates import (
    Template,
    Values,
    bad_argument,
    has_key,
    is_once,
    knowing,
    parse,
    schema_for,
    text_of,
)
from rerail.context import Context
from rerail.core.plan import Effect
from rerail.errors import ToolError
from rerail.i18n import tell

Parse = Literal["text", "json", "lines"]

GRACE = 1.0
_TAIL = 2_000  # characters of stderr in an error's message
_MOST_STDERR = 64_000  # bytes; of more, the end is kept
_DRAIN = 0.5  # seconds for output that is still in the pipe when the command has ended


class CommandFailed(ToolError):
    """The command ended with a status that is not among the good ones, or could not be started."""

    def __init__(self, message: str, exit_code: int, code: str = "EXIT_STATUS", *, lost: bool = True) -> None:
        super().__init__(message, code=code, lost=lost)
        self.exit_code = exit_code
        self.unanswered = exit_code < 0  # killed by a signal: the command itself said nothing


class AnswerUnreadable(ToolError):
    """The command may have done its work, but its answer cannot be used; a `once` command is in doubt."""

    lost = unanswered = True


@dataclass(frozen=True, slots=True)
class _Command:
    """What is to be run, with its placeholders."""

    argv: tuple[Template, ...]
    env: Mapping[str, Template]
    cwd: Template | None
    stdin: Template | None

    def keyed(self) -> _Command:
        """The same, with `{key}` for the call's idempotency key."""
        return _Command(
            tuple(one.keyed() for one in self.argv),
            {name: one.keyed() for name, one in self.env.items()},
            self.cwd,
            None if self.stdin is None else self.stdin.keyed(),
        )

    def templates(self) -> list[Template]:
        return [*self.argv, *self.env.values(), *(one for one in (self.cwd, self.stdin) if one is not None)]


class ShellTool(Looks):
    """A command that plans can call: `rerail.shell("count", ["wc", "-l", "--", "{file}"], effect="read")`.

    A command is a list of arguments, never a shell's line; each `{placeholder}` is an argument of the tool and stays
    inside its own element, whatever its value holds. The output is {"stdout": …, "stderr": …, "status": …}, or as
    `parse` says. A status that is not `ok` is a failure; a command that was killed has lost its answer.

    Options:
        effect        what calling it twice does: "read" nothing, "repeatable" the same, "once" (default) must not be
        schema        a JSON schema of the arguments, instead of one made from the placeholders
        env           variables on top of the environment; placeholders are filled
        cwd           the working folder; placeholders are filled
        stdin         a text for the command to read; placeholders are filled
        max_output    the most bytes of stdout (1,000,000); a command that writes more is stopped
        parse         "text" (default), "json" (the output is what stdout holds), "lines" (a list of its lines)
        ok            the exit statuses that are a success: (0,)
        not_done      the exit statuses that say that nothing happened; any other tells nothing of the effect
        limits        of the command: {"memory": bytes, "file_size": bytes, "network": False, "processes": False}
        description   what models and `rerail tools` are told about it
        timeout       seconds for one call (a step's own beats it; without both, run.step_timeout)
        alternatives  other tools for the same job, by name, tried when this one fails
        provider      a name under which run.provider_concurrency limits calls
        check         what the output must meet: {"schema": …, "non_empty": true, "keys": […]}
        trust_output  True: outputs that look like errors are believed; or {"ignore": […], "suspect": […]}
        verify        a read-only look at the effect, of any of args, output, before, ctx: true, false or Verified
        probe         a read-only look before the call, of args and ctx; `verify` gets what it saw as `before`
        secrets       environment variables whose values nobody may see; those of `{env.NAME}` are among them
        cost          what one call costs, for run.max_cost (default: nothing)
        errors        "not_done": whatever its status, nothing happened; "by_status": it makes one
                      request, and the status decides; without, the effect of a `once` call that raised is unknown
        settle        seconds until `verify` can see the effect (5 for "once"); "never": absence is never believed
        idempotent_for  seconds for which the service remembers the call's key: a lost answer is asked for again
        on_doubt      "wait" or "fail", if its effect is in doubt
        fenced        never: a command goes on if its process is frozen and replaced

    `{key}` is the call's idempotency key in a `once` command, unless its schema has an argument of that name.
    """

    is_async = False  # something outside of the event loop is at work
    wants_context = True  # the key, and whether this process still owns the run

    def __init__(
        self,
        name: str,
        argv: Sequence[str],
        *,
        effect: Effect | str = Effect.ONCE,
        schema: Mapping[str, Any] | bool | None = None,
        env: Mapping[str, str] | None = None,
        cwd: str | os.PathLike[str] | None = None,
        stdin: str | None = None,
        max_output: int = 1_000_000,
        parse: Parse = "text",
        ok: Sequence[int] = (0,),
        not_done: Sequence[int] = (),
        limits: Mapping[str, Any] | None = None,
        **options: Unpack[Options],
    ) -> None:
        """Read the placeholders; ValueError says what is wrong with the declaration."""
        super().__init__(name, options, ("effect", "schema", *_WORDS))
        if parse not in get_args(Parse):
            raise ValueError(
                tell("tool.unknown_parse", name=name, parse=parse, known=unknown(str(parse), get_args(Parse)))
            )
        self._command = _command(name, argv, env or {}, cwd, stdin)
        if is_once(effect) and not has_key(schema):
            self._command = self._command.keyed()
        self._max_output = max_output
        self._limits = confinement(name, limits)
        self._parse = parse
        self._ok, self._not_done = tuple(ok), _statuses(name, ok, not_done)
        lists = [one.whole for one in self._command.argv if one.whole]
        shape = schema_for(name, self._command.templates(), lists, schema)
        declared = [list(argv), dict(env or {}), str(cwd or ""), stdin, parse, list(ok)]
        keyed = any(one.hands_key for one in self._command.templates())
        described = knowing(options, self._command.templates())
        self.spec = make_spec(name, shape, effect, declared, described, runs="process", keyed=keyed)

    def __repr__(self) -> str:
        return f"<tool {self.spec.name}>"

    async def call(self, args: dict[str, Any], ctx: Any = None) -> Any:
        """Run the command to its end; cancelling ends it and everything that it started."""
        values, stdin = Values(args, ctx), self._command.stdin
        if isinstance(ctx, Context):
            ctx.ensure_owner()
        # Cancelled half-way, asyncio would wait for whoever holds the pipes, and would not end what was started.
        process, cancelled = await uninterrupted(_start(self._command, values, self._max_output, self._limits))
        try:
            if cancelled:
                raise asyncio.CancelledError
            process.feed(None if stdin is None else stdin.fill(values))
            await process.ended()
        finally:
            await finished(process.stop())
        return self._output(process)

    def _output(self, process: Process) -> Any:
        status, stdout, stderr = process.status, _text(process.stdout), _text(process.stderr)
        if process.overflown:
            raise AnswerUnreadable(tell("error.shell.too_large", limit=self._max_output), code="OUTPUT_TOO_LARGE")
        if status not in self._ok:
            raise CommandFailed(_failure(status, stderr, stdout), status, lost=status not in self._not_done)
        if self._parse == "lines":
            return stdout.splitlines()
        if self._parse == "json":
            return _json(stdout)
        return {"stdout": stdout, "stderr": stderr, "status": status}


_WORDS = ("env", "cwd", "stdin", "max_output", "parse", "ok", "not_done", "limits")
shell = ShellTool


# --- Declaring -----------------------------------------------------------------------------------------------------


def _command(
    name: str,
    argv: Sequence[str],
    env: Mapping[str, str],
    cwd: str | os.PathLike[str] | None,
    stdin: str | None,
) -> _Command:
    label = tell("tool.label", name=name)
    if isinstance(argv, str) or not argv or not all(isinstance(one, str) for one in argv):
        raise ValueError(tell("tool.shell.no_list", label=label, argv=argv))
    if any("\0" in one for one in (*argv, *env, *env.values(), os.fspath(cwd or ""))):
        raise ValueError(tell("tool.shell.nul", label=label))
    if parse(argv[0], label).parts != (argv[0],):
        raise ValueError(tell("tool.shell.program", label=label, program=argv[0]))
    return _Command(
        argv=tuple(parse(one, tell("tool.label.argument", label=label, at=at)) for at, one in enumerate(argv)),
        env={key: parse(value, tell("tool.label.env", label=label, key=key)) for key, value in env.items()},
        cwd=None if cwd is None else parse(os.fspath(cwd), f"{label}: cwd"),
        stdin=None if stdin is None else parse(stdin, f"{label}: stdin"),
    )


def _statuses(name: str, ok: Sequence[int], not_done: Sequence[int]) -> tuple[int, ...]:
    known = isinstance(not_done, list | tuple) and all(type(one) is int and 0 < one < 256 for one in not_done)
    if not known:
        raise ValueError(tell("tool.shell.not_done", name=name, given=not_done))
    if both := sorted(set(ok) & set(not_done)):
        raise ValueError(tell("tool.shell.both", name=name, status=both[0]))
    return tuple(not_done)


# --- Filling -------------------------------------------------------------------------------------------------------


def _arguments(command: _Command, values: Values) -> list[str]:
    filled: list[str] = []
    for template in command.argv:
        value = values.get(template.whole) if template.whole else None
        if isinstance(value, list):
            filled += [_safe(template.whole or "", text_of(one)) for one in value]
        # An optional argument that was not given takes its whole element with it: "--out={path}" as well as "{path}".
        elif not template.absent(values):
            filled.append(template.fill(values, _safe))
    return filled


def _safe(name: str, text: str) -> str:
    """The text, if the operating system can pass it on."""
    if "\0" in text:
        raise bad_argument(tell("error.shell.nul", name=name))
    try:
        os.fsencode(text)
    except UnicodeEncodeError as error:
        raise bad_argument(tell("error.shell.bad_argument", name=name, error=error)) from error
    return text


def _environment(command: _Command, values: Values) -> dict[str, str] | None:
    if not command.env:
        return None
    own = {key: one.fill(values, _safe) for key, one in command.env.items() if not one.absent(values)}
    return {**os.environ, **own}


# --- Running -------------------------------------------------------------------------------------------------------


class Process(asyncio.SubprocessProtocol):
    """A running command: collects its output within the limit and tells when it has ended."""

    def __init__(self, limit: int) -> None:
        self.stdout = bytearray()
        self.stderr = bytearray()
        self.overflown = False
        self.status = 0
        self._limit = limit
        self._transport: asyncio.SubprocessTransport | None = None
        loop = asyncio.get_running_loop()
        # `ended` is the command, `drained` its pipes: a background process that it left may hold these open for ever.
        self._ended: asyncio.Future[None] = loop.create_future()
        self._drained: asyncio.Future[None] = loop.create_future()
        self._open = {1, 2}
        self._watched: Watched | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.SubprocessTransport)
        self._transport, self._watched = transport, GUARDIAN.watch(transport.get_pid())

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        if fd == 2:
            self.stderr += data
            del self.stderr[:-_MOST_STDERR]
        elif not self.overflown:
            self.stdout += data
            if len(self.stdout) > self._limit:
                self.overflown = True
                self.stdout.clear()
                self.signal(signal.SIGKILL)

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        self._open.discard(fd)
        if not self._open and not self._drained.done():
            self._drained.set_result(None)

    def process_exited(self) -> None:
        assert self._transport is not None
        self.status = self._transport.get_returncode() or 0
        if self._watched is not None:
            self._watched.release()
        if not self._ended.done():
            self._ended.set_result(None)

    def feed(self, text: str | None) -> None:
        """Give the command its stdin, and nothing after it."""
        assert self._transport is not None
        pipe = self._transport.get_pipe_transport(0)
        if text is not None and isinstance(pipe, asyncio.WriteTransport):
            pipe.write(text.encode("utf-8", "surrogateescape"))
            pipe.close()

    async def ended(self) -> None:
        """Wait for the command's end, and a moment longer for what is still in the pipes."""
        await asyncio.shield(self._ended)
        await asyncio.wait([self._drained], timeout=_DRAIN)

    async def stop(self) -> None:
        """End it if it has not ended, with everything that it started, and let go of the pipes."""
        assert self._transport is not None
        try:
            if not self._ended.done():
                self.signal(signal.SIGTERM)
                try:
                    await asyncio.wait([self._ended], timeout=GRACE)
                finally:
                    # Also if the command obeyed, for its children may not have; and if the loop is torn down meanwhile.
                    self.signal(signal.SIGKILL)
                    await asyncio.shield(self._ended)
        finally:
            self._transport.close()

    def signal(self, number: signal.Signals) -> None:
        assert self._transport is not None
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._transport.get_pid(), number)


async def _start(command: _Command, values: Values, limit: int, limits: str) -> Process:
    argv = _arguments(command, values)
    cwd = None if command.cwd is None else command.cwd.fill(values, _safe)
    env = _environment(command, values)
    if limits:
        _require_program(argv[0], cwd, env)
        argv = [*_confined(limits), *argv]
    stdin = asyncio.subprocess.DEVNULL if command.stdin is None else asyncio.subprocess.PIPE
    loop = asyncio.get_running_loop()
    GUARDIAN.open()
    try:
        _, process = await loop.subprocess_exec(
            lambda: Process(limit), *argv, stdin=stdin, cwd=cwd, env=env, start_new_session=True
        )
    except OSError as error:
        raise _not_started(argv[0], cwd, error) from error
    return process


def _require_program(program: str, cwd: str | None, env: Mapping[str, str] | None) -> None:
    """Refuse a command that is not there, before what limits it is started in its place (X4)."""
    place = os.path.join(cwd or "", program) if os.sep in program else program
    if shutil.which(place, path=(env or os.environ).get("PATH")) is None:
        raise CommandFailed(tell("error.shell.no_command", program=program), 127, lost=False)


def _confined(limits: str) -> list[str]:
    """What stands before a command to limit it."""
    from rerail.adapters.executors import confine

    return [sys.executable, "-I", "-S", confine.__file__, limits]


def _not_started(program: str, cwd: str | None, error: OSError) -> ToolError:
    """Why there is no process; the exit codes are those that a shell would give."""
    if error.errno == errno.E2BIG:
        return bad_argument(tell("error.shell.too_long", error=error))
    if cwd is not None and error.filename == cwd:
        told = tell("error.shell.no_folder", cwd=cwd, strerror=error.strerror)
        return CommandFailed(told, 126, lost=False)
    if isinstance(error, FileNotFoundError):
        return CommandFailed(tell("error.shell.no_command", program=program), 127, lost=False)
    return CommandFailed(tell("error.shell.not_started", program=program, error=error), 126, lost=False)


# --- Answers -------------------------------------------------------------------------------------------------------


def _text(data: bytearray) -> str:
    return data.decode("utf-8", "replace")


def _failure(status: int, stderr: str, stdout: str) -> str:
    said = (stderr.strip() or stdout.strip())[-_TAIL:]
    key = "error.shell.ended" if status >= 0 else "error.shell.killed"
    return tell(key, said=said or tell("error.shell.silent"), status=abs(status))


def _json(stdout: str) -> Any:
    try:
        return json.loads(stdout)
    except (ValueError, RecursionError) as error:
        shown = stdout.strip()[:200]
        raise AnswerUnreadable(tell("error.shell.not_json", error=error, shown=shown), "OUTPUT_NOT_JSON") from error
