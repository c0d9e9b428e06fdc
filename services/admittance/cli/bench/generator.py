"""Kueue's generator files, read into a plan: which queues, and which workload when.

The shape of the files is that of Kueue's scheduler performance test: cohorts of ClusterQueues,
each with sets of workloads that are created one after the other. As there, the first workload of
a set comes one interval after the start.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import msgspec
import yaml

from admittance.api.units import BadQuantity, amount
from admittance.runtime.errors import SetupError

RESOURCE = "cpu"
"""What the files count; they name no resource."""


class _Part(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    class_name: str


class WorkloadClass(_Part, frozen=True, kw_only=True):
    """``request`` is a quantity of cpu."""

    runtime_ms: int
    priority: int = 0
    request: str | int | float = 1


class WorkloadsSet(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True
):
    """``count`` rounds; each creates one workload per class, an interval apart."""

    count: int
    creation_interval_ms: int = 0
    workloads: tuple[WorkloadClass, ...]


class QueuesSet(_Part, frozen=True, kw_only=True):
    """``count`` ClusterQueues per cohort. Quotas are quantities of cpu."""

    count: int
    nominal_quota: str | int | float
    borrowing_limit: str | int | float | None = None
    lending_limit: str | int | float | None = None
    reclaim_within_cohort: str = "Never"
    within_cluster_queue: str = "Never"
    workloads_sets: tuple[WorkloadsSet, ...] = ()


class CohortsSet(_Part, frozen=True, kw_only=True):
    """``count`` cohorts alike."""

    count: int
    queues_sets: tuple[QueuesSet, ...]


class Generator(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True
):
    """A generator file."""

    cohorts: tuple[CohortsSet, ...]


class PlannedQueue(NamedTuple):
    """A ClusterQueue with its LocalQueue of the same name in ``namespace``. Quotas in millicores;
    ``borrowing`` None: without limit. ``checks``: names of its admission checks. ``variants``: with
    concurrent admission on so many flavors (0: one flavor, and regular workloads), of which the
    first ``full`` have no quota, and the others ``nominal`` each."""

    name: str
    class_name: str
    cohort: str
    namespace: str
    nominal: int
    borrowing: int | None
    lending: int | None
    reclaim: str
    within: str
    checks: tuple[str, ...] = ()
    variants: int = 0
    full: int = 0


class PlannedWorkload(NamedTuple):
    """``at`` and ``runtime`` in seconds, ``request`` in millicores, ``queue`` an index.
    ``flavors``: that it may have; none named: any."""

    at: float
    runtime: float
    name: str
    queue: int
    class_name: str
    request: int
    priority: int
    flavors: tuple[str, ...] = ()


class Plan(NamedTuple):
    """``workloads`` in the order of their creation."""

    queues: tuple[PlannedQueue, ...]
    workloads: tuple[PlannedWorkload, ...]


def read(path: Path) -> Generator:
    """The generator file at path. Raises SetupError naming file, field and why."""
    try:
        return msgspec.convert(yaml.safe_load(path.read_bytes()), Generator)
    except OSError as error:
        raise SetupError(f"{path}: {error.strerror}") from None
    except (yaml.YAMLError, msgspec.ValidationError, UnicodeDecodeError) as error:
        raise SetupError(f"{path}: no generator file: {' '.join(str(error).split())}") from None


def plan(generator: Generator, *, scale: float = 1.0) -> Plan:
    """Every queue and every workload of generator.

    scale multiplies the number of workloads; a set keeps at least one. Raises SetupError for a
    quantity that is none.
    """
    queues: list[PlannedQueue] = []
    workloads: list[PlannedWorkload] = []
    for cohort, queues_set in _cohorts(generator):
        for number in range(queues_set.count):
            index = len(queues)
            queue = _queue(queues_set, cohort, number)
            queues.append(queue)
            for position, workloads_set in enumerate(queues_set.workloads_sets):
                workloads.extend(_workloads(workloads_set, queue, index, position, scale))
    workloads.sort()
    return Plan(tuple(queues), tuple(workloads))


def _cohorts(generator: Generator) -> list[tuple[str, QueuesSet]]:
    return [
        (f"{cohorts_set.class_name}-{number}", queues_set)
        for cohorts_set in generator.cohorts
        for number in range(cohorts_set.count)
        for queues_set in cohorts_set.queues_sets
    ]


def _queue(queues_set: QueuesSet, cohort: str, number: int) -> PlannedQueue:
    def limit(quantity: str | int | float | None) -> int | None:
        return None if quantity is None else _amount(quantity)

    return PlannedQueue(
        name=f"{cohort}-{queues_set.class_name}-{number}",
        class_name=queues_set.class_name,
        cohort=cohort,
        namespace=cohort,
        nominal=_amount(queues_set.nominal_quota),
        borrowing=limit(queues_set.borrowing_limit),
        lending=limit(queues_set.lending_limit),
        reclaim=queues_set.reclaim_within_cohort,
        within=queues_set.within_cluster_queue,
    )


def _workloads(
    workloads_set: WorkloadsSet, queue: PlannedQueue, index: int, position: int, scale: float
) -> list[PlannedWorkload]:
    interval = workloads_set.creation_interval_ms / 1000
    kinds = workloads_set.workloads
    return [
        PlannedWorkload(
            at=(number * len(kinds) + place + 1) * interval,
            runtime=kind.runtime_ms / 1000,
            name=f"{queue.name}-{kind.class_name}-{position}-{number}-{place}",
            queue=index,
            class_name=kind.class_name,
            request=_amount(kind.request),
            priority=kind.priority,
        )
        for number in range(max(1, round(workloads_set.count * scale)))
        for place, kind in enumerate(kinds)
    ]


def _amount(quantity: str | int | float) -> int:
    try:
        return amount(RESOURCE, quantity)
    except BadQuantity as error:
        raise SetupError(f"the generator file: {error}") from None
