"""The containers of one ClusterQueue (workloads that compete, are parked, or hold quota) and of one
cohort tree.

A flush wakes classes, not workloads. Source: `docs/spec/scheduling.md#3, #8.1` points 5 and 6.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator
from datetime import datetime
from typing import NamedTuple

from admittance.events.shapes import Refusal
from admittance.family.policy import FamilyRules, Tag
from admittance.quota.activity import NOT_FOUND, Activity
from admittance.quota.cell import Cell
from admittance.quota.tree import Node
from admittance.scheduling.state.assignment import Assignment, Cursor
from admittance.scheduling.state.equivalence import (
    ClassHeap,
    ClassKey,
    EquivalenceClass,
    Kind,
    Lanes,
    RefusalQueue,
    ScanRecord,
    forget_reason,
)
from admittance.scheduling.state.flavor_plan import FlavorPlan
from admittance.scheduling.state.shared_quota import PlanQuota
from admittance.scheduling.state.workload_info import (
    CandidateEntry,
    ClassEntry,
    Inadmissible,
    Key,
    WorkloadInfo,
    age_key,
    shares_flavors,
)


class Domain:
    """One cohort tree, or a ClusterQueue without a cohort. Flushes, cycles and leadership are per
    domain.

    ``owned``: this scheduler leads the domain. ``ready``: queues with a head. ``parked_queues``:
    queues with parked workloads. ``flush``: wake them before the next cycle. ``quota_reduced``:
    quotas may have been reduced; check the reservations before the next cycle. ``rechecks``:
    reservations to look at before the next cycle. ``planners``: reservations with a pending
    preemption. ``plan_quotas``: quota that a planner and its victims share. ``plan_quota_varies``:
    how much they share depends on other usage. ``lending_limited``: generation, and whether a queue
    or cohort keeps quota for itself. ``in_flight``: workloads with a decision in flight.

    ``idle_cycles``: cycles in a row without a result. ``is_settled``: the last cycle changed
    nothing, so the next one would do the same. ``version``: rises with everything that may change
    what a head would get: charged or released quota, candidates, configuration. ``generation``:
    rises with every edit of a quota or a cohort.

    For the log of the present cycle: ``seen``: the bucket revision that it saw. ``scan_cursors``:
    heads whose scan did not begin at the first flavor. ``unlogged_heads``: heads processed since
    the last decision.
    """

    __slots__ = (
        "flush",
        "generation",
        "idle_cycles",
        "in_flight",
        "is_settled",
        "lending_limited",
        "name",
        "owned",
        "parked_queues",
        "plan_quota_varies",
        "plan_quotas",
        "planners",
        "queues",
        "quota_reduced",
        "ready",
        "rechecks",
        "scan_cursors",
        "seen",
        "unlogged_heads",
        "version",
    )

    def __init__(self, name: str) -> None:
        self.name = name
        self.seen = 0
        self.scan_cursors: dict[WorkloadInfo, Cursor] = {}
        self.unlogged_heads: list[WorkloadInfo] = []
        self.owned = False
        self.queues: dict[Queue, None] = {}
        self.ready: dict[Queue, None] = {}
        self.parked_queues: dict[Queue, None] = {}
        self.in_flight: dict[WorkloadInfo, None] = {}
        self.flush = False
        self.quota_reduced = True
        self.rechecks: dict[WorkloadInfo, None] = {}
        self.planners: dict[WorkloadInfo, None] = {}
        self.plan_quotas: list[PlanQuota[WorkloadInfo]] = []
        self.plan_quota_varies = False
        self.lending_limited: tuple[int, bool] | None = None
        self.idle_cycles = 0
        self.is_settled = False
        self.version = 0
        self.generation = 0

    def update_queue(self, queue: Queue) -> None:
        """Keeps ``ready`` and ``parked_queues`` true after a change in the queue."""
        if queue.activity.active and queue.head() is not None:
            self.ready[queue] = None
        else:
            self.ready.pop(queue, None)
        if queue.parked_classes or queue.parked_workloads:
            self.parked_queues[queue] = None
        else:
            self.parked_queues.pop(queue, None)

    def is_waiting(self) -> bool:
        """Returns whether every head has a decision in flight."""
        return all((head := queue.head()) is None or bool(head.in_flight) for queue in self.ready)


class CandidateCache(NamedTuple):
    """The candidates that hold any of the ``wanted`` cells, at that version of the domain."""

    domain: Domain
    version: int
    wanted: tuple[Cell, ...]
    found: list[CandidateEntry]

    def same(self, domain: Domain | None, version: int, wanted: tuple[Cell, ...]) -> bool:
        """Returns whether a new search would find the same candidates."""
        return self.version == version and self.wanted == wanted and self.domain is domain


class Queue:
    """What one ClusterQueue holds.

    ``refusal_queue``: where refusals are scheduled. ``classes``: the workloads that compete or are
    parked with their class. ``class_heap``: the order of classes; ``lanes``: replaces it where the
    usage of LocalQueues counts. ``parked_classes``: classes that wait for a flush.
    ``parked_workloads``: workloads that are parked by themselves. ``live``: how many workloads are
    in classes. ``preemptor``: the workload for which victims were preempted last. It stays the head
    while it waits here, because another workload could take the freed quota. ``blocked_head``: why
    the head of a StrictFIFO queue blocks it.

    ``holding``: workloads that hold quota here. ``candidates``: those that may be preempted, in
    order. ``candidate_cache``: a part of them. ``generation``: rises when a workload that holds
    quota here changes or goes.

    ``rules``: the rules for families; None: workloads are regular. ``tags``: the variants of the
    rules, by name. ``parents``: waiting parents, in order; they are never tried. ``variants``: how
    many of the waiting workloads are variants.
    """

    __slots__ = (
        "activity",
        "blocked_head",
        "candidate_cache",
        "candidates",
        "class_heap",
        "classes",
        "domain",
        "generation",
        "holding",
        "in_cycle",
        "lanes",
        "live",
        "name",
        "node",
        "parents",
        "parked_classes",
        "parked_workloads",
        "plan",
        "preemptor",
        "refusal_queue",
        "rules",
        "strict",
        "tags",
        "variants",
    )

    def __init__(self, name: str, loud: RefusalQueue) -> None:
        self.name = name
        self.refusal_queue = loud
        self.node: Node | None = None
        self.domain: Domain | None = None
        self.plan: FlavorPlan | None = None
        self.activity: Activity = NOT_FOUND
        self.in_cycle = False
        self.strict = False
        self.classes: dict[ClassKey, EquivalenceClass] = {}
        self.class_heap = ClassHeap()
        self.lanes: Lanes | None = None
        self.parked_classes: dict[EquivalenceClass, None] = {}
        self.parked_workloads: dict[WorkloadInfo, None] = {}
        self.holding: dict[WorkloadInfo, None] = {}
        self.candidates: list[CandidateEntry] = []
        self.candidate_cache: CandidateCache | None = None
        self.preemptor: WorkloadInfo | None = None
        self.blocked_head: BlockedHead | None = None
        self.rules: FamilyRules | None = None
        self.tags: dict[str, Tag] = {}
        self.parents: list[ParentEntry] = []
        self.variants = 0
        self.generation = 0
        self.live = 0

    # The running order. ---------------------------------------------------------------------

    def head(self) -> WorkloadInfo | None:
        """Returns the workload that the next cycle considers; None: no workload competes."""
        sticky = self.preemptor
        if sticky is not None and not self.is_first(sticky):
            sticky = None
        if self.lanes is None:
            if sticky is not None:
                return sticky
            entry = self.class_heap.first()
        else:
            entry = self.lanes.first(sticky)
        return entry[3] if entry is not None else None

    def is_first(self, workload: WorkloadInfo) -> bool:
        """Returns whether the workload is the preemptor that keeps its place, and competes."""
        if workload is not self.preemptor or workload.queue is not self or workload.entry is None:
            return False
        return workload.cls is not None and workload.cls.parked is None

    def forget_preemptor(self, workload: WorkloadInfo) -> None:
        """Ends the kept place of a workload that left the queue."""
        if self.preemptor is workload:
            self.preemptor = None

    def add_candidate(self, workload: WorkloadInfo, reserved_at: datetime) -> None:
        """Puts the workload at its place among the candidates for preemption."""
        self.remove_candidate(workload)
        entry = (workload.priority, -reserved_at.timestamp(), workload.uid, workload.key, workload)
        insort(self.candidates, entry)
        workload.candidate = entry

    def remove_candidate(self, workload: WorkloadInfo) -> None:
        """Removes the workload from the candidates for preemption."""
        if workload.candidate is not None:
            del self.candidates[bisect_left(self.candidates, workload.candidate)]
            workload.candidate = None

    def add(self, workload: WorkloadInfo, now: datetime) -> None:
        """Lets the workload compete, or parks it with its class if that is parked."""
        shape = workload.shape
        stamp = workload.queued_at
        assert shape is not None and stamp is not None
        kind: Kind = shape if workload.family is None else self._kind(workload)
        key = (workload.priority, kind, workload.local_queue if self.lanes is not None else None)
        cls = self.classes.get(key)
        if cls is None:
            cls = self._new_class(key, now)
        workload.queue = self
        entry: ClassEntry = (stamp, workload.uid, workload.key, workload)
        if workload.family is not None:
            entry = (*age_key(workload), workload)
            self.variants += workload not in self.parked_workloads
        workload.inadmissible = None
        self.parked_workloads.pop(workload, None)
        workload.cls, workload.entry = cls, entry
        cls.insert(entry)
        self.live += 1
        cls.note_reason(workload, now)
        if cls.parked is None:
            self._place(cls)
        else:
            self.schedule_refusal(workload, now)

    def add_parent(self, workload: WorkloadInfo) -> None:
        """Adds a waiting parent. It is never tried; its variants are."""
        workload.queue = self
        insort(self.parents, (-workload.priority, *age_key(workload), workload))

    def _kind(self, workload: WorkloadInfo) -> Kind:
        """Returns what a variant has in common with its class.

        Variants have other classes than regular workloads. A variant has a class of its own if its
        siblings hold quota that also counts for it, because it needs less.
        """
        assert workload.shape is not None and workload.family is not None
        held = workload.family.quota
        alone = held is not None and (held.shares or shares_flavors(workload))
        return workload.shape, workload.family.uid if alone else ""

    def is_in_own_class(self, workload: WorkloadInfo) -> bool:
        """Returns whether the variant waits, or should wait, in a class of its own."""
        cls = workload.cls
        return cls is not None and (
            cls.key[1] != (workload.shape, "") or self._kind(workload) != cls.key[1]
        )

    def is_in_place(self, workload: WorkloadInfo) -> bool:
        """Returns whether the variant is at the place and in the class that it would get now."""
        entry, cls = workload.entry, workload.cls
        if entry is None or cls is None:
            return True
        return entry[:3] == age_key(workload) and cls.key[1] == self._kind(workload)

    def remove(self, workload: WorkloadInfo) -> None:
        """Takes the workload out of the queue."""
        if workload.family is not None and workload.queue is self:
            if workload.is_parent:
                del self.parents[
                    bisect_left(self.parents, (-workload.priority, *age_key(workload)))
                ]
            else:
                self.variants -= 1
        cls = workload.cls
        if workload.entry is not None and cls is not None:
            cls.delete(workload.entry)
            workload.entry = None
            self.live -= 1
            forget_reason(workload)
            if not cls.live:
                cls.item = None
                self.parked_classes.pop(cls, None)
                self.classes.pop(cls.key, None)
                if self.lanes is not None:
                    self.lanes.leave(cls)
            elif cls.parked is None:
                self._place(cls)
        workload.cls = None
        if workload.inadmissible is not None:
            workload.inadmissible = None
            self.parked_workloads.pop(workload, None)
        workload.queue = None

    def _new_class(self, key: ClassKey, now: datetime) -> EquivalenceClass:
        cls = self.classes[key] = EquivalenceClass(key)
        if self.lanes is not None:
            for other in self.lanes.join(cls):
                if other.parked is not None:
                    # What stands in the way of its family stands in its way too.
                    cls.parked, cls.parked_since = other.parked, now
                    self.parked_classes[cls] = None
                break
        return cls

    def _place(self, cls: EquivalenceClass) -> None:
        if self.lanes is not None:
            self.lanes.put(cls)
        else:
            self.class_heap.put(cls)

    def set_lanes(self, lanes: Lanes | None, now: datetime) -> None:
        """Lets the usage of LocalQueues count from now on, or no longer (None). Parked classes
        compete again."""
        workloads = [workload for cls in self.classes.values() for workload in cls.waiting()]
        for workload in workloads:
            self.remove(workload)
        self.class_heap = ClassHeap()
        self.lanes = lanes
        for workload in workloads:
            self.add(workload, now)

    # Parking and waking. --------------------------------------------------------------------

    def park_class(self, cls: EquivalenceClass, refusal: Refusal, now: datetime) -> None:
        """Parks the class until the next flush, with all classes that differ only by LocalQueue."""
        if self.lanes is None:
            self._park(cls, refusal, now)
            return
        for one in self.lanes.family(cls):
            self._park(one, refusal, now)

    def _park(self, cls: EquivalenceClass, refusal: Refusal, now: datetime) -> None:
        cls.parked = refusal
        cls.item = None
        cls.parked_since = now
        self.parked_classes[cls] = None
        self.schedule_class_refusal(cls)

    def park_workload(self, workload: WorkloadInfo, aside: Inadmissible, now: datetime) -> None:
        """Parks this workload alone, until the next flush or until its problem changes."""
        self.remove(workload)
        workload.queue = self
        workload.inadmissible = aside
        self.parked_workloads[workload] = None
        self.variants += workload.family is not None
        self.schedule_refusal(workload, now)

    def schedule_refusal(self, workload: WorkloadInfo, now: datetime) -> None:
        """Schedules the refusal of a parked workload, unless its status has the reason already."""
        cls, aside = workload.cls, workload.inadmissible
        if cls is not None:
            cls.note_reason(workload, now)
            self.schedule_class_refusal(cls)
        elif aside is not None and not aside.is_silent and workload.status_reason != aside.reason:
            workload.parked_since = now
            self.refusal_queue.put(now, workload)

    def schedule_class_refusal(self, cls: EquivalenceClass) -> None:
        """Schedules the refusals of the workloads of the class whose status has another reason."""
        since = None if cls.is_scheduled else cls.refusal_since()
        if since is not None:
            self.refusal_queue.put(since, cls)

    def wake(self, cls: EquivalenceClass) -> None:
        """Lets the class compete again."""
        cls.parked = None
        cls.parked_since = None
        self._place(cls)

    def is_resting(self) -> bool:
        """Returns whether a class or workload here waits for a flush."""
        return bool(self.parked_classes or self.parked_workloads)

    @property
    def pending(self) -> int:
        """How many wait here. A family counts once."""
        return self.live + len(self.parked_workloads) - self.variants + len(self.parents)

    def waiting(self) -> Iterator[WorkloadInfo]:
        """Yields every workload that waits here, in no order."""
        for cls in self.classes.values():
            yield from cls.waiting()
        yield from self.parked_workloads
        yield from (one[4] for one in self.parents)


ParentEntry = tuple[int, datetime, str, Key, WorkloadInfo]
"""Place among parents: negated priority, timestamp, uid, name, and the parent."""


class BlockedHead:
    """The head of a StrictFIFO queue that got nothing.

    ``since``: since when, for this reason. ``is_scheduled``: its refusal is in the refusal queue.
    ``assignment``: the result of the scan; ``scan``: when and how it was made.
    """

    __slots__ = ("assignment", "is_scheduled", "refusal", "scan", "since", "workload")

    def __init__(
        self, workload: WorkloadInfo, assignment: Assignment, scanned: ScanRecord, refusal: Refusal
    ) -> None:
        self.workload = workload
        self.assignment = assignment
        self.refusal = refusal
        self.scan = scanned
        self.since = scanned.at
        self.is_scheduled = False
