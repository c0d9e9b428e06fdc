"""Reservations with planned preemptions, while checks judge, queues are edited, priorities change,
victims finish or stop slowly, and decisions arrive late, are refused, or get lost.

Quota is never exceeded, no workload is admitted before its victims have stopped, and every plan
ends.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from itertools import combinations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from admittance.events import facts
from admittance.quota.cell import available
from admittance.scheduling.state.config import CohortFairSharing, Config
from admittance.workload.conditions import Type, is_true
from admittance.workload.phase import holds_quota
from simulation.invariants import reference_quota
from support.cores.stepped_cores import SteppedCores
from support.cores.stepped_scheduler import groups, quota
from support.examples import examples

QUEUES = ("a", "b")
CHECKS = ("c1", "c2")
NAMES = [f"w{number}" for number in range(9)]
CPU = ("default", "cpu")
DEFERS = "AfterCheckPassedOrOnDemand"
POLICIES = st.fixed_dictionaries(
    {
        "withinClusterQueue": st.sampled_from(("LowerPriority", "LowerOrNewerEqualPriority")),
        "reclaimWithinCohort": st.sampled_from(("Any", "Any", "LowerPriority", "Never")),
    }
)
WHICH = st.sampled_from((("c1",), ("c1", "c2"), ("c2",), ()))


class Planned(RuleBasedStateMachine):
    """Decisions wait in ``under_way`` until the controller reads them, in their order."""

    @initialize(
        policies=st.tuples(POLICIES, POLICIES),
        deferring=st.tuples(st.booleans(), st.booleans()),
        nominal=st.tuples(st.integers(2, 4), st.integers(1, 3)),
        lend=st.sampled_from((None, None, "0", "1", "2")),
        borrow=st.sampled_from((None, None, "1", "2")),
        fair=st.sampled_from((False, False, True)),
        first=st.lists(
            st.tuples(st.sampled_from(QUEUES), st.integers(1, 3)), min_size=3, max_size=4
        ),
        rivals=st.lists(
            st.tuples(st.sampled_from(QUEUES), st.integers(1, 4), st.integers(-1, 2)),
            min_size=2,
            max_size=4,
        ),
        asks=st.tuples(WHICH, WHICH),
    )
    def begin(
        self,
        policies: tuple[dict[str, str], dict[str, str]],
        deferring: tuple[bool, bool],
        nominal: tuple[int, int],
        lend: str | None,
        borrow: str | None,
        fair: bool,
        first: list[tuple[str, int]],
        rivals: list[tuple[str, int, int]],
        asks: tuple[tuple[str, ...], tuple[str, ...]],
    ) -> None:
        self.cores = SteppedCores(Config(fair_sharing=CohortFairSharing() if fair else None))
        self.under_way: deque[facts.Decision] = deque()
        self.cores.slow_jobs = set(NAMES)
        self.cut = False
        for name, defers in zip(CHECKS, deferring, strict=True):
            spec = {"controllerName": f"ctl-{name}"}
            if defers:
                spec["preemptionPolicy"] = DEFERS
            self.cores.put("AdmissionCheck", name, spec)
        self.cores.put("Cohort", "co", {})
        self.nominal = dict(zip(QUEUES, nominal, strict=True))
        self.policies = dict(zip(QUEUES, policies, strict=True))
        self.limits = {"a": {"lend": lend}, "b": {"borrow": borrow}}
        self.asks: dict[str, tuple[str, ...]] = dict.fromkeys(QUEUES, ())
        for name in QUEUES:
            self._put(name)
        for name, (queue, cpu) in zip(NAMES, first, strict=False):
            self.cores.submit(name, queue, str(cpu), priority=-3)
        self.cores.settle()
        self.asks = dict(zip(QUEUES, asks, strict=True))
        for name in QUEUES:
            self._put(name)
        for name, (queue, cpu, priority) in zip(NAMES[::-1], rivals, strict=False):
            self.cores.submit(name, queue, str(cpu), priority=priority)

    def _put(self, name: str) -> None:
        self.cores.queue(
            name,
            "co",
            resourceGroups=groups(default=quota(str(self.nominal[name]), **self.limits[name])),
            preemption=self.policies[name],
            admissionChecks=list(self.asks[name]),
        )

    # What happens. ----------------------------------------------------------------------------

    @rule(
        name=st.sampled_from(NAMES),
        queue=st.sampled_from(QUEUES),
        cpu=st.integers(1, 4),
        priority=st.integers(-2, 3),
    )
    def submit(self, name: str, queue: str, cpu: int, priority: int) -> None:
        if not self.cores.has(name):
            self.cores.submit(name, queue, str(cpu), priority=priority)

    @rule(times=st.integers(1, 4))
    def cycle(self, times: int) -> None:
        for _ in range(times):
            self.under_way.extend(self.cores.cycle(apply=False))

    @precondition(lambda self: self.under_way)
    @rule(count=st.integers(1, 4))
    def arrive(self, count: int) -> None:
        for _ in range(min(count, len(self.under_way))):
            self._apply(self.under_way.popleft())

    @rule()
    def all_settles(self) -> None:
        self._settle()

    @precondition(lambda self: self.under_way)
    @rule()
    def not_taken_by_the_log(self) -> None:
        lost = self.under_way.pop()
        self.cores.scheduler.forget(lost.namespace, lost.name, lost.revision)

    @rule()
    def another_leader_takes_over(self) -> None:
        """All messages under way arrive before the takeover, except the newest one, which is
        lost."""
        if self.under_way:
            self.under_way.pop()
        self._arrive_all()
        self.cores.restart_scheduler()

    @rule(name=st.sampled_from(NAMES))
    def stops(self, name: str) -> None:
        if self._holds(name) and is_true(self.cores.stored(name), Type.EVICTED):
            self.cores.stop(name)
            self.cores.slow_jobs.add(name)

    @rule(
        name=st.sampled_from(NAMES),
        check=st.sampled_from(CHECKS),
        state=st.sampled_from(("Ready", "Ready", "Ready", "Retry", "Pending")),
        demands=st.booleans(),
    )
    def judged(self, name: str, check: str, state: str, demands: bool) -> None:
        if self._holds(name):
            rows = self.cores.stored(name).status.admission_checks
            if any(row.name == check for row in rows):
                reason = "PreemptionRequired" if demands else ""
                self.cores.verdict(name, check, state, reason=reason)

    @rule(name=st.sampled_from(NAMES))
    def finishes(self, name: str) -> None:
        if self._holds(name):
            self.cores.finish(name)

    @rule(name=st.sampled_from(NAMES), priority=st.integers(-3, 4))
    def is_reprioritized(self, name: str, priority: int) -> None:
        if self.cores.has(name):
            self.cores.publish(facts.Reprioritized, name, priority=priority)

    @rule(name=st.sampled_from(NAMES))
    def is_deleted(self, name: str) -> None:
        if self.cores.has(name):
            self.cores.publish(facts.Deleted, name)

    @rule(name=st.sampled_from(QUEUES), change=st.sampled_from((-2, -1, 0, 1)), asks=WHICH)
    def a_queue_is_edited(self, name: str, change: int, asks: tuple[str, ...]) -> None:
        self.cut = self.cut or change < 0
        self.nominal[name] = max(0, self.nominal[name] + change)
        self.asks[name] = asks
        self._put(name)

    # What holds. ------------------------------------------------------------------------------

    @invariant()
    def whatever_becomes_of_the_plans_quota_is_enough(self) -> None:
        if not hasattr(self, "cores") or self.cut:
            return
        for without in self._outcomes():
            for name in QUEUES:
                free = self._free(name, without)
                assert free >= 0, f"{name} is over by {-free} without {sorted(without)}"

    @invariant()
    def no_workload_counts_on_more_than_there_is(self) -> None:
        if not hasattr(self, "cores") or self.under_way:
            return
        queues = self.cores.scheduler.catalog.tree.queues
        for without in self._outcomes():
            for name in QUEUES:
                assert available(queues[name].cell(CPU)) <= self._free(name, without)

    @invariant()
    def with_nothing_on_its_way_nothing_is_assumed(self) -> None:
        if not hasattr(self, "cores") or self.under_way:
            return
        world = self.cores.scheduler._state
        assert not [domain for domain in world.domains.values() if domain.handover]
        assert not [member.key for member in world.workloads.values() if member.in_flight]
        for member in world.workloads.values():
            written = self.cores.stored(member.key[1]).status.pending_preemption
            assert member.pending_preemption == written

    def teardown(self) -> None:
        """In the end every check passes, all jobs that must stop do so, and then all jobs end."""
        if not hasattr(self, "cores"):
            return
        for _ in range(200):
            self._settle()
            holding = [name for name in NAMES if self._holds(name)]
            if not holding and not self.cores.scheduler.has_work():
                break
            for name in holding:
                status = self.cores.stored(name).status
                if is_true(self.cores.stored(name), Type.EVICTED):
                    self.cores.stop(name)
                    self.cores.slow_jobs.add(name)
                elif is_true(self.cores.stored(name), Type.ADMITTED):
                    assert status.pending_preemption is None
                    self.cores.finish(name)
                for row in status.admission_checks:
                    if row.state == "Pending" and self._holds(name):
                        self.cores.verdict(name, row.name, "Ready")
        else:
            raise AssertionError("some plan does not come to an end")
        world = self.cores.scheduler._state
        assert not (world.planners_by_victim or world.planning_domains)
        for node in world.catalog.tree.queues.values():
            assert not any(cell.usage for cell in node.cells.values())
        assert not any(c.usage for c in world.catalog.tree.cohorts["co"].cells.values())

    # Help. ------------------------------------------------------------------------------------

    def _apply(self, decision: facts.Decision) -> None:
        before = self._outstanding(decision.name)
        was = self._is_admitted(decision.name)
        self.cores.apply(decision)
        if before and self._is_admitted(decision.name) and not was:
            # So it needs no preemption any more.
            planners = {name for name in NAMES if self._outstanding(name)}
            free = min(self._free(name, planners) for name in QUEUES)
            assert free >= 0, f"{decision.name} was admitted while {before} hold quota for it"

    def _arrive_all(self) -> None:
        while self.under_way:
            self._apply(self.under_way.popleft())

    def _settle(self) -> None:
        self._arrive_all()
        for _ in range(300):
            wake = self.cores.scheduler.next_wake()
            soon = wake is not None and wake <= self.cores.now
            if not self.cores.scheduler.has_work() and not soon:
                return
            self.under_way.extend(self.cores.cycle(apply=False))
            self._arrive_all()
        raise AssertionError("it does not come to rest")

    def _is_admitted(self, name: str) -> bool:
        return self.cores.has(name) and is_true(self.cores.stored(name), Type.ADMITTED)

    def _holds(self, name: str) -> bool:
        return self.cores.has(name) and holds_quota(self.cores.stored(name))

    def _outstanding(self, name: str) -> list[str]:
        """The victims that a reservation waits for."""
        if not self._holds(name):
            return []
        pending = self.cores.stored(name).status.pending_preemption
        return [
            victim.name
            for victim in (pending.victims if pending is not None else ())
            if self._holds(victim.name)
            and victim.uid == self.cores.stored(victim.name).metadata.uid
            and victim.since == _reserved_at(self.cores, victim.name)
        ]

    def _outcomes(self) -> Iterator[set[str]]:
        """The workloads that are gone, for each way in which the plans may go: one comes true
        without its victims, and what does not has not come before its victims went."""
        plans = {name: plan for name in NAMES if (plan := self._outstanding(name))}
        for count in range(len(plans) + 1):
            for true in combinations(plans, count):
                gone = {victim for name in true for victim in plans[name]}
                yield gone | (set(plans) - set(true))

    def _free(self, queue: str, without: set[str]) -> int:
        catalog = self.cores.scheduler.catalog
        usage: dict[str, reference_quota.Usage] = {}
        for name in NAMES:
            if self._holds(name) and name not in without:
                admission = self.cores.stored(name).status.admission
                assert admission is not None
                held = usage.setdefault(admission.cluster_queue, {})
                for fr, much in reference_quota.usage_of(admission).items():
                    held[fr] = held.get(fr, 0) + much
        return reference_quota.available(queue, CPU, catalog.cluster_queues, catalog.cohorts, usage)


def _reserved_at(cores: SteppedCores, name: str) -> object:
    times = [
        condition
        for condition in cores.stored(name).status.conditions
        if condition.type == "QuotaReserved"
    ]
    return times[0].last_transition_time


TestPlanned = Planned.TestCase
TestPlanned.settings = settings(max_examples=examples(40), stateful_step_count=30, deadline=None)
