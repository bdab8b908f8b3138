"""The ready queue: steps that can start, by priority and per limited tool."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Generator
from itertools import groupby

import msgspec

from rerail.kernel.step_state import Track


class Ready(msgspec.Struct, eq=False):
    """The steps that can start, ordered by priority and plan; one queue per limited tool.

    In a single queue, each pass would walk over the waiting steps of a tool at its limit. A separate queue is
    skipped whole. Members leave by name; their heap entries are dropped when they surface.
    """

    members: dict[int, Track] = {}
    _heaps: dict[str, list[tuple[int, int]]] = {}

    def add(self, track: Track, queue: str) -> None:
        if self.members.get(track.n) is not track or track.queue != queue:
            self.members[track.n] = track
            track.queue = queue
            heapq.heappush(self._heaps.setdefault(queue, []), track.order)

    def discard(self, track: Track) -> None:
        if self.members.pop(track.n, None) is not None and not self.members:
            self._heaps.clear()  # only entries of departed members are left

    def first(self, free: Callable[[str], bool] | None, room: int) -> Generator[Track]:
        """Return the first members in order; with `free`, only from queues that are free at that moment."""
        if free is None and room * 16 > len(self.members):
            heap = self._heaps.get("", [])
            heap.sort()  # a sorted list is a heap
            members = self.members
            gone = 0
            for order in heap:
                found = members.get(order[1])
                if found is not None and found.order == order:
                    break
                gone += 1
            del heap[:gone]
            for order, _ in groupby(heap):
                found = members.get(order[1])
                if found is not None and found.order == order:
                    yield found
                    room -= 1
                    if not room:
                        return
            return
        taken: list[tuple[str, tuple[int, int]]] = []
        try:
            while len(taken) < room:
                best = self._best(free)
                if best is None:
                    return
                order = heapq.heappop(self._heaps[best])
                taken.append((best, order))
                yield self.members[order[1]]
        finally:
            for queue, order in taken:
                heapq.heappush(self._heaps[queue], order)

    def _best(self, free: Callable[[str], bool] | None) -> str | None:
        best: str | None = None
        for queue, heap in self._heaps.items():
            while heap and not self._alive(queue, heap):
                heapq.heappop(heap)
            if heap and (free is None or free(queue)) and (best is None or heap[0] < self._heaps[best][0]):
                best = queue
        return best

    def _alive(self, queue: str, heap: list[tuple[int, int]]) -> bool:
        found = self.members.get(heap[0][1])
        doubled = len(heap) > 1 and (heap[0] == heap[1] or (len(heap) > 2 and heap[0] == heap[2]))
        return found is not None and found.queue == queue and found.order == heap[0] and not doubled

    def __len__(self) -> int:
        return len(self.members)

    def __contains__(self, track: Track) -> bool:
        return track.n in self.members
