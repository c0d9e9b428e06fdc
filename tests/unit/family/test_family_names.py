"""Names of variants: deterministic, distinct, and never too long."""

from __future__ import annotations

from itertools import product

import pytest

from admittance.family import NAME_MAX, variant_name


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


def test_names_are_never_too_long() -> None:
    for parent, tag in product((1, 118, 119, 120, 233, 234, 235, 253), (1, 7, 8, 9, 62, 63, 200)):
        assert len(variant_name("p" * parent, "u", "t" * tag)) <= NAME_MAX


def test_the_parts_of_a_cut_name_end_in_a_letter() -> None:
    assert variant_name(f"p{'.' * 249}", "u", "t" * 8) == "p-variant-tttttttt-f526e"
    assert variant_name("p" * 250, "u", f"t{'-' * 200}t") == f"{'p' * 119}-variant-t-374eb"
