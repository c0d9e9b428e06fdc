"""What the stories are about: each plot makes scenarios of its kind."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Final

from simulation.plots.checked import checked
from simulation.plots.contested import contested, preempting, reconfigured
from simulation.plots.families import exclusive, families
from simulation.plots.mixed import scenario
from simulation.plots.planned import planned
from simulation.plots.provided import provided
from simulation.plots.scenario import Scenario

PLOTS: Final[dict[str, Callable[[Random], Scenario]]] = {
    plot.__name__: plot
    for plot in (
        scenario,
        checked,
        planned,
        provided,
        contested,
        preempting,
        reconfigured,
        families,
        exclusive,
    )
}
"""By name."""

__all__ = [
    "PLOTS",
    "checked",
    "contested",
    "exclusive",
    "families",
    "planned",
    "preempting",
    "provided",
    "reconfigured",
    "scenario",
]
