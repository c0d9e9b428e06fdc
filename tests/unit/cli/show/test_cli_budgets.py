"""Budgets in tables and descriptions."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest

from admittance.cli.show.budgets import facts, row, show_state
from admittance.client.requests.objects import BucketObject
from support.builders import NOON

NOTHING_USED = {"checks": ["c"], "windowEnd": "2026-01-02T00:00:00Z"}
STATUS: dict[str, Any] = {
    "checks": ["c", "d"],
    "windowBegin": "2026-01-01T00:00:00Z",
    "windowEnd": "2026-01-02T00:00:00Z",
    "accounts": [
        {"name": "team-a", "used": 88.5, "ahead": 8, "limit": 100},
        {"name": "", "used": 3, "limit": 2},
        {"name": "free", "used": 1},
    ],
    "accountsTotal": 1_003,
    "waiting": [{"namespace": "ns", "name": "w"},
                {"namespace": "ns", "name": "x", "until": "2026-01-02T00:00:00Z"}],
    "waitingTotal": 2,
}  # fmt: skip


def stored(status: Any) -> BucketObject:
    spec = {"per": "Namespace", "window": "Day", "unit": "gpu-hours", "limits": {"team-a": 100}}
    value = {"kind": "Budget", "metadata": {"name": "b"}, "spec": spec}
    if status is not None:
        value["status"] = status
    return BucketObject("budget.b", json.dumps(value).encode(), 1)


@pytest.mark.parametrize(
    ("status", "most", "waiting", "following"),
    [
        (None, "?", "?", "-"),
        ({}, "no AdmissionCheck names it", "0", "-"),
        (NOTHING_USED, "nothing", "0", "in 12h"),
        (STATUS, "team-a 88.5 of 100, 8 ahead", "2", "in 12h"),
    ],
)
def test_a_row_has_what_is_used_most(status: Any, most: str, waiting: str, following: str) -> None:
    cells = row(stored(status), NOON)
    assert cells[:5] == ("b", "Namespace", "Day", "-", "gpu-hours")
    assert cells[5:8] == (most, waiting, following)


def test_a_description_has_accounts_and_what_waits(capsys: pytest.CaptureFixture[str]) -> None:
    assert facts(stored(None), NOON) == []
    assert facts(stored({}), NOON)[0][1].startswith("none: no AdmissionCheck names it")
    window = dict(facts(stored(STATUS), NOON + timedelta(hours=11)))["Next window"]
    assert window == "2026-01-02T00:00:00Z (in 1h)"
    show_state(stored(STATUS))
    printed, notes = capsys.readouterr()
    assert [line.split() for line in printed.splitlines()] == [
        [],
        ["Accounts"],
        ["ACCOUNT", "USED", "CHARGED", "AHEAD", "LIMIT", "LEFT"],
        ["team-a", "88.5", "8", "100", "3.5"],
        ["jobs", "without", "a", "user", "3", "0", "2", "0"],
        ["free", "1", "0", "-", "-"],
        [],
        ["Waiting"],
        ["WORKLOAD", "ASKED", "AGAIN"],
        ["ns/w", "for", "a", "verdict"],
        ["ns/x", "2026-01-02T00:00:00Z"],
    ]
    assert "1,000 more accounts" in notes
