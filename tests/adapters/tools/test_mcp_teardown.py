"""What becomes of MCP servers when an event loop is torn down around them (M4)."""

from __future__ import annotations

import subprocess
import sys

TORN = """
import asyncio, gc, os, sys, warnings
import anyio
from rerail.adapters.tools.mcp import transports as mcp_transports

warnings.simplefilter("always")

async def main():
    send, receive = anyio.create_memory_object_stream(10)
    stubborn = "import signal, time; signal.signal(15, signal.SIG_IGN); print('{}', flush=True); time.sleep(60)"
    program = mcp_transports.Program([sys.executable, "-c", stubborn])
    running = await mcp_transports._start(program, send, lambda: None)
    await receive.receive()  # it is there, and will not go by itself
    asyncio.create_task(running.stop())
    await asyncio.sleep(0)
    receive.close()
    return running.transport.get_pid()

pid = asyncio.run(main())
gc.collect()
try:
    os.kill(pid, 0)
    print("it lives")
except ProcessLookupError:
    print("it is gone")
"""


def test_a_loop_that_is_torn_down_leaves_nothing_behind() -> None:
    """M4: the program that a cancelled `stop` was waiting for is ended, seen to end, and its pipes are closed."""
    done = subprocess.run([sys.executable, "-c", TORN], capture_output=True, text=True, timeout=60, check=True)
    assert (done.stdout, done.stderr) == ("it is gone\n", "")
