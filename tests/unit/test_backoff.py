"""The pauses between attempts."""

from __future__ import annotations

import re
from datetime import timedelta
from pathlib import Path

import pytest

from admittance.backoff import Backoff, pause_after

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("failures", "pause"), [(0, 0.0), (1, 0.5), (2, 1.0), (3, 2.0), (4, 3.0), (10_000, 3.0)]
)
def test_a_pause_doubles_up_to_its_limit(failures: int, pause: float) -> None:
    assert pause_after(failures, 0.5, 3.0) == pause
    seconds = timedelta(seconds=1)
    assert pause_after(failures, 0.5 * seconds, 3 * seconds) == pause * seconds


@pytest.mark.parametrize("first", [timedelta(days=1), timedelta(days=30), timedelta(days=60)])
def test_a_pause_stays_at_its_limit_after_any_number_of_failures(first: timedelta) -> None:
    assert pause_after(10_000, first, timedelta(days=40)) == timedelta(days=40)


def test_pauses_may_grow_by_another_factor_and_without_limit() -> None:
    slow, endless = Backoff(1.0, 3.0, factor=1.5), Backoff(1.0)
    assert [slow.next() for _ in range(4)] == [1.0, 1.5, 2.25, 3.0]
    assert [endless.next() for _ in range(4)] == [1.0, 2.0, 4.0, 8.0]


def test_a_success_begins_with_the_first_pause_again() -> None:
    backoff = Backoff(1.0, 60.0)
    backoff.next()
    backoff.next()
    backoff.reset()
    assert backoff.failures == 0
    assert backoff.next() == 1.0


def test_the_first_failures_may_be_free() -> None:
    backoff = Backoff(0.1, 5.0, free=1)
    pauses = [backoff.next() for _ in range(9)]
    assert pauses == [0.0, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0]


def test_a_long_attempt_ends_the_row_of_failures() -> None:
    backoff = Backoff(0.1, 5.0, free=1, calm_seconds=10.0)
    for _ in range(3):
        backoff.next(9.9)
    assert backoff.next(10.0) == 0.0
    assert backoff.next(0.0) == 0.1


GROWS = re.compile(r"pause\w* ?\*|\* ?pause|2(?:\.0)? ?\*\* ?min|pause\w* ?\*=")
"""A pause that is multiplied, or a power of two with a limit."""
OWN: dict[str, str] = {
    "services/admittance/runner/groups/job_groups.py": "the shim imports no package",
    "services/admittance/runner/jobs/engine_programs.py": "the shim imports no package",
    "services/admittance/runner/jobs/job_policy.py": "the shim imports no package",
    "services/admittance/retry_timer/service.py": "jitter, not growth",
}


def test_only_one_module_computes_growing_pauses() -> None:
    modules = {
        path.relative_to(ROOT).as_posix()
        for room in ("libs", "services")
        for path in (ROOT / room).rglob("*.py")
        if GROWS.search(path.read_text())
    }
    assert modules == OWN.keys()
