"""Rules of pod templates: requests, limits, selectors, affinity and tolerations."""

from __future__ import annotations

from collections.abc import Mapping

from admittance.api.limits import NODE_OPERATORS, Quantity
from admittance.api.names import check_annotations, check_labels, qualified
from admittance.api.pods import Affinity, Container, PodSpec, PodTemplate, ResourceRequirements
from admittance.api.problems import Problem
from admittance.api.units import BadQuantity, parse
from admittance.api.validation.meta import check_tolerations, check_values
from admittance.api.workload import WorkloadSpec


def check_template(template: PodTemplate, path: str) -> list[Problem]:
    """Labels, requests, limits, selectors and tolerations of a pod template."""
    found: list[Problem] = []
    if template.metadata.labels:
        found += check_labels(template.metadata.labels, f"{path}.metadata.labels")
    if template.metadata.annotations:
        found += check_annotations(template.metadata.annotations, f"{path}.metadata.annotations")
    return found + _pod(template.spec, f"{path}.spec")


def _pod(pod: PodSpec, path: str) -> list[Problem]:
    found: list[Problem] = []
    for i, container in enumerate(pod.init_containers):
        found += _container(container, f"{path}.initContainers[{i}]")
    for i, container in enumerate(pod.containers):
        found += _container(container, f"{path}.containers[{i}]")
    if pod.resources is not None:
        found += _resources(pod.resources, f"{path}.resources")
    if pod.overhead:
        found += _quantities(pod.overhead, f"{path}.overhead")
    if pod.node_selector:
        found += check_labels(pod.node_selector, f"{path}.nodeSelector")
    if pod.tolerations:
        found += check_tolerations(pod.tolerations, f"{path}.tolerations")
    if pod.affinity is not None:
        found += _affinity(pod.affinity, f"{path}.affinity")
    return found


def _container(container: Container, path: str) -> list[Problem]:
    if container.resources.requests or container.resources.limits:
        return _resources(container.resources, f"{path}.resources")
    return []


def _resources(resources: ResourceRequirements, path: str) -> list[Problem]:
    # Whether requests exceed limits is no matter of the manifest: such a workload may exist, but
    # is inadmissible, as `exceeding` says.
    found = _quantities(resources.requests, f"{path}.requests")
    if resources.limits:
        found += _quantities(resources.limits, f"{path}.limits")
    return found


def _quantities(quantities: Mapping[str, Quantity], path: str) -> list[Problem]:
    found: list[Problem] = []
    for resource, written in quantities.items():
        if resource == "pods":
            found.append(Problem(f"{path}[pods]", "is reserved: pods are counted, not asked for"))
        elif complaint := qualified(resource):
            found.append(Problem(f"{path}[{resource}]", complaint))
        try:
            if parse(written) < 0:
                message = f"must not be negative, not {written}"
                found.append(Problem(f"{path}[{resource}]", message))
        except BadQuantity as error:
            found.append(Problem(f"{path}[{resource}]", str(error)))
    return found


def exceeding(workload: WorkloadSpec) -> list[Problem]:
    """Where a request exceeds its limit: such a workload is inadmissible."""
    found: list[Problem] = []
    for i, pod_set in enumerate(workload.pod_sets):
        pod, path = pod_set.template.spec, f"spec.podSets[{i}].template.spec"
        places = [
            (one.resources, f"{path}.initContainers[{j}]")
            for j, one in enumerate(pod.init_containers)
        ]
        places += [
            (one.resources, f"{path}.containers[{j}]") for j, one in enumerate(pod.containers)
        ]
        if pod.resources is not None:
            places.append((pod.resources, f"{path}.resources"))
        for resources, field in places:
            over = [
                name
                for name, limit in resources.limits.items()
                if name in resources.requests and parse(resources.requests[name]) > parse(limit)
            ]
            if over:
                found.append(Problem(field, f"requests exceed limits: {', '.join(over)}"))
    return found


def _affinity(affinity: Affinity, path: str) -> list[Problem]:
    if affinity.node_affinity is None:
        return []
    required = affinity.node_affinity.required_during_scheduling_ignored_during_execution
    if required is None:
        return []
    path += ".nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms"
    found: list[Problem] = []
    for i, term in enumerate(required.node_selector_terms):
        for j, one in enumerate(term.match_expressions):
            field = f"{path}[{i}].matchExpressions[{j}]"
            if complaint := qualified(one.key):
                found.append(Problem(f"{field}.key", complaint))
            found += check_values(one.operator, one.values, field, NODE_OPERATORS)
        for j, field_term in enumerate(term.match_fields):
            field = f"{path}[{i}].matchFields[{j}]"
            if field_term.key != "metadata.name":
                found.append(Problem(f"{field}.key", "must be metadata.name"))
    return found
