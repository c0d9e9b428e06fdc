"""Messages of a step: the record, the fact for the provider, the verdict of the check."""

from __future__ import annotations

from typing import Final

from admittance.api.problems import shown
from admittance.checks import Pending, Ready, Reference, Rejected, Retry, Verdict
from admittance.events.base import HEADER_MSG_ID, HEADER_SCHEMA, SCHEMA_VERSION
from admittance.events.codec import encode
from admittance.events.provisioning import ProvisioningFact, ProvisioningRequested
from admittance.events.subjects import CAPACITY, object_key, subject_of
from admittance.provisioning.answers import Answer
from admittance.provisioning.steps import Slot, Step, Write
from admittance.runtime.bus import bucket
from admittance.runtime.bus.bus import Outgoing

MARKER_SECONDS: Final = 86_400.0
HEADER_TAKEN_BACK: Final = "Admit-Taken-Back"
"""Header of delete markers that this service wrote: the provider does not need a cancellation any
more."""


def key_of(slot: Slot, write: Write) -> str:
    """The key of the record."""
    return object_key(CAPACITY, slot.namespace, write.name)


def written(slot: Slot, write: Write) -> Outgoing:
    """The message that puts or deletes the record."""
    if write.record is None:
        return taken_back((slot.namespace, write.name), write.expected)
    return bucket.put_message(key_of(slot, write), encode(write.record), expected=write.expected)


def taken_back(name: tuple[str, str], expected: int) -> Outgoing:
    """The message that deletes the record of that namespace and name, marked as this service's
    own."""
    return bucket.delete_message(
        object_key(CAPACITY, *name),
        expected=expected,
        headers={HEADER_TAKEN_BACK: "1"},
        ttl_seconds=MARKER_SECONDS,
    )


def stated(fact: ProvisioningFact, time: int) -> Outgoing:
    """The message for the provider. ``time``: how often the request was sent again. Raises
    ValueError if the id does not fit into a header."""
    what = "requested" if isinstance(fact, ProvisioningRequested) else "cancelled"
    if not fact.id.isprintable():
        raise ValueError(f"the id {shown(fact.id)} does not fit into a header")
    again = f"/{time}" if time else ""
    headers = {
        HEADER_MSG_ID: f"provisioning/{what}/{fact.id}{again}",
        HEADER_SCHEMA: SCHEMA_VERSION,
    }
    return Outgoing(subject_of(fact), encode(fact), headers)


def reference_of(step: Step) -> Reference:
    """The reference of the check's request that the verdict answers."""
    assert step.tell is not None, "there is something to tell"
    return Reference(
        namespace=step.slot.namespace,
        name=step.slot.workload,
        uid=step.tell.about.uid,
        check=step.slot.check,
        cycle=step.tell.about.cycle,
    )


def verdict_of(answer: Answer) -> Verdict:
    """The answer as a `Verdict`."""
    match answer.state:
        case "Ready":
            return Ready(answer.message, pod_set_updates=answer.updates)
        case "Retry":
            return Retry(answer.message, after=answer.after)
        case "Rejected":
            return Rejected(answer.message)
    return Pending(answer.message)
