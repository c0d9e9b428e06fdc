"""Reads Kueue's generator files into a plan of queues and workloads, and creates the queues.

The files have the shape of Kueue's scheduler performance test: cohorts of ClusterQueues, each with
sets of workloads that are created one after the other. As in Kueue's test, the first workload of a
set is created one interval after the start.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from admittance.api.fields.problems import ManifestError
from admittance.api.fields.units import BadQuantity, amount, render
from admittance.api.reading.values import read_values
from admittance.backoff import Backoff
from admittance.bench.connection import until_answered
from admittance.client.errors import BadInput, Refused
from admittance.client.requests import applying
from admittance.client.requests.link import Link
from admittance.client.requests.queues import questions
from admittance.events.requests.queues import Queues, QueuesReply
from admittance.runtime import clock
from admittance.runtime.errors import SetupError

RESOURCE = "cpu"
"""The resource of all quantities: generator files do not name a resource."""


class _Part(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    class_name: str


class WorkloadClass(_Part, frozen=True, kw_only=True):
    """A class of equal workloads. ``request``: a quantity of cpu."""

    runtime_ms: int
    priority: int = 0
    request: str | int | float = 1


class WorkloadsSet(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True
):
    """A part of the load: ``count`` rounds, an interval apart; each round creates one workload per
    class."""

    count: int
    creation_interval_ms: int = 0
    workloads: tuple[WorkloadClass, ...]


class QueuesSet(_Part, frozen=True, kw_only=True):
    """Equal ClusterQueues, ``count`` of them per cohort. Quotas are quantities of cpu."""

    count: int
    nominal_quota: str | int | float
    borrowing_limit: str | int | float | None = None
    lending_limit: str | int | float | None = None
    reclaim_within_cohort: str = "Never"
    within_cluster_queue: str = "Never"
    workloads_sets: tuple[WorkloadsSet, ...] = ()


class CohortsSet(_Part, frozen=True, kw_only=True):
    """``count`` equal cohorts."""

    count: int
    queues_sets: tuple[QueuesSet, ...]


class Generator(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True
):
    """A generator file."""

    cohorts: tuple[CohortsSet, ...]


class PlannedQueue(NamedTuple):
    """A ClusterQueue with its LocalQueue of the same name in ``namespace``. Quotas in millicores;
    ``borrowing`` None: without limit. ``checks``: names of its admission checks. ``variants``:
    number of flavors of a queue with concurrent admission; 0: one flavor, without concurrent
    admission. The first ``full`` flavors have no quota, each other flavor has ``nominal``.
    """

    name: str
    class_name: str = "cq"
    cohort: str = ""
    namespace: str = "default"
    nominal: int = 0
    borrowing: int | None = None
    lending: int | None = None
    reclaim: str = "Never"
    within: str = "Never"
    checks: tuple[str, ...] = ()
    variants: int = 0
    full: int = 0


class PlannedWorkload(NamedTuple):
    """A workload of the plan. ``at``: seconds from the start to the submission; ``runtime``: in
    seconds; ``request``: in millicores; ``queue``: index into the plan's queues. ``flavors``: the
    flavors that may be assigned; empty: any.
    """

    at: float
    runtime: float
    name: str
    queue: int
    class_name: str
    request: int
    priority: int
    flavors: tuple[str, ...] = ()


class BenchPlan(NamedTuple):
    """The queues and workloads that a generator file describes; ``workloads`` in the order of their
    creation. ``distinct``: no two workloads have the same spec."""

    queues: tuple[PlannedQueue, ...]
    workloads: tuple[PlannedWorkload, ...]
    distinct: bool = False


def read(path: Path) -> Generator:
    """Reads a generator file. Raises SetupError with the file, the field and the problem."""
    try:
        return msgspec.convert(read_values(path.read_bytes(), str(path)), Generator)
    except OSError as error:
        raise SetupError(f"{path}: the generator file cannot be read: {error.strerror}") from None
    except ManifestError as error:
        raise SetupError(f"not a generator file: {error}") from None
    except msgspec.ValidationError as error:
        raise SetupError(f"{path}: not a generator file: {' '.join(str(error).split())}") from None


def bench_plan(generator: Generator, *, scale: float = 1.0, distinct: bool = False) -> BenchPlan:
    """All queues and workloads of a generator file.

    ``scale`` multiplies the number of workloads; a set keeps at least one. ``distinct``: each
    workload gets a spec of its own, and asks for up to 1 % less. Raises SetupError for a bad
    quantity.
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
    if distinct:
        workloads = [_with_less(workload, n % 11) for n, workload in enumerate(workloads)]
    return BenchPlan(tuple(queues), tuple(workloads), distinct)


def _with_less(workload: PlannedWorkload, thousandths: int) -> PlannedWorkload:
    return workload._replace(request=workload.request - workload.request * thousandths // 1000)


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
        raise SetupError(f"the generator file is wrong: {error}") from None


FLAVOR: Final = "bench"


async def create(link: Link, plan: BenchPlan, *, timeout: float = 60.0) -> None:
    """Applies the plan's flavors and queues, and waits until the scheduler knows the queues as
    active.

    Raises SetupError with the first problem, and Unavailable if a service does not answer.
    """
    deadline = clock.monotonic() + timeout
    await apply(link, manifests_of(plan), timeout=timeout)
    names = {queue.name for queue in plan.queues}
    pauses = Backoff(0.05, 0.5)
    while True:
        left = max(0.0, deadline - clock.monotonic())
        statuses = (await until_answered(lambda: state(link), left)).cluster_queues
        if names <= {status.name for status in statuses if status.active}:
            return
        if not left:
            raise SetupError("the scheduler did not take up the queues in time: see `admit doctor`")
        await asyncio.sleep(pauses.next())


async def apply(link: Link, manifests: Iterable[dict[str, Any]], *, timeout: float = 60.0) -> None:
    """Applies manifests as soon as a service answers. Raises SetupError with the first problem."""
    objects = [msgspec.json.encode(manifest) for manifest in manifests]
    for part in applying.parts(objects, map(len, objects)):
        try:
            await until_answered(partial(applying.apply, link, part), timeout)
        except (BadInput, Refused) as error:
            raise SetupError(f"the queues were refused: {error.lines[0]}") from None


async def state(link: Link) -> QueuesReply:
    """Counters and usage of all ClusterQueues. Raises RequestFailed."""
    return await questions.queues(link, Queues(local_queues=False), None)


def manifests_of(plan: BenchPlan) -> list[dict[str, Any]]:
    """Flavors, checks and queues of the plan, in the order in which they are applied."""
    flavors = dict.fromkeys(name for queue in plan.queues for name in flavors_of(queue))
    return [
        *(_manifest("ResourceFlavor", name, {}) for name in flavors),
        *(
            _manifest("AdmissionCheck", name, {"controllerName": f"bench/{name}"})
            for name in checks_of(plan)
        ),
        *(_cluster_queue(queue) for queue in plan.queues),
        *(
            _manifest("LocalQueue", queue.name, {"clusterQueue": queue.name}, queue.namespace)
            for queue in plan.queues
        ),
    ]


def flavors_of(queue: PlannedQueue) -> list[str]:
    """The names of the queue's flavors, in order of preference."""
    return [f"{FLAVOR}-{n}" for n in range(queue.variants)] or [FLAVOR]


def checks_of(plan: BenchPlan) -> list[str]:
    """Every admission check of the plan's queues, without duplicates."""
    return sorted({name for queue in plan.queues for name in queue.checks})


def _manifest(kind: str, name: str, spec: dict[str, Any], namespace: str = "") -> dict[str, Any]:
    metadata = {"name": name, "namespace": namespace} if namespace else {"name": name}
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": kind,
        "metadata": metadata,
        "spec": spec,
    }


def _cluster_queue(queue: PlannedQueue) -> dict[str, Any]:
    spec: dict[str, Any] = {
        "cohortName": queue.cohort,
        "namespaceSelector": {},
        "preemption": {
            "reclaimWithinCohort": queue.reclaim,
            "withinClusterQueue": queue.within,
        },
        "resourceGroups": [
            {
                "coveredResources": [RESOURCE],
                "flavors": [
                    {"name": name, "resources": [_quota(queue, 0 if n < queue.full else None)]}
                    for n, name in enumerate(flavors_of(queue))
                ],
            }
        ],
    }
    if queue.variants:
        spec["concurrentAdmission"] = {"migrationConstraints": {"mode": "UpgradeOnly"}}
    if queue.checks:
        spec["admissionChecks"] = list(queue.checks)
    if not queue.cohort:
        del spec["cohortName"]
    return _manifest("ClusterQueue", queue.name, spec)


def _quota(queue: PlannedQueue, nominal: int | None) -> dict[str, Any]:
    given = queue.nominal if nominal is None else nominal
    quota: dict[str, Any] = {"name": RESOURCE, "nominalQuota": render(RESOURCE, given)}
    if queue.borrowing is not None:
        quota["borrowingLimit"] = render(RESOURCE, queue.borrowing)
    if queue.lending is not None:
        quota["lendingLimit"] = render(RESOURCE, queue.lending)
    return quota
