"""A picture of an earlier revision agrees with what the scheduler answered then."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec.structs import replace

from admittance.api.kinds import KINDS
from admittance.events.requests.queues import (
    PendingQuery,
    PendingReply,
    Queues,
    QueuesReply,
)
from admittance.events.subjects import object_key
from admittance.past.index import BLOCK, Growing
from admittance.past.picture import Picture
from admittance.past.rows import Row, RowMaker
from admittance.scheduling.state.config import Config
from admittance.workload import stored
from admittance.workload.stored import StoredWorkload
from support.cores.stepped_scheduler import SteppedScheduler, groups, quota


class RecordedScheduler(SteppedScheduler):
    """A system of which every write is a row."""

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self._maker = RowMaker(Config())
        super().__init__()

    def put(self, kind: str, name: str, spec: Any = None, namespace: str = "", **more: Any) -> None:
        super().put(kind, name, spec, namespace, **more)
        known = self.object_at(kind, name, namespace)
        assert known is not None
        self._record(object_key(KINDS[kind].token, namespace, name), known.value)

    def saw(self, key: str, before: StoredWorkload | None, after: StoredWorkload | None) -> None:
        super().saw(key, before, after)
        self._record(key, None if after is None else stored.encode(after))

    def _record(self, key: str, value: bytes | None) -> None:
        self.rows.append(self._maker.row(key, value, self.revision, 0, self.now))

    def picture(self, revision: int) -> Picture:
        """The picture at the revision, from rows alone."""
        growing = Growing("h", 0, ())
        assert not list(growing.add(self.rows))
        return Picture(growing.block().state_at(revision).values(), Config(), self.now)


def system() -> RecordedScheduler:
    made = RecordedScheduler()
    made.queue("a", cohort="tree", resourceGroups=groups(default=quota("3", borrow="1")))
    made.queue("b", cohort="tree", resourceGroups=groups(default=quota("4", lend="2")))
    return made


def comparable(reply: QueuesReply) -> QueuesReply:
    """A reply without what a picture does not have: which workloads are parked."""
    return replace(
        reply,
        cluster_queues=tuple(replace(each, parked=0) for each in reply.cluster_queues),
        local_queues=tuple(replace(each, parked=0) for each in reply.local_queues),
    )


def places(reply: PendingReply) -> list[tuple[str, int, str, int]]:
    return [(row.cluster_queue, row.position, row.name, row.priority) for row in reply.rows]


def test_queues_and_the_order_of_pending_workloads_are_those_of_the_scheduler() -> None:
    live = system()
    seen: list[tuple[int, QueuesReply, QueuesReply, PendingReply]] = []

    def look() -> None:
        counters = live.scheduler.queues(Queues())
        tree = live.scheduler.queues(Queues(cohort="tree"))
        seen.append((live.revision, counters, tree, live.scheduler.pending(PendingQuery())))

    look()
    for number, priority in enumerate((0, 5, 0, 1)):
        live.submit(f"w{number}", "a", cpu="2", priority=priority, age=number)
        live.submit(f"v{number}", "b", cpu="1", priority=priority)
        look()
    live.settle()
    look()
    live.finish("w1")
    look()
    live.settle()
    look()
    assert {len(pending.rows) for _, _, _, pending in seen} > {0, 2}
    for revision, counters, tree, pending in seen:
        then = live.picture(revision)
        assert comparable(then.queues(Queues(), "")) == comparable(counters)
        assert then.queues(Queues(cohort="tree"), "") == tree
        assert places(then.pending(PendingQuery(), "")) == places(pending)


def test_a_workload_is_explained_by_its_stored_reason_and_the_room_that_there_was() -> None:
    live = system()
    for number in range(3):
        live.submit(f"w{number}", "a", cpu="2", age=10 - number)
    live.settle()
    revision = live.revision
    live.finish("w0")
    live.settle()
    reply = live.picture(revision).explain("ns", "w2")
    [verdict] = reply.flavors
    [room] = verdict.rooms
    assert (reply.phase, reply.position, reply.pending, verdict.fits) == ("Pending", 1, 1, False)
    assert (room.requested, room.available, room.short, room.usage) == (2000, 0, 2000, 4000)
    assert [(holder.name, holder.amount, holder.spared_by) for holder in reply.held_by] == [
        ("w0", 2000, "NotLookedAt"),
        ("w1", 2000, "NotLookedAt"),
    ]
    assert live.picture(live.revision).explain("ns", "w2").flavors == ()
    assert live.picture(revision).explain("ns", "nothing").error


def test_rows_have_no_facts_of_what_cannot_be_read() -> None:
    maker = RowMaker(Config())
    now = system().now
    assert maker.row("workload.ns.w", b"{", 1, 1, now) == Row("workload.ns.w", 1, 1, True)
    assert maker.row("workload.ns.w", None, 2, 2, now) == Row("workload.ns.w", 2, 2)
    assert maker.row("_usage.ns.q", b"{}", 3, 3, now) == Row("_usage.ns.q", 3, 3, True)
    broken = maker.row("clusterqueue.q", b"{", 4, 4, now)
    assert Picture([broken], Config(), now).unreadable == ["clusterqueue.q"]


def test_a_block_ends_at_its_size_and_the_next_one_begins_with_its_state() -> None:
    growing = Growing("h", 0, ())
    rows = [
        Row(f"k{number % 7}", number, number, number % 7 != 3) for number in range(1, BLOCK + 6)
    ]
    [full] = growing.add(rows)
    last = growing.block()
    assert (full.begin, full.end, last.begin, last.end) == (0, BLOCK, BLOCK, BLOCK + 5)
    assert {row.key for row in last.base} == {f"k{n}" for n in (0, 1, 2, 4, 5, 6)}
    assert last.state_at(BLOCK) == full.state_at(BLOCK)
    assert msgspec.to_builtins(full.state_at(2)) == msgspec.to_builtins(
        {"k1": rows[0], "k2": rows[1]}
    )
