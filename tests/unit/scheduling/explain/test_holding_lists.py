"""The list of what holds quota, beside that of what waits, and the lists of one user."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from admittance.api.arrays import ARRAY_LABEL, INDEX_LABEL
from admittance.events.requests.queues import PendingQuery, PendingReply
from admittance.scheduling.state.config import Config
from support.cores.stepped_scheduler import SteppedScheduler, groups

ELEMENT = {ARRAY_LABEL: "sweep", INDEX_LABEL: "1"}


def submit(scheduler: SteppedScheduler, name: str, queue: str, user: str, **meta: object) -> None:
    scheduler.submit(name, queue, "2", **meta)  # type: ignore[arg-type]
    stored = scheduler.stored[name]
    scheduler.gone(name)
    status = replace(stored.status, submitted_by=user)
    scheduler.restore(name, replace(stored, status=status))


@pytest.fixture
def scheduler() -> SteppedScheduler:
    """Quota for two workloads in each of two queues; the third waits, and one has no queue."""
    scheduler = SteppedScheduler(Config())
    for queue in ("cq", "other"):
        scheduler.queue(queue, resourceGroups=groups(default="4"))
    scheduler.put("LocalQueue", "theirs", {"clusterQueue": "cq"}, namespace="team-b")
    submit(scheduler, "a", "cq", "ada", age=9)
    submit(scheduler, "b", "theirs", "bob", age=8, namespace="team-b")
    submit(scheduler, "c", "cq", "bob", age=7, labels=ELEMENT)
    submit(scheduler, "d", "cq", "ada", age=6)
    submit(scheduler, "e", "other", "ada", age=5)
    submit(scheduler, "f", "nowhere", "bob", age=4)
    scheduler.settle()
    return scheduler


def reply(scheduler: SteppedScheduler, namespace: str, **query: object) -> PendingReply:
    asked = PendingQuery(**{"holding": 9, **query})  # type: ignore[arg-type]
    return scheduler.core.pending(asked, namespace)


@pytest.mark.parametrize(
    ("namespace", "query", "holding", "total", "waiting"),
    [
        ("", {}, "aeb", 3, "cdf"),
        ("ns", {}, "ae", 2, "cdf"),
        ("team-b", {}, "b", 1, ""),
        ("", {"cluster_queue": "cq"}, "ab", 2, "cd"),
        ("ns", {"local_queue": "cq"}, "a", 1, "cd"),
        ("", {"user": "ada"}, "ae", 2, "d"),
        ("", {"user": "bob"}, "b", 1, "cf"),
        ("ns", {"local_queue": "cq", "others": True, "user": "bob"}, "", 0, "c"),
        ("", {"user": "eve"}, "", 0, ""),
        ("", {"holding": 2}, "ae", 3, "cdf"),
        ("", {"holding": 0}, "", 0, "cdf"),
        ("", {"holding": -1}, "", 0, "cdf"),
    ],
)
def test_what_holds_quota_is_selected_as_what_waits(
    scheduler: SteppedScheduler,
    namespace: str,
    query: dict[str, object],
    holding: str,
    total: int,
    waiting: str,
) -> None:
    answer = reply(scheduler, namespace, **query)
    assert "".join(row.name for row in answer.holding) == holding
    assert answer.holding_total == total
    assert "".join(row.name for row in answer.rows) == waiting
    assert answer.total == len(waiting)


def test_a_row_says_what_is_held_since_when_and_by_which_user(scheduler: SteppedScheduler) -> None:
    row = reply(scheduler, "team-b").holding[0]
    assert (row.namespace, row.name, row.cluster_queue, row.local_queue) == (
        "team-b",
        "b",
        "cq",
        "theirs",
    )
    assert (row.state, row.flavors, row.requests) == ("Admitted", ("default",), {"cpu": 2000})
    assert (row.user, row.array, row.reserved_at) == ("bob", "", scheduler.now)
    waits = reply(scheduler, "").rows[0]
    assert (waits.name, waits.user, waits.array) == ("c", "bob", "sweep")


def test_what_got_quota_just_now_is_last_and_has_it_reserved(scheduler: SteppedScheduler) -> None:
    scheduler.submit("z", "other", "2")
    scheduler.cycle(confirm=False)
    scheduler.submit("a0", "other", "1")
    listed = [(row.name, row.state, row.reserved_at) for row in reply(scheduler, "").holding]
    assert listed[-1] == ("z", "QuotaReserved", None)
    scheduler.evict("a", "Preempted", requeued=False)
    scheduler.change("e", conditions={"Evicted": (True, "Preempted")})
    states = {row.name: row.state for row in reply(scheduler, "").holding}
    assert states == {"b": "Admitted", "e": "Evicting", "z": "QuotaReserved"}


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ({}, ["c", "d", "s1", "s2", "other", "plain", "f"]),
        ({"first_elements": True}, ["c", "d", "other", "plain", "f"]),
        ({"first_elements": True, "limit": 3}, ["c", "d", "other"]),
        ({"first_elements": True, "cluster_queue": "cq", "limit": 1}, ["c"]),
    ],
)
def test_an_array_is_listed_once_if_the_query_asks_for_it(
    scheduler: SteppedScheduler, query: dict[str, object], names: list[str]
) -> None:
    submit(scheduler, "s1", "cq", "ada", labels=ELEMENT)
    submit(scheduler, "s2", "cq", "ada", labels=ELEMENT)
    submit(scheduler, "other", "theirs", "ada", labels=ELEMENT, namespace="team-b")
    submit(scheduler, "plain", "theirs", "ada", labels={ARRAY_LABEL: "sweep"}, namespace="team-b")
    answer = reply(scheduler, "", **query)
    assert sorted(row.name for row in answer.rows) == sorted(names)
    assert answer.total == (6 if "cluster_queue" in query else 7)


def test_an_array_holds_quota_once_if_the_query_asks_for_it() -> None:
    scheduler = SteppedScheduler(Config())
    scheduler.queue("cq", resourceGroups=groups(default="9"))
    for name, labels in (("s1", ELEMENT), ("s2", ELEMENT), ("x", {}), ("y", {})):
        submit(scheduler, name, "cq", "ada", labels=labels)
    scheduler.settle()
    answers = [reply(scheduler, "", first_elements=on, holding=2) for on in (True, False)]
    assert [[row.name for row in answer.holding] for answer in answers] == [
        ["s1", "x"],
        ["s1", "s2"],
    ]
    assert [answer.holding_total for answer in answers] == [4, 4]


def test_a_list_of_first_elements_has_no_pages(scheduler: SteppedScheduler) -> None:
    error = reply(scheduler, "", first_elements=True, skip=1).error
    assert error == "firstElements goes with skip 0 only"
