"""Checks a single status of a provider, also against the provider's earlier statuses of the
request. Pure.
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from typing import Any, Final, NamedTuple

import msgspec

from admittance.api.meta import ObjectMeta
from admittance.conformance.faults import (
    Fault,
    ParsedMessage,
    delay_faults,
    missing,
    object_of,
    quoted,
    update_faults,
    wrong_names,
    wrong_subject,
)
from admittance.events.base import MESSAGE_MAX, too_long
from admittance.events.names import token
from admittance.events.provisioning import ProvisioningFailed, ProvisioningStatus
from admittance.events.requests import ProviderReply
from admittance.events.subjects import ASKED, PROVISIONING_FACTS
from admittance.provisioning.records import (
    DETAILS_MAX,
    Record,
    RecordSpec,
    apply_status,
    request_id,
)

WORDS: Final = tuple(word for word in PROVISIONING_FACTS if word not in ASKED)
FIELDS: Final = ("namespace", "name", "id")


class CapacityRequestKey(NamedTuple):
    """Identifies a request that the test sent. ``pod_sets``: the names of the workload's pod
    sets.
    """

    provisioning_class: str
    namespace: str
    name: str
    uid: str
    check: str
    cycle: int
    attempt: int = 1
    pod_sets: tuple[str, ...] = ("main",)

    @property
    def id(self) -> str:
        """The id of the request."""
        return request_id(self.uid, self.check, self.cycle, self.attempt)


class StatusMessage(NamedTuple):
    """A status that a provider published. ``word``: the word for the status in its subject, such as
    provisioned.
    """

    word: str
    fact: ProvisioningStatus


def subject_for(request: CapacityRequestKey, word: str) -> str:
    """The subject of a status of the request, or of the request itself."""
    tail = f"{token(request.namespace)}.{token(request.name)}"
    return f"admit.provisioning.{word}.{token(request.provisioning_class)}.{tail}"


def parse_status(
    subject: str, data: bytes, request: CapacityRequestKey | None
) -> ParsedMessage[StatusMessage]:
    """The content of a status message, and its faults. ``request``: the request that the message is
    about; None if unknown.
    """
    found = object_of(data)
    if isinstance(found, Fault):
        return ParsedMessage(None, (found,))
    parts = subject.split(".")
    word = parts[2] if len(parts) > 2 else ""
    if word not in WORDS:
        why = f"published on {subject}: the statuses are {', '.join(WORDS)}"
        return ParsedMessage(None, (Fault("subject", why),))
    faults = missing(found, FIELDS)
    faults += delay_faults(found.get("retryAfter"), word, "failed")
    try:
        kind: Any = PROVISIONING_FACTS[word]
        fact: ProvisioningStatus = msgspec.json.decode(data, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        if not faults:
            case = "details" if "$.details" in str(error) else "json"
            faults.append(Fault(case, f"sent {quoted(data)}: {error}"))
        return ParsedMessage(None, tuple(faults))
    faults += _details(fact)
    faults += wrong_subject(subject, None if request is None else subject_for(request, word))
    if request is None:
        return ParsedMessage(StatusMessage(word, fact), tuple(faults))
    faults += wrong_names(
        (
            ("id", fact.id, request.id),
            ("namespace", fact.namespace, request.namespace),
            ("name", fact.name, request.name),
            ("uid", fact.uid or request.uid, request.uid),
            (
                "provisioningClass",
                fact.provisioning_class or request.provisioning_class,
                request.provisioning_class,
            ),
        )
    )
    faults += update_faults(fact.pod_set_updates, request.pod_sets, word, needed="provisioned")
    return ParsedMessage(StatusMessage(word, fact), tuple(faults))


def _details(fact: ProvisioningStatus) -> list[Fault]:
    faults = []
    if why := _too_much(fact):
        faults.append(Fault("details", f"{why}: such a status is ignored"))
    if len(fact.message) > MESSAGE_MAX:
        why = f"sent a message of {len(fact.message)} characters: the maximum is {MESSAGE_MAX}"
        faults.append(Fault("details", why))
    return faults


def _too_much(fact: ProvisioningStatus) -> str:
    """The size limit that the status exceeds, in words; empty if the status exceeds no limit."""
    if len(fact.details) > DETAILS_MAX:
        return f"sent {len(fact.details)} details; the maximum is {DETAILS_MAX}"
    return too_long("details", fact.details) or too_long("podSetUpdates", fact.pod_set_updates)


class History:
    """The statuses of one request so far, with the record that the provisioning check would
    have."""

    def __init__(self, request: CapacityRequestKey) -> None:
        self._asked = request
        self._said: set[tuple[Any, ...]] = set()
        self._record = Record(
            api_version="",
            kind="",
            metadata=ObjectMeta(name=request.name, namespace=request.namespace),
            spec=RecordSpec(
                id=request.id,
                workload=request.name,
                uid=request.uid,
                check=request.check,
                cycle=request.cycle,
                attempt=request.attempt,
                provisioning_class_name=request.provisioning_class,
            ),
        )

    def add(self, status: StatusMessage, now: datetime) -> tuple[Fault, ...]:
        """Adds a status; returns its fault if the provisioning check would ignore it. A repeated
        status is not a fault.
        """
        fact = status.fact
        content = (status.word, fact.seq, content_of(status))
        if fact.id != self._asked.id or content in self._said:
            return ()
        self._said.add(content)
        before = str(self._record.status.state)
        taken = apply_status(self._record, fact, now)
        self._record = taken.record
        if not taken.ignored or taken.ignored == "repeated answer":
            return ()
        if taken.ignored.startswith("its seq"):
            why = f"sent {status.word} with seq {fact.seq} after {before}: {taken.ignored}"
            return (Fault("seq", why),)
        if _too_much(fact):
            return ()  # `parse_status` reports a status that is not valid
        return (Fault("order", f"sent {status.word} after {before}: it is ignored"),)


def content_of(status: StatusMessage) -> tuple[Any, ...]:
    """The content of a status without its publishing time and its number, to compare it with a
    repeat."""
    fact = status.fact
    failed = fact if isinstance(fact, ProvisioningFailed) else None
    return (
        status.word,
        fact.id,
        fact.message,
        tuple(sorted(fact.details.items())),
        msgspec.json.encode(fact.pod_set_updates),
        failed.retryable if failed is not None else None,
        failed.retry_after if failed is not None else None,
    )


def reply_faults(
    request_id: str, data: bytes | None, expected: Collection[str], *, known: bool = True
) -> list[str]:
    """What is wrong with a reply to a query. ``expected``: the statuses that are valid in the
    reply. ``known`` False: the provider cannot know the request.
    """
    query = f"to the query about {request_id} it replied"
    if data is None:
        return [f"{query} nothing, although it replied before"]
    try:
        reply = msgspec.json.decode(data, type=ProviderReply)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        return [f"{query} {quoted(data)}: {error}"]
    if reply.error:
        return []
    found = []
    if reply.id not in ("", request_id):
        found.append(f"{query} about {reply.id}")
    if not known and reply.known:
        found.append(f"{query} known: true; with known: false it gets the request again")
    if (reply.known or not known) and reply.status not in expected:
        may = " or ".join(repr(one) for one in sorted(expected))
        found.append(f"{query} {reply.status!r} instead of {may}")
    return found
