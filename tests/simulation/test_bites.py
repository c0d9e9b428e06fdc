"""The simulation finds what is missing: without a mechanism, what it prevents happens."""

from __future__ import annotations

import re

import pytest

from simulation.mutations import MUTATIONS
from simulation.plots import provided
from simulation.run import run

LIMIT = 400
"""Seeds tried, if the one that is known does not show it."""


@pytest.mark.parametrize("name", MUTATIONS)
def test_without_a_mechanism(name: str) -> None:
    one = MUTATIONS[name]
    for seed in (one.seed, *range(LIMIT)):
        with one.applied():
            broken = run(seed, plot=one.plot).broken
        if re.search(one.breach, broken):
            assert not run(seed, plot=one.plot).broken
            return
    raise AssertionError(f"nothing happened in {LIMIT} seeds")


def test_the_stories_of_providers_are_about_capacity() -> None:
    told = "\n".join(
        line for seed in range(16, 24) for line in run(seed, plot=provided, keep=True).story
    )
    for word in ("requested", "cancelled", "accepted", "provisioned", "failed"):
        assert f"admit.provisioning.{word}.capacity" in told, word
    assert "dies between booking and answering" in told
