"""From a step to its call: arguments, context, idempotency key, intent (contract P4, E2, M3, V8).

Rules of this file:
- Nothing here calls a tool, writes an event or waits: what is not at hand is an `InputsNotLoaded` for the loop.
- A call that may have had its effect is repeated as it was, or not at all.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import functools
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

from rerail.context import Context
from rerail.core import events as ev
from rerail.core.afford import in_time
from rerail.core.decide import Call
from rerail.core.plan import Effect
from rerail.core.policy import Rung
from rerail.core.refs import MissingPath, Template, compile_args, resolve
from rerail.core.state import State
from rerail.core.tools import ToolSpec
from rerail.core.track import Track, signature
from rerail.core.values import INLINE, pack, unpack
from rerail.engine.arguments import Before, InputsNotLoaded, Lookup, check_holes, kept_args, path_missing, with_args
from rerail.engine.failures import from_code
from rerail.engine.files import declared
from rerail.engine.lease_term import LeaseTerm
from rerail.engine.looks import Patience
from rerail.engine.outputs import Contents
from rerail.engine.perform import Launch, Performer
from rerail.i18n import one_by_one
from rerail.ports import Clock, Tool
from rerail.workspace import stage_for

SETTLE = 5.0  # seconds that an effect is looked for whose absence is never believed, if nothing else says how long


class Surroundings(Protocol):
    """What a call needs of the engine."""

    @property
    def clock(self) -> Clock: ...
    @property
    def performer(self) -> Performer: ...


class Calls:
    """Makes the calls of one run, ready to be launched."""

    def __init__(
        self,
        host: Surroundings,
        state: State,
        contents: Contents,
        term: LeaseTerm,
        fence: int,
        *,
        workspace: Callable[[], Path],
        hold: Callable[[], Awaitable[None]],
        hear: Callable[[ev.StepProgress], None],
    ) -> None:
        """``hold`` asks the store for the lease, ``hear`` takes what a tool says while it works."""
        self._host, self._state, self._contents = host, state, contents
        self._term, self._fence = term, fence
        self._workspace, self._hold, self._hear = workspace, hold, hear
        self.fetched: dict[str, dict[str, bytes]] = {}  # step → contents that were brought for it
        self.blobs: dict[str, bytes] = {}  # contents that are to be written with the next events

    def args(self, track: Track, action: Call, spec: ToolSpec) -> tuple[dict[str, Any], bool]:
        """The arguments of the next call, and whether they are the plan's own."""
        lost = track.effects is not None and track.effects.lost
        if action.rung is Rung.FALLBACK and track.step.fallback is not None and not lost:
            template, own = compile_args(track.step.fallback.args, self._state.names), False
        elif track.effects is not None and track.effects.lost and track.call is not None:
            return self._same_args(track, track.call)
        elif track.heal is not None and track.heal.args is not None:
            if not track.heal.args_blob:
                return unpack(pack(track.heal.args).data), False  # a fresh value, however deep it is
            data = self.fetched.get(track.id, {}).get(track.heal.args_blob) or self._contents.peek(track.heal.args_blob)
            if data is None:
                raise InputsNotLoaded({track.heal.args_blob: track.id})
            return unpack(data), False
        else:
            template, own = self._state.template(track), True
        if not template.refs:
            return copy.deepcopy(template.value) if template.value else {}, own
        args = self._resolved(track, template, spec)
        return args, False

    def _same_args(self, track: Track, call: ev.StepStarted) -> tuple[dict[str, Any], bool]:
        """The arguments of a call that may have had its effect: it is repeated as it was, or not at all (E2)."""
        if call.args is not None:
            return unpack(pack(call.args).data), False
        if not call.args_blob:
            return copy.deepcopy(self._state.template(track).value) or {}, True
        data = self.fetched.get(track.id, {}).get(call.args_blob) or self._contents.peek(call.args_blob)
        if data is None:
            raise InputsNotLoaded({call.args_blob: track.id})
        return unpack(data), False

    def _resolved(self, track: Track, template: Template, spec: ToolSpec) -> dict[str, Any]:
        lookup = Lookup(self._state, self._contents, self.fetched.get(track.id, {}))
        try:
            args: dict[str, Any] = resolve(template, lookup)
        except MissingPath as missing:
            raise Before(path_missing(missing)) from missing
        if lookup.missing:
            raise InputsNotLoaded(lookup.missing)
        if lookup.holes:
            check_holes(self._state, template, lookup, spec)
        faults = spec.schema.faults(args)
        if faults:
            small = len(pack(args).data) <= 4 * INLINE  # what somebody may want to change is kept, wherever
            shown = one_by_one(fault.said for fault in faults[:5])
            error = from_code("ARGS_INVALID", tool=spec.name, faults=shown)
            raise Before(with_args(error, "args", args) if small else self._with_large(error, args))
        return args

    def _with_large(self, error: ev.Error, args: dict[str, Any]) -> ev.Error:
        packed = pack(args)
        self.blobs[packed.digest] = packed.data
        return with_args(error, "args_blob", packed.digest)

    def launch(self, track: Track, attempt: int, tool: Tool, spec: ToolSpec, args: dict[str, Any]) -> Launch:
        step = track.step
        timeout = step.timeout or spec.timeout or self._state.policy.step_timeout
        effect = self._state.effect_of(track, spec.name, spec.effect)
        if self._state.policy.max_seconds is not None:
            timeout = in_time(self._state, timeout, effect, self._host.clock.now())
        launch = Launch(step, attempt, tool, spec, args, None, timeout, effect)
        launch.term, launch.hold = self._term, self._hold
        if launch.verifiable:
            launch.patience = self._patience(track, spec, effect)
        effects, call = track.effects, track.call
        if effects is not None and effects.lost and not effects.rerun and call is not None and call.idempotent_for:
            launch.key_until = effects.key_at + call.idempotent_for
        if step.produces:
            launch.workspace = self._workspace()
            launch.leftover = track.call.staged if track.call is not None else ""
            if step.verify is None and not spec.verifiable:  # who looks for an effect looks where files are to be
                launch.staged = stage_for(track.id, attempt)
        elsewhere = self._host.performer.elsewhere
        away = elsewhere is not None and elsewhere.takes(tool)
        if away or tool.wants_context or step.verify is not None or spec.verifiable or spec.probes:
            launch.ctx = self._context(track, attempt, args, timeout, launch.staged)
        if step.verify is not None:
            launch.verify_args = self._verify_args(track)
        return launch

    def _patience(self, track: Track, spec: ToolSpec, effect: Effect) -> Patience:
        """How long an absence of the effect is waited for: the step's word, its tool's, the settings' for `once`."""
        usual = self._state.policy.settle if effect is Effect.ONCE else 0.0
        settle = next((said for said in (track.step.settle, spec.settle) if said is not None), usual)
        if settle == "never":
            return Patience(usual if isinstance(usual, float | int) and usual else SETTLE, believed=False)
        return Patience(float(settle))

    def _context(self, track: Track, attempt: int, args: dict[str, Any], timeout: float, staged: str = "") -> Context:
        run, step = self._state.run, track.id
        key = f"{run}-{pack([step, track.generation, args]).digest}"
        loop = asyncio.get_running_loop()

        def sink(kind: str, said: Mapping[str, Any]) -> None:
            event = ev.StepProgress(step, attempt, _plain(said.get("message", "")), said.get("fraction"), kind == "log")
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody is listening any more
                loop.call_soon_threadsafe(self._hear, event)

        folder = self._workspace()
        fence, owner = self._fence, functools.partial(self._term.require, step)
        if not staged:
            return Context(run, step, attempt, key, folder, sink, timeout, fence=fence, owner=owner)
        files = declared(track.step.produces)
        place = folder / staged
        return Context(run, step, attempt, key, folder, sink, timeout, place, files, fence, owner)

    def _verify_args(self, track: Track) -> dict[str, Any]:
        assert track.step.verify is not None
        template = compile_args(track.step.verify.args, self._state.names)
        lookup = Lookup(self._state, self._contents, self.fetched.get(track.id, {}))
        try:
            args: dict[str, Any] = resolve(template, lookup)
        except MissingPath as missing:
            raise Before(path_missing(missing)) from missing
        if lookup.missing:
            raise InputsNotLoaded(lookup.missing)
        return args

    def intent(self, track: Track, action: Call, launch: Launch, own: bool, agreed: str) -> ev.StepStarted:
        inline, blob = (None, "") if own else kept_args(launch.args, self.blobs)
        once = launch.effect is Effect.ONCE
        known_for = self._key_known_for(track, launch) if once and launch.spec.keyed else 0.0
        return ev.StepStarted(
            track.id, action.attempt, action.tool, launch.effect, inline, blob,
            action.rung, launch.before, launch.verifiable, launch.staged,
            action.reserves.cost or launch.spec.cost or 0.0, action.reserves.tokens or 0, action.reserves.unknown,
            launch.timeout if once or launch.verifiable else 0.0, launch.spec.probes, known_for, agreed,
            self._fence if once else 0,
        )  # fmt: skip

    def _key_known_for(self, track: Track, launch: Launch) -> float:
        """For how long the service remembers the key of a call (E2): the step's word, its tool's, the settings'."""
        own = track.step.idempotent_for if launch.spec.name == track.step.tool else None
        return own or launch.spec.idempotent_for or 0.0

    def until_settled(self, track: Track, launch: Launch) -> Patience:
        """How long an absence is waited for from now: only an answer that was lost can show late (V8).

        Absence counts from the end of the call. The wall clock may have jumped since: no wait is longer than a call
        and what follows it could take.
        """
        effects, patience, now = track.effects, launch.patience, self._host.clock.now()
        if effects is None or (track.call is not None and track.call.effect is Effect.ONCE and not effects.lost):
            return Patience(0.0, patience.believed)
        if track.is_covered(now):
            return Patience(0.0)
        left = effects.settles_at + patience.seconds - now
        return Patience(min(max(0.0, left), launch.timeout + patience.seconds), patience.believed)


def baseline(track: Track, tool: str, args: Any) -> tuple[Any] | None:
    """What the first probe before this very call saw: all its attempts are compared with that (V8)."""
    effects = track.effects
    same = effects is not None and effects.probed and effects.signature == f"{tool} {signature(args)}"
    return (effects.before,) if effects is not None and same else None


def _plain(message: Any) -> str:
    """What a tool says, as text that can be stored, whatever it is made of."""
    return str(message)[:2000].encode("utf-8", "replace").decode()
