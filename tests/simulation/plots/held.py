"""Programs that hold quota and devices themselves, beside jobs that need the same machines; and
machines with a failing prolog."""

from __future__ import annotations

import json
from random import Random
from typing import Final

import msgspec

from admittance.events.facts import Submitted
from simulation.environment.holding_programs import HoldingProgram
from simulation.plots.placed import placed
from simulation.plots.scenario import AdminChange, Scenario, UserFact

UNDRAINED_SECONDS: Final = 60.0
"""So long after the last fault an admin ends the drains of all machines once more."""


def held(rng: Random) -> Scenario:
    """Jobs on machines, of which every second one is a program with a lease."""
    base = placed(rng)
    programs: dict[str, HoldingProgram] = {}
    user_facts: list[UserFact] = []
    for said in base.user_facts:
        fact = said.fact
        if not isinstance(fact, Submitted) or rng.random() < 0.5:
            user_facts.append(said)
            continue
        program = programs[fact.name] = HoldingProgram(
            lease=rng.choice((5, 8, 15)),
            at=said.at,
            lives=3.0 + rng.random() * rng.choice((10.0, 40.0)),
            leaves=rng.random() * rng.choice((0.1, 4.0, 30.0)),
            dies=rng.random() < 0.4,
        )
        made = json.loads(bytes(fact.workload))
        made["spec"]["leaseDurationSeconds"] = program.lease
        raw = msgspec.Raw(json.dumps(made).encode())
        user_facts.append(said._replace(fact=msgspec.structs.replace(fact, workload=raw)))
    again = [
        AdminChange(base.calm + UNDRAINED_SECONDS, change)
        for change in (
            [{"machine": {"name": name, "drain": None}}] for name in sorted(base.machines)
        )
    ]
    return base._replace(
        user_facts=user_facts,
        programs=programs,
        admin_changes=[*base.admin_changes, *again],
        courses=base.courses._replace(unprepared=rng.choice((0.0, 0.15, 0.4))),
    )
