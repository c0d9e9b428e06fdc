"""Random edits and deletions of queues under running workloads raise no error; quota counts exactly
the stored workloads, and no workload is stuck once the queues are valid again.
"""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
from hypothesis import HealthCheck, given, settings

from admittance.api.units import amount
from admittance.events import facts
from admittance.scheduling.state.config import Config, FairSharing
from support.cores.scheduling_story import groups, quota
from support.examples import examples

from living import NS, Life

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
            [("ClusterQueue", one, "") for one in QUEUES]
            + [("LocalQueue", one, NS) for one in QUEUES]
            + [("Cohort", one, "") for one in COHORTS]
            + [("ResourceFlavor", one, "") for one in FLAVORS]
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
    st.tuples(st.just("stubborn"), names),
    st.tuples(st.just("stop"), names),
    st.tuples(st.just("finish"), names),
    st.tuples(st.just("remove"), names),
    st.tuples(st.just("ready"), names),
    st.tuples(st.just("cycle"), st.integers(1, 4)),
    st.tuples(st.just("lose"), st.just(0)),
    st.tuples(st.just("restart"), st.just(0)),
)  # fmt: skip


def edit(life: Life, what: str, rest: tuple[Any, ...]) -> None:
    match what:
        case "queue":
            name, spec = rest
            offered = {
                flavor: quota(of["nominalQuota"]) if not spec["cohort"] else of
                for flavor, of in spec["offers"].items()
            }
            life.queue(
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
            life.put("Cohort", name, {"parentName": parent, "resourceGroups": groups(**offered)})
        case "local":
            name, policy = rest
            life.put("LocalQueue", name, {"clusterQueue": name, "stopPolicy": policy}, NS)
        case "delete":
            if life.is_there(*rest[0]):
                kind, name, namespace = rest[0]
                life.delete(kind, name, namespace)
        case "namespace":
            labels = {"team": "x"} if rest[0] else {}
            life.put("Namespace", NS, metadata={"labels": labels})
        case "flavor":
            taint = {"key": "k", "value": "v", "effect": "NoSchedule"}
            life.put("ResourceFlavor", rest[0], {"nodeTaints": [taint] if rest[1] else []})


def act(life: Life, what: str, rest: tuple[Any, ...]) -> None:
    name = str(rest[0])
    known = life.has(name)
    match what:
        case "submit" if not known:
            life.submit(name, rest[1], rest[2])
        case "priority" if known:
            life.say(facts.Reprioritized, name, priority=rest[1])
        case "stubborn":
            life.stubborn.add(name)
        case "stop":
            life.stubborn.discard(name)
            if known and life.phase(name) == "Evicting":
                life.stop(name)
        case "finish" if known:
            life.finish(name)
        case "remove" if known:
            life.say(facts.Deleted, name)
        case "ready" if known and life.phase(name) == "QuotaReserved":
            life.verdict(name, "c", "Ready")
        case "cycle":
            for _ in range(rest[0]):
                life.cycle()
        case "lose":
            for decision in life.cycle(apply=False):
                life.core.forget(decision.namespace, decision.name, decision.revision)
        case "restart":
            life.restart()
        case _:
            edit(life, what, rest)


def counted(life: Life) -> dict[tuple[str, str], int]:
    """Queue and flavor to what the written admissions of unfinished workloads take."""
    total: dict[tuple[str, str], int] = {}
    for name in (f"w{n}" for n in range(6)):
        if not life.has(name) or life.phase(name) == "Finished":
            continue
        admission = life.stored(name).status.admission
        for place in admission.pod_set_assignments if admission else ():
            for resource, flavor in place.flavors.items():
                key = admission.cluster_queue if admission else "", flavor
                total[key] = total.get(key, 0) + amount(resource, place.resource_usage[resource])
    return total


def check(life: Life) -> None:
    """Where nothing is on its way, every queue counts what is written and every cohort what
    overflows out of its children."""
    if any(domain.in_flight for domain in life.core._state.domains.values()):
        return
    tree = life.core.catalog.tree
    written = counted(life)
    for name, node in tree.queues.items():
        for (flavor, _), cell in node.cells.items():
            assert cell.usage == written.get((name, flavor), 0), (name, flavor)
    for node in tree.cohorts.values():
        for fr, cell in node.cells.items():
            below = [*node.members.values(), *node.cohorts.values()]
            spilt = sum(one.cells[fr].spill() for one in below if fr in one.cells)
            assert cell.usage == spilt, (node.name, fr)


@settings(max_examples=examples(200), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(steps, min_size=5, max_size=40), st.booleans())
def test_random_edits_raise_no_error_and_leave_no_workload_stuck(
    played: list[tuple[Any, ...]], fair: bool
) -> None:
    life = Life(Config(fair_sharing=FairSharing() if fair else None))
    life.put("ResourceFlavor", "other")
    life.check("c")
    for name in QUEUES:
        life.queue(name, "root", resourceGroups=groups(default="4"))
    for what, *rest in played:
        act(life, what, tuple(rest))
        check(life)
    for n in range(6):
        act(life, "stop", (f"w{n}",))
        if life.has(f"w{n}") and HUGE in bytes(life.stored(f"w{n}").spec).decode():
            act(life, "remove", (f"w{n}",))  # of what is unlimited, all is taken then
    life.put("Namespace", NS)
    for flavor in FLAVORS:
        life.put("ResourceFlavor", flavor)
    for name in COHORTS:
        life.put("Cohort", name, {})
    for name in QUEUES:
        life.put("LocalQueue", name, {"clusterQueue": name}, NS)
        life.queue(name, resourceGroups=groups(default=str(2**62)))
    life.settle(300)
    check(life)
    waiting = {
        name: life.reason(name, "QuotaReserved")
        for name in (f"w{n}" for n in range(6))
        if life.has(name) and life.phase(name) not in ("Admitted", "Finished")
    }
    assert not waiting
