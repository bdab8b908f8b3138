"""Shell commands as tools (contract M2): an argument list with placeholders, never a shell string.

Rules of this file:
- Each placeholder stays inside one argument, whatever its value holds: spaces, quotes, `;` and `$(…)` are just text.
- A value that is a list fills `{name...}` and nothing else. It stands behind "--", so that no item is an option.
- A command is one session: cancelling ends it with all its children, TERM first, then KILL. It also ends with the
  process that started it (`guardian`).
- An exit status says nothing of the effect, unless the tool lists it as `not_done` (contract X4).

A value that begins with `-` is passed on, and most programs read it as an option. For values from outside, put "--" in
front of them (`["grep", "-r", "--", "{pattern}", "{folder}"]`), or join them to their option (`"--pattern={pattern}"`).
"""

from __future__ import annotations

import asyncio
import errno
import json
import os
import shutil
import signal
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Unpack, get_args

from rerail.adapters.executors.processes.guardian import GUARDIAN, WatchedProcess
from rerail.adapters.executors.threads import finished, uninterrupted
from rerail.adapters.tools import templates
from rerail.adapters.tools.spec import Looks, Options, confinement, make_spec, unknown
from rerail.adapters.tools.templates import TextTemplate, Values, text_of
from rerail.context import Context, excerpt
from rerail.errors import ToolError
from rerail.i18n import tell
from rerail.plan.step import Effect, EffectName

Parse = Literal["text", "json", "lines"]

GRACE = 1.0
_TAIL = 2_000  # characters of stderr in an error's message
_DRAIN = 0.5  # seconds for output that is still in the pipe when the command has ended


class CommandFailed(ToolError):
    """The command ended with a failure status, or could not be started."""

    def __init__(self, message: str, exit_code: int, code: str = "EXIT_STATUS", *, lost: bool = True) -> None:
        super().__init__(message, code=code, lost=lost)
        self.exit_code = exit_code
        self.unanswered = exit_code < 0  # killed by a signal: the command itself gave no answer


class CommandOutputUnreadable(ToolError):
    """The command may have done its work, but its answer cannot be used; a `once` command is in doubt."""

    lost = unanswered = True


@dataclass(frozen=True, slots=True)
class _Command:
    """A command line with placeholders."""

    argv: tuple[TextTemplate, ...]
    env: Mapping[str, TextTemplate]
    cwd: TextTemplate | None
    stdin: TextTemplate | None

    def keyed(self) -> _Command:
        """Give `{key}` its meaning, the call's idempotency key."""
        return _Command(
            tuple(one.keyed() for one in self.argv),
            {name: one.keyed() for name, one in self.env.items()},
            self.cwd,
            None if self.stdin is None else self.stdin.keyed(),
        )

    def templates(self) -> list[TextTemplate]:
        return [*self.argv, *self.env.values(), *(one for one in (self.cwd, self.stdin) if one is not None)]


class ShellTool(Looks):
    """A command that plans can call: `rerail.shell("count", ["wc", "-l", "--", "{file}"], effect="read")`.

    A command is a list of arguments, never a shell's line; each `{placeholder}` is an argument of the tool and stays
    inside its own element, whatever its value holds. `{files...}` behind "--" is a list, an element for each item; it
    is never empty. The output is {"stdout": …, "stderr": …, "status": …}, or as
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
        secrets       environment variables with values to redact everywhere; includes those of `{env.NAME}`
        cost          what one call costs, for run.max_cost (default: nothing)
        errors        "not_done": whatever its status, nothing happened; "by_status": it makes one
                      request, and the status decides; without, the effect of a `once` call that raised is unknown
        settle        seconds until `verify` can see the effect (5 for "once"); "never": absence is never believed
        idempotent_for  seconds for which the service remembers the call's key: a lost answer is asked for again
        on_doubt      "wait" or "fail", if its effect is in doubt
        fenced        never: a command goes on if its process is frozen and replaced

    `{key}` is the call's idempotency key in a `once` command, unless its schema has an argument of that name.
    """

    is_async = False  # another process does the work, outside of the event loop
    wants_context = True  # for the key and the lease question

    def __init__(
        self,
        name: str,
        argv: Sequence[str],
        *,
        effect: EffectName = Effect.ONCE,
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
        if templates.is_once(effect) and not templates.has_key(schema):
            self._command = self._command.keyed()
        self._max_output = max_output
        self._limits = confinement(name, limits)
        self._parse = parse
        self._ok, self._not_done = tuple(ok), _statuses(name, ok, not_done)
        lists = [one.whole for one in self._command.argv if one.is_list and one.whole]
        shape = templates.schema_for(name, self._command.templates(), lists, schema)
        declared = [list(argv), dict(env or {}), str(cwd or ""), stdin, parse, list(ok)]
        keyed = any(one.hands_key for one in self._command.templates())
        described = templates.knowing(options, self._command.templates())
        self.spec = make_spec(name, shape, effect, declared, described, runs="process", keyed=keyed)

    async def call(self, args: dict[str, Any], ctx: Any = None) -> Any:
        """Run the command to its end; cancelling ends it with all its children."""
        values, stdin = Values(args, ctx), self._command.stdin
        if isinstance(ctx, Context):
            ctx.ensure_owner()
        # Cancelled half-way, asyncio would wait for every holder of the pipes, and leave the command running.
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
        status, stdout, stderr = process.status, process.stdout.decode("utf-8", "replace"), process.said()
        if process.overflown:
            raise CommandOutputUnreadable(
                tell("error.shell.too_large", limit=self._max_output), code="OUTPUT_TOO_LARGE"
            )
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
    if templates.parse(argv[0], label).parts != (argv[0],):
        raise ValueError(tell("tool.shell.program", label=label, program=argv[0]))
    words = [
        templates.parse(one, tell("tool.label.argument", label=label, at=at), lists=True) for at, one in enumerate(argv)
    ]
    for at, word in enumerate(words):
        if word.is_list and "--" not in argv[:at]:
            raise ValueError(tell("tool.shell.list_before", label=label, name=word.whole))
    return _Command(
        argv=tuple(words),
        env={key: templates.parse(value, tell("tool.label.env", label=label, key=key)) for key, value in env.items()},
        cwd=None if cwd is None else templates.parse(os.fspath(cwd), f"{label}: cwd"),
        stdin=None if stdin is None else templates.parse(stdin, f"{label}: stdin"),
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
        if template.is_list:
            filled += _items(template.whole or "", values)
        # An optional argument that was not given drops its whole element: "--out={path}" as well as "{path}".
        elif not template.absent(values):
            for name in template.names:
                if isinstance(values.get(name), list):  # its items could become options, or vanish
                    raise templates.bad_argument(tell("error.shell.no_list", name=name))
            filled.append(template.fill(values, _safe))
    return filled


def _items(name: str, values: Values) -> list[str]:
    """Return the arguments of a list: an empty one would change what the command does."""
    value = values.get(name)
    if not isinstance(value, list) or not value:
        raise templates.bad_argument(tell("error.shell.list", name=name, value=excerpt(repr(value), 200)))
    return [_safe(name, text_of(one)) for one in value]


def _safe(name: str, text: str) -> str:
    """Return the text if the operating system can pass it on."""
    if "\0" in text:
        raise templates.bad_argument(tell("error.shell.nul", name=name))
    try:
        os.fsencode(text)
    except UnicodeEncodeError as error:
        raise templates.bad_argument(tell("error.shell.bad_argument", name=name, error=error)) from error
    return text


def _environment(command: _Command, values: Values) -> dict[str, str] | None:
    if not command.env:
        return None
    own = {key: one.fill(values, _safe) for key, one in command.env.items() if not one.absent(values)}
    return {**os.environ, **own}


# --- Running -------------------------------------------------------------------------------------------------------


class Process(WatchedProcess):
    """A running command: collects its output within the limit and reports its end."""

    def __init__(self, limit: int) -> None:
        super().__init__()
        self.stdout = bytearray()
        self.overflown = False
        self.status = 0
        self._limit = limit
        # `exited` is the command, `drained` its pipes: a surviving background process may hold these open for ever.
        self._drained: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._open = {1, 2}

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        super().pipe_data_received(fd, data)
        if fd != 2 and not self.overflown:
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
        self.status = self.transport.get_returncode() or 0
        super().process_exited()

    def feed(self, text: str | None) -> None:
        """Write the command's stdin and close it."""
        pipe = self.stdin
        if text is not None and pipe is not None:
            pipe.write(text.encode("utf-8", "surrogateescape"))
            pipe.close()

    async def ended(self) -> None:
        """Wait for the command's end, and a moment longer for output in the pipes."""
        await asyncio.shield(self.exited)
        await asyncio.wait([self._drained], timeout=_DRAIN)

    async def stop(self) -> None:
        """End the command and its children if it still runs, and close the pipes."""
        try:
            if not self.exited.done():
                self.signal(signal.SIGTERM)
                try:
                    await asyncio.wait([self.exited], timeout=GRACE)
                finally:
                    # Also after the command obeyed (its children may not have), and while the loop is torn down.
                    self.signal(signal.SIGKILL)
                    await asyncio.shield(self.exited)
        finally:
            self.transport.close()


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
    """Refuse a missing command before its limiter is started in its place (contract X4)."""
    place = os.path.join(cwd or "", program) if os.sep in program else program
    if shutil.which(place, path=(env or os.environ).get("PATH")) is None:
        raise CommandFailed(tell("error.shell.no_command", program=program), 127, lost=False)


def _confined(limits: str) -> list[str]:
    """Return the prefix of a command that sets its limits."""
    from rerail.adapters.executors.processes import limits as confine

    return [sys.executable, "-I", "-S", confine.__file__, limits]


def _not_started(program: str, cwd: str | None, error: OSError) -> ToolError:
    """Return why there is no process, with a shell's exit codes."""
    if error.errno == errno.E2BIG:
        return templates.bad_argument(tell("error.shell.too_long", error=error))
    if cwd is not None and error.filename == cwd:
        told = tell("error.shell.no_folder", cwd=cwd, strerror=error.strerror)
        return CommandFailed(told, 126, lost=False)
    if isinstance(error, FileNotFoundError):
        return CommandFailed(tell("error.shell.no_command", program=program), 127, lost=False)
    return CommandFailed(tell("error.shell.not_started", program=program, error=error), 126, lost=False)


# --- Answers -------------------------------------------------------------------------------------------------------


def _failure(status: int, stderr: str, stdout: str) -> str:
    said = excerpt(stderr.strip() or stdout.strip(), _TAIL, tail=True)
    key = "error.shell.ended" if status >= 0 else "error.shell.killed"
    return tell(key, said=said or tell("error.shell.silent"), status=abs(status))


def _json(stdout: str) -> Any:
    try:
        return json.loads(stdout)
    except (ValueError, RecursionError) as error:
        shown = excerpt(stdout.strip(), 200)
        raise CommandOutputUnreadable(
            tell("error.shell.not_json", error=error, shown=shown), "OUTPUT_NOT_JSON"
        ) from error
