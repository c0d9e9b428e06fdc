"""What one status of a provider has wrong, by itself, or after what it said before. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Any, Final, NamedTuple

import msgspec

from admittance.api.meta import ObjectMeta
from admittance.conformance.faults import (
    Fault,
    Looked,
    bad_delay,
    bad_updates,
    missing,
    mistaken,
    object_of,
    quoted,
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


class Asked(NamedTuple):
    """What a provider was asked: for capacity for ``namespace/name``. ``pod_sets``: those that the
    workload has."""

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
        """Which request."""
        return request_id(self.uid, self.check, self.cycle, self.attempt)


class Told(NamedTuple):
    """A status. ``word``: of its subject, such as provisioned."""

    word: str
    fact: ProvisioningStatus


def subject_for(asked: Asked, word: str) -> str:
    """Where its statuses belong."""
    tail = f"{token(asked.namespace)}.{token(asked.name)}"
    return f"admit.provisioning.{word}.{token(asked.provisioning_class)}.{tail}"


def look(subject: str, data: bytes, asked: Asked | None) -> Looked[Told]:
    """The content of a message about ``asked``; None if it is about no request of the test."""
    found = object_of(data)
    if isinstance(found, Fault):
        return Looked(None, (found,))
    parts = subject.split(".")
    word = parts[2] if len(parts) > 2 else ""
    if word not in WORDS:
        why = f"spoke on {subject}: there are {', '.join(WORDS)}"
        return Looked(None, (Fault("subject", why),))
    faults = missing(found, FIELDS)
    faults += _delay(word, found)
    try:
        kind: Any = PROVISIONING_FACTS[word]
        fact: ProvisioningStatus = msgspec.json.decode(data, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        if not faults:
            case = "details" if "$.details" in str(error) else "json"
            faults.append(Fault(case, f"said {quoted(data)}: {error}"))
        return Looked(None, tuple(faults))
    faults += _details(fact)
    if asked is None:
        faults.append(Fault("names", f"spoke about what it was not asked, on {subject}"))
        return Looked(Told(word, fact), tuple(faults))
    if subject != subject_for(asked, word):
        right = subject_for(asked, word)
        faults.append(Fault("subject", f"spoke on {subject}, and not on {right}"))
    faults += mistaken(
        (
            ("id", fact.id, asked.id),
            ("namespace", fact.namespace, asked.namespace),
            ("name", fact.name, asked.name),
            ("uid", fact.uid or asked.uid, asked.uid),
            (
                "provisioningClass",
                fact.provisioning_class or asked.provisioning_class,
                asked.provisioning_class,
            ),
        )
    )
    if fact.pod_set_updates and word != "provisioned":
        faults.append(Fault("updates", f"sent podSetUpdates with {word}: they are lost"))
    faults += bad_updates(fact.pod_set_updates, asked.pod_sets)
    return Looked(Told(word, fact), tuple(faults))


def _delay(word: str, found: Mapping[str, Any]) -> list[Fault]:
    delay = found.get("retryAfter")
    if delay is None:
        return []
    why = bad_delay(delay)
    if why is None and word != "failed":
        why = f"asked for a delay with {word}: only failed has one"
    return [Fault("delay", why)] if why is not None else []


def _details(fact: ProvisioningStatus) -> list[Fault]:
    faults = []
    if why := _too_much(fact):
        faults.append(Fault("details", f"{why}: such a status counts for nothing"))
    if len(fact.message) > MESSAGE_MAX:
        why = f"said a message of {len(fact.message)} characters: {MESSAGE_MAX} are kept"
        faults.append(Fault("details", why))
    return faults


def _too_much(fact: ProvisioningStatus) -> str:
    """What there is too much of in the status; "": nothing."""
    if len(fact.details) > DETAILS_MAX:
        return f"told {len(fact.details)} details, {DETAILS_MAX} are allowed"
    return too_long("details", fact.details) or too_long("podSetUpdates", fact.pod_set_updates)


class History:
    """What was said about one request so far, kept as the provisioning check would."""

    def __init__(self, asked: Asked) -> None:
        self._asked = asked
        self._said: set[tuple[Any, ...]] = set()
        self._record = Record(
            api_version="",
            kind="",
            metadata=ObjectMeta(name=asked.name, namespace=asked.namespace),
            spec=RecordSpec(
                id=asked.id,
                workload=asked.name,
                uid=asked.uid,
                check=asked.check,
                cycle=asked.cycle,
                attempt=asked.attempt,
                provisioning_class_name=asked.provisioning_class,
            ),
        )

    def hear(self, told: Told, now: datetime) -> tuple[Fault, ...]:
        """Why the status changes nothing although it was to. What is said again is no fault."""
        fact = told.fact
        content = (told.word, fact.seq, content_of(told))
        if fact.id != self._asked.id or content in self._said:
            return ()
        self._said.add(content)
        before = str(self._record.status.state)
        taken = apply_status(self._record, fact, now)
        self._record = taken.record
        if not taken.ignored or taken.ignored == "repeated answer":
            return ()
        if taken.ignored.startswith("its seq"):
            why = f"said {told.word} with seq {fact.seq} after {before}: {taken.ignored}"
            return (Fault("seq", why),)
        if _too_much(fact):
            return ()  # told by its form
        return (Fault("order", f"said {told.word} after {before}: it counts for nothing"),)


def content_of(told: Told) -> tuple[Any, ...]:
    """What a status tells, without its time and number."""
    fact = told.fact
    failed = fact if isinstance(fact, ProvisioningFailed) else None
    return (
        told.word,
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
    """Sentences. ``expected``: statuses that it may tell; ``known`` False: it cannot know it."""
    asked = f"asked about {request_id} it answered"
    if data is None:
        return [f"{asked} nothing, and before that it did answer"]
    try:
        reply = msgspec.json.decode(data, type=ProviderReply)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        return [f"{asked} {quoted(data)}: {error}"]
    if reply.error:
        return []
    found = []
    if reply.id not in ("", request_id):
        found.append(f"{asked} about {reply.id}")
    if not known and reply.known:
        found.append(f"{asked} as if it knew it: known: false has it asked again")
    if (reply.known or not known) and reply.status not in expected:
        may = " or ".join(repr(one) for one in sorted(expected))
        found.append(f"{asked} {reply.status!r}, and not {may}")
    return found
