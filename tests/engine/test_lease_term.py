"""How long a process relies on a lease: by a clock that counts suspension (E11)."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import time
from collections.abc import Iterator
from typing import Any

import pytest
from tests.engine.left_behind import FAR, resumed

from rerail.adapters.stores.memory import MemoryStore
from rerail.api import Engine
from rerail.context import uptime
from rerail.engine.launch import LeaseTerm
from rerail.errors import NotDone, PlanError
from rerail.kernel.foreign import certainty_of
from rerail.kernel.outcome import Certainty
from rerail.ports import TERM, Owner
from rerail.testing import VirtualClock, virtual_run


class Machine:
    """A clock of a machine that sleeps: the boot time goes on, the monotonic time does not."""

    polls = True

    def __init__(self) -> None:
        self.monotonic, self.boot = 50.0, 100.0

    def now(self) -> float:
        return 1_000.0

    def uptime(self) -> float:
        return self.boot

    def work(self, seconds: float) -> None:
        self.monotonic += seconds
        self.boot += seconds

    def sleep(self, seconds: float) -> None:
        self.boot += seconds

    @contextlib.contextmanager
    def external(self) -> Iterator[None]:
        yield


def test_e11_a_machine_that_slept_does_not_rely_on_its_lease() -> None:
    """E11: the lease ages while the machine sleeps, although its processes see no time pass."""
    machine = Machine()
    term = LeaseTerm(machine, "r")
    machine.work(TERM)
    term.require("s")
    machine.sleep(3600)
    assert machine.monotonic == 50.0 + TERM and term.age == TERM + 3600
    with pytest.raises(NotDone) as refused:
        term.require("s")
    assert certainty_of(refused.value) is Certainty.NOT_DONE
    assert getattr(refused.value.error, "code", "") == "OWNER_LOST"
    term.confirmed(machine.uptime())
    term.require("s")


def test_e11_a_confirmation_is_as_old_as_its_question() -> None:
    """E11: the machine slept while the store answered; and an answer that comes late takes nothing back."""
    machine = Machine()
    term = LeaseTerm(machine)
    asked = machine.uptime()
    machine.sleep(TERM + 1)
    term.confirmed(asked)
    assert not term.is_current
    fresh = machine.uptime()
    term.confirmed(fresh)
    term.confirmed(asked)
    assert term.is_current and term.age == 0


def test_e11_a_lease_that_was_lost_stays_lost_and_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    """E11: the log `rerail` says which calls were under way, which were not made, and what did not act."""
    machine = Machine()
    term = LeaseTerm(machine, "r")
    with caplog.at_level(logging.WARNING, "rerail"):
        term.lose({"a": True, "b": False})
        term.lose({"a": True})
        term.confirmed(machine.uptime())
        with pytest.raises(NotDone):
            term.require("a")
    lost, refused = [record.getMessage() for record in caplog.records]
    assert "run r: another process owns it" in lost and "not recorded: a." in lost and "Not called: b" in lost
    assert "run r, step a: not done" in refused
    assert {record.levelname for record in caplog.records} == {"WARNING"}


def test_e11_where_nothing_renews_leases_none_grows_old() -> None:
    """E11: under virtual time no process renews a lease, so an old one is relied on; only a lost one is not."""

    async def main() -> None:
        term = LeaseTerm(VirtualClock())
        await asyncio.sleep(60)
        term.require()
        term.lose({})
        assert term.age == 0.0 and not term.is_current

    virtual_run(main)


def test_e11_the_clock_counts_suspension_where_the_system_does() -> None:
    """E11: CLOCK_BOOTTIME, not the monotonic clock."""
    if hasattr(time, "CLOCK_BOOTTIME"):
        assert abs(uptime() - time.clock_gettime(time.CLOCK_BOOTTIME)) < 1


# -- Owners between the one that made a call and the one that finds it ---------------------------------------------


GONE = Owner(socket.gethostname(), 999_999_999, 1.0)  # of this machine, and known to be dead


async def _claimed(store: MemoryStore, run: str) -> None:
    """Another process takes the run, and is killed before it records anything."""
    await store.claim(run, GONE, 1_700_000_070.0, over=1)


async def _refused(store: MemoryStore, run: str) -> None:
    """Another process takes the run, and gives it back: it has not got the tools."""
    async with Engine(store, [], clock=VirtualClock()) as engine:
        with pytest.raises(PlanError):
            await engine.begin_resume(run)


@pytest.mark.parametrize(
    ("first", "between", "comes_to"),
    [
        pytest.param(FAR, _claimed, ("waiting", 1), id="silent, and its successor was killed"),
        pytest.param(FAR, _refused, ("waiting", 1), id="silent, and its successor could not go on"),
        pytest.param(GONE, _refused, ("completed", 2), id="dead, and its successor could not go on"),
    ],
)
def test_e11_what_is_known_of_an_owner_outlives_its_successor(first: Owner, between: Any, comes_to: Any) -> None:
    """E11: the call in flight is the silent owner's, whoever had the run for a moment since then."""
    assert resumed(first, between) == comes_to
