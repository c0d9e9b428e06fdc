"""The edition of a check for a queue, with which the count of immediate Retries starts anew."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from admittance.api.reading.manifest import decode_object
from admittance.control.controller import Controller
from admittance.control.manifests.objects import key_of
from support.builders import an_object

REFERENCE = {"apiGroup": "kueue.x-k8s.io", "kind": "ProvisioningRequestConfig", "name": "config"}
CHECK: dict[str, Any] = {"controllerName": "ctl"}
OBJECTS = (
    an_object("LocalQueue", "lq", {"clusterQueue": "cq"}, "ns"),
    an_object("ClusterQueue", "cq", {"namespaceSelector": {}}),
    an_object("AdmissionCheck", "c", {**CHECK, "parameters": REFERENCE}),
    an_object("ProvisioningRequestConfig", "config", {"provisioningClassName": "class"}),
    an_object("AdmissionCheck", "other", CHECK),
)


def keep(controller: Controller, written: dict[str, Any], revision: int) -> None:
    manifest = decode_object(
        {**written, "metadata": {**written["metadata"], "generation": revision}}
    ).manifest
    controller.keep_object(key_of(manifest), manifest, msgspec.json.encode(written), revision)


@pytest.mark.parametrize(
    ("number", "is_new"),
    [(0, True), (1, True), (2, True), (3, True), (4, False)],
    ids=["its LocalQueue", "its ClusterQueue", "the check", "the parameters", "another check"],
)
def test_an_edit_of_a_check_s_objects_makes_a_new_edition(number: int, is_new: bool) -> None:
    controller = Controller(b"secret")
    for revision, written in enumerate(OBJECTS, 1):
        keep(controller, written, revision)
    before = controller.queues.edition("ns", "lq", "c")
    assert controller.queues.edition("ns", "lq", "c") == before
    keep(controller, OBJECTS[number], 9)
    assert (controller.queues.edition("ns", "lq", "c") != before) is is_new


def test_a_check_without_objects_has_an_edition() -> None:
    edition = Controller(b"secret").queues.edition
    assert edition("ns", "lq", "c") == edition("ns", "gone", "d")
