"""Rules of AdmissionCheck, ProvisioningRequestConfig, WorkloadPriorityClass, ResourceFlavor and
Namespace: docs/spec/scheduling.md#1.2, #1.7, docs/spec/lifecycle.md#2.1, #3.7, #5.1.
"""

from __future__ import annotations

from collections.abc import Mapping
from string import ascii_letters, digits
from typing import Final

from admittance.api.checks import (
    AdmissionCheck,
    Namespace,
    ParametersReference,
    ProvisioningRequestConfig,
    RetryStrategy,
    WorkloadPriorityClass,
)
from admittance.api.limits import CONTROLLER_MAX, DETAIL_MAX, PARAMETER_MAX
from admittance.api.names import check_labels, is_kind, qualified, repeated
from admittance.api.problems import DUPLICATE, REQUIRED, TOO_LONG, Problem, shown
from admittance.api.queues import ResourceFlavor
from admittance.api.units import BadDuration, seconds
from admittance.api.validation.meta import (
    check_metadata,
    check_taints,
    check_tolerations,
    dns_label,
    object_name,
    unchanged,
)

CONTROLLER_TOKEN_MAX: Final = 249
"""Characters of a controller's name on the bus, where it names a durable after ``check-``; the
server allows 255."""
_PLAIN: Final = frozenset(f"{ascii_letters}{digits}-.".encode())


def check_admission_check(check: AdmissionCheck) -> list[Problem]:
    """Everything that is wrong with an AdmissionCheck by itself."""
    found = check_metadata(check.metadata, namespaced=False, kind="AdmissionCheck")
    spec = check.spec
    short = len(spec.controller_name) <= CONTROLLER_MAX
    if short and _token_length(spec.controller_name) > CONTROLLER_TOKEN_MAX:
        message = (
            f"has more than {CONTROLLER_TOKEN_MAX} characters on the bus, where any but letters, "
            "digits, - and . takes three or more"
        )
        found.append(Problem("spec.controllerName", message, TOO_LONG))
    if spec.parameters is not None:
        found += _parameters(spec.parameters)
    if spec.retry is not None:
        found += _retry(spec.retry)
    return found


def _token_length(name: str) -> int:
    """How long a name is as one token: see `admittance.events.names`, which is no room of ours."""
    encoded = name.encode("utf-8", "surrogatepass")
    return sum(1 if byte in _PLAIN else 3 for byte in encoded)


def check_admission_check_update(old: AdmissionCheck, new: AdmissionCheck) -> list[Problem]:
    return unchanged(old.spec.controller_name, new.spec.controller_name, "spec.controllerName")


def _parameters(parameters: ParametersReference) -> list[Problem]:
    field = "spec.parameters"
    found: list[Problem] = []
    if parameters.api_group:
        found += object_name(parameters.api_group, f"{field}.apiGroup")
    if parameters.kind and not is_kind(parameters.kind):
        found.append(Problem(f"{field}.kind", f"{shown(parameters.kind)} is no kind"))
    if parameters.name:
        found += dns_label(parameters.name, f"{field}.name")
    return found


def _retry(retry: RetryStrategy) -> list[Problem]:
    field = "spec.retry"
    found: list[Problem] = []
    for name, written in (("baseDelay", retry.base_delay), ("maxDelay", retry.max_delay)):
        if not written:
            continue
        try:
            if seconds(written) <= 0:
                found.append(Problem(f"{field}.{name}", f"must be more than 0, not {written}"))
        except BadDuration as error:
            found.append(Problem(f"{field}.{name}", str(error)))
    # Written so that a NaN is refused, too.
    if not 1 <= retry.factor < float("inf"):
        found.append(Problem(f"{field}.factor", f"must be at least 1, not {retry.factor}"))
    if not 0 <= retry.jitter <= 1:
        found.append(Problem(f"{field}.jitter", f"must be from 0 to 1, not {retry.jitter}"))
    return found


def check_provisioning(config: ProvisioningRequestConfig) -> list[Problem]:
    """Everything that is wrong with a ProvisioningRequestConfig by itself."""
    found = check_metadata(config.metadata, namespaced=False, kind="ProvisioningRequestConfig")
    spec = config.spec
    if spec.provisioning_class_name:
        found += object_name(spec.provisioning_class_name, "spec.provisioningClassName")
    found += _provisioning_parameters(spec.parameters)
    for i, name in enumerate(spec.managed_resources):
        if complaint := qualified(name):
            # It would match no pod, so no capacity would ever be requested.
            found.append(Problem(f"spec.managedResources[{i}]", f"names no resource: {complaint}"))
    for i in repeated(spec.managed_resources):
        message = f"{shown(spec.managed_resources[i])} is there twice"
        found.append(Problem(f"spec.managedResources[{i}]", message, DUPLICATE))
    if spec.pod_set_updates is not None:
        updates = spec.pod_set_updates.node_selector
        field = "spec.podSetUpdates.nodeSelector"
        for i in repeated(one.key for one in updates):
            message = f"{shown(updates[i].key)} is there twice"
            found.append(Problem(f"{field}[{i}].key", message, DUPLICATE))
        for i, one in enumerate(updates):
            if complaint := qualified(one.key):
                found.append(Problem(f"{field}[{i}].key", complaint))
            detail = one.value_from_provisioning_class_detail
            if not 1 <= len(detail) <= DETAIL_MAX:
                path = f"{field}[{i}].valueFromProvisioningClassDetail"
                found.append(Problem(path, f"must have 1 to {DETAIL_MAX} characters"))
    return found


def _provisioning_parameters(parameters: Mapping[str, str]) -> list[Problem]:
    """As many and as long as a request takes: see `admittance.provisioning.request_content`."""
    field = "spec.parameters"
    found: list[Problem] = []
    message = f"has more than {PARAMETER_MAX} characters"
    for key, value in parameters.items():
        if not key:
            found.append(Problem(field, "has a parameter without a name"))
        elif len(key) > PARAMETER_MAX:
            found.append(Problem(f"{field}[{key[:60]}]", f"the name {message}", TOO_LONG))
        if len(value) > PARAMETER_MAX:
            found.append(Problem(f"{field}[{key[:60]}]", message, TOO_LONG))
    return found


def check_priority_class(given: WorkloadPriorityClass) -> list[Problem]:
    """Everything that is wrong with a WorkloadPriorityClass by itself."""
    return check_metadata(given.metadata, namespaced=False, kind="WorkloadPriorityClass")


def check_flavor(flavor: ResourceFlavor) -> list[Problem]:
    """Everything that is wrong with a ResourceFlavor by itself."""
    found = check_metadata(flavor.metadata, namespaced=False, kind="ResourceFlavor")
    spec = flavor.spec
    found += check_labels(spec.node_labels, "spec.nodeLabels")
    found += check_taints(spec.node_taints, "spec.nodeTaints")
    found += check_tolerations(spec.tolerations, "spec.tolerations")
    if spec.topology_name is not None:
        found += object_name(spec.topology_name, "spec.topologyName")
        if not spec.node_labels:
            message = "must have at least one label while topologyName is set"
            found.append(Problem("spec.nodeLabels", message, REQUIRED))
    return found


def check_flavor_update(old: ResourceFlavor, new: ResourceFlavor) -> list[Problem]:
    if old.spec.topology_name is None:
        return []
    return unchanged(old.spec.topology_name, new.spec.topology_name, "spec.topologyName")


def check_namespace(namespace: Namespace) -> list[Problem]:
    """A Namespace is here for its labels."""
    return check_metadata(namespace.metadata, namespaced=False, kind="Namespace")
