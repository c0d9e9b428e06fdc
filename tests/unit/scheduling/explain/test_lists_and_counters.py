"""The list of waiting workloads, and the counters of queues and cohorts."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import msgspec
import pytest

from admittance.api.workload import RequeueState
from admittance.events.requests.queues import PendingQuery, PendingRow, Queues
from admittance.scheduling.explain import pending as pending_lists
from admittance.scheduling.state.config import Config
from admittance.scheduling.state.queue import remove_from_queue
from support.cores.families.family_scheduler import FamilyScheduler, full
from support.cores.stepped_scheduler import NOON, SteppedScheduler, groups, quota


def many(scheduler: SteppedScheduler, count: int, queue: str, *, first: int = 0) -> None:
    for n in range(first, first + count):
        scheduler.submit(f"{queue}-{n:03}", queue, str(9 + n % 3), priority=n % 2, age=1000 - n)


def names(
    scheduler: SteppedScheduler, namespace: str = "", **query: object
) -> list[tuple[int, str]]:
    rows = scheduler.core.pending(PendingQuery(**query), namespace).rows  # type: ignore[arg-type]
    return [(row.position, row.name) for row in rows]


def a_scheduler() -> SteppedScheduler:
    scheduler = SteppedScheduler(Config())
    scheduler.queue("cq", resourceGroups=groups(default="4"))
    return scheduler


def test_the_list_is_in_the_order_in_which_they_are_considered() -> None:
    scheduler = a_scheduler()
    many(scheduler, 12, "cq")
    listed = names(scheduler)
    assert [at for at, _ in listed] == list(range(1, 13))
    assert [scheduler.why(name).position for _, name in listed] == list(range(1, 13))
    considered: list[str] = []
    queue = scheduler.core._state.queues["cq"]
    while (head := queue.head()) is not None:
        considered.append(head.key[1])
        remove_from_queue(queue, head)
    assert considered == [name for _, name in listed]


def test_users_of_a_queue_see_the_workloads_ahead_but_nothing_more() -> None:
    scheduler = a_scheduler()
    scheduler.put("LocalQueue", "theirs", {"clusterQueue": "cq"}, namespace="team-b")
    scheduler.submit("first", "theirs", "3", namespace="team-b", priority=9)
    scheduler.submit("mine", "cq", "2", priority=5)
    scheduler.submit("last", "theirs", "1", namespace="team-b")
    for query in ({"local_queue": "cq"}, {"cluster_queue": "cq"}):
        reply = scheduler.core.pending(PendingQuery(others=True, **query), "ns")  # type: ignore[arg-type]
        assert [(row.position, row.name) for row in reply.rows] == [
            (1, "first"),
            (2, "mine"),
            (3, "last"),
        ]
        assert reply.total == 3
        [first, mine, _] = reply.rows
        assert first == PendingRow(
            namespace="team-b",
            name="first",
            cluster_queue="cq",
            local_queue="",
            position=1,
            priority=9,
            requests={"cpu": 3000},
        )
        assert (mine.priority, mine.local_queue, mine.requests) == (5, "cq", {"cpu": 2000})
    pages = [names(scheduler, "ns", local_queue="cq", others=True, skip=n, limit=1) for n in (0, 2)]
    assert pages == [[(1, "first")], [(3, "last")]]


@pytest.mark.parametrize(
    ("query", "namespace"),
    [
        pytest.param({"local_queue": "cq"}, "ns", id="nothing of others was asked for"),
        pytest.param({"others": True}, "ns", id="all queues of a namespace"),
    ],
)
def test_rows_of_other_namespaces_need_a_named_queue(query: dict[str, Any], namespace: str) -> None:
    scheduler = a_scheduler()
    scheduler.put("LocalQueue", "theirs", {"clusterQueue": "cq"}, namespace="team-b")
    scheduler.submit("first", "theirs", "3", namespace="team-b")
    scheduler.submit("mine", "cq", "2")
    assert names(scheduler, namespace, **query) == [(2, "mine")]


def test_queue_without_a_local_queue_of_the_namespace_shows_nothing() -> None:
    scheduler = a_scheduler()
    scheduler.submit("first", "cq", "3")
    assert names(scheduler, "stranger", cluster_queue="cq", others=True) == []


@pytest.mark.parametrize(
    ("query", "error"),
    [
        (PendingQuery(cluster_queue="nowhere"), "no ClusterQueue nowhere"),
        (PendingQuery(local_queue="nowhere"), "no LocalQueue ns/nowhere"),
    ],
)
def test_a_list_of_an_unknown_queue_is_refused(query: PendingQuery, error: str) -> None:
    assert a_scheduler().core.pending(query, "ns").error == error


def test_a_workload_that_changes_its_local_queue_leaves_the_others_there() -> None:
    scheduler = a_scheduler()
    scheduler.put("LocalQueue", "second", {"clusterQueue": "cq"}, namespace="ns")
    for name in "abc":
        scheduler.submit(name, "cq", "9")
    scheduler.respec("a", queueName="second")
    scheduler.gone("b")
    counted = {
        local_queue.name: local_queue.pending
        for local_queue in scheduler.core.queues(Queues(), "ns").local_queues
    }
    assert counted == {"cq": 1, "second": 1}


def test_pages_make_up_the_whole_list_over_queues() -> None:
    scheduler = a_scheduler()
    scheduler.queue("other", resourceGroups=groups(default="4"))
    many(scheduler, 7, "other")
    many(scheduler, 7, "cq")
    for name in ("astray", "lost", "roaming"):
        scheduler.submit(name, "nowhere")
    whole = names(scheduler)
    assert len(whole) == 17
    assert whole[-3:] == [(0, "astray"), (0, "lost"), (0, "roaming")]
    for skip in range(18):
        for limit in (0, 1, 2, 4, 9):
            assert names(scheduler, skip=skip, limit=limit) == whole[skip : skip + limit]
    assert scheduler.core.pending(PendingQuery(skip=6, limit=2)).total == 17


def test_a_reply_has_as_many_rows_as_fit_into_a_message(monkeypatch: pytest.MonkeyPatch) -> None:
    scheduler = a_scheduler()
    many(scheduler, 3, "cq")
    rows = scheduler.core.pending(PendingQuery()).rows
    size = sum(len(msgspec.json.encode(row)) + 1 for row in rows[:2])
    for most, count in ((size, 2), (size - 1, 1), (5, 1)):
        monkeypatch.setattr(pending_lists, "BYTES_MAX", most)
        reply = scheduler.core.pending(PendingQuery())
        assert (reply.rows, reply.total) == (rows[:count], 3)


def test_one_local_queue_is_listed_with_positions_in_its_cluster_queue() -> None:
    scheduler = a_scheduler()
    scheduler.put("LocalQueue", "second", {"clusterQueue": "cq"}, namespace="ns")
    many(scheduler, 30, "cq")
    scheduler.submit("few", "second", "9", age=990.5)
    scheduler.submit("late", "second", "9", age=1)
    whole = names(scheduler)
    wanted = [row for row in whole if row[1] in ("few", "late")]
    assert names(scheduler, "ns", local_queue="second") == wanted
    assert names(scheduler, "ns", local_queue="second", limit=1) == wanted[:1]
    assert scheduler.core.pending(PendingQuery(local_queue="second"), "ns").total == 2
    of_many = [row for row in whole if row[1] not in ("few", "late")]
    assert names(scheduler, "ns", local_queue="cq") == of_many


def test_a_row_shows_reason_numbers_flavors_and_waiting_time() -> None:
    scheduler = a_scheduler()
    scheduler.submit("large", "cq", "9", age=60)
    scheduler.settle()
    scheduler.submit("next", "cq", "1", age=5)
    scheduler.submit("later", "cq", "1")
    scheduler.change("later", requeue_state=RequeueState(requeue_at=NOON + timedelta(hours=1)))
    rows = {row.name: row for row in scheduler.core.pending(PendingQuery()).rows}
    assert (rows["large"].reason, rows["large"].parked) == ("ExceedsMaxQuota", True)
    assert "cpu: 9 > 4, the most that flavor default can give" in rows["large"].message
    assert rows["large"].flavors == ("default",)
    assert rows["large"].created == NOON - timedelta(seconds=60)
    assert (rows["next"].reason, rows["next"].parked) == ("PendingEvaluation", False)
    assert rows["later"].reason == "Backoff"
    assert "until 2026-01-01T13:00:00" in rows["later"].message


@pytest.mark.parametrize(
    ("spec", "reason", "what"),
    [
        pytest.param(
            {"admissionChecks": ["budgte"]},
            "AdmissionCheckNotFound",
            "missing AdmissionCheck(s): budgte",
            id="a check that there is not",
        ),
        pytest.param({"stopPolicy": "Hold"}, "Stopped", "is stopped", id="a queue on hold"),
    ],
)
def test_a_row_of_an_inactive_queue_has_the_reason(
    spec: dict[str, Any], reason: str, what: str
) -> None:
    scheduler = a_scheduler()
    scheduler.submit("parked", "cq", "9", age=9)
    scheduler.settle()
    scheduler.queue("cq", resourceGroups=groups(default="4"), **spec)
    scheduler.submit("new", "cq", "1")
    rows = scheduler.core.pending(PendingQuery()).rows
    assert [(row.name, row.reason) for row in rows] == [("parked", reason), ("new", reason)]
    assert all(what in row.message for row in rows)


def test_a_removed_resource_is_counted_only_while_it_is_used() -> None:
    scheduler = a_scheduler()
    scheduler.flavor("old")
    scheduler.queue("cq", resourceGroups=groups(default="4", old="2"))
    scheduler.submit("runs", "cq", "4", age=9)
    scheduler.submit("too", "cq", "2", age=8)
    assert scheduler.settle() == ["runs", "too"]
    assert scheduler.flavors("too") == [{"cpu": "old"}]
    scheduler.queue("cq", resourceGroups=groups(default="4"))

    def counted() -> list[tuple[str, int, int, int]]:
        (status,) = scheduler.core.queues(Queues(cluster_queue="cq")).cluster_queues
        return [(use.flavor, use.nominal, use.reserved, use.borrowed) for use in status.usage]

    assert counted() == [("default", 4000, 4000, 0), ("old", 0, 2000, 0)]
    scheduler.finish("too")
    assert counted() == [("default", 4000, 4000, 0)]
    scheduler.queue("cq", "co", resourceGroups=groups(default="1"))
    assert counted() == [("default", 1000, 4000, 3000)]


def test_a_local_queue_counts_what_its_own_workloads_hold() -> None:
    scheduler = a_scheduler()
    scheduler.put("LocalQueue", "second", {"clusterQueue": "cq"}, namespace="ns")
    scheduler.submit("a", "cq", "1", age=9)
    scheduler.submit("b", "second", "2", age=8)
    scheduler.cycle()
    scheduler.cycle(confirm=False)
    (said,) = scheduler.decided
    scheduler.change(
        "b", conditions={"QuotaReserved": (True, "QuotaReserved")}, admission=said.admission
    )
    locals_ = {
        local_queue.name: local_queue
        for local_queue in scheduler.core.queues(Queues(), "ns").local_queues
    }
    (first,), (second,) = locals_["cq"].usage, locals_["second"].usage
    assert (first.reserved, first.admitted) == (1000, 1000)
    assert (second.reserved, second.admitted) == (2000, 0)
    assert (locals_["second"].reserving, locals_["second"].admitted) == (1, 0)


def test_the_tree_of_a_cohort_counts_every_level() -> None:
    scheduler = SteppedScheduler(Config())
    scheduler.put("Cohort", "left", {"parentName": "root", "fairSharing": {"weight": "2"}})
    scheduler.queue("a", "left", resourceGroups=groups(default=quota("2", lend="1")))
    scheduler.queue("b", "root", resourceGroups=groups(default="3"))
    scheduler.submit("w", "a", "4")
    scheduler.settle()
    scheduler.submit("waits", "a", "9")
    tree = scheduler.core.queues(Queues(cohort="left")).tree
    shown = [(node.depth, node.kind, node.name) for node in tree]
    assert shown == [
        (0, "Cohort", "root"),
        (1, "ClusterQueue", "b"),
        (1, "Cohort", "left"),
        (2, "ClusterQueue", "a"),
    ]
    by_name = {node.name: node for node in tree}
    (of_a,) = by_name["a"].usage
    assert (of_a.nominal, of_a.usage, of_a.borrowed, of_a.lendable) == (2000, 4000, 2000, 1000)
    (of_left,) = by_name["left"].usage
    assert (of_left.subtree, of_left.usage, of_left.borrowed) == (1000, 3000, 2000)
    assert by_name["left"].weight == 2.0
    assert by_name["left"].share > 0
    assert (by_name["a"].pending, by_name["a"].reserving) == (1, 1)
    (of_root,) = by_name["root"].usage
    assert (of_root.total, of_root.used, of_root.admitted, of_root.reserved) == (
        5000,
        4000,
        4000,
        0,
    )
    assert (of_root.lent, by_name["b"].usage[0].lent, of_a.lent) == (2000, 2000, 0)
    root = by_name["root"]
    assert (root.pending, root.reserving, root.running) == (1, 1, 1)
    assert "no object names it" in scheduler.core.queues(Queues(cohort="nowhere")).error


def test_an_answer_fits_one_message_and_the_next_answer_continues_it() -> None:
    scheduler = SteppedScheduler(Config())
    flavors = [f"{'flavor-' * 10}{n}" for n in range(9)]
    for name in flavors:
        scheduler.flavor(name)
    scheduler.queue("cq", resourceGroups=groups(**dict.fromkeys(flavors, "4")))
    many(scheduler, 1_000, "cq")
    scheduler.settle()
    listed: list[str] = []
    while True:
        reply = scheduler.core.pending(PendingQuery(skip=len(listed)))
        assert reply.total == 1_000
        assert len(msgspec.json.encode(reply)) < 1_000_000
        if not reply.rows:
            break
        assert len(reply.rows) < 1_000
        listed += [row.name for row in reply.rows]
    assert len(set(listed)) == len(listed) == 1_000


def test_parked_by_key_has_the_workloads_of_the_list() -> None:
    scheduler = FamilyScheduler(Config())
    scheduler.family_queue()
    scheduler.queue("other", resourceGroups=groups(default="4"))
    full(scheduler)
    scheduler.family("family")
    many(scheduler, 3, "other")
    scheduler.settle()
    scheduler.submit("late", "other", "3")
    scheduler.submit("lost", "no-such-queue")
    scheduler.queue("deleted", resourceGroups=groups(default="4"))
    scheduler.submit("orphaned", "deleted")
    scheduler.delete("ClusterQueue", "deleted")
    rows = scheduler.core.pending(PendingQuery()).rows
    parked = {(row.namespace, row.name): row.parked for row in rows if row.position}
    assert scheduler.core.parked_by_key() == parked
    assert set(parked.values()) == {True, False}


def test_a_family_is_one_row_of_its_queue_and_namespace() -> None:
    scheduler = FamilyScheduler()
    scheduler.family_queue()
    full(scheduler)
    scheduler.family("a")
    scheduler.settle()
    for query in (
        {"cluster_queue": "cq"},
        {"local_queue": "cq"},
        {"cluster_queue": "cq", "limit": 1},
    ):
        assert names(scheduler, "ns", **query) == [(1, "a")]
    assert scheduler.core.pending(PendingQuery(cluster_queue="cq"), "ns").total == 1


def test_positions_skip_those_of_a_higher_priority_that_have_left() -> None:
    scheduler = a_scheduler()
    for n in range(6):
        scheduler.submit(f"high-{n}", "cq", "9", priority=1, age=100 - n)
    scheduler.submit("low", "cq", "9")
    for n in range(3):
        scheduler.finish(f"high-{n}")
    assert names(scheduler)[-1] == (4, "low")
    assert scheduler.why("low").position == 4
