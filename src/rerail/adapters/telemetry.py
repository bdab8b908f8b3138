"""OpenTelemetry spans of runs, steps, attempts and model calls (contract I8; extra `otel`).

Rules of this file:
- Off unless the embedding program has set OpenTelemetry up; otherwise the cost is one check.
- Spans are made from durable events, with the events' own times. The engine neither waits for them nor depends on them.
  They hold no arguments, no outputs and no words of a model: those may be secret.
- A run that waits for a person is not under way: its span ends there, and another begins when it goes on.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rerail.kernel import events as ev
from rerail.kernel.events import Record
from rerail.kernel.policy import Rung
from rerail.version import __version__

if TYPE_CHECKING:
    from opentelemetry.trace import Span, Tracer, TracerProvider

# The names of the GenAI conventions, as literals: their constants still change.
OPERATION, TOOL, CALL_ID, TOOL_TYPE = (
    "gen_ai.operation.name", "gen_ai.tool.name", "gen_ai.tool.call.id", "gen_ai.tool.type",
)  # fmt: skip
AGENT, CONVERSATION = "gen_ai.agent.name", "gen_ai.conversation.id"
MODEL, TOKENS_IN, TOKENS_OUT = "gen_ai.request.model", "gen_ai.usage.input_tokens", "gen_ai.usage.output_tokens"
ERROR = "error.type"


def make_tracing(provider: TracerProvider | None = None) -> Tracing | None:
    """Return an observer that makes spans of runs; None if OpenTelemetry is not set up."""
    if provider is None:
        from opentelemetry import trace

        provider = trace.get_tracer_provider()
        if isinstance(provider, trace.ProxyTracerProvider | trace.NoOpTracerProvider):
            return None
    return Tracing(provider.get_tracer("rerail", __version__))


@dataclass(slots=True)
class _Run:
    """The open spans of one run."""

    span: Span
    steps: dict[str, Span] = field(default_factory=dict)
    attempts: dict[str, Span] = field(default_factory=dict)


class Tracing:
    """Observer of durable events that makes spans of them."""

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer
        self._runs: dict[str, _Run] = {}

    def __call__(self, record: Record) -> None:
        event, at = record.event, _nanoseconds(record.at)
        if isinstance(event, ev.Notified) or (isinstance(event, ev.StepProgress) and record.run not in self._runs):
            return
        run = self._runs.get(record.run) or self._begun(record, at)
        match event:
            case ev.StepStarted():
                self._attempt(run, record.run, event, at)
            case ev.StepSucceeded():
                _close(run.attempts.pop(event.step, None), at)
                _close(run.steps.pop(event.step, None), at)
            case ev.StepFailed():
                _close(run.attempts.pop(event.step, None), at, event.error.code, str(event.error.category))
            case ev.Reflected(rung=Rung.FAIL):
                _close(run.steps.pop(event.step, None), at, str(event.category))
            case ev.StepSkipped() | ev.Acted(action="resolve") | ev.Recovered(rung=Rung.FALLBACK, tool=""):
                _close(run.steps.pop(event.step, None), at)
            case ev.Consulted():
                self._consulted(run, event, at)
            case ev.Waiting():
                self._ended(record.run, run, at, "waiting", ok=True)
            case ev.Done():
                self._ended(record.run, run, at, event.status, ok=event.success)
            case _:
                pass

    def close(self) -> None:
        """End the open spans: this program ends, and its runs may go on elsewhere."""
        for run in self._runs.values():
            for span in (*run.attempts.values(), *run.steps.values(), run.span):
                span.end()
        self._runs.clear()

    # -- Spans ----------------------------------------------------------------------------------------------------

    def _span(self, name: str, parent: Span | None, at: int, **kinds: Any) -> Span:
        from opentelemetry.trace import set_span_in_context

        context = set_span_in_context(parent) if parent is not None else None  # else the caller's current context
        return self._tracer.start_span(name, context, start_time=at, attributes=kinds.pop("attributes", None))

    def _begun(self, record: Record, at: int) -> _Run:
        facts: dict[str, Any] = {
            OPERATION: "invoke_agent", AGENT: "rerail", CONVERSATION: record.run, "rerail.run.id": record.run,
            "rerail.seq": record.seq,
        }  # fmt: skip
        if isinstance(record.event, ev.RunStarted) and record.event.parent:
            facts["rerail.run.parent"] = record.event.parent
        found = self._runs[record.run] = _Run(self._span("invoke_agent rerail", None, at, attributes=facts))
        return found

    def _attempt(self, run: _Run, name: str, event: ev.StepStarted, at: int) -> None:
        facts: dict[str, Any] = {"rerail.run.id": name, "rerail.step.id": event.step}
        step = run.steps.get(event.step)
        if step is None:
            step = run.steps[event.step] = self._span(f"step {event.step}", run.span, at, attributes=facts)
        facts |= {
            OPERATION: "execute_tool", TOOL: event.tool, TOOL_TYPE: "function", "rerail.attempt": event.attempt,
            CALL_ID: f"{name}/{event.step}/{event.attempt}", "rerail.effect": str(event.effect),
        }  # fmt: skip
        if event.rung is not None:
            facts["rerail.rung"] = str(event.rung)
        run.attempts[event.step] = self._span(f"execute_tool {event.tool}", step, at, attributes=facts)

    def _consulted(self, run: _Run, event: ev.Consulted, at: int) -> None:
        facts = {
            OPERATION: "chat", MODEL: event.model, TOKENS_IN: event.input_tokens, TOKENS_OUT: event.output_tokens,
            "rerail.question": event.question, "rerail.cost": event.cost,
        }  # fmt: skip
        above = run.steps.get(event.step, run.span)
        begun = at - _nanoseconds(event.elapsed)
        span = self._span(f"chat {event.model}", above, begun, attributes=facts)
        _close(span, at, "unusable_answer" if event.problem else "")

    def _ended(self, name: str, run: _Run, at: int, status: str, *, ok: bool) -> None:
        for span in (*run.attempts.values(), *run.steps.values()):
            span.end(at)
        run.span.set_attribute("rerail.status", status)
        _close(run.span, at, "" if ok else status)
        self._runs.pop(name, None)


def _close(span: Span | None, at: int, code: str = "", category: str = "") -> None:
    if span is None:
        return
    if code:
        from opentelemetry.trace import Status, StatusCode

        span.set_attribute(ERROR, code)
        if category:
            span.set_attribute("rerail.category", category)
        span.set_status(Status(StatusCode.ERROR, code))
    span.end(at)


def _nanoseconds(seconds: float) -> int:
    return int(seconds * 1e9)
