"""How a request stands to its workload: wanted or not, of its reservation or of another. Pure."""

from __future__ import annotations

from datetime import datetime

from msgspec.structs import replace

from admittance.api.checks import ProvisioningRequestConfigSpec
from admittance.api.workload import CheckState
from admittance.provisioning.asking import parameters_of
from admittance.provisioning.records import Record
from admittance.provisioning_check.picture import is_open
from admittance.workload.conditions import Type, find, is_true
from admittance.workload.holding import is_reserved_anew
from admittance.workload.stored import StoredWorkload, head


def unwanted(record: Record, work: StoredWorkload | None, row: CheckState | None) -> str:
    """Why nobody needs the request any more; "": somebody does."""
    if work is None or work.metadata.uid != record.spec.uid:
        return "the workload is gone"
    if not is_of(record, work) or not is_reserved_anew(work):
        evicted = find(work, Type.EVICTED)
        if not head(work).active:
            return "Deactivated"
        return evicted.reason if evicted is not None and evicted.status == "True" else "Requeued"
    if row is None:
        return "the check is not required"
    return "" if row.state in ("Pending", "Ready") else row.state


def is_of(record: Record, work: StoredWorkload) -> bool:
    """It was asked for in the cycle that the workload is in."""
    spec = record.spec
    return (spec.uid, spec.cycle) == (work.metadata.uid, work.status.admission_cycle)


def taken_back(record: Record, why: str) -> Record:
    """The record of a request that nobody needs any more."""
    return replace(record, status=replace(record.status, cancelled=why))


def is_marked(record: Record) -> bool:
    """Somebody wants it deleted."""
    return record.metadata.deletion_timestamp is not None


def differs(record: Record, config: ProvisioningRequestConfigSpec, work: StoredWorkload) -> bool:
    """The configuration asks for something else now."""
    return (
        record.spec.provisioning_class_name != config.provisioning_class_name
        or record.spec.parameters != parameters_of(config, work.metadata.annotations)
    )


def runs(work: StoredWorkload) -> bool:
    """It is admitted, or nothing keeps it from that any more."""
    if is_true(work, Type.ADMITTED):
        return True
    ready = all(row.state == "Ready" for row in work.status.admission_checks)
    return ready and work.status.pending_preemption is None


def is_late(record: Record, now: datetime) -> bool:
    """Its time has come, and nobody has answered it."""
    deadline = record.spec.deadline
    return deadline is not None and deadline <= now and is_open(record)
