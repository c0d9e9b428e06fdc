"""How long from submitted to admitted, at a steady rate where quota is plenty.

``python -m benchmarks.latency [--rate 50] [--seconds 30] [--checks 0] [--nats URL]``
"""

from __future__ import annotations

from admittance.bench.run import outcome_of
from admittance.runtime.errors import SetupError
from benchmarks.harness.hops import HOPS, hops_delay
from benchmarks.harness.pairs import steady_plan
from benchmarks.harness.program import CHECKS_MAX, NATS, Option, run_program


async def measured(*, rate: float, seconds: float, checks: int, nats: str | None) -> list[str]:
    """The figures, and those of the bus alone before and after. Raises SetupError if a workload
    does not finish."""
    before = await hops_delay(rate, seconds / 3)
    report, _ = await outcome_of(steady_plan(rate, seconds, checks), nats)
    if report.trouble:
        raise SetupError(report.trouble)
    after = await hops_delay(rate, seconds / 3)
    delay = report.time_to_admission_ms["steady"]
    floor = (before.p50 + after.p50) / 2
    return [
        f"submitted to admitted at {rate:g} a second, {report.workloads} workloads with "
        f"{checks} checks each: "
        f"p50 {delay.p50:.1f} ms, p99 {delay.p99:.1f} ms, mean {delay.mean:.1f} ms; "
        f"{report.cpu_ms_per_workload:.2f} ms CPU a workload",
        f"the bus alone, {HOPS} hops, before and after: p50 {before.p50:.1f} and {after.p50:.1f} "
        f"ms; p50 of the system ÷ p50 of the bus: {delay.p50 / floor:.2f}",
    ]


if __name__ == "__main__":
    run_program(
        measured,
        __doc__,
        Option("--rate", 50.0, "workloads a second", above=0),
        Option("--seconds", 30.0, above=0),
        Option("--checks", 0, "of each workload", least=0, most=CHECKS_MAX),
        NATS,
    )
