"""Every object in the bucket is published, also if its writer died or got no answer."""

from __future__ import annotations

import msgspec

from admittance.control.controller import Controller
from admittance.control.manifests.object_messages import load_entry, messages_about_all
from admittance.events.system import ObjectApplied

KEY = "localqueue.ns.lq"
LOCAL = msgspec.json.encode(
    {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "LocalQueue",
        "metadata": {"name": "lq", "namespace": "ns"},
        "spec": {"clusterQueue": "cq"},
    }
)


def test_objects_found_in_the_bucket_are_published_once() -> None:
    controller = Controller(b"secret")
    said = load_entry(controller, KEY, LOCAL, 7, {})
    assert said is not None
    assert said.subject == "admit.object.applied.localqueue.ns.lq"
    assert load_entry(controller, KEY, LOCAL, 7, {}) is None


def test_a_deletion_is_published_from_its_marker_alone() -> None:
    controller = Controller(b"secret")
    controller.load(KEY, None, 9, {})
    ((revision, said),) = messages_about_all(controller)
    assert (revision, said.subject) == (9, "admit.object.deleted.localqueue.ns.lq")
    applied = msgspec.json.decode(said.data, type=ObjectApplied)
    assert (applied.kind, applied.namespace, applied.name, applied.revision) == (
        "LocalQueue",
        "ns",
        "lq",
        9,
    )


def test_only_the_first_64_bytes_of_the_secret_make_message_ids() -> None:
    ids = [Controller(b"s" * length).message_builder.identity("m") for length in (63, 64, 99)]
    assert ids[0] != ids[1] == ids[2]


def a_check(parameters: str, **spec: object) -> bytes:
    reference = {"apiGroup": "kueue.x-k8s.io", "kind": "K", "name": parameters}
    return msgspec.json.encode(
        {
            "apiVersion": "kueue.x-k8s.io/v1beta2",
            "kind": "AdmissionCheck",
            "metadata": {"name": "c"},
            "spec": {"controllerName": "ctl", "parameters": reference, **spec},
        }
    )


def test_a_check_event_shows_whether_its_parameters_reference_changed() -> None:
    """An unknown change counts as a change; the only cost is a superfluous request to the
    checks."""
    controller = Controller(b"secret")
    seen = []
    for revision, value in enumerate(
        (a_check("a"), a_check("a", checkTimeoutSeconds=7), a_check("b")), 1
    ):
        said = load_entry(controller, "admissioncheck.c", value, revision, {})
        assert said is not None
        seen.append(msgspec.json.decode(said.data, type=ObjectApplied).parameters_changed)
    assert seen == [True, False, True]
    ((_, said),) = messages_about_all(controller)
    assert msgspec.json.decode(said.data, type=ObjectApplied).parameters_changed


def test_every_leader_publishes_an_object_under_the_same_id() -> None:
    leader, other = Controller(b"secret"), Controller(b"secret")
    first, second = load_entry(leader, KEY, LOCAL, 7, {}), load_entry(other, KEY, LOCAL, 7, {})
    assert first is not None
    assert second is not None
    assert first.id == second.id
