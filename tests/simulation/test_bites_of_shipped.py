"""The simulation of shipped services bites: without a mechanism, what it prevents happens."""

from __future__ import annotations

import re

import pytest

from simulation.mechanisms import Mechanisms
from simulation.plots import PLOTS
from simulation.run import run
from simulation.shipped import ShippedWorld

LIMIT = 400
"""Seeds tried; a breach is found in the first tens."""


@pytest.mark.parametrize(
    ("without", "plot", "breach"),
    [
        pytest.param(
            {"fence_at_the_log": False},
            "contested",
            "over quota",
            id="a deposed leader would hand out quota a second time",
        ),
        pytest.param(
            {"barrier": False},
            "contested",
            "over quota",
            id="a new leader would not know what its predecessor handed out",
        ),
        pytest.param(
            {"skip_applied": False},
            "scenario",
            "fact .* after|went from",
            id="facts read again after a crash would be applied twice",
        ),
        pytest.param(
            {"say_again": False},
            "preempting",
            "was never said",
            id="what a fallen leader had to say would never be said",
        ),
        pytest.param(
            {"seen": False},
            "reconfigured",
            "over quota",
            id="decisions made before a quota was cut would be applied after it",
        ),
        pytest.param(
            {"joint": False},
            "preempting",
            "over quota",
            id="quota would be handed on that no workload has given up",
        ),
        pytest.param(
            {"claims": False},
            "contested",
            "runs on .* and starts on",
            id="two runners would start one admission",
        ),
        pytest.param(
            {"lease": False},
            "scenario",
            "gives up its quota, and .* runs on|runs on .* and starts on",
            id="jobs of a lost runner would run on beside their second start",
        ),
    ],
)
def test_shipped_services_without(without: dict[str, bool], plot: str, breach: str) -> None:
    for seed in range(LIMIT):
        broken = run(seed, Mechanisms(**without), plot=PLOTS[plot], world_of=ShippedWorld).broken
        if re.search(breach, broken):
            assert not run(seed, plot=PLOTS[plot], world_of=ShippedWorld).broken
            return
    raise AssertionError(f"nothing happened in {LIMIT} seeds")
