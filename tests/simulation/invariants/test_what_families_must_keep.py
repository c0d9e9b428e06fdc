"""Every invariant of families fires where a world breaks it, and is silent where none does."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from random import Random
from typing import Any

import msgspec
import pytest

from admittance.api.workload import FAMILY_GATE
from admittance.workload.limits import Limits
from simulation.invariants.observer import Invariants
from simulation.invariants.quota import Accounts
from simulation.kernel import Kernel
from simulation.loop import START, VirtualLoop
from simulation.nats.observed import Stored
from simulation.plots.configuration import manifest
from simulation.transcript import Broken

NOW = START.isoformat()
Spec = dict[str, Any]


def condition(kind: str, status: bool, reason: str = "so") -> Spec:
    return {
        "type": kind,
        "status": "True" if status else "False",
        "reason": reason,
        "lastTransitionTime": NOW,
    }


PENDING = [condition("QuotaReserved", False, "PendingEvaluation")]
RESERVED = [condition("QuotaReserved", True)]
ADMITTED = [*RESERVED, condition("Admitted", True)]
STOPPING = [*ADMITTED, condition("Evicted", True, "FlavorMigration")]
GONE = [
    condition("QuotaReserved", False),
    condition("Admitted", False),
    condition("Evicted", True, "FlavorMigration"),
]
BLOCKED = [
    condition("QuotaReserved", False, "AdmissionGated"),
    condition("BlockedOnPreemptionGates", True),
]
OPEN = {"preemptionGates": [{"name": FAMILY_GATE, "position": "Open"}]}


def admission(flavor: str, cpu: int = 2) -> Spec:
    row = {"name": "main", "flavors": {"cpu": flavor}, "resourceUsage": {"cpu": str(cpu)}}
    return {"clusterQueue": "q", "podSetAssignments": [row | {"count": 1}]}


class World:
    """Writes to the bucket, looked at as in a run."""

    def __init__(self, quota: int = 4) -> None:
        self.kernel = Kernel(Random(0), VirtualLoop())  # type: ignore[abstract]
        self.looks = Invariants(self.kernel, timedelta(), Limits(drain=timedelta(seconds=9)))
        self.number = 0
        flavors = [
            {"name": name, "resources": [{"name": "cpu", "nominalQuota": quota}]}
            for name in ("f0", "f1")
        ]
        group = {"coveredResources": ["cpu"], "flavors": flavors}
        policy = {"migrationConstraints": {"mode": "UpgradeOnly"}}
        spec = {"resourceGroups": [group], "concurrentAdmission": policy}
        self.put("clusterqueue.q", manifest("ClusterQueue", "q", spec))
        local = manifest("LocalQueue", "l", {"clusterQueue": "q"}, namespace="ns")
        self.put("localqueue.ns.l", local)

    def put(self, key: str, about: Spec | None) -> int:
        self.number += 1
        data = b"" if about is None else msgspec.json.encode(about)
        headers = {"KV-Operation": "DEL", "Admit-Fact": str(self.number)} if about is None else {}
        self.looks.stored(Stored(self.number, key, data, headers, self.kernel.now))
        return self.number

    def workload(
        self, name: str, spec: Spec, meta: Spec, conditions: list[Spec], **more: Any
    ) -> int:
        status = {"conditions": conditions, "log": {"fact": self.number + 1}, **more}
        about = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload", "status": status}
        about |= {"metadata": {"namespace": "ns", "name": name, "uid": name, **meta}}
        return self.put(f"workload.ns.{name}", about | {"spec": {"queueName": "l"} | spec})

    def parent(self, conditions: list[Spec], **more: Any) -> int:
        return self.workload("p", {"role": "parent"}, {}, conditions, **more)

    def variant(self, place: int, conditions: list[Spec], **more: Any) -> int:
        owner = {"kind": "Workload", "name": "p", "uid": "p", "apiVersion": "v"}
        spec = {"role": "variant", "variant": f"f{place}", "siblingIndex": place}
        meta = {"ownerReferences": [owner]}
        return self.workload(f"p{place}", spec, meta, conditions, **more)

    def regular(self, name: str, conditions: list[Spec], **more: Any) -> int:
        return self.workload(name, {}, {}, conditions, **more)

    def whole(self) -> None:
        self.looks.whole()

    def running(self) -> int:
        """A family whose variant on f1 is admitted. The revision of the admission."""
        self.parent(PENDING)
        self.variant(0, PENDING)
        self.variant(1, PENDING)
        self.whole()
        return self.admit(1)

    def admit(self, place: int) -> int:
        where = admission(f"f{place}")
        self.variant(place, ADMITTED, admission=where)
        revision = self.parent(ADMITTED, admission=where, admittedVariant=f"p{place}")
        self.whole()
        return revision

    def stop(self, **more: Any) -> None:
        where = admission("f1")
        self.variant(1, STOPPING, admission=where)
        self.parent(STOPPING, admission=where, admittedVariant="p1", **more)
        self.whole()


def test_a_family_that_moves_up_breaks_nothing() -> None:
    world = World(quota=2)
    revision = world.running()
    world.looks.started(f"ns.p.{revision}", "r")
    world.variant(0, RESERVED, admission=admission("f0"))
    world.whole()
    world.stop(migratingTo="p0")
    world.looks.ended(f"ns.p.{revision}", "stopped")
    world.variant(1, GONE)
    revision = world.admit(0)
    world.looks.started(f"ns.p.{revision}", "r")
    world.looks.families.at_rest(heals=True)
    assert world.looks.usage == {"q": {("f0", "cpu"): 2000, ("f1", "cpu"): 0}}


def two_admitted(world: World) -> None:
    world.running()
    world.variant(0, ADMITTED, admission=admission("f0"))
    world.whole()


def a_parent_alone(world: World) -> None:
    world.parent(PENDING)
    world.whole()
    world.parent(ADMITTED, admission=admission("f1"), admittedVariant="p1")
    world.whole()


def a_variant_alone(world: World) -> None:
    world.parent(PENDING)
    world.variant(1, PENDING)
    world.whole()
    world.variant(1, ADMITTED, admission=admission("f1"))
    world.whole()


def another_name(world: World) -> None:
    world.running()
    world.parent(ADMITTED, admission=admission("f1"), admittedVariant="p0")
    world.whole()


def another_admission(world: World) -> None:
    world.parent(PENDING)
    world.variant(1, PENDING)
    world.whole()
    world.variant(1, ADMITTED, admission=admission("f1"))
    world.parent(ADMITTED, admission=admission("f0"), admittedVariant="p1")
    world.whole()


def only_the_variant_stops(world: World) -> None:
    world.running()
    world.variant(1, STOPPING, admission=admission("f1"))
    world.whole()


def given_up_too_early(world: World) -> None:
    world.running()
    world.stop()
    world.variant(1, GONE)
    world.whole()


def given_up_while_the_job_runs(world: World) -> None:
    world.looks.started(f"ns.p.{world.running()}", "r")
    world.stop()
    world.variant(1, GONE)
    world.parent(GONE)
    world.whole()


def given_up_by_a_regular_one(world: World) -> None:
    world.regular("w", PENDING)
    revision = world.regular("w", ADMITTED, admission=admission("f0"))
    world.looks.started(f"ns.w.{revision}", "r")
    world.regular("w", STOPPING, admission=admission("f0"))
    world.regular("w", GONE)


def rows(world: World) -> None:
    world.parent(PENDING, admissionChecks=[{"name": "k", "state": "Pending"}])


def a_promise_to_nobody(world: World) -> None:
    world.running()
    world.variant(0, PENDING, promised=admission("f0"))
    world.whole()


def a_migration_without_a_stop(world: World) -> None:
    world.running()
    where = admission("f1")
    world.parent(ADMITTED, admission=where, admittedVariant="p1", migratingTo="p0")
    world.whole()


def quota_of_orphans(world: World) -> None:
    world.parent(PENDING)
    world.variant(0, PENDING)
    world.variant(0, RESERVED, admission=admission("f0"))
    world.whole()
    world.put("workload.ns.p", None)
    world.whole()


def going_on(world: World) -> None:
    world.parent(PENDING)
    world.variant(0, PENDING)
    world.whole()
    world.parent([condition("Finished", True)])
    world.whole()


def a_variant_started(world: World) -> None:
    world.running()
    world.looks.started("ns.p1.9", "r")


def a_job_started_twice(world: World) -> None:
    revision = world.running()
    world.looks.started(f"ns.p.{revision}", "r-a")
    world.looks.started(f"ns.p.{revision + 3}", "r-b")


def a_runner_hears_of_a_variant(world: World) -> None:
    revision = world.running()
    said = msgspec.json.encode({"uid": "p1", "revision": revision})
    world.looks.logged(Stored(1, "admit.workload.admitted.ns.p1", said, {}, 0.0))


def more_than_there_is(world: World) -> None:
    world.running()
    world.regular("w", PENDING)
    world.regular("w", RESERVED, admission=admission("f1", 3))


def an_orphan_at_rest(world: World) -> None:
    world.variant(0, PENDING)
    world.looks.families.at_rest(heals=True)


def a_promise_at_rest(world: World) -> None:
    world.parent(PENDING)
    world.variant(0, PENDING, promised=admission("f0"))
    world.looks.families.at_rest(heals=True)


def preempt(world: World, name: str, by: str) -> None:
    """The variant ``by`` takes what the workload has."""
    grounds = {"clusterQueue": "q", "byClusterQueue": "q", "priority": 0, "byPriority": 1}
    about = {"by": f"ns/{by}", "byUid": by, "grounds": grounds}
    gone = [condition("QuotaReserved", False), condition("Evicted", True, "Preempted")]
    times = [{"by": f"ns/{by}", "byUid": by, "count": 1, "seen": world.number}]
    world.regular(name, gone, preemptedBy=about, preemptions=times)


def contested(world: World) -> None:
    """Two variants that need victims, and two that may be."""
    queue = world.looks.queues["q"]
    policy = msgspec.structs.replace(queue.spec.preemption, within_cluster_queue="LowerPriority")
    spec = msgspec.structs.replace(queue.spec, preemption=policy)
    world.looks.queues["q"] = msgspec.structs.replace(queue, spec=spec)
    world.parent(PENDING)
    for place in (0, 1):
        world.regular(f"w{place}", PENDING)
        world.regular(f"w{place}", RESERVED, admission=admission(f"f{place}", 4))
        world.variant(place, BLOCKED)
    world.whole()


def a_closed_gate(world: World) -> None:
    contested(world)
    preempt(world, "w0", "p0")


def victims_for_two(world: World) -> None:
    contested(world)
    world.variant(0, PENDING, **OPEN)
    preempt(world, "w0", "p0")
    world.variant(0, RESERVED, admission=admission("f0"), **OPEN)
    world.variant(1, BLOCKED, **OPEN)
    preempt(world, "w1", "p1")


def after_five_minutes(world: World) -> None:
    contested(world)
    world.variant(0, PENDING, **OPEN)
    preempt(world, "w0", "p0")
    world.variant(0, RESERVED, admission=admission("f0"), **OPEN)
    world.kernel.loop.now += 301.0
    world.variant(1, BLOCKED, **OPEN)
    preempt(world, "w1", "p1")


def a_plan_behind_a_closed_gate(world: World) -> None:
    contested(world)
    plan = {"victims": [{"namespace": "ns", "name": "w0", "uid": "w0", "since": NOW}]}
    world.variant(0, RESERVED, admission=admission("f0"), pendingPreemption=plan)


def the_worse_before_the_better(world: World) -> None:
    contested(world)
    world.regular("w1", PENDING)
    world.variant(1, RESERVED, admission=admission("f1"))
    world.looks.exclusive.acknowledged(world.number)
    world.variant(0, BLOCKED, **OPEN)
    preempt(world, "w0", "p0")


def the_worse_while_victims_stop(world: World) -> None:
    contested(world)
    world.variant(0, PENDING, **OPEN)
    grounds = {"clusterQueue": "q", "byClusterQueue": "q", "priority": 0, "byPriority": 1}
    about = {"by": "ns/p0", "byUid": "p0", "grounds": grounds}
    world.regular("w0", ADMITTED, admission=admission("f0", 4))
    world.regular("w0", STOPPING, admission=admission("f0", 4), preemptedBy=about)
    world.regular("w1", PENDING)
    world.variant(1, RESERVED, admission=admission("f1"))


def a_sibling_as_victim(world: World) -> None:
    world.parent(PENDING)
    world.variant(0, PENDING, **OPEN)
    world.variant(1, PENDING)
    world.variant(1, RESERVED, admission=admission("f1"))
    grounds = {"clusterQueue": "q", "byClusterQueue": "q", "priority": 0, "byPriority": 1}
    about = {"by": "ns/p0", "byUid": "p0", "grounds": grounds}
    gone = [condition("QuotaReserved", False), condition("Evicted", True, "Preempted")]
    world.variant(1, gone, preemptedBy=about)


@pytest.mark.parametrize(
    ("world", "breach"),
    [
        pytest.param(two_admitted, "two of one family are admitted", id="two are admitted"),
        pytest.param(a_parent_alone, "it runs: True", id="a parent runs as nobody"),
        pytest.param(a_variant_alone, "it runs: False", id="a variant runs without its parent"),
        pytest.param(another_name, "it runs as 'p0'", id="a parent names another variant"),
        pytest.param(another_admission, "its admission", id="a parent has another admission"),
        pytest.param(only_the_variant_stops, "it runs: True", id="only the variant stops"),
        pytest.param(given_up_too_early, "has not stopped", id="only the variant gives up"),
        pytest.param(
            given_up_while_the_job_runs, "runs on r", id="quota is given up while the job runs"
        ),
        pytest.param(
            given_up_by_a_regular_one, "runs on r", id="quota is given up while a regular job runs"
        ),
        pytest.param(rows, "has rows of checks", id="a parent has rows of checks"),
        pytest.param(a_promise_to_nobody, "is promised quota", id="a promise without a migration"),
        pytest.param(
            a_migration_without_a_stop, "is not being stopped", id="a migration without a stop"
        ),
        pytest.param(quota_of_orphans, "hold quota", id="orphans hold quota"),
        pytest.param(going_on, "go on", id="variants go on when the parent has finished"),
        pytest.param(a_variant_started, "is started by", id="a variant is started"),
        pytest.param(a_job_started_twice, "starts while", id="a job is started twice"),
        pytest.param(
            a_runner_hears_of_a_variant, "runners are told", id="runners are told of a variant"
        ),
        pytest.param(more_than_there_is, "over quota by 1000", id="a family takes its quota"),
        pytest.param(an_orphan_at_rest, "is an orphan", id="an orphan is left over"),
        pytest.param(a_promise_at_rest, "promised quota for ever", id="a promise is left over"),
        pytest.param(a_closed_gate, "gate is closed", id="somebody goes behind a closed gate"),
        pytest.param(victims_for_two, "others have gone for", id="victims for two siblings"),
        pytest.param(
            after_five_minutes, "others have gone for", id="victims for a second one, but later"
        ),
        pytest.param(
            a_plan_behind_a_closed_gate, "gate is closed", id="a plan behind a closed gate"
        ),
        pytest.param(
            the_worse_before_the_better,
            "had no chance",
            id="the worse one before the better one",
        ),
        pytest.param(
            the_worse_while_victims_stop,
            "victims have not stopped",
            id="the worse one while the better one's victims stop",
        ),
        pytest.param(a_sibling_as_victim, "by its sibling", id="a sibling is a victim"),
    ],
)
def test_fires(world: Callable[[World], None], breach: str) -> None:
    with pytest.raises(Broken, match=breach):
        world(World())


def test_what_a_family_shares_is_charged_once() -> None:
    accounts = Accounts()
    shared, own = ("m", "memory"), ("f1", "cpu")
    accounts.put("a", "q", "p", {shared: 3, own: 2})
    assert accounts.put("b", "q", "p", {shared: 2}) == {}
    assert accounts.put("c", "q", "p", {shared: 5}) == {shared: 5}
    assert accounts.usage == {"q": {shared: 5, own: 2}}
    assert accounts.without(["c"]) == {"q": {shared: 3, own: 2}}
    assert accounts.without(["a", "c"]) == {"q": {shared: 2, own: 0}}
    accounts.put("d", "q", "d", {shared: 1})
    accounts.put("a", "q", "p", {})
    assert accounts.usage == {"q": {shared: 6, own: 0}}


def test_a_job_that_does_not_stop_in_time_holds_nothing_up() -> None:
    world = World()
    run = f"ns.p.{world.running()}"
    world.looks.started(run, "r")
    world.stop()
    world.kernel.loop.now += 9.0
    world.variant(1, GONE)
    world.parent(GONE)
    world.whole()
    assert world.looks.abandoned == {run}


def test_what_was_decided_for_the_better_one_before_may_be_written_after_it() -> None:
    world = World()
    contested(world)
    world.regular("w0", PENDING)
    world.regular("w1", PENDING)
    world.number += 9
    world.variant(1, RESERVED, admission=admission("f1"))
    before = {"log": {"fact": world.number - 1}}
    world.variant(0, RESERVED, admission=admission("f0"), **before, **OPEN)
    world.looks.exclusive.acknowledged(world.number)
    world.regular("w2", PENDING)
    world.regular("w2", RESERVED, admission=admission("f0", 1))
    preempt(world, "w2", "p0")
