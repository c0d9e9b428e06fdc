"""Random scenarios of every kind: the scheduler must decide as the reference scheduler does."""

from __future__ import annotations

from random import Random

import pytest

from twin.compare import difference
from twin.draw import FAMILIES, scenario


@pytest.mark.parametrize("wild", [False, True], ids=["as recorded", "wilder"])
@pytest.mark.parametrize("family", FAMILIES)
def test_random_scenarios_match_the_reference_scheduler(family: str, wild: bool) -> None:
    for seed in range(5):
        name = f"{family}-{seed}"
        assert not difference(scenario(family, Random(name), wild=wild)), name
