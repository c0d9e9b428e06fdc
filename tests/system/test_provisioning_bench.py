"""The benchmark of provisioning, with small numbers, measures the running system."""

from __future__ import annotations

import re

import pytest
from benchmarks import provisioning

pytestmark = pytest.mark.bus


async def test_the_bench_measures_the_time_to_obtain_and_to_free_capacity() -> None:
    flight, rest, freed, killed = await provisioning.measured(requests=10, rate=20.0, bookings=6)
    assert re.match(r"10 requests in flight .* p50 [\d.]+ ms, p99 [\d.]+ ms", flight)
    assert rest.startswith("the other 5 provisioned at once: all admitted after ")
    assert re.match(r"a workload ends: its booking is gone after p50 \d+ ms", freed)
    match = re.match(r"3 workloads end .* gone ([\d.]+) s after the ends", killed)
    assert match is not None
