"""Below the floor nobody is a target, whether or not the family has a variant there."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from admittance.family.policy import Why
from admittance.family.rules import FamilyRules, Tag
from admittance.family.states import ParentState, VariantState, judged

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
TAGS = ("reservation", "on-demand", "spot")


def rules(floor: str) -> FamilyRules:
    return FamilyRules(
        "UpgradeOnly", floor, tuple(Tag(name, place, (name,)) for place, name in enumerate(TAGS))
    )


def whys(floor: str, *tags: str, admitted: str) -> dict[str, Why]:
    parent = ParentState("ns", "p", "u", "lq", True, False, NOON, admitted=admitted)
    variants = [VariantState(name=tag, tag=tag, parent="p", parent_uid="u") for tag in tags]
    return {name: wish.why for name, wish in judged(parent, variants, rules(floor), NOON).items()}


@pytest.mark.parametrize(
    ("floor", "tags", "want"),
    [
        pytest.param("on-demand", TAGS, Why.UPGRADE, id="the floor itself is good enough"),
        pytest.param("reservation", TAGS, Why.BELOW_MIN, id="what is below it is not"),
        pytest.param(
            "reservation",
            ("on-demand", "spot"),
            Why.BELOW_MIN,
            id="also where the parent may not have the floor's flavor",
        ),
        pytest.param("", TAGS, Why.UPGRADE, id="without a floor everything better is"),
    ],
)
def test_who_may_be_moved_up_to(floor: str, tags: tuple[str, ...], want: Why) -> None:
    assert whys(floor, *tags, admitted="spot")["on-demand"] is want
