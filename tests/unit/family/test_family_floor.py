"""Below the floor no variant is a target, whether or not the family has a variant there."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from admittance.family import (
    ActivityReason,
    FamilyRules,
    ParentState,
    Tag,
    VariantState,
    desired_variants,
)

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
TAGS = ("reservation", "on-demand", "spot")


def rules(floor: str) -> FamilyRules:
    return FamilyRules(
        "UpgradeOnly", floor, tuple(Tag(name, place, (name,)) for place, name in enumerate(TAGS))
    )


def whys(floor: str, *tags: str, admitted: str) -> dict[str, ActivityReason]:
    parent = ParentState("ns", "p", "u", "lq", True, False, NOON, admitted=admitted)
    variants = [VariantState(name=tag, tag=tag, parent="p", parent_uid="u") for tag in tags]
    return {
        name: wish.why
        for name, wish in desired_variants(parent, variants, rules(floor), NOON).items()
    }


@pytest.mark.parametrize(
    ("floor", "tags", "want"),
    [
        pytest.param(
            "on-demand", TAGS, ActivityReason.UPGRADE, id="the floor itself is good enough"
        ),
        pytest.param("reservation", TAGS, ActivityReason.BELOW_MIN, id="what is below it is not"),
        pytest.param(
            "reservation",
            ("on-demand", "spot"),
            ActivityReason.BELOW_MIN,
            id="also where the parent may not have the floor's flavor",
        ),
        pytest.param("", TAGS, ActivityReason.UPGRADE, id="without a floor everything better is"),
    ],
)
def test_migration_targets_respect_the_floor(
    floor: str, tags: tuple[str, ...], want: ActivityReason
) -> None:
    assert whys(floor, *tags, admitted="spot")["on-demand"] is want
