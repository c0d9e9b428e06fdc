"""For which amounts a nomination searches victims, and which searches it makes once: by direct
calls."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from admittance.quota.cell import Cell, FlavorResource, Quota
from admittance.quota.tree import Tree
from admittance.scheduling.cycle.nominate import Search
from admittance.scheduling.state.assignment import NO_CANDIDATES, PREEMPT, RECLAIM
from admittance.scheduling.state.equivalence import RefusalQueue
from admittance.scheduling.state.workload_info import Charge, Queue, Victim, WorkloadInfo
from support.builders import an_admission

CPU = ("default", "cpu")
GPU = ("default", "gpu")
MEMORY = ("default", "memory")
NONE: frozenset[FlavorResource] = frozenset()


class CountedSearch(Search):
    """Notes for which amounts victims are searched; always finds the same ones."""

    def __init__(self, queue: Queue, victims: list[Victim]) -> None:
        super().__init__({"a": queue}, queue, WorkloadInfo(("ns", "w")), set(), None)
        self.searched: list[dict[FlavorResource, int]] = []
        self.found = victims

    def _search(
        self, need: Mapping[Cell, int], contested: Mapping[FlavorResource, None]
    ) -> list[Victim]:
        self.searched.append({cell.fr: amount for cell, amount in need.items()})
        return self.found


def cells(gpus_used: int = 0) -> dict[FlavorResource, Cell]:
    """The cells of a ClusterQueue that has used its cpu, and may borrow from another one."""
    tree = Tree()
    quotas = {CPU: Quota(4), GPU: Quota(4), MEMORY: Quota(4)}
    tree.set_cohort("co", "", {})
    tree.set_queue("a", "co", quotas)
    tree.set_queue("b", "co", quotas)
    made = {fr: tree.queues["a"].cell(fr) for fr in quotas}
    made[CPU].charge(8)
    made[GPU].charge(gpus_used)
    return made


def a_victim(queue: Queue, *amounts: tuple[Cell, int]) -> Victim:
    workload = WorkloadInfo(("ns", "victim"))
    workload.charge = Charge(queue, an_admission("a"), list(amounts))
    return Victim(workload, "InClusterQueue")


@pytest.mark.parametrize(
    ("need", "contested", "gpus_used", "searched"),
    [
        pytest.param({CPU: 2}, {CPU}, 0, {CPU: 2}, id="one amount"),
        pytest.param({CPU: 2}, NONE, 0, {CPU: 2}, id="one amount that is not contested"),
        pytest.param({CPU: 2, GPU: 4}, {CPU}, 0, {CPU: 2}, id="the gpus are its own"),
        pytest.param({CPU: 2, GPU: 1}, {CPU}, 4, {CPU: 2, GPU: 1}, id="it borrows the gpu"),
        pytest.param({CPU: 2, GPU: 5}, {CPU}, 0, {CPU: 2, GPU: 5}, id="it borrows one gpu"),
        pytest.param({CPU: 2, GPU: 1}, {CPU, GPU}, 0, {CPU: 2, GPU: 1}, id="both are contested"),
        pytest.param({CPU: 2, GPU: 1}, NONE, 0, {CPU: 2, GPU: 1}, id="none is contested"),
        pytest.param(
            {CPU: 2, GPU: 1, MEMORY: 5},
            {CPU},
            0,
            {CPU: 2, GPU: 1, MEMORY: 5},
            id="it borrows one of the rest",
        ),
        pytest.param({CPU: 2, GPU: 1, MEMORY: 4}, {CPU}, 0, {CPU: 2}, id="the rest is its own"),
    ],
)
def test_victims_are_searched_for_one_amount_if_the_rest_is_there(
    need: Mapping[FlavorResource, int],
    contested: frozenset[FlavorResource],
    gpus_used: int,
    searched: dict[FlavorResource, int],
) -> None:
    known = cells(gpus_used)
    search = CountedSearch(Queue("a", RefusalQueue()), [])
    wanted = {known[fr]: amount for fr, amount in need.items()}
    for _ in range(2):
        assert search.victims(wanted, dict.fromkeys(contested)) == []
    times = 1 if len(searched) == 1 else 2
    assert search.searched == [searched] * times, "a search for one amount is made once"


def test_what_preemption_would_give_depends_on_the_queue_of_the_victims() -> None:
    cpu = cells()[CPU]
    queue, other = Queue("a", RefusalQueue()), Queue("b", RefusalQueue())
    own, theirs = a_victim(queue, (cpu, 5)), a_victim(other, (cpu, 3))
    for victims, mode, level in (
        ([], NO_CANDIDATES, 1),
        ([own], PREEMPT, 1),
        ([theirs], RECLAIM, 1),
        ([theirs, own], PREEMPT, 0),
    ):
        search = CountedSearch(queue, victims)
        assert not search.knows(cpu, 2)
        assert search.ask(cpu, 2) == (mode, level)
        assert search.knows(cpu, 2)
        assert not search.knows(cpu, 3)
        assert cpu.usage == 8, "the usage of the victims is there again"


def test_without_minimum_runs_no_victim_is_spared() -> None:
    search = CountedSearch(Queue("a", RefusalQueue()), [])
    assert search.spared_until is None
    assert not search.yields()
