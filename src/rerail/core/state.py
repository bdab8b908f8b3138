"""The state of a run: a fold of its history, kept up to date in place (log → fold → decide → act).

Rules of this file:
- Nothing here is called but by ``fold``: the history is the only truth.
- One event costs O(its out-degree). What `decide` needs (ready, running, hurt, …) is indexed here, never searched for.
- A skip for an upstream failure is a consequence: it is derived from the counts of a step's needs and never stored.
- `redirect` is the only function that resets anything, whoever asks for it.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from hashlib import blake2b
from typing import Any

from rerail.core import events as ev
from rerail.core.codes import Category
from rerail.core.events import Course
from rerail.core.plan import Effect, Step, When, definition, full_needs
from rerail.core.policy import Policy
from rerail.core.refs import Names, Template, compile_args
from rerail.core.reserve import Largest, Reserved
from rerail.core.tools import ToolSpec
from rerail.core.track import (
    AHEAD,
    DEAD,
    DEAD_OPEN,
    FIRST,
    MET,
    NOWHERE,
    OPEN,
    PENDING,
    READY,
    RUNNING,
    SKIPPED,
    SUCCEEDED,
    UNDECIDED,
    VOID,
    WORTH,
    EffectState,
    Phase,
    Place,
    Ready,
    Result,
    Standing,
    Track,
    signature,
)


class State:
    """A run, as its history tells it."""

    def __init__(self, run: str = "") -> None:
        self.run = run
        self.seq = 0
        self.at = 0.0
        self.policy = Policy()
        self.objective = ""
        self.parent = ""
        self.origin: tuple[str, ...] = ()
        self.memory: dict[str, str] = {}
        self.home = run  # the run whose workspace this one uses
        self.inherited: tuple[ev.FileMade, ...] = ()
        self.drafts: dict[str, ev.FileMade] = {}  # contents on record that may have yet to be put in place
        self.uncleared = ""  # the backup of a run that starts over, until its first step starts
        self.filed = False  # some step may read files: its own run's, or its parent's
        self.follow_up: Any = None
        self.fallback = ""  # why this is not the plan that was wanted, if it is not (P7)
        self.mcp: dict[str, Any] = {}  # servers that the plan of an old run names; nothing opens them any more
        self.assumed: tuple[str, ...] = ()  # tools whose effect was assumed when the plan was accepted
        self.queued = False  # nobody has taken it up yet
        self.revision = 0
        self.fingerprints: dict[str, str] = {}
        self.created_at = 0.0
        # What holds for minds, also once a mind has dropped the steps that said so.
        self.gated: dict[str, bool | str] = {}  # tools behind a gate, with its question
        self.marked: set[str] = set()  # tools that some step says must not be called twice
        # (tool, arguments) that must not happen again → the steps that did it, and whether a mind chose that call
        self.happened: dict[tuple[str, str], dict[str, bool]] = {}
        # tool → signature → the arguments of such calls, unless they are large: of all, and of those that minds chose
        self.once_args: dict[str, dict[str, Any]] = {}
        self.minds_args: dict[str, dict[str, Any]] = {}
        self.minds_acted = False  # some such call was a mind's choice
        self.retired: dict[str, int] = {}  # dropped steps → their latest attempt, whose number is never used again
        self.forgone: dict[str, None] = {}  # steps that mattered, had not been done, and are left out by a new plan
        self.planned: dict[str, tuple[str, ...]] = {}  # steps that a mind chose tools for → those that the plan names
        # The plan, as a graph of tracks in plan order.
        self.tracks: dict[str, Track] = {}
        self._names = Names(self.tracks, 0)
        self._next = 0
        # Indexes, each kept by `_place` and the folds.
        self.ready = Ready()
        self.timers: list[tuple[float, int, int]] = []  # (until, n, attempt) of backoffs; stale ones are dropped late
        self.keepers: dict[int, Track] = {}  # could start, but their old result may still be good
        self.gates: dict[int, Track] = {}  # could start, once a person agrees
        self.unshown: dict[int, Track] = {}  # of these, the ones whose call as it is now nobody was shown (X10)
        self.running: dict[int, Track] = {}
        self.backoff: dict[int, Track] = {}
        self.hurt: dict[int, Track] = {}
        self.held: dict[int, Track] = {}
        self.doubts: dict[int, Track] = {}
        self.unsettled: dict[str, Track] = {}  # whose effect may have happened, whatever they are now: open doubts
        self.announce: dict[int, Track] = {}  # skipped as a consequence, and not yet said so
        self.by_tool: dict[str, int] = {}
        self._phases = {
            RUNNING: self.running, Phase.BACKOFF: self.backoff, Phase.HURT: self.hurt,
            Phase.HELD: self.held, Phase.DOUBT: self.doubts,
        }  # fmt: skip
        self._places = {Place.KEEPERS: self.keepers, Place.GATES: self.gates, Place.ANNOUNCE: self.announce}
        # Counters and flags of the run.
        self.round = 0
        self.automatic_rounds = 0
        self.retries = 0
        self.replans = 0
        self.row: dict[str, None] = {}  # different steps that ended failed with no success between
        self.calls = self.tokens = 0
        self.cost = 0.0
        self.reserved = Reserved()  # by the calls under way
        self.largest = Largest()  # of a call, by tool
        self.largest_question = Largest()  # of a call of a model, by question
        self.active = 0.0
        self.active_since: float | None = None
        self.rested_at = 0  # the sequence number with which it came to rest, or began to wait, the last time
        self.acted_at = 0  # the sequence number of the latest thing a person did
        self.wishes: set[str] = set()  # those of the inbox that were granted
        self.last_wish = 0  # the latest of those without a name of their own, by its place there
        self.moved: tuple[str, int] | None = None  # the store that it goes on in, and the last event that went along
        self.paused = False
        self.waiting = False
        self.stopped = ""
        self.stop_reason = ""  # what the event that stopped it says
        self.replan_wanted = False
        self.breaker = False  # the replan is wanted because too many steps failed in a row
        self.judged: ev.Evaluation | None = None  # of this round
        self.disputed: dict[str, None] = {}
        self.round_done = True
        self.round_calls: dict[str, int] = {}
        self.round_chain: tuple[str, ...] = ()
        self.tool_seconds = self.wait_seconds = 0.0
        self.rest: ev.Done | None = None
        self.moves = 0  # how often any step changed, so that a view of all steps can be remembered until one does
        self.tally: tuple[Any, tuple[Any, ...]] | None = None
        self.retry_history: list[dict[str, Any]] = []
        self.staged = False  # some step has a stage: the run is a pipeline
        self.stage = ""  # that of the step that was started last
        self.reopened = False  # the latest round was a person's wish

    # -- Reading --------------------------------------------------------------------------------------------------

    @property
    def names(self) -> Names:
        """The ids that references may name."""
        return self._names

    def template(self, track: Track) -> Template:
        """The step's own arguments with their references found (once)."""
        if track.template is None:
            track.template = compile_args(track.step.args, self._names)
        return track.template

    def signature(self, track: Track) -> str:
        """What stands for the arguments of a step's latest call, when tries are compared."""
        call = track.call
        if call is None or call.args is not None or call.args_blob:
            return signature(call.args, call.args_blob) if call is not None else ""
        return signature(self.template(track).value)

    def chosen_by_a_mind(self, track: Track) -> bool:
        """Whether the step's next call is one that a mind made up, in whatever part."""
        return track.minded or (track.heal is not None and track.heal.minded)

    def effect_of(self, track: Track, tool: str, effect: Effect) -> Effect:
        """What calling the tool twice does, in this step. The plan's word goes for the plan's own calls: for one that
        a mind chose it can make the tool's word stricter, and never weaker."""
        own = track.step.effect
        if not self.chosen_by_a_mind(track):
            return own or effect
        return Effect.ONCE if Effect.ONCE in (own, effect) or tool in self.marked else effect

    def made_like(self, spec: ToolSpec, args: Any, *, chosen: bool) -> dict[str, bool]:
        """The steps that made this call, or one that only spells defaults out, and whether a mind chose theirs.

        One of the two has to be a mind's: ``chosen`` says whether this one is.
        """
        found = dict(self.happened.get((spec.name, signature(args)), {}))
        plain = signature(spec.plain(args))
        for other, made in (self.once_args if chosen else self.minds_args).get(spec.name, {}).items():
            if signature(spec.plain(made)) == plain:
                found.update(self.happened.get((spec.name, other), {}))
        return found

    def repeats(self, track: Track, spec: ToolSpec, args: Any, effect: Effect) -> str:
        """The step whose effect a call would repeat, where a mind chose this call or that one, if there is one.

        What the plan's author wrote twice, and what a person asked for, happens twice.
        """
        chosen = self.chosen_by_a_mind(track)
        if track.wanted or not (chosen or self.minds_acted):
            return ""
        for done, minded in self.made_like(spec, args, chosen=chosen).items():
            if (chosen or minded) and (done != track.id or track.call is None):
                return done
        return self._planned(track, spec, args) if chosen and effect is Effect.ONCE else ""

    def _planned(self, track: Track, spec: ToolSpec, args: Any) -> str:
        """Another step that is to make this very call, by the word of the plan's author."""
        plain = signature(spec.plain(args))
        for other in self.tracks.values():
            if other is not track and other.step.tool == spec.name and not self.chosen_by_a_mind(other):
                template = self.template(other)
                if not template.refs and signature(spec.plain(template.value or {})) == plain:
                    return other.id
        return ""

    def seconds(self, now: float) -> float:
        """How long the run has been running, not counting time it waited for people or lay dead."""
        return self.active + (max(0.0, now - self.active_since) if self.active_since is not None else 0.0)

    def rounds_left(self) -> bool:
        """Whether an automatic round may still follow."""
        return self.automatic_rounds < self.policy.max_retry_rounds and not self.stopped

    def inputs(self, track: Track) -> tuple[Any, ...]:
        """What the step's result is made from: its definition and the digest of every need's output (R3)."""
        if not track.needs:
            return (track.step,)
        if len(track.needs) == 1:  # most steps
            need = track.needs[0][0]
            return (track.step, need.result.made if need.phase is SUCCEEDED and need.result else "")
        digests = [need.result.made if need.phase is SUCCEEDED and need.result else "" for need, _ in track.needs]
        if len(digests) > 16:  # wide joins keep one digest of all
            return (track.step, blake2b("\n".join(digests).encode(), digest_size=16).digest())
        return (track.step, *digests)

    def tainted(self, track: Track) -> str:
        """The id of a step whose missing output this one had to do without, if there is one (H9)."""
        return next((step for step, _ in self.holes(track)), "")

    def holes(self, track: Track) -> Iterator[tuple[str, str]]:
        """The steps whose outputs are missing from what a step is made from: needs, or what these did without.

        Each with why it is missing: a `hole` was skipped; what is `lost` has had its effect, and its answer is gone.
        """
        for need, when in track.needs:
            if need.phase is SUCCEEDED:
                result = need.result
                if result is None or when is When.FAILURE:
                    continue
                why, _, step = result.degraded.partition(":")
                if result.hole:
                    yield need.id, "lost"
                elif why in ("hole", "lost"):
                    yield step, why
            elif need.phase is SKIPPED and when is not When.FAILURE:
                yield need.id, "hole"

    def files(self, track: Track) -> dict[str, str]:
        """The files that a step reads: its run's parent's, and those of the steps it needs; path → digest."""
        found = {file.path: file.digest for file in self.inherited}
        for need, _ in track.needs:
            if need.phase is SUCCEEDED and need.result is not None:
                found |= need.result.files
        return found

    def agrees(self, track: Track, digest: str) -> bool:
        """Whether a person agreed to the call of this digest."""
        return track.agreed in (AHEAD, FIRST, digest)

    def is_own_call(self, track: Track) -> bool:
        """Whether the step's next call is the plan's own: no hint, mind, alternative or fallback changed it."""
        heal = track.heal
        changed = heal is not None and (heal.tool is not None or heal.args is not None or heal.fallback)
        return not changed and not track.minded

    def tool_of(self, track: Track) -> str:
        """The tool that the step's next call would use."""
        if track.heal is not None:
            if track.heal.fallback and track.step.fallback is not None and track.step.fallback.tool:
                return track.step.fallback.tool
            if track.heal.tool is not None:
                return track.heal.tool
        return track.step.tool

    def queue_of(self, track: Track) -> str:
        """The ready queue of a step: its tool's where tools are limited or cost something, else the one of all."""
        return self.tool_of(track) if _by_tool(self.policy) else ""

    def next_timer(self) -> float | None:
        """When the next backoff ends, if one is under way."""
        timers = self.timers
        while timers:
            until, n, attempt = timers[0]
            track = self.backoff.get(n)
            if track is not None and track.attempt == attempt and track.until == until:
                return until
            heapq.heappop(timers)  # its step was retried, skipped or stopped meanwhile
        return None

    def tick(self, now: float) -> None:
        """Let the backoffs that are over end."""
        while (until := self.next_timer()) is not None:
            track = self.backoff[self.timers[0][1]]
            # A clock that was set back behind the moment the wait began must not make a short wait long.
            if until > now >= until - track.wait - 1e-3:
                return
            heapq.heappop(self.timers)
            self.move(track, PENDING)

    def has_granted(self, wish: str, number: int) -> bool:
        """Whether a wish of the inbox was granted before. Its place there tells only if it has no name of its own."""
        return wish in self.wishes if wish else number <= self.last_wish

    # -- Changing: only the fold calls what follows ---------------------------------------------------------------

    def refresh(self, track: Track) -> None:
        """Publish what a step has become to those that need it, as far as it changes anything."""
        self.moves += 1
        stack = [track]
        while stack:
            current = stack.pop()
            if current.phase is PENDING or current.place is not NOWHERE:
                self._place(current)
            old, new = current.standing, self._standing(current)
            if new is old:
                continue
            current.standing = new
            for target, when in current.out:
                worth = WORTH[when]
                before, after = worth[old], worth[new]
                if before != after:
                    _count(target, before, -1)
                    _count(target, after, 1)
                    if target.phase is PENDING:
                        stack.append(target)

    def _standing(self, track: Track) -> Standing:
        phase = track.phase
        if phase is SUCCEEDED or phase is SKIPPED:
            return Standing.OK
        if phase is PENDING:
            if track.dead:
                return Standing.BLOCKED_OPEN if track.dead_open else Standing.BLOCKED
            if track.void and _needless(track):
                return Standing.VOID
        elif phase is Phase.FAILED:
            permanent = track.error is not None and track.error.category is Category.PERMANENT
            return Standing.FAILED if permanent or not self.rounds_left() else Standing.FAILED_OPEN
        return UNDECIDED

    def _place(self, track: Track) -> None:
        """Put a step into the index where `decide` will look for it."""
        place = NOWHERE if track.phase is not PENDING else self._place_of(track)
        if place is not track.place:
            old = track.place
            if old is READY:
                self.ready.discard(track)
            elif old is not NOWHERE:
                self._places[old].pop(track.n, None)
                self.unshown.pop(track.n, None)
            track.place = place
            if place is READY:
                self.ready.add(track, self.queue_of(track))
            elif place is not NOWHERE:
                self._places[place][track.n] = track
                self.unshow(track)

    def unshow(self, track: Track) -> None:
        """What a gate shows, if the step waits at one, may be another call now."""
        if track.place is Place.GATES:
            self.unshown[track.n] = track

    def _place_of(self, track: Track) -> Place:
        needless = track.void and _needless(track)
        if track.dead or needless:
            if track.announced or (track.again and not needless):
                return NOWHERE
            return Place.ANNOUNCE
        track.announced = ""
        if track.open:
            return NOWHERE
        if track.again and not track.root:
            return Place.KEEPERS
        return Place.GATES if track.step.confirm and not track.agreed else READY

    def move(self, track: Track, phase: Phase) -> None:
        """Take a step from one phase to another, with its index and its standing."""
        old = track.phase
        if old is RUNNING and track.call is not None:
            self.by_tool[track.call.tool] -= 1
            if track.holds is not None:  # no answer came: what it may have cost counts as spent
                self.cost += track.holds.reserved_cost
                self.tokens += track.holds.reserved_tokens
                self.release(track)
        index = self._phases.get(old)
        if index is not None:
            index.pop(track.n, None)
        track.phase = phase
        if old is Phase.HELD and self.replan_wanted:
            self.replan_wanted = self.breaker or any(held.question == "replan" for held in self.held.values())
        index = self._phases.get(phase)
        if index is not None:
            index[track.n] = track
            if track.standing is UNDECIDED:  # under way before and after: nobody else has to know
                self.moves += 1
                self._place(track)
                return
        self.refresh(track)

    # -- The plan as a graph --------------------------------------------------------------------------------------

    def define(self, steps: Iterable[Step]) -> list[Track]:
        """Add steps or replace their definitions; returns their tracks. Costs what the steps' own edges cost."""
        steps = list(steps)
        changed = []
        for step in steps:
            track = self.tracks.get(step.id)
            if track is None:
                track = self.tracks[step.id] = Track(self._next, step, (-step.priority, self._next))
                track.attempt = self.retired.pop(step.id, 0) if self.retired else 0
                self._next += 1
            else:
                self._unlink(track)
                self.ready.discard(track)
                track.place = NOWHERE if track.place is READY else track.place
                if track.effects is not None and definition(step) != definition(track.step):
                    track.effects.redefined = True
                track.step, track.template = step, None
                self.unshow(track)
                track.order = (-step.priority, track.n)
            changed.append(track)
            if step.confirm or step.effect is Effect.ONCE:
                self._guard(step)
            if step.stage:
                self.staged = True
            if step.produces:
                self.filed = True
        self._names = Names(self.tracks, max(self._names.longest, max((len(step.id) for step in steps), default=0)))
        for track in changed:
            self._link(track)
        for track in changed:
            self.refresh(track)
        return changed

    def _guard(self, step: Step) -> None:
        """Remember which tools somebody has to agree to, and which must not be called twice."""
        tools = (step.tool, *step.alternatives, *([step.fallback.tool] if step.fallback and step.fallback.tool else ()))
        if step.confirm:
            self.gated.update((tool, step.confirm) for tool in tools if tool not in self.gated)
        if step.effect is Effect.ONCE:
            self.marked.update(tools)

    def _link(self, track: Track) -> None:
        track.open = track.dead = track.dead_open = track.void = 0
        if track.step.args:
            self.template(track)  # found now: an id that is added later must not change what a reference means
        needs = []
        for need in full_needs(track.step, self._names):
            other = self.tracks[need.step]
            needs.append(_edge(other, need.when))
            if isinstance(other.out, list):
                other.out.append(_edge(track, need.when))
            else:
                other.out = [_edge(track, need.when)]
            _count(track, WORTH[need.when][other.standing], 1)
        track.needs = tuple(needs)

    def _unlink(self, track: Track) -> None:
        for need, _ in track.needs:
            need.out = [edge for edge in need.out if edge[0] is not track]
        track.needs = ()

    def drop(self, ids: Iterable[str]) -> None:
        """Take steps out of the plan; the plan's check made sure that nobody left needs them."""
        for step_id in ids:
            track = self.tracks.pop(step_id, None)
            if track is not None:
                self.retired[step_id] = track.attempt
                if track.step.critical and track.phase is not SUCCEEDED and not track.again:
                    self.forgone[step_id] = None
                self._unlink(track)
                self.move(track, Phase.FAILED)  # out of every index; it is in no graph any more
                self.unsettled.pop(step_id, None)
                track.out = ()

    def _renumber(self, order: Iterable[str]) -> None:
        """Put the steps into the order of a new plan; O(steps), as a new plan is."""
        old = list(self.tracks.values())
        tracks = [self.tracks[step_id] for step_id in dict.fromkeys(order) if step_id in self.tracks]
        tracks += [track for track in old if track.id not in set(order)]
        members = [[index.get(track.n) is track for track in tracks] for index in self._indexes()]
        waits = {n: until for until, n, _ in self.timers}
        self.ready, self.timers = Ready(), []
        for n, track in enumerate(tracks):
            until = waits.get(track.n)
            track.n, track.order = n, (-track.step.priority, n)
            if until is not None:
                heapq.heappush(self.timers, (until, n, track.attempt))
            if track.place is READY:
                self.ready.add(track, self.queue_of(track))
        for index, inside in zip(self._indexes(), members, strict=True):
            index.clear()
            index.update((track.n, track) for track, member in zip(tracks, inside, strict=True) if member)
        self.tracks = {track.id: track for track in tracks}
        self._next = len(tracks)
        self._names = Names(self.tracks, self._names.longest)

    def _indexes(self) -> list[dict[int, Track]]:
        return [*self._phases.values(), *self._places.values(), self.unshown]

    def chosen(self, ids: Iterable[str]) -> None:
        """A mind says from now on what does these steps, if anything does: remember which tools the plan names."""
        for step_id in ids:
            if step_id in self.tracks and step_id not in self.planned:
                step = self.tracks[step_id].step
                last = step.fallback.tool if step.fallback is not None else None
                self.planned[step_id] = (step.tool, *step.alternatives, last or step.tool)

    # -- The one reset --------------------------------------------------------------------------------------------

    def redirect(self, course: Course, *, new_round: bool = False) -> None:
        """Follow a change of course: the plan is now this; do these steps, and what depends on them, again.

        The walk stops where there is nothing to reset, so a plain retry costs O(out-degree). It may: whatever is
        downstream of a step that has no good result is pending already, or marked to be earned anew.
        """
        if course.dropped:
            self.drop(course.dropped)
        if course.steps:
            self.revision += 1  # whoever changes the plan: a mind, or a person, live or at rest
        changed = self.define(course.steps) if course.steps else []
        for step in course.steps:
            self.forgone.pop(step.id, None)
        for track in self.define(course.done) if course.done else ():
            track.stale = "once"
        if course.order:
            self._renumber(course.order)
        for step_id in course.fresh:
            if step_id in self.tracks:
                self.tracks[step_id].generation += 1
                self.settle_effect(self.tracks[step_id], None)
        roots = dict.fromkeys([*course.touched, *(track.id for track in changed)])
        touched = [self.tracks[step_id] for step_id in roots if step_id in self.tracks]
        below = [self.tracks[step_id] for step_id in course.below if step_id in self.tracks]
        # Found before anything is reset: what a step was to its dependents tells whether they may have run.
        behind = self._behind([*touched, *below], course.automatic)
        for track in touched:
            self._reset(track, root=True, automatic=course.automatic, new_round=new_round)
        for track in behind:
            self._reset(track, root=False, automatic=course.automatic, new_round=new_round)

    def _behind(self, stack: list[Track], automatic: bool) -> list[Track]:
        """What depends on these steps and has something to reset."""
        found: list[Track] = []
        seen = {track.n for track in stack}
        while stack:
            for target, _ in stack.pop().out:
                if target.n in seen:
                    continue
                reset = self._resettable(target, automatic)
                # A step that was skipped has nothing to reset, but what needed it `done` may have run.
                if reset or (target.phase is PENDING and target.standing is not UNDECIDED):
                    seen.add(target.n)
                    stack.append(target)
                    if reset:
                        found.append(target)
        return found

    def _resettable(self, track: Track, automatic: bool) -> bool:
        if track.effects is not None and track.effects.lost:
            # Only a person's word, or a look, moves a step whose effect is in doubt (E3).
            return track.phase in (RUNNING, Phase.BACKOFF, Phase.HURT, Phase.HELD, Phase.DOUBT)
        if track.phase is PENDING:
            return track.result is not None and not track.again
        if track.phase is SKIPPED:
            # Accepted skips stay, except that a person's retry gives optional steps another chance.
            return not automatic and track.skip is not None and track.skip.code == "SKIP_OPTIONAL"
        return True

    def _reset(self, track: Track, *, root: bool, automatic: bool, new_round: bool) -> None:
        lost = track.effects is not None and track.effects.lost
        if (track.phase in (RUNNING, Phase.DOUBT) or lost) and not root:
            track.redo, track.automatic = True, automatic  # let it end; then it is checked against the new inputs
            return
        if automatic and (track.phase is Phase.DOUBT or lost):
            return  # nothing automatic repeats an effect that may have happened
        if automatic and track.phase is SKIPPED and track.skip is not None and track.skip.code == "SKIP_USER":
            return  # a person wanted to do without it; a mind's new plan changes nothing about that
        done_once = track.result is not None and track.result.effect is Effect.ONCE and track.phase is not Phase.FAILED
        waits = automatic and track.phase is Phase.BACKOFF and track.heal is not None and track.heal.wished
        track.again = track.result is not None
        track.root = track.root or (root and not (automatic and done_once))
        track.automatic = automatic
        track.redo = False
        track.stale = ""
        track.skip = None
        track.question = ""
        track.announced = ""
        self.unshow(track)
        if root and not automatic and track.error is not None and track.error.code == "ONCE_REPEATED":
            track.wanted = True
        if new_round:
            track.heal, track.calls = None, 0
        if not (waits and waits == self.tool_of(track)):  # a tool that asked for time gets it, whatever else changes
            self.move(track, PENDING)

    # -- What folds share -----------------------------------------------------------------------------------------

    def grant(self, wish: str, number: int) -> None:
        """A wish that came by the inbox is granted, for good."""
        if wish:
            self.wishes.add(wish)
        self.last_wish = max(self.last_wish, number)

    def settle(self, track: Track, result: Result) -> None:
        """A step has a good result: it ends, unless its inputs changed while it ran."""
        result.inputs = track.inputs
        if not result.degraded and (hole := next(self.holes(track), None)) is not None:
            result.degraded = f"{hole[1]}:{hole[0]}"
        track.result = result
        track.gate = None  # a yes is used up by success (X10)
        track.again = track.root = False
        track.stale = ""
        track.skip = None
        track.error = None
        track.question = ""
        self.row.clear()
        if track.effects is not None and not (track.effects.lost and result.degraded.startswith("fallback:")):
            self.settle_effect(track, None)  # a value that stands in says nothing of what the call did
        for target, _ in track.out if self.gates else ():
            self.unshow(target)
        redo, track.redo = track.redo, False
        if redo and track.id not in self.unsettled:  # a value that stands in for a doubt stays until it is answered
            track.again = True
            self.move(track, PENDING)
        else:
            self.move(track, SUCCEEDED)

    def settle_effect(self, track: Track, effects: EffectState | None) -> None:
        """What is known of a step's effect from now on: nothing open, unless an attempt of it is lost."""
        track.effects = effects
        if effects is not None and effects.lost:
            self.unsettled[track.id] = track
        else:
            self.unsettled.pop(track.id, None)

    def reserve(self, track: Track, call: ev.StepStarted) -> None:
        """Hold what a call reserves until it ends."""
        self.reserved.take(call)
        track.holds = call

    def release(self, track: Track) -> None:
        """Take off what a step's call holds: it has ended."""
        assert track.holds is not None
        self.reserved.give_back(track.holds)
        track.holds = None

    def govern(self, policy: Policy) -> None:
        """Put the run under another policy; steps that can start wait in the queues that it asks for."""
        old, self.policy = self.policy, policy
        if _by_tool(old) != _by_tool(policy):
            waiting, self.ready = list(self.ready.members.values()), Ready()
            for track in waiting:
                self.ready.add(track, self.queue_of(track))

    def current(self, step: str, attempt: int, *phases: Phase) -> Track | None:
        """The step's track, if this attempt is the one it is waiting to hear from."""
        track = self.tracks.get(step)
        return track if track is not None and track.attempt == attempt and track.phase in phases else None

    def activate(self, at: float) -> None:
        """The run is running (again): its seconds count."""
        if self.active_since is None:
            self.active_since = at

    def deactivate(self, at: float) -> None:
        """The run has come to rest, or waits for a person: its seconds do not count."""
        self.active = self.seconds(at)
        self.active_since = None


def _by_tool(policy: Policy) -> bool:
    """Whether steps that can start wait by tool: where a tool's calls may have to wait and others may not."""
    limited = bool(policy.tool_concurrency or policy.provider_concurrency)
    return limited or policy.max_cost is not None or policy.max_tokens is not None


def _needless(track: Track) -> bool:
    """Whether a step does not run, since what one of its needs is for did not come about.

    One that ran before, when it was needed, keeps its result; unless that is to be earned anew: it is not needed now.
    """
    return not track.open and (track.root or not track.again)


def _edge(track: Track, when: When) -> tuple[Track, When]:
    """A step at one end of an edge; nearly all edges are plain, and share it: plans are large, and tuples are swept."""
    if when is not When.SUCCESS:
        return (track, when)
    if track.edge is None:
        track.edge = (track, when)
    return track.edge


def _count(track: Track, worth: int, by: int) -> None:
    if worth == OPEN:
        track.open += by
    elif worth == DEAD:
        track.dead += by
    elif worth == DEAD_OPEN:
        track.dead += by
        track.dead_open += by
    elif worth == VOID:
        track.void += by


# -- Reachability -------------------------------------------------------------------------------------------------


def downstream(state: State, roots: Iterable[str]) -> list[Track]:
    """The roots and every step that depends on them, near or far, in plan order: the retry chain (R1)."""
    stack = [state.tracks[step_id] for step_id in roots]
    seen = {track.n: track for track in stack}
    while stack:
        for target, _ in stack.pop().out:
            if target.n not in seen:
                seen[target.n] = target
                stack.append(target)
    return [seen[n] for n in sorted(seen)]


def unsatisfied_above(state: State, roots: Iterable[str]) -> list[str]:
    """The needs of the roots, near or far, that are not satisfied now and so must run too (R1)."""
    stack = [state.tracks[step_id] for step_id in roots]
    seen = {track.n for track in stack}
    found = []
    while stack:
        for need, when in stack.pop().needs:
            if need.n not in seen and WORTH[when][need.standing] not in (MET, VOID):
                seen.add(need.n)
                found.append(need.id)
                stack.append(need)
    return found
