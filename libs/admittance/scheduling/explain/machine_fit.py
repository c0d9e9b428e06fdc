"""Decides whether machines are large enough for a workload that is not submitted yet."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice, product
from typing import Final, NamedTuple

import msgspec

from admittance.api.checks import MACHINES_CONTROLLER
from admittance.api.fields.limits import is_extended
from admittance.api.meta import ObjectMeta
from admittance.events.shapes import Admission, PodSetAssignment
from admittance.events.subjects import PROVISIONING_CONTROLLER
from admittance.placement.search.empty_machines import EmptyMachines
from admittance.placement.search.request import request_of
from admittance.placement.search.shortage import Shortage, Why
from admittance.quota.catalog import Catalog
from admittance.quota.required_checks import ConflictingChecks
from admittance.scheduling.state.flavor_plan import Option
from admittance.workload.stored import StoredWorkload, WorkloadStatus
from admittance.workload.transition_context import FlavorParts

COMBINATIONS_MAX: Final = 64
"""How many combinations of flavors are tried; with more, machines count as large enough."""


NO_MACHINE: Final = "no machine can start it"


class Choice(NamedTuple):
    """The flavors that one pod set may get for some of its resources, without regard to others."""

    pod_set: str
    resources: Sequence[str]
    options: Sequence[Option]


def machine_misfit(
    catalog: Catalog,
    machines: EmptyMachines,
    queue: str,
    spec: msgspec.Raw,
    counts: Mapping[str, int],
    choices: Sequence[Choice],
) -> str:
    """Why no machine could start the workload in any of its flavors, also if nothing else ran, as a
    sentence; or that it gets no devices, since its flavors are not covered; "": a machine could, or
    the workload may start without the check of machines.

    ``counts``: how many pods of each pod set must start."""

    def parts(name: str) -> FlavorParts:
        flavor = catalog.flavors.get(name)
        if flavor is None:
            return FlavorParts()
        return FlavorParts(flavor.spec.node_labels, flavor.spec.tolerations)

    shortages: dict[str, Shortage] = {}
    tried = 0
    for admission in islice(_admissions(queue, counts, choices), COMBINATIONS_MAX + 1):
        tried += 1
        try:
            checks = catalog.required_checks(queue, admission).values()
        except ConflictingChecks:
            continue  # no workload gets these flavors together
        controllers = {check.spec.controller_name for check in checks}
        if PROVISIONING_CONTROLLER in controllers:
            return ""
        if MACHINES_CONTROLLER not in controllers:
            return _without_devices(catalog, machines, admission)
        shortage = machines.shortage(request_of(_reserved(spec, admission), parts))
        if shortage is None:
            return ""
        shortages.setdefault(_flavors(admission), shortage)
    if not shortages or tried > COMBINATIONS_MAX:
        return ""
    # A machine that is too small tells more than a label that only other flavors need.
    flavors, shortage = min(shortages.items(), key=lambda item: item[1].why is not Why.SIZE)
    head = "no machine can hold it, even if empty" if shortage.why is Why.SIZE else NO_MACHINE
    named = f" (flavor {flavors})" if len(shortages) > 1 else ""
    return f"{head}{named}: {shortage.message}; it waits for another machine"


def _without_devices(catalog: Catalog, machines: EmptyMachines, admission: Admission) -> str:
    """A sentence if the flavor that gives the workload devices is not covered, although runners
    announce machines with devices, since none of them has its labels."""
    spec = catalog.cluster_queues[admission.cluster_queue].spec
    for place in admission.pod_set_assignments:
        for resource, name in place.flavors.items():
            flavor = catalog.flavors.get(name)
            if flavor is None or not is_extended(resource) or spec.machines == "Off":
                continue
            labels = flavor.spec.node_labels
            if machines.have_devices and labels and not machines.any_has(labels):
                shown = " and ".join(f"{key}={value}" for key, value in sorted(labels.items()))
                return (
                    f"no runner has the {'label' if len(labels) == 1 else 'labels'} {shown} of "
                    f"flavor {name}: any runner starts it, and no {resource} is assigned"
                )
    return ""


def _admissions(
    queue: str, counts: Mapping[str, int], choices: Sequence[Choice]
) -> Iterator[Admission]:
    """The admissions with each combination of flavors that may be used together."""
    for options in product(*(choice.options for choice in choices)):
        flavors: dict[str, dict[str, str]] = {name: {} for name in counts}
        chosen: dict[str, list[Option]] = {}
        for choice, option in zip(choices, options, strict=True):
            flavors[choice.pod_set] |= dict.fromkeys(choice.resources, option.flavor)
            chosen.setdefault(choice.pod_set, []).append(option)
        if all(map(_are_compatible, chosen.values())):
            yield Admission(
                cluster_queue=queue,
                pod_set_assignments=tuple(
                    PodSetAssignment(name=name, flavors=flavors[name], count=count)
                    for name, count in counts.items()
                ),
            )


def _are_compatible(options: Sequence[Option]) -> bool:
    """Whether one node may have the labels of all these flavors."""
    names = {option.flavor for option in options}
    return all(names.isdisjoint(option.rivals) for option in options)


def _reserved(spec: msgspec.Raw, admission: Admission) -> StoredWorkload:
    """A workload that holds the quota of the admission."""
    return StoredWorkload(
        api_version="",
        kind="",
        metadata=ObjectMeta(name="submission"),
        spec=spec,
        status=WorkloadStatus(admission=admission),
    )


def _flavors(admission: Admission) -> str:
    used = (name for ps in admission.pod_set_assignments for name in ps.flavors.values())
    return " and ".join(sorted(set(used)))
