"""What `admit usage` prints, and its wrong command lines."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from admittance.api.fields.usage_units import unit_named
from admittance.cli.accounting.usage_rows import check_lines, remarks, table_of
from admittance.events.requests.reading import UsageCheck, UsageSum
from admittance.usage.costs import prices_of
from admittance.usage.rows import Asked, csv_of, percent, row_of
from support.builders import NOON
from support.processes.in_process import Admit

PRICES = prices_of({"currency": "EUR", "prices": [{"resource": "gpu", "perHour": 2}]})
TEAM = UsageSum(
    group=("a",),
    runs=2,
    finished=1,
    failed=1,
    wait_seconds=10,
    resource_seconds={"cpu": "3600.5", "nvidia.com/gpu": "7200", "memory": str(2**30 * 3600)},
    used="2",
    share=0.31,
    entitled=0.25,
    cost="4.125",
)
IDLE = UsageSum(group=("",), running=1)
EVERYTHING = Asked(("cluster-queue",), unit_named("gpu-hours"), PRICES)


def printed(asked: Asked, *sums: UsageSum) -> list[dict[str, str]]:
    table = table_of(asked, sums)
    titles = [column.title for column in table.columns]
    return [dict(zip(titles, row, strict=True)) for row in table.rows]


def test_a_sum_has_its_share_entitlement_and_cost() -> None:
    team, idle = printed(EVERYTHING, TEAM, IDLE)
    assert team == {
        "CLUSTER-QUEUE": "a",
        "RUNS": "2",
        "FINISHED": "1",
        "FAILED": "1",
        "EVICTED": "0",
        "RUNNING": "0",
        "WAITED": "5s",
        "CPU-HOURS": "1.00",
        "GPU-HOURS": "2.00",
        "GIB-HOURS": "1.00",
        "SHARE": "31.0%",
        "ENTITLED": "25.0%",
        "COST EUR": "4.12",
    }
    assert (idle["CLUSTER-QUEUE"], idle["WAITED"], idle["SHARE"], idle["COST EUR"]) == (
        *("-", "-", "-"),
        "0.00",
    )


def test_only_what_was_asked_for_has_a_column() -> None:
    [row] = printed(Asked(("user",)), TEAM)
    assert {"SHARE", "COST EUR"}.isdisjoint(row)
    [days] = printed(
        Asked(("user",), unit_named("gpu-days")), msgspec.structs.replace(TEAM, entitled=None)
    )
    assert days["GPU-DAYS"] == "2.00"
    assert "ENTITLED" not in days
    costs = printed(
        Asked(("user",), None, prices_of({"prices": [{"resource": "gpu", "perHour": 1}]})), TEAM
    )
    assert list(costs[0])[-3:-1] == ["SHARE", "ENTITLED"]
    assert costs[0]["COST"] == "4.12"


def test_programs_get_exact_numbers() -> None:
    rows = [row_of(EVERYTHING, each) for each in (TEAM, IDLE)]
    assert msgspec.json.decode(msgspec.json.encode(rows))[0] == {
        "clusterQueue": "a",
        "runs": 2,
        "finished": 1,
        "failed": 1,
        "evicted": 0,
        "running": 0,
        "waitSeconds": 10,
        "cpuSeconds": 3600.5,
        "gpuSeconds": 7200,
        "resourceSeconds": {"cpu": 3600.5, "nvidia.com/gpu": 7200, "memory": 2**30 * 3600},
        "used": 2,
        "share": 0.31,
        "entitled": 0.25,
        "cost": 4.125,
    }
    assert csv_of(EVERYTHING, rows).splitlines() == [
        "clusterQueue,runs,finished,failed,evicted,running,waitSeconds,cpuSeconds,gpuSeconds,"
        "used,share,entitled,cost,memory seconds,nvidia.com/gpu seconds",
        "a,2,1,1,0,0,10,3600.5,7200,2,0.31,0.25,4.125,3865470566400,7200",
        ",0,0,0,0,1,0,0,0,,,,,0,0",
    ]
    assert EVERYTHING.names() == {"unit": "gpu-hours", "currency": "EUR"}
    assert Asked().names() == {}


@pytest.mark.parametrize(
    ("share", "text"),
    [(None, "-"), (0.0, "0.0%"), (0.0004, "<0.1%"), (0.0005, "0.1%"), (1.0, "100.0%")],
)
def test_a_share_is_shown_in_percent(share: float | None, text: str) -> None:
    assert percent(share) == text


def test_what_has_no_share_and_no_price_is_said() -> None:
    assert remarks(EVERYTHING, [TEAM]) == ["without a price: cpu, memory"]
    assert remarks(Asked((), unit_named("tpu-hours")), [TEAM]) == [
        "nothing held tpu: there are no shares"
    ]
    assert remarks(Asked(), [TEAM]) == []


@pytest.mark.parametrize(
    ("checked", "lines"),
    [
        (UsageCheck(), ["the log is empty"]),
        (
            UsageCheck(since="2026-01-02", runs=3, ahead=("2027-02-01", "2027-02-03")),
            [
                "a clock was ahead: sums of days that have not begun, 2027-02-01 to 2027-02-03",
                "no day is wholly on the log yet: the first one is 2026-01-02",
            ],
        ),
        (
            UsageCheck(since="2026-01-01", runs=3_000),
            ["3,000 runs on the log; sums of days and months from 2026-01-01 on: none differs"],
        ),
        (
            UsageCheck(since="2025-12-03", runs=3, corrected=2, differences=("x",)),
            [
                "corrected: x",
                "corrected: 1 more",
                "3 runs on the log; sums of days and months from 2025-12-03 on: 2 differed",
            ],
        ),
    ],
)
def test_a_comparison_with_the_log_is_said_in_lines(checked: UsageCheck, lines: list[str]) -> None:
    assert check_lines(checked, NOON) == lines


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--check", "--by", "user"], "--check compares all sums: leave out the other options"),
        (["--check", "-o", "csv"], "--check has no CSV"),
        (["--by", "team"], '--by "team" is not one of cluster-queue, namespace, queue, user'),
        (["--by", "user,user"], "--by user is named twice"),
        (["--by", "label:"], '--by "label:": '),
        (["--unit", "gpu"], '--unit "gpu" is not a unit: a resource, such as cpu'),
        (["--cost", "missing.yaml"], "--cost: cannot read missing.yaml: No such file"),
        (["--cost", "bad.yaml"], "--cost bad.yaml: price 1: perHour x is not a number"),
        (["--cost", "broken.yaml"], "--cost broken.yaml"),
    ],
)
def test_a_wrong_question_about_usage_is_one_line(
    admit: Admit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bad.yaml").write_text("prices: [{resource: cpu, perHour: x}]")
    (tmp_path / "broken.yaml").write_text("prices: [")
    err = admit.err(2, "usage", *words, "--nats", "nats://127.0.0.1:1")
    assert said in err
    assert err.count("\n") == 1
