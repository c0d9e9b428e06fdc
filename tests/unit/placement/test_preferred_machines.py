"""The preferred node affinity of pods chooses among machines with room."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from admittance.api.meta import ObjectMeta, Taint
from admittance.api.pods import (
    NodeFieldRequirement,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    PreferredSchedulingTerm,
)
from admittance.placement.machines.machine import HOSTNAME
from admittance.placement.search.request import request_of
from admittance.workload.stored import StoredWorkload, WorkloadStatus
from admittance.workload.transition_context import FlavorParts
from support.builders import an_admission
from support.machines import Machines, a_group, a_machine, a_request, placed

AVOIDED = Taint(key="spare", effect="PreferNoSchedule")


def prefers(weight: int, key: str, *values: str, operator: str = "In") -> PreferredSchedulingTerm:
    wanted = NodeSelectorRequirement(key=key, operator=operator, values=values)
    return PreferredSchedulingTerm(
        weight=weight, preference=NodeSelectorTerm(match_expressions=(wanted,))
    )


def prefers_name(weight: int, *names: str) -> PreferredSchedulingTerm:
    wanted = NodeFieldRequirement(key="metadata.name", operator="In", values=names)
    return PreferredSchedulingTerm(
        weight=weight, preference=NodeSelectorTerm(match_fields=(wanted,))
    )


NO_PREFERENCE = PreferredSchedulingTerm(weight=9, preference=NodeSelectorTerm())


def the_machines() -> Machines:
    return Machines(
        a_machine("a", gpus=2, labels={"zone": "1"}),
        a_machine("b", gpus=8, labels={"zone": "2"}),
        a_machine("c", gpus=4, labels={"zone": "2", "disk": "ssd"}),
        a_machine("d", gpus=1, labels={"zone": "3"}, taints=(AVOIDED,)),
        a_machine("e", gpus=8, labels={"zone": "4"}, unschedulable=True),
    )


@pytest.mark.parametrize(
    ("terms", "count", "where"),
    [
        pytest.param((), 1, [("a", 1)], id="without terms the least left"),
        pytest.param((prefers(1, "zone", "2"),), 1, [("c", 1)], id="the least left of preferred"),
        pytest.param(
            (prefers(1, "zone", "2"), prefers(2, "zone", "1")), 1, [("a", 1)], id="greater weight"
        ),
        pytest.param(
            (prefers(5, "zone", "1"), prefers(4, "zone", "2"), prefers(2, "disk", "ssd")), 1,
            [("c", 1)], id="a greater sum of weights",
        ),
        pytest.param(
            (prefers(6, "zone", "1"), prefers(4, "zone", "2"), prefers(2, "disk", "ssd")), 1,
            [("a", 1)], id="an equal sum",
        ),
        pytest.param((prefers(9, "zone", "4"),), 1, [("a", 1)], id="a machine that takes no pods"),
        pytest.param((prefers(9, "zone", "9"),), 1, [("a", 1)], id="labels of no machine"),
        pytest.param((prefers(100, "zone", "3"),), 1, [("a", 1)], id="a taint counts more"),
        pytest.param(
            (NO_PREFERENCE, prefers(1, "zone", "2")), 1, [("c", 1)],
            id="an empty preference matches nothing",
        ),
        pytest.param((prefers_name(1, "b"),), 1, [("b", 1)], id="a machine by name"),
        pytest.param((prefers(1, HOSTNAME, "b"),), 1, [("b", 1)], id="a machine by its hostname"),
        pytest.param(
            (prefers(2, "zone", "2"), prefers_name(1, "a", "b")), 1, [("b", 1)],
            id="a name and a label together",
        ),
        pytest.param((prefers(9, "zone", "1"),), 4, [("c", 4)], id="as few machines as possible"),
        pytest.param(
            (), 12, [("b", 8), ("c", 4)], id="a gang without terms fills the largest machine first"
        ),
        pytest.param(
            (prefers(9, "zone", "1"),), 12, [("a", 2), ("b", 8), ("c", 2)],
            id="a gang fills preferred machines first",
        ),
        pytest.param(
            (prefers_name(9, "a", "c"),), 12, [("c", 4), ("a", 2), ("b", 6)],
            id="a gang fills machines by name first",
        ),
    ],
)  # fmt: skip
def test_pods_go_to_the_machines_that_they_prefer(
    terms: Sequence[PreferredSchedulingTerm], count: int, where: list[tuple[str, int]]
) -> None:
    group = a_group(count, gpus=1, preferred=tuple(terms))
    assert placed(the_machines().place(a_request("n/w", group))) == where


def test_a_machine_that_planned_victims_free_is_taken_only_if_it_is_preferred() -> None:
    machines = the_machines()
    machines.book(a_request("n/victim", a_group(gpus=2, selector={"zone": "1"})))
    for terms, where in (((), "a"), ((prefers(1, "zone", "2"),), "c")):
        request = a_request("n/w", a_group(gpus=1, preferred=terms))
        assert placed(machines.place(request, freed={"n/victim"})) == [(where, 1)]
        gang = a_request("n/w", a_group(13, gpus=1, preferred=terms))
        first, *_ = placed(machines.place(gang, freed={"n/victim"}))
        assert first[0] == {"a": "a", "c": "b"}[where]


TERM = {"weight": 7, "preference": {"matchExpressions": [{"key": "zone", "operator": "Exists"}]}}


@pytest.mark.parametrize(
    ("written", "read"),
    [
        pytest.param([TERM], (prefers(7, "zone", operator="Exists"),), id="a term"),
        pytest.param([], (), id="no terms"),
        pytest.param(None, (), id="null"),
        pytest.param("near", (), id="what an earlier version kept and did not read"),
    ],
)
def test_preferred_terms_are_read_from_the_stored_workload(
    written: Any, read: tuple[PreferredSchedulingTerm, ...]
) -> None:
    affinity = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": written}}
    pods = {"name": "main", "template": {"spec": {"affinity": affinity}}}
    workload = StoredWorkload(
        api_version="",
        kind="",
        metadata=ObjectMeta(name="w", namespace="ns"),
        spec=msgspec.Raw(json.dumps({"podSets": [pods]}).encode()),
        status=WorkloadStatus(admission=an_admission()),
    )
    [group] = request_of(workload, lambda _: FlavorParts()).pod_sets
    assert group.preferred == read
