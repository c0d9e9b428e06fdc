"""Families under random events: no revision has two admitted variants of a family, no quota is
exceeded, and no family is stuck. `family_invariants` checks each revision.
docs/spec/lifecycle.md#4.6, #7.4 D25.
"""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from admittance.events import facts
from admittance.workload.conditions import is_true
from support.cores.family_cores import LOWER, FamilyCores, cores_with_families
from support.examples import examples

scenario = pytest.mark.scenario
FLAVORS = ("a", "b", "c")
SEEDS = examples(240)
STEPS = 14


class Chance:
    """One life, drawn."""

    def __init__(self, seed: int) -> None:
        self.rng = rng = Random(seed)
        self.flavors = {name: rng.choice((2, 4, 4, 8)) for name in FLAVORS[: rng.choice((2, 3))]}
        self.checks = {name: [f"check-{name}"] for name in self.flavors if rng.random() < 0.5}
        self.explicit = self._explicit() if rng.random() < 0.4 else []
        mode = rng.choice(("UpgradeOnly", "UpgradeOnly", "NoMigration"))
        self.cores = cores_with_families(
            self.flavors,
            mode,
            explicit=self.explicit,
            checks=self.checks,
            preemption=LOWER if rng.random() < 0.6 else {},
        )
        for names in self.checks.values():
            if rng.random() < 0.4:
                self.cores.check(names[0], preemptionPolicy="AfterCheckPassedOrOnDemand")
        self.names: list[str] = []
        mishap = rng.choice(("", "", "restless", "forgetful", "belated", "laggard"))
        if mishap:
            setattr(self.cores, mishap, True)

    def _explicit(self) -> list[dict[str, Any]]:
        names = list(self.flavors)
        made: list[dict[str, Any]] = [
            {"name": f"v-{name}", "allowedResourceFlavors": [name]} for name in names
        ]
        if self.rng.random() < 0.5:
            made[0]["allowedResourceFlavors"] = names[:2]
        if self.rng.random() < 0.5:
            made[-1]["createDelaySeconds"] = 30
        if self.rng.random() < 0.5:
            made[0]["deleteDelaySeconds"] = 60
        return made

    def play(self) -> None:
        for _ in range(STEPS):
            self.something()
            if self.rng.random() < 0.7:
                self.cores.go()
            if self.rng.random() < 0.5:
                self.cores.advance(self.rng.choice((1, 10, 45, 400)))
        self.cores.go()

    def something(self) -> None:
        cores, rng = self.cores, self.rng
        kind = rng.choice(
            ("submit", "submit", "judge", "judge", "judge", "finish", "quota", "switch", "delete",
             "restart", "stop", "stubborn", "variant", "policy", "hold", "priority")
        )  # fmt: skip
        name = rng.choice(self.names) if self.names else ""
        if kind == "submit" and len(self.names) < 6:
            name = f"w{len(self.names)}"
            self.names.append(name)
            cores.job(name, rng.choice((1, 2, 4)), priority=rng.choice((0, 0, 10)))
        elif kind == "judge":
            self.judge()
        elif kind == "quota":
            changed = {name: rng.choice((0, 2, 4, 8)) for name in self.flavors}
            cores.offer(changed, checks=self.checks)
        elif kind == "restart":
            cores.restart()
        elif kind == "policy":
            cores.policy(rng.choice(("UpgradeOnly", "NoMigration")), explicit=self.explicit)
        elif kind == "hold":
            cores.edit_queue(stopPolicy=rng.choice(("None", "None", "Hold", "HoldAndDrain")))
        elif not name or not cores.has(name):
            return
        elif kind == "finish":
            cores.finish(name)
        elif kind == "priority":
            cores.publish(facts.Reprioritized, name, priority=rng.choice((0, 5, 20)))
        elif kind == "switch":
            cores.publish(rng.choice((facts.Activated, facts.Deactivated)), name)
        elif kind == "delete" and rng.random() < 0.3:
            cores.publish(facts.Deleted, name)
        elif kind == "stubborn":
            cores.stubborn.add(name)
        elif kind == "stop" and is_true(cores.stored(name), "Evicted"):
            cores.stop(name)
        elif kind == "variant" and (found := list(cores.variants(name).values())):
            one = rng.choice(found).metadata.name
            cores.publish(rng.choice((facts.Activated, facts.Deactivated, facts.Deleted)), one)

    def judge(self) -> None:
        """One of the checks without a verdict so far reports a verdict."""
        cores = self.cores
        waiting = [
            (one.metadata.name, row.name)
            for one in cores.workloads()
            for row in one.status.admission_checks
            if row.state in ("Pending", "Ready") and one.status.admission is not None
        ]
        if waiting:
            name, check = self.rng.choice(waiting)
            state = self.rng.choice(("Ready", "Ready", "Ready", "Retry", "Rejected"))
            more = {"after": self.rng.choice((0, 20))} if state == "Retry" else {}
            cores.answer(name, check, state, **more)


def calm(cores: FamilyCores, names: list[str]) -> None:
    """All workloads may continue, and there is room for all of them."""
    cores.stubborn.clear()
    cores.edit_queue(stopPolicy="None")
    cores.offer(dict.fromkeys(cores.flavors(), 100), checks={})
    cores.go()
    for name in names:
        if not cores.has(name) or is_true(cores.stored(name), "Finished"):
            continue
        if is_true(cores.stored(name), "Evicted") and cores.stored(name).status.admission:
            cores.stop(name)
        if not cores.has(name):
            continue
        cores.publish(facts.Activated, name)
        for one in cores.variants(name).values():
            cores.publish(facts.Activated, one.metadata.name)
    cores.advance(3600)


@scenario("D25")
@pytest.mark.parametrize("start", range(0, SEEDS, 20))
def test_never_two_of_one_family_and_never_more_than_there_is(start: int) -> None:
    for seed in range(start, start + 20):
        chance = Chance(seed)
        try:
            chance.play()
            calm(chance.cores, chance.names)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}") from error
        stuck = [
            name
            for name in chance.names
            if chance.cores.has(name) and chance.cores.phase(name) not in ("Admitted", "Finished")
        ]
        assert stuck == [], f"seed {seed}"
