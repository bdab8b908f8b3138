"""A run's loop as an actor of a Ray cluster, which Ray starts again elsewhere if its process or node dies (SPEC I6).

Rules of this file:
- The actor knows which run is its own, and how an engine is made; everything else is in the store. So one that starts
  again is no other case than one that starts.
- Whoever had the run before keeps it while it lives: its lease decides, as everywhere.
- What it is made from travels inside of Ray's own record of it, in pieces small enough for that. As an object of the
  cluster it would go with the process that made it, and an actor that is started again would find nothing.
- It ends with its run's rest, when only a person can move it, or when the run cannot be driven here: then it says why,
  once, and leaves it to others.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import zlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import ray
from ray import cloudpickle

from rerail.adapters.executors.ray import NAMESPACE, in_rays_words
from rerail.core.texts import tell
from rerail.errors import PlanError, RerailError, StoreError

LOG: Final = logging.getLogger("rerail")
UNDER_WAY: Final = ("pending", "running")
LOOK_SECONDS: Final = 1.0  # between two looks at a run that somebody else has
UNREACHABLE: Final = "CLUSTER_UNREACHABLE"
PIECE: Final = 50_000  # bytes; what is larger than 100 KiB becomes an object of the cluster
AGAIN_SECONDS: Final = 5.0  # until it is tried again, if the store or the cluster is out of reach


class Coordinator:
    """Drives one run to its rest. Its work begins when it is made: after a restart nobody is there to ask for it."""

    def __init__(self, run: str, *pieces: bytes) -> None:
        self._run, self._make = run, _whole(pieces)
        threading.Thread(target=self._work, name="rerail-coordinator", daemon=True).start()

    def run(self) -> str:
        """Which run it is for."""
        return self._run

    def _work(self) -> None:
        try:
            said: set[str] = set()
            while not asyncio.run(driven(self._run, self._make, said)):
                threading.Event().wait(AGAIN_SECONDS)
        except Exception:
            LOG.exception("run %s", self._run)  # an actor that stayed would stand in the way of the next
        finally:
            # Not an exit, which Ray would take for a death and answer with another start.
            ray.kill(ray.get_runtime_context().current_actor, no_restart=True)


async def driven(run: str, make: Callable[[], Any], said: set[str]) -> bool:
    """Drive a run; whether it needs nobody here any more. What passes is waited for, and ``said`` once."""
    try:
        async with make() as engine:
            while (await engine.head(run)).status in UNDER_WAY:
                if await engine.take_up(run):
                    while tasks := engine.under_way().values():  # it, and what follows it
                        await asyncio.wait(tasks)
                else:
                    await engine.freed(LOOK_SECONDS)
    except RerailError as problem:
        passes = isinstance(problem, StoreError) or problem.code == UNREACHABLE
        faults = problem.faults if isinstance(problem, PlanError) else ()  # its tools are not here, and will not be
        why = "; ".join(str(fault.message) for fault in faults) or str(problem)
        if why not in said:
            said.add(why)
            words = (
                tell("reason.work.waits", run=run, why=why) if passes else tell("reason.work.left", run=run, why=why)
            )
            LOG.log(logging.WARNING if passes else logging.ERROR, "%s", words)
        return not passes
    return True


def asked(resources: Mapping[str, float]) -> dict[str, Any]:
    """What the actor asks for, as Ray takes it: it waits most of the time, and so for no core unless somebody says."""
    return in_rays_words({"cpu": 0, **resources})


def coordinate(run: str, make: Callable[[], Any], resources: Mapping[str, float], env: Mapping[str, Any]) -> None:
    """Let an actor of the cluster drive a run; it outlives this process."""
    pieces = _pieces(make)
    ray.remote(Coordinator).options(
        name=f"run-{run}", namespace=NAMESPACE, lifetime="detached", max_restarts=-1, max_concurrency=2,
        get_if_exists=True, runtime_env=dict(env) or None, **asked(resources),
    ).remote(run, *pieces)  # fmt: skip


def _pieces(make: Callable[[], Any]) -> list[bytes]:
    dumps: Callable[[Any], bytes] = cloudpickle.dumps
    data = zlib.compress(dumps(make))
    return [data[at : at + PIECE] for at in range(0, len(data), PIECE)]


def _whole(pieces: Iterable[bytes]) -> Callable[[], Any]:
    make: Callable[[], Any] = cloudpickle.loads(zlib.decompress(b"".join(pieces)))
    return make
