"""The objects of one request in the cluster: their names, labels and bodies. Pure.

A name is the workload's, cut where it is too long, and a hash of the request's id, so that the same
request always has the same and no two have one. The full id stands in an annotation: it, and not
the name, tells whose an object is.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import Any, Final

import msgspec

from admittance.providers.builtin import CLASS, INSTALLATION, REQUEST

NAME_MAX: Final = 253
API: Final = "autoscaling.x-k8s.io/v1"
KIND: Final = "ProvisioningRequest"
MANAGED: Final = "kueue.x-k8s.io/managed"
WORKLOAD: Final = "admittance.dev/workload"

_UNSAFE = re.compile(r"[^a-z0-9.-]+")
_DOTS = re.compile(r"[.-]*\.[.-]*")


def digest(request_id: str) -> str:
    """A value for labels that stands for the id."""
    return blake2b(request_id.encode(), digest_size=16).hexdigest()


def request_name(workload: str, request_id: str) -> str:
    """The name of the ProvisioningRequest, the same for the same id."""
    return _named(workload, digest(request_id)[:10])


def template_name(request: str, pod_set: str) -> str:
    """The name of the pod template of one pod set."""
    plain = f"ppt-{request}-{pod_set}"
    if plain == _plain(plain) and len(plain) <= NAME_MAX:
        return plain
    return _named(plain, blake2b(plain.encode(), digest_size=5).hexdigest())


def _named(text: str, tail: str) -> str:
    """A DNS subdomain of at most 253 characters that ends with tail."""
    cut = _plain(text)[: NAME_MAX - len(tail) - 1].rstrip("-.")
    return f"{cut}-{tail}" if cut else f"w-{tail}"


def _plain(text: str) -> str:
    return _DOTS.sub(".", _UNSAFE.sub("-", text.lower())).strip("-.")


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """Whose objects they are. ``namespace``: the cluster's."""

    id: str
    provisioning_class: str
    installation: str
    namespace: str
    workload: str
    about: str = ""

    @property
    def name(self) -> str:
        """Of the ProvisioningRequest."""
        return request_name(self.workload, self.id)

    def metadata(self, name: str) -> dict[str, Any]:
        """Of one of the objects."""
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


def template_body(asked: Asked, pod_set: str, template: Mapping[str, Any]) -> dict[str, Any]:
    """A PodTemplate."""
    return {
        "apiVersion": "v1",
        "kind": "PodTemplate",
        "metadata": asked.metadata(template_name(asked.name, pod_set)),
        "template": template,
    }


def request_body(
    asked: Asked, counts: Sequence[tuple[str, int]], parameters: Mapping[str, str]
) -> dict[str, Any]:
    """A ProvisioningRequest for so many pods of each pod set."""
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


def adoption(request: str, uid: str) -> dict[str, Any]:
    """A patch of a template: the cluster deletes it with its request."""
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
    """The label selector of what other installations of Admittance have made."""
    return f"{INSTALLATION},{INSTALLATION}!={installation}"


def selector(installation: str, request_id: str | None = None) -> str:
    """The label selector of all our objects, or of those of one request."""
    found = f"{MANAGED}=true,{INSTALLATION}={installation}"
    return f"{found},{REQUEST}={digest(request_id)}" if request_id is not None else found
