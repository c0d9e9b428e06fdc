"""The runner's part, mimicked: what is admitted ends after its runtime, what is evicted at once."""

from __future__ import annotations

import asyncio
import heapq

import msgspec

from admittance.cli.bench.generator import Plan
from admittance.cli.bench.speaker import Speaker
from admittance.events.names import token
from admittance.runtime import clock


class _Revision(msgspec.Struct, frozen=True, rename="camel"):
    revision: int = 0


_revision = msgspec.json.Decoder(_Revision)


class Mimic:
    """Hears `admitted` and `evicted`, says `finished` and `stopped`.

    Lists are indexed like the plan's workloads; times are monotonic seconds, 0.0: not yet.
    ``admitted_at`` is that of the first admission. ``finished`` are indices. A fact heard twice is
    acted on once.
    """

    def __init__(self, plan: Plan, speaker: Speaker) -> None:
        count = len(plan.workloads)
        self._plan = plan
        self._speaker = speaker
        self._loop = asyncio.get_running_loop()
        self._running = [0] * count
        self._due: list[tuple[float, int, int]] = []
        self._timer: asyncio.TimerHandle | None = None
        self._names = [
            f"{token(plan.queues[w.queue].namespace)}.{token(w.name)}" for w in plan.workloads
        ]
        self._index = {name.encode(): i for i, name in enumerate(self._names)}
        self._evicted = [0] * count
        self.admitted_at = [0.0] * count
        self.finished: set[int] = set()
        self.evictions = 0
        self.heard_at = clock.monotonic()
        self.done = asyncio.Event()

    def hear(self, subject: bytes, _reply: bytes, data: bytes, _headers: bytes) -> None:
        """A message on ``admit.workload.{admitted,evicted}.<ns>.<name>``."""
        _, _, what, name = subject.split(b".", 3)
        index = self._index.get(name)
        if index is None:
            return
        self.heard_at = clock.monotonic()
        revision = _revision.decode(data).revision
        if what == b"admitted":
            self._admitted(index, revision)
        else:
            self._stop(index, revision)

    def _admitted(self, index: int, revision: int) -> None:
        if revision <= self._running[index] or revision <= self._evicted[index]:
            return
        self._running[index] = revision
        # Admitted again after its end was said: the eviction was first, and its end did not count.
        self.finished.discard(index)
        if not self.admitted_at[index]:
            self.admitted_at[index] = self.heard_at
        due = self.heard_at + self._plan.workloads[index].runtime
        first = not self._due or due < self._due[0][0]
        heapq.heappush(self._due, (due, index, revision))
        if first:
            self._wake()

    def _stop(self, index: int, revision: int) -> None:
        if revision <= self._evicted[index]:
            return
        self._evicted[index] = revision
        self.evictions += 1
        self._say("stopped", index, revision)

    def _wake(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._due:
            delay = max(0.0, self._due[0][0] - clock.monotonic())
            self._timer = self._loop.call_later(delay, self._end)

    def _end(self) -> None:
        # The loop's timers are good to a millisecond: what is due within one ends in this turn.
        until = clock.monotonic() + 0.0005
        while self._due and self._due[0][0] <= until:
            _, index, revision = heapq.heappop(self._due)
            if self._running[index] == revision and self._evicted[index] < revision:
                self.finished.add(index)
                self._say("finished", index, revision)
        if len(self.finished) == len(self._plan.workloads):
            self.done.set()
        self._timer = None
        self._wake()

    def _say(self, what: str, index: int, revision: int) -> None:
        workload = self._plan.workloads[index]
        namespace = self._plan.queues[workload.queue].namespace
        # Names of a plan need no escape in JSON.
        data = f'{{"namespace":"{namespace}","name":"{workload.name}","revision":{revision}}}'
        self._speaker.say(f"admit.workload.{what}.{self._names[index]}", data.encode())
