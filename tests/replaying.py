"""Plays differential scenarios through the scheduler's core, with a small stand-in for the rest.

The stand-in does what follows from a decision or a step at once and completely, as the
scenarios were recorded: it is no model of the workload-controller.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec

from admittance.api.manifest import decode_object
from admittance.api.meta import Condition, ObjectMeta
from admittance.api.quantity import amount
from admittance.api.workload import CheckState
from admittance.events.facts import Assigned, Preempted
from admittance.events.requests import PendingQuery
from admittance.scheduler.config import Config, FairSharing
from admittance.scheduler.decide import Scheduler
from admittance.workload.stored import StoredWorkload, WorkloadStatus

SCENARIOS = Path(__file__).parents[2] / "shared" / "differential" / "scenarios"
IDLE = 10
NEVER = 1_000_000


def load(path: Path) -> dict[str, Any]:
    """One scenario."""
    scenario: dict[str, Any] = json.loads(gzip.decompress(path.read_bytes()))
    return scenario


class Replay:
    """One scenario being played."""

    def __init__(self, scenario: Mapping[str, Any]) -> None:
        fair = FairSharing() if scenario["fairSharing"] else None
        config = Config(
            idle_cycles=NEVER, preemption=True, partial_admission=True, fair_sharing=fair
        )
        self.core = Scheduler(config)
        self.now = datetime(2026, 1, 1, tzinfo=UTC)
        self.revision = 0
        self.stored: dict[str, StoredWorkload] = {}
        self.inactive: set[str] = set()
        self.evictions: dict[str, list[str]] = {}
        self.cycles = 0
        for obj in scenario["objects"]:
            self.put_object(obj)
        for domain in self.core.domains():
            self.core.own(domain)

    def put_object(self, obj: Mapping[str, Any]) -> None:
        manifest = decode_object(obj, namespace="default").manifest
        self.revision += 1
        meta = manifest.metadata
        namespaced = manifest.kind == "LocalQueue"
        self.core.apply_object(
            manifest.kind, meta.namespace if namespaced else "", meta.name, manifest, self.revision
        )

    def put(self, name: str, stored: StoredWorkload | None) -> None:
        self.revision += 1
        if stored is None:
            self.stored.pop(name, None)
        else:
            self.stored[name] = stored
        self.core.apply_workload("default", name, stored, self.revision, now=self.now)

    # Conditions. ----------------------------------------------------------------------------

    def is_true(self, name: str, kind: str) -> bool:
        stored = self.stored.get(name)
        return stored is not None and any(
            one.type == kind and one.status == "True" for one in stored.status.conditions
        )

    def change(self, name: str, conditions: Mapping[str, tuple[bool, str]], **status: Any) -> None:
        stored = self.stored[name]
        kept = [one for one in stored.status.conditions if one.type not in conditions]
        new = [
            Condition(
                type=kind,
                status="True" if on else "False",
                reason=reason,
                last_transition_time=self.now,
            )
            for kind, (on, reason) in conditions.items()
        ]
        replaced = msgspec.structs.replace(stored.status, conditions=(*kept, *new), **status)
        self.put(name, msgspec.structs.replace(stored, status=replaced))

    # Steps. ---------------------------------------------------------------------------------

    def step(self, step: Mapping[str, Any]) -> None:
        for what, value in step.items():
            match what:
                case "create":
                    for workload in value:
                        self.create(workload)
                case "finish":
                    for name in value:
                        if self.is_true(name, "Admitted"):
                            self.change(name, {"Finished": (True, "Succeeded")})
                case "delete":
                    for name in value:
                        if name in self.stored:
                            self.put(name, None)
                            self.inactive.discard(name)
                case "update":
                    self.update(value)
                case "check":
                    self.check(value["workload"], value["name"], value["state"])
                case "settle":
                    self.settle()

    def create(self, workload: Mapping[str, Any]) -> None:
        meta = workload["metadata"]
        created = datetime.fromisoformat(meta["creationTimestamp"].replace("Z", "+00:00"))
        self.now = max(self.now, created)
        self.put(
            meta["name"],
            StoredWorkload(
                api_version="kueue.x-k8s.io/v1beta2",
                kind="Workload",
                metadata=msgspec.convert(meta, ObjectMeta),
                spec=msgspec.Raw(json.dumps(workload["spec"]).encode()),
            ),
        )

    def update(self, obj: Mapping[str, Any]) -> None:
        queue = obj["metadata"]["name"]
        policy = obj["spec"].get("stopPolicy", "None")
        self.put_object(obj)
        for domain in self.core.domains():
            self.core.own(domain)
        for name in list(self.stored):
            admission = self.stored[name].status.admission
            if policy == "None":
                requeued = [
                    one for one in self.stored[name].status.conditions if one.type == "Requeued"
                ]
                if requeued and requeued[0].reason == "ClusterQueueStopped":
                    self.change(name, {"Requeued": (True, "ClusterQueueRestarted")})
            elif admission is not None and admission.cluster_queue == queue:
                if self.is_true(name, "Finished"):
                    continue
                if self.is_true(name, "Admitted") and policy == "HoldAndDrain":
                    self.evict(name, "ClusterQueueStopped", requeued=False)
                elif not self.is_true(name, "Admitted"):
                    self.change(name, {"QuotaReserved": (False, "Suspended")}, admission=None)

    def check(self, name: str, check: str, state: str) -> None:
        stored = self.stored.get(name)
        if stored is None or not self.is_true(name, "QuotaReserved"):
            return
        rows = stored.status.admission_checks
        if self.is_true(name, "Finished") or all(row.name != check for row in rows):
            return
        if state == "Ready":
            rows = tuple(
                msgspec.structs.replace(row, state="Ready") if row.name == check else row
                for row in rows
            )
            ready = all(row.state == "Ready" for row in rows)
            more = {"Admitted": (True, "Admitted")} if ready else {}
            self.change(name, more, admission_checks=rows)
        elif state == "Retry":
            self.evict(name, "AdmissionCheck")
        else:
            self.evict(name, "DeactivatedDueToAdmissionCheck", active=False)

    def evict(
        self,
        name: str,
        reason: str,
        *,
        requeued: bool = True,
        active: bool = True,
        told: str = "",
    ) -> None:
        self.evictions.setdefault(name, []).append(told or reason)
        stored = self.stored[name]
        if not active:
            spec = json.loads(bytes(stored.spec))
            spec["active"] = False
            self.inactive.add(name)
            stored = msgspec.structs.replace(stored, spec=msgspec.Raw(json.dumps(spec).encode()))
            self.stored[name] = stored
        self.change(
            name,
            {
                "QuotaReserved": (False, "Pending"),
                "Admitted": (False, "NoReservation"),
                "Evicted": (True, reason),
                "Requeued": (requeued, reason),
            },
            admission=None,
            admission_checks=tuple(
                CheckState(name=row.name) for row in stored.status.admission_checks
            ),
        )

    # Settling. ------------------------------------------------------------------------------

    def settle(self) -> None:
        idle = 0
        for _ in range(500):
            if not self.core.has_work() or idle >= IDLE:
                return
            before = self.picture()
            self.now += timedelta(seconds=1)
            decided = self.core.cycle(now=self.now)
            for one in decided:
                if isinstance(one, Preempted):
                    self.evict(one.name, "Preempted", told=one.reason)
                else:
                    self.reserve(one)
            idle = idle + 1 if not decided and self.picture() == before else 0

    def picture(self) -> frozenset[tuple[str, bool]]:
        rows = self.core.pending(PendingQuery(limit=NEVER)).rows
        return frozenset((row.name, row.parked) for row in rows if row.position)

    def reserve(self, one: Assigned) -> None:
        checks = self.core.catalog.required_checks(one.admission.cluster_queue, one.admission)
        rows = tuple(CheckState(name=name) for name in sorted(checks))
        conditions = {
            "QuotaReserved": (True, "QuotaReserved"),
            "Evicted": (False, "QuotaReserved"),
            "Requeued": (True, "QuotaReserved"),
            "Admitted": (not rows, "Admitted"),
        }
        self.change(one.name, conditions, admission=one.admission, admission_checks=rows)

    # The answer. ----------------------------------------------------------------------------

    def outcome(self, step: int) -> dict[str, Any]:
        """What ``expected`` has for a settle step; evictions start anew."""
        usage: dict[str, dict[str, dict[str, int]]] = {}
        workloads: dict[str, Any] = {}
        for name, stored in self.stored.items():
            workloads[name] = self._workload(name, stored.status, usage)
            if self.evictions.get(name):
                workloads[name]["evictions"] = self.evictions.pop(name)
        return {"step": step, "workloads": workloads, "usage": usage}

    def _workload(self, name: str, status: WorkloadStatus, usage: Any) -> dict[str, Any]:
        if self.is_true(name, "Finished"):
            return {"state": "Finished"}
        if name in self.inactive:
            return {"state": "Inactive"}
        admission = status.admission
        if admission is None:
            return {"state": "Pending"}
        of_queue = usage.setdefault(admission.cluster_queue, {})
        for ps in admission.pod_set_assignments:
            for resource, flavor in ps.flavors.items():
                much = amount(resource, ps.resource_usage[resource])
                of_flavor = of_queue.setdefault(flavor, {})
                of_flavor[resource] = of_flavor.get(resource, 0) + much
        return {
            "state": "Admitted" if self.is_true(name, "Admitted") else "QuotaReserved",
            "clusterQueue": admission.cluster_queue,
            "podSets": [
                {"name": ps.name, "count": ps.count, "flavors": dict(ps.flavors)}
                for ps in admission.pod_set_assignments
            ],
        }


def without_zeros(usage: Mapping[str, Any]) -> dict[tuple[str, str, str], int]:
    """Usage by queue, flavor and resource, as far as there is any."""
    return {
        (queue, flavor, resource): much
        for queue, flavors in usage.items()
        for flavor, resources in flavors.items()
        for resource, much in resources.items()
        if much
    }


def differences(scenario: Mapping[str, Any]) -> list[str]:
    """Plays the scenario; what comes out differently, in words. Empty: all as it should be."""
    replay = Replay(scenario)
    expected = iter(scenario["expected"])
    found: list[str] = []
    for index, step in enumerate(scenario["steps"]):
        replay.step(step)
        if "settle" not in step:
            continue
        want = next(expected)
        got = replay.outcome(index)
        for name in sorted({*want["workloads"], *got["workloads"]}):
            left, right = want["workloads"].get(name), got["workloads"].get(name)
            if left != right:
                found.append(f"step {index}, {name}: expected {left}, got {right}")
        if without_zeros(want["usage"]) != without_zeros(got["usage"]):
            found.append(f"step {index}: usage {want['usage']} differs from {got['usage']}")
        if found:
            break
    return found
