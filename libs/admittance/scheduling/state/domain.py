"""What belongs together: one cohort tree with its queues, or a ClusterQueue alone."""

from __future__ import annotations

from typing import NamedTuple

from admittance.quota.cell import Cell
from admittance.scheduling.cycle.flavor_assigner import Cursor
from admittance.scheduling.preemption.shared_quota import Tie
from admittance.scheduling.state.queue import Queue
from admittance.scheduling.state.workload_info import Member, Ranked


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
        self.began: dict[Member, Cursor] = {}
        self.beside: list[Member] = []
        self.owned = False
        self.queues: dict[Queue, None] = {}
        self.ready: dict[Queue, None] = {}
        self.resting: dict[Queue, None] = {}
        self.inflight: dict[Member, None] = {}
        self.flush = False
        self.cut = True
        self.rechecks: dict[Member, None] = {}
        self.planners: dict[Member, None] = {}
        self.ties: list[Tie] = []
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
