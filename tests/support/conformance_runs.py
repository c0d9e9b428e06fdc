"""Runs the conformance kits with short waits, and checks their reports."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from typing import TypeVar

import pytest

from admittance.conformance.kit import FAILED, PASSED, KitOptions, KitReport
from admittance.runtime.bus.bus import Bus
from admittance.runtime.bus.durables import provider_durables
from support.servers import within

R = TypeVar("R", bound=KitReport)

SHORT_WAITS = {
    "WATCH_SECONDS": 1.0,
    "QUIET_SECONDS": 0.3,
    "GRACE_SECONDS": 0.3,
    "HEARTBEAT_SECONDS": 0.0,
}
"""Seconds that suffice for programs of a few lines on this machine."""


def shorten_waits(monkeypatch: pytest.MonkeyPatch, **seconds: float) -> None:
    """Shortens the waits of the kits to `SHORT_WAITS`, or to these seconds."""
    for name, length in {**SHORT_WAITS, **seconds}.items():
        monkeypatch.setattr(f"admittance.conformance.kit.{name}", length)


def shorten_redelivery(monkeypatch: pytest.MonkeyPatch, seconds: int = 2) -> None:
    """Shortens the time until a request is redelivered that a provider did not acknowledge."""
    monkeypatch.setattr(provider_durables, "ack_wait", seconds)


def shrink_burst(monkeypatch: pytest.MonkeyPatch, requests: int) -> None:
    """Lowers the number of simultaneous requests, for providers that are slow for each of them."""
    monkeypatch.setattr("admittance.conformance.provider_request_cases.BURST", requests)


async def run_kit(
    try_out: Callable[..., Awaitable[R]],
    bus: Bus,
    url: str,
    wanted: KitOptions,
    limit: float = 90.0,
) -> R:
    """The report of a kit. Fails after ``limit`` seconds."""
    trial = try_out(bus, url, wanted, on_case=lambda _: None, on_ready=lambda: None)
    return await within(trial, limit)


def details_by_case(report: KitReport, outcome: str) -> dict[str, str]:
    """The cases with this outcome, each with its details."""
    return {
        case.case: "; ".join(case.details) for case in report.outcomes if case.outcome == outcome
    }


def assert_passed(report: KitReport, only: Collection[str]) -> None:
    """Asserts that no case failed and these cases passed."""
    assert details_by_case(report, FAILED) == {}
    assert details_by_case(report, PASSED).keys() >= set(only)


def assert_only_failure(report: KitReport, case: str, sentence: str) -> None:
    """Asserts that only this case failed, with this text in its details."""
    failed = details_by_case(report, FAILED)
    assert not report.passed
    assert sentence in failed[case]
    assert failed.keys() <= {case, "answers"}
