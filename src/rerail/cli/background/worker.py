"""A worker process: drives runs that a launching command reserved, and their follow-ups (contract T7, T8, T9).

Started as `python -m rerail.cli.background.worker RUN`; `rerail worker --only RUN` does the same by hand.

Rules of this file:
- The history is the protocol: the launcher reads there that a run was taken up, and its result.
- Orders come by stdin, a line each. The first has the options of the launching command: they may hold secrets, and so
  stand neither in `ps` nor in a history. Each further line is a reserved run. The launcher may end at any time.
- Everything printed goes to the run's log, a plain file, through a process that redacts (`log_relay`): it holds a
  tool's prints however the worker ends. No code
  reads it back as truth. The worker's own lines begin with a time, their kind, and the run; a line without that is a
  tool's, and belongs to the run of the last line that has one.
- One run at a time, so that a line belongs to one run; only notices of earlier runs may still be on their way.
- A run that cannot be taken up ends the process: the launcher then gives the reservation up.
- TERM hands the run over: no call starts, calls under way get `worker.grace` seconds, the lease is released. A second
  TERM ends it as a crash would: calls are cancelled. The run can be resumed.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from rerail.api import Engine
from rerail.cli.background import log_relay
from rerail.cli.display.live import LogLines, is_quiet
from rerail.cli.display.run_view import Picture
from rerail.cli.options import Common
from rerail.cli.output import Output
from rerail.cli.session import Session
from rerail.engine.printed import EVENT, TIME, WORKER
from rerail.errors import RerailError
from rerail.kernel.events import Record
from rerail.values.redaction import Scrub
from rerail.workspace import make_home


def open_log(file: Path) -> int:
    """Open a log for appending; returns its descriptor."""
    make_home(file.parent)
    return os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)


class LogRelay:
    """The process that writes this one's output into logs, without secrets (`log_relay`)."""

    def __init__(self) -> None:
        self._orders, theirs = socket.socketpair()
        command = [sys.executable, "-I", "-S", "-B", log_relay.__file__, str(theirs.fileno())]
        nothing = subprocess.DEVNULL
        with theirs:
            subprocess.Popen(
                command, pass_fds=[theirs.fileno()], stdin=nothing, stdout=nothing, stderr=nothing, cwd="/",
                start_new_session=True,
            ).returncode = 0  # fmt: skip  # it outlives this process: there is no exit to wait for

    def redact(self, patterns: Sequence[str]) -> None:
        """Redact these secrets from now on."""
        self._orders.sendall(msgspec.json.encode({"patterns": patterns}) + b"\n")

    def opened(self, log: int) -> int:
        """Return the end of a pipe that leads into a log."""
        theirs, ours = os.pipe()
        try:
            socket.send_fds(self._orders, [b"{}\n"], [theirs, log])
        except BaseException:
            os.close(ours)
            raise
        finally:
            os.close(theirs)
        return ours


class WorkerLog:
    """Writes this process's output and the events of its runs to the log of the run at work."""

    def __init__(self, out: Output) -> None:
        self.out = out
        self._told: dict[str, tuple[Picture, LogLines]] = {}
        self._relay = LogRelay()

    def redact(self, scrub: Scrub) -> None:
        """Redact these secrets, and later ones, in all that is printed from now on."""
        scrub.follow(self._relay.redact)

    def turn_to(self, file: str) -> None:
        """Redirect prints to this log from now on; without one they are lost, and the run goes on."""
        self._told.clear()
        try:
            log = open_log(Path(file))
        except OSError:
            log = os.open(os.devnull, os.O_WRONLY)
        self._flush()
        try:
            pipe = self._relay.opened(log)
        except OSError:
            pipe = os.open(os.devnull, os.O_WRONLY)
        os.dup2(pipe, 1)
        os.dup2(pipe, 2)
        os.close(pipe)
        os.close(log)

    def follow(self, run: str, history: Iterable[Record], after: int) -> None:
        """Write the lines of a run's events ``after`` a moment; earlier ones only give the run's state."""
        picture = Picture(run)
        self._told[run] = picture, LogLines(self.out, picture.state)
        for record in history:
            if record.seq <= after:
                picture.feed(record)
            else:
                self.observe(record)

    def observe(self, record: Record) -> None:
        """Write the line of a durable event."""
        if record.seq == 1:
            self.follow(record.run, (), 0)
        if record.run not in self._told:
            return
        picture, lines = self._told[record.run]
        if record.seq <= picture.seq:
            return
        picture.feed(record)
        line = None if is_quiet(record.event) else lines.line(record)
        if line is not None:
            self._write(EVENT, record.run, line.plain)

    def word(self, run: str, words: str) -> None:
        """Write a message of the worker itself."""
        self._write(WORKER, run, words)

    def _write(self, kind: str, run: str, words: str) -> None:
        now = datetime.now(UTC).strftime(TIME)
        data = "".join(f"{now} {kind} {run}: {line}\n" for line in words.split("\n")).encode("utf-8", "replace")
        self._flush()
        with contextlib.suppress(OSError):  # a full disk is no reason to stop
            while data:
                data = data[os.write(1, data) :]

    @staticmethod
    def _flush() -> None:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):
                stream.flush()


FAILED, TERMINATED = 1, 128 + signal.SIGTERM
MAX_CLOSING = 20  # runs at rest with notices on their way while the next run is driven
THREADS_END_WITHIN = 5.0  # seconds that threads of tools may keep the process alive
LONGEST_LINE = 2**30


class LaunchOptions(msgspec.Struct, frozen=True):
    """The options of the launching command."""

    common: Common
    path: tuple[str, ...]  # where modules are looked for


class Reservation(msgspec.Struct, frozen=True):
    """A run that the launcher holds for this worker."""

    run: str
    fence: int  # of the launcher's lease, which the worker takes over
    after: int  # the last event before the command; this worker logs the later ones
    log: str
    notices: tuple[str, ...]  # of the launcher, when it became the run's owner


class Worker:
    """Drives one reserved run after another."""

    def __init__(self, orders: int) -> None:
        self._orders = orders
        self._out = Output(color=False, quiet=True)  # English, as logs are (contract T12)
        self._log = WorkerLog(self._out)
        self._home = os.getcwd()
        self._driving = ""
        self._serving: asyncio.Task[Any] | None = None
        self._handing: asyncio.Task[None] | None = None  # over what was under way at the first TERM
        self._open: set[asyncio.Task[None]] = set()  # the last of them may be at work, the others close

    async def serve(self) -> int:
        """Work until the launcher has no more runs; return the exit code."""
        loop, reader = asyncio.get_running_loop(), asyncio.StreamReader(limit=LONGEST_LINE)
        pipe = os.fdopen(self._orders, "rb", buffering=0)
        transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), pipe)
        self._serving = asyncio.current_task()
        try:
            if not (line := await reader.readline()).endswith(b"\n"):  # half a line: the launcher died
                return FAILED
            options = msgspec.json.decode(line, type=LaunchOptions)
            sys.path += [folder for folder in options.path if folder not in sys.path]
            while (line := await reader.readline()).endswith(b"\n"):
                await self._until_over(options.common, msgspec.json.decode(line, type=Reservation))
            await self._closed(0)
        except RerailError:
            return FAILED  # its log has the reason
        except asyncio.CancelledError:
            return TERMINATED
        finally:
            for task in self._open:
                task.cancel()
            await asyncio.gather(*self._open, return_exceptions=True)
            transport.close()
        return 0

    async def _until_over(self, common: Common, reserved: Reservation) -> None:
        """Drive a run until it is over; its notices may still be on their way then."""
        over = asyncio.Event()
        task = asyncio.create_task(self._do(common, reserved, over))
        task.add_done_callback(lambda _: over.set())
        self._open.add(task)
        await over.wait()
        await self._closed(MAX_CLOSING)

    async def _closed(self, most: int) -> None:
        """Wait until at most so many runs are not closed; raise the error that ended one of them."""
        while True:
            for task in [task for task in self._open if task.done()]:
                self._open.discard(task)
                task.result()
            if len(self._open) <= most:
                return
            await asyncio.wait(self._open, return_when=asyncio.FIRST_COMPLETED)

    async def _do(self, common: Common, reserved: Reservation, over: asyncio.Event) -> None:
        """Take a run up and stay with it; its log gets the errors."""
        self._driving = ""
        with contextlib.suppress(OSError):
            os.chdir(self._home)  # a tool of an earlier run may have changed it
        self._log.turn_to(reserved.log)
        try:
            session = Session(
                common, self._out, worker=True, observe=self._log.observe,
                on_notice=lambda told: self._log.word(reserved.run, str(told)),
            )  # fmt: skip
            async with session.reopened(reserved.run) as (engine, run):
                asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, self._leave)
                self._log.redact(engine.internals.scrub)
                for notice in reserved.notices:
                    self._log.word(run, notice)
                self._log.follow(run, await engine.events(run), reserved.after)
                await engine.internals.take_reserved(run, reserved.fence)
                self._driving = run
                self._word("cli.worker.began", run=run)
                await self._drive(engine, session.settings.worker.grace)
                over.set()
        except RerailError as error:
            if over.is_set():
                return  # the run's result is recorded, and only its closing failed
            message = self._out.said(error)[1]
            self._log.word(self._driving or reserved.run, self._out.say("cli.worker.broke", message=message))
            if not self._driving:
                raise
        except asyncio.CancelledError:
            if self._driving and not over.is_set():
                self._word("cli.worker.terminated", run=self._driving, where=self._out.where)
            raise

    async def _drive(self, engine: Engine, grace: float) -> None:
        """Stay with the run and its follow-ups, until this engine drives none; told to end, hand it over."""
        try:
            while driven := list(engine.internals.under_way()):
                for run in driven:
                    self._driving = run
                    self._word("cli.worker.ended", run=run, status=(await engine.wait(run)).status)
        except asyncio.CancelledError:
            if runs := engine.internals.under_way():
                self._word("cli.work.leaving", count=len(runs), seconds=grace)
                self._handing = asyncio.create_task(engine.internals.hand_over(grace))
                await asyncio.wait([self._handing])
            raise

    def _word(self, key: str, **values: Any) -> None:
        self._log.word(self._driving, self._out.say(key, pid=os.getpid(), **values))

    def _leave(self) -> None:
        if self._serving is not None:  # later signals must not disturb the shutdown
            self._serving.cancel()
            self._serving = None
        elif self._handing is not None:
            self._handing.cancel()


def _orders() -> int:
    """Give tools an empty stdin; return the descriptor of the orders."""
    orders = os.dup(0)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    return orders


def main() -> int:
    """Serve, and end even if a tool left threads behind."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # it belongs to no terminal
    code = asyncio.run(Worker(_orders()).serve())
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    end = threading.Timer(THREADS_END_WITHIN, os._exit, (code,))
    end.daemon = True
    end.start()
    return code


if __name__ == "__main__":
    sys.exit(main())
