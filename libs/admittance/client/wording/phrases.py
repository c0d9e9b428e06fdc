"""Parts of sentences about workloads: amounts, admissions, failed pods."""

from __future__ import annotations

from admittance.api.fields.units import render
from admittance.client.arguments.times import stamp
from admittance.events.shapes import Admission, PodRetries
from admittance.quota.cell import UNLIMITED


def amount_text(resource: str, amount: int) -> str:
    """An amount of a resource as text."""
    return "unlimited" if amount >= UNLIMITED else render(resource, amount)


def admission_text(admission: Admission) -> str:
    """The admission as text, like ``cluster-queue: main on spot``."""
    pods = ", ".join(
        f"{assignment.name} on {'+'.join(dict.fromkeys(assignment.flavors.values())) or 'nothing'}"
        for assignment in admission.pod_set_assignments
    )
    return f"{admission.cluster_queue}: {pods}" if pods else admission.cluster_queue


def retries_text(retries: PodRetries) -> str:
    """How often pods of a run have failed, and what follows, as a clause."""
    verb = "waits" if retries.waiting == 1 else "wait"
    waits = f", {retries.waiting:,} {verb} to run again" if retries.waiting else ""
    first = f" (the next at {stamp(retries.pods[0].at)})" if retries.pods else ""
    indexes = "index has" if retries.given_up == 1 else "indexes have"
    gone = f", {retries.given_up:,} {indexes} failed for good" if retries.given_up else ""
    times = "once" if retries.failed == 1 else f"{retries.failed:,} times"
    last = f": {retries.message}" if retries.message else ""
    return f"{times}{waits}{first}{gone}{last}"
