"""Metrics in the text format of Prometheus, read by its own parser."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from prometheus_client.parser import text_string_to_metric_families

from admittance.runtime.errors import SetupError
from admittance.runtime.telemetry.metrics import (
    OTHER,
    PREFIX,
    SERIES_MAX,
    Counter,
    Gauges,
    Histogram,
    Labels,
    Metric,
    gauge,
    prefix_of,
    text_of,
)

Series = tuple[str, tuple[tuple[str, str], ...]]


def text(*metrics: Metric, prefix: str = PREFIX) -> str:
    return b"".join(text_of(metrics, prefix)).decode()


def parsed(*metrics: Metric) -> dict[Series, float]:
    families = text_string_to_metric_families(text(*metrics))
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in families
        for sample in family.samples
    }


def test_counters_and_histograms_are_read_by_prometheus() -> None:
    counter = Counter("things", "Things", ("kind",))
    strange = 'quo"te, back\\slash, \n line'
    counter.add(("a",))
    counter.add(("a",), 2)
    counter.add((strange,))
    waits = Histogram("wait_seconds", "Waits", ())
    for seconds in (0.0, 10, 11, 10_000_000):
        waits.observe((), seconds)
    samples = parsed(counter, waits)
    assert samples["admittance_things_total", (("kind", "a"),)] == 3
    assert samples["admittance_things_total", (("kind", strange),)] == 1
    buckets = {"0.01": 1, "10": 2, "30": 3, "604800": 3, "+Inf": 4}
    for bound, count in buckets.items():
        assert samples["admittance_wait_seconds_bucket", (("le", bound),)] == count
    assert samples["admittance_wait_seconds_count", ()] == 4
    assert samples["admittance_wait_seconds_sum", ()] == 10_000_021


def test_a_histogram_shows_each_change_since_the_last_scrape() -> None:
    waits = Histogram("wait_seconds", "Waits", ("queue",))
    for name in ("a", 'b "%s"'):
        waits.observe((name,), 3)
    before = parsed(waits)
    assert parsed(waits) == before
    waits.observe(('b "%s"',), 3)
    after = parsed(waits)
    changed = {key: value for key, value in after.items() if value != before[key]}
    assert {dict(labels)["queue"] for _, labels in changed} == {'b "%s"'}
    assert after["admittance_wait_seconds_sum", (("queue", 'b "%s"'),)] == 6
    assert after["admittance_wait_seconds_bucket", (("le", "5"), ("queue", 'b "%s"'))] == 2
    assert text(waits, prefix="kueue_") == text(waits).replace("admittance_", "kueue_")


def test_the_number_of_series_is_limited() -> None:
    counter = Counter("things", "Things", ("kind",))
    waits = Histogram("wait_seconds", "Waits", ("kind",))
    for number in range(SERIES_MAX + 10):
        counter.add((str(number),))
        waits.observe((str(number),), 1)
    assert len(counter.values) == len(waits.values) == SERIES_MAX + 1
    assert counter.values[OTHER,] == sum(waits.values[OTHER,][:-1]) == 10


def test_a_gauge_is_read_at_each_scrape() -> None:
    values: dict[Labels, float] = {("a",): 1, ("b",): 1}
    gauges = Gauges((gauge("open", "Open ones", ("queue",)),), lambda: {"open": values})
    assert parsed(gauges)["admittance_open", (("queue", "a"),)] == 1
    values[("a",)] = 2
    del values[("b",)]
    assert parsed(gauges) == {("admittance_open", (("queue", "a"),)): 2}


def test_a_gauge_is_read_again_if_its_state_changes_during_the_read() -> None:
    tries: list[int] = []

    def read() -> Mapping[str, Mapping[Labels, float]]:
        tries.append(1)
        if len(tries) < 3:
            raise RuntimeError("dictionary changed size during iteration")
        return {"open": {(): 1}}

    assert parsed(Gauges((gauge("open", "Open ones"),), read)) == {("admittance_open", ()): 1}


def test_series_of_one_name_from_two_services_stand_together() -> None:
    first = gauge("leads", "Whether it leads", ("service",))
    shown = text(
        Gauges((first,), lambda: {"leads": {("a",): 1}}),
        Gauges((gauge("other", "Other"),), lambda: {"other": {(): 5}}),
        Gauges((first,), lambda: {"leads": {("b",): 0}}),
        prefix="kueue_",
    )
    lines = [line for line in shown.splitlines() if not line.startswith("#")]
    assert lines == ['kueue_leads{service="a"} 1', 'kueue_leads{service="b"} 0', "kueue_other 5"]
    assert shown.count("# TYPE kueue_leads gauge") == 1


@pytest.mark.parametrize("prefix", ["9kueue", "kueue-", "a b", "k:"])
def test_a_prefix_that_prometheus_refuses_is_reported(prefix: str) -> None:
    with pytest.raises(SetupError, match="prefix"):
        prefix_of(prefix)


def test_a_counter_shows_zero_before_its_first_event() -> None:
    conflicts = Counter("conflicts", "Conflicts", ())
    letters = Counter("letters", "Letters", ("reason",), start=[("Invalid",)])
    letters.begin(("Undecodable",))
    letters.add(("Undecodable",))
    letters.begin(("Undecodable",))
    samples = parsed(conflicts, letters, Histogram("size", "Sizes", ()))
    assert samples["admittance_conflicts_total", ()] == 0
    assert samples["admittance_letters_total", (("reason", "Invalid"),)] == 0
    assert samples["admittance_letters_total", (("reason", "Undecodable"),)] == 1
    assert samples["admittance_size_count", ()] == 0
