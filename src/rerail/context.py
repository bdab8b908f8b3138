"""What a tool may ask for besides its arguments (SPEC M3).

Rules of this file:
- A context is built for each call that wants one, so building it costs next to nothing: what is rarely used (a lock,
  an event, the folder) is made when it is first used.
- A tool may run in a thread of its own: whatever it calls here is safe to call from any thread.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any, TypeAlias

from rerail.core.codes import Category
from rerail.i18n import tell
from rerail.workspace import Outside, copy_whole, inside, make_home, plain_name, write_whole

# Takes "log" or "progress" and what was said; called from the tool's thread, so it must be safe to call from any.
Sink: TypeAlias = Callable[[str, Mapping[str, Any]], None]

_LOCK = threading.Lock()


class CallCancelled(Exception):
    """The call was cancelled and the tool, asking, was told so; what it did until then is not known (X4)."""


class FileOutside(ValueError):
    """A tool asked for a file outside of its run's workspace; trying again will not help."""

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
        """Whether it has been raised."""
        return self._raised

    def set(self) -> None:
        """Raise it, and wake whoever waits."""
        self._raised = True
        if self._event is not None:
            self._event.set()

    def wait(self, timeout: float | None = None) -> bool:
        """Block the thread until it is raised or the time is over; tells whether it is raised."""
        with _LOCK:
            if self._event is None:
                self._event = threading.Event()
        # Asked after the event is in its place: from then on `set` sees it, and what came before is seen here.
        return self._raised or self._event.wait(timeout)


class Context:
    """Who is calling, with which idempotency key, where files go, and a line back to the engine."""

    __slots__ = (
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
        """Everything has a default, so that a tool's own unit tests can say `Context()`.

        ``files`` are those that the step declared: they are written to ``staging``, which is this attempt's alone.
        ``fence`` is higher for each later owner of the run: what keeps the highest it saw can refuse an older one.
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
        self.priced = False  # a cost was reported, be it 0
        self._workspace = workspace
        self._workspace_made = False
        self._sink = sink
        self._staging, self._files = staging, files
        self._owner = owner

    def __repr__(self) -> str:
        return f"Context(run={self.run!r}, step={self.step!r}, attempt={self.attempt!r}, key={self.key!r})"

    @property
    def workspace(self) -> Path:
        """The run's folder, made when first asked for; a temporary one outside of a run.

        What the step declared and wrote with `path` or `write_…` is not in it before the step succeeded.
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
        """Where a file of the workspace is, or is to be; a path that leaves the workspace is refused (T1).

        A file that the step declared is this attempt's own until its success is on record; then it is in its place.
        Until then it is found by this path only, not by `ctx.workspace / name`. What lies beside it then is brought to
        its place too. One that the tool wrote to `ctx.workspace / name` can be read, as a copy, by this path.
        """
        try:
            place = found = inside(self.workspace, name)
            if self._staging is not None and plain_name(name) in self._files:
                found = inside(Path(self._staging), name)
        except Outside:
            raise FileOutside(name) from None
        found.parent.mkdir(parents=True, exist_ok=True)
        if found != place and not os.path.lexists(found) and place.is_file():
            copy_whole(place, found)  # never the file itself: a late attempt would write to what is another's by now
        return found

    def write_bytes(self, name: str, data: bytes) -> Path:
        """Write a file of the workspace, whole or not at all: a process killed in between leaves the old one."""
        path = self.path(name)
        self.check_cancelled()  # the file is another attempt's by now
        write_whole(path, data)
        return path

    def write_text(self, name: str, text: str) -> Path:
        """The same for text, as UTF-8."""
        return self.write_bytes(name, text.encode())

    def write_json(self, name: str, value: Any) -> Path:
        """The same for a JSON value, in a form that people can read."""
        text = json.dumps(value, ensure_ascii=False, indent=2, allow_nan=False)
        return self.write_text(name, text + "\n")

    def read_json(self, name: str) -> Any:
        """A JSON file of the workspace."""
        return json.loads(self.path(name).read_bytes())

    def log(self, message: object) -> None:
        """Add a line to the step's log."""
        if self._sink is not None:
            self._sink("log", {"message": str(message)})

    def progress(self, fraction: float | None = None, message: object = "") -> None:
        """Say how far the call is, from 0 to 1, or just what it is doing."""
        if self._sink is not None:
            done = None if fraction is None else min(1.0, max(0.0, float(fraction)))
            self._sink("progress", {"fraction": done, "message": str(message)})

    def usage(self, tokens: int = 0, cost: float | None = None) -> None:
        """Add what the call has spent, for the run's budgets. A cost given here, be it 0, replaces the declared one."""
        with _LOCK:
            self.tokens += tokens
            if cost is not None:
                self.cost += cost
                self.priced = True

    def spent(self) -> dict[str, Any]:
        """What was reported, as the arguments of `usage`: for the process that made the call."""
        return {"tokens": self.tokens, **({"cost": self.cost} if self.priced else {})}

    def ensure_owner(self) -> None:
        """Raise *not done* if this process may not own the run any more; call it right before an effect (E11).

        A process that was frozen, or cut off from the store, may have been replaced without knowing it.
        """
        if self._owner is not None:
            self._owner()

    def check_cancelled(self) -> None:
        """Raise `CallCancelled` if the call has been cancelled; for loops in threads, which nobody can stop."""
        if self.cancelled.is_set():
            raise CallCancelled(tell("error.call_cancelled", step=self.step))

    def to_dict(self) -> dict[str, Any]:
        """What another process needs to build the same context; the folder is not made for that."""
        workspace = None if self._workspace is None else str(self._workspace)
        return {
            "run": self.run,
            "step": self.step,
            "attempt": self.attempt,
            "key": self.key,
            "workspace": workspace,
            "timeout": self.timeout,
            "staging": None if self._staging is None else str(self._staging),
            "files": list(self._files),
            "fence": self.fence,
        }
