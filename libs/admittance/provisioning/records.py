"""A request as it is kept: what was asked, of whom, and what was answered so far. LIFECYCLE 5.3.

It is written before it is asked, so that whatever crashes in between is found and finished.
"""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from hashlib import sha1
from typing import Annotated, Final, NamedTuple

import msgspec
from msgspec.structs import replace

from admittance.api.checks import ProvisioningRetryStrategy
from admittance.api.meta import Condition, ObjectMeta
from admittance.api.workload import Kept
from admittance.events import provisioning as facts
from admittance.events.base import MESSAGE_MAX, too_long
from admittance.events.reading import Reader, Unreadable, check_times
from admittance.events.shapes import PodSetToProvision, PodSetUpdate
from admittance.events.subjects import CAPACITY, object_key

DETAILS_MAX: Final = 64
"""Details of a class that a provider may tell."""
ASKED_MAX: Final = 800_000
"""Bytes of a record before anything was answered. The door takes workloads of half a MiB, and
limits are asked for as requests, too."""
RECORD_MAX: Final = 1_000_000
"""Bytes of a record with what was answered: the bus takes no message of much more."""
NOTES_MAX: Final = 10
"""Of one request; of more only the first are kept."""
NOTE_MAX: Final = 500


class State(StrEnum):
    """Where a request stands."""

    REQUESTED = "Requested"
    ACCEPTED = "Accepted"
    PROVISIONED = "Provisioned"
    FAILED = "Failed"
    BOOKING_EXPIRED = "BookingExpired"
    CAPACITY_REVOKED = "CapacityRevoked"


class RecordSpec(Kept, frozen=True, kw_only=True):
    """What is asked, never changed. ``id``: `names.request_id`. ``deadline``: by when it has to be
    answered; None: whenever."""

    id: str
    workload: str
    uid: str
    check: str
    cycle: int
    attempt: int
    provisioning_class_name: str
    parameters: dict[str, str] = msgspec.field(default_factory=dict)
    pod_sets: tuple[PodSetToProvision, ...] = ()
    deadline: Annotated[datetime, msgspec.Meta(tz=True)] | None = None


class Note(Kept, frozen=True, kw_only=True):
    """Something that was asked for, or that a provider said, and that did not count, or not in
    full, and why."""

    time: datetime
    text: str


class RecordStatus(Kept, frozen=True, kw_only=True):
    """``seq``: the newest that the provider gave one of its answers; 0: it gives none.
    ``cancelled``: why it was taken back; "": it was not. ``said``: the state that the check was
    last told in, with the state of the request then. ``notes``: for people, oldest first."""

    state: State = State.REQUESTED
    message: str = ""
    conditions: tuple[Condition, ...] = ()
    details: dict[str, str] = msgspec.field(default_factory=dict)
    pod_set_updates: tuple[PodSetUpdate, ...] = ()
    retryable: bool = True
    retry_after: int | None = None
    seq: int = 0
    cancelled: str = ""
    said: str = ""
    notes: tuple[Note, ...] = ()


class Record(Kept, frozen=True, kw_only=True):
    """``provisioningrequest.<ns>.<name>`` of the bucket."""

    api_version: str
    kind: str
    metadata: ObjectMeta = ObjectMeta()
    spec: RecordSpec
    status: RecordStatus = RecordStatus()


_record = Reader(Record)


def read_record(key: str, value: bytes | None) -> Record:
    """The record at a key of the bucket. Raises Unreadable."""
    found = _record(value)
    meta = found.metadata
    try:
        expected = object_key(CAPACITY, meta.namespace, meta.name)
    except ValueError as error:
        raise Unreadable(f"metadata: {error}") from None
    if key != expected:
        raise Unreadable(f"it is the request {meta.namespace}/{meta.name}")
    check_times("metadata", (meta.creation_timestamp, meta.deletion_timestamp))
    check_times("spec.deadline", (found.spec.deadline,))
    check_times("status", (one.last_transition_time for one in found.status.conditions))
    return found


_STATES: Final[dict[type[facts.ProvisioningStatus], State]] = {
    facts.Accepted: State.ACCEPTED,
    facts.Provisioned: State.PROVISIONED,
    facts.ProvisioningFailed: State.FAILED,
    facts.BookingExpired: State.BOOKING_EXPIRED,
    facts.CapacityRevoked: State.CAPACITY_REVOKED,
}
_AFTER: Final[dict[State, frozenset[State]]] = {
    State.REQUESTED: frozenset(State) - {State.REQUESTED},
    State.ACCEPTED: frozenset(State) - {State.REQUESTED},
    State.PROVISIONED: frozenset({State.BOOKING_EXPIRED, State.CAPACITY_REVOKED, State.FAILED}),
    State.BOOKING_EXPIRED: frozenset({State.CAPACITY_REVOKED}),
    State.FAILED: frozenset(),
    State.CAPACITY_REVOKED: frozenset(),
}
"""Which answer may follow which. A provider that says Accepted after Provisioned is late."""


class AppliedStatus(NamedTuple):
    """What became of an answer: the record, and why it changed nothing ("": it did).
    ``contradicts``: it is not merely late or said twice."""

    record: Record
    ignored: str = ""
    contradicts: bool = False


def size_error(record: Record) -> str:
    """Why nobody can be asked for that, a sentence; "": one can be."""
    size = len(msgspec.json.encode(record))
    if size <= ASKED_MAX:
        return ""
    return f"the request for its capacity has {size:,} bytes, {ASKED_MAX:,} are allowed"


def with_note(record: Record, text: str, now: datetime) -> Record:
    """The record with a note; the same one where that is noted, or there are too many."""
    notes = record.status.notes
    # Errors quote what no JSON can hold.
    text = text[:NOTE_MAX].encode("utf-8", "backslashreplace").decode()
    if len(notes) >= NOTES_MAX or any(one.text == text for one in notes):
        return record
    status = replace(record.status, notes=(*notes, Note(time=now, text=text)))
    return replace(record, status=status)


def apply_status(record: Record, fact: facts.ProvisioningStatus, now: datetime) -> AppliedStatus:
    """The record once the provider has said this."""
    status = record.status
    if fact.id != record.spec.id:
        return AppliedStatus(record, f"it is about {fact.id}")
    if status.cancelled:
        return AppliedStatus(record, f"the request was taken back: {status.cancelled}")
    if fact.seq is not None and fact.seq <= status.seq:
        return AppliedStatus(record, f"its seq {fact.seq} is not above {status.seq}")
    state = _STATES[type(fact)]
    if state is not status.state and not _may_follow(status, state):
        # Merely late, where it says that it works on it.
        late = state is State.ACCEPTED
        return AppliedStatus(record, f"the request is {status.state} already", not late)
    if state is status.state and state is not State.ACCEPTED:
        return AppliedStatus(record, "said before")
    if len(fact.details) > DETAILS_MAX:
        return AppliedStatus(
            record, f"{len(fact.details)} details, {DETAILS_MAX} are allowed", True
        )
    if why := too_long("details", fact.details) or too_long("podSetUpdates", fact.pod_set_updates):
        return AppliedStatus(record, why, True)
    message = fact.message[:MESSAGE_MAX]
    failed = fact if isinstance(fact, facts.ProvisioningFailed) else None
    delay = failed.retry_after if failed is not None else None
    new = replace(
        status,
        state=state,
        message=message,
        conditions=_with(status.conditions, state, message, now),
        details=fact.details or status.details,
        pod_set_updates=fact.pod_set_updates or status.pod_set_updates,
        retryable=failed.retryable if failed is not None else True,
        retry_after=delay if delay is not None and delay in DELAYS else None,
        seq=fact.seq if fact.seq is not None else status.seq,
    )
    taken = replace(record, status=new)
    if delay is not None and delay not in DELAYS:
        # That there is no capacity is true all the same.
        taken = with_note(taken, f"a retryAfter of {delay} s is no delay: left out", now)
    size = len(msgspec.json.encode(taken))
    if size > RECORD_MAX:
        return AppliedStatus(
            record, f"with it the request has {size:,} bytes, {RECORD_MAX:,} fit", True
        )
    return AppliedStatus(taken)


def _may_follow(status: RecordStatus, state: State) -> bool:
    if status.state is State.FAILED and state is State.CAPACITY_REVOKED:
        # A failure of what was provisioned means nothing to who runs on it.
        return any(one.type == State.PROVISIONED for one in status.conditions)
    return state in _AFTER[status.state]


def _with(
    conditions: tuple[Condition, ...], state: State, message: str, now: datetime
) -> tuple[Condition, ...]:
    rest = tuple(one for one in conditions if one.type != state)
    new = Condition(
        type=str(state), status="True", reason=str(state), message=message, last_transition_time=now
    )
    return (*rest, new)


NAME_MAX: Final = 253
_HASH: Final = 5
ANNOTATION: Final = "provreq.kueue.x-k8s.io/"
"""Prefix of annotations of a workload that become parameters."""


def request_id(uid: str, check: str, cycle: int, attempt: int) -> str:
    """What makes a request the same one, however often it is said."""
    return f"{uid}/{check}/{cycle}/{attempt}"


def request_name(
    workload: str,
    uid: str,
    check: str,
    attempt: int,
    *,
    limit: int = NAME_MAX,
    force_hash: bool = False,
) -> str:
    """``<workload>-<check>-<attempt>``. Too long, it is cut before the attempt, and gets a hash of
    the workload's uid and the check. ``force_hash``: the plain name belongs to somebody else."""
    plain = f"{workload}-{check}-{attempt}"
    if not force_hash and len(plain) <= limit:
        return plain
    digest = sha1(f"{uid}\n{check}".encode(), usedforsecurity=False).hexdigest()[:_HASH]
    tail = f"-{digest}-{attempt}"
    return f"{workload}-{check}"[: limit - len(tail)].rstrip("-.") + tail


def template_name(request: str, pod_set: str) -> str:
    """The name of the pod template of one pod set of the request."""
    return f"ppt-{request}-{pod_set}"


DELAYS: Final = range(2**31)
"""Seconds that a check can be told to wait."""


def delay_seconds(attempt: int, strategy: ProvisioningRetryStrategy) -> int:
    """The wait after the failure of that attempt; attempts count from 1."""
    base, most = strategy.backoff_base_seconds, strategy.backoff_max_seconds
    # More doublings than this are beyond any limit.
    return int(min(base << min(attempt - 1, 40), most))


def is_last(attempt: int, strategy: ProvisioningRetryStrategy) -> bool:
    """Its failure is the end: no attempt follows."""
    return attempt > strategy.backoff_limit_count
