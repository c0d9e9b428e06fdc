"""Scheduler and workload-controller side by side: decisions arrive late, are refused, or get lost.

Stored quota never exceeds its limit. Once no message is under way, the scheduler's state equals
the stored values, without leftover assumptions.
"""

from __future__ import annotations

from collections import deque

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from admittance.events import facts
from admittance.quota.cell import Cell
from admittance.scheduling.state.config import CohortFairSharing, Config
from admittance.scheduling.state.scheduler_state import SchedulerState
from admittance.workload.phase import holds_quota
from simulation.invariants import reference_quota
from support.cores.stepped_cores import SteppedCores
from support.cores.stepped_scheduler import groups, quota
from support.examples import examples

QUEUES = ("a", "b")
NAMES = [f"w{number}" for number in range(8)]
WORKLOADS = st.tuples(st.sampled_from(QUEUES), st.integers(1, 3), st.integers(-1, 3))
"""Queue, cpu and priority."""
POLICIES = st.fixed_dictionaries(
    {
        "withinClusterQueue": st.sampled_from(("LowerPriority", "LowerPriority", "Never")),
        "reclaimWithinCohort": st.sampled_from(("Any", "LowerPriority", "Never")),
    }
)


class HandOver(RuleBasedStateMachine):
    """Decisions wait in ``under_way`` until the controller reads them, in their order."""

    @initialize(
        policies=st.tuples(POLICIES, POLICIES),
        checked=st.tuples(st.sampled_from((True, True, False)), st.booleans()),
        nominal=st.tuples(st.integers(1, 3), st.integers(1, 3)),
        fair=st.sampled_from((False, False, True)),
        first=st.lists(WORKLOADS, min_size=3, max_size=5),
        rivals=st.lists(WORKLOADS, min_size=1, max_size=4),
    )
    def begin(
        self,
        policies: tuple[dict[str, str], dict[str, str]],
        checked: tuple[bool, bool],
        nominal: tuple[int, int],
        fair: bool,
        first: list[tuple[str, int, int]],
        rivals: list[tuple[str, int, int]],
    ) -> None:
        self.cores = SteppedCores(Config(fair_sharing=CohortFairSharing() if fair else None))
        self.cores.check("c")
        self.cores.put("Cohort", "co", {})
        for name, policy, asks, cpu in zip(QUEUES, policies, checked, nominal, strict=True):
            checks = {"admissionChecksStrategy": {"admissionChecks": [{"name": "c"}]}}
            self.cores.queue(
                name,
                "co",
                resourceGroups=groups(default=quota(str(cpu))),
                preemption=policy,
                **(checks if asks else {}),
            )
        self.under_way: deque[facts.Decision] = deque()
        self.cores.slow_jobs = set(NAMES)
        for name, (queue, cpu, priority) in zip(NAMES, first, strict=False):
            self.cores.submit(name, queue, str(cpu), priority=priority - 4)
        self.cores.settle()
        for name, (queue, cpu, priority) in zip(NAMES[::-1], rivals, strict=False):
            if not self.cores.has(name):
                self.cores.submit(name, queue, str(cpu), priority=priority)

    # What happens. ----------------------------------------------------------------------------

    @rule(
        name=st.sampled_from(NAMES),
        queue=st.sampled_from(QUEUES),
        cpu=st.integers(1, 4),
        priority=st.integers(-1, 3),
    )
    def submit(self, name: str, queue: str, cpu: int, priority: int) -> None:
        if not self.cores.has(name):
            self.cores.submit(name, queue, str(cpu), priority=priority)

    @rule(times=st.integers(1, 4))
    def cycle(self, times: int) -> None:
        for _ in range(times):
            self.under_way.extend(self.cores.cycle(apply=False))

    @precondition(lambda self: self.under_way)
    @rule(which=st.integers(0, 3), priority=st.integers(-2, 4), last=st.booleans())
    def moves_while_a_decision_about_it_is_on_its_way(
        self, which: int, priority: int, last: bool
    ) -> None:
        decision = self.under_way[which % len(self.under_way)]
        names = [decision.name]
        if isinstance(decision, facts.Assigned):
            names = [*(giver.name for giver in decision.preempts), decision.name]
        name = names[-1 if last else 0]
        if self.cores.has(name):
            self.cores.publish(facts.Reprioritized, name, priority=priority)

    @precondition(lambda self: self.under_way)
    @rule(count=st.integers(1, 3))
    def arrive(self, count: int) -> None:
        for _ in range(min(count, len(self.under_way))):
            self.cores.apply(self.under_way.popleft())

    @precondition(lambda self: self.under_way)
    @rule()
    def not_taken_by_the_log(self) -> None:
        lost = self.under_way.pop()
        self.cores.scheduler.forget(lost.namespace, lost.name, lost.revision)

    @precondition(lambda self: self.under_way)
    @rule()
    def the_domain_is_lost(self) -> None:
        """All messages under way arrive before the barrier of the new leader."""
        for domain in self.cores.scheduler.owned():
            self.cores.scheduler.disown(domain)
        self._arrive_all()
        for domain in self.cores.scheduler.domains():
            self.cores.scheduler.own(domain)

    @rule(name=st.sampled_from(NAMES))
    def stops(self, name: str) -> None:
        if self._holds(name) and stored_evicted(self.cores, name):
            self.cores.stop(name)
            self.cores.slow_jobs.add(name)

    @rule(name=st.sampled_from(NAMES), state=st.sampled_from(("Ready", "Ready", "Retry")))
    def judged(self, name: str, state: str) -> None:
        if self._holds(name):
            self.cores.verdict(name, "c", state)

    @rule(name=st.sampled_from(NAMES))
    def finishes(self, name: str) -> None:
        if self._holds(name):
            self.cores.finish(name)

    @rule(name=st.sampled_from(NAMES), priority=st.integers(-2, 4))
    def is_reprioritized(self, name: str, priority: int) -> None:
        if self.cores.has(name):
            self.cores.publish(facts.Reprioritized, name, priority=priority)

    @rule(name=st.sampled_from(NAMES))
    def is_deleted(self, name: str) -> None:
        if self.cores.has(name):
            self.cores.publish(facts.Deleted, name)

    # What holds. ------------------------------------------------------------------------------

    @invariant()
    def quota_is_never_exceeded(self) -> None:
        for name in QUEUES if hasattr(self, "cores") else ():
            free = reference_quota.available(
                name,
                ("default", "cpu"),
                self.cores.scheduler.catalog.cluster_queues,
                self.cores.scheduler.catalog.cohorts,
                self._written(plans=False),
            )
            assert free >= 0, f"{name} is over by {-free}"

    @invariant()
    def with_nothing_on_its_way_the_picture_is_what_is_written(self) -> None:
        if not hasattr(self, "cores") or self.under_way:
            return
        world = self.cores.scheduler._state
        assert not [domain for domain in world.domains.values() if domain.handover]
        assert not [member.key for member in world.workloads.values() if member.in_flight]
        written = self._written()
        for name, node in world.catalog.tree.queues.items():
            used = {fr: cell.usage + twice(world, cell) for fr, cell in node.cells.items()}
            used = {fr: much for fr, much in used.items() if much}
            assert used == {fr: much for fr, much in written.get(name, {}).items() if much}
            holders = {m.key[1] for m in world.queues[name].holding}
            ranked = {entry[3][1] for entry in world.queues[name].candidates}
            assert ranked == holders

    def teardown(self) -> None:
        """In the end each workload is tried when it is due, and the state becomes stable."""
        if not hasattr(self, "cores"):
            return
        for _ in range(200):
            self._arrive_all()
            self.under_way.extend(self.cores.cycle(apply=False))
            running = [name for name in NAMES if self._holds(name)]
            for name in running:
                if stored_evicted(self.cores, name):
                    self.cores.stop(name)
                else:
                    self.cores.finish(name)
            if not self.under_way and not running and not self.cores.scheduler.has_work():
                break
        else:
            raise AssertionError("it does not come to rest")
        self.with_nothing_on_its_way_the_picture_is_what_is_written()

    # Help. ------------------------------------------------------------------------------------

    def _arrive_all(self) -> None:
        while self.under_way:
            self.cores.apply(self.under_way.popleft())

    def _waits_for_victims(self, name: str) -> bool:
        pending = self.cores.stored(name).status.pending_preemption
        return any(self._holds(victim.name) for victim in (pending.victims if pending else ()))

    def _holds(self, name: str) -> bool:
        return self.cores.has(name) and holds_quota(self.cores.stored(name))

    def _written(self, *, plans: bool = True) -> dict[str, reference_quota.Usage]:
        """The usage without planned preemptions."""
        usage: dict[str, reference_quota.Usage] = {}
        for name in NAMES:
            if self._holds(name) and (plans or not self._waits_for_victims(name)):
                admission = self.cores.stored(name).status.admission
                assert admission is not None
                held = usage.setdefault(admission.cluster_queue, {})
                for fr, much in reference_quota.usage_of(admission).items():
                    held[fr] = held.get(fr, 0) + much
        return usage


def twice(world: SchedulerState, cell: Cell) -> int:
    """The quota that planners and their victims both hold, which counts once."""
    return sum(
        off
        for domain in world.planning_domains
        for tie in domain.plan_quotas
        for shared, off in tie.subtracted
        if shared is cell
    )


def stored_evicted(cores: SteppedCores, name: str) -> bool:
    """Whether the workload is evicted and its job has not stopped."""
    workload = cores.stored(name)
    return any(c.type == "Evicted" and c.status == "True" for c in workload.status.conditions)


TestHandOver = HandOver.TestCase
TestHandOver.settings = settings(max_examples=examples(60), stateful_step_count=40, deadline=None)
