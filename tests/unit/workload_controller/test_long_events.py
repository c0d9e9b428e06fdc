"""The number of log messages that fit into one answer."""

from __future__ import annotations

import msgspec

from admittance.events.requests.history import LogEntry
from admittance.workload_controller.endpoints.events_endpoint import ANSWER_MAX, first_fitting
from support.builders import NOON


def entries(*lengths: int) -> list[LogEntry]:
    return [
        LogEntry(sequence=n, time=NOON, subject="s", data=msgspec.Raw(b'"' + b"x" * length + b'"'))
        for n, length in enumerate(lengths, 1)
    ]


def test_entries_that_are_long_together_are_answered_in_parts() -> None:
    several = entries(*[ANSWER_MAX // 3] * 5)
    assert first_fitting(several) == several[:2]


def test_short_entries_are_answered_at_once() -> None:
    several = entries(*[100] * 500)
    assert first_fitting(several) == several


def test_one_entry_at_least_is_answered() -> None:
    several = entries(2 * ANSWER_MAX, 1)
    assert first_fitting(several) == several[:1]
    assert first_fitting([]) == []
