"""A capacity request as it is stored: its content and its answers so far.
docs/spec/lifecycle.md#5.3.

The record is written before the request is sent, so after a crash between writing and sending the
next leader sends the request from the record.
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
from admittance.events.reader import Reader, Unreadable, check_times
from admittance.events.shapes import PodSetToProvision, PodSetUpdate
from admittance.events.subjects import CAPACITY, object_key

DETAILS_MAX: Final = 64
"""The most details that an answer of a provider may have."""
REQUEST_MAX: Final = 800_000
"""The most bytes of a record without answers. A workload may have half a MiB, and the resource
limits of its pods are copied into their requests.
"""
RECORD_MAX: Final = 1_000_000
"""The most bytes of a record with its answers, because the bus refuses messages that are much
larger.
"""
NOTES_MAX: Final = 10
"""The most notes of one request; further notes are dropped."""
NOTE_MAX: Final = 500


class State(StrEnum):
    """The provider's progress with a request."""

    REQUESTED = "Requested"
    ACCEPTED = "Accepted"
    PROVISIONED = "Provisioned"
    FAILED = "Failed"
    BOOKING_EXPIRED = "BookingExpired"
    CAPACITY_REVOKED = "CapacityRevoked"


class RecordSpec(Kept, frozen=True, kw_only=True):
    """The content of a request, which never changes. ``id``: made by `request_id`. ``deadline``:
    when a request without a final answer fails; None means no limit.
    """

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
    """Why a parameter or an answer was ignored, fully or in part."""

    time: datetime
    text: str


class RecordStatus(Kept, frozen=True, kw_only=True):
    """``seq``: the highest ``seq`` of the provider's answers; 0 if no answer has a ``seq``.
    ``cancelled``: why the request was cancelled; "" if it was not. ``said``: not used any more, but
    old records have the field. ``notes``: texts for users, oldest first.
    """

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
    """The stored form of a request, at the key ``provisioningrequest.<ns>.<name>`` of the
    bucket.
    """

    api_version: str
    kind: str
    metadata: ObjectMeta = ObjectMeta()
    spec: RecordSpec
    status: RecordStatus = RecordStatus()


_record = Reader(Record)


def read_record(key: str, value: bytes | None) -> Record:
    """The record at a key of the bucket. Raises Unreadable if the value is not a valid record."""
    record = _record(value)
    meta = record.metadata
    try:
        expected = object_key(CAPACITY, meta.namespace, meta.name)
    except ValueError as error:
        raise Unreadable(f"the record's metadata is not valid: {error}") from None
    if key != expected:
        raise Unreadable(f"the request at this key is named {meta.namespace}/{meta.name}")
    check_times("metadata", (meta.creation_timestamp, meta.deletion_timestamp))
    check_times("spec.deadline", (record.spec.deadline,))
    check_times(
        "status", (condition.last_transition_time for condition in record.status.conditions)
    )
    return record


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
"""The states that may follow each state."""


class AppliedStatus(NamedTuple):
    """What an answer of the provider does to a record. ``ignored``: why the answer was ignored; ""
    if it was not. ``contradicts``: the answer is at fault, and not only late or repeated.
    """

    record: Record
    ignored: str = ""
    contradicts: bool = False


def size_error(record: Record) -> str:
    """Why the record is too large for its request to be sent; "" if it is not."""
    size = len(msgspec.json.encode(record))
    if size <= REQUEST_MAX:
        return ""
    return f"the request for its capacity has {size:,} bytes, at most {REQUEST_MAX:,} are allowed"


def with_note(record: Record, text: str, now: datetime) -> Record:
    """The record with the note added; the unchanged record if it has this note already or
    `NOTES_MAX` notes."""
    notes = record.status.notes
    # An error may quote text that is not valid Unicode.
    text = text[:NOTE_MAX].encode("utf-8", "backslashreplace").decode()
    if len(notes) >= NOTES_MAX or any(note.text == text for note in notes):
        return record
    status = replace(record.status, notes=(*notes, Note(time=now, text=text)))
    return replace(record, status=status)


def apply_status(record: Record, fact: facts.ProvisioningStatus, now: datetime) -> AppliedStatus:
    """The record after this answer of the provider."""
    status = record.status
    if fact.id != record.spec.id:
        return AppliedStatus(record, f"the answer is for the request {fact.id}")
    if status.cancelled:
        return AppliedStatus(record, f"the request was cancelled: {status.cancelled}")
    if fact.seq is not None and fact.seq <= status.seq:
        return AppliedStatus(
            record, f"its seq {fact.seq} is not higher than {status.seq}, the last one"
        )
    state = _STATES[type(fact)]
    if state is not status.state and not _may_follow(status, state):
        # An answer Accepted that arrives after an answer with another state is only late, and not
        # at fault.
        contradicts = state is not State.ACCEPTED
        return AppliedStatus(record, f"the request is {status.state} already", contradicts)
    if state is status.state and state is not State.ACCEPTED:
        return AppliedStatus(record, "repeated answer")
    if len(fact.details) > DETAILS_MAX:
        return AppliedStatus(
            record,
            f"the answer has {len(fact.details)} details, at most {DETAILS_MAX} are allowed",
            True,
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
        # The failure counts although its delay is not valid.
        taken = with_note(taken, f"a retryAfter of {delay} s is not a valid delay: left out", now)
    size = len(msgspec.json.encode(taken))
    if size > RECORD_MAX:
        return AppliedStatus(
            record,
            f"the stored request would have {size:,} bytes, at most {RECORD_MAX:,} fit",
            True,
        )
    return AppliedStatus(taken)


def _may_follow(status: RecordStatus, state: State) -> bool:
    if status.state is State.FAILED and state is State.CAPACITY_REVOKED:
        # A job that runs on provisioned capacity is not affected by an answer Failed, but a later
        # CapacityRevoked must reach the job.
        return any(condition.type == State.PROVISIONED for condition in status.conditions)
    return state in _AFTER[status.state]


def _with(
    conditions: tuple[Condition, ...], state: State, message: str, now: datetime
) -> tuple[Condition, ...]:
    rest = tuple(condition for condition in conditions if condition.type != state)
    new = Condition(
        type=str(state), status="True", reason=str(state), message=message, last_transition_time=now
    )
    return (*rest, new)


NAME_MAX: Final = 253
_HASH: Final = 5
ANNOTATION: Final = "provreq.kueue.x-k8s.io/"
"""Prefix of the annotations of a workload that become parameters."""


def request_id(uid: str, check: str, cycle: int, attempt: int) -> str:
    """The id of a request, the same whenever the request is sent again."""
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
    """``<workload>-<check>-<attempt>``. A name that is too long is cut before the attempt and gets
    a hash of the workload's uid and the check; with ``force_hash`` every name gets the hash."""
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
"""The valid delays of a Retry, in seconds."""


def delay_seconds(attempt: int, strategy: ProvisioningRetryStrategy) -> int:
    """The delay after the failure of an attempt; attempts count from 1."""
    base, most = strategy.backoff_base_seconds, strategy.backoff_max_seconds
    # The exponent is bounded, because more doublings exceed any limit.
    return int(min(base << min(attempt - 1, 40), most))


def is_last(attempt: int, strategy: ProvisioningRetryStrategy) -> bool:
    """Whether this attempt is the last, so that its failure rejects the workload."""
    return attempt > strategy.backoff_limit_count
