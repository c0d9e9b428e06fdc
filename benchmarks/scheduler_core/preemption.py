"""Duration of a cycle with a preempting head, for every kind of preemption."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Final

from admittance.scheduling.state.config import CohortFairSharing, Config

from .bench import START, Bench, a_workload, an_admission, clock, condition, with_status

PRIORITIES: Final = 7


def preemption_milliseconds(
    candidates: int,
    victims: int,
    *,
    own: bool = False,
    fair: bool = False,
    lenders: int = 1,
    parents: int = 0,
) -> float:
    """Milliseconds for a cycle whose head preempts ``victims`` of the candidates. ``own``: they are
    in the queue of the head, else in ``lenders`` other queues that borrow. ``fair``: with fair
    sharing. ``parents``: cohorts of three queues each, ``parents`` of them below one cohort."""
    config = Config(preemption=True, fair_sharing=CohortFairSharing() if fair else None)
    per_cohort = 3 if parents else lenders + 1
    queues = 1 + lenders if not parents else 3 * parents * 2
    nominal = candidates // queues
    bench = Bench(
        queues,
        nominal=str(nominal if lenders > 1 or parents else candidates // 2),
        config=config,
        per_cohort=per_cohort,
        parents=parents,
    )
    if lenders > 1 or parents:
        # The head's queue owns what the head requests, and the other queues borrow it.
        _nominal(bench, 0, victims, per_cohort)
        for n in range(1, queues):
            _nominal(bench, n, (candidates - victims) // (queues - 1), per_cohort)
    for n in range(candidates):
        queue = 0 if own else 1 + n % (queues - 1)
        usage = {"cpu": "1", "memory": "1Gi"}
        since = START + timedelta(seconds=n % 97)
        reserved = condition("QuotaReserved", since)
        workload = a_workload(n, queue, "1", n % PRIORITIES)
        admitted = condition("Admitted", since)
        admission = an_admission(f"cq-{queue}", usage)
        bench.apply(with_status(workload, reserved, admitted, admission=admission))
    bench.core.cycle(now=START)  # Leaves no work that belongs to the preparation.
    bench.apply(a_workload(candidates, 0, str(victims), PRIORITIES + 2))
    before = clock()
    decided = bench.core.cycle(now=START + timedelta(seconds=100))
    after = clock()
    assert abs(len(decided) - victims) <= queues, (len(decided), victims)
    return (after - before) * 1e3


def _nominal(bench: Bench, n: int, nominal: int, per_cohort: int) -> None:
    resources = [
        {"name": "cpu", "nominalQuota": str(nominal)},
        {"name": "memory", "nominalQuota": "1000000Gi"},
    ]
    group = {
        "coveredResources": ["cpu", "memory"],
        "flavors": [{"name": "default", "resources": resources}],
    }
    spec = {
        "cohortName": f"cohort-{n // per_cohort}",
        "namespaceSelector": {},
        "preemption": {"withinClusterQueue": "LowerPriority", "reclaimWithinCohort": "Any"},
        "resourceGroups": [group],
    }
    bench.put("ClusterQueue", f"cq-{n}", spec)
    bench.own_all()


def futile_search_milliseconds(candidates: int, *, own: bool = True) -> float:
    """Milliseconds for a cycle in which the preemption of all candidates would not suffice."""
    bench = Bench(2, nominal=str(candidates), config=Config(preemption=True))
    queue = 0 if own else 1
    for n in range(candidates * 2):
        workload = a_workload(n, queue, "1", n % PRIORITIES if n < candidates else 100)
        usage = {"cpu": "1", "memory": "1Gi"}
        holding = condition("QuotaReserved", START), condition("Admitted", START)
        bench.apply(with_status(workload, *holding, admission=an_admission(f"cq-{queue}", usage)))
    bench.core.cycle(now=START)
    bench.apply(a_workload(candidates * 2, 0, str(candidates + 1), 50))
    before = clock()
    bench.core.cycle(now=START + timedelta(seconds=100))
    return (clock() - before) * 1e3


SHAPES: Final[Mapping[str, Mapping[str, int | bool]]] = {
    "ownQueue": {"own": True},
    "oneLender": {},
    "thirtyLenders": {"lenders": 30},
    "threeLevels": {"parents": 5},
    "sharesOneLender": {"fair": True},
    "sharesThirtyLenders": {"fair": True, "lenders": 30},
    "sharesThreeLevels": {"fair": True, "parents": 5},
}
"""By name: the arguments of `preemption_milliseconds`."""
