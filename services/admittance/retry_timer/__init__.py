"""Keeps a schedule on the bus for every time for which a workload waits.

Decides: which schedules the stored workloads need (`admittance.workload.due_times`), and so which
schedules to set or cancel.

Consumes: workloads and AdmissionChecks, from the bucket; the existing schedules. Publishes:
schedules on the timers stream; the bus publishes ``timer.due`` for each schedule when it is due.
Owns: the timers stream. The workload-controller decides what a due time means for a workload.
Leadership: one active instance.
"""

from __future__ import annotations

from admittance.runtime.process.service import Run, Service


def _load() -> Run:
    from admittance.retry_timer.service import run

    return run


SERVICE = Service("retry-timer", _load, role="retry-timer", probe="timers")
