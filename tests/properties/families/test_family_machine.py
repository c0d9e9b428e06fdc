"""Whatever happens to a family, in whatever order and however often: never are two of it admitted,
its parent is admitted exactly if one of its variants is, a crash between two writes leaves the old
one running or the new one, and nothing is ever stuck.

Facts and decisions are random, even if they make no sense; they come in batches, late and repeated.
`FamilyController.look` looks after every write at what must be true."""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from admittance.events import facts
from admittance.events.base import Fact
from admittance.events.shapes import PendingPreemption, Refusal
from admittance.workload.conditions import Type, is_true
from admittance.workload.due_times import due_times
from admittance.workload.phase import holds_quota, is_stopping
from admittance.workload.stored import StoredWorkload, head, owner_of
from support.cores.families.family_controller import UPGRADE, FamilyController
from support.examples import examples

TAGS = ("a", "b", "c")
EXPLICIT = {
    "migrationConstraints": {"mode": "UpgradeOnly"},
    "explicitVariants": [
        {"name": "a", "allowedResourceFlavors": ["a"], "deleteDelaySeconds": 40},
        {"name": "b", "allowedResourceFlavors": ["b"], "createDelaySeconds": 10},
        {"name": "c", "allowedResourceFlavors": ["c", "b"]},
    ],
}
POLICIES: list[dict[str, Any] | None] = [
    UPGRADE,
    UPGRADE,
    UPGRADE,
    EXPLICIT,
    {"migrationConstraints": {"mode": "NoMigration"}},
    {"migrationConstraints": {"mode": "UpgradeOnly", "minFlavor": "a"}},
    None,
]
KINDS = (
    *["assign"] * 6,
    *["swap"] * 3,
    *["ready"] * 5,
    *["confirm"] * 5,
    *["stop"] * 5,
    *["timer"] * 3,
    "submit",
    "tend",
    "tend",
    "verdict",
    "verdict",
    "preempt",
    "revoke",
    "refuse",
    "planned",
    "pods",
    "lost",
    "off",
    "on",
    "on",
    "variant off",
    "variant on",
    "policy off",
    "policy on",
    "hold",
    "release",
    "priority",
    "delete variant",
    "open",
    "aggregate",
    "finish",
    "delete",
)

step = st.tuples(
    st.sampled_from(KINDS),
    st.sampled_from(["j", "k"]),
    st.sampled_from(TAGS),
    st.integers(0, 5),
)


class Families(RuleBasedStateMachine):
    """Two families in one queue; the first flavor of the queue has a check."""

    def __init__(self) -> None:
        super().__init__()
        self.house = FamilyController(checks={"a": ("slow",), "b": ("slow", "odd")}, policy=None)
        self.log: list[Any] = []

    @initialize(policy=st.sampled_from(POLICIES[:-1]))
    def begin(self, policy: dict[str, Any]) -> None:
        self.begin_with(policy)

    def begin_with(self, policy: dict[str, Any] | None) -> None:
        self.offer(TAGS, policy)
        for name in "jk":
            self.house.family(name)

    def offer(self, flavors: tuple[str, ...], policy: dict[str, Any] | None, **more: Any) -> None:
        checks = {"a": ("slow",), "b": ("slow", "odd")}
        self.house.offer(flavors, checks, policy, **more)

    # What comes. ----------------------------------------------------------------------------

    def facts_of(self, kind: str, parent: str, tag: str, number: int) -> list[Fact]:
        house = self.house
        name = f"{parent}-variant-{tag}"
        me: dict[str, Any] = {"namespace": "ns", "name": parent}
        it: dict[str, Any] = {"namespace": "ns", "name": name}
        if kind == "submit":
            return [] if house.is_there(parent) else [house.submission(parent)]
        if not house.is_there(parent):
            return []
        stored = house.get(parent)
        if kind == "tend":
            return house.variant_facts(parent)
        match kind:
            case "stop":
                return [facts.Stopped(**me, revision=stored.status.evicted_revision)]
            case "lost":
                revision = stored.status.admitted_revision
                return [facts.Stopped(**me, revision=revision, reason="NodeFailures")]
            case "pods":
                cls = facts.PodsReady if number % 2 else facts.PodsNotReady
                return [cls(**me, revision=stored.status.admitted_revision)]
            case "off":
                return [facts.Deactivated(**me)]
            case "on":
                return [facts.Activated(**me)]
            case "hold":
                return [facts.Held(**me)]
            case "release":
                return [facts.Released(**me)]
            case "priority":
                return [facts.Reprioritized(**me, priority=number)]
            case "aggregate":
                return [facts.Aggregated(**me)]
            case "finish":
                return [facts.Finished(**me)] if number == 5 else []
            case "delete":
                return [facts.Deleted(**me)] if number >= 4 else []
            case "timer":
                return self.timers(stored if number % 2 else None, name)
        if not house.is_there(name):
            return []
        variant = house.get(name)
        decided = house.decided(name)
        if number == 0:
            decided["revision"] -= 1
        match kind:
            case "assign":
                return [facts.Assigned(**decided, admission=house.admission(tag))]
            case "swap":
                source = stored.status.admitted_variant.rpartition("-")[2]
                if not source or not house.is_there(stored.status.admitted_variant):
                    return []
                return [house.assigned(tag, parent, source=source)]
            case "ready":
                return [
                    self.verdict(variant, row.name, "Ready", None)
                    for row in variant.status.admission_checks
                ]
            case "verdict":
                state = ("Pending", "Retry", "Retry", "Rejected", "Ready", "Retry")[number]
                after = 5 * number if state == "Retry" and number > 1 else None
                check = "odd" if number % 2 and tag == "b" else "slow"
                return [self.verdict(variant, check, state, after)]
            case "confirm":
                return [facts.Confirmed(**decided)]
            case "preempt":
                return [facts.Preempted(**decided, reason="InClusterQueue", message="m")]
            case "revoke":
                return [facts.Revoked(**decided, reason="QuotaChanged")]
            case "refuse":
                reason = "AdmissionGated" if number > 3 else "WaitingForQuota"
                return [facts.Refused(**decided, refusal=Refusal(reason=reason, message="m"))]
            case "planned":
                return [facts.Planned(**decided, pending_preemption=PendingPreemption())]
            case "variant off":
                return [facts.Deactivated(**it)]
            case "variant on":
                return [facts.Activated(**it)]
            case "policy off":
                return [facts.Deactivated(**it, reason="lowerThanAdmitted")]
            case "policy on":
                return [facts.Activated(**it, reason="race")]
            case "delete variant":
                return [facts.Deleted(**it)]
            case "open":
                return [facts.Ungated(**it)]
        raise AssertionError(kind)

    def verdict(
        self, variant: StoredWorkload, check: str, state: str, after: int | None
    ) -> facts.CheckReported:
        return facts.CheckReported(
            namespace="ns",
            name=variant.metadata.name,
            controller=f"ctl-{check}",
            check=check,
            cycle=variant.status.admission_cycle,
            state=state,
            requeue_after_seconds=after,
        )

    def timers(self, stored: StoredWorkload | None, name: str) -> list[Fact]:
        house = self.house
        if stored is None:
            if not house.is_there(name):
                return []
            stored = house.get(name)
        called = stored.metadata.name
        times = due_times(stored, house.now, house.controller.queues)
        for kind, at in times.items():
            house.now = max(house.now, at)
            return [facts.TimerDue(namespace="ns", name=called, kind=str(kind))]
        return []

    @rule(steps=st.lists(step, min_size=1, max_size=4), seconds=st.sampled_from([0, 0, 1, 7, 50]))
    def facts_come(self, steps: list[tuple[str, str, str, int]], seconds: int) -> None:
        self.house.later(seconds)
        facts_drawn = [fact for step in steps for fact in self.facts_of(*step)]
        if facts_drawn:
            self.house.happens(*facts_drawn)

    @rule(
        steps=st.lists(step, min_size=1, max_size=4),
        through=st.lists(st.booleans(), min_size=8, max_size=8),
    )
    def it_crashes_between_two_writes(
        self, steps: list[tuple[str, str, str, int]], through: list[bool]
    ) -> None:
        facts_drawn = [fact for step in steps for fact in self.facts_of(*step)]
        if facts_drawn:
            self.house.crashes([self.house.logged_fact(fact) for fact in facts_drawn], through)

    @rule(again=st.integers(1, 6))
    def facts_are_read_again(self, again: int) -> None:
        self.house.read_again(again)

    @rule(
        policy=st.sampled_from(POLICIES),
        flavors=st.sampled_from([TAGS, TAGS, TAGS, ("c", "b", "a"), ("a", "b"), ("b", "c")]),
        stopped=st.sampled_from([None, None, None, "Hold", "HoldAndDrain"]),
    )
    def the_queue_changes(
        self, policy: dict[str, Any] | None, flavors: tuple[str, ...], stopped: str | None
    ) -> None:
        self.offer(flavors, policy, **({"stopPolicy": stopped} if stopped else {}))

    # What must be true. ---------------------------------------------------------------------

    @invariant()
    def no_variant_holds_quota_without_its_parent(self) -> None:
        house = self.house
        for workload in house.workloads():
            if head(workload).role == "variant" and holds_quota(workload):
                name, uid = owner_of(workload)
                assert house.is_there(name) and house.get(name).metadata.uid == uid

    def teardown(self) -> None:
        """Ends all faults: every family must then run and finish."""
        house = self.house
        self.offer(TAGS, UPGRADE)
        for name in "jk":
            if not house.is_there(name):
                house.submit(name)
            for _ in range(40):
                if self.goes_on(name):
                    break
            else:
                raise AssertionError(f"{name} is stuck: {house.get(name)}")
            house.happens(facts.Finished(namespace="ns", name=name))
            left = [
                workload
                for workload in house.workloads()
                if workload.metadata.name.startswith(name)
            ]
            assert left == []

    def goes_on(self, name: str) -> bool:
        """Moves each variant one step towards the best flavor; returns whether the family runs
        there."""
        house = self.house
        parent = house.get(name)
        if parent.metadata.deletion_timestamp is not None:
            house.stop(name)
            house.submit(name)
            return False
        if is_stopping(parent):
            house.stop(name)
            return False
        if not head(parent).active:
            house.happens(facts.Activated(namespace="ns", name=name))
        house.happens(facts.Released(namespace="ns", name=name))
        for variant in house.variants(name):
            if variant.status.stopped_by:
                house.happens(facts.Activated(namespace="ns", name=variant.metadata.name))
        parent = house.get(name)
        if head(parent).role != "parent":
            # It was admitted before its queue had families.
            if is_true(parent, Type.ADMITTED):
                return True
            house.happens(facts.Revoked(**house.decided(name), reason="QuotaChanged"))
            return False
        house.happens(*house.variant_facts(name))
        for workload in [house.get(name), *house.variants(name)]:
            for kind, at in due_times(workload, house.now, house.controller.queues).items():
                if str(kind) in ("requeue", "family"):
                    house.now = max(house.now, at)
                    due = facts.TimerDue(
                        namespace="ns", name=workload.metadata.name, kind=str(kind)
                    )
                    house.happens(due)
        house.happens(facts.Aggregated(namespace="ns", name=name))
        best = house.variants(name)[0]
        if is_true(best, Type.ADMITTED):
            assert is_true(house.get(name), Type.ADMITTED)
            return True
        tag = head(best).variant
        if not is_true(best, Type.QUOTA_RESERVED):
            house.assign(tag, name)
        best = house.get(best.metadata.name)
        for row in best.status.admission_checks:
            house.happens(self.verdict(best, row.name, "Ready", None))
        house.happens(facts.Confirmed(**house.decided(best.metadata.name)))
        return False


Families.TestCase.settings = settings(
    max_examples=examples(60),
    stateful_step_count=30,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
TestFamilies = Families.TestCase
