"""Two versions are compared pair by pair."""

from __future__ import annotations

from pathlib import Path

import pytest

from admittance.bench.against import comparison, lines_of
from admittance.bench.run import Delay, Report
from admittance.bench.system import ProcessUse
from admittance.bench.trees import tree_of
from admittance.runtime.errors import SetupError


def a_report(wall: float, *, server: float = 1.0, evictions: int = 0, finished: int = 10) -> Report:
    uses = (("admit up", 2 * wall), ("nats-server", server))
    return Report(
        wall_seconds=wall,
        lower_bound_seconds=1.0,
        workloads=10,
        finished=finished,
        workloads_per_second=1.0,
        cluster_queue_usage_percent={},
        useful_usage_percent=1.0,
        time_to_admission_ms={"small": Delay(mean=1.0, p50=wall, p99=2 * wall)},
        evictions=evictions,
        cpu_ms_per_workload=1.0,
        cpu_seconds=2 * wall + server,
        peak_memory_bytes=1 << 20,
        bus_raw_publish_per_second=1.0,
        persisted_messages_per_second=1.0,
        processes=tuple(
            ProcessUse(name=name, pid=1, cpu_seconds=cpu, peak_memory_bytes=1) for name, cpu in uses
        ),
        load_generator=ProcessUse(name="load", pid=2, cpu_seconds=1.0, peak_memory_bytes=1),
    )


THIS = [a_report(wall) for wall in (2.0, 6.0, 4.0)]
OTHER = [a_report(wall, server=2.0) for wall in (4.0, 8.0, 20.0)]


def test_a_ratio_is_the_median_of_the_ratios_of_the_pairs() -> None:
    ratios = comparison("old", THIS, OTHER).ratios
    wall = ratios["wall, s"]
    assert (wall.this, wall.other, wall.ratio, wall.least, wall.most) == (4.0, 8.0, 0.5, 0.2, 0.75)
    assert ratios["CPU of nats-server, s"].ratio == 0.5
    assert ratios["time to admission p99, ms, class small"].this == 8.0


def test_a_figure_that_was_0_before_has_no_ratio() -> None:
    evictions = comparison("old", [a_report(1.0, evictions=3)], [a_report(1.0)]).ratios["evictions"]
    assert (evictions.this, evictions.other, evictions.ratio) == (3, 0, None)


def test_an_incomplete_run_has_a_line_of_its_own() -> None:
    lines = lines_of(comparison("old", [a_report(1.0, finished=4)], [a_report(1.0)]))
    assert lines[-1] == "INCOMPLETE: this: 4 of 10 workloads finished"


@pytest.mark.parametrize("name", ["no-such-version", "--output=x"])
def test_what_is_no_version_is_refused_with_its_name(name: str) -> None:
    with pytest.raises(SetupError, match=name), tree_of(name):
        pass


def test_a_folder_without_code_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match="has no code of Admittance"), tree_of(str(tmp_path)):
        pass
