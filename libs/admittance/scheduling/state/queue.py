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
    ClassKey,
    EqClass,
    Kind,
    Lanes,
    Loud,
    Places,
    Scanned,
    unfile,
)
from admittance.scheduling.state.flavor_plan import Plan
from admittance.scheduling.state.shared_quota import Tie
from admittance.scheduling.state.workload_info import (
    Entry,
    Inadmissible,
    Key,
    Ranked,
    WorkloadInfo,
    place,
    shares_flavors,
)


class Domain:
    """One cohort tree, or a ClusterQueue alone: the unit of flushing, deciding and leading.

    ``ready``: queues where somebody competes. ``resting``: queues where somebody is parked.
    ``flush``: wake what is parked before the next cycle. ``cut``: quotas may have been cut since
    somebody looked whether all still fits. ``rechecks``: reservations to look at, since their last
    check may have passed, or whom they plan to preempt may have changed. ``planners``: those that
    plan to. ``ties``: what counts once for a planner and its victims; ``bent``: how much that is
    depends on what else is used; ``private``: whether anything there is not lent, as of a
    generation. ``idle``: cycles in a row that nothing came of.
    ``still``: the last of them changed nothing at all, so that the next one would go like it.
    ``version``: rises with whatever could make a difference to what a head would get: quota that
    is charged or released, who may be a victim, the configuration. ``generation``: rises with every
    edit of a quota or an edge. Of the present cycle, for the log: ``seen``, what its picture has
    seen; ``began``, behind which flavors scans began, where not at the first ones; ``beside``, who
    had its turn since something was stated last.
    """

    __slots__ = (
        "began",
        "bent",
        "beside",
        "cut",
        "flush",
        "generation",
        "idle",
        "inflight",
        "name",
        "owned",
        "planners",
        "private",
        "queues",
        "ready",
        "rechecks",
        "resting",
        "seen",
        "still",
        "ties",
        "version",
    )

    def __init__(self, name: str) -> None:
        self.name = name
        self.seen = 0
        self.began: dict[WorkloadInfo, Cursor] = {}
        self.beside: list[WorkloadInfo] = []
        self.owned = False
        self.queues: dict[Queue, None] = {}
        self.ready: dict[Queue, None] = {}
        self.resting: dict[Queue, None] = {}
        self.inflight: dict[WorkloadInfo, None] = {}
        self.flush = False
        self.cut = True
        self.rechecks: dict[WorkloadInfo, None] = {}
        self.planners: dict[WorkloadInfo, None] = {}
        self.ties: list[Tie[WorkloadInfo]] = []
        self.bent = False
        self.private: tuple[int, bool] | None = None
        self.idle = 0
        self.still = False
        self.version = 0
        self.generation = 0

    def note(self, queue: Queue) -> None:
        """Keeps ready and resting true after something changed in the queue."""
        if queue.activity.active and queue.head() is not None:
            self.ready[queue] = None
        else:
            self.ready.pop(queue, None)
        if queue.parked or queue.asides:
            self.resting[queue] = None
        else:
            self.resting.pop(queue, None)

    def is_waiting(self) -> bool:
        """Every head waits for something that is on its way."""
        return all((head := queue.head()) is None or bool(head.inflight) for queue in self.ready)


class Holders(NamedTuple):
    """Who holds any of the ``wanted`` cells, by rank, at that version of the domain."""

    domain: Domain
    version: int
    wanted: tuple[Cell, ...]
    found: list[Ranked]

    def same(self, domain: Domain | None, version: int, wanted: tuple[Cell, ...]) -> bool:
        """It would be found again."""
        return self.version == version and self.wanted == wanted and self.domain is domain


class Queue:
    """What one ClusterQueue holds.

    ``loud``: where it notes who is to be told why. ``generation`` rises whenever a workload that
    holds quota here changes or goes. ``ranked``: who holds quota, in the order in which they would
    lose it. ``holders``: those of them that hold any of a few cells.
    ``preemptor``: for whom others were last told to go; it stays the head as long as it
    waits here, or the room would go to somebody else and all begin again. ``lanes``: where the
    usage of LocalQueues counts, before anything else; None: it does not. ``standing``: why its head
    blocks it, where it is StrictFIFO. ``rules``: of the families here; None: workloads are regular;
    ``tags``: the variants that they have, by name.
    ``parents``: those that wait, in order; they are never tried. ``variants``: how many of those
    that compete or are set aside are variants.
    """

    __slots__ = (
        "activity",
        "asides",
        "classes",
        "domain",
        "generation",
        "holders",
        "holding",
        "in_cycle",
        "lanes",
        "live",
        "loud",
        "name",
        "node",
        "parents",
        "parked",
        "places",
        "plan",
        "preemptor",
        "ranked",
        "rules",
        "standing",
        "strict",
        "tags",
        "variants",
    )

    def __init__(self, name: str, loud: Loud) -> None:
        self.name = name
        self.loud = loud
        self.node: Node | None = None
        self.domain: Domain | None = None
        self.plan: Plan | None = None
        self.activity: Activity = NOT_FOUND
        self.in_cycle = False
        self.strict = False
        self.classes: dict[ClassKey, EqClass] = {}
        self.places = Places()
        self.lanes: Lanes | None = None
        self.parked: dict[EqClass, None] = {}
        self.asides: dict[WorkloadInfo, None] = {}
        self.holding: dict[WorkloadInfo, None] = {}
        self.ranked: list[Ranked] = []
        self.holders: Holders | None = None
        self.preemptor: WorkloadInfo | None = None
        self.standing: Standing | None = None
        self.rules: FamilyRules | None = None
        self.tags: dict[str, Tag] = {}
        self.parents: list[ParentEntry] = []
        self.variants = 0
        self.generation = 0
        self.live = 0

    # The running order. ---------------------------------------------------------------------

    def head(self) -> WorkloadInfo | None:
        """Who is considered next; None: nobody competes."""
        sticky = self.preemptor
        if sticky is not None and not self.is_first(sticky):
            sticky = None
        if self.lanes is None:
            if sticky is not None:
                return sticky
            entry = self.places.first()
        else:
            entry = self.lanes.first(sticky)
        return entry[3] if entry is not None else None

    def is_first(self, member: WorkloadInfo) -> bool:
        """It is the one for whom others were told to go, and competes."""
        if member is not self.preemptor or member.queue is not self or member.entry is None:
            return False
        return member.cls is not None and member.cls.parked is None

    def forget_preemptor(self, member: WorkloadInfo) -> None:
        """The member has left the queue: its place is no longer kept."""
        if self.preemptor is member:
            self.preemptor = None

    def rank(self, member: WorkloadInfo, reserved_at: datetime) -> None:
        """The member's place among those that hold quota here, from what it is now."""
        self.unrank(member)
        entry = (member.priority, -reserved_at.timestamp(), member.uid, member.key, member)
        insort(self.ranked, entry)
        member.ranked = entry

    def unrank(self, member: WorkloadInfo) -> None:
        """The member holds nothing here any more."""
        if member.ranked is not None:
            del self.ranked[bisect_left(self.ranked, member.ranked)]
            member.ranked = None

    def add(self, member: WorkloadInfo, now: datetime) -> None:
        """The member competes from now on, or is parked along with its class."""
        shape = member.shape
        stamp = member.stamp
        assert shape is not None and stamp is not None
        kind: Kind = shape if member.family is None else self._kind(member)
        key = (member.priority, kind, member.local if self.lanes is not None else None)
        cls = self.classes.get(key)
        if cls is None:
            cls = self._new_class(key, now)
        member.queue = self
        entry: Entry = (stamp, member.uid, member.key, member)
        if member.family is not None:
            entry = (*place(member), member)
            self.variants += member not in self.asides
        member.aside = None
        self.asides.pop(member, None)
        member.cls, member.entry = cls, entry
        cls.insert(entry)
        self.live += 1
        cls.file(member, now)
        if cls.parked is None:
            self._place(cls)
        else:
            self.note_untold(member, now)

    def add_parent(self, member: WorkloadInfo) -> None:
        """The parent waits here. It is never tried: its variants are."""
        member.queue = self
        insort(self.parents, (-member.priority, *place(member), member))

    def _kind(self, member: WorkloadInfo) -> Kind:
        """What it has in common with its class. Variants are apart from regular workloads; and one
        whose siblings hold quota that counts for it, too, from all others: it needs less."""
        assert member.shape is not None and member.family is not None
        held = member.family.held
        alone = held is not None and (held.shares or shares_flavors(member))
        return member.shape, member.family.uid if alone else ""

    def is_apart(self, member: WorkloadInfo) -> bool:
        """The variant waits, or is to wait, in a class of its own."""
        cls = member.cls
        return cls is not None and (
            cls.key[1] != (member.shape, "") or self._kind(member) != cls.key[1]
        )

    def stands_right(self, member: WorkloadInfo) -> bool:
        """The variant that waits here is where it would be put now."""
        entry, cls = member.entry, member.cls
        if entry is None or cls is None:
            return True
        return entry[:3] == place(member) and cls.key[1] == self._kind(member)

    def remove(self, member: WorkloadInfo) -> None:
        """The member is nowhere in this queue any more."""
        if member.family is not None and member.queue is self:
            if member.is_parent:
                del self.parents[bisect_left(self.parents, (-member.priority, *place(member)))]
            else:
                self.variants -= 1
        cls = member.cls
        if member.entry is not None and cls is not None:
            cls.delete(member.entry)
            member.entry = None
            self.live -= 1
            unfile(member)
            if not cls.live:
                cls.item = None
                self.parked.pop(cls, None)
                self.classes.pop(cls.key, None)
                if self.lanes is not None:
                    self.lanes.leave(cls)
            elif cls.parked is None:
                self._place(cls)
        member.cls = None
        if member.aside is not None:
            member.aside = None
            self.asides.pop(member, None)
        member.queue = None

    def _new_class(self, key: ClassKey, now: datetime) -> EqClass:
        cls = self.classes[key] = EqClass(key)
        if self.lanes is not None:
            for other in self.lanes.join(cls):
                if other.parked is not None:
                    # What stands in the way of its family stands in its way too.
                    cls.parked, cls.since = other.parked, now
                    self.parked[cls] = None
                break
        return cls

    def _place(self, cls: EqClass) -> None:
        if self.lanes is not None:
            self.lanes.put(cls)
        else:
            self.places.put(cls)

    def share_by_usage(self, lanes: Lanes | None, now: datetime) -> None:
        """The usage of LocalQueues counts from now on, or (None) does no longer. Whoever is parked
        with its class competes again."""
        members = [member for cls in self.classes.values() for member in cls.waiting()]
        for member in members:
            self.remove(member)
        self.places = Places()
        self.lanes = lanes
        for member in members:
            self.add(member, now)

    # Parking and waking. --------------------------------------------------------------------

    def park_class(self, cls: EqClass, refusal: Refusal, now: datetime) -> None:
        """None of the class can be placed until the tree is flushed, nor can any of its family."""
        if self.lanes is None:
            self._park(cls, refusal, now)
            return
        for one in self.lanes.family(cls):
            self._park(one, refusal, now)

    def _park(self, cls: EqClass, refusal: Refusal, now: datetime) -> None:
        cls.parked = refusal
        cls.item = None
        cls.since = now
        self.parked[cls] = None
        self.list_untold(cls)

    def set_aside(self, member: WorkloadInfo, aside: Inadmissible, now: datetime) -> None:
        """This member alone waits until the tree is flushed, or what is wrong with it changes."""
        self.remove(member)
        member.queue = self
        member.aside = aside
        self.asides[member] = None
        self.variants += member.family is not None
        self.note_untold(member, now)

    def note_untold(self, member: WorkloadInfo, now: datetime) -> None:
        """The parked member is to be told why, unless its status says so already."""
        cls, aside = member.cls, member.aside
        if cls is not None:
            cls.file(member, now)
            self.list_untold(cls)
        elif aside is not None and not aside.is_silent and member.said != aside.reason:
            member.since = now
            self.loud.put(now, member)

    def list_untold(self, cls: EqClass) -> None:
        """Whoever of the class does not know why it is parked is to be told in time."""
        since = None if cls.listed else cls.loud_since()
        if since is not None:
            self.loud.put(since, cls)

    def wake(self, cls: EqClass) -> None:
        """The class competes again."""
        cls.parked = None
        cls.since = None
        self._place(cls)

    def is_resting(self) -> bool:
        """Something here waits for a flush."""
        return bool(self.parked or self.asides)

    @property
    def pending(self) -> int:
        """How many wait here, a family counted as one."""
        return self.live + len(self.asides) - self.variants + len(self.parents)

    def waiting(self) -> Iterator[WorkloadInfo]:
        """Every workload that waits here, in no order."""
        for cls in self.classes.values():
            yield from cls.waiting()
        yield from self.asides
        yield from (one[4] for one in self.parents)


ParentEntry = tuple[int, datetime, str, Key, WorkloadInfo]
"""Order among parents: priority, negated, timestamp, uid, name; then whose it is."""


class Standing:
    """A head that was given nothing. ``since``: since when, for that reason. ``listed``: it has an
    item in `Loud`. ``assignment``: what came of the scan, ``scanned``: when that was."""

    __slots__ = ("assignment", "listed", "member", "refusal", "scanned", "since")

    def __init__(
        self, member: WorkloadInfo, assignment: Assignment, scanned: Scanned, refusal: Refusal
    ) -> None:
        self.member = member
        self.assignment = assignment
        self.refusal = refusal
        self.scanned = scanned
        self.since = scanned.at
        self.listed = False
