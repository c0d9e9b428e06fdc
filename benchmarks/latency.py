"""How long from submitted to admitted, at a steady rate where quota is plenty.

``python -m benchmarks.latency [--rate 50] [--seconds 30] [--checks 0] [--nats URL]``
"""

from __future__ import annotations

import argparse

from admittance.bench.generator import BenchPlan, PlannedQueue, PlannedWorkload
from admittance.bench.run import main_of, measured
from admittance.runtime.errors import SetupError

RUNTIME = 0.2


def bench_plan(
    rate: float, seconds: float, checks: int = 0, queue_name: str = "steady"
) -> BenchPlan:
    """rate workloads a second for so many seconds, evenly, on one queue that has room for all.
    ``checks``: how many each has; every check answers Ready at once."""
    names = tuple(f"check-{n}" for n in range(checks))
    count = max(1, round(rate * seconds))
    room = round(1000 * max(100.0, rate * 10))
    queue = PlannedQueue(queue_name, "cq", "", "default", room, None, None, "Never", "Never", names)
    return BenchPlan(
        (queue,),
        tuple(
            PlannedWorkload((n + 1) / rate, RUNTIME, f"{queue_name}-{n}", 0, queue_name, 1000, 0)
            for n in range(count)
        ),
    )


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rate", type=float, default=50.0, help="workloads a second")
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--checks", type=int, default=0, help="of each workload; at most 8")
    parser.add_argument("--nats", default=None, help="a running system instead of an embedded one")
    found = parser.parse_args()
    if found.rate <= 0 or found.seconds <= 0 or not 0 <= found.checks <= 8:
        raise SetupError("--rate and --seconds must be greater than 0, --checks 0 to 8")
    return found


def command() -> list[str]:
    """Runs the benchmark with the options of the command line; returns the lines to print."""
    found = _arguments()
    report = measured(bench_plan(found.rate, found.seconds, found.checks), found.nats)
    if report.trouble:
        raise SetupError(report.trouble)
    delay = report.time_to_admission_ms["steady"]
    return [
        f"submitted to admitted at {found.rate:g} a second, {report.workloads} workloads with "
        f"{found.checks} checks each: "
        f"p50 {delay.p50:.1f} ms, p99 {delay.p99:.1f} ms, mean {delay.mean:.1f} ms; "
        f"{report.cpu_ms_per_workload:.2f} ms CPU a workload"
    ]


if __name__ == "__main__":
    main_of(command)
