"""Launch of worker processes for reserved runs; their progress is read in the history (contract T8, T4).

Rules of this file:
- The launching command does its own work: it checks, writes, and reserves the run. The worker only drives it.
- A worker is in a session of its own: no terminal, no Ctrl-C and no closed window of the launcher reaches it.
- Once it has taken its run up, the launcher neither waits for it nor ends it.
- If it dies before that, the reservation ends with the launcher: the run can be resumed, here or by another worker.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import msgspec
from rich.text import Text

from rerail.api import Engine
from rerail.cli.background.worker import LaunchOptions, Reservation, open_log
from rerail.cli.display.report import RetryReport
from rerail.cli.options import Common
from rerail.cli.output import Output
from rerail.cli.session import Session
from rerail.engine.printed import log_file
from rerail.errors import Refused

# -P: a file in the working folder that is named like a standard module must not shadow it.
COMMAND = (sys.executable, "-P", "-m", "rerail.cli.background.worker")
SIGNAL_GAP = 0.2  # seconds between two signals, which would else be one
LEAVE_WITHIN = 8.0  # seconds of a worker to release its run
END_WITHIN = 1.0  # seconds of waiting for a worker without further runs
LOOK_EVERY = 0.02
RELAYED = 0.2  # seconds for the last lines of a dead worker to be in its log
PIPE_ROOM = 4_096  # bytes that any pipe holds before its reader is there; more could block for ever
TAIL_LINES, TAIL_BYTES = 20, 20_000


class _Process(subprocess.Popen[bytes]):
    """A process that may outlive this one without a warning."""

    def __del__(self) -> None:
        """Forget the process; it is meant to go on."""
        super().__del__(_warn=lambda *_, **__: None)  # type: ignore[call-arg]


class WorkerHandle:
    """A worker process as its launcher sees it."""

    def __init__(self, common: Common, reserved: Reservation, out: Output) -> None:
        options = LaunchOptions(common, tuple(sys.path))
        orders = msgspec.json.encode(options) + b"\n" + msgspec.json.encode(reserved) + b"\n"
        try:
            log = open_log(Path(reserved.log))
        except OSError as problem:  # a run is worth more than its log
            out.note(Text(out.say("cli.worker.no_log", file=reserved.log, reason=problem.strerror), "yellow"))
            log = os.open(os.devnull, os.O_WRONLY)
        self._log, self._log_start = Path(reserved.log), os.fstat(log).st_size
        stdin, self._orders = os.pipe()
        try:
            # The pipe is filled before the process starts: a launcher that dies now leaves a worker with orders.
            os.write(self._orders, orders[:PIPE_ROOM])
            words = [*COMMAND, reserved.run]  # the run is for `ps` alone
            self._process = _Process(words, stdin=stdin, stdout=log, stderr=log, start_new_session=True)
        except BaseException:
            self.forget()
            raise
        finally:
            os.close(stdin)
            os.close(log)
        self._order(orders[PIPE_ROOM:])

    @property
    def pid(self) -> int:
        """Return its pid; the pid is not reused, since the process is waited for only after its end."""
        return self._process.pid

    def give(self, reserved: Reservation) -> None:
        """Order one more run; `takes_up` reports a dead worker."""
        self._order(msgspec.json.encode(reserved) + b"\n")

    def _order(self, data: bytes) -> None:
        with contextlib.suppress(OSError):
            while data:
                data = data[os.write(self._orders, data) :]

    async def takes_up(self, engine: Engine, reserved: Reservation) -> bool:
        """Wait until the worker has taken over the run's lease; False if it died before."""
        while True:
            dead = self._process.poll() is not None  # asked first: it may take up, finish and end in between
            head = await engine.internals.head(reserved.run)
            if head.fence != reserved.fence and (head.owner is None or head.owner.pid == self.pid):
                return True
            if dead:
                return False
            await asyncio.sleep(LOOK_EVERY)

    @property
    def is_dead(self) -> bool:
        """Return True if the process has ended."""
        return self._process.poll() is not None

    def status(self) -> str:
        """Return its exit status, or the signal that killed it."""
        known = {-number: number.name for number in signal.Signals}
        return known.get(self._process.returncode, str(self._process.returncode))

    async def wait(self, seconds: float) -> bool:
        """Wait for the process to end; False on timeout."""
        for _ in range(round(seconds / LOOK_EVERY)):
            if self.is_dead:
                return True
            await asyncio.sleep(LOOK_EVERY)
        return self.is_dead

    async def end(self) -> None:
        """End it at once and wait for the release of its run; kill it if it takes too long."""
        for _ in range(2):  # the first signal alone would give calls under way `worker.grace` to end
            if not self.is_dead:
                self._process.terminate()
                await self.wait(SIGNAL_GAP)
        if not await self.wait(LEAVE_WITHIN):
            self._process.kill()
            await self.wait(LEAVE_WITHIN)

    def tail(self) -> str:
        """Return the last lines of its log, since its launch."""
        time.sleep(RELAYED)
        with contextlib.suppress(OSError), self._log.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(self._log_start, size - TAIL_BYTES))
            return "\n".join(file.read().decode("utf-8", "replace").splitlines()[-TAIL_LINES:])
        return ""

    def forget(self) -> None:
        """Give it no more runs; it goes on with its present one."""
        orders, self._orders = self._orders, -1
        with contextlib.suppress(OSError):
            os.close(orders)


def reservation_of(engine: Engine, out: Output, run: str, after: int) -> Reservation | None:
    """Return a worker's order for a run; None if the engine did not reserve it."""
    if (fence := engine.internals.reservation(run)) is None:
        return None
    notices = tuple(words for words in out.noticed if run in words)
    return Reservation(run, fence, after, str(log_file(engine.internals.workspace(run))), notices)


def refuse_memory(session: Session, hint: str = "cli.worker.memory_hint") -> None:
    """Refuse a store that no other process can see."""
    if session.settings.store.url == "memory://":
        raise Refused(session.out.say("cli.worker.memory"), "USAGE", hint=session.out.say(hint))


def detaches(session: Session, *, staged: bool, wait: bool, detach: bool) -> bool:
    """Return True if a worker gets the run; the default for pipelines (contract T8)."""
    if not (detach or (staged and not wait)):
        return False
    refuse_memory(session)
    return True


async def leave_to_worker(
    session: Session, engine: Engine, run: str, after: int, report: RetryReport | None = None
) -> int:
    """Launch a worker for a reserved run, report its start, and leave it; return the exit code (contract T8).

    ``report`` is the retry's report so far; the worker's pid ends it.
    """
    out = session.out
    if (reserved := reservation_of(engine, out, run, after)) is None:
        document = {
            "run_id": run,
            "pid": None,
            "log": str(log_file(engine.internals.workspace(run))),
            "detached": False,
        }
        return out.done(document, out.say("cli.worker.recorded", run=run), f"rerail show {run}")
    out.driving.append(run)
    handle = WorkerHandle(session.common, reserved, out)
    try:
        taken = await handle.takes_up(engine, reserved)
    except asyncio.CancelledError:
        await handle.end()
        raise
    finally:
        handle.forget()
    out.driving.remove(run)
    if not taken:
        message, tail = out.say("cli.worker.died", pid=handle.pid, status=handle.status()), handle.tail()
        out.problem("WORKER_FAILED", f"{message}\n{tail}" if tail else message, f"rerail resume {run}")
        return 1
    if report is not None and not out.json:
        out.print(*report.started(out, handle.pid))
        return 0
    started = {"run_id": run, "pid": handle.pid, "log": reserved.log, "detached": True}
    return out.done(started, out.say("cli.worker.detached", run=run, pid=handle.pid), f"rerail logs {run} --tail 50")
