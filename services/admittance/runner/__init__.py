"""Starts admitted jobs and stops evicted ones.

Consumes ``admitted`` and ``evicted``; publishes ``started``, ``pods_ready``, ``finished`` and
``stopped``. Owns the runner's claims in the bucket ``admittance_claims`` and the folder ``runner``
of its data folder. Runners have no leader: every runner claims admissions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from admittance.runtime.process.service import LogConsumers, Run, Service, Streams

if TYPE_CHECKING:
    from admittance.job_rules.rules import JobRules
    from admittance.runtime.telemetry.metrics import Definition


def _load() -> Run:
    from admittance.runner.service import run

    return run


async def _check(executor: str, rules: JobRules) -> None:
    from admittance.runner.host.local_machine import check_executor

    await check_executor(executor, rules)


def _metrics() -> Sequence[Definition]:
    from admittance.runner.runner_gauges import RUNNER_GAUGES

    return RUNNER_GAUGES


SERVICE = Service(
    "runner",
    _load,
    role="runner",
    streams=Streams.AWAITS,
    consumers=LogConsumers.DURABLE,
    runs_jobs=True,
    check=_check,
    if_missing="no instance answers; jobs need a runner, here or elsewhere",
    metrics=_metrics,
)
