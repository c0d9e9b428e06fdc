"""Latency of explain and pending requests with very many pending workloads."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from datetime import timedelta

from admittance.events.requests.queues import PendingQuery
from admittance.scheduling.state.config import CohortFairSharing, Config

from .bench import MIX, START, Bench, a_workload, an_admission, condition, with_status

AGAIN = 30
PRIORITIES = 7


def _milliseconds(ask: Callable[[int], object], times: int = AGAIN) -> float:
    """The 90th percentile of the CPU time of this thread for one answer, of ``times`` answers."""
    spent = []
    for n in range(times):
        before = time.thread_time()
        ask(n)
        spent.append(time.thread_time() - before)
    return statistics.quantiles(spent, n=10)[-1] * 1e3


def explain_preemptor_milliseconds(
    running: int, pending: int, *, fair: bool = False, lenders: int = 1, victims: int = 20
) -> float:
    """Milliseconds to explain a workload that needs preemption, with ``running`` workloads in its
    cohort and ``pending`` workloads in its queue."""
    sharing = CohortFairSharing() if fair else None
    queues = lenders + 1
    bench = Bench(
        queues,
        nominal=str(running // queues),
        config=Config(preemption=True, fair_sharing=sharing),
        per_cohort=queues,
    )
    for n in range(running):
        queue = 1 + n % lenders
        usage = {"cpu": "1", "memory": "1Gi"}
        since = START + timedelta(seconds=n % 97)
        holding = condition("QuotaReserved", since), condition("Admitted", since)
        workload = a_workload(n, queue, "1", n % PRIORITIES)
        bench.apply(with_status(workload, *holding, admission=an_admission(f"cq-{queue}", usage)))
    for n in range(running, running + pending):
        bench.apply(a_workload(n, 0, str(victims + n % 10), n % PRIORITIES))

    def ask(n: int) -> None:
        name = f"w-{running + n * pending // AGAIN}"
        assert bench.core.explain("ns", name, now=START).position

    return _milliseconds(ask)


def explain_classes_milliseconds(pending: int) -> float:
    """Milliseconds to explain a workload in a queue where no two workloads are alike."""
    bench = Bench(1, nominal="0")
    for n in range(pending):
        bench.apply(a_workload(n, 0, f"{1000 + n}m", MIX[n % len(MIX)][2]))
    bench.core.cycle(now=START)
    return _milliseconds(
        lambda n: bench.core.explain("ns", f"w-{n * pending // AGAIN}", now=START), 10
    )


def pending_milliseconds(pending: int, *, local: bool) -> float:
    """Milliseconds to list the first thousand pending workloads, of all or of one LocalQueue."""
    bench = Bench(30, nominal="0")
    bench.apply_all(bench.workloads(pending))
    bench.core.cycle(now=START)
    query = PendingQuery(local_queue="lq-3" if local else "")

    def ask(_: int) -> None:
        assert len(bench.core.pending(query, "ns" if local else "").rows) == 1_000

    return _milliseconds(ask)
