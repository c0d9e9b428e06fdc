"""The objects in the cluster for a request: their names, labels and bodies, and the answers to the
request that follow from the conditions of its ProvisioningRequest. Pure.

The name of an object consists of the workload's name, which is cut if it is too long, and a hash of
the request's id. Therefore the name is stable and unique for the request. An annotation of the
object has the full id, which proves that the object belongs to the request.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from hashlib import blake2b
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
from admittance.providers.answers import fitting_details
from admittance.providers.builtin import CLASS, INSTALLATION, REQUEST
from admittance.provisioning.steps import CLASS as CLASS_ANNOTATION
from admittance.provisioning.steps import CONSUME

NAME_MAX: Final = 253
API: Final = "autoscaling.x-k8s.io/v1"
KIND: Final = "ProvisioningRequest"
MANAGED: Final = "kueue.x-k8s.io/managed"
WORKLOAD: Final = "admittance.dev/workload"

_UNSAFE = re.compile(r"[^a-z0-9.-]+")
_DOTS = re.compile(r"[.-]*\.[.-]*")


def digest(request_id: str) -> str:
    """The label value that stands for the request's id: a hash of the id."""
    return blake2b(request_id.encode(), digest_size=16).hexdigest()


def request_name(workload: str, request_id: str) -> str:
    """The name of the ProvisioningRequest for a request: always the same for the same request
    id."""
    return _named(workload, digest(request_id)[:10])


def template_name(request: str, pod_set: str) -> str:
    """The name of the PodTemplate object for one pod set of the ProvisioningRequest ``request``."""
    plain = f"ppt-{request}-{pod_set}"
    if plain == _plain(plain) and len(plain) <= NAME_MAX:
        return plain
    return _named(plain, blake2b(plain.encode(), digest_size=5).hexdigest())


def _named(text: str, tail: str) -> str:
    """A DNS subdomain of at most 253 characters that begins with ``text`` and ends with
    ``tail``.
    """
    cut = _plain(text)[: NAME_MAX - len(tail) - 1].rstrip("-.")
    return f"{cut}-{tail}" if cut else f"w-{tail}"


def _plain(text: str) -> str:
    return _DOTS.sub(".", _UNSAFE.sub("-", text.lower())).strip("-.")


class ObjectIdentity(msgspec.Struct, frozen=True, kw_only=True):
    """The request for capacity to which objects in the cluster belong. ``namespace``: the cluster's
    namespace of the objects."""

    id: str
    provisioning_class: str
    installation: str
    namespace: str
    workload: str
    about: str = ""

    @property
    def name(self) -> str:
        """The name of the request's ProvisioningRequest object."""
        return request_name(self.workload, self.id)

    def metadata(self, name: str) -> dict[str, Any]:
        """The metadata of an object for the request; ``name``: the name of this object."""
        return {
            "name": name,
            "namespace": self.namespace,
            "labels": {
                MANAGED: "true",
                INSTALLATION: self.installation,
                REQUEST: digest(self.id),
            },
            "annotations": {
                REQUEST: self.id,
                CLASS: self.provisioning_class,
                WORKLOAD: self.about,
            },
        }


def template_body(
    asked: ObjectIdentity, pod_set: str, template: Mapping[str, Any]
) -> dict[str, Any]:
    """The body of a PodTemplate object for one pod set."""
    return {
        "apiVersion": "v1",
        "kind": "PodTemplate",
        "metadata": asked.metadata(template_name(asked.name, pod_set)),
        "template": template,
    }


def request_body(
    asked: ObjectIdentity, counts: Sequence[tuple[str, int]], parameters: Mapping[str, str]
) -> dict[str, Any]:
    """The body of a ProvisioningRequest. ``counts``: the name of each pod set, and the number of
    its pods."""
    spec: dict[str, Any] = {
        "provisioningClassName": asked.provisioning_class,
        "podSets": [
            {"podTemplateRef": {"name": template_name(asked.name, pod_set)}, "count": count}
            for pod_set, count in counts
        ],
    }
    if parameters:
        spec["parameters"] = dict(parameters)
    return {
        "apiVersion": API,
        "kind": KIND,
        "metadata": asked.metadata(asked.name),
        "spec": spec,
    }


def adoption_patch(request: str, uid: str) -> dict[str, Any]:
    """A patch that makes the ProvisioningRequest the owner of a PodTemplate, so that the cluster
    deletes both together."""
    owner = {
        "apiVersion": API,
        "kind": KIND,
        "name": request,
        "uid": uid,
        "controller": True,
        "blockOwnerDeletion": False,
    }
    return {"metadata": {"ownerReferences": [owner]}}


def selector_of_others(installation: str) -> str:
    """The label selector that selects the objects of other installations of Admittance."""
    return f"{INSTALLATION},{INSTALLATION}!={installation}"


def selector(installation: str, request_id: str | None = None) -> str:
    """The label selector that selects all objects of this installation, or only the objects of one
    request."""
    text = f"{MANAGED}=true,{INSTALLATION}={installation}"
    return f"{text},{REQUEST}={digest(request_id)}" if request_id is not None else text


MESSAGE_MAX: Final = 4096


class Condition(msgspec.Struct, frozen=True):
    """A condition of a ProvisioningRequest."""

    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""

    @property
    def text(self) -> str:
        """The message of the condition for users, or the reason if the condition has no message."""
        return (self.message or self.reason)[:MESSAGE_MAX]


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """A ProvisioningRequest as it was last listed or watched. ``version``: the resource version of
    the object.
    """

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
        """The condition of the type ``kind`` if the status of the condition is True, else None."""
        condition = self.conditions.get(kind)
        return condition if condition is not None and condition.status == "True" else None


def seen_of(manifest: Mapping[str, Any]) -> Seen | None:
    """The ProvisioningRequest that a manifest describes; None if the manifest has no labels of
    Admittance, or is not valid.
    """
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
        conditions={condition.type: condition for condition in conditions},
        details={str(key): str(value) for key, value in details.items()},
    )


def status_of(seen: Seen, pod_sets: Sequence[str] = ()) -> Status | None:
    """The answer to a request that follows from its ProvisioningRequest; None if no condition gives
    an answer yet. Of the conditions that are True, the first in the order of
    docs/spec/lifecycle.md#5.2 decides.

    ``pod_sets``: the names of the pod sets that get the name of the ProvisioningRequest as an
    annotation, so that their pods consume the capacity."""
    if (failed := seen.true("Failed")) is not None:
        return Failed(failed.text or "the request failed")
    over = end_of(seen)
    if over is not None:
        return over
    details = fitting_details(seen.details)
    if (provisioned := seen.true("Provisioned")) is not None:
        consume = {CONSUME: seen.name, CLASS_ANNOTATION: seen.provisioning_class}
        updates = tuple(PodSetUpdate(name=name, annotations=consume) for name in pod_sets)
        text = provisioned.text or "the capacity is provisioned"
        return Provisioned(text, details, pod_set_updates=updates)
    if (accepted := seen.true("Accepted")) is not None:
        # Until the condition Provisioned is True, the message of this condition is an estimate.
        estimate = seen.conditions.get("Provisioned", accepted)
        return Accepted(estimate.text or accepted.text, details)
    return None


def end_of(seen: Seen) -> BookingExpired | CapacityRevoked | None:
    """How the capacity of the ProvisioningRequest has ended; None if it has not ended."""
    if (revoked := seen.true("CapacityRevoked")) is not None:
        return CapacityRevoked(revoked.text or "the capacity was revoked")
    if (expired := seen.true("BookingExpired")) is not None:
        return BookingExpired(expired.text or "the booking has expired")
    return None
