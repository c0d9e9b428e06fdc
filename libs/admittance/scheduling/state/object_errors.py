"""Sets a workload aside that makes the scheduler raise an exception, so that it keeps no other
workload from its decision."""

from __future__ import annotations

from datetime import datetime

from admittance.events import reasons
from admittance.events.reader import reason_of
from admittance.object_errors import ObjectError
from admittance.quota.cell import Cell
from admittance.scheduling.state.queue import park_workload
from admittance.scheduling.state.scheduler_state import SchedulerState
from admittance.scheduling.state.workload_info import Domain, Queue, WorkloadInfo
from admittance.scheduling.state.workload_view import Inadmissible


class Suspect(Exception):
    """The error that a step raised an exception for one workload, and that the scheduler's state
    may be wrong now: the state must be made again, with the workload set aside. ``uid``: the uid of
    the workload."""

    def __init__(self, workload: WorkloadInfo, step: str, error: Exception) -> None:
        super().__init__(f"{_name(workload)}: {step}: {error!r}")
        self.uid = workload.uid
        self.problem = _problem(step, error)
        self.error = ObjectError(step, _name(workload), error)


def set_aside(
    state: SchedulerState,
    domain: Domain,
    queue: Queue,
    workload: WorkloadInfo,
    step: str,
    error: Exception,
    now: datetime,
) -> None:
    """Parks a waiting workload, because the step raised an exception for it; the workload is tried
    again when it changes. Raises the exception if no list of errors is given, and Suspect if
    the usage of the domain may be wrong."""
    if state.errors is None:
        raise error
    if not _correct_usage(domain):
        raise Suspect(workload, step, error) from error
    state.errors.append(ObjectError(step, _name(workload), error))
    workload.problem = _problem(step, error)
    park_workload(queue, workload, workload.problem, now)


def is_set_aside(workload: WorkloadInfo) -> bool:
    """Returns whether a step raised an exception for the workload."""
    return workload.problem is not None and workload.problem.reason == reasons.INTERNAL_ERROR


def _name(workload: WorkloadInfo) -> str:
    return f"workload {'/'.join(workload.key)}"


def _problem(step: str, error: Exception) -> Inadmissible:
    return Inadmissible(
        reasons.INTERNAL_ERROR,
        f"The scheduler has a bug and cannot {step} this workload: {type(error).__name__}: "
        f"{reason_of(error)}; other workloads do not wait for it",
    )


def _correct_usage(domain: Domain) -> bool:
    """Corrects the usage of the domain's queues: the step may have subtracted usage of victims and
    not restored it. Returns whether the usage is right now; usage with shared quota is not
    corrected."""
    used: dict[Cell, int] = {}
    for queue in domain.queues:
        for workload in queue.holding:
            if workload.shared_quotas or workload.charge is None:
                return False
            for cell, amount in workload.charge.cells:
                used[cell] = used.get(cell, 0) + amount
    for queue in domain.queues:
        for cell in queue.node.cells.values() if queue.node is not None else ():
            cell.charge(used.get(cell, 0) - cell.usage)
    return True
