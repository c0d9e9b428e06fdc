"""A forecast with a row that raises an exception."""

from __future__ import annotations

from typing import Any

import pytest

from admittance.forecast.guarded import guarded_forecast
from admittance.forecast.rows import Waiting
from unit.forecast.test_forecast import NOW, chance, close, job, memory, rows

BROKEN: Any = None
"""Stands for data of a workload that no play can use."""
X, Y, H = ("ns", "x"), ("ns", "y"), ("ns", "h")


@pytest.mark.parametrize(
    "broken",
    [
        pytest.param(job("y")._replace(choices=BROKEN), id="its amounts"),
        pytest.param(job("y")._replace(source=BROKEN), id="its source"),
        pytest.param(job("y")._replace(queue="no-queue"), id="its queue"),
    ],
)
def test_a_waiting_workload_that_breaks_a_play_is_left_out(broken: Waiting) -> None:
    tree = rows(job("x", 1), broken, since=NOW - 100)
    found = guarded_forecast(tree, memory(600), NOW, chance().random)
    assert found.starts == {X: close(440, 500, 560)}
    assert found.after == {X: (H,)}
    assert list(found.errors) == [Y]


def test_quota_of_a_workload_that_breaks_a_play_stays_taken() -> None:
    tree = rows(job("x"), since=NOW - 100)
    [held] = tree.holding
    tree = tree._replace(holding=[held._replace(source=BROKEN)])
    found = guarded_forecast(tree, memory(600), NOW, chance().random)
    assert (found.starts, list(found.errors)) == ({}, [H])


def test_an_error_of_no_single_workload_is_raised() -> None:
    tree = rows(job("x"))
    known = memory(600)
    known.arrivals = BROKEN
    with pytest.raises(AttributeError):
        guarded_forecast(tree, known, NOW, chance().random)
