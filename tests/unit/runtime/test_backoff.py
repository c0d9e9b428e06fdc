"""The pauses between attempts that end soon after they begin."""

from __future__ import annotations

from admittance.runtime.tasks import CALM_SECONDS, PAUSE_MAX, Backoff


def test_short_attempts_are_repeated_with_growing_pauses() -> None:
    backoff = Backoff(lambda: 7.0)
    pauses = []
    for _ in range(9):
        backoff.begun()
        pauses.append(backoff.next())
    assert pauses == [0.0, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2, PAUSE_MAX, PAUSE_MAX]


def test_a_long_attempt_is_repeated_at_once() -> None:
    now = [0.0]
    backoff = Backoff(lambda: now[0])
    for _ in range(3):
        backoff.begun()
        backoff.next()
    backoff.begun()
    now[0] += CALM_SECONDS
    assert backoff.next() == 0.0
