"""Counters, histograms and gauges, served over HTTP for Prometheus.

Counting changes one value of a dict; the text for Prometheus is made at a scrape, in a thread of
its own. The number of series is bounded, whatever the labels are.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

import structlog

from admittance.runtime.errors import SetupError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

PREFIX: Final = "admittance_"
SERIES_MAX: Final = 2_000
"""The most series of one metric. Series with further label values are counted together under
`OTHER`.
"""
OTHER: Final = "other"
SECONDS: Final = (0.01, 0.05, 0.1, 0.5, 1, 5, 10, 30, 60, 300, 900, 3600, 14_400, 86_400, 604_800)
"""Upper bounds, in seconds, of a histogram's buckets."""

Labels = tuple[str, ...]
log = structlog.get_logger()


class Metric(ABC):
    """A metric with one series for each combination of labels. ``about``: the help text of the
    metric.
    """

    def __init__(self, name: str, about: str, labels: Sequence[str]) -> None:
        self.name = f"{PREFIX}{name}"
        self.about = about
        self.labels = tuple(labels)
        self._other = (OTHER,) * len(self.labels)

    @abstractmethod
    def families(self) -> Iterator[Any]:
        """The metric as objects of the Prometheus client's classes."""


class Counter(Metric):
    """A growing number for each combination of labels."""

    def __init__(self, name: str, about: str, labels: Sequence[str]) -> None:
        super().__init__(name, about, labels)
        self.values: dict[Labels, float] = {}

    def add(self, labels: Labels, amount: float = 1) -> None:
        """Adds the amount to the series with these labels."""
        if labels not in self.values and len(self.values) >= SERIES_MAX:
            labels = self._other
        self.values[labels] = self.values.get(labels, 0) + amount

    def families(self) -> Iterator[Any]:
        from prometheus_client.core import CounterMetricFamily

        family = CounterMetricFamily(self.name, self.about, labels=self.labels)
        for labels, value in dict(self.values).items():
            family.add_metric(labels, value)
        yield family


class Histogram(Metric):
    """Counts durations by length, for each combination of labels."""

    def __init__(self, name: str, about: str, labels: Sequence[str]) -> None:
        super().__init__(name, about, labels)
        self.values: dict[Labels, list[float]] = {}

    def observe(self, labels: Labels, seconds: float) -> None:
        """Counts one duration."""
        found = self.values.get(labels)
        if found is None:
            if len(self.values) >= SERIES_MAX:
                labels = self._other
            # A series has one element for each bucket, one for longer durations, and the sum.
            found = self.values.setdefault(labels, [0.0] * (len(SECONDS) + 2))
        found[bisect_left(SECONDS, seconds)] += 1
        found[-1] += seconds

    def families(self) -> Iterator[Any]:
        from prometheus_client.core import HistogramMetricFamily

        family = HistogramMetricFamily(self.name, self.about, labels=self.labels)
        for labels, kept in dict(self.values).items():
            *counts, total = list(kept)
            buckets = []
            so_far = 0.0
            for bound, count in zip([*map(str, SECONDS), "+Inf"], counts, strict=True):
                so_far += count
                buckets.append((bound, so_far))
            family.add_metric(labels, buckets=buckets, sum_value=total)
        yield family


class Gauge(Metric):
    """Numbers, one for each combination of labels, which ``read`` returns at a scrape."""

    def __init__(
        self,
        name: str,
        about: str,
        labels: Sequence[str],
        read: Callable[[], Mapping[Labels, float]],
    ) -> None:
        super().__init__(name, about, labels)
        self._read = read

    def families(self) -> Iterator[Any]:
        from prometheus_client.core import GaugeMetricFamily

        family = GaugeMetricFamily(self.name, self.about, labels=self.labels)
        for labels, value in islice(self._read().items(), SERIES_MAX):
            family.add_metric(labels, value)
        yield family


class _Collector:
    def __init__(self, metrics: Sequence[Metric]) -> None:
        self._metrics = tuple(metrics)

    def collect(self) -> Iterator[Any]:
        for metric in self._metrics:
            yield from metric.families()


def address_of(text: str) -> tuple[str, int]:
    """Returns host and port of ``HOST:PORT``, or of ``:PORT``, which means all addresses. Raises
    SetupError for any other text.
    """
    host, colon, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not colon or not port.isdigit() or int(port) > 65_535:
        raise SetupError(f"the address of metrics must be HOST:PORT, not {text!r}")
    return host or "0.0.0.0", int(port)


class _Served:
    """A metrics server of this process, and the number of its users."""

    def __init__(self, where: str) -> None:
        from prometheus_client import CollectorRegistry, start_http_server

        host, port = address_of(where)
        self.registry = CollectorRegistry()
        try:
            self._server, self._thread = start_http_server(port, addr=host, registry=self.registry)
        except OSError as error:
            raise SetupError(f"cannot serve metrics at {where}: {error.strerror}") from None
        self.address = (host, int(self._server.server_port))
        self.users = 0

    async def close(self) -> None:
        await asyncio.to_thread(self._server.shutdown)
        self._server.server_close()
        await asyncio.to_thread(self._thread.join)


_here: Final[dict[str, _Served]] = {}


@asynccontextmanager
async def serve_metrics(
    where: str | None, metrics: Sequence[Metric]
) -> AsyncIterator[tuple[str, int] | None]:
    """Serves the metrics over HTTP while the context is active; with ``where`` None does not serve
    them. Yields the address at which the metrics are served. Raises SetupError if the address
    cannot be used.

    Services of one process with the same address share one server.
    """
    if where is None:
        yield None
        return
    server = _here.get(where) or _Served(where)
    if not server.users and server.address[1] == address_of(where)[1]:
        _here[where] = server
    collector = _Collector(metrics)
    server.registry.register(collector)
    server.users += 1
    log.info("metrics_served", host=server.address[0], port=server.address[1])
    try:
        yield server.address
    finally:
        server.users -= 1
        server.registry.unregister(collector)
        if not server.users:
            _here.pop(where, None)
            await server.close()
