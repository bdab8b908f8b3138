"""Threads for blocking tools: reused, abandoned when cancelled, no obstacle to the program's end (SPEC X1, X3, X4)."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import subprocess
import sys
import threading
import time
import weakref
from typing import Any

import pytest

from rerail.adapters.executors.threads import Escaped, ThreadPool, carried

pytestmark = pytest.mark.anyio


async def test_threads_are_started_on_demand_and_used_again() -> None:
    """X1: as many threads as calls at once, and no more."""
    pool = ThreadPool()
    names = {await pool.run(lambda: threading.current_thread().name) for _ in range(20)}
    assert len(names) == pool.size == 1
    start = time.perf_counter()
    await asyncio.gather(*(pool.run(time.sleep, 0.1) for _ in range(20)))
    assert time.perf_counter() - start < 1.5
    assert pool.size == 20
    assert all(thread.daemon for thread in threading.enumerate() if thread.name.startswith("rerail-tool"))


async def test_threads_without_work_end() -> None:
    """X1: a burst of calls does not leave its threads for ever; the pool works on."""
    pool = ThreadPool(keep_seconds=0.05)
    await asyncio.gather(*(pool.run(time.sleep, 0.01) for _ in range(5)))
    for _ in range(100):
        if pool.size == 0:
            break
        await asyncio.sleep(0.05)
    assert pool.size == 0
    assert await pool.run(lambda: 1) == 1


async def test_many_calls_at_once_lose_nothing() -> None:
    """X1: threads that end, start and are handed work at the same moment."""
    pool = ThreadPool(keep_seconds=0.001)

    async def chain(number: int) -> list[int]:
        answers = []
        for step in range(30):
            answers.append(await pool.run(lambda step=step: number * 100 + step))
            await asyncio.sleep(0.001 if step % 3 else 0)
        return answers

    chains = await asyncio.gather(*(chain(number) for number in range(20)))
    assert chains == [[number * 100 + step for step in range(30)] for number in range(20)]


async def test_arguments_and_contextvars_go_along() -> None:
    """M2: any keyword, `fn` included; changes of contextvars stay in the call."""
    var = contextvars.ContextVar("var", default=0)
    var.set(1)

    def work(*args: Any, **kwargs: Any) -> Any:
        var.set(var.get() + 1)
        return args, kwargs, var.get()

    assert await ThreadPool().run(work, 1, fn=2, self=3) == ((1,), {"fn": 2, "self": 3}, 2)
    assert var.get() == 1


@pytest.mark.parametrize(
    "error",
    [SystemExit(3), KeyboardInterrupt(), StopIteration(5), GeneratorExit(), asyncio.CancelledError("gone")],
    ids=lambda error: type(error).__name__,
)
async def test_what_would_end_more_than_the_call_comes_back_as_a_failure(error: BaseException) -> None:
    """X3: neither the thread nor the event loop dies of it, and it is not taken for a cancellation."""
    pool = ThreadPool()

    def work() -> None:
        raise error

    with pytest.raises(Escaped, match=r"SystemExit|sys\.exit|" + type(error).__name__) as caught:
        await pool.run(work)
    assert caught.value.__cause__ is error
    assert caught.value.type_names[0] == type(error).__name__
    assert await pool.run(lambda: "alive") == "alive"
    assert pool.size == 1


async def test_ordinary_exceptions_come_back_as_themselves() -> None:
    """X3: the same object, with its traceback."""
    error = ValueError("no")
    assert carried(error) is error

    def work() -> None:
        raise error

    with pytest.raises(ValueError, match="no") as caught:
        await ThreadPool().run(work)
    assert caught.value is error
    assert "work" in [entry.name for entry in caught.traceback]


async def test_a_cancelled_call_is_abandoned_and_its_late_answer_harms_nobody() -> None:
    """X4: the caller is free at once; the thread is used again when it is."""
    pool = ThreadPool()
    release = threading.Event()
    start = time.perf_counter()
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(pool.run(release.wait, 10), 0.05)
    assert time.perf_counter() - start < 2
    assert await pool.run(lambda: 1) == 1  # in another thread
    assert pool.size == 2
    release.set()
    await asyncio.sleep(0.05)
    assert await pool.run(lambda: 2) == 2
    assert pool.size == 2


async def test_an_idle_thread_keeps_no_output_alive() -> None:
    """E7: a 50 MB answer is not held until the next call."""

    class Big:
        pass

    pool = ThreadPool()
    output = await pool.run(Big)
    seen = weakref.ref(output)
    del output
    await asyncio.sleep(0.01)
    gc.collect()
    assert seen() is None


def test_a_forked_process_has_threads_of_its_own() -> None:
    """X1: a program that forks does not wait for threads which only its parent has."""
    program = """
import asyncio, os
from rerail.adapters.executors.threads import THREADS
assert asyncio.run(THREADS.run(lambda: 1)) == 1
if os.fork() == 0:
    assert asyncio.run(THREADS.run(lambda: 2)) == 2
    print("child", flush=True)
    os._exit(0)
print("parent", os.wait()[1])
"""
    # Newer Pythons warn about every such fork, whoever does it.
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30)
    assert (done.stdout, done.stderr) == ("child\nparent 0\n", "")


def test_a_hung_tool_does_not_keep_the_program_from_ending() -> None:
    """X4: a thread that ignores cancellation is left behind, also by the interpreter; late answers are not printed."""
    program = """
import asyncio, time
from rerail.adapters.tools.functions import tool

@tool
def hang(): time.sleep(60)

@tool
def late(): time.sleep(0.3)

async def main():
    for one in (hang, late):
        try:
            await asyncio.wait_for(one.call({}), 0.1)
        except TimeoutError:
            print("abandoned")

asyncio.run(main())
time.sleep(0.5)  # the late answer finds its loop closed
"""
    start = time.perf_counter()
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=30)
    assert time.perf_counter() - start < 20
    assert (done.returncode, done.stdout, done.stderr) == (0, "abandoned\nabandoned\n", "")
