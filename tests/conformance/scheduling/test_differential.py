"""Random scenarios with the outcome that Kueue gave."""

from __future__ import annotations

from pathlib import Path

import pytest

from admittance.replay.minimal_system import differences
from admittance.replay.scenario import play, read
from support.examples import PART, THOROUGH

SCENARIOS = Path(__file__).parents[4] / "shared" / "differential" / "scenarios"

FAMILIES = (
    "basic",
    "borrowing",
    "preemption",
    "reclaim",
    "borrow-within-cohort",
    "hierarchical",
    "fungibility",
    "strict-fifo",
    "two-phase",
    "lifecycle",
    "partial-admission",
    "fair-sharing",
    "mixed",
)


@pytest.mark.skipif(not SCENARIOS.is_dir(), reason="the scenarios are not beside this tree")
@pytest.mark.parametrize("family", FAMILIES)
def test_scenarios_have_the_results_of_kueue(family: str) -> None:
    played = 0
    reports: list[str] = []
    paths = sorted(SCENARIOS.glob(f"{family}-[0-9]*.json.gz"))
    for path in paths[:: 1 if THOROUGH else PART]:
        scenario = read(path.read_bytes())
        assert scenario.expected is not None
        played += 1
        played_out = play(scenario)
        differs = differences(scenario.expected, played_out)
        reports += [f"{scenario.name}: {difference}" for difference in differs][:1]
        # How many cycles pass is for information there, but a search goes on where it stopped in
        # the cycle before: a cycle too many decides elsewhere.
        reports += [
            f"{scenario.name}, step {want['step']}: {got['cycles']} cycles, not {want['cycles']}"
            for want, got in zip(scenario.expected, played_out, strict=True)
            if want["cycles"] != got["cycles"]
        ][:1]
    assert played, "no scenario was played"
    assert not reports, "\n".join(reports)
