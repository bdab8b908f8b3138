"""An honest verdict: computed from the whole history, one row per step, independent of rounds and judges.

Ten reports are sent. Two fail, and a retry fixes one of them. A judge misreads the history: it claims that a third
report is missing and that everything else succeeded. The verdict checks its claims against the history.
"""

import asyncio

import rerail
from rerail.testing.scripted import ScriptedMind

sent: list[int] = []
asleep = {7}  # this office answers only the second call


@rerail.tool(effect="repeatable")
def send_report(office: int) -> str:
    sent.append(office)
    if office == 3:
        raise rerail.ToolError("office 3 has moved", category="tool_error")
    if office in asleep:
        asleep.discard(office)
        raise rerail.ToolError("office 7 is asleep", category="tool_error")
    return f"received by office {office}"


PLAN = {
    "objective": "Send the report to ten offices",
    "steps": [{"id": f"office-{n}", "tool": "send_report", "args": {"office": n}} for n in range(10)],
}

# A judge is usually a model. This one plays a script, and is wrong twice.
judge = ScriptedMind(
    judge={
        "success": True,
        "complete": True,
        "failed_steps": [{"id": "office-5", "reason": "sending to office 5 is missing from the history"}],
    }
)
SETTINGS = {"reflection": {"max_step_retries": 0}}  # no retries within a step: the round does the recovery


def line(name: str, numbers: dict[str, object]) -> str:
    shown = ("total", "attempted", "succeeded", "failed", "success_rate", "calls")
    return f"   {name:<12}" + "  ".join(f"{key} {numbers[key]}" for key in shown)


async def main() -> None:
    async with rerail.Engine("memory://", [send_report], SETTINGS, model=judge) as engine:
        result = await engine.run(PLAN)
        events = await engine.events(result.run_id)

        print("1. Two kinds of statistics that must not be mixed up")
        for event in events:
            if event.type == "retry_begin":
                print(f"   retry round {event.round}: {', '.join(event.roots)}")
            if event.type == "retry_done":
                print(line("the round", event.exec))
            if event.type == "done":
                print(line("the run", event.exec))

        print("\n2. What the judge said, and what became of it")
        print(f"   office-5 is missing: {'disputed' if 'office-5' in result.disputed else 'believed'}")
        print(f"   office-5 was called {sent.count(5)} time: the history shows that it succeeded")
        print(f"   all is well: success is {result.success}, since a judge can lower a verdict and never raise it")

        print("\n3. The verdict")
        print(f"   status {result.status}, success {result.success}")
        for row in result.failed_steps:
            print(f"   {row['id']}: {row['reason']}")
        print(f"   {result.summary}")


asyncio.run(main())
