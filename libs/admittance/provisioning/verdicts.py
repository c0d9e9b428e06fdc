"""The check's verdict that follows from the state of a request. docs/spec/lifecycle.md#5.2."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final, NamedTuple

import msgspec

from admittance.api.checks import ProvisioningRequestConfigSpec
from admittance.api.problems import shown
from admittance.api.validation.workload import TypedPodSetUpdate, check_updates
from admittance.events.base import too_long
from admittance.events.shapes import PodSetUpdate
from admittance.provisioning.records import DELAYS, Record, State, delay_seconds, is_last

NOT_NEEDED: Final = "the provisioning request is not needed"
NOT_ACTIVE: Final = "the check is not active"
DELETED: Final = "the request was deleted"
CONSUME: Final = "autoscaling.x-k8s.io/consume-provisioning-request"
CLASS: Final = "autoscaling.x-k8s.io/provisioning-class-name"


class CheckVerdict(NamedTuple):
    """A verdict of the check. ``state``: Pending, Ready, Retry or Rejected. ``after``: seconds to
    wait before a Retry. ``missing``: details that a node selector needs and the provider did not
    report.
    """

    state: str
    message: str = ""
    after: int | None = None
    updates: tuple[PodSetUpdate, ...] = ()
    missing: tuple[str, ...] = ()


def verdict_of_request(
    record: Record, config: ProvisioningRequestConfigSpec, *, admitted: bool
) -> CheckVerdict | None:
    """The verdict for the request's current state; None if the earlier verdict remains.

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
    for one in config.pod_set_updates.node_selector if config.pod_set_updates is not None else ():
        value = details.get(one.value_from_provisioning_class_detail)
        if value is None:
            missing.append(one.value_from_provisioning_class_detail)
        else:
            selector[one.key] = value
    annotations = {CONSUME: record.metadata.name, CLASS: record.spec.provisioning_class_name}
    reported = {one.name: one for one in record.status.pod_set_updates}
    found: list[PodSetUpdate] = []
    for name in _names(record):
        more = reported.get(name) or PodSetUpdate(name=name)
        found.append(
            PodSetUpdate(
                name=name,
                labels=more.labels,
                # The provider's annotations replace others: the provider knows the name that pods
                # must quote.
                annotations={**annotations, **more.annotations},
                node_selector={**more.node_selector, **selector},
                tolerations=more.tolerations,
            )
        )
    return tuple(found), tuple(missing)


def ignored_updates(record: Record) -> list[str]:
    """A sentence for each pod set update of the provider that is ignored."""
    names, updated = _names(record), [one.name for one in record.status.pod_set_updates]
    duplicates = [name for name, count in Counter(updated).items() if count > 1]
    unknown = ", ".join(shown(one) for one in dict.fromkeys(updated) if one not in names)
    duplicate = ", ".join(shown(one) for one in duplicates if one in names)
    found = []
    if unknown:
        found.append(
            f"podSetUpdates for {unknown} are left out: the request is for {', '.join(names)}"
        )
    if duplicate:
        found.append(f"podSetUpdates for {duplicate} more than once: the last one counts")
    return found


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
