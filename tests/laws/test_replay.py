"""Laws of the replay: under the settings that a run had, it comes to exactly what it came to."""

from __future__ import annotations

import asyncio
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.laws.test_laws import SMALL, settle
from tests.laws.worlds import SCALE, Chaos, plans, tools_for

from rerail.api import Engine
from rerail.kernel import events as ev
from rerail.kernel.events import Record
from rerail.kernel.fold import fold
from rerail.kernel.verdict import run_status, status_of
from rerail.plan.model import Plan
from rerail.plan.tool_spec import ToolSpec
from rerail.testing.virtual_time import VirtualClock, virtual_run
from rerail.views.replay.replay import replay

LAW = settings(max_examples=100 * SCALE, deadline=None, suppress_health_check=list(HealthCheck))


def lived(plan: Plan, data: st.DataObject) -> tuple[list[Record], dict[str, ToolSpec]]:
    """The history of a plan in a world of chance, with its tools."""
    found: list[Record] = []
    specs: dict[str, ToolSpec] = {}

    async def main() -> None:
        chaos = Chaos(data.draw)
        async with Engine("memory://", tools_for(plan, chaos), SMALL, clock=VirtualClock()) as engine:
            run = await engine.start(plan, run_id="the-run")
            await settle(engine, run, data.draw)
            found.extend(await engine.events(run))
            specs.update(engine.tools)
        if chaos.over is not None:
            raise chaos.over

    virtual_run(lambda: asyncio.wait_for(main(), 10**7))
    return found, specs


@LAW
@given(plans(), st.data())
def test_with_the_same_settings_a_replay_comes_to_the_same(plan: Plan, data: st.DataObject) -> None:
    """The settings of the record change nothing, wherever the replay leaves the history and goes on by itself."""
    records, tools = lived(plan, data)
    plain = replay("the-run", records, tools, {})
    end = fold("the-run", records)
    assert plain.known and not plain.branch and not plain.drift and not plain.unknown
    assert plain.recorded == plain.replayed and not any(row.changed for row in plain.steps)
    assert plain.replayed.status == str(run_status(end))
    if any(isinstance(record.event, ev.Cancelled) for record in records):
        return  # somebody stepped in, and nobody can say whether they would have
    seq = data.draw(st.sampled_from([record.seq for record in records[2:]] or [3]))
    forced = replay("the-run", records, tools, {}, branch_at=seq)
    assert forced.known, forced.unknown
    assert forced.replayed.status == forced.recorded.status
    assert not [row for row in forced.steps if row.changed]
    assert {row.step: row.replayed.status for row in forced.steps} == statuses(end)


def statuses(state: Any) -> dict[str, str]:
    """What each step is."""
    return {track.id: str(status_of(state, track)[0]) for track in state.tracks.values()}
