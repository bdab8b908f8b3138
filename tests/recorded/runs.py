"""The recorded runs: their plans, and the commands that bring each of them where it is."""

from __future__ import annotations

from typing import Any

from tests.recorded.world import Answered, Place


def one(ident: str, tool: str = "ok", **more: Any) -> dict[str, Any]:
    """A step."""
    return {"id": ident, "tool": tool, **more}


GATED = (one("a", args={"value": {"n": 1}}), one("b", "pay", args={"amount": 7}, needs=["a"], confirm="Pay 7?"))

# What each run is called → its steps, what else the plan says, and options of `run`.
PLANS: dict[str, tuple[tuple[dict[str, Any], ...], dict[str, Any], tuple[str, ...]]] = {
    "succeeds": (
        (one("a", args={"value": {"n": 1}}), one("b", "write", needs=["a"]),
         one("c", args={"value": "${a.n}"}, needs=["b"])),
        {}, (),
    ),
    "heals": ((one("a", "flaky"), one("b", args={"value": "${a.attempt}"})), {}, ()),
    "adjusts": (
        (one("a", args={"value": {"colour": "RED", "coats": "2"}}),
         one("b", "paint", args={"colour": "${a.colour}", "coats": "${a.coats}"})),
        {}, (),
    ),
    "fails": (
        (one("a"), one("b", "needs_file", args={"name": "go"}, needs=["a"]), one("c", needs=["b"]), one("d")),
        {}, (),
    ),
    "fails for good": ((one("a", "fail", args={"message": "access denied", "category": "permanent_error"}),), {}, ()),
    "has a hole": (
        (one("a", "fail", critical=False), one("b", needs=[{"step": "a", "when": "done"}], args={"value": "${a}"})),
        {}, (),
    ),
    "falls back": (
        (one("a", "fail", fallback={"value": {"n": 0}}), one("b", args={"value": "${a.n}"}),
         one("c", "fail", alternatives=["ok"], args={}, needs=["b"]),
         one("d", "fail", fallback={"tool": "ok", "args": {"value": 5}}, needs=["c"])),
        {}, (),
    ),
    "waits": (GATED, {}, ()),
    "is paused": (GATED, {}, ()),
    "is cancelled": (GATED, {}, ()),
    "is refused": (GATED, {}, ()),
    "grows": (GATED, {}, ()),
    "is in doubt": ((one("a", "send"), one("b", needs=["a"])), {}, ()),
    "is resolved": ((one("a", "send"), one("b", args={"value": "${a.ok}"})), {}, ()),
    "is not resolved": ((one("a", "send"),), {}, ()),
    "is verified": (
        (one("a", "send", verify={"tool": "sent", "args": {}, "expect": {"sent": "sent"}}, settle=0),), {}, (),
    ),
    "is skipped": ((one("a", "needs_file", args={"name": "never"}), one("b", needs=["a"])), {}, ()),
    "is repaired": ((one("a", "upload", args={"source": "ds_0"}), one("b", args={"value": "${a.uploaded}"})), {}, ()),
    "is renewed": (
        (one("a", "needs_file", args={"name": "note"}), one("b", args={"value": "${a}"}), one("c", needs=["b"])),
        {}, (),
    ),
    "is announced": ((one("a"),), {}, ("--set", 'notify.command=["true"]')),
    "is stopped": ((one("a"), one("b", needs=["a"]), one("c", needs=["b"])), {}, ("--set", "run.max_attempts=2")),
    "cleans up": (
        (one("a"), one("b", "fail", needs=["a"], retries=0), one("c", needs=["a"])),
        {"finally": ["c"]}, ("--set", "retry.max_retry_rounds=0"),
    ),
    "has stages": (
        (one("a", "write", stage="draft", produces=["page.json"]),
         one("b", "needs_file", stage="check", needs=["a"], args={"name": "staged"})),
        {}, (),
    ),
}  # fmt: skip


def start(place: Place, name: str) -> Answered:
    """Run a plan by the command line; its id gets the name."""
    steps, rest, options = PLANS[name]
    told = place("run", place.plan(name.replace(" ", "_"), *steps, **rest), "--json", *options)
    assert "run_id" in told.json, told
    place.runs[told.json["run_id"]] = name
    return told
