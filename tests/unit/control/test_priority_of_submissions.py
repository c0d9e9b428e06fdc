"""The workload-controller gives a submission the priority of its class, and follows the class."""

from __future__ import annotations

from typing import Any

import msgspec

from admittance.api.reading.manifest import accept
from admittance.control.batch import fold
from admittance.control.controller import Controller
from admittance.control.objects import key_of
from admittance.events import facts
from admittance.events.codec import encode
from admittance.events.subjects import applied_subject, subject_of
from admittance.events.system import ObjectApplied
from admittance.replay.log_messages import log_message
from admittance.workload.limits import Limits
from admittance.workload.stored import head, priority_class
from support.builders import NOON, a_manifest


class House:
    """A controller with priority classes, and a log."""

    def __init__(self, limits: Limits | None = None) -> None:
        self.controller = Controller(b"secret", limits)
        self.revision = 0
        self.sequence = 0

    def apply(self, kind: str, name: str, value: int, **more: Any) -> None:
        """Stores a class, and gives it to the controller."""
        group = "scheduling.k8s.io/v1" if kind == "PriorityClass" else "kueue.x-k8s.io/v1beta2"
        raw = {"apiVersion": group, "kind": kind, "metadata": {"name": name}, "value": value}
        manifest = accept({**raw, **more}).manifest
        self.revision += 1
        stored = msgspec.json.encode({**raw, **more})
        self.controller.keep_object(key_of(manifest), manifest, stored, self.revision)
        applied = ObjectApplied(kind=kind, name=name, revision=self.revision)
        token = "priorityclass.scheduling.k8s.io" if kind == "PriorityClass" else kind.lower()
        self._hear(applied_subject(token, "", name), msgspec.json.encode(applied))

    def submit(self, name: str, pod_class: str = "") -> str:
        """Submits a workload; returns the reason of a refusal."""
        manifest = a_manifest(name)
        template = manifest["spec"]["podSets"][0]["template"]
        template["spec"]["priorityClassName"] = pod_class
        raw = msgspec.Raw(msgspec.json.encode(manifest))
        fact = facts.Submitted(namespace="ns", name=name, time=NOON, workload=raw)
        return self._hear(subject_of(fact), encode(fact))

    def priority(self, name: str) -> tuple[str, int]:
        """The WorkloadPriorityClass and the priority of a stored workload."""
        workload = self.controller.workloads.get(f"workload.ns.{name}").workload
        assert workload is not None
        return priority_class(workload), head(workload).priority

    def _hear(self, subject: str, data: bytes) -> str:
        self.sequence += 1
        rest = [log_message(self.sequence, subject, data, {}, NOON)]
        said = ""
        while rest:
            commit = fold(self.controller, rest, NOON)
            for put in commit.puts:
                self.revision += 1
                self.controller.committed(put, self.revision, NOON)
            said += "".join(reply.message for reply in commit.outcomes.values())
            rest = commit.rest
        return said


def test_the_class_of_the_pods_gives_the_priority_once() -> None:
    house = House()
    house.apply("PriorityClass", "urgent", 100_000)
    house.apply("PriorityClass", "all", 3, globalDefault=True)
    assert house.submit("a", "urgent") == ""
    assert house.submit("b") == ""
    house.apply("PriorityClass", "urgent", 5)
    assert (house.priority("a"), house.priority("b")) == (("", 100_000), ("", 3))
    assert "PriorityClass gone doesn't exist" in house.submit("c", "gone")


def test_the_class_default_applies_by_itself_and_is_followed() -> None:
    house = House()
    house.apply("PriorityClass", "urgent", 100_000)
    house.apply("WorkloadPriorityClass", "default", 50)
    house.submit("a", "urgent")
    assert house.priority("a") == ("default", 50)
    house.apply("WorkloadPriorityClass", "default", 70)
    assert house.priority("a") == ("default", 70)
    house.controller.queues.limits = Limits(default_class=False)
    house.submit("b", "urgent")
    assert house.priority("b") == ("", 100_000)
