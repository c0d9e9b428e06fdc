"""Which flavors the machines of runners cover. docs/spec/lifecycle.md#2.2."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from admittance.api.checks import AdmissionCheck, AdmissionCheckSpec
from admittance.api.meta import ObjectMeta
from admittance.api.queues import ClusterQueue, ResourceFlavor, ResourceFlavorSpec
from admittance.api.reading.manifest import decode_object
from admittance.placement.machines.coverage import Coverage
from support.builders import NOON, an_object, resource_groups
from support.machines import GPU, a_machine

PROVISIONED = AdmissionCheck(
    metadata=ObjectMeta(name="buys"),
    spec=AdmissionCheckSpec(controller_name="kueue.x-k8s.io/provisioning-request"),
)


def a_queue(flavors: dict[str, int], resource: str = GPU, **spec: Any) -> ClusterQueue:
    checks = spec.pop("checks", {})
    groups = resource_groups(flavors, resource, checks)
    decoded = decode_object(an_object("ClusterQueue", "cq", {"resourceGroups": groups, **spec}))
    assert isinstance(decoded.manifest, ClusterQueue)
    return decoded.manifest


def covered(queue: ClusterQueue, **more: Any) -> list[str]:
    coverage = Coverage()
    coverage.queues["cq"] = queue
    coverage.checks["buys"] = PROVISIONED
    coverage.flavors |= {
        "any": ResourceFlavor(),
        "a100": ResourceFlavor(spec=ResourceFlavorSpec(node_labels={"card": "a100"})),
    }
    card = more.pop("card", "a100")
    machines = [
        a_machine("plain"),
        a_machine("gpu", gpus=2, labels={} if card is None else {"card": card}),
    ]
    coverage.machines |= {machine.name: machine for machine in machines}
    wanted = coverage.wanted(NOON)
    return [] if wanted is None else list(wanted.spec.on_flavors)


@pytest.mark.parametrize(
    ("queue", "card", "flavors"),
    [
        (a_queue({"any": 8}), "h100", ["any"]),
        (a_queue({"any": 8, "a100": 8}), "a100", ["a100", "any"]),
        (a_queue({"a100": 8}), "h100", ["a100"]),
        (a_queue({"a100": 8}), None, []),
        (a_queue({"a100": 8}, "cpu"), "h100", ["a100"]),
        (a_queue({"a100": 0}), "a100", []),
        (a_queue({"any": 8}, "cpu"), "a100", []),
        (a_queue({"any": 0}), "a100", []),
        (a_queue({"any": 8}, machines="Off"), "a100", []),
        (a_queue({"any": 8, "a100": 8}, checks={"any": ["buys"]}), "a100", ["a100"]),
        (a_queue({"any": 8}, admissionChecks=["buys"]), "a100", []),
        (a_queue({"gone": 8}), "a100", []),
    ],
    ids=[
        "devices of the flavor",
        "labels too",
        "another value of its label",
        "no machine has the key of its label",
        "cpu alone with labels",
        "labels without quota",
        "cpu alone without labels",
        "no quota",
        "machines off",
        "a flavor is provisioned",
        "the queue is provisioned",
        "no such flavor",
    ],
)
def test_a_flavor_is_covered_by_a_machine_with_keys_of_its_labels_or_its_devices(
    queue: ClusterQueue, card: str | None, flavors: list[str]
) -> None:
    assert covered(queue, card=card) == flavors


def test_coverage_is_added_to_what_people_have_written_and_never_ends() -> None:
    coverage = Coverage()
    coverage.queues["cq"] = a_queue({"any": 8})
    coverage.flavors["any"] = ResourceFlavor()
    assert coverage.wanted(NOON) is None
    coverage.machines["gpu"] = a_machine("gpu", gpus=1)
    first = coverage.wanted(NOON)
    assert first is not None
    assert first.spec.preemption_policy == "AfterCheckPassedOrOnDemand"
    assert (first.metadata.generation, first.spec.on_flavors) == (1, ("any",))
    coverage.checks["machines"] = replace(first, spec=replace(first.spec, on_flavors=("by-hand",)))
    second = coverage.wanted(NOON)
    assert second is not None
    assert (second.metadata.generation, second.spec.on_flavors) == (2, ("by-hand", "any"))
    coverage.checks["machines"] = second
    coverage.machines.clear()
    assert coverage.wanted(NOON) is None


def test_a_check_of_another_controller_or_one_that_is_deleted_is_left_alone() -> None:
    coverage = Coverage()
    coverage.queues["cq"] = a_queue({"any": 8})
    coverage.flavors["any"] = ResourceFlavor()
    coverage.machines["gpu"] = a_machine("gpu", gpus=1)
    ours = coverage.wanted(NOON)
    assert ours is not None
    empty = replace(ours, spec=replace(ours.spec, on_flavors=()))
    gone = replace(empty, metadata=replace(empty.metadata, deletion_timestamp=NOON))
    foreign = replace(empty, spec=replace(empty.spec, controller_name="example.com/x"))
    for check in (gone, foreign):
        coverage.checks["machines"] = check
        assert coverage.wanted(NOON) is None
