"""The world as a process, `python -m benchmarks.recovery.world.server SOCKET [VARIANT …]`, in its own environment.

It outlives the contenders, so a contender that is killed is really gone while what it did is really done. It answers
JSON lines on a Unix socket, keeps a protocol of every call, and makes the faults of a case happen: before the effect,
instead of it, or after it.

Rules of this file:
- A fault is the world's doing: no contender can see it but by what its call answers or raises.
- A service that says "too many requests" means it: until its Retry-After is over it says so again, to any caller.
- What counts as an effect is decided here, by comparing states, never by what somebody says.
"""

from __future__ import annotations

import contextlib
import copy
import hashlib
import json
import os
import signal
import socketserver
import sys
import threading
import time
from pathlib import Path
from typing import Any

from benchmarks.recovery.world.effects import effects
from benchmarks.recovery.world.facts import is_refused, noticed, refuses, with_changes
from benchmarks.recovery.world.gold import VARIANTS, World, plain, remembered, tasks

SLOW = 1.5  # seconds that a slow answer takes; contenders wait for `TIMEOUT` (see client.py)
RETRY_AFTER = 0.05
LASTING = ("permanent", "body_permanent", "renamed_tool")
IN_THE_PLAN = ("wrong_argument", "missing_prerequisite")  # the tools themselves find these
# Bodies of a success that is none; texts as real services write them.
PASSING = (
    {"error": "Rate exceeded"},
    {"error": {"code": "ThrottlingException", "message": "Too many requests, please try again later"}},
    {"status": "error", "code": 503, "message": "The service is temporarily unavailable. Please retry."},
    {"success": False, "error": "upstream connect error or disconnect/reset before headers. reset reason: overflow"},
)
FINAL = (
    {"error": "Invalid request: account is not permitted to perform this operation"},
    {"error": {"code": "AccessDeniedException", "message": "User is not authorized to perform this action"}},
    {"status": "error", "code": 403, "message": "Forbidden"},
    {"success": False, "error": "The requested operation is not supported for this resource"},
)


def digest(state: Any) -> str:
    """A state in short."""
    return hashlib.sha256(json.dumps(state, sort_keys=True, default=str).encode()).hexdigest()[:24]


class Stage:
    """One case: its world, the faults that are left, and what was called."""

    def __init__(self, task: dict[str, Any], faults: list[dict[str, Any]]) -> None:
        self.task = task
        self.world = World(task["classes"], task["config"], long_context=task["long_context"])
        self.faults = [dict(fault) for fault in faults if fault["kind"] not in IN_THE_PLAN]
        self.calls: list[dict[str, Any]] = []
        self.homes = {step["tool"]: step["home"] for step in task["steps"]}
        self.lock = threading.Lock()
        self.homes |= {tool: home for home, made in self.world.objects.items() for tool in dir(made) if tool[0] != "_"}

    def fault(self, step: str) -> dict[str, Any] | None:
        """The fault that spoils this call, if any."""
        for fault in self.faults:
            if fault["step"] != step:
                continue
            if time.monotonic() < fault.get("until", 0):
                return fault
            if fault["times"] > 0:
                fault["times"] -= fault["kind"] not in LASTING
                return fault
        return None

    def call(self, step: str, tool: str, args: dict[str, Any], pid: int) -> dict[str, Any]:
        """One call of a contender."""
        with self.lock:
            entry: dict[str, Any] = {
                "step": step, "tool": tool, "args": args, "at": time.monotonic(), "fault": "", "pid": pid,
                "effect": False,  # the world is another than before
                "done": False,  # the tool really did its work
                "told": True,  # and whoever called could hear of it
            }  # fmt: skip
            self.calls.append(entry)
            asked = tool.removesuffix("_v1")
            fault = self.fault(step)
            try:
                if fault is None or (fault["kind"] == "renamed_tool" and asked == tool):
                    return self._done(asked, args, entry)
                entry["fault"], entry["told"] = fault["kind"], False
                if fault["kind"] == "http_429":
                    fault["until"] = (
                        fault["until"] if fault.get("until", 0) > entry["at"] else entry["at"] + RETRY_AFTER
                    )
                return self._spoiled(fault["kind"], step, asked, args, entry, pid)
            finally:
                entry["until"] = time.monotonic()

    def _done(self, tool: str, args: dict[str, Any], entry: dict[str, Any]) -> dict[str, Any]:
        home = self.homes.get(tool)
        if home is None:
            return {"raise": "http", "status": 404, "message": f"there is no tool {tool}"}
        before = self.world.state(home)
        try:
            answer = self.world.call(home, tool, args)
        except Exception as error:  # noqa: BLE001  # the tool's own, whatever it is
            return {"raise": "tool", "message": f"{type(error).__name__}: {error}"}
        finally:
            entry["effect"] = self.world.state(home) != before
        entry["done"] = not is_refused(answer)
        entry["answer"] = answer
        return {"ok": answer}

    def truth(self, step: str) -> dict[str, Any]:
        """What really became of a step, for those who went and looked: whether it is done, and what it answered.

        A step that changes nothing is done once its answer was heard: the answer is all that it is for.
        """
        for call in self.calls:
            if call["step"] == step and call["done"] and (call["effect"] or call["told"]):
                return {"done": True, "answer": call["answer"]}
        return {"done": False, "answer": None}

    def _spoiled(
        self, kind: str, step: str, tool: str, args: dict[str, Any], entry: dict[str, Any], pid: int
    ) -> dict[str, Any]:
        number = sum(map(ord, step))  # the same text for a step each time
        if kind == "connection":
            return {"raise": "connection", "message": "[Errno 111] Connection refused"}
        if kind == "http_503":
            return {"raise": "http", "status": 503, "message": "Service Unavailable"}
        if kind == "http_429":
            return {"raise": "http", "status": 429, "message": "Too Many Requests", "retry_after": RETRY_AFTER}
        if kind == "permanent":
            return {"raise": "http", "status": 403, "message": "Forbidden: this operation is not allowed"}
        if kind == "renamed_tool":
            return {"raise": "http", "status": 410, "message": f"Gone: {entry['tool']} was replaced by {tool}"}
        if kind == "body_transient":
            return {"ok": PASSING[number % len(PASSING)]}
        if kind == "body_permanent":
            return {"ok": FINAL[number % len(FINAL)]}
        if kind == "silent_noop":
            return {"ok": self._pretended(tool, args)}
        if kind == "kill_before":
            return self._kill(pid)
        answer = self._done(tool, args, entry)
        if kind == "kill_after":
            return self._kill(pid)
        if kind == "kill_during":
            return {**answer, "kill": pid}
        if kind == "slow_answer":
            return {**answer, "sleep": SLOW}
        if kind == "lost_answer":
            return {"raise": "reset", "message": "[Errno 104] Connection reset by peer"}
        raise ValueError(kind)

    def _kill(self, pid: int) -> dict[str, Any]:
        os.kill(pid, signal.SIGKILL)
        return {"ok": None}

    def _pretended(self, tool: str, args: dict[str, Any]) -> Any:
        """What the tool would answer, had it done something."""
        twin = copy.deepcopy(self.world.objects[self.homes[tool]])
        return plain(getattr(twin, tool)(**args))

    def probe(self, tool: str, args: dict[str, Any]) -> dict[str, Any]:
        """The state of the tool's object as it is, and as it would be after the call: a read-only look."""
        home = self.homes.get(tool.removesuffix("_v1"))
        if home is None:
            return {"now": "", "then": ""}
        with self.lock:
            twin = copy.deepcopy(self.world.objects[home])
            try:
                answer = plain(getattr(twin, tool.removesuffix("_v1"))(**args))
            except Exception:  # noqa: BLE001  # the call would fail; so the state stays
                answer = None
            return {
                "now": digest(self.world.state(home)[home]), "then": digest(remembered(twin)),
                "answer": answer,
            }  # fmt: skip

    def look(self, tool: str) -> str:
        """The state of the tool's object in short."""
        home = self.homes.get(tool.removesuffix("_v1"))
        with self.lock:
            return digest(self.world.state(home)[home]) if home else ""


class Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    """All cases that are open."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(self, path: str, variants: tuple[str, ...]) -> None:
        super().__init__(path, Handler)
        found = list(tasks(variants))
        self.effects = effects(found)
        self.gold = {task.id: task for task in found}
        self.tasks = {task.id: with_changes(task) for task in found}
        self.stages: dict[str, Stage] = {}

    def answer(self, asked: dict[str, Any]) -> Any:
        """One request."""
        what, case = asked["do"], asked.get("case", "")
        if what == "facts":
            return {"tasks": list(self.tasks.values()), "effects": self.effects}
        if what == "refuses":  # whether a tool notices that these arguments are wrong
            return refuses(self.gold[asked["task"]], asked["step"], asked["args"])
        if what == "noticed":  # whether a step that is missing is noticed in time
            return noticed(self.gold[asked["task"]], asked["step"])
        if what == "open":
            self.stages[case] = Stage(self.tasks[asked["task"]], asked["faults"])
            return {}
        stage = self.stages[case]
        if what == "call":
            found = stage.call(asked["step"], asked["tool"], asked["args"], asked["pid"])
            if "kill" in found:  # whoever waits for this answer dies before it comes
                time.sleep(0.02)
                os.kill(found["kill"], signal.SIGKILL)
            return found
        if what == "probe":
            return stage.probe(asked["tool"], asked["args"])
        if what == "look":
            return stage.look(asked["tool"])
        if what == "truth":
            return stage.truth(asked["step"])
        if what == "end":
            del self.stages[case]
            for call in stage.calls:
                call.pop("answer", None)
            return {"state": digest(stage.world.state()), "calls": stage.calls}
        raise ValueError(what)


class Handler(socketserver.StreamRequestHandler):
    """One connection: a request and an answer, line by line."""

    def handle(self) -> None:
        """Answer until the other side leaves, or is killed."""
        with contextlib.suppress(OSError):
            for line in self.rfile:
                self.wfile.write(json.dumps(self._answered(line)).encode() + b"\n")

    def _answered(self, line: bytes) -> dict[str, Any]:
        try:
            return {"answer": self.server.answer(json.loads(line))}  # type: ignore[attr-defined]
        except Exception as error:  # noqa: BLE001  # told to whoever asked; the world goes on
            return {"problem": f"{type(error).__name__}: {error}"}


def main() -> None:
    """Serve until standard input ends: the world dies with whoever started it."""
    path, *variants = sys.argv[1:]
    Path(path).unlink(missing_ok=True)
    with Server(path, tuple(variants) or VARIANTS) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        print("ready", flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main()
