"""One cycle: heads, nominations, their order, and what becomes of each."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from twin.assign import Assignment, Flavors, Only, assign, reduced, steps_of
from twin.fair import fair
from twin.objects import FR, Job
from twin.preempt import Victim, classical
from twin.queues import Cursor, Line, Waiting, matches
from twin.tree import Node, Tree
from twin.turns import next_by_share


@dataclass
class Entry:
    """A head in its cycle. ``status``: empty until it is settled; ``reason``: for going back."""

    waiting: Waiting
    node: Node
    assignment: Assignment
    victims: list[Victim]
    status: str = ""
    reason: str = "FailedAfterNomination"

    @property
    def job(self) -> Job:
        return self.waiting.job


@dataclass
class Cycle:
    """``number``: counted over everything. ``generations``: of the ClusterQueues."""

    tree: Tree
    lines: Mapping[str, Line]
    flavors: Flavors
    labels: dict[str, str]
    generations: Mapping[str, int]
    number: int
    fair: bool
    claimed: dict[str, Job] = field(default_factory=dict)

    def run(self) -> list[Entry]:
        """Decides about all heads, and returns the entries in the order in which they were
        processed."""
        entries: list[Entry] = []
        rejected: list[tuple[Waiting, Node, str]] = []
        for name, node in self.tree.queue.items():
            line = self.lines[name]
            if not line.active:
                continue
            head = line.inflight = line.pop()
            if not matches(node.place, self.labels):
                rejected.append((head, node, "NamespaceMismatch"))
            elif any(state in ("Retry", "Rejected") for state in head.job.checks.values()):
                rejected.append((head, node, ""))
            else:
                entries.append(self.nominate(head, node))
        dealt: list[Entry] = []
        waiting = list(entries)
        while waiting:
            entry = next_by_share(self.tree, waiting) if self.fair else min(waiting, key=classic)
            waiting.remove(entry)
            self.process(entry)
            dealt.append(entry)
        for entry in dealt:
            line = self.lines[entry.node.name]
            if entry.status == "assumed":
                line.inflight = None
                line.leave(entry.job.name)
            else:
                line.requeue(entry.waiting, entry.reason, strict=entry.node.place.strict)
        for head, node, reason in rejected:
            self.lines[node.name].requeue(head, reason, strict=node.place.strict)
        return dealt

    # Nomination. ----------------------------------------------------------------------------

    def nominate(self, head: Waiting, node: Node) -> Entry:
        cursor, generation = head.cursor, self.generations[node.name]
        if cursor is not None:
            old = cursor.cycle < self.number - 1 and generation > cursor.generation
            if old or cursor.shape != head.job.shape():
                head.cursor = None
        assignment, victims = self.try_all(head, node)
        head.cursor = self.cursor(assignment, head, node)
        return Entry(head, node, assignment, victims)

    def cursor(self, assignment: Assignment, head: Waiting, node: Node) -> Cursor:
        generation = self.generations[node.name]
        return Cursor(dict(assignment.cursor), head.job.shape(), generation, self.number)

    def try_all(
        self, head: Waiting, node: Node, only: Only | None = None
    ) -> tuple[Assignment, list[Victim]]:
        """Tries the workload with all pods; if that gives no admission, with as many pods as
        possible."""
        full, victims = self.try_counts(head, node, reduced(head.job, 0, 1), only)
        steps = steps_of(head.job)
        if full.mode == "Fit" or victims or not steps:
            return full, victims
        best = None
        low, high = 0, steps + 1
        while low < high:
            middle = (low + high) // 2
            counts = reduced(head.job, middle, steps)
            made, some = self.try_counts(head, node, counts, only)
            if made.mode == "Fit" or some:
                best, high = (middle, made, some), middle
            else:
                low = middle + 1
        if best is not None and best[0] == low:
            return best[1], best[2]
        return full, victims

    def try_counts(
        self, head: Waiting, node: Node, counts: list[int], only: Only | None
    ) -> tuple[Assignment, list[Victim]]:
        start = head.cursor.flavors if head.cursor is not None else {}

        def oracle(fr: FR, much: int) -> tuple[str, int]:
            victims = self.search(node, head.job, {fr: much}, {fr})
            for victim in victims:
                self.tree.remove(victim.job)
            level, _ = node.borrow_level(fr, much)
            for victim in victims:
                self.tree.add(victim.job)
            if not victims:
                return "noCandidates", level
            own = any(self.tree.holder(victim.job) is node for victim in victims)
            return "preempt" if own else "reclaim", level

        made = assign(head.job, counts, node, self.flavors, start, oracle, only)
        if made.mode != "Preempt":
            return made, []
        return made, self.search(node, head.job, made.usage(), made.contested())

    def search(
        self, node: Node, job: Job, need: Mapping[FR, int], frs: Collection[FR]
    ) -> list[Victim]:
        find = fair if self.fair else classical
        return find(self.tree, node, job, need, frs)

    # Processing. ----------------------------------------------------------------------------

    def fits(self, entry: Entry) -> bool:
        """After every evicted workload has stopped, and the victims of this one."""
        gone = self.claimed | {victim.job.name: victim.job for victim in entry.victims}
        for job in gone.values():
            self.tree.remove(job)
        enough = entry.node.fits(entry.assignment.usage())
        for job in gone.values():
            self.tree.add(job)
        return enough

    def overlaps(self, entry: Entry) -> bool:
        return any(victim.job.name in self.claimed for victim in entry.victims)

    def process(self, entry: Entry) -> None:
        if self.overlaps(entry):
            self.look_again(entry)
        node, usage = entry.node, entry.assignment.usage()
        enough = self.fits(entry)
        if entry.assignment.mode == "NoFit":
            entry.reason = "NoFit"
        elif entry.assignment.mode == "Preempt" and not entry.victims:
            if node.place.reclaim != "Any":
                node.charge(self.held_back(entry))
            entry.reason = "PreemptionNoCandidates"
        elif entry.assignment.mode == "DeferredFit":
            node.charge(usage)
            entry.waiting.cursor = None
            entry.reason = "PendingPreemption"
        elif self.overlaps(entry) or not enough:
            entry.status = "skipped"
        else:
            self.claimed |= {victim.job.name: victim.job for victim in entry.victims}
            node.charge(usage)
            if entry.assignment.mode == "Preempt":
                entry.status, entry.reason = "preempting", "PendingPreemption"
                entry.waiting.cursor = None
            else:
                entry.status = "assumed"

    def look_again(self, entry: Entry) -> None:
        """Searches again without the victims that other workloads have taken, and only in the
        flavors that were assigned before."""
        only = entry.assignment.flavors()
        entry.waiting.cursor = None
        for job in self.claimed.values():
            self.tree.remove(job)
        entry.assignment, entry.victims = self.try_all(entry.waiting, entry.node, only)
        for job in self.claimed.values():
            self.tree.add(job)
        entry.waiting.cursor = self.cursor(entry.assignment, entry.waiting, entry.node)
        if entry.assignment.mode == "Fit":
            entry.assignment.mode = "DeferredFit"

    def held_back(self, entry: Entry) -> dict[FR, float]:
        """The quota that a workload without victims blocks for the others in this cycle."""
        held: dict[FR, float] = {}
        for fr, much in entry.assignment.usage().items():
            quota, used = entry.node.quota(fr), entry.node.usage(fr)
            if entry.assignment.level() > 0:
                limit = quota.borrow
                held[fr] = much if limit is None else min(much, quota.nominal + limit - used)
            else:
                held[fr] = max(0, min(much, quota.nominal - used))
        return held


def classic(entry: Entry) -> tuple[object, ...]:
    """The order without fair sharing."""
    return (entry.assignment.level(), -entry.job.priority, entry.job.queue_time())
