"""Large workloads are decoded once in a process, and a limited number of them is kept; the largest
numbers of a status are read."""

from __future__ import annotations

import tracemalloc
from datetime import datetime
from typing import Any

import msgspec
import pytest

from admittance.api.workload import RequeueState
from admittance.events.reader import SEQUENCE_MAX, Unreadable
from admittance.workload import stored
from admittance.workload.bucket_reader import LARGE, read
from admittance.workload.change import with_status
from admittance.workload.moves.requests import arrive
from admittance.workload.stored import LogPosition
from support.builders import NOON, an_arrival, occasion

KEY = "workload.ns.w"


def value(length: int) -> bytes:
    """A stored workload of about this length."""
    spec = {"queueName": "lq", "podSets": [{"template": {"metadata": {"name": "x" * length}}}]}
    made = arrive(None, an_arrival(), occasion()).workload
    assert made is not None
    raw = msgspec.Raw(msgspec.json.encode(spec))
    return stored.encode(msgspec.structs.replace(made, spec=raw))


def test_services_of_a_process_share_a_large_workload_and_its_head() -> None:
    first, second = read(KEY, value(LARGE)), read(KEY, bytes(bytearray(value(LARGE))))
    assert first is second
    assert stored.head(first) is stored.head(second)
    assert read(KEY, value(100)) == read(KEY, value(100))
    assert read(KEY, value(100)) is not read(KEY, value(100))


def test_an_unreadable_large_workload_is_refused_each_time() -> None:
    other = value(LARGE).replace(b'"ns"', b'"other"')
    for _ in range(2):
        with pytest.raises(Unreadable):
            read(KEY, other)


def test_few_large_workloads_are_kept() -> None:
    length, many = 200_000, 60
    tracemalloc.start()
    try:
        for number in range(many):
            stored.head(read(KEY, value(length + number)))
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < many * length // 2


@pytest.mark.parametrize(
    ("at", "is_read"),
    [
        pytest.param(NOON, True, id="a time"),
        pytest.param(NOON.replace(tzinfo=None), False, id="without a zone"),
        pytest.param(NOON.replace(year=1900), True, id="the first year"),
        pytest.param(NOON.replace(year=1899), False, id="too early"),
        pytest.param(NOON.replace(year=9000), False, id="too late"),
    ],
)
@pytest.mark.parametrize("field", ["requeue_at", "pods_ready_until"])
def test_the_times_of_a_wait_have_a_zone_and_a_usual_year(
    field: str, at: datetime, is_read: bool
) -> None:
    times: dict[str, Any] = {field: at}
    state = RequeueState(**times)
    written = stored.encode(with_status(stored.decode(value(10)), requeue_state=state))
    if is_read:
        assert read(KEY, written) is not None
    else:
        with pytest.raises(Unreadable, match=r"status.requeueState: the time .* has no zone"):
            read(KEY, written)


NUMBERS = (
    *("log.fact", "admission_cycle", "rounds_since", "admitted_revision", "evicted_revision"),
    *("released_revision", "accumulated_past_execution_time_seconds"),
)


@pytest.mark.parametrize("field", NUMBERS)
def test_numbers_of_a_status_are_read_up_to_the_largest_sequence(field: str) -> None:
    def with_number(number: int) -> bytes:
        numbered = stored.decode(value(10))
        change = {field: number} if field != "log.fact" else {"log": LogPosition(fact=number)}
        return stored.encode(with_status(numbered, **change))

    assert read(KEY, with_number(SEQUENCE_MAX)) is not None
    with pytest.raises(Unreadable, match="out of range"):
        read(KEY, with_number(-1))
