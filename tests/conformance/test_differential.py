"""Random scenarios with the outcome that Kueue gave."""

from __future__ import annotations

import pytest

from replaying import SCENARIOS, differences, load

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
def test_scenarios_come_out_as_kueue_has_them(family: str) -> None:
    played = 0
    found: list[str] = []
    for path in sorted(SCENARIOS.glob(f"{family}-[0-9]*.json.gz")):
        scenario = load(path)
        played += 1
        found += [f"{scenario['name']}: {one}" for one in differences(scenario)[:1]]
    assert played, "no scenario was played"
    assert not found, "\n".join(found)
