"""How many workloads with admission checks are admitted a second, all submitted at once.

``python -m benchmarks.checks [--workloads 10000] [--checks 2] [--nats URL]``: 30 queues with
room for all, and controllers in the load's own process that answer Ready at once. A workload ends
a fifth of a second after its admission, and its end is part of the load.
"""

from __future__ import annotations

import argparse
import asyncio

from admittance.bench.generator import BenchPlan, PlannedQueue, PlannedWorkload
from admittance.bench.run import loop_factory, main_of, outcome_of
from admittance.runtime.errors import SetupError

QUEUES = 30
RUNTIME = 0.2


def bench_plan(workloads: int, checks: int) -> BenchPlan:
    """So many workloads at the very start, each with so many checks."""
    names = tuple(f"check-{n}" for n in range(checks))
    room = 1000 * workloads
    made = tuple(
        PlannedQueue(
            f"checked-{n}", "cq", f"c-{n % 5}", "default", room, 0, None, "Never", "Never", names
        )
        for n in range(QUEUES)
    )
    return BenchPlan(
        made,
        tuple(
            PlannedWorkload(0.0, RUNTIME, f"checked-{n}", n % QUEUES, "checked", 1000, 0)
            for n in range(workloads)
        ),
    )


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--workloads", type=int, default=10_000)
    parser.add_argument("--checks", type=int, default=2, help="of each workload; at most 8")
    parser.add_argument("--nats", default=None, help="a running system instead of an embedded one")
    found = parser.parse_args()
    if found.workloads < 1 or not 0 <= found.checks <= 8:
        raise SetupError("--workloads must be at least 1, --checks 0 to 8")
    return found


def command() -> list[str]:
    """Runs the benchmark with the options of the command line; returns the lines to print."""
    found = _arguments()
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        what = bench_plan(found.workloads, found.checks)
        report, outcome = runner.run(outcome_of(what, found.nats))
    if report.trouble:
        raise SetupError(report.trouble)
    first = min(outcome.created_at)
    took = max(outcome.admitted_at) - first
    uses = ", ".join(f"{use.name} {use.cpu_seconds:.1f} s" for use in report.processes)
    return [
        f"{report.workloads} workloads with {found.checks} checks each: all admitted after "
        f"{took:.1f} s, {report.workloads / took:.0f} a second; "
        f"all ended after {report.wall_seconds:.1f} s",
        f"{report.cpu_ms_per_workload:.2f} ms CPU a workload ({uses}; "
        f"the load and its controllers {report.load_generator.cpu_seconds:.1f} s), "
        f"{report.peak_memory_bytes >> 20} MiB at the peak",
    ]


if __name__ == "__main__":
    main_of(command)
