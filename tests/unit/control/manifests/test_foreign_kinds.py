"""A kind of a foreign API group may have the name of one of our kinds, as Volcano's Job does."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

import msgspec
import pytest

from admittance.api.kinds import KINDS
from admittance.api.reading.manifest import accept
from admittance.control.controller import Controller
from admittance.control.manifests.object_messages import message_about
from admittance.control.manifests.objects import StoredObject
from admittance.control.manifests.planned_writes import planned_writes
from admittance.control.manifests.proposals import proposal, refusal_reasons
from admittance.events import facts
from admittance.workload.bucket_reader import names_of, read_manifest
from admittance.workload.limits import Limits
from support.builders import NOON, a_manifest
from support.stored.values import CHECKED, ME, VERSION, Leader

OURS = {"ClusterQueue": "cq", "LocalQueue": "lq", "AdmissionCheck": "c", "Namespace": "ns"}
GROUPS = ("apps", "example.com", "batch.volcano.sh", "x-k8s.io", "kueue", "admittance.dev")
SPECS: tuple[dict[str, Any], ...] = (
    {},
    {"spec": None},
    {"spec": {"clusterQueue": 7, "resourceGroups": "x", "controllerName": []}, "value": "9"},
)


def foreign_objects(kind: str) -> Iterator[dict[str, Any]]:
    """An object of the kind's name in each foreign group, named like an object of ours."""
    for group in GROUPS:
        if group == KINDS[kind].group:
            continue
        for namespace in ("", "ns") if group == GROUPS[0] else ("ns",):
            metadata = {"name": OURS.get(kind, "default")}
            if namespace:
                metadata["namespace"] = namespace
            yield {"apiVersion": f"{group}/v1", "kind": kind, "metadata": metadata}


def _decided(controller: Controller) -> object:
    """Everything that the controller decides from its manifests."""
    catalog = controller.catalog
    objects = controller.objects
    prefixes = sorted({kind.token for kind in KINDS.values()})
    return (
        {
            prefix: [manifest.metadata.name for manifest in objects.of_kind(prefix)]
            for prefix in prefixes
        },
        [catalog.cluster_queues, catalog.local_queues, catalog.checks, catalog.flavors],
        [catalog.namespaces, catalog.priority_classes, catalog.cohorts],
        catalog.activity("cq"),
        catalog.newest("queue-cq"),
    )


@pytest.fixture
def leader() -> Leader:
    leader = Leader(**CHECKED)
    workload = msgspec.Raw(msgspec.json.encode(a_manifest(queue="lq")))
    leader.apply_fact(facts.Submitted(**ME, workload=workload))
    return leader


@pytest.mark.parametrize("kind", KINDS)
def test_a_foreign_object_decides_nothing_whatever_its_kind_is_named(
    leader: Leader, kind: str
) -> None:
    before = _decided(leader.controller)
    for written, spec in product(foreign_objects(kind), SPECS):
        raw = msgspec.Raw(msgspec.json.encode({**written, **spec}))
        proposed = proposal([(1, raw)], "")
        assert not proposed.problems
        objects = leader.controller.objects
        (planned,) = planned_writes(objects, proposed.manifests, now=NOON)
        assert not refusal_reasons(objects, [planned], Limits())
        assert planned.value is not None
        leader.revision += 1
        kept = StoredObject(planned.object, planned.value, leader.revision)
        said = message_about(leader.controller, kept)
        leader.controller.keep_object(planned.key, *kept)
        # No workload changes through the message about it.
        assert leader.apply_message(said.subject, said.data) == []
        assert _decided(leader.controller) == before
        # The next leader reads the bucket.
        again = Leader(**CHECKED)
        again.controller.load(planned.key, planned.value, leader.revision, {})
        assert not again.controller.unreadable
        assert _decided(again.controller) == before
        # The value is damaged afterwards, and then deleted.
        again.controller.load(planned.key, b"{", 98, {})
        assert list(again.controller.unreadable) == [planned.key]
        again.controller.load(planned.key, None, 99, {})
        assert _decided(again.controller) == before


@pytest.mark.parametrize("group", GROUPS)
@pytest.mark.parametrize("key", ["clusterqueue.cq", "localqueue.ns.lq", "admissioncheck.c"])
def test_a_foreign_value_at_a_key_of_admittance_is_set_aside(key: str, group: str) -> None:
    leader = Leader(**CHECKED)
    kind = next(kind for kind in KINDS.values() if kind.token == key.partition(".")[0])
    namespace, name = names_of(key)
    value = {
        "apiVersion": f"{group}/v1",
        "kind": kind.name,
        "metadata": {"name": name, "namespace": namespace},
    }
    leader.controller.load(key, msgspec.json.encode(value), 99, {})
    assert list(leader.controller.unreadable) == [key]
    assert leader.controller.objects.get(key) is None
    names = [manifest.metadata.name for manifest in leader.controller.objects.of_kind(kind.token)]
    assert names == []
    # Applying the object again repairs it.
    leader.controller.load(key, leader.values[key], 100, {})
    assert leader.controller.objects.get(key) is not None


@pytest.mark.parametrize(
    ("head", "field"),
    [
        pytest.param(("example.com/v1", "a.b"), "kind", id="a kind with a dot"),
        pytest.param(("example.com/v1", "Büdget"), "kind", id="a kind that is not ASCII"),
        pytest.param(("example.com/v1", "B" * 64), "kind", id="a kind of 64 letters"),
        pytest.param(("example.com/v1", ">"), "kind", id="a kind that is a wildcard"),
        pytest.param(("a/b/v1", "Budget"), "apiVersion", id="a group with a slash"),
        pytest.param(("Example.com/v1", "Budget"), "apiVersion", id="a group in capitals"),
        pytest.param(("*/v1", "Budget"), "apiVersion", id="a group that is a wildcard"),
        pytest.param(("example.com/", "Budget"), "apiVersion", id="no version"),
        pytest.param(("example.com/v1 ", "Budget"), "apiVersion", id="a version with a space"),
    ],
)
def test_a_foreign_object_with_a_name_no_key_can_hold_is_refused(
    head: tuple[str, str], field: str
) -> None:
    value = {"apiVersion": head[0], "kind": head[1], "metadata": {"name": "x"}}
    problems = proposal([(1, msgspec.Raw(msgspec.json.encode(value)))], "").problems
    assert any(f" {field}: " in problem or problem.startswith(field) for problem in problems)


@pytest.mark.parametrize("namespace", ["*", ">", "../../x", "A", "a.b", "_"])
def test_a_namespace_of_a_foreign_object_is_a_name(namespace: str) -> None:
    value = {
        "apiVersion": "example.com/v1",
        "kind": "Budget",
        "metadata": {"name": "x", "namespace": namespace},
    }
    (problem,) = proposal([(1, msgspec.Raw(msgspec.json.encode(value)))], "").problems
    assert "metadata.namespace" in problem


@pytest.mark.parametrize("kind", ["Workload", "Job"])
def test_a_kind_that_is_submitted_is_not_applied(kind: str) -> None:
    pod = {"containers": [{"name": "c", "image": "i"}], "restartPolicy": "Never"}
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "w", "labels": {"kueue.x-k8s.io/queue-name": "lq"}},
        "spec": {"template": {"spec": pod}},
    }
    value = a_manifest(queue="lq") if kind == "Workload" else job
    raw = msgspec.Raw(msgspec.json.encode(value))
    (problem,) = proposal([(1, raw)], "ns").problems
    assert problem == f"object 1: a {kind} is submitted, not applied"


def test_one_foreign_kind_has_one_spelling() -> None:
    leader = Leader(**CHECKED)
    outcomes = []
    for kind in ("Budget", "budget"):
        value = {"apiVersion": "example.com/v1", "kind": kind, "metadata": {"name": "x"}}
        (planned,) = planned_writes(leader.controller.objects, [accept(value).manifest], now=NOON)
        outcomes.append(refusal_reasons(leader.controller.objects, [planned], Limits()))
        leader.controller.keep_object(planned.key, planned.object, planned.value or b"", 99)
    assert outcomes == [[], ["budget x: kind: may not be changed: it is stored as Budget"]]


@pytest.mark.parametrize(
    "key", ["clusterqueue.ns.cq", "localqueue.lq", "flavor.ns.default", "workload.w", "job.j"]
)
def test_a_key_with_a_wrong_number_of_names_does_not_belong_to_the_kind(key: str) -> None:
    leader = Leader(**CHECKED)
    before = _decided(leader.controller)
    for revision, value in ((98, b"{}"), (99, None)):
        leader.controller.load(key, value, revision, {})
        assert list(leader.controller.unreadable) == ([key] if value is not None else [])
        leader.controller.unreadable.clear()
    assert _decided(leader.controller) == before


def test_a_queue_that_cannot_be_applied_changes_nothing() -> None:
    leader = Leader(**CHECKED)
    before = _decided(leader.controller)
    key = "clusterqueue.cq"
    manifest = read_manifest(key, leader.values[key])
    group = msgspec.to_builtins(manifest)["spec"]["resourceGroups"][0]
    group["flavors"][0]["resources"][0]["nominalQuota"] = "a lot"
    value = {
        "apiVersion": VERSION,
        "kind": "ClusterQueue",
        "metadata": {"name": "cq"},
        "spec": {"resourceGroups": [group]},
    }
    bad = msgspec.convert(value, type(manifest))
    with pytest.raises(ValueError, match="a lot"):
        leader.controller.keep_object(key, bad, msgspec.json.encode(value), 99)
    assert _decided(leader.controller) == before
    assert leader.controller.objects.expected(key) < 99
