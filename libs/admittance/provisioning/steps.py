"""The steps of one capacity request as values, the verdicts that follow from the state of a request
(docs/spec/lifecycle.md#5.2), and the record of the steps that this leader has taken.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from typing import Final, NamedTuple

import msgspec

from admittance.api.checks import ProvisioningRequestConfigSpec
from admittance.api.fields.problems import shown
from admittance.api.validation.workload import TypedPodSetUpdate, check_updates
from admittance.events.base import too_long
from admittance.events.provisioning import ProvisioningFact
from admittance.events.shapes import PodSetUpdate
from admittance.provisioning.records import DELAYS, Record, State, delay_seconds, is_last

NOT_NEEDED: Final = "the provisioning request is not needed"
NOT_ACTIVE: Final = "the check is not active"
DELETED: Final = "the request was deleted"
CONSUME: Final = "autoscaling.x-k8s.io/consume-provisioning-request"
CLASS: Final = "autoscaling.x-k8s.io/provisioning-class-name"


class CheckVerdict(NamedTuple):
    """A verdict of the check. ``state``: Pending, Ready, Retry or Rejected. ``after``: for a Retry,
    the seconds that the workload waits before it competes again. ``missing``: details that a node
    selector needs and the provider did not report.
    """

    state: str
    message: str = ""
    after: int | None = None
    updates: tuple[PodSetUpdate, ...] = ()
    missing: tuple[str, ...] = ()


def verdict_of_request(
    record: Record, config: ProvisioningRequestConfigSpec, *, admitted: bool
) -> CheckVerdict | None:
    """The verdict for the request's current state; None if the request's earlier verdict still
    holds.

    ``admitted``: whether the workload is admitted; then only a revocation changes the verdict."""
    status = record.status
    strategy = config.retry_strategy
    if status.state is State.CAPACITY_REVOKED:
        return CheckVerdict("Rejected", status.message or "The capacity was revoked")
    if admitted:
        return None
    if status.state in (State.FAILED, State.BOOKING_EXPIRED):
        attempt = record.spec.attempt
        text = status.message or f"the request ended as {status.state}"
        if is_last(attempt, strategy) or not status.retryable:
            return CheckVerdict("Rejected", text)
        after = status.retry_after
        if after is None or after not in DELAYS:
            after = delay_seconds(attempt, strategy)
        why = "failure" if status.state is State.FAILED else "booking expired"
        return CheckVerdict("Retry", f"Retrying after {why}: {text}", after)
    if status.state is State.PROVISIONED:
        updates, missing = updates_of(record, config)
        if why := too_long("podSetUpdates", updates) or _invalid(updates, _names(record)):
            # The workload-controller would refuse a Ready verdict with updates that are not valid.
            return CheckVerdict(
                "Rejected", f"the pod set updates of the capacity are not valid: {why}"
            )
        return CheckVerdict("Ready", status.message, updates=updates, missing=missing)
    if status.state is State.ACCEPTED:
        return CheckVerdict("Pending", status.message)
    return CheckVerdict("Pending", "")


def updates_of(
    record: Record, config: ProvisioningRequestConfigSpec
) -> tuple[tuple[PodSetUpdate, ...], tuple[str, ...]]:
    """The pod set updates once capacity is provisioned, one for each pod set, also for merged pod
    sets; and the names of the details that are left out because the provider did not report
    them.
    """
    details = record.status.details
    selector: dict[str, str] = {}
    missing: list[str] = []
    for rule in config.pod_set_updates.node_selector if config.pod_set_updates is not None else ():
        value = details.get(rule.value_from_provisioning_class_detail)
        if value is None:
            missing.append(rule.value_from_provisioning_class_detail)
        else:
            selector[rule.key] = value
    annotations = {CONSUME: record.metadata.name, CLASS: record.spec.provisioning_class_name}
    reported = {update.name: update for update in record.status.pod_set_updates}
    updates: list[PodSetUpdate] = []
    for name in _names(record):
        more = reported.get(name) or PodSetUpdate(name=name)
        updates.append(
            PodSetUpdate(
                name=name,
                labels=more.labels,
                # The provider's annotations replace other annotations with the same key: the
                # provider knows the name that pods must quote.
                annotations={**annotations, **more.annotations},
                node_selector={**more.node_selector, **selector},
                tolerations=more.tolerations,
            )
        )
    return tuple(updates), tuple(missing)


def ignored_updates(record: Record) -> list[str]:
    """A sentence for each pod set update of the provider that is ignored."""
    names, updated = _names(record), [update.name for update in record.status.pod_set_updates]
    duplicates = [name for name, count in Counter(updated).items() if count > 1]
    unknown = ", ".join(shown(name) for name in dict.fromkeys(updated) if name not in names)
    duplicate = ", ".join(shown(name) for name in duplicates if name in names)
    sentences = []
    if unknown:
        sentences.append(
            f"podSetUpdates for {unknown} are left out: the request is for {', '.join(names)}"
        )
    if duplicate:
        sentences.append(f"podSetUpdates for {duplicate} more than once: the last one counts")
    return sentences


def _invalid(updates: Sequence[PodSetUpdate], names: Sequence[str]) -> str:
    """Why the updates cannot be applied to pods, for instance an invalid label value; "" if they
    can.
    """
    try:
        read = msgspec.convert(msgspec.to_builtins(updates), tuple[TypedPodSetUpdate, ...])
    except msgspec.ValidationError as error:
        return f"podSetUpdates: {error}"
    return next(map(str, check_updates(read, names, "podSetUpdates")), "")


def _names(record: Record) -> Sequence[str]:
    return [name for group in record.spec.pod_sets for name in (group.names or (group.name,))]


class RequestSlot(NamedTuple):
    """One check of one workload. A slot has at most one capacity request at a time."""

    namespace: str
    workload: str
    check: str


class ReservationRef(NamedTuple):
    """Identifies a quota reservation: the workload's uid and admission cycle."""

    uid: str
    cycle: int


class Write(NamedTuple):
    """Stores the record at its key if the revision there is ``expected`` (0 if there is no record).
    If ``record`` is None, the write deletes the stored record.
    """

    name: str
    record: Record | None
    expected: int


class VerdictReport(NamedTuple):
    """Reports a verdict of the check."""

    reservation: ReservationRef
    verdict: CheckVerdict


class Step(NamedTuple):
    """One step of one slot, performed in the order of its fields: store the record, send ``fact``
    to the provider, report the check's verdict. After the step, the caller tells `ProvisioningCore`
    the outcome with `done`, `failed` or `cannot`.
    """

    slot: RequestSlot
    write: Write | None = None
    fact: ProvisioningFact | None = None
    report: VerdictReport | None = None


class ReportedVerdict(NamedTuple):
    """The last verdict reported, with the state that the check had in the workload at that time. If
    the check's state has changed since, the verdict is reported again. ``last`` False: another
    verdict may have been reported after this one.
    """

    report: VerdictReport
    state: str
    since: datetime | None
    last: bool = True


class LastRequest(NamedTuple):
    """The last request of a slot that has no record now. The id of this request must not be used
    again.
    """

    uid: str
    cycle: int
    generation: int


class BlockedStep(NamedTuple):
    """A step that cannot be performed, and why; the step is None if deciding it raised. ``noted``:
    whether the step ``note``, which writes the reason on the request, is done; ``note`` is None if
    there is no such step.
    """

    step: Step | None
    why: str
    noted: bool = False
    note: Step | None = None


class Memory:
    """Keeps what this leader has done so far about requests."""

    def __init__(self) -> None:
        self.in_flight: dict[RequestSlot, Step] = {}
        """For each slot the step that this leader is performing."""
        self.sent: set[str] = set()
        """Ids of the requests sent to providers."""
        self.cancelled: set[str] = set()
        """Ids of the requests cancelled at providers."""
        self.reported: dict[RequestSlot, ReportedVerdict] = {}
        self.last_requests: dict[RequestSlot, LastRequest] = {}
        self.blocked: dict[RequestSlot, BlockedStep] = {}

    def ended(self, slot: RequestSlot, record: Record) -> None:
        """Records that the slot's record was deleted."""
        spec = record.spec
        self.last_requests[slot] = LastRequest(spec.uid, spec.cycle, record.metadata.generation)

    def forget(self, record: Record) -> None:
        """Forgets that the request was sent and cancelled, because no later step is about that
        request."""
        self.sent.discard(record.spec.id)
        self.cancelled.discard(record.spec.id)
