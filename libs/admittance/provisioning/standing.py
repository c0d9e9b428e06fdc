"""How a request stands to its workload: wanted or not, of its reservation or of another. Pure."""

from __future__ import annotations

from datetime import datetime
from typing import Final

from msgspec.structs import replace

from admittance.api.checks import ProvisioningRequestConfigSpec
from admittance.api.reading.canonical import spec_of
from admittance.api.workload import CheckState
from admittance.provisioning.asking import parameters_of, uses
from admittance.provisioning.picture import is_open
from admittance.provisioning.records import Record
from admittance.workload.conditions import Type, find, is_true
from admittance.workload.moves.check_verdicts import is_reserved_anew
from admittance.workload.stored import StoredWorkload, head

CAUSED: Final = "DeactivatedDueTo"
"""Before the cause, in the reason of an eviction."""


def unwanted(
    record: Record, work: StoredWorkload | None, row: CheckState | None, finished: str | None = None
) -> str:
    """Why nobody needs the request any more; "": somebody does. ``finished``: the uid of a workload
    of that name that has."""
    if finished == record.spec.uid:
        return "the workload has finished"
    if work is None or work.metadata.uid != record.spec.uid:
        return "the workload was deleted"
    if not is_of(record, work) or not is_reserved_anew(work):
        return _unreserved(work)
    if row is None:
        return "the check is not required any more"
    return "" if row.state in ("Pending", "Ready") else f"the check said {row.state}"


def _unreserved(work: StoredWorkload) -> str:
    evicted = find(work, Type.EVICTED)
    reason = evicted.reason if evicted is not None and evicted.status == "True" else ""
    if not head(work).active:
        _, _, cause = reason.partition(CAUSED)
        return "the workload was deactivated" + (f": {cause}" if cause else "")
    if reason:
        return f"the workload was evicted: {reason}"
    if is_reserved_anew(work):
        return "the workload holds another reservation by now"
    return "the workload holds no quota any more"


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
    """It is admitted. What merely may be is not: it may wait for long, such as for a sibling that
    has to stop before."""
    return is_true(work, Type.ADMITTED)


def is_late(record: Record, now: datetime) -> bool:
    """Its time has come, and nobody has answered it."""
    deadline = record.spec.deadline
    return deadline is not None and deadline <= now and is_open(record)


def is_needed(work: StoredWorkload, config: ProvisioningRequestConfigSpec) -> bool:
    """Some of its pods use what is managed, as far as that may change within a reservation."""
    if not config.managed_resources:
        return True
    pod_sets = spec_of(work.spec).pod_sets
    return any(one.count > 0 and uses(one, config.managed_resources) for one in pod_sets)
