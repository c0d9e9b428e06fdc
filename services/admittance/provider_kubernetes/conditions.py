"""What the conditions of a ProvisioningRequest mean for whoever asked for it. Pure.
LIFECYCLE 5.2, top down; a condition counts where its status is True.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from admittance.events.shapes import PodSetUpdate
from admittance.providers import (
    Accepted,
    BookingExpired,
    CapacityRevoked,
    Failed,
    Provisioned,
    Status,
)
from admittance.providers.answers import fitting
from admittance.providers.builtin import CLASS, INSTALLATION, REQUEST
from admittance.provisioning.answers import CLASS as CLASS_ANNOTATION
from admittance.provisioning.answers import CONSUME

MESSAGE_MAX: Final = 4096


class Condition(msgspec.Struct, frozen=True):
    """One condition."""

    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""

    @property
    def text(self) -> str:
        """For people."""
        return (self.message or self.reason)[:MESSAGE_MAX]


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """A ProvisioningRequest as it was last seen. ``version``: of the object."""

    id: str
    provisioning_class: str
    installation: str
    namespace: str
    name: str
    uid: str
    version: str = ""
    deleting: bool = False
    conditions: Mapping[str, Condition] = {}
    details: Mapping[str, str] = {}

    def true(self, kind: str) -> Condition | None:
        """The condition of that type, where it is True."""
        found = self.conditions.get(kind)
        return found if found is not None and found.status == "True" else None


def seen_of(manifest: Mapping[str, Any]) -> Seen | None:
    """What an object of the API shows; None: it is not one of ours, or none at all."""
    try:
        return _seen_of(manifest)
    except (KeyError, TypeError, AttributeError, msgspec.ValidationError):
        return None


def _seen_of(manifest: Mapping[str, Any]) -> Seen | None:
    metadata = manifest["metadata"]
    annotations = metadata.get("annotations") or {}
    labels = metadata.get("labels") or {}
    if REQUEST not in annotations or INSTALLATION not in labels:
        return None
    status = manifest.get("status") or {}
    conditions = msgspec.convert(status.get("conditions") or [], list[Condition])
    details = status.get("provisioningClassDetails") or {}
    return Seen(
        id=annotations[REQUEST],
        provisioning_class=annotations.get(CLASS) or manifest["spec"]["provisioningClassName"],
        installation=labels[INSTALLATION],
        namespace=metadata["namespace"],
        name=metadata["name"],
        uid=metadata["uid"],
        version=str(metadata.get("resourceVersion", "")),
        deleting=bool(metadata.get("deletionTimestamp")),
        conditions={one.type: one for one in conditions},
        details={str(key): str(value) for key, value in details.items()},
    )


def answer(seen: Seen, pod_sets: Sequence[str] = ()) -> Status | None:
    """What is answered to a request that has not come to its end; None: nothing yet.

    ``pod_sets``: whose pods consume it, by the name that the object has in the cluster.
    """
    if (failed := seen.true("Failed")) is not None:
        return Failed(failed.text or "the request failed")
    over = afterwards(seen)
    if over is not None:
        return over
    details = fitting(seen.details)
    if (provisioned := seen.true("Provisioned")) is not None:
        consume = {CONSUME: seen.name, CLASS_ANNOTATION: seen.provisioning_class}
        updates = tuple(PodSetUpdate(name=name, annotations=consume) for name in pod_sets)
        text = provisioned.text or "the capacity is there"
        return Provisioned(text, details, pod_set_updates=updates)
    if (accepted := seen.true("Accepted")) is not None:
        # Where it is not provisioned yet, that condition tells until when it will be.
        estimate = seen.conditions.get("Provisioned", accepted)
        return Accepted(estimate.text or accepted.text, details)
    return None


def afterwards(seen: Seen) -> BookingExpired | CapacityRevoked | None:
    """What has become of what was provisioned; None: it is still there."""
    if (revoked := seen.true("CapacityRevoked")) is not None:
        return CapacityRevoked(revoked.text or "the capacity was revoked")
    if (expired := seen.true("BookingExpired")) is not None:
        return BookingExpired(expired.text or "the booking has expired")
    return None
