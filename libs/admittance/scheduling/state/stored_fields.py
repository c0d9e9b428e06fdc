"""The fields of a workload that were read from the bucket, and the kinds of decisions about it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import IntEnum, unique
from typing import Generic, TypeVar

from admittance.api.workload import PreemptionCount
from admittance.events.shapes import PreemptedBy
from admittance.scheduling.state.equivalence import Key
from admittance.scheduling.state.requests import RequestShape
from admittance.scheduling.state.workload_view import Inadmissible, Run

F = TypeVar("F")
"""The family of a workload."""


@unique
class InFlight(IntEnum):
    """The kinds of decisions about a workload that were sent but not yet read back from storage."""

    NOTHING = 0
    ASSIGNED = 1
    REFUSED = 2
    CONFIRMED = 3
    PLANNED = 4
    # A decision of the kind PREEMPTED, or of a kind after it in this list, takes the workload's
    # quota.
    PREEMPTED = 5
    REVOKED = 6
    HANDED_ON = 7
    MIGRATED = 8


@dataclass(slots=True, eq=False, repr=False)
class StoredFields(Generic[F]):
    """What was read from the stored workload, and to which family it belongs. Only new stored
    states of the workload and its parent change these fields; a bug sets ``problem``, too."""

    key: Key
    uid: str = ""
    revision: int = 0
    priority: int = 0
    local_queue: Key = ("", "")
    shape: RequestShape | None = None
    created_at: datetime | None = None
    queued_at: datetime | None = None  # the time that stands for the workload's age in its queue
    # The state in the workload's stored status; Promised: the variant gets quota when its sibling's
    # job has stopped.
    state: str = "Pending"
    family: F | None = None  # the family of a variant or parent; None: regular
    signature: int = 0  # a changed signature means that the workload must be queued again
    reclaimable: tuple[tuple[str, int], ...] = ()
    competes: bool = False  # the workload's stored state allows it to wait in a queue
    requeue_at: datetime | None = None
    requeue_blocked: bool = False  # it may not compete until its condition Requeued changes
    # Why the workload cannot be tried at all: from its stored state, or because of a bug.
    problem: Inadmissible | None = None
    status_reason: str = ""  # the waiting reason in the workload's status
    reserved_at: datetime | None = None
    admitted_at: datetime | None = None
    run: Run | None = None  # None: the workload is not admitted
    checks: tuple[tuple[str, str], ...] = ()  # name and state of each, until it is admitted
    # The workload's admission checks that ask to preempt its planned victims now.
    preemption_required_by: tuple[str, ...] = ()
    preempted_by: PreemptedBy | None = None  # the workload's last preemptor, until it has new quota
    # The preemptors that took this workload's quota, each with how often.
    preemptions: tuple[PreemptionCount, ...] = ()
    closed_gate: str = ""  # name of the workload's closed preemption gate; "": none
    user: str = ""  # the user that submitted the workload; "": the server has no users
    labels: tuple[tuple[str, str], ...] = ()  # without the index of an element
    array: str = ""  # the array of which the workload is an element; "": none
    leased: bool = False  # a program holds its quota by a lease
    seconds_left: int | None = None  # how long an admission may last; None: no limit
