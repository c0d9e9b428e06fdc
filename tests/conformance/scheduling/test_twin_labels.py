"""The reference scheduler answers the recorded scenarios as Kueue does."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from support.examples import PART, THOROUGH

from twin.play import Play

SCENARIOS = Path(__file__).parents[4] / "shared" / "differential" / "scenarios"


@pytest.mark.skipif(not SCENARIOS.is_dir(), reason="the scenarios are not beside this tree")
@pytest.mark.parametrize("part", range(4))
def test_the_reference_shows_every_outcome_and_cycle_count(part: int) -> None:
    paths = sorted(SCENARIOS.glob("*.json.gz"))
    assert paths
    for path in paths[part :: 4 if THOROUGH else 4 * PART]:
        scenario = json.loads(gzip.decompress(path.read_bytes()))
        twin, expected = Play(scenario), iter(scenario["expected"])
        for step in scenario["steps"]:
            twin.step(step)
            if "settle" not in step:
                continue
            want, got = next(expected), twin.outcome()
            where = f"{scenario['name']}, step {want['step']}"
            assert got["workloads"] == want["workloads"], where
            assert got["usage"] == without_zeros(want["usage"]), where
            assert got["cycles"] == want["cycles"], where


def without_zeros(usage: dict[str, dict[str, dict[str, int]]]) -> dict[tuple[str, str, str], int]:
    """Usage by queue, flavor and resource, as far as there is any."""
    return {
        (queue, flavor, resource): much
        for queue, flavors in usage.items()
        for flavor, resources in flavors.items()
        for resource, much in resources.items()
        if much
    }
