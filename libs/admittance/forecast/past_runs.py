"""Runs that have ended, from the facts `QuotaReleased` of the log: a workload is in the bucket only
for some days after its end, and its fact stays on the log for weeks."""

from __future__ import annotations

from datetime import datetime
from sys import intern
from typing import Final, NamedTuple

import msgspec

from admittance.api.arrays import ARRAY_LABEL, INDEX_LABEL
from admittance.events.reader import BROKEN, Unreadable, reason_of
from admittance.forecast.rows import Key, Source


class PastRun(NamedTuple):
    """A run of the workload ``key`` that ended at ``ended``, in seconds since the epoch.
    ``seconds``: from its admission to its end. ``checked``: for how many seconds its quota was held
    before."""

    key: Key
    uid: str
    source: Source
    seconds: float
    ended: float
    checked: float


class _Admission(msgspec.Struct, frozen=True, rename="camel", gc=False):
    cluster_queue: str = ""


class _Released(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """The part of the fact that says how long a script ran."""

    namespace: str
    name: str
    since: datetime
    until: datetime
    admission: _Admission
    uid: str = ""
    admission_revision: int = 0
    ended: bool = False
    submitted_by: str = ""
    labels: dict[str, str] = msgspec.field(default_factory=dict)
    script: str = ""
    admitted_at: datetime | None = None


_decode: Final = msgspec.json.Decoder(_Released).decode


def past_run(data: bytes) -> PastRun | None:
    """The run that a fact `QuotaReleased` reports; None: the workload was not admitted, or did not
    finish. A fact of an earlier version has no script and no time of its admission: its workload
    counts as admitted at once. Raises Unreadable."""
    try:
        fact = _decode(data)
        if not fact.ended or not fact.admission_revision:
            return None
        begin = fact.admitted_at or fact.since
        return PastRun(
            key=(fact.namespace, fact.name),
            uid=fact.uid,
            source=source_of(
                fact.admission.cluster_queue, fact.submitted_by, fact.script, fact.labels
            ),
            seconds=max(0.0, (fact.until - begin).total_seconds()),
            ended=fact.until.timestamp(),
            checked=max(0.0, (begin - fact.since).total_seconds()),
        )
    except BROKEN as error:
        raise Unreadable(f"the payload is not a valid QuotaReleased: {reason_of(error)}") from None


def source_of(queue: str, user: str, script: str, labels: dict[str, str]) -> Source:
    """The source of a workload. Its words are shared by all workloads that have them."""
    array = labels.get(ARRAY_LABEL, "") if INDEX_LABEL in labels else ""
    return Source(intern(queue), intern(user), intern(script), intern(array))
