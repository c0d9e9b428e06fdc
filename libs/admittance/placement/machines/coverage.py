"""Which flavors are covered by the machines of runners, and the AdmissionCheck that says so. Pure.

A flavor with labels is covered from the time on when a machine has labels of the same keys: such a
label says to which flavors a machine belongs and to which it does not, so a flavor that no machine
belongs to waits for one. A flavor without labels is covered when a machine has devices of which a
ClusterQueue offers quota in this flavor. Flavors of cpu and memory alone without labels are listed
by people: their quota may be larger than the machines, and was served so far.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Final

from msgspec.structs import replace

from admittance.api.checks import (
    MACHINES_CHECK,
    MACHINES_CONTROLLER,
    PREEMPTS_AFTER_CHECK,
    AdmissionCheck,
    AdmissionCheckSpec,
)
from admittance.api.fields.units import amount
from admittance.api.meta import ObjectMeta
from admittance.api.queues import ClusterQueue, ResourceFlavor, named_checks, of_flavor, queue_wide
from admittance.events.names import uid_of
from admittance.events.subjects import PROVISIONING_CONTROLLER
from admittance.placement.machines.machine import Machine

FLAVORS_MAX: Final = 256
"""The most flavors that the check may have."""


class Coverage:
    """The queues, flavors and checks by their names, and the machines by the names of their
    runners."""

    def __init__(self) -> None:
        self.queues: dict[str, ClusterQueue] = {}
        self.flavors: dict[str, ResourceFlavor] = {}
        self.checks: dict[str, AdmissionCheck] = {}
        self.machines: dict[str, Machine] = {}

    def wanted(self, now: datetime) -> AdmissionCheck | None:
        """The check `MACHINES_CHECK` with all flavors that are covered now beside those that it
        has; None: it stays as it is. Coverage never ends by itself: a flavor without machines would
        admit everything that waits."""
        covered = sorted(set(self._covered()))
        before = self.checks.get(MACHINES_CHECK)
        if before is None:
            return _new_check(covered, now) if covered else None
        if (
            before.spec.controller_name != MACHINES_CONTROLLER
            or before.metadata.deletion_timestamp is not None
        ):
            return None
        have = before.spec.on_flavors
        more = [flavor for flavor in covered if flavor not in have][: FLAVORS_MAX - len(have)]
        if not more:
            return None
        meta = replace(before.metadata, generation=before.metadata.generation + 1)
        return replace(before, metadata=meta, spec=replace(before.spec, on_flavors=(*have, *more)))

    def _covered(self) -> Iterator[str]:
        for queue in self.queues.values():
            if queue.spec.machines == "Off":
                continue
            for flavor, resources in _offered(queue):
                if flavor in self.flavors and not self._is_provisioned(queue, flavor):
                    labels = self.flavors[flavor].spec.node_labels
                    if any(
                        _covers(machine, labels, resources) for machine in self.machines.values()
                    ):
                        yield flavor

    def _is_provisioned(self, queue: ClusterQueue, flavor: str) -> bool:
        """Whether machines of the flavor are obtained when a workload needs them: the check would
        hold back the first workload until its machine is there, so people list such flavors."""
        names = {*queue_wide(queue.spec), *of_flavor(queue.spec, flavor)}
        checks = (self.checks.get(name) for name in names.intersection(named_checks(queue.spec)))
        return any(
            check is not None and check.spec.controller_name == PROVISIONING_CONTROLLER
            for check in checks
        )


def _offered(queue: ClusterQueue) -> Iterator[tuple[str, set[str]]]:
    """The flavors of the queue that have quota, each with the resources of which it has any."""
    for group in queue.spec.resource_groups:
        for flavor in group.flavors:
            resources = {r.name for r in flavor.resources if amount(r.name, r.nominal_quota) > 0}
            if resources:
                yield flavor.name, resources


def _covers(machine: Machine, labels: Mapping[str, str], resources: set[str]) -> bool:
    if labels:
        return labels.keys() <= machine.labels.keys()
    return any(device.resource in resources for device in machine.devices)


def _new_check(flavors: Iterable[str], now: datetime) -> AdmissionCheck:
    return AdmissionCheck(
        metadata=ObjectMeta(
            name=MACHINES_CHECK,
            uid=uid_of(f"admissioncheck/{MACHINES_CHECK}/{now.isoformat()}"),
            creation_timestamp=now,
            generation=1,
        ),
        spec=AdmissionCheckSpec(
            controller_name=MACHINES_CONTROLLER,
            preemption_policy=PREEMPTS_AFTER_CHECK,
            on_flavors=tuple(flavors)[:FLAVORS_MAX],
        ),
    )
