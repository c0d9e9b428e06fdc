"""Families under random events: no revision has two admitted variants of a family, no quota is
exceeded, and no family is stuck. `family_invariants` checks each revision.
LIFECYCLE 4.6, 7.4 D25.
"""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from admittance.events import facts
from admittance.workload.conditions import is_true

from family_living import LOWER, FamilyLife, a_family_life

scenario = pytest.mark.scenario
FLAVORS = ("a", "b", "c")
SEEDS = 200
STEPS = 14


class Chance:
    """One life, drawn."""

    def __init__(self, seed: int) -> None:
        self.rng = rng = Random(seed)
        self.flavors = {name: rng.choice((2, 4, 4, 8)) for name in FLAVORS[: rng.choice((2, 3))]}
        self.checks = {name: [f"check-{name}"] for name in self.flavors if rng.random() < 0.5}
        self.explicit = self._explicit() if rng.random() < 0.4 else []
        mode = rng.choice(("UpgradeOnly", "UpgradeOnly", "NoMigration"))
        self.life = a_family_life(
            self.flavors,
            mode,
            explicit=self.explicit,
            checks=self.checks,
            preemption=LOWER if rng.random() < 0.6 else {},
        )
        for names in self.checks.values():
            if rng.random() < 0.4:
                self.life.check(names[0], preemptionPolicy="AfterCheckPassedOrOnDemand")
        self.names: list[str] = []
        mishap = rng.choice(("", "", "restless", "forgetful", "belated", "laggard"))
        if mishap:
            setattr(self.life, mishap, True)

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
                self.life.go()
            if self.rng.random() < 0.5:
                self.life.advance(self.rng.choice((1, 10, 45, 400)))
        self.life.go()

    def something(self) -> None:
        life, rng = self.life, self.rng
        kind = rng.choice(
            ("submit", "submit", "judge", "judge", "judge", "finish", "quota", "switch", "delete",
             "restart", "stop", "stubborn", "variant", "policy", "hold", "priority")
        )  # fmt: skip
        name = rng.choice(self.names) if self.names else ""
        if kind == "submit" and len(self.names) < 6:
            name = f"w{len(self.names)}"
            self.names.append(name)
            life.job(name, rng.choice((1, 2, 4)), priority=rng.choice((0, 0, 10)))
        elif kind == "judge":
            self.judge()
        elif kind == "quota":
            changed = {name: rng.choice((0, 2, 4, 8)) for name in self.flavors}
            life.offer(changed, checks=self.checks)
        elif kind == "restart":
            life.restart_all()
        elif kind == "policy":
            life.policy(rng.choice(("UpgradeOnly", "NoMigration")), explicit=self.explicit)
        elif kind == "hold":
            life.says(stopPolicy=rng.choice(("None", "None", "Hold", "HoldAndDrain")))
        elif not name or not life.has(name):
            return
        elif kind == "finish":
            life.finish(name)
        elif kind == "priority":
            life.say(facts.Reprioritized, name, priority=rng.choice((0, 5, 20)))
        elif kind == "switch":
            life.say(rng.choice((facts.Activated, facts.Deactivated)), name)
        elif kind == "delete" and rng.random() < 0.3:
            life.say(facts.Deleted, name)
        elif kind == "stubborn":
            life.stubborn.add(name)
        elif kind == "stop" and is_true(life.stored(name), "Evicted"):
            life.stop(name)
        elif kind == "variant" and (found := list(life.variants(name).values())):
            one = rng.choice(found).metadata.name
            life.say(rng.choice((facts.Activated, facts.Deactivated, facts.Deleted)), one)

    def judge(self) -> None:
        """One of the checks without a verdict so far reports a verdict."""
        life = self.life
        waiting = [
            (one.metadata.name, row.name)
            for one in life.workloads()
            for row in one.status.admission_checks
            if row.state in ("Pending", "Ready") and one.status.admission is not None
        ]
        if waiting:
            name, check = self.rng.choice(waiting)
            state = self.rng.choice(("Ready", "Ready", "Ready", "Retry", "Rejected"))
            more = {"after": self.rng.choice((0, 20))} if state == "Retry" else {}
            life.answer(name, check, state, **more)


def calm(life: FamilyLife, names: list[str]) -> None:
    """All workloads may continue, and there is room for all of them."""
    life.stubborn.clear()
    life.says(stopPolicy="None")
    life.offer(dict.fromkeys(life.flavors(), 100), checks={})
    life.go()
    for name in names:
        if not life.has(name) or is_true(life.stored(name), "Finished"):
            continue
        if is_true(life.stored(name), "Evicted") and life.stored(name).status.admission:
            life.stop(name)
        if not life.has(name):
            continue
        life.say(facts.Activated, name)
        for one in life.variants(name).values():
            life.say(facts.Activated, one.metadata.name)
    life.advance(3600)


@scenario("D25")
@pytest.mark.parametrize("start", range(0, SEEDS, 20))
def test_never_two_of_one_family_and_never_more_than_there_is(start: int) -> None:
    for seed in range(start, start + 20):
        chance = Chance(seed)
        try:
            chance.play()
            calm(chance.life, chance.names)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}") from error
        stuck = [
            name
            for name in chance.names
            if chance.life.has(name) and chance.life.phase(name) not in ("Admitted", "Finished")
        ]
        assert stuck == [], f"seed {seed}"
