"""Requests of people take turns by namespace, and limits refuse them."""

from __future__ import annotations

from itertools import count

import pytest

from admittance.api.configuration import UserLimits
from admittance.control.user_requests.flow_control import (
    ALL_WAITING_BYTES_MAX,
    FACT_BYTES_MAX,
    IN_FLIGHT_BYTES,
    IN_FLIGHT_MAX,
    REQUEST_BYTES,
    SMALL_BYTES,
    WAITING_BYTES_MAX,
    FlowControl,
    PendingCounts,
    UserRequest,
)
from admittance.workload.change import with_condition, with_status
from admittance.workload.conditions import Type
from admittance.workload.moves.requests import arrive
from admittance.workload.stored import StoredWorkload
from support.builders import NOON, an_admission, an_arrival, occasion

NUMBERS = count()


def asks(
    namespace: str, *, verb: str = "submitted", size: int = 100, queue: str = ""
) -> UserRequest:
    return UserRequest(f"id-{next(NUMBERS)}", "ada", verb, namespace, size, queue)


def flow(**limits: int) -> FlowControl:
    return FlowControl(UserLimits(**limits), PendingCounts())


def a_workload(name: str = "w") -> StoredWorkload:
    made = arrive(None, an_arrival(name), occasion()).workload
    assert made is not None
    return made


def test_namespaces_take_turns() -> None:
    control = flow()
    flood = [asks("flood") for _ in range(1000)]
    for request in flood:
        assert control.arrive(request, 0) is None
    single = asks("quiet")
    control.arrive(single, 0)
    taken = control.take()
    assert taken[:3] == [flood[0], single, flood[1]]
    assert len(taken) == IN_FLIGHT_MAX


def test_large_facts_of_a_namespace_leave_a_quiet_one_its_turn() -> None:
    """64 of them would keep the workload-controller busy for seconds."""
    control = flow()
    large = [asks("flood", size=300_000)._replace(manifest_size=300_000) for _ in range(9)]
    for request in large:
        control.arrive(request, 0)
    assert control.take() == large[:1]
    quiet = [asks("quiet") for _ in range(3)]
    large.append(asks("third", size=SMALL_BYTES + 1))
    for request in [*quiet, large[-1]]:
        control.arrive(request, 0)
    assert control.take() == quiet, "small facts do not wait"
    assert control.take() == []
    control.stored(large[0], 7)
    assert control.take() == []
    control.applied(7)
    assert control.take() == [large[1]]
    control.dropped(large[1])
    assert control.take() == [large[-1], large[2]], "namespaces take turns"


def test_large_fact_does_not_wait_for_a_stream_of_small_ones() -> None:
    control = flow()
    small = 10_000
    for _ in range(3 * IN_FLIGHT_MAX):
        control.arrive(asks("flood", size=small), 0)
    flight = control.take()
    assert sum(request.size for request in flight) > IN_FLIGHT_BYTES
    large = asks("other", size=SMALL_BYTES + 1)
    control.arrive(large, 0)
    control.dropped(flight[0])
    control.arrive(asks("flood", size=small), 0)
    control.dropped(flight[1])
    assert large in control.take()


def test_quiet_namespace_is_next_when_the_first_fact_is_applied() -> None:
    control = flow()
    for _ in range(1000):
        control.arrive(asks("flood"), 0)
    for sequence, request in enumerate(control.take(), 1):
        control.stored(request, sequence)
    single = asks("quiet")
    control.arrive(single, 0)
    assert control.take() == []
    control.applied(2)
    first, second = control.take()
    assert single in (first, second)


def test_facts_on_the_way_are_bounded_until_they_are_applied() -> None:
    control = flow()
    for _ in range(2 * IN_FLIGHT_MAX):
        control.arrive(asks("flood"), 0)
    taken = control.take()
    assert control.take() == []
    for sequence, request in enumerate(taken, 1):
        control.stored(request, sequence)
    assert control.take() == []
    control.applied(10)
    assert len(control.take()) == 10


def test_a_repeated_fact_that_is_applied_already_takes_no_room() -> None:
    control = flow()
    control.applied(100)
    control.arrive(asks("a"), 0)
    [request] = control.take()
    control.stored(request, 7)
    for _ in range(IN_FLIGHT_MAX):
        control.arrive(asks("a"), 0)
    assert len(control.take()) == IN_FLIGHT_MAX


def test_a_fact_that_the_log_does_not_take_frees_its_place() -> None:
    control = flow(max_pending_per_namespace=1)
    control.arrive(asks("a"), 0)
    assert control.arrive(asks("a"), 0) is not None
    [request] = control.take()
    control.dropped(request)
    assert control.arrive(asks("a"), 0) is None


@pytest.mark.parametrize(
    ("request_", "reason"),
    [
        pytest.param(
            asks("a")._replace(manifest_size=2000, size=2100), "ManifestTooLarge", id="manifest"
        ),
        pytest.param(asks("a", verb="held", size=70_000), "MessageTooLarge", id="other message"),
    ],
)
def test_a_request_that_is_too_large_is_refused(request_: UserRequest, reason: str) -> None:
    refusal = flow(max_manifest_bytes=1024).arrive(request_, 0)
    assert refusal is not None
    assert (refusal.code, refusal.reason) == (413, reason)


@pytest.mark.parametrize(
    ("manifest_size", "beside", "fits"),
    [(1024, 0, True), (1025, 0, False), (9, 65_536, True), (9, 65_537, False)],
)
def test_a_request_may_be_as_large_as_its_limit(
    manifest_size: int, beside: int, fits: bool
) -> None:
    request = asks("a")._replace(manifest_size=manifest_size, size=manifest_size + beside)
    assert (flow(max_manifest_bytes=1024).arrive(request, 0) is None) is fits


def test_a_refused_message_is_measured_without_its_manifest() -> None:
    refusal = flow().arrive(asks("a")._replace(manifest_size=500, size=70_500), 0.0)
    assert refusal is not None
    assert "has 70,000 bytes beside a manifest" in refusal.description


def test_bytes_of_all_namespaces_are_bounded_and_freed_by_their_turns() -> None:
    control = flow()
    size = FACT_BYTES_MAX - REQUEST_BYTES
    for number in count():
        namespace = f"ns-{number}"
        refusal = control.arrive(asks(namespace, verb="held", size=size), 0.0)
        if refusal is not None:
            break
    assert refusal.reason == "TooManyWaiting"
    assert number == ALL_WAITING_BYTES_MAX // FACT_BYTES_MAX
    assert control.take()
    assert control.arrive(asks(namespace, verb="held", size=size), 0.0) is None


def test_pending_workloads_limit_submissions_and_nothing_else() -> None:
    pending = PendingCounts()
    control = FlowControl(UserLimits(max_pending_per_namespace=2), pending)
    pending.note("workload.ns.w", a_workload())
    assert control.arrive(asks("ns"), 0) is None
    refusal = control.arrive(asks("ns"), 0)
    assert refusal is not None
    assert (refusal.code, refusal.reason) == (409, "NamespaceFull")
    assert refusal.description.startswith("namespace ns has 2 pending workloads, 2 are allowed")
    assert control.arrive(asks("ns", verb="deactivated"), 0) is None
    assert control.arrive(asks("other"), 0) is None


def test_a_full_local_queue_refuses_and_another_one_does_not() -> None:
    control = flow(max_pending_per_local_queue=1)
    assert control.arrive(asks("ns", queue="x"), 0) is None
    refusal = control.arrive(asks("ns", queue="x"), 0)
    assert refusal is not None
    assert refusal.reason == "LocalQueueFull"
    assert control.arrive(asks("ns", queue="y"), 0) is None


def test_rate_of_a_namespace_is_refilled_with_time() -> None:
    control = flow(max_per_second_per_namespace=10)
    answers = [control.arrive(asks("ns"), 0.0) for _ in range(11)]
    assert answers[:10] == [None] * 10
    assert answers[10] is not None
    assert (answers[10].code, answers[10].reason) == (429, "RateExceeded")
    assert control.arrive(asks("other"), 0.0) is None
    assert control.arrive(asks("ns"), 0.05) is not None
    assert control.arrive(asks("ns"), 0.11) is None
    assert control.arrive(asks("ns"), 0.11) is not None


@pytest.mark.parametrize(
    ("size", "room"),
    [
        pytest.param(500_000, WAITING_BYTES_MAX // (500_000 + REQUEST_BYTES), id="large ones"),
        pytest.param(0, WAITING_BYTES_MAX // REQUEST_BYTES, id="small ones take memory, too"),
    ],
)
def test_waiting_requests_of_a_namespace_have_bounded_bytes(size: int, room: int) -> None:
    control = flow()
    request = asks("a")._replace(size=size, manifest_size=size)
    for _ in range(room):
        assert control.arrive(request, 0) is None
    refusal = control.arrive(request, 0)
    assert refusal is not None
    assert (refusal.code, refusal.reason) == (429, "TooManyWaiting")
    assert control.waiting == room
    assert control.arrive(asks("b"), 0) is None


def test_pending_counts_follow_each_workload() -> None:
    pending = PendingCounts()
    waits = a_workload()
    queue = "lq"
    holds = with_status(waits, admission=an_admission())
    holds = with_condition(holds, Type.QUOTA_RESERVED, True, "QuotaReserved", now=NOON)
    done = with_condition(waits, Type.FINISHED, True, "Succeeded", now=NOON)
    for workload, want in ((waits, 1), (waits, 1), (holds, 0), (waits, 1), (done, 0), (None, 0)):
        pending.note("k", workload)
        assert pending.in_namespace("ns") == want
        assert pending.in_queue("ns", queue) == want
