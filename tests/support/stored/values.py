"""Values as the workload-controller stores them, and what is done with any value that is read."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import msgspec

from admittance.api.reading.manifest import accept, encode
from admittance.control.batch import fold
from admittance.control.commit import Message
from admittance.control.controller import Controller
from admittance.control.manifests.objects import key_of
from admittance.events import facts
from admittance.events.base import Fact
from admittance.events.codec import encode as encode_fact
from admittance.events.subjects import subject_of
from admittance.events.system import ObjectApplied
from admittance.replay.log_messages import log_message
from support.builders import NOON, a_manifest, an_admission

VERSION = "kueue.x-k8s.io/v1beta2"
KEY = "workload.ns.w"
ME: dict[str, Any] = {"namespace": "ns", "name": "w"}
FENCE = {
    "Nats-Expected-Last-Subject-Sequence": "1",
    "Nats-Expected-Last-Subject-Sequence-Subject": "admit.lease.epoch.queue-cq",
}


def manifests(**spec: Any) -> dict[str, dict[str, Any]]:
    """A flavor, a check, a ClusterQueue (``spec``: more of it) and its LocalQueue, by key."""
    quota = {"name": "default", "resources": [{"name": "cpu", "nominalQuota": "9"}]}
    group = {"coveredResources": ["cpu"], "flavors": [quota]}
    queue = {"namespaceSelector": {}, "resourceGroups": [group], **spec}
    made: list[tuple[str, dict[str, str], dict[str, Any] | None]] = [
        ("ResourceFlavor", {"name": "default"}, {"nodeLabels": {"pool": "a"}}),
        ("AdmissionCheck", {"name": "c"}, {"controllerName": "ctl"}),
        ("ClusterQueue", {"name": "cq"}, queue),
        ("LocalQueue", {"name": "lq", "namespace": "ns"}, {"clusterQueue": "cq"}),
        ("WorkloadPriorityClass", {"name": "high"}, None),
    ]
    manifests = {}
    for kind, metadata, body in made:
        whole: dict[str, Any] = {"apiVersion": VERSION, "kind": kind, "metadata": metadata}
        whole |= {"value": 7} if body is None else {"spec": body}
        manifests[key_of(accept(whole).manifest)] = whole
    return manifests


CHECKED = {"admissionChecksStrategy": {"admissionChecks": [{"name": "c"}]}}
FAMILIES = {"concurrentAdmission": {"migrationConstraints": {"mode": "UpgradeOnly"}}}


class Leader:
    """A workload-controller's core, a log that numbers messages, and the values by their keys."""

    def __init__(self, **spec: Any) -> None:
        self.controller = Controller(b"secret")
        self.sequence = self.revision = 0
        self.values: dict[str, bytes] = {}
        for key, manifest in manifests(**spec).items():
            self.revision += 1
            value = encode(accept(manifest).manifest)
            self.controller.load(key, value, self.revision, {})
            self.values[key] = value
        assert not self.controller.unreadable
        self.controller.settle_load(0)

    def apply_fact(self, fact: Fact) -> list[Message]:
        """Applies one fact; returns the messages that follow from the fact."""
        headers = FENCE if isinstance(fact, facts.Decision) else {}
        return self.apply_message(subject_of(fact), encode_fact(fact), headers)

    def apply_message(
        self, subject: str, data: bytes, headers: dict[str, str] | None = None
    ) -> list[Message]:
        self.sequence += 1
        rest = [log_message(self.sequence, subject, data, headers or {}, NOON)]
        messages: list[Message] = []
        while rest:
            commit = fold(self.controller, rest, NOON)
            for put in commit.puts:
                self.revision += 1
                messages += self.controller.committed(put, self.revision, NOON)
                if put.value is not None:
                    self.values[put.key] = put.value
            messages += commit.notes
            rest = commit.rest
        return messages

    @property
    def at(self) -> int:
        return self.controller.workloads.get(KEY).revision

    def assigned(self) -> facts.Assigned:
        return facts.Assigned(
            **ME, revision=self.at, seen=self.revision, domain="queue-cq", admission=an_admission()
        )


def stages() -> dict[str, tuple[str, bytes]]:
    """Workloads in different phases: for a name of the phase the key and the stored value."""
    values: dict[str, tuple[str, bytes]] = {}

    def note(name: str, leader: Leader) -> None:
        values[name] = KEY, leader.values[KEY]

    def submitted(**spec: Any) -> Leader:
        leader = Leader(**spec)
        manifest = msgspec.Raw(msgspec.json.encode(a_manifest()))
        leader.apply_fact(facts.Submitted(**ME, workload=manifest))
        return leader

    plain = submitted()
    note("pending", plain)
    plain.apply_fact(plain.assigned())
    note("admitted", plain)
    plain.apply_fact(facts.PodsReady(**ME, revision=plain.at))
    note("running", plain)
    plain.apply_fact(facts.Deactivated(**ME))
    note("evicted", plain)
    checked = submitted(**CHECKED)
    checked.apply_fact(checked.assigned())
    note("waits for a check", checked)
    cycle = checked.controller.workloads.get(KEY).workload
    assert cycle is not None
    checked.apply_fact(
        facts.CheckReported(
            **ME,
            controller="ctl",
            check="c",
            cycle=cycle.status.admission_cycle,
            state="Retry",
            requeue_after_seconds=60,
            message="later",
        )
    )
    note("told to retry", checked)
    note("a parent", submitted(**FAMILIES))
    return values


def afterwards(leader: Leader) -> None:
    """Applies every kind of fact to the workload at `KEY`, whatever its stored value is."""
    leader.controller.unreadable.clear()
    for fact in (
        facts.Reprioritized(**ME, priority=3),
        leader.assigned(),
        facts.Confirmed(**ME, revision=leader.at, seen=leader.revision, domain="queue-cq"),
        facts.CheckReported(**ME, controller="ctl", check="c", cycle=1, state="Ready"),
        facts.TimerDue(**ME, kind="requeue", at=NOON + timedelta(seconds=9)),
        facts.TimerDue(**ME, kind="checks", at=NOON),
        facts.Started(**ME, revision=leader.at),
        facts.Held(**ME),
        facts.Released(**ME),
        facts.Deactivated(**ME),
        facts.Stopped(**ME, revision=leader.at),
        facts.Activated(**ME),
        facts.Finished(**ME, revision=leader.at, succeeded=True),
        facts.Deleted(**ME),
    ):
        leader.apply_fact(fact)
    for kind, name, prefix in (
        ("ClusterQueue", "cq", "clusterqueue._"),
        ("AdmissionCheck", "c", "admissioncheck._"),
        ("WorkloadPriorityClass", "high", "workloadpriorityclass._"),
    ):
        applied = ObjectApplied(kind=kind, name=name, revision=leader.revision)
        leader.apply_message(f"admit.object.applied.{prefix}.{name}", encode_fact(applied))


VALUES_OF_A_STORY = [
    *((f"$KV.admittance.{key}", value) for key, value in stages().values()),
    *((f"$KV.admittance.{key}", value) for key, value in Leader(**CHECKED).values.items()),
]
"""Subject and payload of every stored value, as a corpus for mutations."""
