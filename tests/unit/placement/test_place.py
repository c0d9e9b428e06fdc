"""Pods go to machines with room, all or none, and always to the same ones."""

from __future__ import annotations

from typing import Any

import pytest

from admittance.api.meta import Taint, Toleration
from admittance.api.pods import NodeFieldRequirement, NodeSelectorRequirement, NodeSelectorTerm
from admittance.events.placement import placement_error
from admittance.placement.machines.machine import HOSTNAME, Device
from admittance.placement.search.request import Demands, PodGroup
from admittance.placement.search.shortage import Shortage
from support.machines import GPU, Machines, a_group, a_machine, a_request, placed


def test_a_pod_goes_to_the_machine_with_the_least_left() -> None:
    machines = Machines(a_machine("big", gpus=8), a_machine("small", gpus=2))

    assert placed(machines.place(a_request("n/a", a_group(gpus=2)))) == [("small", 1)]


def test_a_pod_without_devices_leaves_machines_with_devices_free() -> None:
    machines = Machines(a_machine("gpu", gpus=8, cpu=4), a_machine("plain", cpu=64))

    assert placed(machines.place(a_request("n/a", a_group(cpu=2)))) == [("plain", 1)]


def test_a_pod_without_devices_goes_where_the_devices_are_in_use() -> None:
    machines = Machines(a_machine("a", gpus=4), a_machine("b", gpus=4))
    machines.book(a_request("n/b", a_group(gpus=4, selector={HOSTNAME: "b"})))

    assert placed(machines.place(a_request("n/a", a_group()))) == [("b", 1)]


def test_a_gang_fills_a_machine_before_the_next_and_ends_on_a_small_rest() -> None:
    machines = Machines(*(a_machine(f"g{n}", gpus=8) for n in range(3)))
    machines.book(a_request("n/old", a_group(gpus=5, selector={HOSTNAME: "g0"})))

    parts = machines.book(a_request("n/gang", a_group(11, gpus=1)))

    assert placed(parts) == [("g1", 8), ("g0", 3)]
    assert [part.first for part in parts] == [0, 8]
    assert parts[1].devices == {GPU: ("g0-5", "g0-6", "g0-7")}
    assert placement_error(parts, {"main": 11}) == ""


def test_a_gang_is_on_one_machine_if_one_has_the_room() -> None:
    machines = Machines(a_machine("odd", gpus=8, cpu=2), a_machine("fit", gpus=4, cpu=64))

    assert placed(machines.place(a_request("n/gang", a_group(4, gpus=1)))) == [("fit", 4)]


def test_pod_sets_share_a_machine_if_it_has_the_room() -> None:
    machines = Machines(a_machine("a", gpus=8), a_machine("b", cpu=2))
    driver, workers = a_group(name="driver"), a_group(2, gpus=4, name="workers")

    parts = machines.book(a_request("n/w", driver, workers))

    assert placed(parts) == [("a", 1), ("a", 2)]
    assert [part.pod_set for part in parts] == ["driver", "workers"]


def test_a_gang_without_room_for_all_books_nothing() -> None:
    machines = Machines(a_machine("a", gpus=8), a_machine("b", gpus=4))

    assert isinstance(machines.place(a_request("n/g", a_group(13, gpus=1))), Shortage)
    assert isinstance(machines.place(a_request("n/h", a_group(2, gpus=8))), Shortage)
    assert machines.free("a")[GPU] == 8


def test_pods_that_draw_their_indices_are_on_one_machine() -> None:
    machines = Machines(a_machine("a", gpus=2), a_machine("b", gpus=2))

    shortage = machines.place(a_request("n/g", a_group(4, gpus=1, together=True)))

    assert isinstance(shortage, Shortage)
    assert shortage.message == "4 GPUs on one machine for 4 pods: the largest, a, has 2 GPUs"
    assert placed(machines.place(a_request("n/h", a_group(2, gpus=1, together=True)))) == [("a", 2)]


def test_a_workload_without_pods_gets_a_runner() -> None:
    parts = Machines(a_machine("a")).book(a_request("n/w", a_group(0)))

    assert [(part.runner, part.first, part.count) for part in parts] == [("a", 0, 0)]
    assert placement_error(parts, {"main": 0}) == ""


def _term(**fields: Any) -> NodeSelectorTerm:
    return NodeSelectorTerm(**fields)


def _key(key: str, operator: str, *values: str) -> NodeSelectorTerm:
    return _term(
        match_expressions=(NodeSelectorRequirement(key=key, operator=operator, values=values),)
    )


NAMED_B = _term(
    match_fields=(NodeFieldRequirement(key="metadata.name", operator="In", values=("b",)),)
)


@pytest.mark.parametrize(
    ("group", "machine"),
    [
        pytest.param(a_group(selector={"zone": "2"}), "b", id="selector"),
        pytest.param(a_group(selector={HOSTNAME: "b"}), "b", id="hostname"),
        pytest.param(a_group(selector={"rack": "7"}), "", id="unknown_label"),
        pytest.param(a_group(terms=(_key("zone", "NotIn", "1"),)), "b", id="affinity"),
        pytest.param(a_group(terms=(_key("zone", "Gt", "1"),)), "b", id="number"),
        pytest.param(a_group(terms=(_key("zone", "In", "9"), _key(HOSTNAME, "In", "b"))), "b",
                     id="second_term_by_hostname"),
        pytest.param(a_group(terms=(NAMED_B,)), "b", id="field"),
        pytest.param(a_group(terms=()), "", id="no_terms"),
        pytest.param(a_group(terms=(_term(),)), "", id="empty_term"),
        pytest.param(
            a_group(selector={"zone": "3"}, tolerations=(Toleration(key="team", value="x"),)),
            "c",
            id="tolerated_taint",
        ),
        pytest.param(a_group(selector={"zone": "3"}), "", id="taint"),
    ],
)  # fmt: skip
def test_a_pod_goes_only_to_a_machine_that_it_selects(group: PodGroup, machine: str) -> None:
    taint = Taint(key="team", value="x", effect="NoExecute")
    machines = Machines(
        a_machine("a", labels={"zone": "1"}),
        a_machine("b", labels={"zone": "2"}),
        a_machine("c", labels={"zone": "3"}, taints=(taint,)),
    )

    parts = machines.place(a_request("n/w", group))

    assert ("" if isinstance(parts, Shortage) else parts[0].runner) == machine


def test_a_machine_that_pods_should_avoid_comes_last() -> None:
    soft = Taint(key="old", effect="PreferNoSchedule")
    machines = Machines(a_machine("a", cpu=2, taints=(soft,)), a_machine("b"))

    assert placed(machines.place(a_request("n/w", a_group(cpu=2)))) == [("b", 1)]
    tolerant = a_group(cpu=2, tolerations=(Toleration(key="old", operator="Exists"),))
    assert placed(machines.place(a_request("n/w", tolerant))) == [("a", 1)]
    machines.book(a_request("n/v", a_group(cpu=64)))
    assert placed(machines.place(a_request("n/w", a_group(cpu=2)))) == [("a", 1)]


@pytest.mark.parametrize(
    ("demands", "machine"),
    [
        pytest.param(Demands(executor="docker"), "b", id="executor"),
        pytest.param(Demands(folder="/home/ada/x", host="h-a"), "a", id="own_folder"),
        pytest.param(Demands(folder="/data/x", host="h-z"), "b", id="shared_folder"),
        pytest.param(Demands(folder="/database", host="h-z"), "", id="folder_beside_a_shared_one"),
        pytest.param(Demands(folder="/home/ada/x"), "", id="folder_of_an_unknown_host"),
    ],
)
def test_a_job_goes_only_to_a_runner_with_its_requested_values(
    demands: Demands, machine: str
) -> None:
    machines = Machines(
        a_machine("a", host="h-a", executors=("local",)),
        a_machine("b", host="h-b", executors=("docker", "local"), folders=("/data",)),
    )

    parts = machines.place(a_request("n/w", demands=demands))

    assert ("" if isinstance(parts, Shortage) else parts[0].runner) == machine


@pytest.mark.parametrize("state", [{"ready": False}, {"unschedulable": True}, {"draining": True}])
def test_a_machine_that_takes_no_pods_gets_none(state: dict[str, Any]) -> None:
    machines = Machines(a_machine("a", **state), a_machine("b"))
    assert placed(machines.place(a_request("n/w"))) == [("b", 1)]

    machines.ledger.set_machine(a_machine("b", **state))
    shortage = machines.place(a_request("n/w"))

    assert isinstance(shortage, Shortage)
    assert shortage.message.startswith("no machine for the pods takes jobs now: a is ")


def test_slices_of_a_device_in_use_come_first() -> None:
    machines = Machines(a_machine("a", gpus=2, slices=4))
    machines.book(a_request("n/one", a_group(gpus=1)))

    assert machines.book(a_request("n/two", a_group(gpus=2)))[0].devices == {
        GPU: ("a-0::1", "a-0::2")
    }
    assert machines.book(a_request("n/four", a_group(gpus=4)))[0].devices == {
        GPU: tuple(f"a-1::{n}" for n in range(4))
    }


def test_units_go_to_pods_in_their_order() -> None:
    machines = Machines(a_machine("a", gpus=4))

    parts = machines.book(a_request("n/w", a_group(2, gpus=2)))

    assert parts[0].devices == {GPU: ("a-0", "a-1", "a-2", "a-3")}


def test_a_resource_without_devices_is_counted() -> None:
    machines = Machines(a_machine("a", capacity={"example.com/license": 3}))
    group = PodGroup(name="main", count=1, requests=(("example.com/license", 2), ("pods", 1)))
    parts = machines.book(a_request("n/w", group))

    assert parts[0].devices == {}
    assert machines.free("a")["example.com/license"] == 1
    assert isinstance(machines.place(a_request("n/v", group)), Shortage)


def test_a_machine_has_a_limit_of_pods_only_if_it_says_so() -> None:
    machines = Machines(a_machine("a", capacity={"pods": 2}), a_machine("b", cpu=1))

    parts = machines.place(a_request("n/w", a_group(3)))

    assert placed(parts) == [("a", 2), ("b", 1)]


def test_an_assignment_too_large_to_be_stored_is_refused() -> None:
    devices = tuple(Device(GPU, f"{'x' * 120}-{n}", n) for n in range(3000))
    machines = Machines(*(a_machine(f"m{n}", cpu=1) for n in range(70)))
    machines.ledger.set_machine(
        a_machine("m0", cpu=1).__class__(
            name="m0", id="id-m0", capacity={"cpu": 1000}, devices=devices
        )
    )

    shortage = machines.place(
        a_request("n/w", a_group(1, gpus=3000, name="a"), a_group(69, name="b"))
    )

    assert isinstance(shortage, Shortage)
    assert shortage.message == (
        "the assignment of 70 pods to 70 machines would be too large to be stored"
    )
