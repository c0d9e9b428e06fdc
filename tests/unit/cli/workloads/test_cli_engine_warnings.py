"""Warnings about manifests for a container engine on a machine without one."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from admittance.api.reading.manifest import read
from admittance.api.workload import Workload
from admittance.client.requests.submissions.warnings import engine_warnings, wants_engine

NO_ENGINE = "no runner has a container engine"
WITHOUT = f"{NO_ENGINE}: the command runs as a local process, without image busybox"
MOUNTS = "a process finds the folders of its volumes by ADMITTANCE_VOLUME_<NAME>"
BUSYBOX = {"name": "main", "image": "busybox", "command": ["true"]}


def workload(container: dict[str, Any], volumes: list[dict[str, Any]] | None = None) -> Workload:
    template = {"spec": {"containers": [container], "volumes": volumes or []}}
    manifest = {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "Workload",
        "metadata": {"name": "x"},
        "spec": {"queueName": "main", "podSets": [{"name": "main", "template": template}]},
    }
    [document] = read(msgspec.json.encode(manifest), "x.yaml")
    assert isinstance(document.manifest, Workload)
    return document.manifest


def mounting(path: str, volume: dict[str, Any]) -> Workload:
    mount = {"name": "data", "mountPath": path}
    container = {"name": "main", "command": ["true"], "volumeMounts": [mount]}
    return workload(container, [{"name": "data", **volume}])


@pytest.mark.parametrize(
    ("workloads", "said"),
    [
        ([workload({"name": "main", "command": ["true"]})], []),
        ([workload(BUSYBOX)], [f"1: {WITHOUT}"]),
        ([workload(BUSYBOX)] * 3, [f"1 (and 2 more like it): {WITHOUT}"]),
        (
            [mounting("/data", {"emptyDir": {}})],
            [f"1: {NO_ENGINE}: nothing is mounted at /data; {MOUNTS}"],
        ),
        ([mounting("/data", {"hostPath": {"path": "/data"}})], []),
        (
            [mounting("/data", {"hostPath": {"path": "/mnt"}})],
            [f"1: {NO_ENGINE}: nothing is mounted at /data; {MOUNTS}"],
        ),
    ],
)
def test_a_difference_without_an_engine_is_said_once(
    workloads: list[Workload], said: list[str]
) -> None:
    named = [(str(number), workload) for number, workload in enumerate(workloads, 1)]
    assert engine_warnings(named) == said
    assert any(map(wants_engine, workloads)) == bool(said)
