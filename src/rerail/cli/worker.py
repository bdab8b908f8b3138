"""A worker process: takes runs up, drives them and what follows them, and outlives whoever started it (SPEC T7, T8).

Started by `rerail start`, `retry`, `resume` and `confirm` as `python -m rerail.cli.worker`; nobody types that.

Rules of this file:
- Jobs come in by stdin, a line each; replies go out by what was stdout. Both ends may go away at any time.
- It alone claims the run, checks the wish and writes its events: who started it only repeats what it says.
- Whatever is printed here goes to the run's log. One run at a time, so that it is clear whose words they are; only
  the notices of those that are over may still be on their way.
- TERM ends it as a crash would: calls cancelled, the lease given back, the run can be resumed.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec

from rerail.cli.attend import exit_code, follow_up_of
from rerail.cli.jobs import Job, Reply
from rerail.cli.output import Output
from rerail.cli.picture import Picture
from rerail.cli.session import Session
from rerail.cli.worker_log import Scribe
from rerail.core.command import Command, Confirm, Refuse
from rerail.core.commands import Preview
from rerail.engine.printed import log_file
from rerail.errors import PlanError, Refused, RerailError
from rerail.i18n import Told, as_text, retold
from rerail.plans import Plan
from rerail.wiring import Engine

TERMINATED = 128 + signal.SIGTERM
LINGERERS = 20  # runs that are over, whose notices may still be on their way while the next one is driven
LINGERING = 5.0  # seconds that threads which a tool left behind may keep the process alive


class Worker:
    """Does one job after the other."""

    def __init__(self, jobs: int, replies: int) -> None:
        self._jobs, self._replies = jobs, replies
        self._driving = ""
        self._english = _output("en")  # of the log: whoever reads it is told in a language of their own (T12)
        self._scribe = Scribe(self._english)
        self._serving: asyncio.Task[Any] | None = None
        self._open: set[asyncio.Task[None]] = set()  # jobs, the last of which may be at work
        self._leavable = 0

    async def serve(self) -> int:
        """Work until there are no more jobs; returns the exit code."""
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader(limit=2**30)
        pipe = os.fdopen(self._jobs, "rb", buffering=0)
        transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), pipe)
        self._serving = asyncio.current_task()
        try:
            while (line := await reader.readline()).endswith(b"\n"):  # half a line: who wrote it died
                await self._drive_through(msgspec.json.decode(line, type=Job))
            await self._closed(0)
        except asyncio.CancelledError:
            for task in self._open:
                task.cancel()
            await asyncio.gather(*self._open, return_exceptions=True)
            return TERMINATED
        finally:
            transport.close()
        return 0

    async def _drive_through(self, job: Job) -> None:
        """Do a job until its run is over; what is still on its way then, such as notices, keeps nobody waiting."""
        over = asyncio.Event()
        task = asyncio.create_task(self._do(job, over))
        task.add_done_callback(lambda _: over.set())
        self._open.add(task)
        await over.wait()
        await self._closed(LINGERERS)

    async def _closed(self, most: int) -> None:
        """Wait until at most so many jobs are not closed; what nobody foresaw ends the worker."""
        while True:
            for task in [task for task in self._open if task.done()]:
                self._open.discard(task)
                task.result()
            if len(self._open) <= most:
                return
            await asyncio.wait(self._open, return_when=asyncio.FIRST_COMPLETED)

    @contextlib.contextmanager
    def _terminable(self) -> Iterator[None]:
        """While a run may be ours, TERM means to leave it in order; before and after, the process just ends."""
        loop = asyncio.get_running_loop()
        self._leavable += 1
        loop.add_signal_handler(signal.SIGTERM, self._leave)
        try:
            yield
        finally:
            self._leavable -= 1
            if not self._leavable:
                loop.remove_signal_handler(signal.SIGTERM)

    def _leave(self) -> None:
        if self._serving is not None:  # a second signal must not disturb the leaving
            self._serving.cancel()
            self._serving = None

    async def _do(self, job: Job, over: asyncio.Event) -> None:
        """Do one job; what goes wrong is said, and ends nothing but the job."""
        out = _output(job.lang)
        self._driving = ""
        sys.path += [folder for folder in job.path if folder not in sys.path]
        with contextlib.suppress(OSError):
            os.chdir(job.cwd)  # a tool of an earlier run may have gone elsewhere
        try:
            with contextlib.ExitStack() as ready:
                await self._done(job, out, ready, over)
        except RerailError as error:
            if not over.is_set():  # else it was said what became of the run, and only its closing went wrong
                self._end(self._failed(out, error))
        except asyncio.CancelledError:
            if self._driving and not over.is_set():
                words = self._english.say("cli.worker.terminated", run=self._driving, where=out.where)
                self._scribe.word(self._driving, words)
            raise

    async def _done(self, job: Job, out: Output, ready: contextlib.ExitStack, over: asyncio.Event) -> None:
        session = Session(job.common(), out, worker=True, observe=self._scribe.observe)
        async with self._opened(session, job) as (engine, run):
            ready.enter_context(self._terminable())  # until the engine is closed
            self._scribe.keep_back(engine.scrub)
            self._scribe.place = lambda run: log_file(engine.workspace(run))
            engine.notice = lambda told: self._notice(run or "-", told, out.lang)
            self._end(await self._drive(engine, out, *await self._begin(engine, run, job)))
            over.set()

    def _end(self, ended: Reply) -> None:
        self._scribe.turn_back()  # not if the worker ends of something else: its last words belong to the run
        self._reply(ended)

    @asynccontextmanager
    async def _opened(self, session: Session, job: Job) -> AsyncIterator[tuple[Engine, str]]:
        """An engine with the tools of the job's run, and the run's id if it has one already."""
        if job.command is None:
            sources = session.given
            async with session.engine(sources, session.load(sources), making=True, driving=True) as engine:
                try:
                    yield engine, ""
                except PlanError as error:
                    error.hint = error.hint or "; ".join(session.undecorated(_plan(job), engine.tools))
                    raise
        elif isinstance(job.command, Confirm | Refuse):
            async with session.acting(job.run) as (engine, run, _):
                yield engine, run
        else:
            async with session.reopened(job.run) as (engine, run):
                yield engine, run

    async def _begin(self, engine: Engine, run: str, job: Job) -> tuple[str, str, Preview | None]:
        """Do what was asked for: the run it was done to, the one that was named, and what a retry will do."""
        before = Picture.of(run, await engine.events(run)) if run else None
        if before is not None:
            self._scribe.know(run, before)
        preview = None
        if job.command is None:
            parent = await engine.find(job.parent) if job.parent else None
            target = await engine.start(_plan(job), parent=parent)
        else:
            target, preview = await self._commanded(engine, run, job, job.command)
        # Nothing may be awaited here: the first call of the run must find the log in its place.
        self._scribe.turn_to(target)
        return target, run, preview

    async def _commanded(self, engine: Engine, run: str, job: Job, command: Command) -> tuple[str, Preview | None]:
        try:
            return await engine.do(run, command)
        except Refused as refused:
            if not job.resumes or refused.code != "NOTHING_TO_RETRY":
                raise
            return await engine.begin_resume(run), None

    async def _drive(self, engine: Engine, out: Output, run: str, asked: str, preview: Preview | None) -> Reply:
        """Say that the run was taken up, and stay with it and with what follows it until nothing is left to drive."""
        self._driving = run
        driven = engine.drives(run)
        self._scribe.word(run, self._english.say("cli.worker.began", pid=os.getpid(), run=run))
        warned = (preview.passed, preview.once, preview.edited) if preview is not None else ((), (), ())
        passed, once, edited = warned
        self._reply(
            Reply("accepted", run=run, asked=asked if asked != run else "", log=str(log_file(engine.workspace(run))),
                  driven=driven, passed=passed, once=once, edited=edited)
        )  # fmt: skip
        if (first := self._scribe.unknown_from(run)) is not None:
            before = [record for record in await engine.events(run) if record.seq < first]
            self._scribe.know(run, Picture.of(run, before))
        found = await engine.wait(run) if driven else await engine.show(run)
        self._rest(run, found.status)
        follower = await follow_up_of(engine, await engine.state(run)) if driven else None
        while follower is not None and engine.drives(follower):
            self._driving = follower
            after = await engine.wait(follower)
            self._rest(follower, after.status)
            found = after if preview is not None and preview.mending else found
            follower = await follow_up_of(engine, await engine.state(follower))
        self._driving = ""
        # A follow-up's failure never changes what its parent came to (T6).
        return Reply("ended", run=run, status=found.status, code=exit_code(found.status), text=found.summary)

    def _rest(self, run: str, status: str) -> None:
        words = self._english.say("cli.worker.ended", pid=os.getpid(), run=run, status=status)
        self._scribe.word(run, words)

    def _failed(self, out: Output, error: RerailError) -> Reply:
        """Why the job was refused, or why the run stopped in the middle."""
        document, message, hint, code = out.said(error)
        if not self._driving:
            return Reply("refused", text=message, hint=hint, code=code, error=document)
        words = self._english.say("cli.worker.broke", message=self._english.said(error)[1])
        self._scribe.word(self._driving, words)
        return Reply("ended", run=self._driving, status="interrupted", code=1, text=message, hint=hint, error=document)

    def _notice(self, run: str, told: Told, lang: str) -> None:
        self._scribe.word(run, str(told))
        self._reply(Reply("notice", text=retold(told, lang)))

    def _reply(self, reply: Reply) -> None:
        """Tell whoever started this process, if anybody still listens."""
        data = msgspec.json.encode(reply, enc_hook=as_text) + b"\n"
        with contextlib.suppress(OSError):
            while data:
                data = data[os.write(self._replies, data) :]


def _output(lang: str) -> Output:
    return Output(lang=lang, color=False, quiet=True)


def _plan(job: Job) -> Plan:
    return Plan.load(Path(job.plan) if os.path.isabs(job.plan) else job.plan.encode())


def _apart() -> tuple[int, int]:
    """Keep the pipes out of the tools' reach: they get an empty stdin, and print where this process complains."""
    jobs, replies = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    return jobs, replies


def main() -> int:
    """Serve, and end even if a tool left threads behind."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # no terminal is there, and none can end it
    code = asyncio.run(Worker(*_apart()).serve())
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    last_word = threading.Timer(LINGERING, os._exit, (code,))
    last_word.daemon = True
    last_word.start()
    return code


if __name__ == "__main__":
    sys.exit(main())
