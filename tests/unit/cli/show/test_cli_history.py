"""What `admit history` prints, and its wrong command lines."""

from __future__ import annotations

from typing import Any

import pytest

from admittance.cli.accounting.history_rows import preemptors_of, show, table_of
from admittance.client.requests.past import History
from admittance.usage.history import past_workloads
from support.builders import NOON
from support.processes.in_process import Admit
from unit.usage.test_run_history import ALL, EVICTED, a_report, an_admission

GPUS = an_admission(**{"cpu": ("spot", "720"), "nvidia.com/gpu": ("spot", "360")})


def titles_and_cells(*reports: Any, several: bool = False) -> dict[str, str]:
    table = table_of(past_workloads(reports, ALL), several=several)
    [row] = table.rows
    return dict(zip((column.title for column in table.columns), row, strict=True))


def test_a_row_has_the_last_run_and_the_sums_of_all() -> None:
    taken = {**EVICTED, "preemptor_submitted_by": "bob", "admission": GPUS}
    reports = (
        a_report(at=0, **taken),
        a_report(at=60, exit_code=3, reason="Failed", machines=("m",)),
    )
    assert titles_and_cells(*reports) == {
        "NAME": "w",
        "QUEUE": "lq",
        "CLUSTERQUEUE": "cq",
        "USER": "ada",
        "SUBMITTED": "2026-01-01T11:59:00Z",
        "WAITED": "10s",
        "RAN": "20s",
        "ENDED": "2026-01-01T12:01:10Z",
        "STATE": "Failed",
        "REASON": "Failed",
        "EXIT": "3",
        "FLAVOR": "default",
        "MACHINE": "m",
        "EVICTED": "1",
        "PREEMPTED BY": "ns/big (bob)",
        "CPU-HOURS": "2.00",
        "GPU-HOURS": "1.00",
    }


def test_columns_about_what_no_row_has_are_left_out() -> None:
    cells = titles_and_cells(a_report(submitted_by=""), several=True)
    assert cells["NAMESPACE"] == "ns"
    assert {"USER", "MACHINE", "EVICTED", "PREEMPTED BY"}.isdisjoint(cells)
    assert (cells["EXIT"], cells["GPU-HOURS"]) == ("0", "-")


def test_a_preemptor_is_named_once() -> None:
    reports = [a_report(at=at, **EVICTED) for at in (0, 20)]
    [row] = past_workloads([*reports, a_report(at=40, **{**EVICTED, "preempted_by": ""})], ALL)
    assert preemptors_of(row) == ["ns/big"]


@pytest.mark.parametrize(
    ("shape", "shown"),
    [
        pytest.param("table", "2026-01-01T12:00:00Z to 2026-01-01T12:00:00Z, ns n\n", id="table"),
        pytest.param("csv", "namespace,name,uid,", id="a CSV of its titles"),
        pytest.param("json", '"rows": []', id="json"),
        pytest.param("yaml", "rows: []", id="yaml"),
    ],
)
def test_a_history_of_nothing_is_shown(
    shape: str, shown: str, capsys: pytest.CaptureFixture[str]
) -> None:
    show(History(since=NOON, until=NOON), shape, "ns n", " of user x", several=False)
    said = capsys.readouterr()
    assert shown in said.out
    assert said.err == ("no run of user x ended in this time\n" if shape == "table" else "")


def test_a_csv_has_one_line_for_each_workload(capsys: pytest.CaptureFixture[str]) -> None:
    rows = past_workloads([a_report(at=0, **EVICTED), a_report(at=60)], ALL)
    show(History(since=NOON, until=NOON, rows=tuple(rows)), "csv", "", "", several=False)
    assert capsys.readouterr().out.splitlines()[1] == (
        "ns,w,uid-w,lq,cq,ada,2026-01-01T11:59:00Z,10,20,2026-01-01T12:01:10Z,"
        "succeeded,Succeeded,0,default,,2,1,ns/big,20,0"
    )


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--state", "lost"], '--state "lost" is not one of succeeded, failed, evicted'),
        (["--sort", "age"], '--sort "age" is not one of ended, submitted'),
        (["--since", "1h", "--until", "2h"], '--since "1h" is not before --until "2h"'),
        (["--since", "soon"], '--since "soon" is neither a duration'),
        (["-o", "name"], '-o "name" is not one of table, wide, json, yaml, csv'),
    ],
)
def test_a_wrong_command_line_is_one_line(admit: Admit, words: list[str], said: str) -> None:
    err = admit.err(2, "history", *words, "--nats", "nats://127.0.0.1:1")
    assert said in err
    assert err.count("\n") == 1
