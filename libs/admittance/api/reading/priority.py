"""Gives a submitted workload the priority of its class, in Kueue's order.

A workload that states its priority keeps it. Else the WorkloadPriorityClass decides, which the
workload references or its label names, and without one the WorkloadPriorityClass `DEFAULT`, if it
exists. Else the PriorityClass of its pods decides, and without one the PriorityClass that is the
global default. Source: docs/spec/scheduling.md#1.7, Kueue's KEP-10765.
"""

from __future__ import annotations

from typing import Final, Protocol

from msgspec.structs import replace

from admittance.api.fields.limits import CLASSES
from admittance.api.fields.problems import NOT_FOUND, ManifestError, Problem
from admittance.api.workload import PRIORITY_CLASS_LABEL, PriorityClassRef, Workload

DEFAULT: Final = "default"
"""The WorkloadPriorityClass with this name counts for workloads that name no class."""

OURS, OF_PODS = CLASSES.items()
"""Group and kind of a WorkloadPriorityClass, and of a PriorityClass."""


class PriorityClasses(Protocol):
    """The priority classes that exist. A method returns None for a class that does not exist."""

    def workload_class(self, name: str) -> int | None:
        """The value of a WorkloadPriorityClass."""
        ...

    def pod_class(self, name: str) -> int | None:
        """The value of a PriorityClass."""
        ...

    def global_default(self) -> tuple[str, int] | None:
        """Name and value of the PriorityClass that is the global default."""
        ...


def class_ref(name: str, of: tuple[str, str] = OURS) -> PriorityClassRef:
    """A reference to the class name. ``of``: the group and kind of the class."""
    group, kind = of
    return PriorityClassRef(group=group, kind=kind, name=name)


def pod_class_of(workload: Workload) -> str:
    """The first PriorityClass that a pod set names; "": no pod set names one."""
    for pod_set in workload.spec.pod_sets:
        if pod_set.template.spec.priority_class_name:
            return pod_set.template.spec.priority_class_name
    return ""


def class_of(workload: Workload) -> PriorityClassRef | None:
    """The class that the workload itself names, and that must exist because it gives the priority;
    None: the workload states its priority, or names no class."""
    spec = workload.spec
    if spec.priority is not None:
        return None
    if spec.priority_class_ref is not None:
        return spec.priority_class_ref
    label = workload.metadata.labels.get(PRIORITY_CLASS_LABEL, "")
    if label:
        return class_ref(label)
    name = pod_class_of(workload)
    return class_ref(name, OF_PODS) if name else None


def resolve_priority(
    workload: Workload, classes: PriorityClasses, *, defaulting: bool = True
) -> Workload:
    """The workload with the priority of its class. ``defaulting``: the WorkloadPriorityClass
    `DEFAULT` counts for workloads that name none. Raises ManifestError for a class that does not
    exist.
    """
    spec = workload.spec
    if spec.priority is not None:
        return workload
    ref = class_of(workload)
    names_one = ref is not None and (ref.kind != OF_PODS[1] or spec.priority_class_ref is not None)
    if defaulting and not names_one:
        value = classes.workload_class(DEFAULT)
        if value is not None:
            return _with(workload, class_ref(DEFAULT), value)
    if ref is not None:
        value_of = classes.workload_class if ref.kind == OURS[1] else classes.pod_class
        value = value_of(ref.name)
        if value is None:
            raise ManifestError([Problem("", f"{ref.kind} {ref.name} doesn't exist", NOT_FOUND)])
        return _with(workload, ref, value)
    default = classes.global_default()
    if default is None:
        return workload
    name, value = default
    return _with(workload, class_ref(name, OF_PODS), value)


def _with(workload: Workload, ref: PriorityClassRef, value: int) -> Workload:
    return replace(workload, spec=replace(workload.spec, priority_class_ref=ref, priority=value))
