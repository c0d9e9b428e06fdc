"""Metrics as Prometheus reads them."""

from __future__ import annotations

import asyncio
import urllib.request

import pytest

from admittance.runtime.errors import SetupError
from admittance.runtime.telemetry.metrics import (
    OTHER,
    SERIES_MAX,
    Counter,
    Gauge,
    Histogram,
    Metric,
    address_of,
    serve_metrics,
)


async def scraped(*metrics: Metric) -> list[str]:
    async with serve_metrics("127.0.0.1:0", metrics) as address:
        return await read(address)


async def read(address: tuple[str, int] | None) -> list[str]:
    assert address is not None
    url = f"http://{address[0]}:{address[1]}/metrics"
    answer = await asyncio.to_thread(urllib.request.urlopen, url, timeout=5)
    text: str = answer.read().decode()
    answer.close()
    return text.splitlines()


async def a_free_port() -> int:
    async with serve_metrics("127.0.0.1:0", ()) as address:
        assert address is not None
        return address[1]


async def test_counters_and_histograms_are_read_over_http() -> None:
    counter = Counter("things", "Things", ("kind",))
    counter.add(("a",))
    counter.add(("a",), 2)
    counter.add(('quo"te',))
    waits = Histogram("wait_seconds", "Waits", ())
    for seconds in (0.0, 10, 11, 10_000_000):
        waits.observe((), seconds)
    lines = await scraped(counter, waits)
    assert 'admittance_things_total{kind="a"} 3.0' in lines
    assert 'admittance_things_total{kind="quo\\"te"} 1.0' in lines
    assert 'admittance_wait_seconds_bucket{le="0.01"} 1.0' in lines
    assert 'admittance_wait_seconds_bucket{le="10"} 2.0' in lines
    assert 'admittance_wait_seconds_bucket{le="30"} 3.0' in lines
    assert 'admittance_wait_seconds_bucket{le="604800"} 3.0' in lines
    assert 'admittance_wait_seconds_bucket{le="+Inf"} 4.0' in lines
    assert "admittance_wait_seconds_count 4.0" in lines
    assert "admittance_wait_seconds_sum 1.0000021e+07" in lines


def test_the_number_of_series_is_limited() -> None:
    counter = Counter("things", "Things", ("kind",))
    waits = Histogram("wait_seconds", "Waits", ("kind",))
    for number in range(SERIES_MAX + 10):
        counter.add((str(number),))
        waits.observe((str(number),), 1)
    assert len(counter.values) == len(waits.values) == SERIES_MAX + 1
    assert counter.values[OTHER,] == sum(waits.values[OTHER,][:-1]) == 10


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("127.0.0.1:9464", ("127.0.0.1", 9464)),
        (":9464", ("0.0.0.0", 9464)),
        ("[::1]:9464", ("::1", 9464)),
    ],
)
def test_an_address_has_a_host_and_a_port(text: str, want: tuple[str, int]) -> None:
    assert address_of(text) == want


@pytest.mark.parametrize("text", ["9464", "host", "host:", "host:x", "host:70000"])
def test_a_wrong_address_is_reported(text: str) -> None:
    with pytest.raises(SetupError, match="HOST:PORT"):
        address_of(text)


async def test_a_port_in_use_is_reported() -> None:
    async with serve_metrics("127.0.0.1:0", ()) as address:
        assert address is not None
        with pytest.raises(SetupError, match="cannot serve metrics"):
            async with serve_metrics(f"127.0.0.1:{address[1]}", ()):
                pass


async def test_a_gauge_is_read_at_each_scrape() -> None:
    found = {("a",): 1.0}
    gauge = Gauge("open", "Open ones", ("queue",), lambda: found)
    assert 'admittance_open{queue="a"} 1.0' in await scraped(gauge)
    found[("a",)] = 2.0
    assert 'admittance_open{queue="a"} 2.0' in await scraped(gauge)


async def test_services_of_one_process_share_one_address() -> None:
    one, other = Counter("ones", "Ones", ()), Counter("others", "Others", ())
    one.add(())
    other.add(())
    where = f"127.0.0.1:{await a_free_port()}"
    async with serve_metrics(where, (one,)) as address:
        async with serve_metrics(where, (other,)):
            both = await read(address)
        alone = await read(address)
    assert {"admittance_ones_total 1.0", "admittance_others_total 1.0"} <= set(both)
    assert "admittance_ones_total 1.0" in alone
    assert "admittance_others_total 1.0" not in alone
    async with serve_metrics(where, (other,)) as address:
        assert "admittance_others_total 1.0" in await read(address)


async def test_without_an_address_nothing_is_served() -> None:
    async with serve_metrics(None, ()) as address:
        assert address is None
