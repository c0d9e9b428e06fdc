"""However families and others come and go, and decisions are taken late or not at all: one of a
family runs or takes over, siblings stand side by side, and nobody is kept back for nothing."""

from __future__ import annotations

from collections import Counter
from typing import Any

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from admittance.events.facts import Assigned, Decision
from admittance.scheduler import siblings
from admittance.scheduler.order import place
from admittance.scheduler.picture import Member, Say
from admittance.scheduler.queue import Queue
from family_scheduling import FamilyStory

FLAVORS = ("best", "mid", "worst")
LOWER: dict[str, Any] = {"preemption": {"withinClusterQueue": "LowerPriority"}}
numbers = st.integers(0, 3)


class Families(RuleBasedStateMachine):
    """``flying``: decided, and not written yet."""

    def __init__(self) -> None:
        super().__init__()
        self.story = FamilyStory()
        self.story.check("slow")
        self.flying: list[Decision] = []
        self.offer(("best", "mid", "worst"), "UpgradeOnly", slow=True, much=4)

    def world(self) -> Any:
        return self.story.core._world

    def queue(self) -> Queue:
        found = self.world().queues["cq"]
        assert isinstance(found, Queue)
        return found

    def members(self) -> list[Member]:
        return list(self.world().members.values())

    @rule(
        order=st.permutations(FLAVORS),
        mode=st.sampled_from(["UpgradeOnly", "NoMigration"]),
        slow=st.booleans(),
        much=st.integers(2, 8),
    )
    def offer(self, order: tuple[str, ...], mode: str, slow: bool, much: int) -> None:
        checks = {"mid": ["slow"]} if slow else {}
        self.story.families(
            mode=mode, flavors=dict.fromkeys(order, str(much)), checks=checks, **LOWER
        )
        self.edited = self.story.revision  # What was decided before is not taken.
        self.story.follow()

    @rule(number=numbers, priority=st.integers(0, 1), cpu=st.integers(1, 4), age=st.integers(0, 2))
    def comes(self, number: int, priority: int, cpu: int, age: int) -> None:
        name = f"f{number}"
        if name not in self.story.parents:
            self.story.family(name, cpu=str(cpu), priority=priority, age=age)

    @rule(number=numbers, priority=st.integers(0, 2), cpu=st.integers(1, 4))
    def regular(self, number: int, priority: int, cpu: int) -> None:
        name = f"r{number}"
        if name not in self.story.stored:
            self.story.submit(name, "cq", str(cpu), priority=priority, age=1)

    @rule(number=numbers)
    def ends(self, number: int) -> None:
        if f"r{number}" in self.story.stored:
            self.story.gone(f"r{number}")

    @rule(number=numbers)
    def goes(self, number: int) -> None:
        name = f"f{number}"
        for one in (*self.story.parents.pop(name, ()), name):
            if one in self.story.stored:
                self.story.gone(one)

    @rule()
    def decides(self) -> None:
        self.story.cycle(confirm=False)
        self.flying += self.story.decisions

    @precondition(lambda self: self.flying)
    @rule(taken=st.booleans())
    def written(self, taken: bool) -> None:
        one = self.flying.pop(0)
        stored = self.story.stored.get(one.name)
        member = self.world().members.get((one.namespace, one.name))
        if stored is None or member is None or member.revision != one.revision:
            return
        source = one.migrates_from if isinstance(one, Assigned) else None
        if source is not None:
            giver = self.world().members.get((source.namespace, source.name))
            taken = taken and giver is not None and giver.revision == source.revision
        givers = one.preempts if isinstance(one, Assigned) else ()
        for giver in givers:
            other = self.world().members.get((giver.namespace, giver.name))
            taken = taken and other is not None and other.revision == giver.revision
        if taken and one.seen >= self.edited:
            self.story.write(one)
        else:
            self.story.core.forget(one.namespace, one.name, one.revision)

    @rule(number=numbers)
    def stops(self, number: int) -> None:
        name = f"f{number}"
        stored = self.story.stored.get(name)
        if (
            stored is not None
            and any(
                one.type == "Evicted" and one.status == "True" for one in stored.status.conditions
            )
            and stored.status.admitted_variant
        ):
            self.story.stops(name)

    @rule(number=numbers, at=st.integers(0, 2))
    def passes(self, number: int, at: int) -> None:
        name = f"f{number}-{FLAVORS[at]}"
        if name in self.story.stored and self.story.admission(name) is not None:
            self.story.passes(name)

    @rule(number=numbers, at=st.integers(0, 2))
    def opens(self, number: int, at: int) -> None:
        name = f"f{number}-{FLAVORS[at]}"
        if name in self.story.stored:
            self.story.opens(name)

    @rule(seconds=st.integers(1, 400))
    def later(self, seconds: int) -> None:
        self.story.later(seconds)

    # What holds. ----------------------------------------------------------------------------

    @invariant()
    def one_of_a_family_runs_and_one_at_most_is_to_take_over(self) -> None:
        runs: Counter[str] = Counter()
        heirs: Counter[str] = Counter()
        for one in self.members():
            if one.family is None or one.charge is None:
                continue
            runs[one.family.uid] += one.state in ("Admitted", "Evicting")
            taking = one.family.moving is not None and one.family.moving[0] is one
            confirmed = one.inflight is Say.CONFIRMED
            heirs[one.family.uid] += taking or confirmed or one.state == "Promised"
        assert max(runs.values(), default=0) <= 1
        assert max(heirs.values(), default=0) <= 1

    @invariant()
    def siblings_stand_side_by_side_the_best_first(self) -> None:
        seen: list[str] = []
        rules = self.queue().rules
        assert rules is not None
        places: dict[str, int] = {}
        for name in self.story.tried():
            member = self.world().members["ns", name]
            if self.queue().is_first(member):
                continue
            family = member.family
            uid = family.uid if family is not None else name
            if not seen or seen[-1] != uid:
                assert uid not in seen, f"{name} stands apart from its siblings"
                seen.append(uid)
                places = {}
            if family is not None:
                mine = siblings.place(member)
                assert all(other < mine for other in places.values())
                places[name] = mine

    @invariant()
    def counts_are_those_of_a_recount(self) -> None:
        queue = self.queue()
        waiting = [one for one in self.members() if one.queue is queue]
        assert queue.variants == sum(one.is_variant for one in waiting)
        parents = [one for one in waiting if one.is_parent]
        assert [entry[4] for entry in queue.parents] == sorted(
            parents, key=lambda one: (-one.priority, place(one))
        )
        assert queue.pending == sum(not one.is_variant for one in waiting)

    @invariant()
    def nobody_is_kept_back_for_nothing(self) -> None:
        world, queue = self.world(), self.queue()
        for one in self.members():
            if one.aside is not None and one.aside.stays:
                assert siblings.hindrance(world, queue, one) is not None or world.timers

    def teardown(self) -> None:
        """Left alone, everybody whom policy and room let in is let in."""
        for one in self.flying:
            self.story.core.forget(one.namespace, one.name, one.revision)
        for one in self.members():
            if one.inflight:
                self.story.core.forget(*one.key, one.revision)
        for _ in range(20):
            self.story.settle()
            for name in list(self.story.parents):
                self.stops(int(name[1:]))
        assert not self.story.core.has_work()


TestFamilies = Families.TestCase
TestFamilies.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
