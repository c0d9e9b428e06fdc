"""A new leader that reads many objects logs how far it is."""

from __future__ import annotations

from admittance.workload_controller.takeover import PROGRESS_SECONDS, ReadProgress


def test_progress_counts_objects_that_are_not_received() -> None:
    progress = ReadProgress(start=0.0)
    progress.record(2_000, 198_000)
    progress.record(78_000, 120_000)
    assert (progress.total, progress.percent) == (200_000, 40)
    progress.record(120_000, 0)
    assert (progress.total, progress.percent) == (200_000, 100)


def test_empty_bucket_is_read_at_once() -> None:
    progress = ReadProgress(start=0.0)
    progress.record(0, 0)
    assert (progress.total, progress.percent) == (0, 100)


def test_progress_is_logged_again_only_after_a_while() -> None:
    progress = ReadProgress(start=10.0)
    times = [10.0, 10.0 + PROGRESS_SECONDS, 10.5 + PROGRESS_SECONDS, 10.0 + 2 * PROGRESS_SECONDS]
    assert [progress.is_due(now) for now in times] == [False, True, False, True]
