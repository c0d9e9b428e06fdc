"""Which variants of a family are active: KEP-8691 on the policy alone."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from admittance.family import (
    ActivityReason,
    FamilyState,
    Variant,
    desired_states,
    next_change,
)

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
THREE = (Variant("reservation", 0), Variant("on-demand", 1), Variant("spot", 2))


def after(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


def active(family: FamilyState, variants: tuple[Variant, ...] = THREE, at: float = 0) -> list[str]:
    return [
        name for name, wish in desired_states(family, variants, after(at)).items() if wish.active
    ]


def why(
    family: FamilyState, variants: tuple[Variant, ...] = THREE, at: float = 0
) -> dict[str, str]:
    return {name: wish.why for name, wish in desired_states(family, variants, after(at)).items()}


RUNS = {ActivityReason.RACE, ActivityReason.ADMITTED, ActivityReason.UPGRADE}
TIMED = (
    Variant("early", 0, create_delay=100),
    Variant("ended", 0, delete_delay=10),
    Variant("better", 1),
    Variant("mid", 2),
    Variant("same", 3),
    Variant("lower", 4),
    Variant("stopped", 0, stopped_by="User"),
)


@pytest.mark.parametrize(
    ("family", "expected"),
    [
        pytest.param(
            FamilyState(True, NOON, admitted="same", first_admitted=NOON, floor="better"),
            {
                "early": ActivityReason.CREATE_DELAY,
                "ended": ActivityReason.DELETE_DELAY,
                "better": ActivityReason.UPGRADE,
                "mid": ActivityReason.BELOW_MIN,
                "same": ActivityReason.ADMITTED,
                "lower": ActivityReason.LOWER_THAN_ADMITTED,
                "stopped": ActivityReason.USER,
            },
            id="upgrades",
        ),
        pytest.param(
            FamilyState(True, NOON, admitted="mid", first_admitted=NOON, mode="NoMigration"),
            {
                "early": ActivityReason.CREATE_DELAY,
                "ended": ActivityReason.NO_MIGRATION,
                "better": ActivityReason.NO_MIGRATION,
                "mid": ActivityReason.ADMITTED,
                "same": ActivityReason.NO_MIGRATION,
                "lower": ActivityReason.NO_MIGRATION,
                "stopped": ActivityReason.USER,
            },
            id="no migration",
        ),
        pytest.param(
            FamilyState(False, NOON, admitted="mid", first_admitted=NOON),
            {variant.name: ActivityReason.PARENT for variant in TIMED},
            id="inactive",
        ),
        pytest.param(
            FamilyState(True, NOON),
            {
                **{variant.name: ActivityReason.RACE for variant in TIMED},
                "early": ActivityReason.CREATE_DELAY,
                "stopped": ActivityReason.USER,
            },
            id="race",
        ),
    ],
)
def test_each_reason_says_whether_the_variant_is_active(
    family: FamilyState, expected: dict[str, ActivityReason]
) -> None:
    wishes = desired_states(family, TIMED, after(50))
    assert {name: wish.why for name, wish in wishes.items()} == expected
    assert {name for name, wish in wishes.items() if wish.active} == {
        name for name, reason in expected.items() if reason in RUNS
    }


def test_a_late_clock_does_not_delay_variants_without_a_delay() -> None:
    assert active(FamilyState(True, NOON), at=-3600) == ["reservation", "on-demand", "spot"]


SHORT = (Variant("reservation", 0, delete_delay=86_400), Variant("on-demand", 1))


def test_a_delete_delay_never_ends_the_admitted_variant_nor_a_race() -> None:
    admitted = FamilyState(True, NOON, admitted="reservation", first_admitted=NOON)
    assert why(admitted, SHORT, 90_000)["reservation"] == ActivityReason.ADMITTED
    assert why(FamilyState(True, NOON), SHORT, 90_000)["reservation"] == ActivityReason.RACE


@pytest.mark.parametrize(
    ("at", "reason", "changes"),
    [
        pytest.param(0, ActivityReason.UPGRADE, 110, id="before its end"),
        pytest.param(109, ActivityReason.UPGRADE, 110, id="a second before its end"),
        pytest.param(110, ActivityReason.DELETE_DELAY, None, id="at its end"),
    ],
)
def test_a_better_variant_ends_a_delay_after_the_first_admission(
    at: int, reason: ActivityReason, changes: int | None
) -> None:
    variants = (Variant("reservation", 0, delete_delay=100), Variant("on-demand", 1))
    family = FamilyState(True, NOON, admitted="on-demand", first_admitted=after(10))
    assert why(family, variants, at)["reservation"] == reason
    change = next_change(family, variants, after(at))
    assert change == (None if changes is None else after(changes))


@pytest.mark.parametrize(("at", "changes"), [(99, 100), (100, 200), (200, None)])
def test_the_next_change_is_the_next_end_of_a_create_delay(at: int, changes: int | None) -> None:
    variants = tuple(Variant(name, n, create_delay=100 * n) for n, name in enumerate("abc"))
    change = next_change(FamilyState(True, NOON), variants, after(at))
    assert change == (None if changes is None else after(changes))


def test_a_variant_at_the_place_of_the_admitted_one_may_run() -> None:
    variants = (Variant("a", 0), Variant("b", 1), Variant("c", 1), Variant("d", 2))
    reasons = why(FamilyState(True, NOON, admitted="b", first_admitted=NOON), variants)
    assert reasons == {
        "a": ActivityReason.UPGRADE,
        "b": ActivityReason.ADMITTED,
        "c": ActivityReason.UPGRADE,
        "d": ActivityReason.LOWER_THAN_ADMITTED,
    }


some_variants = st.lists(
    st.tuples(
        st.sampled_from(["", "Rejected", "User", "RequeuingLimit"]),
        st.integers(0, 50),
        st.none() | st.integers(0, 50),
    ),
    min_size=1,
    max_size=5,
).map(
    lambda rows: tuple(
        Variant(f"v{n}", n, stopped, create, delete)
        for n, (stopped, create, delete) in enumerate(rows)
    )
)
some_families = st.builds(
    FamilyState,
    active=st.booleans(),
    start=st.just(NOON),
    mode=st.sampled_from(["NoMigration", "UpgradeOnly"]),
    floor=st.sampled_from(["", "v0", "v2"]),
    admitted=st.sampled_from(["", "v0", "v1", "v3"]),
    first_admitted=st.none() | st.integers(0, 50).map(after),
)


@given(some_families, some_variants, st.integers(0, 60))
def test_between_now_and_the_next_change_nothing_changes(
    family: FamilyState, variants: tuple[Variant, ...], at: int
) -> None:
    now = after(at)
    change = next_change(family, variants, now)
    last = 120 if change is None else int((change - NOON).total_seconds()) - 1
    present = desired_states(family, variants, now)
    assert all(desired_states(family, variants, after(n)) == present for n in range(at, last + 1))
    if change is not None:
        assert desired_states(family, variants, change) != present


@given(some_families, some_variants, st.integers(0, 60))
def test_with_one_admitted_only_better_ones_try(
    family: FamilyState, variants: tuple[Variant, ...], at: int
) -> None:
    admitted = next((variant for variant in variants if variant.name == family.admitted), None)
    conditions = active(family, variants, at)
    if admitted is not None:
        assert all(int(name[1:]) <= admitted.place for name in conditions)
