"""The messages of a step: the put or deletion of the record, the fact for the provider, the
verdict.
"""

from __future__ import annotations

from typing import Final

from admittance.api.problems import shown
from admittance.checks import Pending, Ready, Reference, Rejected, Retry, Verdict
from admittance.events.base import HEADER_MSG_ID, HEADER_SCHEMA, SCHEMA_VERSION
from admittance.events.codec import encode
from admittance.events.provisioning import ProvisioningFact, ProvisioningRequested
from admittance.events.subjects import CAPACITY, object_key, subject_of
from admittance.provisioning.steps import CheckVerdict, RequestSlot, Step, Write
from admittance.runtime.bus import bucket
from admittance.runtime.bus.bus import Outgoing

MARKER_SECONDS: Final = 86_400.0
HEADER_CANCELLED: Final = "Admit-Taken-Back"
"""Header of the delete markers that this service writes. A delete marker without this header was
written by hand, and the provider may still hold capacity.
"""


def key_of(slot: RequestSlot, write: Write) -> str:
    """The key of the record that the step writes."""
    return object_key(CAPACITY, slot.namespace, write.name)


def record_message(slot: RequestSlot, write: Write) -> Outgoing:
    """The message that stores or deletes the record."""
    if write.record is None:
        return deletion((slot.namespace, write.name), write.expected)
    return bucket.put_message(key_of(slot, write), encode(write.record), expected=write.expected)


def deletion(name: tuple[str, str], expected: int) -> Outgoing:
    """The message that deletes the record of that namespace and name. The message's header says
    that this service deleted the record.
    """
    return bucket.delete_message(
        object_key(CAPACITY, *name),
        expected=expected,
        headers={HEADER_CANCELLED: "1"},
        ttl_seconds=MARKER_SECONDS,
    )


def fact_message(fact: ProvisioningFact, repetition: int) -> Outgoing:
    """The message that sends the fact to the provider. ``repetition``: how often the request was
    sent before. Raises ValueError if the request's id does not fit into a header.
    """
    kind = "requested" if isinstance(fact, ProvisioningRequested) else "cancelled"
    if not fact.id.isprintable():
        raise ValueError(f"the id {shown(fact.id)} does not fit into a header")
    suffix = f"/{repetition}" if repetition else ""
    headers = {
        HEADER_MSG_ID: f"provisioning/{kind}/{fact.id}{suffix}",
        HEADER_SCHEMA: SCHEMA_VERSION,
    }
    return Outgoing(subject_of(fact), encode(fact), headers)


def reference_of(step: Step) -> Reference:
    """The reference of the request to the check that the step's verdict answers."""
    assert step.report is not None, "the caller reports a verdict"
    return Reference(
        namespace=step.slot.namespace,
        name=step.slot.workload,
        uid=step.report.reservation.uid,
        check=step.slot.check,
        cycle=step.report.reservation.cycle,
    )


def verdict_of(found: CheckVerdict) -> Verdict:
    """The verdict in the form of `admittance.checks`."""
    match found.state:
        case "Ready":
            return Ready(found.message, pod_set_updates=found.updates)
        case "Retry":
            return Retry(found.message, after=found.after)
        case "Rejected":
            return Rejected(found.message)
    return Pending(found.message)
