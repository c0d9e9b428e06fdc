"""A request to delete an object that others use is deferred, and names what uses the object."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from admittance.api.reading.manifest import accept
from admittance.control.controller import Controller
from admittance.control.manifests.planned_writes import (
    PlannedDeletion,
    planned_deletion,
    planned_writes,
    unneeded_objects,
)
from admittance.control.workloads import VersionedWorkload
from admittance.workload.change import with_status
from admittance.workload.stored import StoredWorkload
from support.builders import NOON, an_admission, an_object, resource_groups
from support.cores.tracked_workload import TrackedWorkload

CHECK = an_object("AdmissionCheck", "c", {"controllerName": "ctl"})
FLAVOR = an_object("ResourceFlavor", "f", {"topologyName": "t", "nodeLabels": {"rack": "r"}})
TOPOLOGY = an_object("Topology", "t", {"levels": [{"nodeLabel": "rack"}]})
BY_STRATEGY: dict[str, Any] = {"admissionChecksStrategy": {"admissionChecks": [{"name": "c"}]}}
BY_FLAVOR: dict[str, Any] = {"resourceGroups": resource_groups({"f": 1}, checks={"f": ["c"]})}


def a_queue(name: str = "cq", **spec: Any) -> dict[str, Any]:
    return an_object(
        "ClusterQueue",
        name,
        {"resourceGroups": resource_groups({"f": 1}), "namespaceSelector": {}, **spec},
    )


def controller_with(*manifests: dict[str, Any]) -> Controller:
    controller = Controller(b"secret")
    proposed = [accept(msgspec.Raw(msgspec.json.encode(each))).manifest for each in manifests]
    for write in planned_writes(controller.objects, proposed, now=NOON):
        controller.keep_object(write.key, write.object, write.value or b"", 1)
    return controller


def delete(controller: Controller, key: str) -> PlannedDeletion:
    """Plans the deletion, and carries it out."""
    planned = planned_deletion(controller, key, now=NOON, user="ada")
    if planned.mark is not None:
        controller.keep_object(key, planned.mark.object, planned.mark.value or b"", 2)
    if planned.unneeded is not None:
        controller.keep_object(key, None, b"", 3)
    return planned


@pytest.mark.parametrize(
    ("key", "user", "manifests"),
    [
        pytest.param(
            "admissioncheck.c", "ClusterQueue cq", [CHECK, a_queue(admissionChecks=["c"])],
            id="a check that a queue lists",
        ),
        pytest.param(
            "admissioncheck.c", "ClusterQueue cq", [CHECK, a_queue(**BY_STRATEGY)],
            id="a check in the strategy of a queue",
        ),
        pytest.param(
            "admissioncheck.c", "ClusterQueue cq", [CHECK, a_queue(**BY_FLAVOR)],
            id="a check at a flavor of a queue",
        ),
        pytest.param(
            "flavor.f", "ClusterQueue cq", [FLAVOR, a_queue()], id="a flavor that a queue offers"
        ),
        pytest.param(
            "topology.t", "ResourceFlavor f", [TOPOLOGY, FLAVOR], id="a topology of a flavor"
        ),
    ],
)  # fmt: skip
@pytest.mark.scenario("A20")
def test_a_used_object_is_marked_once_and_removed_when_unused(
    key: str, user: str, manifests: list[dict[str, Any]]
) -> None:
    controller = controller_with(*manifests)
    first = delete(controller, key)
    assert first.unneeded is None
    assert (first.reply.outcome, first.reply.error) == ("deferred", f"still in use by {user}")
    kept = controller.objects.get(key)
    assert kept is not None
    assert kept.object.metadata.deletion_timestamp == NOON
    again = delete(controller, key)
    assert (again.reply, again.mark) == (first.reply, None)
    assert unneeded_objects(controller) == []
    kind, _, name = user.partition(" ")
    using = "clusterqueue" if kind == "ClusterQueue" else "flavor"
    assert delete(controller, f"{using}.{name}").reply.outcome == "deleted"
    assert [unneeded for unneeded, _ in unneeded_objects(controller)] == [key]
    assert delete(controller, key).reply.outcome == "deleted"
    assert delete(controller, key).reply.outcome == "absent"


@pytest.mark.parametrize(
    ("workload", "is_deferred"),
    [
        pytest.param(TrackedWorkload().assigned().stored, True, id="it holds quota of the queue"),
        pytest.param(TrackedWorkload().stored, False, id="it waits"),
        pytest.param(
            with_status(TrackedWorkload().assigned().stored, admission=an_admission("other")),
            False,
            id="it holds quota of another queue",
        ),
    ],
)
def test_a_queue_is_kept_while_a_workload_holds_its_quota(
    workload: StoredWorkload, is_deferred: bool
) -> None:
    controller = controller_with(a_queue())
    controller.workloads.keep("workload.ns.w", VersionedWorkload(workload, 1, 1))
    planned = delete(controller, "clusterqueue.cq")
    assert planned.reply.outcome == ("deferred" if is_deferred else "deleted")
    assert planned.reply.error == ("still in use by Workload ns/w" if is_deferred else "")


def test_a_deferred_deletion_names_five_users_at_most() -> None:
    queues = [a_queue(f"cq-{number}", admissionChecks=["c"]) for number in range(7)]
    said = delete(controller_with(CHECK, *queues), "admissioncheck.c").reply.error
    assert said.count("ClusterQueue") == 5
