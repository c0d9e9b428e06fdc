"""Rules of AdmissionCheck, ProvisioningRequestConfig and ResourceFlavor.

Source: docs/spec/scheduling.md#1.2, docs/spec/lifecycle.md#2.1, #5.1.
"""

from __future__ import annotations

from string import ascii_letters, digits
from typing import Final

from admittance.api.checks import AdmissionCheck, ProvisioningRequestConfig
from admittance.api.limits import CONTROLLER_MAX
from admittance.api.names import check_unique
from admittance.api.problems import REQUIRED, TOO_LONG, Problem
from admittance.api.queues import ResourceFlavor
from admittance.api.validation.meta import check_taints, check_tolerations, unchanged

CONTROLLER_TOKEN_MAX: Final = 249
"""The most characters of a controller's name as a token on the bus: its durable consumer is named
``check-<token>``, and the server allows 255 characters.
"""
_PLAIN: Final = frozenset(f"{ascii_letters}{digits}-.".encode())


def check_admission_check(check: AdmissionCheck) -> list[Problem]:
    name = check.spec.controller_name
    if len(name) > CONTROLLER_MAX or _token_length(name) <= CONTROLLER_TOKEN_MAX:
        return []
    message = (
        f"has more than {CONTROLLER_TOKEN_MAX} characters on the bus, where any but letters, "
        "digits, - and . takes three or more"
    )
    return [Problem("spec.controllerName", message, TOO_LONG)]


def _token_length(name: str) -> int:
    """The length of the name as one token of a subject: see `admittance.events.names`, which this
    package does not import."""
    encoded = name.encode("utf-8", "surrogatepass")
    return sum(1 if byte in _PLAIN else 3 for byte in encoded)


def check_admission_check_update(old: AdmissionCheck, new: AdmissionCheck) -> list[Problem]:
    return unchanged(old.spec.controller_name, new.spec.controller_name, "spec.controllerName")


def check_provisioning(config: ProvisioningRequestConfig) -> list[Problem]:
    spec = config.spec
    found = check_unique(spec.managed_resources, "spec.managedResources")
    if spec.pod_set_updates is not None:
        keys = [one.key for one in spec.pod_set_updates.node_selector]
        found += check_unique(keys, "spec.podSetUpdates.nodeSelector", ".key")
    return found


def check_flavor(flavor: ResourceFlavor) -> list[Problem]:
    spec = flavor.spec
    found = check_taints(spec.node_taints, "spec.nodeTaints")
    found += check_tolerations(spec.tolerations, "spec.tolerations")
    if spec.topology_name is not None and not spec.node_labels:
        message = "must have at least one label while topologyName is set"
        found.append(Problem("spec.nodeLabels", message, REQUIRED))
    return found


def check_flavor_update(old: ResourceFlavor, new: ResourceFlavor) -> list[Problem]:
    if old.spec.topology_name is None:
        return []
    return unchanged(old.spec.topology_name, new.spec.topology_name, "spec.topologyName")
