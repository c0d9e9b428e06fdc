"""How many workloads with admission checks are admitted a second, all submitted at once.

``python -m benchmarks.checks [--workloads 10000] [--checks 2] [--nats URL]``: 30 queues with
room for all, and controllers in the load's own process that answer Ready at once. A workload ends
a fifth of a second after its admission, and its end is part of the load.
"""

from __future__ import annotations

from admittance.bench.generator import BenchPlan, PlannedQueue, PlannedWorkload
from admittance.bench.run import outcome_of
from admittance.runtime.errors import SetupError
from benchmarks.harness.program import CHECKS_MAX, NATS, Option, run_program

QUEUES = 30
RUNTIME = 0.2


def bench_plan(workloads: int, checks: int) -> BenchPlan:
    """So many workloads at the very start, each with so many checks."""
    names = tuple(f"check-{n}" for n in range(checks))
    queues = tuple(
        PlannedQueue(
            f"checked-{n}", cohort=f"c-{n % 5}", nominal=1000 * workloads, borrowing=0, checks=names
        )
        for n in range(QUEUES)
    )
    return BenchPlan(
        queues,
        tuple(
            PlannedWorkload(0.0, RUNTIME, f"checked-{n}", n % QUEUES, "checked", 1000, 0)
            for n in range(workloads)
        ),
    )


async def measured(*, workloads: int, checks: int, nats: str | None) -> list[str]:
    """The figures, one line each. Raises SetupError if a workload does not finish."""
    report, outcome = await outcome_of(bench_plan(workloads, checks), nats)
    if report.trouble:
        raise SetupError(report.trouble)
    took = max(outcome.admitted_at) - min(outcome.created_at)
    return [
        f"{workloads} workloads with {checks} checks each: all admitted after "
        f"{took:.1f} s, {workloads / took:.0f} a second; "
        f"all ended after {report.wall_seconds:.1f} s",
        f"{report.cpu_ms_per_workload:.2f} ms CPU a workload ({report.cpu_of_processes}; "
        f"the load and its controllers {report.load_generator.cpu_seconds:.1f} s), "
        f"{report.peak_memory_bytes >> 20} MiB at the peak",
    ]


if __name__ == "__main__":
    run_program(
        measured,
        __doc__,
        Option("--workloads", 10_000, least=1),
        Option("--checks", 2, "of each workload", least=0, most=CHECKS_MAX),
        NATS,
    )
