"""The context of a tool call: everything a tool may use besides its arguments (contract M3).

Rules of this file:
- A context is built for every call that wants one, so it must be cheap: rarely used parts (a lock,
  an event, the folder) are made at first use.
- A tool may run in its own thread: every method here is safe to call from any thread.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextvars import ContextVar
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeAlias

from rerail.codes import Category
from rerail.i18n import tell
from rerail.plan.step import Step
from rerail.values.json_values import pack, unpack
from rerail.values.redaction import SECRET_NAME, Scrub
from rerail.workspace import Outside, copy_whole, inside, make_home, plain_name, write_whole

# Takes "log" or "progress" and the message; called from the tool's thread, so it must be thread-safe.
Sink: TypeAlias = Callable[[str, Mapping[str, Any]], None]

_LOCK = threading.Lock()
_CLOCK: Final[int | None] = getattr(time, "CLOCK_BOOTTIME", None)
# Seconds since the machine started, suspension included where the system counts it (contract E11).
uptime: Final[Callable[[], float]] = time.monotonic if _CLOCK is None else partial(time.clock_gettime, _CLOCK)


# The redactor of the run that is driven here: adapters redact texts before they cut them, and tell what they look up.
SECRETS: Final[ContextVar[Scrub | None]] = ContextVar("rerail_secrets", default=None)


def excerpt(text: str, most: int, *, tail: bool = False) -> str:
    """Return the beginning of a text from outside, or its end, without secrets."""
    scrub = SECRETS.get()
    clean = text if scrub is None else scrub.text(text)
    return clean if len(clean) <= most else str(clean[-most:] if tail else clean[:most])


def is_secret(name: str, value: str) -> bool:
    """Return True if a value is called a secret, or holds one that is known."""
    scrub = SECRETS.get()
    return bool(SECRET_NAME.search(name)) or (scrub is not None and scrub.text(value) != value)


def learn(name: str, value: str) -> str:
    """Return a secret that was just looked up, and redact it from now on in the run that is driven here."""
    scrub = SECRETS.get()
    if scrub is not None:
        scrub.learn({value: name})
    return value


class CallCancelled(Exception):
    """The call was cancelled, and the tool asked and learnt it; the effect so far is unknown (X4)."""


class FileOutside(ValueError):
    """A tool used a path outside of its run's workspace; a retry will not help."""

    code, category = "FILE_OUTSIDE", Category.PERMANENT

    def __init__(self, path: str) -> None:
        super().__init__(tell("error.FILE_OUTSIDE", path=path))
        self.path = path


class Signal:
    """A flag that is raised once and can be waited for; a `threading.Event` costs five times as much to build."""

    __slots__ = ("_event", "_raised")

    def __init__(self) -> None:
        self._raised = False
        self._event: threading.Event | None = None

    def is_set(self) -> bool:
        """True if it has been raised."""
        return self._raised

    def set(self) -> None:
        """Raise it, and wake every waiter."""
        self._raised = True
        if self._event is not None:
            self._event.set()

    def wait(self, timeout: float | None = None) -> bool:
        """Block the thread until it is raised or the timeout is over; True if it is raised."""
        with _LOCK:
            if self._event is None:
                self._event = threading.Event()
        # Tested after the event is in place: from then on `set` sees the event, and an earlier `set` is seen here.
        return self._raised or self._event.wait(timeout)


class Context:
    """The identity of a call, its idempotency key, its files, and a channel back to the engine."""

    __slots__ = (
        "_added",
        "_files",
        "_owner",
        "_sink",
        "_staging",
        "_workspace",
        "_workspace_made",
        "attempt",
        "cancelled",
        "cost",
        "fence",
        "key",
        "priced",
        "run",
        "step",
        "timeout",
        "tokens",
    )

    def __init__(
        self,
        run: str = "",
        step: str = "",
        attempt: int = 1,
        key: str = "",
        workspace: Path | str | None = None,
        sink: Sink | None = None,
        timeout: float | None = None,
        staging: Path | str | None = None,
        files: Collection[str] = (),
        fence: int = 0,
        owner: Callable[[], None] | None = None,
    ) -> None:
        """Build a context. Everything has a default, so that a tool's own unit tests can use `Context()`.

        ``files`` are the files that the step declared: they are written to ``staging``, this attempt's own folder.
        ``fence`` is higher for each later owner of the run: a service that keeps the highest can refuse older ones.
        """
        self.run = run
        self.step = step
        self.attempt = attempt
        self.key = key
        self.fence = fence
        self.timeout = timeout
        self.cancelled = Signal()
        self.tokens = 0
        self.cost = 0.0
        self.priced = False  # a cost was reported, even 0
        self._workspace = workspace
        self._workspace_made = False
        self._sink = sink
        self._staging, self._files = staging, files
        self._owner = owner
        self._added: tuple[Any, ...] | None = ()  # None: the call has ended

    def __repr__(self) -> str:
        return f"Context(run={self.run!r}, step={self.step!r}, attempt={self.attempt!r}, key={self.key!r})"

    @property
    def workspace(self) -> Path:
        """Return the run's folder, made at first use; a temporary one outside of a run.

        Declared files written with `path` or `write_…` appear in it only once the step has succeeded.
        """
        if not self._workspace_made:
            self._make_workspace()
        return self._workspace  # type: ignore[return-value]  # a Path, once made

    def _make_workspace(self) -> None:
        import tempfile  # rarely needed, and slow to import

        with _LOCK:
            if not self._workspace_made:
                folder = Path(tempfile.mkdtemp(prefix="rerail-") if self._workspace is None else self._workspace)
                make_home(folder)
                self._workspace, self._workspace_made = folder, True

    def path(self, name: str) -> Path:
        """Return the place of a workspace file, existing or new; a path that leaves the workspace is refused (T1).

        A declared file stays in this attempt's own folder until its success is recorded; then it moves to its place.
        Until then it is found by this path only, not by `ctx.workspace / name`. Other files beside it move along.
        A file that the tool wrote to `ctx.workspace / name` can be read, as a copy, by this path.
        """
        try:
            place = found = inside(self.workspace, name)
            if self._staging is not None and plain_name(name) in self._files:
                found = inside(Path(self._staging), name)
        except Outside:
            raise FileOutside(name) from None
        found.parent.mkdir(parents=True, exist_ok=True)
        if found != place and not os.path.lexists(found) and place.is_file():
            copy_whole(place, found)  # a copy: a late attempt must not write to another's file
        return found

    def write_bytes(self, name: str, data: bytes) -> Path:
        """Write a file of the workspace atomically: a process killed in between leaves the old one."""
        path = self.path(name)
        self.check_cancelled()  # the file is another attempt's by now
        write_whole(path, data)
        return path

    def write_text(self, name: str, text: str) -> Path:
        """Write a text file as UTF-8, atomically."""
        return self.write_bytes(name, text.encode())

    def write_json(self, name: str, value: Any) -> Path:
        """Write a JSON file in readable form, atomically."""
        text = json.dumps(value, ensure_ascii=False, indent=2, allow_nan=False)
        return self.write_text(name, text + "\n")

    def read_json(self, name: str) -> Any:
        """Return the value of a JSON file of the workspace."""
        return json.loads(self.path(name).read_bytes())

    def log(self, message: object) -> None:
        """Add a line to the step's log."""
        if self._sink is not None:
            self._sink("log", {"message": str(message)})

    def progress(self, fraction: float | None = None, message: object = "") -> None:
        """Report the call's progress, from 0 to 1, or its current activity."""
        if self._sink is not None:
            done = None if fraction is None else min(1.0, max(0.0, float(fraction)))
            self._sink("progress", {"fraction": done, "message": str(message)})

    def usage(self, tokens: int = 0, cost: float | None = None) -> None:
        """Add the call's spending to the run's budgets. A cost given here, even 0, replaces the declared one."""
        with _LOCK:
            self.tokens += tokens
            if cost is not None:
                self.cost += cost
                self.priced = True

    def spent(self) -> dict[str, Any]:
        """Return what was reported, as the arguments of `usage`: for the process that made the call."""
        return {"tokens": self.tokens, **({"cost": self.cost} if self.priced else {})}

    def add(self, steps: Step | Mapping[str, Any] | Sequence[Step | Mapping[str, Any]]) -> None:
        """Add steps to the run: they are part of this call's success, and start once it is recorded (P5).

        A call that fails or is lost adds nothing. If the steps have faults, the step has failed a check (V6): a `once`
        tool is then in doubt, so it adds its steps from data that it has checked.
        """
        given = [steps] if isinstance(steps, Step | Mapping) else steps
        plain = tuple(unpack(pack(step).data) for step in given)
        with _LOCK:
            if self._added is None:
                raise RuntimeError(tell("error.add_late", step=self.step))
            self._added += plain

    def end(self) -> tuple[Any, ...]:
        """Return the steps that the call added, as plain data; from now on it can add none."""
        with _LOCK:
            added, self._added = self._added, None
        return added or ()

    def ensure_owner(self) -> None:
        """Raise *not done* if this process may have lost the run; call it right before an effect (E11).

        A process that was frozen, or cut off from the store, may have been replaced without notice.
        """
        if self._owner is not None:
            self._owner()

    def check_cancelled(self) -> None:
        """Raise `CallCancelled` if the call has been cancelled; for loops in threads, which cannot be killed."""
        if self.cancelled.is_set():
            raise CallCancelled(tell("error.call_cancelled", step=self.step))

    def to_dict(self) -> dict[str, Any]:
        """Return the data from which another process builds the same context; the folder is not made for it."""
        plain = {name: getattr(self, name) for name in ("run", "step", "attempt", "key", "timeout", "fence")}
        for name, folder in (("workspace", self._workspace), ("staging", self._staging)):
            plain[name] = None if folder is None else str(folder)
        return {**plain, "files": list(self._files)}
