"""Usage of families, while variants get, lose and hand over quota, pods are given back, and queues
are edited, moved and deleted.

Usage equals the sum recomputed from the stored values: of a family, per flavor and resource, the
largest of its variants. A workload that is removed for a while is put back exactly, in any order.
Available quota never exceeds what that usage leaves.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from admittance.quota.cell import Cell, available
from admittance.quota.tree import Node
from admittance.scheduling.state.config import CohortFairSharing, Config
from admittance.scheduling.state.held.shared_quota import (
    WithoutUsage,
    remove_usage,
    restore_usage,
)
from simulation.invariants import reference_quota
from support.cores.families.family_queues import both, explicit
from support.cores.families.family_scheduler import FamilyScheduler
from support.examples import examples

QUEUES = ("a", "b")
TAGS = {"r": ("r", "c"), "o": ("o", "c"), "s": ("s", "c"), "any": ("r", "s", "c")}
FAMILIES = ("f0", "f1")
JOBS = ("w0", "w1")
VARIANTS = [f"{family}-{tag}" for family in FAMILIES for tag in TAGS]
NAMES = [*VARIANTS, *JOBS]
GPUS = ("r", "o", "s")
SETS = st.lists(
    st.tuples(st.integers(1, 3), st.integers(0, 2), st.integers(0, 3)), min_size=1, max_size=2
)


class Ledger(RuleBasedStateMachine):
    """Writes admissions at random instead of running the scheduler."""

    @initialize(
        fair=st.booleans(),
        lend=st.sampled_from((None, None, "2")),
        first=st.lists(SETS, min_size=2, max_size=2),
    )
    def begin(self, fair: bool, lend: str | None, first: list[list[tuple[int, int, int]]]) -> None:
        self.scheduler = FamilyScheduler(Config(fair_sharing=CohortFairSharing() if fair else None))
        self.lend = lend
        for name in (*GPUS, "c"):
            self.scheduler.flavor(name)
        self.scheduler.put("Cohort", "co", {})
        for name in QUEUES:
            self._queue(name, "co", 6)
        for family, queue, sets in zip(FAMILIES, QUEUES, first, strict=True):
            self.a_family_comes(family, queue, sets)

    def _queue(self, name: str, cohort: str, gpus: int) -> None:
        groups = both({flavor: str(gpus) for flavor in GPUS}, str(2 * gpus), shared="c")
        if cohort and self.lend is not None and name == "a":
            groups[0]["flavors"][0]["resources"][0]["lendingLimit"] = self.lend
            groups[1]["flavors"][0]["resources"][0]["lendingLimit"] = self.lend
        policy = explicit(*GPUS, shared="c")
        self.scheduler.queue(name, cohort, resourceGroups=groups, concurrentAdmission=policy)

    # What happens. ----------------------------------------------------------------------------

    @rule(family=st.sampled_from(FAMILIES), queue=st.sampled_from(QUEUES), sets=SETS)
    def a_new_family_comes(self, family: str, queue: str, sets: list[tuple[int, int, int]]) -> None:
        if family not in self.scheduler.stored:
            self.a_family_comes(family, queue, sets)

    def a_family_comes(self, family: str, queue: str, sets: list[tuple[int, int, int]]) -> None:
        """``sets``: per pod set the number of pods, and the gpus and cpus of each pod."""
        pods = [(count, {"gpu": str(gpu), "cpu": str(cpu)}) for count, gpu, cpu in sets]
        self.scheduler.open_family(family, queue, TAGS, pods)

    @rule(
        name=st.sampled_from(JOBS),
        queue=st.sampled_from(QUEUES),
        gpu=st.integers(0, 4),
        cpu=st.integers(0, 4),
    )
    def a_job_comes(self, name: str, queue: str, gpu: int, cpu: int) -> None:
        if name not in self.scheduler.stored:
            self.scheduler.job(name, queue, [(1, {"gpu": str(gpu), "cpu": str(cpu)})])

    @rule(
        names=st.sets(st.sampled_from(NAMES), min_size=1, max_size=4),
        flavors=st.lists(st.sampled_from(GPUS), min_size=8, max_size=8),
        kept=st.booleans(),
    )
    def some_are_reserved(self, names: set[str], flavors: list[str], kept: bool) -> None:
        """Each pod set in a flavor of its own: siblings hold different amounts of one."""
        for at, name in enumerate(sorted(names)):
            if name not in self.scheduler.stored or self.scheduler.holds(name):
                continue
            drawn = [{"gpu": flavor, "cpu": "c"} for flavor in flavors[2 * at : 2 * at + 2]]
            queue = self.scheduler.member(name).local_queue[1]
            if kept and name in VARIANTS:
                self.scheduler.change(
                    name, promised=self.scheduler.as_admission(name, queue, *drawn)
                )
            else:
                self.scheduler.reserve(name, queue, *drawn)

    @rule(name=st.sampled_from(NAMES))
    def is_admitted(self, name: str) -> None:
        if (
            name in self.scheduler.stored
            and self.scheduler.stored[name].status.admission is not None
        ):
            self.scheduler.admit(name)

    @rule(name=st.sampled_from(VARIANTS))
    def what_was_kept_is_reserved(self, name: str) -> None:
        if name in self.scheduler.stored:
            kept = self.scheduler.stored[name].status.promised
            if kept is not None:
                on = {"QuotaReserved": (True, "QuotaReserved")}
                self.scheduler.change(name, conditions=on, admission=kept, promised=None)

    @rule(name=st.sampled_from(NAMES))
    def loses_it(self, name: str) -> None:
        if name in self.scheduler.stored and self.scheduler.holds(name):
            self.scheduler.lose(name, "Preempted")

    @rule(name=st.sampled_from(NAMES), counts=st.tuples(st.integers(0, 2), st.integers(0, 2)))
    def gives_pods_back(self, name: str, counts: tuple[int, int]) -> None:
        if name in self.scheduler.stored:
            self.scheduler.reclaim(name, *counts)

    @rule(name=st.sampled_from((*NAMES, *FAMILIES)), finishes=st.booleans())
    def is_gone(self, name: str, finishes: bool) -> None:
        if name not in self.scheduler.stored:
            return
        of = [
            variant
            for variant in VARIANTS
            if variant in self.scheduler.stored and variant.split("-")[0] == name
        ]
        for member in (name, *of):
            if finishes:
                self.scheduler.finish(member)
                del self.scheduler.stored[member]
            else:
                self.scheduler.gone(member)

    @rule(
        name=st.sampled_from(QUEUES),
        cohort=st.sampled_from(("co", "", "other")),
        gpus=st.integers(1, 8),
    )
    def a_queue_is_edited(self, name: str, cohort: str, gpus: int) -> None:
        self._queue(name, cohort, gpus)

    @rule(name=st.sampled_from(QUEUES), gpus=st.integers(1, 8))
    def a_queue_is_deleted_and_comes_back(self, name: str, gpus: int) -> None:
        self.scheduler.delete("ClusterQueue", name)
        self._queue(name, "co", gpus)

    @rule(
        order=st.permutations(NAMES), many=st.integers(1, 8), back=st.randoms(use_true_random=False)
    )
    def some_are_taken_out_for_a_while(self, order: list[str], many: int, back: Random) -> None:
        here = [
            member
            for member in order
            if member in self.scheduler.stored and self.scheduler.member(member).charge
        ]
        going = here[:many]
        before = self._usages()
        for at, name in enumerate(going):
            remove_usage(self.scheduler.member(name))
            self._as_added_up(going[: at + 1])
        left = list(going)
        back.shuffle(left)
        while left:
            restore_usage(self.scheduler.member(left.pop()))
            self._as_added_up(left)
        assert self._usages() == before

    @rule(order=st.permutations(NAMES), many=st.integers(1, 4), more=st.integers(1, 4))
    def some_are_taken_out_together(self, order: list[str], many: int, more: int) -> None:
        here = [
            member
            for member in order
            if member in self.scheduler.stored and self.scheduler.member(member).charge
        ]
        first = [self.scheduler.member(member) for member in here[:many]]
        rest = [self.scheduler.member(member) for member in here[many : many + more]]
        before = self._usages()
        with WithoutUsage(rest):
            with WithoutUsage(first):
                self._as_added_up(here[: many + more])
            self._as_added_up(here[many : many + more])
        assert self._usages() == before

    # What holds. ------------------------------------------------------------------------------

    @invariant()
    def what_is_used_is_what_is_written(self) -> None:
        if hasattr(self, "scheduler"):
            self._as_added_up(())

    @invariant()
    def there_is_as_much_as_that_leaves(self) -> None:
        if not hasattr(self, "scheduler"):
            return
        catalog = self.scheduler.core.catalog
        usage = self.scheduler.should_be_used()
        for queue, node in catalog.tree.queues.items():
            for fr, cell in node.cells.items():
                free = reference_quota.available(
                    queue, fr, catalog.cluster_queues, catalog.cohorts, usage
                )
                assert available(cell) == free, (queue, fr)

    @invariant()
    def what_the_others_would_free_and_add_is_told_right(self) -> None:
        if not hasattr(self, "scheduler"):
            return
        for name in NAMES:
            member = self.scheduler.core._state.workloads.get(("ns", name))
            overlap = member.family_quota if member is not None else None
            if member is None or member.charge is None or overlap is None:
                continue
            with_it = self._usages()
            freed = dict(overlap.freed_without(member))
            remove_usage(member)
            without = self._usages()
            assert {
                cell: with_it[cell] - without[cell]
                for cell, _ in member.charge.cells
                if with_it[cell] != without[cell]
            } == freed
            adds = overlap.missing_for(dict(member.charge.cells))
            restore_usage(member)
            assert {cell: much for cell, much in adds.items() if much} == freed

    def teardown(self) -> None:
        """When all are gone nothing is used, and nothing is remembered of any family."""
        if not hasattr(self, "scheduler"):
            return
        for name in list(self.scheduler.stored):
            self.scheduler.gone(name)
        world = self.scheduler.core._state
        assert not world.families
        for cell in self._usages():
            assert cell.usage == 0 and cell.discount == 0 and not cell.discounted_children

    # Help. ------------------------------------------------------------------------------------

    def _as_added_up(self, without: Sequence[str]) -> None:
        wanted = self.scheduler.should_be_used(without)
        for name in QUEUES:
            assert self.scheduler.used(name) == wanted.get(name, {}), name

    def _usages(self) -> dict[Cell, int]:
        tree = self.scheduler.core.catalog.tree
        nodes: list[Node] = [*tree.queues.values(), *tree.cohorts.values()]
        return {cell: cell.usage for node in nodes for cell in node.cells.values()}


TestLedger = Ledger.TestCase
TestLedger.settings = settings(max_examples=examples(60), stateful_step_count=30, deadline=None)
