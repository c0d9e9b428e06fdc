"""Random edits and deletions of queues under running workloads raise no error; quota counts exactly
the stored workloads, and no workload is stuck once the queues are valid again.
"""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
from hypothesis import HealthCheck, given, settings

from admittance.api.fields.units import amount
from admittance.events import facts
from admittance.scheduling.state.config import CohortFairSharing, Config
from support.cores.configured_system import NS
from support.cores.stepped_cores import SteppedCores
from support.cores.stepped_scheduler import groups, quota
from support.examples import examples

QUEUES = ("a", "b", "c")
COHORTS = ("left", "right", "root")
FLAVORS = ("default", "other")
HUGE = str(2**63 - 1)

amounts = st.sampled_from(["0", "1", "3", "5", "8", HUGE])
limits = st.one_of(st.none(), st.sampled_from(["0", "2", HUGE]))
quotas = st.builds(
    lambda nominal, borrow, lend: quota(nominal, borrow=borrow, lend=lend), amounts, limits, limits
)
offers = st.dictionaries(st.sampled_from(FLAVORS), quotas, min_size=1)
names = st.sampled_from([f"w{n}" for n in range(6)])
edits = st.one_of(
    st.tuples(
        st.just("queue"),
        st.sampled_from(QUEUES),
        st.fixed_dictionaries(
            {
                "cohort": st.sampled_from(["", *COHORTS]),
                "offers": offers,
                "stop": st.sampled_from(["None", "None", "None", "Hold", "HoldAndDrain"]),
                "within": st.sampled_from(["Never", "LowerPriority", "LowerOrNewerEqualPriority"]),
                "reclaim": st.sampled_from(["Never", "LowerPriority", "Any"]),
                "cut": st.sampled_from(["", "evict"]),
                "checks": st.booleans(),
                "team": st.booleans(),
                "weight": st.sampled_from([0, 1, 2]),
                "strict": st.booleans(),
            }
        ),
    ),
    st.tuples(st.just("cohort"), st.sampled_from(COHORTS), st.sampled_from(["", *COHORTS]), offers),
    st.tuples(
        st.just("local"), st.sampled_from(QUEUES), st.sampled_from(["None", "Hold", "HoldAndDrain"])
    ),
    st.tuples(
        st.just("delete"),
        st.sampled_from(
            [("ClusterQueue", queue, "") for queue in QUEUES]
            + [("LocalQueue", queue, NS) for queue in QUEUES]
            + [("Cohort", cohort, "") for cohort in COHORTS]
            + [("ResourceFlavor", flavor, "") for flavor in FLAVORS]
            + [("AdmissionCheck", "c", "")]
        ),
    ),
    st.tuples(st.just("namespace"), st.booleans()),
    st.tuples(st.just("flavor"), st.sampled_from(FLAVORS), st.booleans()),
)
steps = st.one_of(
    edits,
    edits,
    st.tuples(st.just("submit"), names, st.sampled_from(QUEUES), st.sampled_from(["1", "2", "4"])),
    st.tuples(st.just("submit"), names, st.sampled_from(QUEUES), st.sampled_from(["3", HUGE])),
    st.tuples(st.just("priority"), names, st.integers(-2, 2)),
    st.tuples(st.just("slow to stop"), names),
    st.tuples(st.just("stop"), names),
    st.tuples(st.just("finish"), names),
    st.tuples(st.just("remove"), names),
    st.tuples(st.just("ready"), names),
    st.tuples(st.just("cycle"), st.integers(1, 4)),
    st.tuples(st.just("lose"), st.just(0)),
    st.tuples(st.just("restart"), st.just(0)),
)  # fmt: skip


def edit(cores: SteppedCores, what: str, rest: tuple[Any, ...]) -> None:
    match what:
        case "queue":
            name, spec = rest
            offered = {
                flavor: quota(of["nominalQuota"]) if not spec["cohort"] else of
                for flavor, of in spec["offers"].items()
            }
            cores.queue(
                name,
                spec["cohort"],
                resourceGroups=groups(**offered),
                stopPolicy=spec["stop"],
                preemption={
                    "withinClusterQueue": spec["within"],
                    "reclaimWithinCohort": spec["reclaim"],
                },
                onQuotaCut=spec["cut"],
                admissionChecks=["c"] if spec["checks"] else [],
                namespaceSelector={"matchLabels": {"team": "x"}} if spec["team"] else {},
                fairSharing={"weight": spec["weight"]},
                queueingStrategy="StrictFIFO" if spec["strict"] else "BestEffortFIFO",
            )
        case "cohort":
            name, parent, offered = rest
            cores.put("Cohort", name, {"parentName": parent, "resourceGroups": groups(**offered)})
        case "local":
            name, policy = rest
            cores.put("LocalQueue", name, {"clusterQueue": name, "stopPolicy": policy}, NS)
        case "delete":
            if cores.object_at(*rest[0]) is not None:
                kind, name, namespace = rest[0]
                cores.delete(kind, name, namespace)
        case "namespace":
            labels = {"team": "x"} if rest[0] else {}
            cores.put("Namespace", NS, metadata={"labels": labels})
        case "flavor":
            taint = {"key": "k", "value": "v", "effect": "NoSchedule"}
            cores.put("ResourceFlavor", rest[0], {"nodeTaints": [taint] if rest[1] else []})


def act(cores: SteppedCores, what: str, rest: tuple[Any, ...]) -> None:
    name = str(rest[0])
    known = cores.has(name)
    match what:
        case "submit" if not known:
            cores.submit(name, rest[1], rest[2])
        case "priority" if known:
            cores.publish(facts.Reprioritized, name, priority=rest[1])
        case "slow to stop":
            cores.slow_jobs.add(name)
        case "stop":
            cores.slow_jobs.discard(name)
            if known and cores.phase(name) == "Evicting":
                cores.stop(name)
        case "finish" if known:
            cores.finish(name)
        case "remove" if known:
            cores.publish(facts.Deleted, name)
        case "ready" if known and cores.phase(name) == "QuotaReserved":
            cores.verdict(name, "c", "Ready")
        case "cycle":
            for _ in range(rest[0]):
                cores.cycle()
        case "lose":
            for decision in cores.cycle(apply=False):
                cores.scheduler.forget(decision.namespace, decision.name, decision.revision)
        case "restart":
            cores.restart_scheduler()
        case _:
            edit(cores, what, rest)


def counted(cores: SteppedCores) -> dict[tuple[str, str], int]:
    """Queue and flavor to what the written admissions of unfinished workloads take."""
    total: dict[tuple[str, str], int] = {}
    for name in (f"w{n}" for n in range(6)):
        if not cores.has(name) or cores.phase(name) == "Finished":
            continue
        admission = cores.stored(name).status.admission
        for place in admission.pod_set_assignments if admission else ():
            for resource, flavor in place.flavors.items():
                key = admission.cluster_queue if admission else "", flavor
                total[key] = total.get(key, 0) + amount(resource, place.resource_usage[resource])
    return total


def check(cores: SteppedCores) -> None:
    """Without decisions in flight, every queue counts the stored quota, and every cohort the
    overflow of its children."""
    if any(domain.in_flight for domain in cores.scheduler._state.domains.values()):
        return
    tree = cores.scheduler.catalog.tree
    written = counted(cores)
    for name, node in tree.queues.items():
        for (flavor, _), cell in node.cells.items():
            assert cell.usage == written.get((name, flavor), 0), (name, flavor)
    for node in tree.cohorts.values():
        for fr, cell in node.cells.items():
            below = [*node.members.values(), *node.cohorts.values()]
            spilt = sum(usage.cells[fr].spill() for usage in below if fr in usage.cells)
            assert cell.usage == spilt, (node.name, fr)


@settings(max_examples=examples(200), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(steps, min_size=5, max_size=40), st.booleans())
def test_random_edits_raise_no_error_and_leave_no_workload_stuck(
    played: list[tuple[Any, ...]], fair: bool
) -> None:
    cores = SteppedCores(Config(fair_sharing=CohortFairSharing() if fair else None))
    cores.put("ResourceFlavor", "other")
    cores.check("c")
    for name in QUEUES:
        cores.queue(name, "root", resourceGroups=groups(default="4"))
    for what, *rest in played:
        act(cores, what, tuple(rest))
        check(cores)
    for n in range(6):
        act(cores, "stop", (f"w{n}",))
        if cores.has(f"w{n}") and HUGE in bytes(cores.stored(f"w{n}").spec).decode():
            act(cores, "remove", (f"w{n}",))  # of what is unlimited, all is taken then
    cores.put("Namespace", NS)
    for flavor in FLAVORS:
        cores.put("ResourceFlavor", flavor)
    for name in COHORTS:
        cores.put("Cohort", name, {})
    for name in QUEUES:
        cores.put("LocalQueue", name, {"clusterQueue": name}, NS)
        cores.queue(name, resourceGroups=groups(default=str(2**62)))
    cores.settle(300)
    check(cores)
    waiting = {
        name: cores.reason(name, "QuotaReserved")
        for name in (f"w{n}" for n in range(6))
        if cores.has(name) and cores.phase(name) not in ("Admitted", "Finished")
    }
    assert not waiting
