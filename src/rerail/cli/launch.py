"""Starting workers and listening to them: one that is left to itself, or a few that do many runs (SPEC T8, T4).

Rules of this file:
- A worker is in a session of its own: no terminal, no Ctrl-C and no closed window of ours reaches it.
- It is never killed because we end, and never waited for once it has taken its run up.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import tempfile
from typing import Any

import msgspec
from rich.text import Text

from rerail.cli.jobs import Job, Reply
from rerail.cli.output import Output, clean
from rerail.cli.render import warnings
from rerail.cli.retry_report import RetryReport, refusal
from rerail.cli.session import Session
from rerail.core.command import Command, Retry
from rerail.errors import Refused

# -P: a file in the working folder that is named like a standard module must not be taken for it.
COMMAND = (sys.executable, "-P", "-m", "rerail.cli.worker")
LEAVING = 8.0  # seconds that a worker has to leave its run behind in order
PARTING = 1.0  # seconds that a worker has to end by itself while somebody waits
LOOK = 0.02  # seconds between two looks whether it has ended
TAIL = 20  # lines


class _Process(subprocess.Popen[bytes]):
    """A process that may outlive this one, so nobody complains if it does."""

    def __del__(self) -> None:
        """Not a mistake: it was meant to go on."""
        super().__del__(_warn=lambda *_, **__: None)  # type: ignore[call-arg]


class Hand:
    """A worker process as its parent sees it."""

    def __init__(self, word: str = "") -> None:
        # What it says before it has a run's log to write to, and what it died of, if it did.
        self._spool = tempfile.TemporaryFile()  # noqa: SIM115  # closed below
        words = [*COMMAND, word] if word else [*COMMAND]  # the word is for `ps` alone
        self._process = _Process(
            words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._spool, start_new_session=True, bufsize=0
        )
        self._reader: asyncio.StreamReader | None = None
        self._transport: asyncio.ReadTransport | None = None

    @property
    def pid(self) -> int:
        """Its pid; never another process's, since it is not waited for before it ends."""
        return self._process.pid

    def give(self, job: Job) -> None:
        """Hand a job over; if the worker is dead, `hear` will tell."""
        assert self._process.stdin is not None
        data = msgspec.json.encode(job) + b"\n"
        with contextlib.suppress(OSError):
            while data:
                data = data[self._process.stdin.write(data) or 0 :]

    def dismiss(self) -> None:
        """There are no more jobs: it ends after the one it has."""
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()

    async def hear(self) -> Reply | None:
        """What it says next; None once it will say nothing more."""
        if self._reader is None:
            loop, self._reader = asyncio.get_running_loop(), asyncio.StreamReader(limit=2**30)
            reader = self._reader
            self._transport, _ = await loop.connect_read_pipe(
                lambda: asyncio.StreamReaderProtocol(reader), self._process.stdout
            )
        line = await self._reader.readline()
        return msgspec.json.decode(line, type=Reply) if line.endswith(b"\n") else None

    async def ended(self, seconds: float = LEAVING) -> str:
        """How it ended, once it has: an exit status, or the signal that killed it. Who does not end is killed."""
        waited = 0.0
        while self._process.poll() is None:
            if waited >= seconds:
                self._process.kill()
            await asyncio.sleep(LOOK)
            waited += LOOK
        known = {-number: number.name for number in signal.Signals}
        return known.get(self._process.returncode, str(self._process.returncode))

    async def left(self) -> None:
        """Give it a moment to end after its last job. It may have notices on their way, and goes on without us then."""
        for _ in range(round(PARTING / LOOK)):
            if self._process.poll() is not None:
                return
            await asyncio.sleep(LOOK)

    async def end(self) -> None:
        """Let it leave its run as a crash would, and wait for that."""
        if self._process.poll() is None:
            self._process.terminate()
        await self.ended()

    def tail(self) -> str:
        """The last lines of what it said that belongs to no run."""
        size = os.fstat(self._spool.fileno()).st_size
        data = os.pread(self._spool.fileno(), 20_000, max(0, size - 20_000))
        return "\n".join(data.decode("utf-8", "replace").splitlines()[-TAIL:])

    def forget(self) -> None:
        """Close our ends; the worker goes on."""
        self.dismiss()
        if self._transport is not None:
            self._transport.close()
        elif self._process.stdout is not None:
            self._process.stdout.close()
        self._spool.close()


# -- One worker, left to itself -----------------------------------------------------------------------------------


async def detach(session: Session, job: Job, report: RetryReport | None = None) -> int:
    """Let a worker take a run up, say which, and leave it to itself; returns the exit code (T8).

    ``report`` is what was begun to be told about a retry, and ends with who does it.
    """
    out = session.out
    if session.settings.store.url == "memory://":
        raise Refused(out.say("cli.worker.memory"), "USAGE", hint=out.say("cli.worker.memory_hint"))
    hand = Hand(job.run or "start")
    try:
        hand.give(job)
        hand.dismiss()
        while (said := await hand.hear()) is not None:
            if said.kind == "notice":
                out.note(Text(clean(said.text), "yellow"))
            elif said.kind == "accepted":
                return _accepted(out, hand.pid, said, report)
            else:
                refused = Refused(said.text, (said.error or {}).get("error", {}).get("code"))
                if blocks := refusal(out, job.run, refused) if isinstance(job.command, Retry) else []:
                    return out.refuse_with(said.error, blocks, said.code)
                return out.refuse(said.error, said.text, said.hint, said.code)
        return await _died(out, hand)
    except asyncio.CancelledError:
        await hand.end()
        raise
    finally:
        hand.forget()


async def _died(out: Output, hand: Hand) -> int:
    status, tail = await hand.ended(), hand.tail()
    message = out.say("cli.worker.died", pid=hand.pid, status=status)
    out.problem("WORKER_FAILED", f"{message}\n{tail}" if tail else message, "")
    return 1


def other_run(out: Output, run: str, target: str) -> str:
    """Why a retry is about another run than the one that was named: what follows it, or what it follows."""
    return out.say(
        "cli.retry.parent" if run.startswith(f"{target}-f") else "cli.retry.follow_up", run=run, target=target
    )


def _accepted(out: Output, pid: int, said: Reply, report: RetryReport | None = None) -> int:
    if said.passed and report is None:
        out.note(Text(out.say("cli.retry.passed", checks=", ".join(said.passed)), "yellow"))
    out.note(*warnings(out, said.once, said.edited, done=True))
    if said.asked and report is None:
        out.note(other_run(out, said.asked, said.run))
    if out.json:
        owner = {"pid": pid, "log": said.log} if said.driven else {"pid": None, "log": said.log}
        out.document({"run_id": said.run, **owner, "detached": said.driven})
    elif said.driven and report is not None:
        out.print(*report.started(out, pid))
    elif said.driven:
        out.print(out.say("cli.worker.detached", run=said.run, pid=pid))
        out.note(Text("  " + out.typed(f"rerail logs {said.run} --tail 50"), "cyan"))
    else:
        out.print(out.say("cli.worker.recorded", run=said.run))
        out.note(Text("  " + out.typed(f"rerail show {said.run}"), "cyan"))
    return 0


async def is_pipeline(session: Session, run: str) -> bool:
    """Whether a run's steps carry stages (T2): then it is driven by a worker unless somebody wants to wait (T8)."""
    async with session.engine(run=run) as engine:
        state = await engine.state(await engine.find(run))
    return any(track.step.stage for track in state.tracks.values())


async def detaches(session: Session, run: str, *, wait: bool, detach: bool) -> bool:
    """Whether a command on an existing run leaves it to a worker."""
    if wait and detach:
        raise Refused(session.out.say("cli.worker.wait_or_detach"), "USAGE")
    return detach or (not wait and await is_pipeline(session, run))


def under(session: Session, run: str, command: Command, **rest: Any) -> Job:
    """A command to a run, as a job under the options that were typed."""
    return Job.under(session.common, session.out.lang, run=run, command=command, **rest)
