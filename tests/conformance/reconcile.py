"""One reconcile call of Kueue's workload controller as a fact, and the results of both systems.

There a controller looks at the object and takes one step; here a fact moves it all the way. So the
object is wound back to before what Kueue is about to notice, and that is then stated.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

import msgspec
from msgspec.structs import replace

from admittance.api.checks import AdmissionCheck
from admittance.api.fields.units import seconds
from admittance.api.reading.manifest import decode_object
from admittance.api.workload import CheckState
from admittance.control.controller import Controller
from admittance.control.manifests.objects import key_of
from admittance.events import facts
from admittance.events.base import Fact
from admittance.workload import stored
from admittance.workload.change import with_spec, with_status
from admittance.workload.conditions import Type, find, is_true, without_condition
from admittance.workload.due_times import TimerKind, due_times
from admittance.workload.limits import Limits, PodsReadyLimits
from admittance.workload.moves.requests import Arrived
from admittance.workload.stored import StoredWorkload, head
from admittance.workload.transition_context import QueueChanged, TransitionContext
from admittance.workload.transitions import transition
from conformance.tables import time_of

SEEN = ("QuotaReserved", "Evicted", "Requeued")


class Reconciled:
    """A case, played."""

    def __init__(self, case: Mapping[str, Any]) -> None:
        self.given, self.want = case["given"], case["want"]
        self.now = time_of(self.given.get("now"))
        self.controller = Controller(b"secret", _limits(self.given.get("reconcilerOpts") or {}))
        self.workload: StoredWorkload | None = self._objects()
        for fact, at in self._facts():
            self.now = max(self.now, at)
            occasion = TransitionContext(self.now, 1, self.now, self.controller.queues)
            self.workload = transition(self.workload, fact, occasion).workload

    # What there is. -------------------------------------------------------------------------

    def _objects(self) -> StoredWorkload:
        workload = stored.decode(msgspec.json.encode(self.given["workload"]))
        status = workload.status
        queue, local = self.given.get("cq"), self.given.get("lq")
        rows = [row.name for row in status.admission_checks]
        if queue is None and local is None and not head(workload).queue_name:
            name = status.admission.cluster_queue if status.admission else "cq"
            queue = _object("ClusterQueue", name, {"admissionChecks": rows})
            local = _object("LocalQueue", "lq", {"clusterQueue": name}, workload)
            workload = with_spec(workload, queueName="lq")
        queue = _offering(queue, workload)
        for obj, going in ((queue, "shouldDeleteCQ"), (local, "shouldDeleteLQ")):
            if obj is not None:
                self._put(obj, self.now if self.given.get(going) else None)
        named = self.controller.queues.named_checks(queue["metadata"]["name"]) if queue else ()
        for name in {*rows, *named}:
            self._put(_object("AdmissionCheck", name, {"controllerName": f"ctl-{name}"}), None)
        return workload

    def _put(self, obj: Mapping[str, Any], going: datetime | None) -> None:
        manifest = decode_object(obj).manifest
        if going is not None:
            meta = replace(manifest.metadata, deletion_timestamp=going)
            manifest = replace(manifest, metadata=meta)
        self.controller.keep_object(key_of(manifest), manifest, b"", 1)

    # What is noticed. -----------------------------------------------------------------------

    def _facts(self) -> list[tuple[Fact, datetime]]:
        workload = self.workload
        assert workload is not None
        me: dict[str, Any] = {
            "namespace": workload.metadata.namespace,
            "name": workload.metadata.name,
        }
        target = find(workload, Type.DEACTIVATION_TARGET)
        requeued, reserved = find(workload, Type.REQUEUED), find(workload, Type.QUOTA_RESERVED)
        spoken = [
            row for row in workload.status.admission_checks if row.state in ("Retry", "Rejected")
        ]
        if target is not None:
            workload = with_spec(workload, active=True)
            left = without_condition(workload.status.conditions, Type.DEACTIVATION_TARGET)
            self.workload = workload = with_status(workload, conditions=left)
        if spoken:
            return self._wound_back(workload, spoken)
        if target is None and not head(workload).active:
            self.workload = with_spec(workload, active=True)
            return [(facts.Deactivated(**me), self.now)]
        deactivated = requeued is not None and requeued.reason == "Deactivated"
        if deactivated or (reserved is not None and reserved.reason == "Deactivated"):
            self.workload = with_spec(workload, active=False)
            return [(facts.Activated(**me), self.now)]
        for kind in (TimerKind.PODS_READY, TimerKind.EXECUTION):
            at = due_times(workload, self.now, self.controller.queues).get(kind)
            if at is not None:
                when = at if kind is TimerKind.PODS_READY else self.now
                return [(facts.TimerDue(**me, kind=str(kind), at=at), when)]
        if requeued is not None and requeued.reason in ("PodsReadyTimeout", "AdmissionCheck"):
            return [(facts.TimerDue(**me, kind="requeue"), self.now)]
        if reserved is None and not workload.status.conditions:
            self.workload = None
            arrived = Arrived(
                **me,
                api_version=workload.api_version,
                metadata=workload.metadata,
                spec=workload.spec,
            )
            return [(arrived, self.now)]
        return [(QueueChanged(**me), self.now)]

    def _wound_back(
        self, workload: StoredWorkload, spoken: list[CheckState]
    ) -> list[tuple[Fact, datetime]]:
        # New rows are Pending; existing rows keep the cycle.
        states = {row.name for row in spoken}
        rows = tuple(
            CheckState(name=row.name, retry_count=row.retry_count) if row.name in states else row
            for row in workload.status.admission_checks
        )
        if find(workload, Type.QUOTA_RESERVED) is None and workload.status.admission is not None:
            reserved = stored.decode(
                b'{"apiVersion":"v","kind":"W","status":{"conditions":'
                b'[{"type":"QuotaReserved","status":"True"},{"type":"Admitted","status":"True"}]}}'
            ).status.conditions
            workload = with_status(workload, conditions=(*workload.status.conditions, *reserved))
        self.workload = with_status(workload, admission_checks=rows)
        happened: list[tuple[Fact, datetime]] = []
        for row in sorted(spoken, key=lambda row: (row.state != "Rejected", row.name)):
            fact = facts.CheckReported(
                namespace=workload.metadata.namespace,
                name=workload.metadata.name,
                controller=f"ctl-{row.name}",
                check=row.name,
                cycle=workload.status.admission_cycle,
                state=row.state,
                message=row.message,
                requeue_after_seconds=row.requeue_after_seconds,
            )
            happened.append((fact, row.last_transition_time or self.now))
        return sorted(happened, key=lambda pair: pair[1])

    # What came of it. -----------------------------------------------------------------------

    def ours(self) -> dict[str, Any]:
        """The same fields of our workload as `theirs` has of Kueue's."""
        assert self.workload is not None
        return _seen(self.workload, self.theirs_keys())

    def theirs(self) -> dict[str, Any]:
        """The state that the case expects; where it shows the first step of a chain, the state
        after the last."""
        raw = dict(self.want["workload"])
        real = self.want.get("observedWorkload")
        if real is not None:
            status = {**raw.get("status", {})}
            if "requeueState" in real.get("status", {}):
                status["requeueState"] = real["status"]["requeueState"]
            raw["status"] = status
        workload = stored.decode(msgspec.json.encode(raw))
        keys = self.theirs_keys()
        seen_rows = _seen(workload, keys)
        target = find(workload, Type.DEACTIVATION_TARGET)
        if target is not None and target.status == "True":
            seen_rows["Evicted"] = ("True", f"DeactivatedDueTo{target.reason}")
        return seen_rows

    def theirs_keys(self) -> list[str]:
        raw = stored.decode(msgspec.json.encode(self.want["workload"]))
        if find(raw, Type.DEACTIVATION_TARGET) is not None:
            return ["Evicted"]
        keys = [kind for kind in SEEN if find(raw, kind) is not None]
        keys += ["rows", "count", "requeueAt"]
        evicted = is_true(raw, Type.EVICTED)
        if evicted:
            keys.append("evictions")
            keys = [key for key in keys if key != "QuotaReserved"]  # released in the same write
        if "Evicted" not in keys and is_true(raw, Type.QUOTA_RESERVED):
            keys.append("Evicted")
        return keys


def _seen(workload: StoredWorkload, keys: list[str]) -> dict[str, Any]:
    status = workload.status
    state, stats = status.requeue_state, status.scheduling_stats
    fields: dict[str, Any] = {}
    for key in keys:
        match key:
            case "rows":
                fields[key] = {
                    row.name: (row.state, row.retry_count) for row in status.admission_checks
                }
            case "count":
                fields[key] = state.count if state is not None else None
            case "requeueAt":
                fields[key] = state.requeue_at if state is not None else None
            case "evictions":
                rows = stats.evictions if stats is not None else ()
                fields[key] = {(row.reason, row.underlying_cause): row.count for row in rows}
            case _:
                condition = find(workload, key)
                fields[key] = None if condition is None else (condition.status, condition.reason)
    return fields


def _object(
    kind: str, name: str, spec: Mapping[str, Any], beside: StoredWorkload | None = None
) -> dict[str, Any]:
    metadata = {"name": name}
    if beside is not None:
        metadata["namespace"] = beside.metadata.namespace
    version = AdmissionCheck().api_version
    return {"apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec}


def _offering(queue: dict[str, Any] | None, workload: StoredWorkload) -> dict[str, Any] | None:
    """The queue, offering what the workload was assigned: the cases leave resources out."""
    admission = workload.status.admission
    if queue is None or admission is None:
        return queue
    used = {
        flavor: resource
        for place in admission.pod_set_assignments
        for resource, flavor in place.flavors.items()
    }
    spec = {**queue.get("spec", {})}
    groups = spec.get("resourceGroups") or ([{"flavors": []}] if used else [])
    flavors = {flavor["name"]: flavor for group in groups for flavor in group["flavors"]}
    for name in {*flavors, *used}:
        resource = {"name": used.get(name, "cpu"), "nominalQuota": "10"}
        flavors[name] = {"name": name, **flavors.get(name, {}), "resources": [resource]}
    if flavors:
        spec["resourceGroups"] = [{"flavors": list(flavors.values())}]
    return {**queue, "spec": spec}


def _limits(options: Mapping[str, Any]) -> Limits:
    waiting = options.get("waitForPodsReady")
    if waiting is None:
        return Limits()

    def span(key: str) -> timedelta | None:
        return timedelta(seconds=float(seconds(waiting[key]))) if key in waiting else None

    longest = span("requeuingBackoffMaxDuration") or timedelta(hours=1)
    return Limits(
        pods_ready=PodsReadyLimits(
            timeout=span("timeout") or timedelta(days=365),
            recovery=span("recoveryTimeout"),
            backoff_limit=waiting.get("requeuingBackoffLimitCount"),
            backoff_base=waiting.get("requeuingBackoffBaseSeconds", 60),
            backoff_max=int(longest.total_seconds()),
        )
    )
