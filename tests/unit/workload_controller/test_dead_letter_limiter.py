"""Each invalid message gets a dead letter; a flood of invalid messages gets only some."""

from __future__ import annotations

from admittance.control.commit import (
    BURST,
    PER_SECOND,
    DeadLetterLimiter,
    RejectedMessage,
)
from admittance.replay.log_messages import log_message
from support.builders import NOON


def dead(number: int, subject: str = "admit.check.reported.ctl.ns.w") -> RejectedMessage:
    return RejectedMessage(log_message(number, subject, b"", {}, NOON), "UnknownState: why")


def test_a_flood_gets_a_burst_of_dead_letters_then_one_with_a_count() -> None:
    letters = DeadLetterLimiter()
    first = letters.of([dead(n) for n in range(BURST + 1_000)], 5.0)
    assert [letter.logged.sequence for letter in first] == list(range(BURST))
    assert letters.of([dead(9_998)], 5.0) == []
    (later,) = letters.of([dead(9_999)], 5.0 + 1.01 / PER_SECOND)
    assert later.reason == (
        "UnknownState: why (1001 verdicts of this controller before it got none)"
    )
    (again,) = letters.of([dead(10_000)], 6.0)
    assert again.reason == "UnknownState: why"


def test_dead_letters_of_other_messages_are_not_limited() -> None:
    letters = DeadLetterLimiter()
    many = [dead(n, "admit.workload.held.ns.w") for n in range(3 * BURST)]
    assert letters.of(many, 0.0) == many


def test_a_flooding_controller_does_not_limit_another_controller() -> None:
    letters = DeadLetterLimiter()
    letters.of([dead(n) for n in range(BURST + 5)], 0.0)
    (other,) = letters.of([dead(1, "admit.check.reported.other.ns.w")], 1.0)
    assert other.reason == "UnknownState: why"
