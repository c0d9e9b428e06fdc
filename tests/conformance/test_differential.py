"""Random scenarios with the outcome that Kueue gave, where nobody is preempted.

Left for the issue that brings them: scenarios in which somebody is preempted, those with fair
sharing, and those with a ``minCount``. A scenario is taken in by what its labels show, whatever
family it is of.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from replaying import SCENARIOS, differences, load

FAMILIES = ("basic", "borrowing", "hierarchical", "strict-fifo", "lifecycle", "two-phase")
"""Those named after what this scheduler decides; the others are about preemption and the like."""


def concerns_us(scenario: dict[str, Any]) -> bool:
    """Nobody is preempted, and nothing is asked that comes later."""
    preempted = any("by" in one for step in scenario["expected"] for one in step["trace"])
    return not (preempted or scenario["fairSharing"] or "minCount" in json.dumps(scenario["steps"]))


def _paths() -> list[Path]:
    return sorted(one for name in FAMILIES for one in SCENARIOS.glob(f"{name}-*.json.gz"))


@pytest.mark.skipif(not SCENARIOS.is_dir(), reason="the scenarios are not beside this tree")
@pytest.mark.parametrize("family", FAMILIES)
def test_scenarios_without_preemption_come_out_as_kueue_has_them(family: str) -> None:
    played = 0
    found: list[str] = []
    for path in _paths():
        if not path.name.startswith(family):
            continue
        scenario = load(path)
        if concerns_us(scenario):
            played += 1
            found += [f"{scenario['name']}: {one}" for one in differences(scenario)[:1]]
    assert played, "no scenario was played"
    assert not found, "\n".join(found)
