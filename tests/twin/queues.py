"""Waiting workloads: per ClusterQueue the active, the parked, and the one being tried."""

from __future__ import annotations

from dataclasses import dataclass, field

from twin.objects import Job, Place

AT_ONCE = {"FailedAfterNomination", "PendingPreemption", "PreemptionFailed"}
SHAPED = {"NoFit", "PreemptionNoCandidates"}


@dataclass
class Cursor:
    """Where the search for flavors stopped, by pod set and resource; -1: it restarts.

    ``generation``: of the ClusterQueue then; ``cycle``: when.
    """

    flavors: dict[tuple[int, str], int]
    shape: object
    generation: int
    cycle: int

    def pending(self) -> bool:
        return any(index != -1 for index in self.flavors.values())


@dataclass
class Waiting:
    job: Job
    cursor: Cursor | None = None


@dataclass
class Line:
    """The workloads that wait for one ClusterQueue. ``blocked``: shapes that found no place."""

    active: dict[str, Waiting] = field(default_factory=dict)
    parked: dict[str, Waiting] = field(default_factory=dict)
    inflight: Waiting | None = None
    preemptor: str = ""
    blocked: set[object] = field(default_factory=set)
    popped: int = 0
    flushed: int = 0

    def key(self, entry: Waiting) -> tuple[object, ...]:
        job = entry.job
        return (job.name != self.preemptor, -job.priority, job.queue_time(), job.uid)

    def arrive(self, job: Job, *, strict: bool) -> None:
        """Lets it compete, unless a workload of its shape was just refused, or it has to wait."""
        entry = self.take(job.name) or Waiting(job)
        entry.job = job
        if job.stopped or (not strict and job.shape() in self.blocked):
            self.parked[job.name] = entry
        else:
            self.active[job.name] = entry

    def take(self, name: str) -> Waiting | None:
        """Removes the workload from the queue, whether it is active, parked or in flight."""
        entry = self.active.pop(name, None) or self.parked.pop(name, None)
        if entry is None and self.inflight is not None and self.inflight.job.name == name:
            entry, self.inflight = self.inflight, None
        return entry

    def leave(self, name: str) -> None:
        """Removes the workload from the queue, and ends its claim as a pending preemptor."""
        self.take(name)
        if self.preemptor == name:
            self.preemptor = ""

    def pop(self) -> Waiting:
        head = min(self.active.values(), key=self.key)
        del self.active[head.job.name]
        self.inflight = head
        self.popped += 1
        return head

    def requeue(self, entry: Waiting, reason: str, *, strict: bool) -> None:
        name = entry.job.name
        if reason == "PendingPreemption":
            self.preemptor = "" if strict else name
        self.inflight = None
        at_once = reason != "NamespaceMismatch" if strict else reason in AT_ONCE
        missed = self.flushed >= self.popped
        pending = entry.cursor is not None and entry.cursor.pending()
        if not entry.job.stopped and (at_once or missed or pending):
            self.active[name] = entry
            return
        self.parked[name] = entry
        if reason in SHAPED and not strict:
            shape = entry.job.shape()
            self.blocked.add(shape)
            for other in list(self.active.values()):
                if other.job.shape() == shape:
                    self.parked[other.job.name] = self.active.pop(other.job.name)

    def flush(self, place: Place, labels: dict[str, str]) -> None:
        """Makes parked workloads active, unless they wait for something else."""
        self.blocked.clear()
        self.flushed = self.popped
        if not matches(place, labels):
            return
        for entry in list(self.parked.values()):
            if not entry.job.stopped:
                self.active[entry.job.name] = self.parked.pop(entry.job.name)


def matches(place: Place, labels: dict[str, str]) -> bool:
    """Whether the ClusterQueue takes workloads of a namespace with these labels."""
    if place.selector is None:
        return False
    wanted = place.selector.get("matchLabels", {})
    return all(labels.get(key) == value for key, value in wanted.items())
