"""Families and regular workloads compete for one quota: the scheduler decides, checks pass late or
never, jobs stop at any time, and some reservations plan preemptions.

Of a family only the largest variant counts, per flavor and resource; with that count no quota is
exceeded. A variant preempts no sibling, and reserved quota is not given twice. The state becomes
stable.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from random import Random

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from admittance.events.facts import Assigned, Preempted
from admittance.scheduling.state.config import CohortFairSharing, Config
from admittance.workload.conditions import Type, is_true
from simulation.invariants import reference_quota
from support.cores.families.family_queues import both, explicit
from support.cores.families.family_scheduler import FamilyScheduler
from support.examples import examples

QUEUES = ("a", "b")
TAGS = {"r": ("r", "c"), "o": ("o", "c"), "s": ("s", "c")}
FAMILIES = ("f0", "f1", "f2")
JOBS = ("w0", "w1", "w2", "w3")
NAMES = [*(f"{family}-{tag}" for family in FAMILIES for tag in TAGS), *JOBS]
CHECKS = st.sampled_from(((), (), ("late",), ("late", "defers"), ("defers",)))
POLICIES = st.fixed_dictionaries(
    {
        "withinClusterQueue": st.sampled_from(("LowerPriority", "LowerOrNewerEqualPriority")),
        "reclaimWithinCohort": st.sampled_from(("Any", "LowerPriority", "Never")),
    }
)
PODS = st.lists(
    st.tuples(st.integers(1, 2), st.integers(1, 2), st.integers(1, 3)), min_size=1, max_size=2
)


class Room(RuleBasedStateMachine):
    """``cut``: quota has been cut, so that more may be in use than there is."""

    @initialize(
        fair=st.booleans(),
        gpus=st.tuples(st.integers(1, 4), st.integers(1, 3)),
        cpus=st.tuples(st.integers(2, 7), st.integers(0, 5)),
        checks=st.tuples(CHECKS, CHECKS),
        policies=st.tuples(POLICIES, POLICIES),
        first=st.lists(PODS, min_size=2, max_size=2),
    )
    def begin(
        self,
        fair: bool,
        gpus: tuple[int, int],
        cpus: tuple[int, int],
        checks: tuple[tuple[str, ...], tuple[str, ...]],
        policies: tuple[dict[str, str], dict[str, str]],
        first: list[list[tuple[int, int, int]]],
    ) -> None:
        self.scheduler = FamilyScheduler(Config(fair_sharing=CohortFairSharing() if fair else None))
        self.scheduler.jobs_stop = False
        self.cut = False
        for flavor in ("r", "o", "s", "c"):
            self.scheduler.flavor(flavor)
        self.scheduler.put("AdmissionCheck", "late", {"controllerName": "ctl"})
        deferred = {"controllerName": "ctl", "preemptionPolicy": "AfterCheckPassedOrOnDemand"}
        self.scheduler.put("AdmissionCheck", "defers", {**deferred, "controllerName": "other"})
        self.scheduler.put("Cohort", "co", {})
        self.gpus = dict(zip(QUEUES, gpus, strict=True))
        self.cpus = dict(zip(QUEUES, cpus, strict=True))
        self.policies = dict(zip(QUEUES, policies, strict=True))
        self.checks = dict(zip(QUEUES, checks, strict=True))
        for name in QUEUES:
            self._queue(name)
        for family, queue, pods in zip(FAMILIES, QUEUES, first, strict=False):
            self.a_family_comes(family, queue, pods, 0)

    def _queue(self, name: str) -> None:
        gpus = dict.fromkeys(("r", "o", "s"), str(self.gpus[name]))
        self.scheduler.queue(
            name,
            "co",
            resourceGroups=both(gpus, str(self.cpus[name]), shared="c"),
            concurrentAdmission=explicit("r", "o", "s", shared="c"),
            preemption=self.policies[name],
            admissionChecks=list(self.checks[name]),
        )

    # What happens. ----------------------------------------------------------------------------

    @rule(
        name=st.sampled_from(FAMILIES),
        queue=st.sampled_from(QUEUES),
        pods=PODS,
        priority=st.integers(-2, 2),
    )
    def a_family_comes(
        self, name: str, queue: str, pods: list[tuple[int, int, int]], priority: int
    ) -> None:
        """The number of pods, and the gpus and cpus of each pod."""
        if name not in self.scheduler.stored:
            asked = [(count, {"gpu": str(gpu), "cpu": str(cpu)}) for count, gpu, cpu in pods]
            self.scheduler.open_family(name, queue, TAGS, asked, priority=priority)
            self.cycle(len(pods))

    @rule(
        name=st.sampled_from(JOBS),
        queue=st.sampled_from(QUEUES),
        gpu=st.integers(0, 3),
        cpu=st.integers(0, 5),
        priority=st.sampled_from((-2, 0, 1, 2, 3)),
    )
    def a_job_comes(self, name: str, queue: str, gpu: int, cpu: int, priority: int) -> None:
        if name not in self.scheduler.stored:
            pods = [(1, {"gpu": str(gpu), "cpu": str(cpu)})]
            self.scheduler.job(name, queue, pods, priority=priority)
            self.cycle(gpu)

    @rule(times=st.integers(1, 4))
    def cycle(self, times: int) -> None:
        for _ in range(times):
            if self.scheduler.core.has_work():
                self._cycle()

    @rule(name=st.sampled_from(NAMES))
    def passes(self, name: str) -> None:
        if (
            name in self.scheduler.stored
            and self.scheduler.stored[name].status.admission is not None
        ):
            self.scheduler.passes(name)
            self.cycle(1)

    @rule(name=st.sampled_from(NAMES))
    def stops(self, name: str) -> None:
        if self._is_stopping(name):
            self.scheduler.stops(name)

    @rule(name=st.sampled_from(JOBS))
    def ends(self, name: str) -> None:
        if name in self.scheduler.stored:
            self.scheduler.finish(name)
            del self.scheduler.stored[name]

    @rule(name=st.sampled_from(FAMILIES))
    def a_family_ends(self, name: str) -> None:
        if name in self.scheduler.stored:
            for member in (name, *(f"{name}-{tag}" for tag in TAGS)):
                self.scheduler.gone(member)

    @rule(name=st.sampled_from(QUEUES), gpus=st.integers(1, 4), cpus=st.integers(0, 8))
    def a_queue_is_edited(self, name: str, gpus: int, cpus: int) -> None:
        self.cut = self.cut or gpus < self.gpus[name] or cpus < self.cpus[name]
        self.gpus[name], self.cpus[name] = gpus, cpus
        self._queue(name)

    @rule(chance=st.randoms(use_true_random=False))
    def another_leader_takes_over(self, chance: Random) -> None:
        """Reading the stored values in any order gives the same state."""
        before = {name: self.scheduler.used(name) for name in QUEUES}
        order = list(self.scheduler.stored)
        chance.shuffle(order)
        self.scheduler.restart_in(order)
        assert before == {name: self.scheduler.used(name) for name in QUEUES}

    # What holds. ------------------------------------------------------------------------------

    @invariant()
    def no_workload_has_more_than_there_is(self) -> None:
        if not hasattr(self, "scheduler") or self.cut:
            return
        for without in self._outcomes():
            for queue, fr, free in self._free(without):
                assert free >= 0, f"{queue} is over by {-free} of {fr} without {sorted(without)}"

    @invariant()
    def what_counts_is_the_largest_of_a_family(self) -> None:
        if hasattr(self, "scheduler") and not self._plans():
            wanted = self.scheduler.should_be_used()
            for name in QUEUES:
                assert self.scheduler.used(name) == wanted.get(name, {})

    def teardown(self) -> None:
        """In the end every check passes and every job stops and ends."""
        if not hasattr(self, "scheduler"):
            return
        for _ in range(300):
            self._settle()
            for name in NAMES:
                if name not in self.scheduler.stored:
                    continue
                if self._is_stopping(name):
                    self.scheduler.stops(name)
                elif is_true(self.scheduler.stored[name], Type.ADMITTED):
                    self._end(name)
                elif self._awaits_checks(name):
                    self.scheduler.passes(name)
            if not any(
                self.scheduler.holds(name) for name in NAMES if name in self.scheduler.stored
            ):
                break
        else:
            raise AssertionError("it does not come to an end")
        for cells in self.scheduler.core.catalog.tree.queues.values():
            assert not any(cell.usage for cell in cells.cells.values())
        world = self.scheduler.core._state
        assert not (world.planners_by_victim or world.planning_domains)
        assert not [domain for domain in world.domains.values() if domain.handover]

    # Help. ------------------------------------------------------------------------------------

    def _cycle(self) -> None:
        admitted = {
            family: self.scheduler.stored[family].status.admitted_variant
            for family in FAMILIES
            if family in self.scheduler.stored
        }
        self.scheduler.cycle(confirm=False)
        for decision in self.scheduler.decisions:
            if isinstance(decision, Preempted):
                self._is_fair_game(decision.by.partition("/")[2], decision.name)
            elif isinstance(decision, Assigned):
                for giver in decision.preempts:
                    self._is_fair_game(decision.name, giver.name)
        for decision in self.scheduler.decisions:
            self.scheduler.apply(decision)
        for name, before in admitted.items():
            running = [
                f"{name}-{tag}"
                for tag in TAGS
                if is_true(self.scheduler.stored[f"{name}-{tag}"], Type.ADMITTED)
            ]
            assert len(running) <= 1, f"{running} are admitted, and {before} was"

    def _is_fair_game(self, preemptor: str, victim: str) -> None:
        theirs = self.scheduler.parent_of(victim)
        assert not theirs or theirs != self.scheduler.parent_of(preemptor), (
            "a sibling goes for a sibling"
        )
        assert self.scheduler.stored[victim].status.promised is None, "what is kept is taken"

    def _settle(self) -> None:
        """Runs until no step is left, but at most for a fixed number of steps: the loop guard,
        which ends preemption loops, is not part of this machine."""
        for _ in range(40):
            if not self.scheduler.core.has_work():
                return
            self._cycle()

    def _end(self, name: str) -> None:
        parent = self.scheduler.parent_of(name)
        gone = [parent, *(f"{parent}-{tag}" for tag in TAGS)] if parent else [name]
        for member in gone:
            self.scheduler.gone(member)

    def _is_stopping(self, name: str) -> bool:
        if name not in self.scheduler.stored:
            return False
        stored = self.scheduler.stored[name]
        return is_true(stored, Type.EVICTED) and is_true(stored, Type.ADMITTED)

    def _awaits_checks(self, name: str) -> bool:
        rows = self.scheduler.stored[name].status.admission_checks
        return any(row.state != "Ready" for row in rows)

    def _plans(self) -> dict[str, list[str]]:
        booked = {}
        for name in NAMES:
            stored = self.scheduler.stored.get(name)
            if stored is None or stored.status.admission is None:
                continue
            pending = stored.status.pending_preemption
            victims = [
                victim.name
                for victim in (pending.victims if pending is not None else ())
                if victim.name in self.scheduler.stored
                and self.scheduler.stored[victim.name].status.admission is not None
                and self.scheduler.member(victim.name).reserved_at == victim.since
            ]
            if victims:
                booked[name] = victims
        return booked

    def _outcomes(self) -> Iterator[set[str]]:
        """The absent workloads, for each possible outcome of the plans."""
        plans = self._plans()
        for count in range(len(plans) + 1):
            for true in combinations(plans, count):
                gone = {victim for name in true for victim in plans[name]}
                yield gone | (set(plans) - set(true))

    def _free(self, without: set[str]) -> Iterator[tuple[str, tuple[str, str], int]]:
        catalog = self.scheduler.core.catalog
        usage = self.scheduler.should_be_used(sorted(without))
        for queue in QUEUES:
            for fr in (*((flavor, "gpu") for flavor in ("r", "o", "s")), ("c", "cpu")):
                available = reference_quota.available(
                    queue, fr, catalog.cluster_queues, catalog.cohorts, usage
                )
                yield queue, fr, available


TestRoom = Room.TestCase
TestRoom.settings = settings(max_examples=examples(40), stateful_step_count=30, deadline=None)
