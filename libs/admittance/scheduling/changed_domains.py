"""The domains in which quota in use or waiting workloads have changed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from admittance.scheduling.state.assumption import domain_of
from admittance.scheduling.state.workload_info import WorkloadInfo


class ChangedDomains:
    """Collects the names of changed domains until they are taken."""

    def __init__(self) -> None:
        self._names: set[str] = set()

    def __bool__(self) -> bool:
        return bool(self._names)

    def note(self, before: tuple[Any, ...], after: tuple[Any, ...]) -> None:
        """Notes the domains of a workload if its numbers changed. ``before``, ``after``: of
        `numbers_of`."""
        if before != after:
            self._names.update(name for name in (before[0], after[0]) if name)

    def note_all(self, names: Iterable[str]) -> None:
        """Notes domains in which queues, cohorts or flavors changed."""
        self._names.update(names)

    def take(self, owned: set[str]) -> list[str]:
        """Returns the names of the changed domains that are among ``owned``, and forgets all."""
        names = sorted(self._names & owned)
        self._names.clear()
        return names


def numbers_of(workload: WorkloadInfo | None) -> tuple[Any, ...]:
    """Returns the name of the workload's domain ("": it has none), and what counters, bars and
    positions are made of; a change of its reason alone changes none of it."""
    if workload is None:
        return ("",)
    domain = domain_of(workload)
    charge = workload.charge
    return (
        domain.name if domain is not None else "",
        workload.state,
        workload.queue,
        workload.priority,
        workload.queued_at,
        workload.reserved_at,
        workload.reclaimable,
        charge.admission if charge is not None else None,
    )
