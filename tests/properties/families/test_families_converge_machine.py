"""Random facts about families, repeated and in any order: the orders lead to the same state, and
end. A new leader continues from the stored values.
"""

from __future__ import annotations

from datetime import timedelta

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from admittance.acts import PATIENCE_MAX
from admittance.api.workload import FAMILY_GATE
from admittance.events import facts
from admittance.events.base import Fact
from admittance.family import changes_next, desired_variants
from admittance.variants.core import COALESCE
from admittance.workload.conditions import find, is_true
from admittance.workload.families.parent_status import rows_of, summary_of
from admittance.workload.family_info import allowed_flavors, parent_state, variant_state
from admittance.workload.stored import StoredWorkload, head
from support.builders import a_condition, an_admission
from support.cores.families.stepped_variants import NS, SteppedVariants
from support.examples import examples

FLAVORS = ("a", "b", "c")
PARENTS = st.sampled_from(("j", "k"))
DELAYED = tuple(
    {
        "name": name,
        "allowedResourceFlavors": [name],
        "createDelaySeconds": 100 * place,
        "deleteDelaySeconds": 500,
    }
    for place, name in enumerate(FLAVORS)
)
SEEN = (
    (a_condition("QuotaReserved", False, "PendingEvaluation"),),
    (a_condition("QuotaReserved", False, "WaitingForQuota"),),
    (
        a_condition("QuotaReserved", False, "AdmissionGated"),
        a_condition("BlockedOnPreemptionGates", True),
    ),
    (a_condition("Requeued", False, "AdmissionCheck"),),
    (a_condition("Requeued", True, "BackoffFinished"),),
)


class FamiliesMachine(RuleBasedStateMachine):
    """Two parents in one queue; what is ordered is done late, twice, or after a restart."""

    def __init__(self) -> None:
        super().__init__()
        self.table = SteppedVariants().offer(*FLAVORS)
        self.published: list[Fact] = []

    @initialize(begun=st.sampled_from(("not", "done", "admitted", "delayed")))
    def two_families(self, begun: str) -> None:
        if begun == "delayed":
            self.is_offered_with_delays(3)
        for name in ("j", "k"):
            self.table.workload(name)
        if begun != "not":
            self.table.follow()
        if begun == "admitted":
            self.admits("j-variant-b")
            self.admits("k-variant-a")

    # What users, admins and others do. ------------------------------------------------------

    @rule(name=PARENTS, role=st.sampled_from(("parent", "regular")), active=st.booleans())
    def appears(self, name: str, role: str, active: bool) -> None:
        if name not in self.table.stored:
            self.table.workload(name, role=role, active=active)

    @rule(name=PARENTS)
    def disappears(self, name: str) -> None:
        workload = self.table.stored.get(name)
        if workload is not None and workload.status.admission is None:
            self.table.put(name, None)
        elif workload is not None:
            self.table.apply_facts(facts.Deleted(namespace=NS, name=name))

    @rule(name=PARENTS, active=st.booleans(), priority=st.integers(0, 2))
    def is_changed(self, name: str, active: bool, priority: int) -> None:
        if name in self.table.stored:
            self.table.spec(name, active=active, priority=priority)

    @rule(name=PARENTS)
    def changes_its_role(self, name: str) -> None:
        workload = self.table.stored.get(name)
        if workload is not None and not workload.status.admitted_variant:
            role = {"parent": "regular", "regular": "parent"}[head(workload).role]
            self.table.spec(name, role=role)

    @rule(name=PARENTS)
    def is_over(self, name: str) -> None:
        if name in self.table.stored:
            self.table.apply_facts(facts.Finished(namespace=NS, name=name))

    @rule(flavors=st.permutations(FLAVORS), count=st.integers(1, 3), migrates=st.booleans())
    def is_offered(self, flavors: list[str], count: int, migrates: bool) -> None:
        mode = "UpgradeOnly" if migrates else "NoMigration"
        self.table.offer(*flavors[:count], mode=mode)

    @rule(count=st.integers(1, 3))
    def is_offered_with_delays(self, count: int) -> None:
        self.table.offer(*FLAVORS, explicit=DELAYED[:count])

    @rule(what=st.sampled_from(("policy", "queue", "local", "back")))
    def queues_come_and_go(self, what: str) -> None:
        match what:
            case "policy":
                self.table.offer(*FLAVORS, policy=False)
            case "queue":
                self.table.no_queue()
            case "local":
                self.table.local_queue("lq", "")
            case "back":
                self.table.local_queue().offer(*FLAVORS)

    @rule(name=PARENTS, tag=st.sampled_from(FLAVORS))
    def a_name_is_taken_or_freed(self, name: str, tag: str) -> None:
        name = f"{name}-variant-{tag}"
        workload = self.table.stored.get(name)
        if workload is None:
            self.table.workload(name, role="regular")
        elif head(workload).role == "regular":
            self.table.put(name, None)

    # What the others do. --------------------------------------------------------------------

    def _variant(self, data: st.DataObject) -> str | None:
        names = [
            name for name, workload in self.table.stored.items() if head(workload).role == "variant"
        ]
        return data.draw(st.sampled_from(sorted(names))) if names else None

    @rule(data=st.data(), conditions=st.sampled_from(SEEN))
    def a_variant_is_looked_at(self, data: st.DataObject, conditions: tuple[object, ...]) -> None:
        name = self._variant(data)
        if name is not None:
            self.table.status(name, *conditions)  # type: ignore[arg-type]

    @rule(data=st.data(), why=st.sampled_from(("User", "Rejected", "")))
    def a_variant_is_stopped_or_not(self, data: st.DataObject, why: str) -> None:
        name = self._variant(data)
        if name is not None:
            self.table.status(name, stopped_by=why).spec(name, active=not why)

    @rule(data=st.data())
    def a_variant_goes_by_itself(self, data: st.DataObject) -> None:
        name = self._variant(data)
        if name is not None:
            self.table.put(name, None)

    @rule(name=PARENTS, data=st.data())
    def wins(self, name: str, data: st.DataObject) -> None:
        workload = self.table.stored.get(name)
        if workload is None or head(workload).role != "parent" or workload.status.admitted_variant:
            return
        names = sorted(self.table.family(name))
        if names:
            self.admits(data.draw(st.sampled_from(names)))

    def admits(self, variant: str) -> None:
        (flavor, *_) = sorted(allowed_flavors(self.table.stored[variant]) or ())
        self.table.decide(facts.Assigned, variant, admission=an_admission(flavor=flavor))

    @rule(name=PARENTS)
    def is_preempted(self, name: str) -> None:
        workload = self.table.stored.get(name)
        if workload is not None and workload.status.admitted_variant in self.table.stored:
            variant = workload.status.admitted_variant
            self.table.decide(facts.Preempted, variant, reason="InClusterQueue", message="m")

    # Orders. --------------------------------------------------------------------------------

    @rule()
    def orders(self) -> None:
        self.table.ordered_now()

    @rule()
    def everything_is_done(self) -> None:
        self.table.follow()

    @precondition(lambda self: self.table.waiting)
    @rule(count=st.integers(1, 5))
    def some_are_done(self, count: int) -> None:
        for fact in self.table.waiting[:count]:
            self.published.append(fact)
            self.table.apply_facts(fact)
        del self.table.waiting[:count]

    @precondition(lambda self: self.published)
    @rule(data=st.data())
    def a_fact_is_delivered_again(self, data: st.DataObject) -> None:
        fact = data.draw(st.sampled_from(self.published[-10:]))
        if not isinstance(fact, facts.Deleted | facts.Ungated):
            self.table.apply_facts(fact)

    @rule(seconds=st.sampled_from((0.01, 0.1, 1, 5, 60, 300)))
    def time_passes(self, seconds: float) -> None:
        self.table.later(seconds)

    @rule(data=st.data())
    def another_takes_over(self, data: st.DataObject) -> None:
        names = data.draw(st.permutations(sorted(self.table.stored)))
        self.table.families = self.table.another(names)

    @rule(data=st.data())
    def gets_a_known_workload_again(self, data: st.DataObject) -> None:
        table = self.table
        if table.stored:
            name = data.draw(st.sampled_from(sorted(table.stored)))
            table.put(name, table.stored[name])

    # The end. -------------------------------------------------------------------------------

    def teardown(self) -> None:
        table = self.table
        for _ in range(200):
            table.follow()
            table.later(COALESCE.total_seconds())
            table.follow()
            wake = table.families.wake()
            if self._victims_are_sought():
                continue
            if wake is None:
                break
            table.now = max(wake, table.now)
        else:
            raise AssertionError(f"it never comes to rest: {table.families.wake()}")
        assert table.later(10 * PATIENCE_MAX.total_seconds()).ordered_now() == []
        fresh = table.another(sorted(table.stored, reverse=True))
        assert fresh.orders(table.now) == [], "a restarted controller would decide otherwise"
        assert fresh.gates_open() == table.families.gates_open()
        for name, workload in table.stored.items():
            if head(workload).role == "parent" and not is_true(workload, "Finished"):
                self._as_it_should_be(name)
            elif head(workload).role == "variant" and not is_true(workload, "Finished"):
                (owner,) = workload.metadata.owner_references
                assert owner.name in table.stored, f"{name} has no parent"
                assert table.stored[owner.name].metadata.uid == owner.uid, f"{name} is a namesake's"

    def _victims_are_sought(self) -> bool:
        """The scheduler tries the variants with an open gate, and finds no victims. Returns whether
        there was one."""
        tried = [
            name
            for name, workload in self.table.stored.items()
            if is_true(workload, "BlockedOnPreemptionGates") and self._is_open(workload)
        ]
        for name in tried:
            self.table.status(
                name,
                a_condition("QuotaReserved", False, "WaitingForQuota"),
                a_condition("BlockedOnPreemptionGates", False),
            )
        return bool(tried)

    def _as_it_should_be(self, name: str) -> None:
        table = self.table
        parent = table.stored[name]
        state = parent_state(parent)
        own = table.family(name)
        rules = table.rules
        states = [variant_state(variant) for variant in own.values()]
        wants = desired_variants(state, states, rules, table.now)
        assert changes_next(state, states, rules, table.now) is None
        assert parent.status.variants == rows_of(
            [summary_of(variant) for variant in own.values()], wants
        )
        priority = head(parent).priority or 0
        assert {head(variant).priority or 0 for variant in own.values()} <= {priority}
        if rules is None:
            return
        for each in own.values():
            assert head(each).active == wants[each.metadata.name].active
        tags = [head(variant).variant for variant in own.values()]
        free = {tag.name for tag in rules.tags if self._has_room(name, tag.name)}
        assert len(tags) == len(set(tags)), f"twice the same: {tags}"
        assert free <= set(tags) <= {tag.name for tag in rules.tags}
        if not state.active:
            return
        active = [
            variant
            for variant in own.values()
            if head(variant).active and not is_true(variant, "Admitted")
        ]
        blocked = [variant for variant in active if is_true(variant, "BlockedOnPreemptionGates")]
        # A variant that was not tried stops the walk; a delayed variant is skipped.
        waits = any(
            (reserved := find(variant, "QuotaReserved")) is None
            or reserved.reason == "PendingEvaluation"
            or find(variant, "Requeued") is not None
            for variant in active
        )
        assert waits or not blocked

    def _is_open(self, variant: StoredWorkload) -> bool:
        gates = variant.status.preemption_gates
        return any((gate.name, gate.position) == (FAMILY_GATE, "Open") for gate in gates)

    def _has_room(self, name: str, tag: str) -> bool:
        return f"{name}-variant-{tag}" not in self.table.stored


TestFamiliesConverge = FamiliesMachine.TestCase
TestFamiliesConverge.settings = settings(
    max_examples=examples(250), stateful_step_count=40, deadline=timedelta(seconds=120)
)
