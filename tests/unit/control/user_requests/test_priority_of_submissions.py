"""The workload-controller gives a submission the priority of its class, and follows the class."""

from __future__ import annotations

from typing import Any

import msgspec

from admittance.events import facts
from admittance.workload.limits import Limits
from admittance.workload.stored import head, priority_class
from support.builders import a_manifest
from support.cores.stepped_cores import SteppedCores


def apply(cores: SteppedCores, kind: str, name: str, value: int, **more: Any) -> None:
    """Applies a class of priorities."""
    group = "scheduling.k8s.io/v1" if kind == "PriorityClass" else "kueue.x-k8s.io/v1beta2"
    meta = {"apiVersion": group, "kind": kind, "metadata": {"name": name}}
    cores.put_manifest({**meta, "value": value, **more})


def submit(cores: SteppedCores, name: str, pod_class: str = "") -> str:
    """Submits a workload; returns the reason of a refusal."""
    manifest = a_manifest(name)
    template = manifest["spec"]["podSets"][0]["template"]
    template["spec"]["priorityClassName"] = pod_class
    raw = msgspec.Raw(msgspec.json.encode(manifest))
    (settled,) = cores.apply_facts(facts.Submitted(namespace="ns", name=name, workload=raw))
    return settled.message


def priority(cores: SteppedCores, name: str) -> tuple[str, int]:
    """The WorkloadPriorityClass and the priority of a stored workload."""
    workload = cores.stored(name)
    return priority_class(workload), head(workload).priority


def test_the_class_of_the_pods_gives_the_priority_once() -> None:
    cores = SteppedCores()
    apply(cores, "PriorityClass", "urgent", 100_000)
    apply(cores, "PriorityClass", "all", 3, globalDefault=True)
    assert submit(cores, "a", "urgent") == ""
    assert submit(cores, "b") == ""
    apply(cores, "PriorityClass", "urgent", 5)
    assert (priority(cores, "a"), priority(cores, "b")) == (("", 100_000), ("", 3))
    assert "PriorityClass gone doesn't exist" in submit(cores, "c", "gone")


def test_the_class_default_applies_by_itself_and_is_followed() -> None:
    cores = SteppedCores()
    apply(cores, "PriorityClass", "urgent", 100_000)
    apply(cores, "WorkloadPriorityClass", "default", 50)
    submit(cores, "a", "urgent")
    assert priority(cores, "a") == ("default", 50)
    apply(cores, "WorkloadPriorityClass", "default", 70)
    assert priority(cores, "a") == ("default", 70)
    cores.controller.queues.limits = Limits(default_class=False)
    submit(cores, "b", "urgent")
    assert priority(cores, "b") == ("", 100_000)
