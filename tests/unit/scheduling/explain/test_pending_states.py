"""Lists of workloads by state and reason, and how many there are of each."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from admittance.events.requests.queues import PendingQuery, PendingReply
from admittance.scheduling.state.config import Config
from support.cores.stepped_scheduler import SteppedScheduler, groups

EVERY = ("Pending", "QuotaReserved", "Held")


@pytest.fixture
def scheduler() -> SteppedScheduler:
    """In `cq`, `large` never fits, `waits` and `small` lack quota, `checked` has quota and is not
    admitted, and `held` is held; `theirs` is of another namespace; `lost` has no ClusterQueue."""
    scheduler = SteppedScheduler(Config())
    scheduler.queue("cq", resourceGroups=groups(default="4"))
    scheduler.put("LocalQueue", "theirs", {"clusterQueue": "cq"}, namespace="team-b")
    scheduler.admits = False
    scheduler.submit("checked", "cq", "3", age=9)
    scheduler.settle()
    scheduler.submit("large", "cq", "9", age=8)
    scheduler.submit("held", "cq", "1", age=7)
    scheduler.change("held", conditions={"QuotaReserved": (False, "OnHold")})
    scheduler.submit("theirs", "theirs", "2", age=6, namespace="team-b")
    scheduler.submit("waits", "cq", "2", age=5)
    scheduler.submit("small", "cq", "2", age=4)
    scheduler.submit("lost", "nowhere", age=3)
    scheduler.settle()
    return scheduler


def reply(scheduler: SteppedScheduler, namespace: str = "", **query: Any) -> PendingReply:
    return scheduler.core.pending(PendingQuery(**query), namespace)


@pytest.mark.parametrize(
    ("namespace", "query", "names"),
    [
        pytest.param("", {}, "large theirs waits small lost", id="what waits"),
        pytest.param("", {"states": ("Held",)}, "held", id="what is held"),
        pytest.param("", {"states": ("QuotaReserved",)}, "checked", id="what waits for checks"),
        pytest.param(
            "", {"states": EVERY}, "large theirs waits small checked held lost", id="every state"
        ),
        pytest.param(
            "", {"states": EVERY, "skip": 3, "limit": 3}, "small checked held", id="a later page"
        ),
        pytest.param("", {"reasons": ("WaitingForQuota",)}, "theirs waits small", id="one reason"),
        pytest.param(
            "", {"reasons": ("WaitingForQuota",), "skip": 1, "limit": 1}, "waits", id="its 2nd page"
        ),
        pytest.param("ns", {"reasons": ("WaitingForQuota",)}, "waits small", id="of a namespace"),
        pytest.param("", {"reasons": ("Other",)}, "", id="a reason without workloads"),
        pytest.param(
            "", {"states": EVERY, "reasons": ("OnHold", "Misconfigured")}, "held lost", id="both"
        ),
        pytest.param("team-b", {"states": EVERY}, "theirs", id="every state of a namespace"),
        pytest.param(
            "ns",
            {"states": EVERY, "local_queue": "cq", "others": True},
            "large waits small checked held",
            id="no rows of others",
        ),
    ],
)
def test_rows_are_chosen_by_state_and_reason(
    scheduler: SteppedScheduler, namespace: str, query: dict[str, Any], names: str
) -> None:
    answer = reply(scheduler, namespace, **query)
    assert [row.name for row in answer.rows] == names.split()
    if "limit" not in query:
        assert answer.total == len(names.split())


@pytest.mark.parametrize("namespace", ["", "ns"])
def test_counts_do_not_depend_on_the_chosen_rows(
    scheduler: SteppedScheduler, namespace: str
) -> None:
    right = Counter(
        {
            ("Pending", "WaitingForQuota"): 2 if namespace else 3,
            ("Pending", "ExceedsMaxQuota"): 1,
            ("Pending", "Misconfigured"): 1,
            ("QuotaReserved", "QuotaReserved"): 1,
            ("Held", "OnHold"): 1,
        }
    )
    for query in ({}, {"states": ("Held",)}, {"reasons": ("Other",)}):
        counts = reply(scheduler, namespace, counts=True, **query).counts
        assert {(it.state, it.reason): it.count for it in counts} == right
    assert reply(scheduler, namespace).counts == ()


def test_a_strict_queue_counts_its_blocking_head_apart() -> None:
    scheduler = SteppedScheduler(Config())
    scheduler.queue("cq", resourceGroups=groups(default="4"), queueingStrategy="StrictFIFO")
    for age, (name, cpu) in enumerate((("c", "1"), ("b", "2"), ("a", "3"))):
        scheduler.submit(name, "cq", cpu, age=age)
    scheduler.settle()
    counts = {it.reason: it.count for it in reply(scheduler, counts=True).counts}
    assert counts == {"WaitingForQuota": 1, "PendingEvaluation": 1}
    for reason, name in (("WaitingForQuota", "b"), ("PendingEvaluation", "c")):
        assert [row.name for row in reply(scheduler, reasons=(reason,)).rows] == [name]


def test_a_stopped_queue_is_the_reason_of_all_its_workloads(scheduler: SteppedScheduler) -> None:
    scheduler.queue("cq", resourceGroups=groups(default="4"), stopPolicy="Hold")
    (row, *_) = reply(scheduler, reasons=("Stopped",)).rows
    assert row.name == "large"
    assert reply(scheduler, reasons=("Stopped",)).total == 4


def test_rows_say_what_is_short_and_since_when(scheduler: SteppedScheduler) -> None:
    waits, checked, held = (
        row
        for row in reply(scheduler, states=EVERY).rows
        if row.name in ("waits", "checked", "held")
    )
    (short,) = waits.shortfalls
    assert (short.flavor, short.resource, short.requested, short.available) == (
        *("default", "cpu"),
        *(2000, 1000),
    )
    assert (waits.state, waits.position, waits.waiting_since) == ("", 3, waits.created)
    assert (checked.state, checked.position) == ("QuotaReserved", 0)
    assert checked.waiting_since == scheduler.now
    assert (held.state, held.reason, held.waiting_since) == ("Held", "OnHold", None)


def test_an_unknown_state_is_refused(scheduler: SteppedScheduler) -> None:
    error = reply(scheduler, states=("Running",)).error
    assert error == "no state Running: there are Pending, QuotaReserved, Held"
