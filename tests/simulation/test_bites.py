"""The simulation bites: without a mechanism, what that mechanism keeps from happening happens."""

from __future__ import annotations

import re
from collections.abc import Callable
from random import Random

import pytest

from simulation.mechanisms import Mechanisms
from simulation.plots import contested, preempting, scenario
from simulation.run import run
from simulation.scenario import Scenario

Plot = Callable[[Random], Scenario]

LIMIT = 1500
"""Seeds tried; a breach is found in the first few hundred."""


@pytest.mark.parametrize(
    ("without", "plot", "breach"),
    [
        pytest.param(
            {"fence_at_the_log": False},
            contested,
            "over quota",
            id="a leader that was deposed would hand out quota a second time",
        ),
        pytest.param(
            {"barrier": False},
            contested,
            "over quota",
            id="a new leader would not know what its predecessor handed out",
        ),
        pytest.param(
            {"skip_applied": False},
            scenario,
            "fact .* after|went from",
            id="facts read again after a crash would be applied twice",
        ),
        pytest.param(
            {"say_again": False},
            contested,
            "was never said",
            id="what a fallen leader had to say would never be said",
        ),
        pytest.param(
            {"seen": False},
            scenario,
            "over quota",
            id="decisions made before a quota was cut would be applied after it",
        ),
        pytest.param(
            {"claims": False},
            contested,
            "runs on .* and starts on",
            id="two runners would start one admission",
        ),
        pytest.param(
            {"joint": False},
            preempting,
            "over quota",
            id="quota would be handed on that nobody has given up",
        ),
    ],
)
def test_without(without: dict[str, bool], plot: Plot, breach: str) -> None:
    for seed in range(LIMIT):
        broken = run(seed, Mechanisms(**without), plot=plot).broken
        if re.search(breach, broken):
            assert not run(seed, plot=plot).broken
            return
    raise AssertionError(f"nothing happened in {LIMIT} seeds")
