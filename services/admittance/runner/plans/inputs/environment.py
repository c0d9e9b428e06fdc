"""The variables of a container. Pure, but for what `Inputs` reads."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from admittance.api.fields.units import BadQuantity, parse
from admittance.api.pods import (
    Container,
    EnvFromSource,
    EnvVar,
    KeyRef,
    PodTemplate,
    ResourceFieldRef,
)
from admittance.api.reading.from_job import literal
from admittance.job_rules.rules import CannotRun
from admittance.runner.plans.inputs.host_inputs import Inputs

_INDEX: Final = "$(JOB_COMPLETION_INDEX)"
_WORKLOAD: Final = "$(ADMITTANCE_WORKLOAD)"
FIELDS: Final = {
    "metadata.name": "$(ADMITTANCE_POD)",
    "metadata.namespace": "$(ADMITTANCE_NAMESPACE)",
    "metadata.annotations['batch.kubernetes.io/job-completion-index']": _INDEX,
    "metadata.labels['batch.kubernetes.io/job-completion-index']": _INDEX,
    "metadata.labels['batch.kubernetes.io/job-name']": _WORKLOAD,
    "metadata.labels['job-name']": _WORKLOAD,
    "metadata.labels['kueue.x-k8s.io/podset']": "$(ADMITTANCE_POD_SET)",
}
"""For each path in a ``valueFrom.fieldRef`` that works without a cluster, the value that replaces
it."""
_ENTRY: Final = re.compile(r"metadata\.(labels|annotations)\['([^']+)'\]")


VALUES_MAX: Final = 8 << 20
"""The most characters of all variables of a job. Linux starts no program with more than 6 MiB of
them, but a job may name one long annotation, or one Secret with many keys, thousands of times."""


class ValueBudget:
    """How many characters the variables of one job may still have."""

    def __init__(self, left: int = VALUES_MAX) -> None:
        self._left = left

    def take(self, size: int) -> None:
        """Counts the characters of one more variable. Raises CannotRun if there are too many."""
        self._left -= size
        if self._left < 0:
            raise CannotRun(f"the variables of the job have more than {VALUES_MAX:,} characters")


class Variable(NamedTuple):
    """A variable of a container. ``secret``: whether its value is that of a Secret."""

    name: str
    value: str
    secret: bool = False


def variables(
    container: Container, template: PodTemplate, inputs: Inputs, budget: ValueBudget
) -> list[Variable]:
    """The variables of a container of the template, in their order; the last one with a name
    counts. Raises CannotRun if a value exists only in a cluster, or if the budget is used up."""
    taken = []
    try:
        for variable in _variables(container, template, inputs):
            budget.take(len(variable.name) + len(variable.value) + 1)
            taken.append(variable)
    except CannotRun as error:
        raise CannotRun(f"container {container.name}: {error}") from error
    return taken


def _variables(container: Container, template: PodTemplate, inputs: Inputs) -> Iterator[Variable]:
    for source in container.env_from:
        yield from _all_keys(source, inputs)
    for var in container.env:
        yield from _variable(var, container, template, inputs)


def _all_keys(source: EnvFromSource, inputs: Inputs) -> Iterator[Variable]:
    kind, ref = "ConfigMap", source.config_map_ref
    if ref is None:
        kind, ref = "Secret", source.secret_ref
    if ref is None:
        return
    keys = inputs.keys(kind, ref.name)
    if keys is None:
        if ref.optional:
            return
        raise CannotRun(f"envFrom: {inputs.missing(kind, ref.name)}")
    for key, path in keys.items():
        yield Variable(source.prefix + key, literal(inputs.value(path)), kind == "Secret")


def _variable(
    var: EnvVar, container: Container, template: PodTemplate, inputs: Inputs
) -> Iterator[Variable]:
    source = var.value_from
    if source is None:
        yield Variable(var.name, var.value)
    elif source.config_map_key_ref is not None:
        yield from _key(var.name, "ConfigMap", source.config_map_key_ref, inputs)
    elif source.secret_key_ref is not None:
        yield from _key(var.name, "Secret", source.secret_key_ref, inputs)
    elif source.resource_field_ref is not None:
        yield Variable(var.name, _quantity(source.resource_field_ref, container, template))
    elif source.field_ref is not None:
        yield Variable(var.name, _field(var.name, source.field_ref.field_path, template))
    else:
        raise CannotRun(
            f"env {var.name} takes its value from a file of a volume, "
            "which the runner does not read"
        )


def _key(name: str, kind: str, ref: KeyRef, inputs: Inputs) -> Iterator[Variable]:
    try:
        keys = inputs.keys(kind, ref.name)
        if keys is None and not ref.optional:
            raise CannotRun(inputs.missing(kind, ref.name))
        path = (keys or {}).get(ref.key)
        if path is None and not ref.optional:
            raise CannotRun(f"there is no key {ref.key} of the {kind} {ref.name}")
        if path is not None:
            yield Variable(name, literal(inputs.value(path)), kind == "Secret")
    except CannotRun as error:
        raise CannotRun(f"env {name}: {error}") from error


def _field(name: str, path: str, template: PodTemplate) -> str:
    if path in FIELDS:
        return FIELDS[path]
    entry = _ENTRY.fullmatch(path)
    if entry is None:
        raise CannotRun(
            f"env {name} takes its value from the field {path}, which exists only in a cluster"
        )
    metadata = template.metadata
    noted = metadata.labels if entry.group(1) == "labels" else metadata.annotations
    return literal(noted.get(entry.group(2), ""))


def _quantity(ref: ResourceFieldRef, container: Container, template: PodTemplate) -> str:
    name = ref.container_name or container.name
    every = (*template.spec.containers, *template.spec.init_containers)
    of = next((one for one in every if one.name == name), None)
    which, _, resource = ref.resource.partition(".")
    if of is None or which not in ("limits", "requests"):
        raise CannotRun(f"resourceFieldRef: there is no {ref.resource} of a container {name}")
    amounts = of.resources.limits if which == "limits" else of.resources.requests
    if resource not in amounts:
        raise CannotRun(f"resourceFieldRef: container {name} has no {ref.resource}")
    try:
        divisor = parse(ref.divisor)
        return str(math.ceil(parse(amounts[resource]) / (divisor or 1)))
    except BadQuantity as error:
        raise CannotRun(f"resourceFieldRef: {error}") from error
