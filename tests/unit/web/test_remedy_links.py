"""What would let a workload start, on its page: the order, the times, and the links that try it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from admittance.events.requests.remedies import Remedy, RemedyKind
from admittance.web.views.whatif.remedies import Way, ways

NOON = datetime(2026, 2, 7, 12, tzinfo=UTC)
FREE = Remedy(
    text="3 more free cpu in flavor spot of cohort co",
    kind=RemedyKind.FREE_QUOTA,
    flavor="spot",
    resource="cpu",
    amount=3000,
    cohort="co",
)
PRIORITY = Remedy(
    text="a priority above 5, to preempt", kind=RemedyKind.PRIORITY, flavor="spot", priority=6
)


def of(*remedies: Remedy, role: str = "admin") -> tuple[Way, ...]:
    return ways(remedies, namespace="ns", name="w", queue="cq", role=role, now=NOON)


def test_known_times_come_first_then_quota_then_other_changes() -> None:
    soon = Remedy(
        text="its retry", kind=RemedyKind.TIME, at=NOON + timedelta(minutes=14, seconds=41)
    )
    shown = [(way.id, way.where, way.text, way.when, way.soon) for way in of(PRIORITY, FREE, soon)]
    assert shown == [
        ("1", "", "Its retry.", "in 14 min 41 s", True),
        ("2", "spot", "3 more free cpu in flavor spot of cohort co.", "no time known", False),
        ("3", "spot", "A priority above 5, to preempt.", "", False),
    ]


def test_one_priority_for_several_flavors_is_one_way() -> None:
    other = Remedy(text=PRIORITY.text, kind=PRIORITY.kind, flavor="gold", priority=6)
    (way,) = of(PRIORITY, other)
    assert way.where == "spot, gold"


def test_a_way_of_a_variant_is_named_by_its_variant() -> None:
    (way,) = of(Remedy(text="gold: its turn", kind=RemedyKind.TURN, variant="gold"))
    assert (way.where, way.text) == ("gold", "Its turn.")


@pytest.mark.parametrize(
    ("remedy", "role", "href"),
    [
        (PRIORITY, "user", "/whatif?workload=ns%2Fw&priority=6"),
        (PRIORITY, "approver", ""),
        (FREE, "admin", "/whatif?edit=clusterqueue%2Fcq&flavor=spot&resource=cpu&more=3000"),
        (FREE, "user", ""),
        (
            Remedy(text="x", kind=RemedyKind.STOP_POLICY, local_queue="lq"),
            "viewer",
            "/whatif?edit=localqueue%2Fns%2Flq",
        ),
        (
            Remedy(text="x", kind=RemedyKind.USER_LIMIT, queue="cq"),
            "viewer",
            "/whatif?edit=clusterqueue%2Fcq",
        ),
        (Remedy(text="x", kind=RemedyKind.CHECK, check="money"), "admin", ""),
        (Remedy(text="x"), "admin", ""),
    ],
)
def test_a_change_that_can_be_tried_has_a_link(remedy: Remedy, role: str, href: str) -> None:
    (way,) = of(remedy, role=role)
    assert (way.tries.href if way.tries is not None else "") == href
