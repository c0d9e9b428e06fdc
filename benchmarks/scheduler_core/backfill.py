"""The cost of a promise of a start: cycles of a cohort tree in which a head waits and smaller
workloads start beside it."""

from __future__ import annotations

import gc
import statistics
from datetime import timedelta

import msgspec

from admittance.events.facts import Assigned
from admittance.workload.stored import StoredWorkload

from .bench import START, Core, a_workload, an_admission, clock, condition, with_status

QUEUES = 6
ROUNDS = 30
FIRST_ROUND = 5


def backfilled_microseconds(holders: int, *, backfill: bool) -> float:
    """Microseconds for a cycle that starts one workload beside a head that waits for some of the
    ``holders`` to end. ``backfill``: the queues promise the head a start."""
    core = Core()
    core.put("ResourceFlavor", "default", {})
    quota = {"name": "cpu", "nominalQuota": str(holders // QUEUES + 100)}
    flavor = {"name": "default", "resources": [quota]}
    for number in range(QUEUES):
        spec = {
            "cohortName": "co",
            "namespaceSelector": {},
            "resourceGroups": [{"coveredResources": ["cpu"], "flavors": [flavor]}],
            **({"backfill": "Easy"} if backfill else {}),
        }
        core.put("ClusterQueue", f"cq-{number}", spec)
        core.put("LocalQueue", f"lq-{number}", {"clusterQueue": f"cq-{number}"}, "ns")
    core.own_all()
    holding = condition("QuotaReserved", START), condition("Admitted", START)
    for number in range(holders):
        queue = number % QUEUES
        made = _limited(number, queue, "1", 3_600 + number)
        core.apply(with_status(made, *holding, admission=an_admission(f"cq-{queue}", {"cpu": "1"})))
    core.apply(_limited(holders, 0, str(holders // 2 + 600), 60))
    core.core.cycle(now=START)
    gc.collect()
    gc.freeze()
    times: list[float] = []
    now = START
    for number in range(ROUNDS):
        now += timedelta(milliseconds=1)
        core.apply(_limited(holders + 1 + number, 0, "1", 60), now)
        before = clock()
        decided = core.core.cycle(now=now)
        times.append(clock() - before)
        (made_decision,) = decided
        assert isinstance(made_decision, Assigned)
        assert (made_decision.scan is not None) is backfill
    gc.unfreeze()
    return statistics.median(times[FIRST_ROUND:]) * 1e6


def _limited(number: int, queue: int, cpu: str, seconds: int) -> StoredWorkload:
    made = a_workload(number, queue, cpu, 0, memory="")
    spec = msgspec.json.decode(made.spec) | {"maximumExecutionTimeSeconds": seconds}
    return msgspec.structs.replace(made, spec=msgspec.Raw(msgspec.json.encode(spec)))
