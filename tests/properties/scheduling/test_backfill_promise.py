"""What holds of EASY backfill, whatever runs and waits: a workload that may start beside the
promise never delays the head's expected start, and in one queue with true bounds no workload starts
after the first promise that it got."""

from __future__ import annotations

from datetime import datetime, timedelta
from heapq import heappop, heappush
from typing import NamedTuple

import hypothesis.strategies as st
from hypothesis import assume, event, given, settings

from admittance.quota.cell import Cell, Quota, available
from admittance.quota.tree import Tree
from admittance.scheduling.cycle.backfill import (
    Candidate,
    Head,
    ended_by,
    expected_start,
    may_start,
    promise_of,
)
from admittance.scheduling.preemption.room import fits
from admittance.scheduling.state.held.shared_quota import Holder
from admittance.scheduling.state.promise import Promise
from support.builders import NOON
from support.examples import examples

CPU = ("default", "cpu")
GPU = ("default", "gpu")

minutes = st.none() | st.integers(-1, 8)
limits = st.sampled_from([None, 0, 2])
amounts = st.tuples(st.integers(0, 3), st.integers(0, 1))


def minute(number: int | None) -> datetime | None:
    return None if number is None else NOON + timedelta(minutes=number)


def cells_of(tree: Tree, queue: str, amount: tuple[int, int]) -> dict[Cell, int]:
    node = tree.queues[queue]
    return {node.cell(CPU): amount[0], node.cell(GPU): amount[1]}


@settings(max_examples=examples(300), deadline=None)
@given(
    quotas=st.lists(st.tuples(limits, limits), min_size=2, max_size=2),
    held=st.lists(
        st.tuples(st.sampled_from("aab"), amounts, st.sampled_from([-1, 1, 2, 3, 5, 8, None])),
        min_size=2,
        max_size=6,
    ),
    more=st.integers(1, 2),
    offers=st.lists(st.tuples(st.sampled_from("ab"), amounts, minutes), min_size=1, max_size=3),
)
def test_a_decision_never_delays_the_expected_start_of_the_head(
    quotas: list[tuple[int | None, int | None]],
    held: list[tuple[str, tuple[int, int], int | None]],
    more: int,
    offers: list[tuple[str, tuple[int, int], int | None]],
) -> None:
    tree = Tree()
    tree.set_cohort("co", "", {CPU: Quota(1)})
    for name, (borrow, lend) in zip("ab", quotas, strict=True):
        tree.set_queue(name, "co", {CPU: Quota(4, borrow, lend), GPU: Quota(2, borrow, lend)})
    holders: list[Holder] = []

    def starts(queue: str, amount: tuple[int, int], end: int | None) -> None:
        cells = list(cells_of(tree, queue, amount).items())
        for cell, part in cells:
            cell.charge(part)
        holders.append(Holder(("ns", f"h{len(holders)}"), cells, minute(end)))

    for queue, amount, end in held:
        if fits(cells_of(tree, queue, amount), borrowing=True):
            starts(queue, amount, end)
    need = cells_of(tree, "a", (max(0, available(tree.queues["a"].cell(CPU))) + more, 1))
    promise = promise_of([Head(("ns", "head"), NOON, [need])], holders, NOON)
    assume(isinstance(promise, Promise))
    assert isinstance(promise, Promise)
    for queue, amount, end in offers:
        wanted = cells_of(tree, queue, amount)
        candidate = Candidate(wanted, minute(end), is_later=queue == "a", borrows=queue == "b")
        if fits(wanted, borrowing=True) and may_start(
            promise, candidate, ended_by(promise, holders)
        ):
            event("a workload starts beside the promise")
            before = expected_start(need, holders, NOON)
            starts(queue, amount, end)
            after = expected_start(need, holders, NOON)
            assert before is not None
            assert after is not None
            assert after <= before <= promise.at


class Job(NamedTuple):
    """``limit``: its declared bound; None: none. ``runs``: how long it really runs, at most its
    limit."""

    arrives: int
    amount: int
    limit: int | None
    runs: int


@st.composite
def jobs(draw: st.DrawFn) -> Job:
    limit = draw(st.sampled_from([1, 2, 3, 5, 8, 8, None]))
    runs = draw(st.integers(1, limit or 8))
    return Job(draw(st.integers(0, 6)), draw(st.integers(1, 4)), limit, runs)


@settings(max_examples=examples(150), deadline=None)
@given(st.lists(jobs(), min_size=3, max_size=12))
def test_the_first_promise_never_slips_in_one_queue_with_true_bounds(work: list[Job]) -> None:
    tree = Tree()
    cell = tree.set_queue("a", "", {CPU: Quota(4)}).cell(CPU)
    waiting: list[tuple[int, int]] = []
    running: dict[int, Holder] = {}
    ends: list[tuple[int, int]] = []
    first: dict[int, datetime] = {}
    times = sorted({job.arrives for job in work})
    now = 0
    while times or ends:
        now = min([*times[:1], *(end for end, _ in ends[:1])])
        at = NOON + timedelta(minutes=now)
        while ends and ends[0][0] == now:
            number = heappop(ends)[1]
            del running[number]
            cell.charge(-work[number].amount)
        if times and times[0] == now:
            del times[0]
            waiting += [(now, number) for number, job in enumerate(work) if job.arrives == now]
        promise: Promise | None = None
        blocked = False
        for place in list(waiting):
            number = place[1]
            job = work[number]
            need = {cell: job.amount}
            holders = list(running.values())
            if not fits(need, borrowing=True):
                if not blocked:
                    blocked = True
                    heads = [Head(("ns", str(number)), NOON + timedelta(minutes=place[0]), [need])]
                    found = promise_of(heads, holders, at)
                    if isinstance(found, Promise):
                        promise = found
                        assert found.is_certain
                        assert found.at <= first.setdefault(number, found.at)
                continue
            end = None if job.limit is None else at + timedelta(minutes=job.limit)
            candidate = Candidate(need, end, True, False)
            if promise and not may_start(promise, candidate, ended_by(promise, holders)):
                event("a workload waits for the promise")
                continue
            assert at <= first.get(number, at)
            waiting.remove(place)
            cell.charge(job.amount)
            running[number] = Holder(("ns", str(number)), [(cell, job.amount)], end)
            heappush(ends, (now + job.runs, number))
    assert not waiting
