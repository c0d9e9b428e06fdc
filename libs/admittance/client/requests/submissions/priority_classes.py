"""Whether the priority class that a submission names exists."""

from __future__ import annotations

from typing import Final

from admittance.api.reading.priority import DEFAULT, class_of
from admittance.api.workload import PriorityClassRef, Workload
from admittance.client import kinds
from admittance.client.errors import NotAllowed
from admittance.client.requests.link import Link
from admittance.client.requests.objects import lookup_all

NAMED_MAX: Final = 10

_PLACES: Final = {
    kinds.PRIORITY_CLASS: "the option --priority-class, the label kueue.x-k8s.io/priority-class "
    "and a priorityClassRef",
    kinds.POD_PRIORITY_CLASS: "the priorityClassName of a pod template",
}
"""The classes that give priorities, and where a submission names one."""


def named_class(workload: Workload) -> tuple[PriorityClassRef, bool] | None:
    """The class that gives the workload its priority, and whether the WorkloadPriorityClass
    `DEFAULT` would go first; None: no class must exist."""
    ref = class_of(workload)
    if ref is None:
        return None
    is_of_pods = ref.kind == kinds.POD_PRIORITY_CLASS.manifest
    return ref, is_of_pods and workload.spec.priority_class_ref is None


async def missing_class(link: Link, workload: Workload) -> str:
    """The sentence that the workload's priority class does not exist, with the way out; "" if it
    exists, if no class is needed, or if this login may not read the classes."""
    named = named_class(workload)
    if named is None:
        return ""
    ref, yields_to_default = named
    kind = kinds.kind_of_manifest(ref.kind, ref.group)
    if kind not in _PLACES:
        return ""
    try:
        if await link.get(kind.object_key("", ref.name)) is not None:
            return ""
        ours = kinds.PRIORITY_CLASS
        if yields_to_default and await link.get(ours.object_key("", DEFAULT)) is not None:
            return ""
        [other] = (known for known in _PLACES if known != kind)
        if await link.get(other.object_key("", ref.name)) is not None:
            hint = f"{ref.name} is a {other.manifest}, and {_PLACES[kind]} take"
            hint += "s" if kind == kinds.POD_PRIORITY_CLASS else ""
            return f"{kind.manifest} {ref.name} does not exist: {hint} a {kind.manifest}"
        [pattern] = kind.patterns("")
        names = [stored.name for stored in await lookup_all(link, pattern)]
    except NotAllowed:
        return ""
    there = ", ".join(names[:NAMED_MAX]) + (", …" if len(names) > NAMED_MAX else "")
    there = f"name one of {there}, or " if names else ""
    return f"{kind.manifest} {ref.name} does not exist: {there}create it with `admit apply`"
