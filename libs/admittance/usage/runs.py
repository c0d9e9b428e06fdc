"""The time for which a workload held the quota of one admission, as the fact `QuotaReleased` says
it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Final, NamedTuple, TypeAlias

import msgspec

from admittance.api.fields.units import amount
from admittance.events import reasons
from admittance.events.reader import BROKEN, YEARS, Unreadable, reason_of
from admittance.events.shapes import Admission

OTHERS: Final = "*"
"""Stands for several users in a summary that has no room for more rows."""

Amounts: TypeAlias = tuple[tuple[str, str, int], ...]
"""Flavor, resource and amount in accounting units."""


class Run(NamedTuple):
    """One admission of a workload, from ``since`` to ``until``, in whole seconds since 1970.

    ``admitted``: whether the workload was admitted, and not only reserved quota. ``outcome``:
    ``finished``, ``failed`` or ``evicted``; "": quota that was only reserved, or that is still
    held. ``sequence``: of the fact on the log; ``cause``: of the fact that released the quota.
    ``labels``: the values of the labels by which runs are summed; "": the workload has no such
    label.
    """

    uid: str
    since: int
    until: int
    cluster_queue: str
    namespace: str
    queue: str
    user: str
    amounts: Amounts
    admitted: bool
    outcome: str = ""
    waited_seconds: int = 0
    sequence: int = 0
    cause: int = 0
    labels: tuple[str, ...] = ()

    @property
    def key(self) -> tuple[str, int]:
        """What two reports about one admission have in common."""
        return self.uid, self.since


def amounts_of(admission: Admission | _Admission) -> Amounts:
    """The booked amounts in accounting units, by flavor and resource. Raises ValueError for a text
    that is no quantity."""
    total: dict[tuple[str, str], int] = {}
    for assigned in admission.pod_set_assignments:
        for resource, flavor in assigned.flavors.items():
            booked = amount(resource, assigned.resource_usage.get(resource, "0"))
            total[flavor, resource] = total.get((flavor, resource), 0) + booked
    return tuple((flavor, resource, booked) for (flavor, resource), booked in total.items())


class _Assigned(msgspec.Struct, rename="camel", gc=False):
    flavors: dict[str, str] = msgspec.field(default_factory=dict)
    resource_usage: dict[str, str] = msgspec.field(default_factory=dict)


class _Admission(msgspec.Struct, rename="camel", gc=False):
    cluster_queue: str
    pod_set_assignments: tuple[_Assigned, ...] = ()


class Released(msgspec.Struct, rename="camel", gc=False):
    """The part of `QuotaReleased` that is summed. Decoding only this part takes a third of the time
    of the whole fact."""

    namespace: str
    since: datetime
    until: datetime
    admission: _Admission
    uid: str = ""
    admission_revision: int = 0
    ended: bool = False
    reason: str = ""
    queue: str = ""
    submitted_by: str = ""
    waited_seconds: int = 0
    fact: int = 0
    labels: dict[str, str] = msgspec.field(default_factory=dict)


_decode: Final = msgspec.json.Decoder(Released).decode


def run_of(data: bytes, sequence: int, keys: Sequence[str] = ()) -> Run:
    """The run that a fact `QuotaReleased` on the log reports. ``keys``: the labels by which it is
    summed. Raises Unreadable."""
    try:
        return run_from(_decode(data), sequence, keys)
    except BROKEN as error:
        raise Unreadable(f"the payload is not a valid QuotaReleased: {reason_of(error)}") from None


def run_from(fact: Released, sequence: int, keys: Sequence[str] = ()) -> Run:
    """The run that a decoded fact reports. Raises ValueError for an amount that is no quantity, or
    a time without a zone."""
    since = whole_seconds(fact.since)
    admitted = fact.admission_revision > 0
    if fact.ended:
        outcome = "finished" if fact.reason == reasons.SUCCEEDED else "failed"
    else:
        outcome = "evicted" if admitted else ""
    return Run(
        uid=fact.uid,
        since=since,
        until=max(since, whole_seconds(fact.until)),
        cluster_queue=fact.admission.cluster_queue or "?",
        namespace=fact.namespace or "?",
        queue=fact.queue,
        user=fact.submitted_by,
        amounts=amounts_of(fact.admission),
        admitted=admitted,
        outcome=outcome,
        waited_seconds=max(0, fact.waited_seconds),
        sequence=sequence,
        cause=fact.fact,
        labels=labels_of(fact.labels, keys),
    )


def labels_of(labels: Mapping[str, str], keys: Sequence[str]) -> tuple[str, ...]:
    """The values of the labels with these keys; "": the workload has no such label."""
    return tuple([labels.get(key, "") for key in keys])


def whole_seconds(time: datetime) -> int:
    """The seconds since 1970, rounded down: if one run begins when another ends, the two have no
    second in common and no second is between them. Raises ValueError for a time without a zone, or
    with a year out of range."""
    if time.tzinfo is None or time.year not in YEARS:
        raise ValueError(f"{time.isoformat()} is not a time with a zone")
    since = time - _EPOCH
    return since.days * 86_400 + since.seconds


_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
