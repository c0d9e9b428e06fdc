"""Random families and workloads, with late or lost decisions: one variant of a family runs or takes
over, siblings are adjacent in the order, and no workload is held back without a reason."""

from __future__ import annotations

from collections import Counter
from typing import Any

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from admittance.events.facts import Decision
from admittance.scheduling import families
from admittance.scheduling.state.config import Config, FairSharing
from admittance.scheduling.state.queue import age_key
from admittance.scheduling.state.scheduler_state import SchedulerState
from admittance.scheduling.state.workload_info import InFlight, Queue, WorkloadInfo
from support.cores.family_scheduler import FamilyScheduler
from support.examples import examples

FLAVORS = ("best", "mid", "worst")
LOWER: dict[str, Any] = {"preemption": {"withinClusterQueue": "LowerPriority"}}
numbers = st.integers(0, 3)


class Families(RuleBasedStateMachine):
    """``flying``: decided, and not written yet."""

    config: Config | None = None

    def __init__(self) -> None:
        super().__init__()
        self.scheduler = FamilyScheduler(self.config)
        self.scheduler.check("slow")
        self.flying: list[Decision] = []
        self.offer(FLAVORS, "UpgradeOnly", slow=True, much=4)

    @initialize(
        taken=st.lists(st.tuples(numbers, st.integers(0, 2), st.integers(2, 4)), max_size=3),
        slow=st.booleans(),
    )
    def begin(self, taken: list[tuple[int, int, int]], slow: bool) -> None:
        """Some flavors are taken, and two families come."""
        self.offer(FLAVORS, "UpgradeOnly", slow=slow, much=4)
        for number, priority, cpu in taken:
            self.regular(number, priority, cpu)
        self.rests(2)
        self.comes(0, 1, 3, 1)
        self.comes(1, 1, 2, 1)
        self.rests(3)

    def world(self) -> SchedulerState:
        return self.scheduler.core._state

    def queue(self) -> Queue:
        found = self.world().queues["cq"]
        assert isinstance(found, Queue)
        return found

    def members(self) -> list[WorkloadInfo]:
        return list(self.world().workloads.values())

    @rule(
        order=st.permutations(FLAVORS),
        mode=st.sampled_from(["UpgradeOnly", "NoMigration"]),
        slow=st.booleans(),
        much=st.integers(2, 8),
    )
    def offer(self, order: tuple[str, ...], mode: str, slow: bool, much: int) -> None:
        checks = {"mid": ["slow"]} if slow else {}
        self.scheduler.family_queue(
            mode=mode, flavors=dict.fromkeys(order, str(much)), checks=checks, **LOWER
        )
        self.scheduler.follow()

    @rule(number=numbers, priority=st.integers(0, 1), cpu=st.integers(1, 4), age=st.integers(0, 2))
    def comes(self, number: int, priority: int, cpu: int, age: int) -> None:
        name = f"f{number}"
        if name not in self.scheduler.stored:
            self.scheduler.family(name, cpu=str(cpu), priority=priority, age=age)

    @rule(number=numbers, priority=st.integers(0, 2), cpu=st.integers(1, 4))
    def regular(self, number: int, priority: int, cpu: int) -> None:
        name = f"r{number}"
        if name not in self.scheduler.stored:
            self.scheduler.submit(name, "cq", str(cpu), priority=priority, age=1)

    @rule(number=numbers)
    def ends(self, number: int) -> None:
        if f"r{number}" in self.scheduler.stored:
            self.scheduler.gone(f"r{number}")

    @rule(number=numbers)
    def goes(self, number: int) -> None:
        name = f"f{number}"
        for one in (*(f"{name}-{flavor}" for flavor in FLAVORS), name):
            if one in self.scheduler.stored:
                self.scheduler.gone(one)

    @rule(taken=st.lists(st.sampled_from((True, True, True, False, None)), max_size=6))
    def decides(self, taken: list[bool | None]) -> None:
        """A cycle; what it states is written, lost, or (None) on its way for a while."""
        self.scheduler.cycle(confirm=False)
        for at, one in enumerate(self.scheduler.decisions):
            fate = taken[at] if at < len(taken) else True
            if fate is None:
                self.flying.append(one)
            else:
                self._write(one, taken=fate)

    @precondition(lambda self: self.flying)
    @rule(taken=st.booleans())
    def written(self, taken: bool) -> None:
        self._write(self.flying.pop(0), taken=taken)

    def _write(self, one: Decision, *, taken: bool) -> None:
        if taken:
            self.scheduler.apply(one)
        else:
            self.scheduler.core.forget(one.namespace, one.name, one.revision)

    @rule(rounds=st.integers(1, 4))
    def rests(self, rounds: int) -> None:
        """Some time passes in which everything that is stated is written."""
        for _ in range(rounds):
            self.decides([])
            self.scheduler.later(2)

    @rule(number=numbers)
    def stops(self, number: int) -> None:
        name = f"f{number}"
        stored = self.scheduler.stored.get(name)
        if (
            stored is not None
            and any(
                one.type == "Evicted" and one.status == "True" for one in stored.status.conditions
            )
            and stored.status.admitted_variant
        ):
            self.scheduler.stops(name)

    @rule(number=numbers, at=st.integers(0, 2))
    def passes(self, number: int, at: int) -> None:
        name = f"f{number}-{FLAVORS[at]}"
        if name in self.scheduler.stored and self.scheduler.admission(name) is not None:
            self.scheduler.passes(name)

    @rule(number=numbers, at=st.integers(0, 2))
    def opens(self, number: int, at: int) -> None:
        name = f"f{number}-{FLAVORS[at]}"
        if name in self.scheduler.stored:
            self.scheduler.opens(name)

    @rule(seconds=st.integers(1, 400))
    def later(self, seconds: int) -> None:
        self.scheduler.later(seconds)

    # What holds. ----------------------------------------------------------------------------

    @invariant()
    def one_of_a_family_runs_and_one_at_most_is_to_take_over(self) -> None:
        runs: Counter[str] = Counter()
        heirs: Counter[str] = Counter()
        for one in self.members():
            if one.family is None or one.charge is None:
                continue
            runs[one.family.uid] += one.state in ("Admitted", "Evicting")
            taking = one.is_migrating_to
            confirmed = one.in_flight is InFlight.CONFIRMED
            heirs[one.family.uid] += taking or confirmed or one.state == "Promised"
        assert max(runs.values(), default=0) <= 1
        assert max(heirs.values(), default=0) <= 1

    @invariant()
    def siblings_stand_side_by_side_the_best_first(self) -> None:
        seen: list[str] = []
        rules = self.queue().rules
        assert rules is not None
        places: dict[str, int] = {}
        for name in self.scheduler.tried():
            member = self.world().workloads["ns", name]
            if self.queue().is_first(member):
                continue
            family = member.family
            uid = family.uid if family is not None else name
            if not seen or seen[-1] != uid:
                assert uid not in seen, f"{name} stands apart from its siblings"
                seen.append(uid)
                places = {}
            if family is not None:
                mine = families.variant_place(member)
                assert all(other < mine for other in places.values())
                places[name] = mine

    @invariant()
    def counts_are_those_of_a_recount(self) -> None:
        queue = self.queue()
        waiting = [one for one in self.members() if one.queue is queue]
        assert queue.variants == sum(one.is_variant for one in waiting)
        parents = [one for one in waiting if one.is_parent]
        assert [entry[4] for entry in queue.parents] == sorted(
            parents, key=lambda one: (-one.priority, age_key(one))
        )
        assert queue.pending == sum(not one.is_variant for one in waiting)

    @invariant()
    def no_workload_is_kept_back_for_nothing(self) -> None:
        world, queue = self.world(), self.queue()
        for one in self.members():
            if one.inadmissible is not None and one.inadmissible.ignores_flush:
                assert families.why_not_tried(world, queue, one) is not None or world.timers

    def teardown(self) -> None:
        """Without further changes, each workload that fits and is allowed is admitted."""
        for decision in self.flying:
            self.scheduler.core.forget(decision.namespace, decision.name, decision.revision)
        for member in self.members():
            if member.in_flight:
                self.scheduler.core.forget(*member.key, member.revision)
        for _ in range(20):
            self.scheduler.settle()
            for number in range(4):
                self.stops(number)
        assert not self.scheduler.core.has_work()


class ByShares(Families):
    """The same where shares of a cohort decide."""

    config = Config(fair_sharing=FairSharing())


TestFamilies = Families.TestCase
TestFamilies.settings = settings(max_examples=examples(60), stateful_step_count=40, deadline=None)
TestFamiliesByShares = ByShares.TestCase
TestFamiliesByShares.settings = settings(
    max_examples=examples(30), stateful_step_count=40, deadline=None
)
