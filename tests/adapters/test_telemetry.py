"""Traces of runs, as a program that has set OpenTelemetry up sees them (I8)."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from rerail.api import Engine
from rerail.kernel.events import Record
from rerail.testing import ScriptedModel, VirtualClock, World, virtual_run

EXPORTER = InMemorySpanExporter()


@pytest.fixture(scope="module", autouse=True)
def provider() -> Iterator[None]:
    """A program that has set OpenTelemetry up, once for its life, as programs do."""
    found = TracerProvider()
    found.add_span_processor(SimpleSpanProcessor(EXPORTER))
    trace.set_tracer_provider(found)
    yield
    EXPORTER.shutdown()  # it cannot be taken back; but nothing more is kept


@pytest.fixture(autouse=True)
def spans() -> Iterator[None]:
    """Each test sees its own spans alone."""
    EXPORTER.clear()
    yield
    EXPORTER.clear()


def lived(world: World, *steps: dict[str, Any], act: Any = None, model: Any = None, **settings: Any) -> list[Record]:
    """A run, and its history."""
    plan = {"objective": "o", "steps": list(steps)}

    async def main() -> list[Record]:
        async with Engine("memory://", world.tools(plan), settings, model, clock=VirtualClock()) as engine:
            run = await engine.start(plan, run_id="r")
            await engine.wait(run)
            if act is not None:
                await act(engine, run)
                await engine.wait(run)
            return await engine.events(run)

    return virtual_run(main)


def ended() -> list[ReadableSpan]:
    """The spans that are over."""
    return list(EXPORTER.get_finished_spans())


def named(name: str) -> list[ReadableSpan]:
    """Those of a name, in the order they began."""
    return sorted((span for span in ended() if span.name == name), key=lambda span: span.start_time or 0)


def above(span: ReadableSpan) -> str:
    """The name of the span that a span is in."""
    assert span.parent is not None
    wanted = span.parent.span_id
    return next(one.name for one in ended() if one.context is not None and one.context.span_id == wanted)


def test_a_run_is_a_trace_of_steps_and_attempts() -> None:
    """I8: run, step, attempt, each in the one above it, with the events' own times and the GenAI names."""
    records = lived(World(t=[ConnectionRefusedError("down"), 7]), {"id": "a", "tool": "t"})
    [run], [step] = named("invoke_agent rerail"), named("step a")
    first, second = named("execute_tool t")
    assert above(step) == run.name and above(first) == above(second) == step.name
    assert run.attributes is not None and first.attributes is not None and second.attributes is not None
    assert run.attributes["gen_ai.operation.name"] == "invoke_agent" and run.attributes["rerail.status"] == "completed"
    assert first.attributes["gen_ai.operation.name"] == "execute_tool" and first.attributes["gen_ai.tool.name"] == "t"
    assert first.attributes["gen_ai.tool.call.id"] == "r/a/1" and first.attributes["error.type"] == "TOOL_FAILED"
    assert (
        not first.status.is_ok and second.status.status_code.name == "UNSET" and run.status.status_code.name == "UNSET"
    )
    begun = next(record.at for record in records if record.type == "step_started")
    assert first.start_time == int(begun * 1e9) and run.start_time == int(records[0].at * 1e9)


def test_what_a_tool_was_given_and_gave_is_in_no_span() -> None:
    """I8: arguments and outputs may be secret."""
    lived(World(t=["secret output"]), {"id": "a", "tool": "t", "args": {"key": "secret argument"}})
    assert ended() and "secret" not in " ".join(span.to_json() for span in ended())


def test_a_failed_run_is_an_error_and_a_waiting_one_is_over_until_it_goes_on() -> None:
    """I8: the span of a run ends where only a person can move it; another begins once somebody did."""
    lived(World(t=[ValueError("no")]), {"id": "a", "tool": "t"}, retry={"max_retry_rounds": 0})
    [run] = named("invoke_agent rerail")
    assert not run.status.is_ok and run.attributes is not None and run.attributes["rerail.status"] == "failed"
    EXPORTER.clear()

    async def agree(engine: Engine, run: str) -> None:
        await engine.confirm(run, "a")

    lived(World(), {"id": "a", "tool": "t", "confirm": True}, act=agree)
    first, second = named("invoke_agent rerail")
    assert [span.attributes["rerail.status"] for span in (first, second) if span.attributes] == ["waiting", "completed"]
    assert len(named("execute_tool t")) == 1


def test_a_call_of_a_model_is_a_span_of_its_own() -> None:
    """I8: which model, for what, how many tokens; under the step it was asked about."""
    said = {"category": "transient_error", "root_cause": "odd", "recoverable": True, "confidence": 80}
    model = ScriptedModel({"reflect": [said]})
    lived(World(t=[RuntimeError("odd"), 1]), {"id": "a", "tool": "t"}, model=model, evaluation={"judge": False})
    chats = [span for span in ended() if span.name.startswith("chat ")]
    assert chats and {above(span) for span in chats} == {"step a"} and chats[0].attributes is not None
    facts = chats[0].attributes
    assert facts["gen_ai.operation.name"] == "chat" and facts["rerail.question"] == "reflect"
    assert facts["gen_ai.usage.input_tokens"] is not None and facts["gen_ai.request.model"]


def test_a_run_is_inside_of_what_the_caller_is_in() -> None:
    """I8: the program's own span is the parent."""
    with trace.get_tracer("program").start_as_current_span("request"):
        lived(World(), {"id": "a", "tool": "t"})
    assert above(named("invoke_agent rerail")[0]) == "request"


def test_nothing_is_left_open_when_the_engine_closes() -> None:
    """I8: runs that go on elsewhere are told of elsewhere."""

    async def main() -> None:
        import asyncio

        from rerail.testing import Took

        world = World(t=[Took(1000, 1)])
        plan = {"objective": "o", "steps": [{"id": "a", "tool": "t"}]}
        async with Engine("memory://", world.tools(plan), clock=VirtualClock()) as engine:
            await engine.start(plan)
            await asyncio.sleep(5)

    virtual_run(main)
    assert {span.name for span in ended()} == {"invoke_agent rerail", "step a", "execute_tool t"}


@pytest.mark.parametrize("before", ["", "import opentelemetry.trace"])
def test_without_a_set_up_nothing_is_loaded_and_nobody_listens(before: str) -> None:
    """I8: no cost when off: the library is not even imported; imported and not set up, nobody is told of events."""
    code = f"""
import sys
{before}
import rerail
loaded = set(sys.modules)
engine = rerail.Engine("memory://")
assert engine._parts.observers == ()
assert not [name for name in set(sys.modules) - loaded if name.startswith("opentelemetry")]
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
