"""The messages of a provisioning step: the write or deletion of the request record, the fact for
the provider, the verdict of the check.
"""

from __future__ import annotations

from typing import Final

from admittance.api.fields.problems import shown
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
"""The header of the delete markers that the provisioning check writes for records. A delete marker
without this header was written by hand, so the provider may still hold capacity for the deleted
record's request.
"""


def key_of(slot: RequestSlot, write: Write) -> str:
    """The key of the request record that a step for the slot writes."""
    return object_key(CAPACITY, slot.namespace, write.name)


def record_message(slot: RequestSlot, write: Write) -> Outgoing:
    """The message that stores or deletes the request record in the bucket, as ``write`` says."""
    if write.record is None:
        return deletion((slot.namespace, write.name), write.expected)
    return bucket.put_message(key_of(slot, write), encode(write.record), expected=write.expected)


def deletion(name: tuple[str, str], expected: int) -> Outgoing:
    """The message that deletes the request record with this namespace and name. The message's
    header says that the provisioning check deleted the record.
    """
    return bucket.delete_message(
        object_key(CAPACITY, *name),
        expected=expected,
        headers={HEADER_CANCELLED: "1"},
        ttl_seconds=MARKER_SECONDS,
    )


def fact_message(fact: ProvisioningFact, repetition: int) -> Outgoing:
    """The message that sends the fact to the provider. ``repetition``: how often the provisioning
    check has sent the request before. Raises ValueError if the request's id does not fit into a
    header.
    """
    kind = "requested" if isinstance(fact, ProvisioningRequested) else "cancelled"
    if not fact.id.isprintable():
        raise ValueError(f"the request id {shown(fact.id)} does not fit into a message header")
    suffix = f"/{repetition}" if repetition else ""
    headers = {
        HEADER_MSG_ID: f"provisioning/{kind}/{fact.id}{suffix}",
        HEADER_SCHEMA: SCHEMA_VERSION,
    }
    return Outgoing(subject_of(fact), encode(fact), headers)


def reference_of(step: Step) -> Reference:
    """The reference that identifies the request for an admission check which the step's verdict
    answers."""
    assert step.report is not None, "the caller reports a verdict"
    return Reference(
        namespace=step.slot.namespace,
        name=step.slot.workload,
        uid=step.report.reservation.uid,
        check=step.slot.check,
        cycle=step.report.reservation.cycle,
    )


def verdict_of(verdict: CheckVerdict) -> Verdict:
    """Converts the core's verdict to a verdict of `admittance.checks`."""
    match verdict.state:
        case "Ready":
            return Ready(verdict.message, pod_set_updates=verdict.updates)
        case "Retry":
            return Retry(verdict.message, after=verdict.after)
        case "Rejected":
            return Rejected(verdict.message)
    return Pending(verdict.message)
