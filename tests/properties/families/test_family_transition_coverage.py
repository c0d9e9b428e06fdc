"""Long random runs of families use all transitions and steps of the tables, and no others."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from tools.pages.states import STEPS

from admittance.control import fold
from admittance.events.base import Fact
from admittance.workload.change import Change
from admittance.workload.families import reconcile
from admittance.workload.families.family_change import FamilyChange, FamilyMembers, FamilyTransition
from admittance.workload.phase import Phase, phase
from admittance.workload.stored import head
from admittance.workload.transition_context import TransitionContext
from admittance.workload.transitions import MOVES
from properties.families.test_family_machine import KINDS, POLICIES, TAGS, Families
from support.cores.families.family_controller import FamilyController
from support.examples import examples

SEEDS = 120
STEPS_EACH = 60


def play(seed: int) -> None:
    chance = Random(seed)
    life = Families()
    life.begin_with(chance.choice(POLICIES[:-1]))
    for _ in range(STEPS_EACH):
        what = chance.random()
        if what < 0.95:
            step = (
                chance.choice(KINDS),
                chance.choice("jk"),
                chance.choice(TAGS),
                chance.randrange(6),
            )
            life.house.later(chance.choice([0, 0, 1, 7, 50]))
            for fact in life.facts_of(*step):
                life.house.happens(fact)
        else:
            flavors = chance.choice([TAGS, TAGS, ("c", "b", "a"), ("a", "b")])
            stopped = chance.choice([None, None, "Hold", "HoldAndDrain"])
            more: dict[str, Any] = {"stopPolicy": stopped} if stopped else {}
            life.offer(flavors, chance.choice(POLICIES), **more)


def rare() -> None:
    """Transitions that chance hardly ever reaches."""
    checks = dict.fromkeys(TAGS, ("slow",))
    for running in ("", "c"):
        house = FamilyController(checks=checks).family()
        for tag in TAGS:
            house.assign(tag)
        if running:
            house.verdict(running, "slow").confirm(running)
        for tag in TAGS:
            house.verdict(tag, "slow", "Rejected")
        assert head(house.get()).active is False


class Watch:
    """``own``: what members did because of a fact about themselves; ``followed``: because of
    another member, or of policy."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.own: set[tuple[str, Phase, str, Phase | None]] = set()
        self.followed: set[tuple[str, Phase, Phase | None]] = set()
        self._name = self._fact = ""
        put, happened = FamilyTransition.put, reconcile.family_transition

        def watched(
            kin: FamilyMembers, name: str, fact: Fact, at: TransitionContext
        ) -> FamilyChange:
            self._name, self._fact = name, type(fact).__name__
            return happened(kin, name, fact, at)

        def noted(family: FamilyTransition, name: str, change: Change) -> None:
            before = family.parent if name == family.parent_name else family.variants.get(name)
            assert before is not None
            after = None if change.workload is None else phase(change.workload, family.now)
            where, role = phase(before, family.now), head(before).role
            if name == self._name or self._fact == "QueueChanged":
                self.own.add((role, where, self._fact, after))
                self._name = ""
            else:
                self.followed.add((role, where, after))
            put(family, name, change)

        patch.setattr(FamilyTransition, "put", noted)
        patch.setattr(fold, "family_transition", watched)


def test_families_use_exactly_the_transitions_of_the_tables(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    watch = Watch(monkeypatch)
    rare()
    for seed in range(SEEDS):
        if seed >= examples(SEEDS) and not untaken(watch):
            break
        play(seed)
    steps = {(step.role, *edge) for step in STEPS for edge in step.edges()}
    assert watch.followed - steps == set()
    strange = {
        (role, before, fact, after)
        for role, before, fact, after in watch.own
        if before is not after
        and after not in {way.to for (at, kind), legal in MOVES.items() for way in legal.ways
                          if (at, kind.__name__) == (before, fact)}
        and (role, before, after) not in steps
    }  # fmt: skip
    assert strange == set()
    assert untaken(watch) == []


def untaken(watch: Watch) -> list[Any]:
    """The steps of the table that no family has taken."""
    seen = watch.followed | {(role, before, after) for role, before, _, after in watch.own}
    return [step for step in STEPS if not any((step.role, *e) in seen for e in step.edges())]
