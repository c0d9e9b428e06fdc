"""The gauges of a runner."""

from __future__ import annotations

from typing import Final

from admittance.runner.decide import Stage
from admittance.runner.runs.run_manager import RunManager
from admittance.runtime.telemetry.metrics import gauge

RUNS: Final = gauge("runner_jobs", "Jobs of the runner, by the stage of their run", ("stage",))
START_SLOTS: Final = gauge(
    "runner_start_slots",
    "Slots for jobs that are being started at the same time, used and free; the number of running "
    "jobs is limited by quota and by --pod-limit",
    ("state",),
)
WAITING_JOBS: Final = gauge(
    "runner_waiting_jobs",
    "Jobs that wait on the runner for pods of their namespace or for disk space",
)
RUNNER_GAUGES: Final = (RUNS, START_SLOTS, WAITING_JOBS)


def values_of(manager: RunManager) -> dict[str, dict[tuple[str, ...], float]]:
    counts: dict[tuple[str, ...], float] = {(stage.value,): 0 for stage in Stage}
    for run in tuple(manager.runs.values()):
        counts[(run.stage.value,)] += 1
    used, free = manager.launcher.start_slots()
    return {
        RUNS.name: counts,
        START_SLOTS.name: {("used",): used, ("free",): free},
        WAITING_JOBS.name: {(): len(manager.launcher.waiting)},
    }
