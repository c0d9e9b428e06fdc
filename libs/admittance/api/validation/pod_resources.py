"""Rules of the resources of a whole pod, which replace those of its containers."""

from __future__ import annotations

from typing import Final

from admittance.api.fields.problems import NOT_SUPPORTED, Problem
from admittance.api.fields.units import BadQuantity, render
from admittance.api.pods import PodSpec

_WHAT: Final = (
    "is not a resource of a whole pod (cpu, memory and hugepages-…): name it in a container"
)


def check_pod_resources(pod: PodSpec, path: str) -> list[Problem]:
    """The problems of ``spec.resources`` of a pod: as in Kubernetes, other resources than cpu,
    memory and hugepages, and less than the containers request together. Without these rules a part
    of what containers request would need no quota."""
    if pod.resources is None:
        return []
    # Imported late, because short commands validate manifests, nearly all without such a field.
    from admittance.api.pod_requests import effective, is_pod_level, requests_of

    try:
        asked = requests_of(pod.resources)
        whole = effective((), (), pod.resources)
        parts = effective(pod.containers, pod.init_containers)
    except BadQuantity:
        return []  # The quantity has a problem of its own.
    problems = [
        Problem(f"{path}[{name}]", _WHAT, NOT_SUPPORTED) for name in asked if not is_pod_level(name)
    ]
    for name, amount in whole.items():
        least = parts.get(name, 0)
        if amount < least:
            what = f"must be at least {render(name, least)}, which its containers request"
            problems.append(Problem(f"{path}[{name}]", f"{what}, not {render(name, amount)}"))
    return problems
