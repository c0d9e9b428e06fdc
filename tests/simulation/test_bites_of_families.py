"""The simulation bites where families compete: without a mechanism of concurrent admission, what
that mechanism keeps from happening happens."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from datetime import datetime
from random import Random
from typing import Any

import pytest

from admittance.events.facts import Deleted, Submitted
from admittance.family.gates import GateOpening, Sibling
from admittance.scheduling import families as family_rules
from admittance.scheduling.state.shared_quota import FamilyQuota
from admittance.variants import required_acts
from admittance.workload.families import member_transitions
from simulation.configuration import NAMESPACE
from simulation.mechanisms import Mechanisms
from simulation.plots import exclusive, families
from simulation.run import run
from simulation.scenario import Saying, Scenario

LIMIT = 800
"""Seeds tried; a breach is found in the first hundred or two."""
Plot = Callable[[Random], Scenario]


def _opens_every_gate(known: Iterable[Sibling], held: GateOpening | None, now: datetime) -> str:
    del held, now
    return next((one.name for one in known if one.blocked and not one.open), "")


def deleted(rng: Random) -> Scenario:
    """In the end every parent goes."""
    plan = families(rng)
    names = {one.fact.name for one in plan.sayings if isinstance(one.fact, Submitted)}
    gone = [
        Saying(plan.calm + 100.0, Deleted(namespace=NAMESPACE, name=name))
        for name in sorted(names)
        if "-variant-" not in name
    ]
    return plan._replace(sayings=[*plan.sayings, *gone])


@pytest.mark.parametrize(
    ("where", "name", "instead", "plot", "breach"),
    [
        pytest.param(
            family_rules,
            "_last_to_try",
            lambda *_: None,
            exclusive,
            "had no chance|victims have not stopped",
            id="a worse variant would be taken before the better one may preempt",
        ),
        pytest.param(
            required_acts,
            "to_open",
            _opens_every_gate,
            exclusive,
            "others have gone for",
            id="others would go for two siblings at once",
        ),
        pytest.param(
            FamilyQuota,
            "reliable",
            FamilyQuota.largest,
            exclusive,
            "over quota",
            id="a sibling would take what another has only once others have gone",
        ),
        pytest.param(
            required_acts,
            "_own_and_orphans",
            lambda family: (list(family.variants.values()), []),
            deleted,
            "is an orphan",
            id="variants of nobody would stay",
        ),
    ],
)
def test_without(
    where: Any,
    name: str,
    instead: Any,
    plot: Plot,
    breach: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(where, name, instead)
    if name == "to_open":
        # The one who writes looks again: both are to be blind.
        monkeypatch.setattr(member_transitions, "holder_of", lambda *_: (None, False))
    seed = _broken_as(breach, plot)
    monkeypatch.undo()
    assert not run(seed, plot=plot).broken


def test_without_joint_commits_a_parent_would_run_as_nobody() -> None:
    seed = _broken_as("it runs: True", families, Mechanisms(joint=False))
    assert not run(seed, plot=families).broken


def _broken_as(breach: str, plot: Plot, mechanisms: Mechanisms = Mechanisms()) -> int:  # noqa: B008
    for seed in range(LIMIT):
        if re.search(breach, run(seed, mechanisms, plot=plot).broken):
            return seed
    raise AssertionError(f"nothing happened in {LIMIT} seeds")
