"""A user's program: what it writes is what README and reference show, and both type checkers agree to it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any, Literal

import rerail
from rerail import Check, Fallback, Need, Step, Trust, Verify


@rerail.tool
def fetch(url: str) -> dict[str, str]:
    """Fetch a page."""
    return {"text": url}


@rerail.tool(effect="once", timeout=30, settle="never", errors="by_status", on_doubt="fail")
async def send(to: str, ctx: rerail.Context) -> str:
    """Send a mail."""
    ctx.log(f"to {to}")
    return ctx.key


count = rerail.shell("count", ["wc", "-l", "{file}"], effect="read")
rates = rerail.http("rates", "GET", "https://example.org/{day}", effect="read")

PAGE = {"url": "y"}
PLAN = rerail.Plan(
    "Send what was fetched",
    steps=[
        Step("a", "fetch", {"url": "x"}, retries=2),
        Step("b", "fetch", PAGE, needs=["a"], fallback={"value": None}, check={"keys": ["text"]}, effect="read"),
        Step(
            id="c", tool="send", args={"to": "${b.text}"}, needs=["a", {"step": "b", "when": "done"}, Need("a")],
            effect="once", fallback=Fallback(value=1), check=Check(non_empty=True), confirm="Send to ${b.text}?",
            verify=Verify("fetch", {"url": "y"}), trust_output=Trust(ignore=("error",)), on_doubt="wait",
        ),
    ],
)  # fmt: skip


def told(text: str) -> str:
    """Use what must be a text."""
    return text


async def drive(engine: rerail.Engine) -> None:
    """Start, wait, look and act."""
    run_id = await engine.start(PLAN, run_id="order-42", objective=None)
    result: rerail.RunResult = await engine.wait(run_id)
    if result.status == "waiting":
        preview = await engine.confirm(run_id, "c", dry_run=True)
        if preview is not None:
            told(preview.leads_to)
        await engine.confirm(run_id, "c", args={"to": "ann"})
    if result.status is rerail.RunStatus.RUNNING and result.interrupted:
        result = await engine.resume(run_id)
    status: Literal["completed", "other"] = "completed" if result.status == "completed" else "other"
    told(status)
    foreseen: rerail.Preview = await engine.retry(run_id, dry_run=True)
    again: rerail.RunResult = await engine.retry(run_id, ["c"], force=True)
    told(foreseen.leads_to + again.summary)
    for step_id, row in again.steps.items():
        if row.status == "failed" and row.error is not None:
            told(f"{step_id}: {row.error['message']}")
    for listed in await engine.list(status="completed", limit=3):
        told(listed.run_id + listed.status)
    for listed in await engine.list(status=["failed", "waiting"]):
        told(listed.run_id)
    for left in await engine.recover():
        told(left)
    await engine.resolve(run_id, "c", succeeded={"sent": True})
    await engine.add(run_id, [Step("d", "fetch"), {"id": "e", "tool": "fetch"}])
    told(await engine.why(run_id, "c"))
    plain: dict[str, Any] = (await engine.show(run_id)).to_dict()
    told(str(plain["status"]))


async def follow(engine: rerail.Engine, run_id: str) -> AsyncIterator[str]:
    """Tell events by their type, and by their class."""
    async for record in engine.watch(run_id, after=0):
        if record.type == "step_succeeded":
            yield f"{record.seq} {record.run} {record.at:.1f}"
        match record.event:
            case rerail.events.StepFailed(step=step, error=error):
                yield told(step + error.message)
            case rerail.events.Done(status=status):
                yield status
            case _:
                pass


async def whole(settings: Mapping[str, Any]) -> rerail.RunResult:
    """Open an engine on a file."""
    async with rerail.Engine("runs.db", [fetch, send, count, rates], settings) as engine:
        await drive(engine)
        await engine.run(PLAN, run_id="order-43")
    faults: list[rerail.Fault] = PLAN.check([fetch, send])
    told("".join(fault.message for fault in faults))
    return await rerail.arun(PLAN, [fetch, send], run_id="r", settings=rerail.Settings.load(settings))


if __name__ == "__main__":
    done = rerail.run({"steps": [{"id": "a", "tool": "fetch", "args": {"url": "x"}}]}, tools=[fetch], run_id="r")
    told(fetch("x")["text"] + done.steps["a"].status)
