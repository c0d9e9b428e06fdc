"""A refusal has the gravest reason of each flavor, and of these the one closest to fitting."""

from __future__ import annotations

import pytest

from admittance.events import reasons
from admittance.scheduling.cycle.refusals import SEVERITY, WITH_FEWEST, refusal_of
from admittance.scheduling.state.assignment import FIT, NO_FIT, Assignment, Obstacle

WAITS, TOO_MUCH = reasons.WAITING_FOR_QUOTA, reasons.EXCEEDS_MAX_QUOTA
CLASH, NO_MATCH = reasons.CONFLICTING_ADMISSION_CHECKS, reasons.NO_MATCHING_FLAVOR


def an_assignment(*found: tuple[str, str], mode: int = NO_FIT, failed_from: int = 0) -> Assignment:
    """The obstacles as flavor and reason."""
    assignment = Assignment()
    assignment.mode = mode
    assignment.failed_from = failed_from
    assignment.obstacles = [Obstacle("main", flavor, "cpu", reason) for flavor, reason in found]
    return assignment


@pytest.mark.parametrize(
    ("found", "reason"),
    [
        pytest.param([], NO_MATCH, id="no flavor at all"),
        pytest.param([("a", WAITS)], WAITS, id="one flavor"),
        pytest.param([("a", WAITS), ("a", TOO_MUCH)], TOO_MUCH, id="the gravest of a flavor"),
        pytest.param([("a", TOO_MUCH), ("a", WAITS)], TOO_MUCH, id="the gravest comes first"),
        pytest.param([("a", TOO_MUCH), ("b", WAITS)], WAITS, id="the closest flavor"),
        pytest.param([("a", NO_MATCH), ("b", CLASH)], CLASH, id="a clash is closer than no match"),
        pytest.param([("a", CLASH), ("b", TOO_MUCH)], TOO_MUCH, id="too much is closer"),
        pytest.param(
            [("a", WAITS), ("a", NO_MATCH), ("b", TOO_MUCH)], TOO_MUCH,
            id="first the gravest of each flavor, then the closest flavor",
        ),
    ],
)  # fmt: skip
def test_a_refusal_has_the_reason_of_the_closest_flavor(
    found: list[tuple[str, str]], reason: str
) -> None:
    refusal = refusal_of(an_assignment(*found))
    assert refusal.reason == reason
    assert len(refusal.shortfalls) == len(found)


def test_reasons_have_an_order_without_ties() -> None:
    assert sorted(SEVERITY.values()) == list(range(len(SEVERITY)))


def test_obstacles_of_an_earlier_scan_give_no_reason() -> None:
    found = [("a", WAITS), ("b", TOO_MUCH)]
    assert refusal_of(an_assignment(*found, failed_from=1)).reason == TOO_MUCH


def test_a_refusal_mentions_the_flavors_of_the_variant_only() -> None:
    found = [("a", WAITS), ("b", TOO_MUCH)]
    assert refusal_of(an_assignment(*found), frozenset("b")).reason == TOO_MUCH
    refusal = refusal_of(an_assignment(*found), frozenset("c"))
    assert refusal.reason == WAITS, "without an obstacle there, all flavors count"


def test_an_assignment_with_room_waits_for_quota() -> None:
    refusal = refusal_of(an_assignment(("a", NO_MATCH), mode=FIT))
    assert (refusal.reason, len(refusal.shortfalls)) == (WAITS, 1)


def test_with_fewer_pods_their_refusal_counts() -> None:
    assignment = an_assignment(("a", TOO_MUCH))
    assignment.fewest = an_assignment(("a", WAITS))
    refusal = refusal_of(assignment)
    assert refusal.reason == WAITS
    assert refusal.message.endswith(WITH_FEWEST)
