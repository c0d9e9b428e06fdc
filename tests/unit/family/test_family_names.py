"""Names of variants: deterministic, distinct, and never too long."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from admittance.family import NAME_MAX, variant_name

labels = st.from_regex(r"[a-z]([a-z0-9-]{0,60}[a-z0-9])?", fullmatch=True)


def test_a_name_that_fits_is_parent_and_tag() -> None:
    assert variant_name("train", "u1", "spot") == "train-variant-spot"


@pytest.mark.scenario("D19")
def test_long_parent_and_flavor_names_give_distinct_variant_names() -> None:
    parent = "p" * 250
    flavors = ["flavor-" + "a" * 55 + letter for letter in "xy"]
    names = [variant_name(parent, "u1", flavor) for flavor in flavors]
    assert len(set(names)) == 2
    assert all(len(name) <= NAME_MAX and "-variant-flavor-" in name for name in names)
    assert names == [variant_name(parent, "u1", flavor) for flavor in flavors]


@pytest.mark.parametrize(
    ("parent", "tag", "name"),
    [
        pytest.param(240, 4, f"{'p' * 240}-variant-tttt", id="just short enough"),
        pytest.param(241, 4, f"{'p' * 234}-variant-tttt-45da4", id="the name of the parent is cut"),
        pytest.param(250, 200, f"{'p' * 119}-variant-{'t' * 119}-49ca2", id="both names are cut"),
    ],
)
def test_names_of_variants_stay_as_they_are_stored(parent: int, tag: int, name: str) -> None:
    assert variant_name("p" * parent, "u", "t" * tag) == name


def test_a_plain_name_that_is_used_gets_a_hash() -> None:
    name = variant_name("train", "u1", "spot", force_hash=True)
    assert name.startswith("train-variant-spot-")
    assert name != variant_name("train", "u2", "spot", force_hash=True)


@settings(max_examples=30)
@given(st.text("abc-.", min_size=1, max_size=NAME_MAX), labels, labels)
def test_names_are_short_enough_and_end_well(parent: str, tag: str, uid: str) -> None:
    name = variant_name(f"a{parent}"[:NAME_MAX], uid, tag, force_hash=True)
    assert len(name) <= NAME_MAX
    assert name[-1].isalnum()
