"""The façade: start, wait, retry, resume, act, watch. It finds who owns a run, and lets the loop do the rest."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import msgspec

from rerail.core import commands
from rerail.core import events as ev
from rerail.core.codec import Damaged, NewerFormat, decode
from rerail.core.commands import Faulty, Preview, Refusal
from rerail.core.events import Event, Record
from rerail.core.fold import evolve
from rerail.core.memory import Lessons, learn, preferred
from rerail.core.nearest import nearest
from rerail.core.plan import Fault, Plan, Step, check, servers_of
from rerail.core.policy import Policy
from rerail.core.state import State
from rerail.core.track import Phase, RunStatus
from rerail.core.values import unpack
from rerail.core.views import RunResult, result
from rerail.core.why import story
from rerail.engine.failures import from_code
from rerail.engine.loop import Ended, Host, RunLoop
from rerail.engine.outputs import Contents, Gone
from rerail.engine.owner import RENEW_EVERY, end_residual, is_dead, is_this_process, this_process
from rerail.engine.wishes import Wish, encode_answer, error_for, raise_answer
from rerail.errors import PlanError, Refused, RerailError, StoreError
from rerail.ports import Conflict, Fenced, Head, Lease, Taken, Unavailable, Unusable

# The class below has a method named `list`, which hides the builtin from annotations inside it.
Records: TypeAlias = list[Record]
Rows: TypeAlias = list[dict[str, Any]]
Names: TypeAlias = list[str]
Events: TypeAlias = list[Event]

AT_REST = frozenset({str(RunStatus.COMPLETED), str(RunStatus.FAILED), str(RunStatus.CANCELLED)})
INBOX_EVERY = 0.2
FORGOTTEN = "~memory"  # a history of its own: when the failure memory was cleared, and by whom
LEARN_FROM = 100  # runs
PAGE = 2000
ANSWER_WITHIN = 30.0
WITHDRAWN = b'{"withdrawn":true}'


@dataclass(slots=True)
class _Live:
    """A run that this engine drives."""

    loop: RunLoop
    task: asyncio.Task[None]


class Engine:
    """Runs plans durably; everything people can do to a run goes through here."""

    def __init__(
        self,
        host: Host,
        policy: Policy,
        *,
        by: str,
        version: str,
        origin: Sequence[str],
        ttl: float,
        worker: bool = False,
        remembers: bool = False,
    ) -> None:
        self._remembers = remembers
        self._host, self._policy, self._by, self._version = host, policy, by, version
        self._origin, self._ttl = tuple(origin), ttl
        self._owner = this_process(worker=worker)
        self._live: dict[str, _Live] = {}
        self._broken: dict[str, RerailError] = {}  # runs that stopped because they could not be written any more
        self._attendant: asyncio.Task[None] | None = None
        self._follow_ups: set[asyncio.Task[Any]] = set()

    # -- Opening and closing --------------------------------------------------------------------------------------

    async def open(self) -> None:
        """Open the store and begin to listen to other processes."""
        with _store_errors():
            await self._host.store.open()
            await self._host.store.sweep(self._host.clock.now() - self._ttl)
        self._attendant = asyncio.get_running_loop().create_task(self._attend())

    async def close(self) -> None:
        """Stop live runs as a crash would: calls cancelled, leases released, nothing recorded as cancelled."""
        if self._attendant is not None:
            self._attendant.cancel()
            await asyncio.gather(self._attendant, return_exceptions=True)
        tasks = [live.task for live in self._live.values()]
        for task in (*tasks, *self._follow_ups):
            task.cancel()
        await asyncio.gather(*tasks, *self._follow_ups, return_exceptions=True)
        await self._host.store.close()

    async def __aenter__(self) -> Engine:
        await self.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def _attend(self) -> None:
        """Hand over what other processes want of our runs, and say that we live."""
        if not self._host.clock.polls:
            return
        renewed = self._host.clock.now()
        while True:
            await asyncio.sleep(INBOX_EVERY)
            for run, live in list(self._live.items()):
                # One run's trouble must not keep the others from being heard and renewed.
                with contextlib.suppress(Unavailable, Unusable, Conflict, RerailError):
                    await self._serve(run, live)
            now = self._host.clock.now()
            if now - renewed >= RENEW_EVERY:
                renewed = now
                await self._renew(now)

    async def _serve(self, run: str, live: _Live) -> None:
        for number, data in await self._host.store.inbox(run):
            problem: RerailError | None = None
            if live.loop.ended:
                return  # whoever asked will see that nobody drives the run, and apply the action
            try:
                wish = msgspec.json.decode(data, type=Wish)
                if number > live.loop.state.last_wish:  # else it was granted, and only its answer was lost
                    await live.loop.wish(msgspec.structs.replace(wish, number=number))
            except Ended:
                return
            except RerailError as error:
                problem = error
            except msgspec.DecodeError as error:
                problem = Refused(f"the action cannot be read: {error}", "STEP_NOT_WAITING")
            await self._host.store.answer(run, number, encode_answer(problem))

    async def _renew(self, now: float) -> None:
        for live in list(self._live.values()):
            try:
                await self._host.store.renew(live.loop.lease, now)
            except Fenced:
                live.loop.broken(StoreError(f"another process took run {live.loop.state.run} over", "LEASE_LOST"))
            except (Unavailable, Unusable):
                continue  # the next append will tell

    # -- Starting and waiting -------------------------------------------------------------------------------------

    async def start(
        self, plan: Plan, *, parent: str | None = None, by: str | None = None, run_id: str | None = None
    ) -> str:
        """Check a plan and start a run of it; returns the run's id."""
        await self.equip(servers_of(plan))
        faults = check(plan, self._host.specs)
        if faults:
            raise PlanError("the plan cannot be run; nothing was started:", faults)
        run = run_id or secrets.token_hex(5)
        now = self._host.clock.now()
        store = self._host.store
        memory = preferred(await self._lessons()) if self._remembers else {}
        with _store_errors():
            head = Head(run, 0, "pending", plan.objective, parent or "", now, now, self._owner, 1, now)
            try:
                await store.create(head)  # created and owned in one go: nobody can come between
            except Conflict:
                raise Refused(f"there is a run {run!r} already", "RUN_LIVE", hint=f"see: rerail show {run}") from None
        lease = Lease(run, self._owner, head.fence)
        loop = RunLoop(self._host, lease, State(run))
        loop.note(
            ev.RunStarted(
                plan.objective, parent or "", self._policy, by or self._by, self._version, memory, self._origin
            ),
            ev.PlanAccepted(
                Plan(plan.objective, plan.steps, plan.follow_up, mcp=plan.mcp), 1, self._fingerprints(plan)
            ),
        )
        try:
            await loop.commit()  # a run that was announced is there, whatever dies next
        except BaseException:
            await self._let_go(loop)
            raise
        self._drive(run, loop)
        return run

    async def equip(self, servers: Mapping[str, Any]) -> None:
        """Open the MCP servers that a plan brings with it; `PlanError` says why they are not opened."""
        if servers:
            raise PlanError("the plan cannot be run:", [Fault("MCP_NOT_ALLOWED", "this engine opens no MCP servers")])

    async def _let_go(self, loop: RunLoop) -> None:
        with contextlib.suppress(Unavailable, Unusable):
            await self._host.store.release(loop.lease)

    async def run(self, plan: Plan) -> RunResult:
        """Start a run and wait until it is at rest or waits for a person."""
        return await self.wait(await self.start(plan))

    async def wait(self, run: str) -> RunResult:
        """Wait until a run is at rest, or waits for a person; a run somebody else drives is watched."""
        run = await self.find(run)
        live = self._live.get(run)
        if live is not None:
            await asyncio.shield(live.task)
            return result(
                live.loop.state, await self._outputs(live.loop.state, live.loop.contents), self._host.clock.now()
            )
        if run in self._broken:
            raise self._broken[run]
        while True:
            head = await self.head(run)
            if head.status in AT_REST or head.status == RunStatus.WAITING or is_dead(head, self._host.clock.now()):
                return await self.show(run)
            with _store_errors():
                await self._host.store.changed(run, head.seq, 1.0)

    def _drive(self, run: str, loop: RunLoop) -> None:
        task = asyncio.get_running_loop().create_task(self._driven(run, loop))
        task.add_done_callback(lambda done: None if done.cancelled() else done.exception())  # `wait` raises it
        self._live[run] = _Live(loop, task)

    async def _driven(self, run: str, loop: RunLoop) -> None:
        self._broken.pop(run, None)
        try:
            await loop.drive()
        except RerailError as error:
            self._broken[run] = error
            raise
        finally:
            self._live.pop(run, None)
            await loop.drained()
            with contextlib.suppress(Exception):
                await self._host.store.release(loop.lease)
        with contextlib.suppress(PlanError, Refused):  # its tools are not here; a retry of this run will start it
            await self._follow(loop.state)

    async def _follow(self, state: State) -> str | None:
        """A completed run starts its follow-up, once for each time it completes (T6); returns the follow-up's id."""
        if state.follow_up is None or state.rest is None or state.rest.status != RunStatus.COMPLETED:
            return None
        # The id tells which completion it follows, so that a process that died in between is no loss and no double.
        child = f"{state.run}-f{state.seq}"
        with _store_errors():
            if await self._host.store.head(child) is None:
                await self.start(state.follow_up, parent=state.run, run_id=child)
        return child

    # -- Reading --------------------------------------------------------------------------------------------------

    async def find(self, run: str) -> str:
        """The id that a run's id or unambiguous prefix stands for."""
        if run in self._live:
            return run
        with _store_errors():
            if await self._host.store.head(run) is not None:
                return run
            matches = await self._host.store.heads(prefix=run, limit=10) if run else []
            if len(matches) == 1:
                return matches[0].run
            if matches:
                names = ", ".join(head.run for head in matches)
                raise Refused(f"{run!r} could be any of: {names}", "RUN_AMBIGUOUS", hint="type more of the id")
            near = nearest(run, [head.run for head in await self._host.store.heads(limit=1000)])
        hint = f"did you mean {near!r}?" if near else "see: rerail ls"
        raise Refused(f"there is no run {run!r}", "RUN_UNKNOWN", hint=hint)

    async def head(self, run: str) -> Head:
        """A run as lists show it, with its owner."""
        with _store_errors():
            head = await self._host.store.head(run)
        if head is None:
            raise Refused(f"there is no run {run!r}", "RUN_UNKNOWN", hint="see: rerail ls")
        return head

    async def state(self, run: str) -> State:
        """A run's state, folded from its history."""
        live = self._live.get(run)
        if live is not None and live.loop.durable:
            return live.loop.state  # else it is ahead of what is written down for good
        state = State(run)
        async for record in self._records(run):
            evolve(state, record.event, record.at, record.seq)
        return state

    async def _records(self, run: str, after: int = 0) -> AsyncIterator[Record]:
        while True:
            with _store_errors():
                rows = await self._host.store.read(run, after, PAGE)
            for row in rows:
                yield Record(run, row.seq, row.at, _decoded(run, row.seq, row.data))
            if len(rows) < PAGE:
                return
            after = rows[-1].seq

    async def events(self, run: str, after: int = 0) -> Records:
        """The history so far."""
        return [record async for record in self._records(await self.find(run), after)]

    async def watch(self, run: str, after: int = 0) -> AsyncIterator[Record]:
        """Events as they come, from a sequence number on; ends when the run is at rest and all is delivered."""
        run = await self.find(run)
        while True:
            async for record in self._records(run, after):
                after = record.seq
                yield record
            head = await self.head(run)
            if head.seq <= after:
                if head.status in AT_REST:
                    return
                with _store_errors():
                    await self._host.store.changed(run, after, 1.0)

    async def show(self, run: str) -> RunResult:
        """A run as it is now; the same object for a live or finished run."""
        run = await self.find(run)
        state = await self.state(run)
        return result(state, await self._outputs(state), self._host.clock.now())

    async def _outputs(self, state: State, contents: Contents | None = None) -> dict[str, Any]:
        contents = contents or Contents(self._host.store, self._host.memory)
        with _store_errors():
            return {
                track.id: await contents.value(track.result)
                for track in state.tracks.values()
                if track.result is not None and track.result.digest
            }

    async def list(self, *, status: Sequence[str] = (), parent: str | None = None, limit: int = 100) -> Rows:
        """Runs, newest first, as plain rows."""
        with _store_errors():
            heads = await self._host.store.heads(status=status, parent=parent, limit=limit)
        now = self._host.clock.now()
        return [
            {
                "run_id": head.run, "status": head.status, "objective": head.objective, "parent": head.parent or None,
                "created_at": head.created_at, "updated_at": head.updated_at, "events": head.seq,
                "owner": str(head.owner) if head.owner is not None else None,
                "interrupted": head.status == RunStatus.RUNNING and is_dead(head, now),
            }
            for head in heads
            if head.run != FORGOTTEN
        ]  # fmt: skip

    async def why(self, run: str, step: str | None = None, lang: str = "en") -> str:
        """The story of a run, or of one of its steps, as a person would tell it."""
        run = await self.find(run)
        state = await self.state(run)
        if step is not None and step not in state.tracks:
            near = nearest(step, state.tracks)
            hint = f"did you mean {near!r}?" if near else f"see: rerail show {run}"
            raise Refused(f"run {run} has no step {step!r}", "STEP_UNKNOWN", hint=hint)
        return story(state, await self.events(run), step, lang)

    async def artifact(self, run: str, name: str) -> Any:
        """A named output of a step, from wherever it is kept."""
        run = await self.find(run)
        state = await self.state(run)
        track = state.tracks.get(name)
        if track is None or track.result is None:
            raise Refused(f"run {run} has no artifact {name!r}", "STEP_UNKNOWN", hint=f"see: rerail artifacts {run}")
        if not track.result.blob:
            return track.result.output
        try:
            with _store_errors():
                return unpack(await Contents(self._host.store, 1).get(track.result.digest))
        except Gone as gone:
            raise Refused(
                f"artifact {name!r} is gone: {gone.reason}", "ARTIFACT_GONE", hint=f"use: rerail retry {run}"
            ) from None

    async def artifacts(self, run: str) -> Rows:
        """The artifacts of a run: name, producer, digest, size."""
        run = await self.find(run)
        latest: dict[str, dict[str, Any]] = {}
        async for record in self._records(run):
            if isinstance(record.event, ev.ArtifactCreated):
                made = record.event
                latest[made.name] = {
                    "name": made.name, "step": made.step, "attempt": made.attempt, "digest": made.digest,
                    "size": made.size, "media": made.media, "at": record.at,
                }  # fmt: skip
        return list(latest.values())

    # -- Failure memory (H10) -------------------------------------------------------------------------------------

    async def memory(self) -> Rows:
        """What the latest runs teach: per tool and error, which rung worked, and how often."""
        lessons = await self._lessons()
        return [{"failure": key, "rung": rung, "worked": count} for (key, rung), count in lessons.most_common()]

    async def forget(self, *, by: str | None = None) -> None:
        """Clear the failure memory: only what happens from now on is learnt from."""
        store, now = self._host.store, self._host.clock.now()
        with _store_errors():
            if await store.head(FORGOTTEN) is None:
                await store.create(Head(FORGOTTEN, status=str(RunStatus.COMPLETED), created_at=now, updated_at=now))
        loop = await self._take(FORGOTTEN)
        loop.note(ev.Acted("forget", by or self._by))
        await loop.commit()
        await store.release(loop.lease)

    async def _lessons(self) -> Lessons:
        lessons: Lessons = Counter()
        with _store_errors():
            forgotten = await self._host.store.head(FORGOTTEN)
            heads = await self._host.store.heads(limit=LEARN_FROM)
        since = (await self.state(FORGOTTEN)).at if forgotten is not None else 0.0
        for head in heads:
            if head.run != FORGOTTEN and head.updated_at > since:
                learn([record async for record in self._records(head.run) if record.at > since], lessons)
        return lessons

    # -- Acting ---------------------------------------------------------------------------------------------------

    async def pause(self, run: str, *, by: str | None = None) -> None:
        """Start nothing more until somebody resumes the run."""
        await self._act(run, Wish("pause", by or self._by))

    async def cancel(self, run: str, *, by: str | None = None, reason: str = "") -> None:
        """End the run: calls under way are cancelled, nothing more starts."""
        await self._act(run, Wish("cancel", by or self._by, reason=reason))

    async def skip(self, run: str, step: str, *, by: str | None = None, reason: str = "") -> None:
        """Do without a step."""
        await self._act(run, Wish("skip", by or self._by, step, reason=reason))

    async def confirm(self, run: str, step: str | None = None, *, refuse: bool = False, by: str | None = None) -> None:
        """Let a gated step run, or refuse it."""
        await self._act(run, Wish("refuse" if refuse else "confirm", by or self._by, step))

    async def resolve(
        self,
        run: str,
        step: str,
        *,
        succeeded: Any = ...,
        failed: bool = False,
        rerun: bool = False,
        by: str | None = None,
    ) -> None:
        """Answer a doubt, or mark a step succeeded by hand with a value."""
        chosen = [
            name for name, given in (("succeeded", succeeded is not ...), ("failed", failed), ("rerun", rerun)) if given
        ]
        if len(chosen) != 1:
            raise Refused("say exactly one of succeeded=VALUE, failed=True, rerun=True", "STEP_NOT_WAITING")
        value = succeeded if succeeded is not ... else None
        await self._act(run, Wish("resolve", by or self._by, step, outcome=chosen[0], value=value))

    async def add(self, run: str, steps: Sequence[Any], *, by: str | None = None) -> None:
        """Add steps to a live run; a bad change is refused and the old plan stays."""
        plain = tuple(msgspec.to_builtins(step) if isinstance(step, Step) else step for step in steps)
        await self._act(run, Wish("add", by or self._by, steps=plain))

    async def _act(self, run: str, wish: Wish) -> None:
        """Bring a wish to the run's owner; with no living owner, apply it here (T7)."""
        run = await self.find(run)
        for _ in range(5):  # the owner may let go while we knock
            if await self._handed_over(run, wish):
                return
        raise StoreError(f"run {run} changes hands too fast; try again")

    async def _handed_over(self, run: str, wish: Wish) -> bool:
        """Whether the wish was granted, by whoever has the run now; False if that one let go meanwhile."""
        live = self._live.get(run)
        if live is not None:
            try:
                await live.loop.wish(wish)
            except Ended:
                await asyncio.wait([live.task])
                return False
            return True
        head = await self.head(run)
        if self._driven_elsewhere(head):
            return await self._post(run, wish)
        await self._apply(run, wish)
        return True

    async def _apply(self, run: str, wish: Wish) -> None:
        """Grant a wish on a run nobody drives, and drive it on if its tools are here."""
        loop = await self._take(run)
        try:
            self._mend(loop)
            with _refusals():
                loop.apply(wish)
            if await self._can_drive(loop.state):
                self._drive(run, loop)
                return
            await loop.commit()
        except RerailError:
            await loop.commit_quietly()
            await self._let_go(loop)
            raise
        await self._let_go(loop)

    async def _post(self, run: str, wish: Wish) -> bool:
        """Leave a wish in the inbox of a run that another process drives; False if that one let go of the run."""
        store = self._host.store
        with _store_errors():
            number = await store.post(run, msgspec.json.encode(wish))
            waited = 0.0
            while (answer := await store.answered(run, number)) is None:
                gone = not self._driven_elsewhere(await self.head(run))
                if gone or waited > ANSWER_WITHIN:
                    # Withdrawn, so that nobody grants it later, when it is no longer meant. The first answer stays.
                    await store.answer(run, number, WITHDRAWN)
                    if await store.answered(run, number) != WITHDRAWN:
                        continue
                    if gone:
                        return False
                    raise StoreError(f"the owner of run {run} did not answer within {ANSWER_WITHIN:g} s")
                await asyncio.sleep(0.05)
                waited += 0.05
        raise_answer(answer)
        return True

    # -- Retrying and resuming ------------------------------------------------------------------------------------

    async def retry(
        self,
        run: str,
        steps: Sequence[str] | None = None,
        stage: str | None = None,
        *,
        clean: bool = False,
        force: bool = False,
        dry_run: bool = False,
        by: str | None = None,
    ) -> Any:
        """Retry exactly what failed and what depends on it; with `dry_run` only show what would happen."""
        target, preview = await self.begin_retry(run, steps, stage, clean=clean, force=force, dry_run=dry_run, by=by)
        return preview if dry_run else await self.wait(target)

    async def begin_retry(
        self,
        run: str,
        steps: Sequence[str] | None = None,
        stage: str | None = None,
        *,
        clean: bool = False,
        force: bool = False,
        dry_run: bool = False,
        by: str | None = None,
    ) -> tuple[str, Preview | None]:
        """Start a retry; returns the run it is for (a follow-up, perhaps) and what it will do."""
        run = await self.find(run)
        if not dry_run and not (steps or stage or clean or force) and (started := await self._late_follow_up(run)):
            return started, None
        run = await self._retry_target(run, steps, stage, force=force)
        who = by or self._by
        head = await self.head(run)
        if run in self._live or self._driven_elsewhere(head):
            return run, await self._retry_live(run, head, steps, force=force, dry_run=dry_run, by=who)
        if dry_run:
            state = await self.state(run)
            self._pretend_mended(state)
            with _refusals():
                return run, commands.retry(
                    state, who, steps=steps, stage=stage, clean=clean, force=force, **self._changes(state)
                )
        loop = await self._take(run)
        try:
            await self._need_tools(loop.state)
            self._mend(loop)
            with _refusals():
                preview = commands.retry(
                    loop.state,
                    who,
                    steps=steps,
                    stage=stage,
                    clean=clean,
                    force=force,
                    **self._changes(loop.state),
                )
            loop.note(*preview.events)
        except RerailError:
            await loop.commit_quietly()
            await self._host.store.release(loop.lease)
            raise
        self._drive(run, loop)
        return run, preview

    def _driven_elsewhere(self, head: Head) -> bool:
        """Whether a living process other than this engine has the run; one at rest has only to let go of it."""
        alive = head.owner is not None and not is_dead(head, self._host.clock.now())
        return alive and head.status not in AT_REST

    async def _retry_live(
        self, run: str, head: Head, steps: Sequence[str] | None, *, force: bool, dry_run: bool, by: str
    ) -> Preview | None:
        if not steps:
            raise Refused(
                f"run {run} is being driven by process {head.owner}",
                "RUN_LIVE",
                hint="name the steps to retry, or wait for it",
            )
        if dry_run:
            state = await self.state(run)
            with _refusals():
                return commands.retry(state, by, steps=steps, force=force)
        await self._act(run, Wish("retry", by, steps=tuple(steps), force=force))
        return None

    async def _late_follow_up(self, run: str) -> str | None:
        """Start the follow-up of a completed run that died before it could; None if there is nothing to start."""
        if (await self.head(run)).status != RunStatus.COMPLETED:
            return None
        state = await self.state(run)
        with _store_errors():
            missing = state.follow_up is not None and await self._host.store.head(f"{run}-f{state.seq}") is None
        return await self._follow(state) if missing else None

    async def _retry_target(self, run: str, steps: Sequence[str] | None, stage: str | None, *, force: bool) -> str:
        """The run a retry is meant for: a completed run whose follow-up is not done stands for its follow-up (T6)."""
        head = await self.head(run)
        if head.status != RunStatus.COMPLETED or steps or force:
            return run
        with _store_errors():
            children = await self._host.store.heads(parent=run, limit=1)
        latest = children[0] if children else None
        if latest is None or latest.status == RunStatus.COMPLETED:
            return run
        if stage is not None and stage not in {t.step.stage for t in (await self.state(latest.run)).tracks.values()}:
            return run
        return latest.run

    async def resume(self, run: str, *, by: str | None = None) -> RunResult:
        """Continue an interrupted or paused run, and wait for it."""
        return await self.wait(await self.begin_resume(run, by=by))

    async def begin_resume(self, run: str, *, by: str | None = None) -> str:
        """Continue an interrupted or paused run; returns its id."""
        run = await self.find(run)
        head = await self.head(run)
        if run in self._live or self._driven_elsewhere(head):
            if not (await self.state(run)).paused:
                who = f"run {run} is being driven by process {head.owner}"
                raise Refused(who, "RUN_LIVE", hint=f"use: rerail watch {run}")
            await self._act(run, Wish("resume", by or self._by))  # paused, with calls still under way
            return run
        loop = await self._take(run)
        try:
            self._refuse_resume(loop.state)
            await self._need_tools(loop.state)
            self._mend(loop, by or self._by, resumed=True)
        except RerailError:
            await self._host.store.release(loop.lease)
            raise
        self._drive(run, loop)
        return run

    def _refuse_resume(self, state: State) -> None:
        if not state.revision:
            raise Refused(f"run {state.run} died before its plan was recorded", "RUN_UNKNOWN", hint="start it again")
        if state.rest is not None:
            raise Refused(
                f"run {state.run} is {state.rest.status}", "RUN_AT_REST", hint=f"use: rerail retry {state.run}"
            )
        if state.waiting and not state.paused:
            if state.gates:
                raise Refused(
                    f"run {state.run} waits for a confirmation",
                    "RUN_WAITS_CONFIRM",
                    hint=f"use: rerail confirm {state.run}",
                )
            with _refusals():
                commands.refuse_doubt(state)

    # -- Taking a run over ----------------------------------------------------------------------------------------

    async def _take(self, run: str) -> RunLoop:
        """Become the owner of a run nobody drives; a dead owner's lease is taken over."""
        now = self._host.clock.now()
        store = self._host.store
        with _store_errors():
            try:
                lease = await store.claim(run, self._owner, now)
            except Taken as taken:
                if not is_dead(taken.head, now) and not await self._ended(taken.head):
                    raise Refused(
                        f"run {run} is being driven by process {taken.head.owner}",
                        "RUN_LIVE",
                        hint=f"use: rerail watch {run}",
                    ) from None
                lease = await self._take_over(run, taken.head, now)
        try:
            state = State(run)
            async for record in self._records(run):
                evolve(state, record.event, record.at, record.seq)
        except BaseException:
            with contextlib.suppress(Exception):
                await store.release(lease)
            raise
        return RunLoop(self._host, lease, state)

    async def _ended(self, head: Head) -> bool:
        """Whether the owner of a run at rest was a worker that should be gone, and now is (T7)."""
        owner = head.owner
        residual = head.status in AT_REST and owner is not None and owner.worker and not is_this_process(owner)
        return residual and owner is not None and await end_residual(owner)

    async def _take_over(self, run: str, head: Head, now: float) -> Lease:
        try:
            return await self._host.store.claim(run, self._owner, now, over=head.fence)
        except Taken as taken:
            raise Refused(f"process {taken.head.owner} took run {run} over first", "RUN_LIVE") from None

    def _mend(self, loop: RunLoop, by: str = "", *, resumed: bool = False) -> None:
        """Two notes before a run goes on: the calls that were in flight are lost, and what changed meanwhile."""
        state = loop.state
        interrupted = state.rest is None and not state.waiting
        if not interrupted and not resumed:
            return
        lost, stale = tuple(track.id for track in state.running.values()), self._stale(state)
        policy = self._new_policy(state)
        changed = self._fingerprints_of(state)
        loop.note(
            ev.Resumed(
                by or self._by, lost, stale, "interrupted" if interrupted else "paused", policy,
                changed if changed != state.fingerprints else None, state.paused and resumed,
            ),
            *self._lost(state),
        )  # fmt: skip

    def _lost(self, state: State) -> Events:
        # Not the step's fault: where it may be called again it is, at once and at no cost to its budget (E3).
        error = from_code("ANSWER_LOST")
        return [
            ev.StepFailed(track.id, track.attempt, error, lost=True, not_now=0.0) for track in state.running.values()
        ]

    def _pretend_mended(self, state: State) -> None:
        """For a dry run: what the state would be once the lost calls are noted."""
        if state.rest is None and not state.waiting:
            for event in self._lost(state):
                evolve(state, event, state.at, state.seq)

    def _changes(self, state: State) -> dict[str, Any]:
        """What is different today: the settings, the tools' definitions, and the finished steps these concern (E5)."""
        now = self._fingerprints_of(state)
        changed = now if now != state.fingerprints else None
        return {"policy": self._new_policy(state), "stale": self._stale(state), "fingerprints": changed}

    def _new_policy(self, state: State) -> Policy | None:
        return self._policy if self._policy != state.policy else None

    def _fingerprints(self, plan: Plan) -> dict[str, str]:
        return self._prints({step.tool for step in plan.steps})

    def _fingerprints_of(self, state: State) -> dict[str, str]:
        return self._prints({track.step.tool for track in state.tracks.values()})

    def _prints(self, names: set[str]) -> dict[str, str]:
        specs = self._host.specs
        return {name: specs[name].fingerprint for name in sorted(names) if name in specs and specs[name].fingerprint}

    def _stale(self, state: State) -> tuple[str, ...]:
        """Finished steps whose tool's definition changed since (E5): kept, and marked stale."""
        now = self._fingerprints_of(state)
        changed = {
            name for name, value in now.items() if name in state.fingerprints and state.fingerprints[name] != value
        }
        if not changed:
            return ()
        return tuple(t.id for t in state.tracks.values() if t.phase is Phase.SUCCEEDED and t.step.tool in changed)

    def _missing_tools(self, state: State) -> Names:
        known = self._host.specs
        unfinished = (t for t in state.tracks.values() if t.phase not in (Phase.SUCCEEDED, Phase.SKIPPED))
        return list(dict.fromkeys(t.step.tool for t in unfinished if t.step.tool not in known))

    async def _can_drive(self, state: State) -> bool:
        if state.stopped:
            return True  # it calls nothing any more
        with contextlib.suppress(PlanError):  # then some of its tools are missing
            await self.equip(state.mcp)
        return not self._missing_tools(state)

    async def _need_tools(self, state: State) -> None:
        await self.equip(state.mcp)
        missing = self._missing_tools(state)
        if missing:
            faults = [
                Fault("UNKNOWN_TOOL", f"no tool named {name!r} is loaded; load it with --tools") for name in missing
            ]
            raise PlanError(f"run {state.run} cannot go on without its tools:", faults)


def _decoded(run: str, seq: int, data: bytes) -> Event:
    try:
        return decode(data)
    except NewerFormat as error:
        raise StoreError(
            f"run {run} was written by a newer version of Rerail: {error}", "STORE_NEWER", hint="upgrade rerail"
        ) from None
    except Damaged as error:
        raise StoreError(f"event {seq} of run {run} is damaged: {error}") from None


@contextlib.contextmanager
def _store_errors() -> Any:
    """What a store cannot do, as the exception that callers catch."""
    try:
        yield
    except Unusable as error:
        raise StoreError(str(error), error.code) from error
    except Unavailable as error:
        raise StoreError(f"the store is out of reach: {error}") from error


@contextlib.contextmanager
def _refusals() -> Any:
    """What the core refuses, as the exception that callers catch."""
    try:
        yield
    except (Refusal, Faulty) as problem:
        raise error_for(problem) from None
