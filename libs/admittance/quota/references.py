"""Warnings about objects that do nothing yet: they name an object that does not exist, select
nothing, or need a setting that the deployment does not have."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

from admittance.api.configuration import GATES, Configuration
from admittance.api.fields.units import amount, parse
from admittance.api.queues import (
    ClusterQueue,
    Cohort,
    LocalQueue,
    ResourceFlavor,
    ResourceGroup,
    named_checks,
)
from admittance.quota.catalog import Catalog

NAMED_MAX: Final = 8
"""The most missing objects that one warning names."""


class Sharing(NamedTuple):
    """Which kinds of sharing the configuration has: by shares of cohorts (``fair``), and of a
    ClusterQueue by usage."""

    fair: bool = True
    usage: bool = True


BOTH: Final = Sharing()


def sharing_of(configuration: Configuration) -> Sharing:
    """The kinds of sharing that a configuration has."""
    fair = configuration.fair_sharing
    gates = GATES | configuration.feature_gates
    return Sharing(
        fair=fair is not None and fair.enable,
        usage=configuration.admission_fair_sharing is not None and gates["AdmissionFairSharing"],
    )


def reference_warnings(manifest: Any, catalog: Catalog, sharing: Sharing = BOTH) -> Iterator[str]:
    """Warnings about an applied manifest. ``catalog``: all objects, including the manifest and
    those that are applied with it. ``sharing``: what the configuration has; `BOTH`: it is unknown.
    """
    match manifest:
        case ClusterQueue() as queue:
            yield from _of_queue(queue, catalog, sharing)
        case LocalQueue() as local:
            yield from _of_local_queue(local, catalog, sharing)
        case Cohort() as cohort:
            yield from _of_cohort(cohort, catalog, sharing)
        case ResourceFlavor() as flavor:
            yield from _of_flavor(flavor, catalog)


def _of_queue(queue: ClusterQueue, catalog: Catalog, sharing: Sharing) -> Iterator[str]:
    spec = queue.spec
    if spec.namespace_selector is None:
        yield (
            "spec.namespaceSelector is missing: the queue selects no namespace and admits nothing; "
            "{} selects every namespace"
        )
    yield from _rounded(spec.resource_groups)
    flavors = [flavor.name for group in spec.resource_groups for flavor in group.flavors]
    if missing := _listed(flavor for flavor in flavors if flavor not in catalog.flavors):
        yield f"ResourceFlavor {missing} {_absent(missing)}: until then the queue admits nothing"
    if missing := _listed(check for check in named_checks(spec) if check not in catalog.checks):
        yield f"AdmissionCheck {missing} {_absent(missing)}: until then the queue admits nothing"
    for name in flavors:
        if name in catalog.flavors:
            yield from _of_flavor(catalog.flavors[name], catalog)
    if spec.fair_sharing is not None and not sharing.fair:
        yield _no_sharing("fairSharing")
    if spec.admission_scope is not None and not sharing.usage:
        yield (
            "spec.admissionScope has no effect: the configuration of this deployment has no "
            "admissionFairSharing"
        )


def _of_local_queue(local: LocalQueue, catalog: Catalog, sharing: Sharing) -> Iterator[str]:
    name, namespace = local.spec.cluster_queue, local.metadata.namespace
    queue = catalog.cluster_queues.get(name)
    if queue is None:
        yield f"ClusterQueue {name} doesn't exist: until then the queue admits nothing"
    elif queue.spec.namespace_selector is None:
        yield f"ClusterQueue {name} has no namespaceSelector: the queue admits nothing"
    elif not catalog.selects_namespace(name, namespace):
        yield (
            f"the namespaceSelector of ClusterQueue {name} does not select the namespace "
            f"{namespace}: the queue admits nothing"
        )
    if queue is not None:
        yield from _uncovered(local, queue)
    if local.spec.fair_sharing is not None and not sharing.usage:
        yield _no_sharing("admissionFairSharing")


def _uncovered(local: LocalQueue, queue: ClusterQueue) -> Iterator[str]:
    """Warnings about limits of resources of which the ClusterQueue has no quota."""
    covered = {name for group in queue.spec.resource_groups for name in group.covered_resources}
    limits = {"spec.perUser": local.spec.per_user}
    limits |= {f"spec.perLabel[{key}]": most for key, most in local.spec.per_label.items()}
    for field, most in limits.items():
        if missing := _listed(resource for resource in most if resource not in covered):
            yield (
                f"{field} has no effect for {missing}: ClusterQueue {queue.metadata.name} "
                "has no quota of it"
            )


def _of_cohort(cohort: Cohort, catalog: Catalog, sharing: Sharing) -> Iterator[str]:
    if cohort.spec.fair_sharing is not None and not sharing.fair:
        yield _no_sharing("fairSharing")
    yield from _rounded(cohort.spec.resource_groups)
    passed: set[str] = {cohort.metadata.name}
    above = cohort.spec.parent_name
    while above and above not in passed:
        passed.add(above)
        parent = catalog.cohorts.get(above)
        above = parent.spec.parent_name if parent is not None else ""
    if above:
        yield "spec.parentName: the cohorts form a cycle, and their queues admit nothing"


def _of_flavor(flavor: ResourceFlavor, catalog: Catalog) -> Iterator[str]:
    topology = flavor.spec.topology_name
    if topology and topology not in catalog.topologies:
        yield (
            f"Topology {topology} of ResourceFlavor {flavor.metadata.name} doesn't exist: "
            "until then its queues admit nothing"
        )


def _rounded(groups: Iterable[ResourceGroup]) -> Iterator[str]:
    """Warnings about amounts of quota that are rounded up."""
    for i, group in enumerate(groups):
        for j, flavor in enumerate(group.flavors):
            for k, quota in enumerate(flavor.resources):
                unit = 1000 if quota.name == "cpu" else 1
                for field, written in (
                    ("nominalQuota", quota.nominal_quota),
                    ("borrowingLimit", quota.borrowing_limit),
                    ("lendingLimit", quota.lending_limit),
                ):
                    if written is None or (parse(written) * unit).denominator == 1:
                        continue
                    counts = amount(quota.name, written)
                    shown = f"{counts}m" if unit > 1 else counts
                    path = f"spec.resourceGroups[{i}].flavors[{j}].resources[{k}].{field}"
                    yield f"{path}: {written} counts as {shown}"


def _no_sharing(field: str) -> str:
    return f"spec.fairSharing has no effect: the configuration of this deployment has no {field}"


def _absent(names: str) -> str:
    return "don't exist" if ", " in names else "doesn't exist"


def _listed(names: Iterable[str]) -> str:
    distinct = list(dict.fromkeys(names))
    more = f" and {len(distinct) - NAMED_MAX} more" if len(distinct) > NAMED_MAX else ""
    return ", ".join(distinct[:NAMED_MAX]) + more
