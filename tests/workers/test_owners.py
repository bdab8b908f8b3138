"""One owner at a time, between real processes: locks, dead owners, residual workers, stopped ones (T7, T5)."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest
from tests.cli.conftest import Here, Place
from tests.workers.around import STAGED, forge, gone, log_of, row, start, status, workers_in

import rerail
from rerail.adapters.stores.memory import MemoryStore
from rerail.engine.runs import owner
from rerail.engine.runs.owner import end_residual, is_dead, is_silent, process_start, this_host
from rerail.errors import Refused, StoreError
from rerail.ports import Batch, Head, Lease, Owner
from rerail.testing import VirtualClock, World, virtual_run
from rerail.testing.scripted import ScriptedMind

RACES = int(os.environ.get("RERAIL_RACES", "10"))
HOLDING = ({"id": "a", "tool": "ok"}, {"id": "b", "tool": "hold", "args": {"name": "go"}, "needs": ["a"]})
TRACED: tuple[dict[str, Any], ...] = tuple(
    {"id": f"s{n}", "tool": "trace", "needs": [f"s{n - 1}"] if n else []} for n in range(40)
)
STUBBORN = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(60)"
PLAIN = "import time; print('up', flush=True); time.sleep(60)"


class Bystander:
    """A process that has nothing to do with it, or pretends to."""

    def __init__(self, program: str) -> None:
        self.process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None and self.process.stdout.readline()
        self.pid = self.process.pid
        self.started = process_start(self.pid)

    @property
    def lives(self) -> bool:
        return self.process.poll() is None

    def close(self) -> None:
        self.process.kill()
        self.process.communicate()


@pytest.fixture
def bystander() -> Iterator[type[Bystander]]:
    """Processes that are ended with the test."""
    made: list[Bystander] = []

    class Made(Bystander):
        def __init__(self, program: str) -> None:
            super().__init__(program)
            made.append(self)

    yield Made
    for one in made:
        one.close()


def test_lock(here: Here) -> None:
    """T7: while a worker lives, a second retry is refused with its name, attached or not; nothing is called twice."""
    run = here.run(*STAGED, code=1)
    here.place.touch("fix")
    said = here("retry", run, "--json", code=0).json
    here.place.until(lambda: "c" in here.place.calls)
    for more in (["--wait"], ["--detach"], ["--force"]):
        refused = here("retry", run, *more, "--json", code=2).json["error"]
        assert refused["code"] == "RUN_LIVE" and f":{said['pid']}" in refused["message"]
    assert here("resume", run, "--detach", "--json", code=2).json["error"]["code"] == "RUN_LIVE"
    here.place.touch("go")
    here.place.until(lambda: gone(said["pid"]))
    assert here.place.calls == ["a", "b", "b", "c"]
    assert here("show", run, "--json", code=0).json["retries"] == 1


def test_stale_lock(here: Here) -> None:
    """T7, T5: a dead worker's lease is taken over with a notice, by a worker too; the retry counts."""
    run = here.run(*STAGED, code=1)
    here.place.touch("fix")
    first = here("retry", run, "--json", code=0).json
    here.place.until(lambda: "c" in here.place.calls)
    os.kill(first["pid"], signal.SIGKILL)
    here.place.until(lambda: gone(first["pid"]))
    assert status(here, run) == "interrupted"
    here.place.touch("go")
    taken = here("retry", run, code=0)
    assert f":{first['pid']}, which drove run {run}, is gone" in taken.err
    here.place.until(lambda: not workers_in(here.place.folder))
    shown = here("show", run, "--json", code=0).json
    assert (shown["status"], shown["retries"]) == ("completed", 2)
    assert "is gone; its lease was taken over" in log_of(first)
    assert here.place.calls == ["a", "b", "b", "c", "c"]


def test_residual(here: Here, bystander: type[Bystander]) -> None:
    """T7: a worker that is still there after its run came to rest is ended, by KILL if need be, and that is said."""
    run = here.run(*STAGED, code=1)
    left = bystander(STUBBORN)
    forge(here.place, run, host=socket.gethostname(), pid=left.pid, started=left.started, worker=1)
    here.place.touch("fix")
    here.place.touch("go")
    taken = here("retry", run, "--wait", code=0)
    assert f"a worker of run {run} is still there ({socket.gethostname()}:{left.pid}); ending it" in taken.err
    assert left.process.wait(5) == -signal.SIGKILL


def test_a_residual_that_listens_is_not_killed(here: Here, bystander: type[Bystander]) -> None:
    """T7: TERM first; under zh it is said in Chinese."""
    run = here.run(*STAGED, code=1)
    left = bystander(PLAIN)
    forge(here.place, run, host=socket.gethostname(), pid=left.pid, started=left.started, worker=1)
    taken = here("retry", run, "--wait", "--lang", "zh", code=1)
    assert "⚠️  检测到残留子进程，正在终止...\n" in taken.err
    assert left.process.wait(5) == -signal.SIGTERM


@pytest.mark.parametrize("at_rest", [True, False])
def test_a_reused_pid_is_nobody_we_know(here: Here, bystander: type[Bystander], at_rest: bool) -> None:
    """T7: the owner's pid belongs to another process now: the lease is taken over, and that process never signalled."""
    run = here.run(*STAGED, code=1)
    foreign = bystander(PLAIN)
    assert foreign.started is not None
    changed = {} if at_rest else {"status": "running"}
    forge(here.place, run, host=socket.gethostname(), pid=foreign.pid, started=foreign.started - 1, worker=1, **changed)
    here.place.touch("fix")
    here.place.touch("go")
    taken = here("retry", run, "--wait", code=0)
    assert "is gone; its lease was taken over" in taken.err
    assert foreign.lives


@pytest.mark.parametrize(
    "changed", [{"host": "elsewhere", "worker": 1}, {"worker": 0}], ids=["another host", "no worker"]
)
def test_who_may_not_be_ended_is_not(here: Here, bystander: type[Bystander], changed: dict[str, Any]) -> None:
    """T7: an owner on another machine, or one that is no worker, is never signalled; the retry is refused."""
    run = here.run(*STAGED, code=1)
    other = bystander(PLAIN)
    held = {"host": socket.gethostname(), "pid": other.pid, "started": other.started, "renewed_at": time.time()}
    forge(here.place, run, **{**held, **changed})
    assert here("retry", run, "--wait", "--json", code=2).json["error"]["code"] == "RUN_LIVE"
    assert other.lives


def test_a_worker_that_went_on_to_another_run_is_left_alone(here: Here, bystander: type[Bystander]) -> None:
    """T7: ending it would hurt the other run; it merely failed to give this one back."""
    run, other = here.run(*STAGED, code=1), here.run({"id": "x", "tool": "fail"}, code=1)
    worker = bystander(PLAIN)
    held = {"host": socket.gethostname(), "pid": worker.pid, "started": worker.started, "worker": 1}
    forge(here.place, run, **held)
    forge(here.place, other, **held, status="running", renewed_at=time.time())
    here.place.touch("fix")
    here.place.touch("go")
    here("retry", run, "--wait", code=0)
    assert worker.lives


async def test_a_start_that_nobody_can_tell_is_no_match() -> None:
    """T7: where the machine does not say when a process started, no process is signalled."""
    assert not await end_residual(Owner(socket.gethostname(), os.getpid(), 0.0, worker=True), 0.1)


def test_without_proc_a_process_is_known_by_what_ps_says() -> None:
    """T7: on machines without /proc; the same answer each time, another one for another process, none for none."""
    child = subprocess.Popen([sys.executable, "-c", PLAIN], stdout=subprocess.PIPE, text=True)
    try:
        first, again, other = owner._ask_ps(child.pid), owner._ask_ps(child.pid), owner._ask_ps(1)
        assert first is not None and again is not None and other is not None
        assert first[1] == again[1] > time.time() - 60 and other[1] != first[1]  # its state may change, its start not
        child.send_signal(signal.SIGSTOP)
        deadline = time.monotonic() + 5
        while (owner._ask_ps(child.pid) or ("",))[0] != "T":
            assert time.monotonic() < deadline
    finally:
        child.kill()
        child.communicate()
    assert owner._ask_ps(child.pid) is None


@pytest.mark.parametrize("turn", range(RACES))
def test_races(here: Here, turn: int) -> None:
    """T7: of two retries at the same instant exactly one works, each time; the other is told that the run is live."""
    run = here.run(*STAGED, code=1)
    here.place.touch("fix")
    before = len(here.place.calls)
    ways = ["--detach", "--wait"] if turn % 3 == 2 else ["--detach", "--detach"]
    both = [here.place.spawn("retry", run, way, "--json") for way in ways]
    here.place.until(lambda: "c" in here.place.calls)
    here.place.until(lambda: any(one.poll() == 2 for one in both))
    here.place.touch("go")
    said = [(one.communicate(timeout=90)[0], one.returncode) for one in both]
    assert sorted(code for _, code in said) == [0, 2], said
    refused = next(json.loads(out) for out, code in said if code == 2)
    assert refused["error"]["code"] == "RUN_LIVE"
    here.place.until(lambda: not workers_in(here.place.folder))
    assert here.place.calls[before:] == ["b", "c"]
    assert here("show", run, "--json", code=0).json["retries"] == 1


@pytest.mark.parametrize("turn", range(max(2, RACES // 2)))
def test_races_in_a_family(here: Here, turn: int) -> None:
    """T6, T7: of a run and what follows it, retried at the same instant, at most one goes to work in their folder."""
    here.place.touch("go")
    child = {"steps": [{**STAGED[1], "needs": []}, STAGED[2]]}
    plan = here.place.plan({"id": "p", "tool": "hold", "args": {"name": "go"}, "stage": "first"}, follow_up=child)
    found = here("run", plan, "--tools", "toolbox.py", "--json", code=0).json
    assert here.place.calls == ["p", "b"]
    (here.place.folder / "go").unlink()
    here.place.touch("fix")
    wanted = [("retry", found["run_id"], "--force", "--stage", "first"), ("retry", found["follow_up"]["run_id"])]
    both = [here.place.spawn(*one, "--wait", "--json") for one in (wanted if turn % 2 else wanted[::-1])]
    # Each that is let in stays until it may go.
    here.place.until(lambda: any(one.poll() == 2 for one in both))
    here.place.until(lambda: len(here.place.calls) > 2 or all(one.poll() == 2 for one in both))
    assert not {"p", "b"} <= set(here.place.calls[2:])
    here.place.touch("go")
    said = [(one.communicate(timeout=90)[0], one.returncode) for one in both]
    assert sorted(code for _, code in said) in ([0, 2], [2, 2]), said
    refused = {json.loads(out)["error"]["code"] for out, code in said if code == 2}
    assert refused <= {"RUN_LIVE", "RUN_SUPERSEDED"}


class Slow(MemoryStore):
    """The first who claims a run needs long for it."""

    claims = 0

    async def claim(self, run: str, owner: Owner, now: float, *, over: int | None = None) -> Lease:
        self.claims += 1
        if self.claims == 1:
            await asyncio.sleep(100)
        return await super().claim(run, owner, now, over=over)


def test_the_second_does_not_do_it_again_after_the_first() -> None:
    """T7: who decided to retry a run, and finds that somebody else has done so meanwhile, leaves it alone."""
    world = World(a=[rerail.ToolError("it broke", category="tool_error")])
    store, plan = Slow(), {"steps": [{"id": "a", "tool": "a"}]}
    settings = {"reflection": {"max_step_retries": 0}, "retry": {"max_retry_rounds": 0}}

    async def main() -> list[Any]:
        async with world.engine(plan, store=store, settings=settings) as one:
            run = (await one.run(plan)).run_id
            async with world.engine(plan, store=store, settings=settings) as two:
                ends = await asyncio.gather(two.retry(run), one.retry(run), return_exceptions=True)
                await one.retry(run)  # and the run is free
                return ends

    refused, done = virtual_run(main)
    assert isinstance(refused, Refused) and refused.code == "RUN_LIVE"
    assert done.status == "failed" and world.calls_of("a") == 3


# -- Owners that are stopped --------------------------------------------------------------------------------------


def traced(place: Place) -> list[tuple[int, str]]:
    file = place.folder / "trace.txt"
    found = [line.split() for line in file.read_text().splitlines()] if file.exists() else []
    return [(int(pid), step) for pid, step in found]


@pytest.mark.parametrize("after", [3, 11, 20][: max(1, min(3, RACES // 3))])
def test_a_stopped_owner_is_taken_over_and_thawed(place: Place, after: int) -> None:
    """T7: it can write nothing and calls nothing more; nothing but the call that was under way is made twice."""
    old = place.spawn("run", place.plan(*TRACED), "--tools", "toolbox.py", "-q")
    place.until(lambda: len(traced(place)) >= after)
    old.send_signal(signal.SIGSTOP)
    run = place("ls", "--json").json[0]["run_id"]
    refused = place("resume", run, "--json", code=2).json["error"]
    assert refused["code"] == "RUN_LIVE" and f"rerail resume {run} --take-over" in refused["hint"]
    by_old = [step for pid, step in traced(place) if pid == old.pid]
    taken = place("resume", run, "--take-over", code=0)
    assert f"was taken from process {socket.gethostname()}:{old.pid}" in taken.err
    events = place("logs", run, "--json").json
    old.send_signal(signal.SIGCONT)
    _, err = old.communicate(timeout=15)
    assert old.returncode == 1 and "took run" in err
    assert place("logs", run, "--json").json == events
    assert [step for pid, step in traced(place) if pid == old.pid] == by_old
    steps = [step for _, step in traced(place)]
    doubled = {step for step in steps if steps.count(step) > 1}
    assert doubled <= {by_old[-1]} and set(steps) == {f"s{n}" for n in range(len(TRACED))}


def test_what_a_thawed_call_writes_reaches_no_file_of_the_run(place: Place) -> None:
    """T1, T7: a process stopped in the middle of a tool, and woken when its run was taken, writes over nothing."""
    steps = (
        {"id": "a", "tool": "scribble", "produces": [{"path": "plan.json", "format": "text"}], "stage": "one"},
        {"id": "b", "tool": "ok", "needs": ["a"], "args": {"value": "${a}"}, "stage": "two"},
    )
    old = place.spawn("run", place.plan(*steps), "--tools", "toolbox.py", "-q")
    place.until(lambda: place.calls == ["a"])
    run = place("ls", "--json").json[0]["run_id"]
    folder = place.folder / ".rerail" / "work" / run
    old.send_signal(signal.SIGSTOP)
    place("resume", run, "--take-over", code=0)
    events = place("logs", run, "--json").json
    assert (folder / "plan.json").read_text() == "attempt 2"
    place.touch("go")
    old.send_signal(signal.SIGCONT)
    place.until((place.folder / "wrote1").exists)
    old.communicate(timeout=15)
    assert old.returncode == 1
    assert (folder / "plan.json").read_text() == "attempt 2"
    assert place("logs", run, "--json").json == events
    assert place("artifacts", run, "plan.json", code=0).out.strip() == "attempt 2"
    assert place("show", run, "--json").json["steps"]["b"]["output"] == str(folder / "plan.json")
    assert place.calls == ["a", "a", "b"]


def test_a_stopped_worker_is_ended_when_its_run_is_taken(here: Here) -> None:
    """T7: a worker has nothing else to do, so it is not left to thaw; a retry may take the run as well."""
    said = start(here, *HOLDING)
    here.place.until(lambda: "b" in here.place.calls)
    os.kill(said["pid"], signal.SIGSTOP)
    here.place.until(lambda: is_silent(_head(here.place, said["run_id"]), time.time()))
    here.place.touch("go")
    refused = here("retry", said["run_id"], "--json", code=2).json["error"]
    assert refused["code"] == "RUN_LIVE" and "--take-over" in refused["hint"]
    again = here("retry", said["run_id"], "--take-over", "--detach", "--json", code=0).json
    here.place.until(lambda: gone(said["pid"]) and gone(again["pid"]))
    assert status(here, said["run_id"]) == "completed"
    assert here.place.calls == ["a", "b", "b"]


def test_e11_a_worker_that_lost_its_run_says_so_in_its_log(here: Here) -> None:
    """E11, T9: another process took the run over; the worker's log names the call whose answer is not recorded."""
    said = start(here, *HOLDING)
    here.place.until(lambda: "b" in here.place.calls)
    fence = row(here.place, said["run_id"])["fence"]
    forge(here.place, said["run_id"], host="elsewhere", pid=1, fence=fence + 1, renewed_at=time.time())
    here.place.until(lambda: gone(said["pid"]))
    assert f"run {said['run_id']}: another process owns it" in log_of(said)
    assert "with answers that are not recorded: b. Not called: -" in log_of(said)


def test_an_owner_at_work_keeps_its_run(here: Here) -> None:
    """T7: --take-over is for the stopped and the silent alone."""
    said = start(here, *HOLDING)
    here.place.until(lambda: "b" in here.place.calls)
    for word in ("resume", "retry"):
        refused = here.place(word, said["run_id"], "--take-over", "--json", code=2).json["error"]
        assert refused["code"] == "RUN_LIVE" and "--take-over" not in refused["hint"]
    forge(here.place, said["run_id"], renewed_at=time.time() - 1000)
    here.place.until(lambda: row(here.place, said["run_id"])["renewed_at"] > time.time() - 100)  # it says it lives
    here.place.touch("go")
    here.place.until(lambda: gone(said["pid"]))
    assert status(here, said["run_id"]) == "completed"


def _head(place: Place, run: str) -> Head:
    found = row(place, run)
    held = Owner(found["host"], found["pid"], found["started"], bool(found["worker"]))
    return Head(run, owner=held, renewed_at=found["renewed_at"])


def test_silence_has_two_signs() -> None:
    """T7: a living process here that has not renewed for long is silent; one elsewhere counts as dead then."""
    me = Owner(socket.gethostname(), os.getpid(), process_start(os.getpid()) or 0.0)
    assert is_silent(Head("r", owner=me, renewed_at=0.0), 31.0)
    assert not is_silent(Head("r", owner=me, renewed_at=0.0), 29.0)
    assert not is_silent(Head("r", owner=Owner("elsewhere", 1, 1.0), renewed_at=0.0), 31.0)
    assert not is_silent(Head("r"), 31.0)


def test_pids_of_another_machine_of_this_name_are_not_judged(bystander: type[Bystander]) -> None:
    """T7: two containers may have one host name, and pids of their own: there only silence tells."""
    name, _, mark = this_host().partition("#")
    assert name == socket.gethostname()
    if sys.platform == "linux":
        assert len(mark) == 12
    now = time.time()
    for host, judged in ((f"{name}#elsewhere", False), (this_host(), True), (name, True)):
        nobody = Owner(host, 2**22 + 1, 5.0)
        assert is_dead(Head("r", owner=nobody, renewed_at=now), now) is judged, host
        assert is_dead(Head("r", owner=nobody, renewed_at=now - 31), now)
    twin = bystander(PLAIN)
    assert twin.started is not None
    other = Owner(f"{name}#elsewhere", twin.pid, twin.started, worker=True)
    assert not asyncio.run(end_residual(other, 0.1)) and twin.lives, "it is not the one that was meant"
    assert not is_silent(Head("r", owner=other, renewed_at=0.0), now)
    assert str(other) == f"{name}:{twin.pid}", "people see the name alone"


@pytest.mark.skipif(sys.platform != "linux", reason="namespaces are Linux's")
def test_a_space_of_pids_has_a_mark_of_its_own() -> None:
    """T7: a process in a namespace of its own is another machine to us, and known to itself."""
    code = "from rerail.engine.runs.owner import this_host; print(this_host())"
    apart = ["unshare", "--pid", "--fork", sys.executable, "-c", code]
    done = subprocess.run(apart, capture_output=True, text=True, timeout=60)
    if done.returncode:
        apart.insert(1, "--user")
        done = subprocess.run(apart, capture_output=True, text=True, timeout=60)
    if done.returncode and "ermitted" in done.stderr:
        pytest.skip("this machine lets nobody make a namespace")
    assert done.stdout.strip().partition("#")[0] == socket.gethostname(), done.stderr
    assert done.stdout.strip() != this_host()
    again = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert again.stdout.strip() == this_host()


class Stopping(MemoryStore):
    """Its process is stopped right after an intent was acknowledged, and the run is taken over meanwhile."""

    async def append(self, batch: Batch) -> None:
        await super().append(batch)
        if any(b"step_started" in data for _, data in batch.rows):
            head = await self.head(batch.run)
            assert head is not None
            await self.claim(batch.run, Owner("elsewhere", 1, 1.0), 0.0, over=head.fence)
            await asyncio.sleep(5)


class Awake(VirtualClock):
    """A clock by which a process can tell for how long it was stopped."""

    def uptime(self) -> float:
        return asyncio.get_running_loop().time()


def test_nothing_is_called_by_one_who_woke_up_too_late() -> None:
    """T7, E1, E11: between the acknowledged intent and the call the process was stopped: the lease is asked for."""
    world = World(a=[{"n": 1}])
    plan = {"steps": [{"id": "a", "tool": "a"}]}

    async def main() -> None:
        async with world.engine(plan, store=Stopping(), clock=Awake()) as engine:
            with pytest.raises(StoreError, match="took run"):
                await engine.run(plan)

    virtual_run(main)
    assert world.calls_of("a") == 0


class Fencing(MemoryStore):
    """Slow to refuse: the run is taken over before the first failure is written, and that is told late."""

    async def append(self, batch: Batch) -> None:
        if any(b"step_failed" in data for _, data in batch.rows):
            head = await self.head(batch.run)
            assert head is not None
            await self.claim(batch.run, Owner("elsewhere", 1, 1.0), 0.0, over=head.fence)
            await asyncio.sleep(5)
        await super().append(batch)


def test_nobody_is_asked_by_one_who_may_not_write() -> None:
    """T7, E1: a question to a mind follows from an event, and that event was refused."""
    mind = ScriptedMind(reflect=[None])
    world = World(a=[RuntimeError("odd")])
    plan = {"steps": [{"id": "a", "tool": "a"}]}
    settings = {"reflection": {"mode": "model", "max_step_retries": 0}}

    async def main(store: MemoryStore) -> None:
        async with world.engine(plan, store=store, clock=VirtualClock(), model=mind, settings=settings) as engine:
            await engine.run(plan)

    with pytest.raises(StoreError, match="took run"):
        virtual_run(lambda: main(Fencing()))
    assert not mind.asked
    virtual_run(lambda: main(MemoryStore()))
    assert mind.asked  # where it may write, it does ask
