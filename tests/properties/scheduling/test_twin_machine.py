"""Whatever happens to queues and workloads, in every cycle the scheduler decides what its slow twin
does, which rebuilds and sorts everything each time; and what they decide keeps the promises.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

import hypothesis.strategies as st
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from admittance.events.facts import Preempted
from admittance.events.requests.queues import PendingQuery
from admittance.quota.cell import available
from admittance.replay.minimal_system import NEVER, MinimalSystem, config_of_kueue, settle_result
from admittance.replay.scenario import perform_step, settle
from admittance.scheduling.cycle.decisions import Decided
from admittance.scheduling.preemption.candidates import allows
from admittance.scheduling.state.held.shared_quota import remove_usage, restore_usage
from support.examples import examples

from twin.compare import in_shape
from twin.cycle import Cycle, Entry
from twin.draw import FAMILIES, Draw
from twin.play import Play
from twin.preempt import Victim, fits
from twin.queues import Waiting
from twin.tree import Node, Tree

ENOUGH = 60
"""Workloads in one life; more cost time, and show nothing that fewer do not."""

CYCLES = 100
"""Where workloads preempt each other without end, the next cycles show nothing new."""


class Exacting(Cycle):
    """A twin's cycle that looks at every set of victims when it is found."""

    def nominate(self, head: Waiting, node: Node) -> Entry:
        entry = super().nominate(head, node)
        if entry.victims:
            need = entry.assignment.usage()
            assert any(
                is_least(self.tree, node, need, entry.victims, borrow=borrow)
                for borrow in (True, False)
            ), f"{entry.job.name} would do with fewer than {entry.victims}"
        return entry


def is_least(
    tree: Tree, node: Node, need: dict[Any, int], victims: list[Victim], *, borrow: bool
) -> bool:
    """Without all the victims there is room; if any one of the victims stays there is no room."""
    for victim in victims:
        tree.remove(victim.job)
    least = fits(node, need, borrow=borrow)
    for removed in victims:
        tree.add(removed.job)
        least = least and not fits(node, need, borrow=borrow)
        tree.remove(removed.job)
    for removed in victims:
        tree.add(removed.job)
    return least


class ExactingTwin(Play):
    """A reference scheduler that checks each of its cycles."""

    kind = Exacting


def debts(world: MinimalSystem, going: Sequence[str] = ()) -> dict[tuple[str, Any], int]:
    """The amounts by which ClusterQueues or their cohorts exceed their quota after these workloads
    have stopped. (Kueue assigns the quota that they release in the same cycle.)"""
    members = [world.scheduler._state.workloads["default", name] for name in going]
    for member in members:
        remove_usage(member)
    debts_by_queue = {
        (name, cell.fr): available(cell)
        for name, node in world.scheduler.catalog.tree.queues.items()
        for cell in node.cells.values()
        if available(cell) < 0
    }
    for borrower in members:
        restore_usage(borrower)
    return debts_by_queue


def is_given_up(world: MinimalSystem, preemption: Preempted) -> bool:
    """Whether a policy of the preemptor's ClusterQueue allows to preempt the victim."""
    members = world.scheduler._state.workloads
    preemptor, victim = (
        members["default", preemption.by.partition("/")[2]],
        members["default", preemption.name],
    )
    assert preemptor.queue is not None and victim.charge is not None
    spec = world.scheduler.catalog.cluster_queues[preemptor.queue.name].spec
    own = victim.charge.queue is preemptor.queue
    assert own is (preemption.reason == "InClusterQueue")
    policy = spec.preemption.within_cluster_queue if own else spec.preemption.reclaim_within_cohort
    return allows(policy, preemptor, victim)


class Twins(RuleBasedStateMachine):
    """Both schedulers get the same changes; no workload is lost, and no quota is lent twice."""

    @initialize(
        family=st.sampled_from(FAMILIES),
        wild=st.booleans(),
        seed=st.integers(0, 2**32 - 1),
    )
    def begin(self, family: str, wild: bool, seed: int) -> None:
        # The numbers come from a seed, and not from hypothesis, whose taste for zeros makes queues
        # in which nothing ever fits; what it can shorten is the order of events.
        self.draw = Draw(family, Random(seed), wild)
        objects = self.draw.objects()
        fair = self.draw.is_("fair-sharing")
        self.twin = ExactingTwin({"fairSharing": fair, "objects": objects})
        self.world = MinimalSystem(config_of_kueue(fair_sharing=fair))
        for obj in objects:
            self.world.apply_manifest(obj, "default")
        self.world.own_all()
        self.step(self.draw.batch())

    def step(self, step: dict[str, Any]) -> None:
        ((what, value),) = step.items()
        perform_step(self.world, what, value)
        self.twin.step(step)

    @rule()
    def workloads_come(self) -> None:
        if len(self.draw.names) < ENOUGH:
            self.step(self.draw.batch())

    @rule()
    def something_happens(self) -> None:
        for step in self.draw.happening():
            self.step(step)

    @rule()
    def come_to_rest(self) -> None:
        before = debts(self.world)

        def watch(decided: Sequence[Decided]) -> None:
            preempted = [decision for decision in decided if isinstance(decision, Preempted)]
            for preemption in preempted:
                assert is_given_up(self.world, preemption), preemption
            after = debts(self.world, [preemption.name for preemption in preempted])
            assert all(debt >= before.get(at, 0) for at, debt in after.items())
            self.no_workload_is_lost()

        cycles = settle(self.world, watch, most=CYCLES)
        got = in_shape(settle_result(self.world, 0, cycles))
        self.twin.settle(CYCLES)
        assert got == self.twin.outcome()

    def no_workload_is_lost(self) -> None:
        """A waiting workload is in exactly one place; a decided workload is not waiting."""
        rows = [row.name for row in self.world.scheduler.pending(PendingQuery(limit=NEVER)).rows]
        held = {
            key[1]
            for key, workload in self.world.scheduler._state.workloads.items()
            if workload.charge
        }
        wants = {name for name in self.world.stored if self.waits(name)}
        assert len(rows) == len(set(rows))
        assert set(rows) | held >= wants
        assert not set(rows) & held

    def waits(self, name: str) -> bool:
        return (
            name not in self.world.inactive
            and not self.world.is_true(name, "Finished")
            and self.world.stored[name].status.admission is None
            and self.twin.local[self.twin.jobs[name].local_queue][1] == "None"
        )


TestTwins = Twins.TestCase
TestTwins.settings = settings(
    max_examples=examples(250),
    stateful_step_count=14,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
