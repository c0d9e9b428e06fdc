"""The rows of an overview of queues, from what the scheduler answers and what is stored."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from admittance.api.meta import Condition, ObjectMeta
from admittance.api.workload import ArrayStatus
from admittance.client.requests.queues.overview import (
    Key,
    chosen_queues,
    elements_of,
    overview,
    running_rows,
    waiting_rows,
)
from admittance.events.placement import PlacementPart
from admittance.events.requests.forecast import ForecastReply, StartForecast
from admittance.events.requests.queues import (
    HoldingRow,
    PendingReply,
    PendingRow,
    QueuesReply,
    QueueStatus,
)
from admittance.workload.stored import StoredWorkload, WorkloadStatus

NOON = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)
ELEMENTS = ("1 succeeded", "2 Running", "3 in all")
SWEEP = WorkloadStatus(array=ArrayStatus(results="s..", states={"Running": 2}))


def held(name: str, **fields: Any) -> HoldingRow:
    whole = {"namespace": "ns", "cluster_queue": "cq", "local_queue": "q", "state": "Admitted"}
    return HoldingRow(name=name, **{**whole, **fields})


def pending(name: str, position: int, **fields: Any) -> PendingRow:
    whole = {"namespace": "ns", "cluster_queue": "cq", "local_queue": "q", "created": NOON}
    return PendingRow(name=name, position=position, **{**whole, **fields})


def stored(name: str, status: WorkloadStatus, **spec: Any) -> dict[Key, StoredWorkload]:
    meta = ObjectMeta(name=name, namespace="ns")
    whole = StoredWorkload(
        api_version="v",
        kind="Workload",
        metadata=meta,
        spec=msgspec.Raw(msgspec.json.encode(spec)),
        status=status,
    )
    return {("ns", name): whole}


def running_on(*runners: str, minutes: int = 10) -> WorkloadStatus:
    since = NOON - timedelta(minutes=minutes)
    conditions = tuple(
        Condition(type=name, status="True", reason=name, last_transition_time=since)
        for name in ("QuotaReserved", "Admitted", "PodsReady")
    )
    parts = tuple(
        PlacementPart(runner=name, id=name, pod_set="main", first=at, count=1)
        for at, name in enumerate(runners)
    )
    return WorkloadStatus(conditions=conditions, placement=parts)


def test_a_running_workload_has_its_time_of_its_limit_and_its_machines() -> None:
    known = stored("a", running_on("m1", "m2", "m1"), maximumExecutionTimeSeconds=3600)
    [row] = running_rows(
        [held("a", user="ada", priority=3, flavors=("spot",), requests={"cpu": 1})], known, NOON
    )
    assert (row.started, row.elapsed_seconds, row.limit_seconds) == (
        NOON - timedelta(minutes=10),
        600,
        3600,
    )
    assert (row.machines, row.flavors, row.elements) == (("m1", "m2"), ("spot",), ())
    assert (row.name, row.queue, row.cluster_queue, row.user) == ("a", "q", "cq", "ada")
    assert (row.priority, row.requests) == (3, {"cpu": 1})


def test_a_workload_for_a_program_has_the_end_of_its_lease() -> None:
    status = replace(running_on("m1"), renewed_at=NOON)
    [row] = running_rows([held("a")], stored("a", status, leaseDurationSeconds=60), NOON)
    assert row.lease_until == NOON + timedelta(seconds=60)


def test_a_workload_that_cannot_be_read_has_what_the_scheduler_says() -> None:
    [row] = running_rows([held("a", state="Evicting")], {}, NOON)
    assert (row.phase, row.started, row.elapsed_seconds, row.limit_seconds, row.machines) == (
        "Evicting",
        None,
        None,
        None,
        (),
    )


def test_an_element_that_runs_stands_for_its_array() -> None:
    known = stored("sweep", SWEEP)
    known |= stored("s-1", running_on("m1"), maximumExecutionTimeSeconds=9)
    rows = running_rows([held("s-1", array="sweep", flavors=("a",)), held("x")], known, NOON)
    assert [(row.name, row.elements) for row in rows] == [("sweep", ELEMENTS), ("x", ())]
    assert rows[0].started == NOON - timedelta(minutes=10)
    assert (rows[0].flavors, rows[0].machines) == ((), ())
    assert (rows[0].elapsed_seconds, rows[0].limit_seconds) == (None, None)


def test_an_element_that_waits_stands_for_its_array() -> None:
    rows = waiting_rows(
        [
            pending("w", 1, waiting_since=NOON + timedelta(hours=1), user="ada", reason="R"),
            pending("s-1", 2, array="sweep", message="first", priority=2, requests={"cpu": 1}),
            pending("s-1", 4, array="sweep", namespace="other"),
        ],
        stored("sweep", SWEEP),
        {("ns", "s-1"): StartForecast(unknown="why")},
    )
    assert [(row.namespace, row.name, row.position) for row in rows] == [
        ("ns", "w", 1),
        ("ns", "sweep", 2),
        ("other", "s-1", 4),
    ]
    assert (rows[0].since, rows[0].user, rows[0].reason) == (NOON + timedelta(hours=1), "ada", "R")
    assert (rows[1].since, rows[1].message, rows[1].elements) == (NOON, "first", ELEMENTS)
    assert (rows[1].priority, rows[1].requests) == (2, {"cpu": 1})
    assert [row.start for row in rows] == [None, StartForecast(unknown="why"), None]


@pytest.mark.parametrize(
    ("array", "status", "elements"),
    [
        ("", SWEEP, ()),
        ("sweep", SWEEP, ELEMENTS),
        ("sweep", WorkloadStatus(), ()),
        ("gone", SWEEP, ()),
    ],
)
def test_only_an_element_of_a_known_array_is_counted_with_it(
    array: str, status: WorkloadStatus, elements: tuple[str, ...]
) -> None:
    assert elements_of(held("s-1", array=array), stored("sweep", status)) == elements


@pytest.mark.parametrize(
    ("target", "everything", "names"),
    [
        ("", False, ["a", "c"]),
        ("", True, ["a", "b", "c"]),
        ("b", False, ["b"]),
        ("none", False, []),
    ],
)
def test_an_overview_has_the_queues_of_the_namespace_or_the_named_one(
    target: str, everything: bool, names: list[str]
) -> None:
    reply = QueuesReply(
        cluster_queues=tuple(QueueStatus(name=name) for name in "cab"),
        local_queues=tuple(QueueStatus(name="q", cluster_queue=name) for name in "aca"),
    )
    chosen = chosen_queues(reply, target, everything=everything)
    assert [queue.name for queue in chosen] == names


class Link(SimpleNamespace):
    """A link to services with one workload that holds quota and one that waits; ``asked``: what
    they were asked, ``read``: the keys that were read from the bucket."""

    user = ""

    def __init__(self) -> None:
        super().__init__(asked=[], read=[])

    async def ask(self, what: str, _query: Any, reply: Any, **_: Any) -> Any:
        self.asked.append(what)
        rows = PendingReply(holding=(held("h"),), holding_total=1, rows=(pending("w", 1),), total=1)
        starts = ForecastReply(starts={"ns/w": StartForecast(unknown="why")})
        queues = QueuesReply(cluster_queues=(QueueStatus(name="cq"),))
        return {PendingReply: rows, ForecastReply: starts, QueuesReply: queues}[reply]

    async def get(self, key: str) -> None:
        self.read.append(key)


@pytest.mark.parametrize(
    ("brief", "asked"), [(False, ["pending", "queues", "forecast"]), (True, ["pending"])]
)
def test_a_brief_overview_asks_for_its_rows_only(brief: bool, asked: list[str]) -> None:
    link: Any = Link()
    found = asyncio.run(overview(link, None, None, mine=False, limit=9, brief=brief))
    assert ([row.name for row in found.running], [row.name for row in found.waiting]) == (
        ["h"],
        ["w"],
    )
    assert (found.queues == (), found.waiting[0].start is None) == (brief, brief)
    assert (link.asked, link.read) == (asked, ["workload.ns.h"])
