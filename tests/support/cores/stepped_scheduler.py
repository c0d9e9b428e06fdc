"""The scheduler's core for tests: queues and workloads in one line each, and its decisions."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

import msgspec

from admittance.api.meta import ObjectMeta
from admittance.events.facts import Assigned, Preempted, Refused
from admittance.events.requests.explanation import ExplainReply
from admittance.events.requests.queues import PendingQuery
from admittance.events.shapes import Admission
from admittance.scheduling.scheduler import Scheduler
from admittance.scheduling.state.config import Config
from admittance.workload.bucket_reader import names_of
from admittance.workload.stored import StoredWorkload, WorkloadStatus
from support.builders import API, NOON, a_condition, resource_groups
from support.cores.configured_system import ConfiguredSystem


def quota(nominal: str, borrow: str | None = None, lend: str | None = None) -> dict[str, Any]:
    """Quota of one resource, for `groups`."""
    limits = {"nominalQuota": nominal, "borrowingLimit": borrow, "lendingLimit": lend}
    return {key: value for key, value in limits.items() if value is not None}


def groups(**flavors: Mapping[str, Any] | str) -> list[dict[str, Any]]:
    """One resource group: flavor to its cpu (a quota, or a nominal amount), in order."""
    return resource_groups(flavors)


class SteppedScheduler(ConfiguredSystem):
    """A system in memory with workloads written by hand: decisions of the scheduler are stored
    by `cycle` at once, without the workload-controller.

    ``stored``: the workloads by name. ``decided`` and ``preempted``: of the last cycle;
    ``all_preempted``: the preemptions so far; ``waiting``: the refusals so far. ``admits``: a
    workload with quota is admitted at once; else it stays reserved.
    """

    def __init__(self, config: Config | None = None) -> None:
        super().__init__(NOON, config)
        self.stored: dict[str, StoredWorkload] = {}
        self.decided: list[Assigned] = []
        self.preempted: list[Preempted] = []
        self.all_preempted: list[Preempted] = []
        self.waiting: list[Refused] = []
        self.admits = True
        self.flavor("default")

    # Configuration. -------------------------------------------------------------------------

    @property
    def core(self) -> Scheduler:
        """The scheduler's core."""
        return self.scheduler

    @core.setter
    def core(self, core: Scheduler) -> None:
        self.scheduler = core

    def flavor(self, name: str, **spec: Any) -> None:
        """Applies a ResourceFlavor."""
        self.put("ResourceFlavor", name, spec)

    # Workloads. -----------------------------------------------------------------------------

    def submit(
        self,
        name: str,
        queue: str,
        cpu: str = "1",
        *,
        priority: int = 0,
        age: float = 0,
        pods: Sequence[Mapping[str, Any]] | None = None,
        namespace: str = "ns",
        pod: Mapping[str, Any] | None = None,
        spec: Mapping[str, Any] | None = None,
        user: str = "",
        **meta: Any,
    ) -> None:
        """Submits a workload of one pod, or of these pod sets; a larger ``age`` means an older
        workload. ``pod``: more for the spec of its pods; ``spec``: for its own."""
        if pods is None:
            pods = [{"requests": {"cpu": cpu}}]
        whole = {
            "queueName": queue,
            "priority": priority,
            "podSets": [
                {
                    "name": pod_set.get("name", f"set-{n}" if n else "main"),
                    "count": pod_set.get("count", 1),
                    "template": {
                        "spec": {
                            "containers": [{"resources": {"requests": pod_set["requests"]}}],
                            **(pod or {}),
                        }
                    },
                }
                for n, pod_set in enumerate(pods)
            ],
            **(spec or {}),
        }
        meta.setdefault("uid", f"uid-{name}")
        self.write(
            namespace,
            name,
            StoredWorkload(
                api_version=API,
                kind="Workload",
                metadata=ObjectMeta(
                    name=name,
                    namespace=namespace,
                    creation_timestamp=NOON - timedelta(seconds=age),
                    **meta,
                ),
                spec=msgspec.Raw(json.dumps(whole).encode()),
                status=WorkloadStatus(submitted_by=user),
            ),
        )

    def saw(self, key: str, before: StoredWorkload | None, after: StoredWorkload | None) -> None:
        _, name = names_of(key)
        if after is None:
            self.stored.pop(name, None)
        else:
            self.stored[name] = after

    def restore(self, name: str, stored: StoredWorkload) -> None:
        """Stores a workload as another scheduler has seen it."""
        self.write(stored.metadata.namespace, name, stored)

    def change(self, workload: str, **status: Any) -> None:
        """Writes these fields of the status; conditions as type to (is true, reason)."""
        stored = self.stored[workload]
        new: Mapping[str, tuple[bool, str]] = status.pop("conditions", {})
        kept = tuple(
            condition for condition in stored.status.conditions if condition.type not in new
        )
        made = tuple(a_condition(kind, on, reason, self.now) for kind, (on, reason) in new.items())
        changed = msgspec.structs.replace(stored.status, conditions=(*kept, *made), **status)
        self.restore(workload, msgspec.structs.replace(stored, status=changed))

    def respec(self, workload: str, **changes: Any) -> None:
        """Writes these fields of the spec."""
        stored = self.stored[workload]
        spec = {**json.loads(bytes(stored.spec)), **changes}
        raw = msgspec.Raw(json.dumps(spec).encode())
        self.restore(workload, msgspec.structs.replace(stored, spec=raw))

    def finish(self, workload: str) -> None:
        """Reports that the job has ended."""
        self.change(workload, conditions={"Finished": (True, "Succeeded")})

    def gone(self, workload: str) -> None:
        """Deletes the workload."""
        self.write(self.stored[workload].metadata.namespace, workload, None)

    def evict(self, workload: str, reason: str, *, requeued: bool = True) -> None:
        """Takes the quota from the workload."""
        self.change(
            workload,
            conditions={
                "QuotaReserved": (False, "Pending"),
                "Evicted": (True, reason),
                "Requeued": (requeued, reason),
            },
            admission=None,
        )

    # Decisions. -----------------------------------------------------------------------------

    def cycle(self, *, confirm: bool = True) -> list[str]:
        """Runs a cycle and returns the workloads that got quota. With ``confirm``, the decisions
        are stored and the victims stop at once."""
        decisions = self.core.cycle(now=self.now)
        self.decided = [decision for decision in decisions if isinstance(decision, Assigned)]
        self.preempted = [decision for decision in decisions if isinstance(decision, Preempted)]
        self.all_preempted += self.preempted
        for decision in decisions:
            if isinstance(decision, Refused):
                self.waiting.append(decision)
                self.change(
                    decision.name, conditions={"QuotaReserved": (False, decision.refusal.reason)}
                )
        if confirm:
            for assigned in self.decided:
                self.confirm(assigned)
            for other in self.preempted:
                self.evict(other.name, "Preempted")
        return [decision.name for decision in self.decided]

    def confirm(self, decision: Assigned) -> None:
        """The decision is applied: first to the workloads that hand over their quota."""
        for giver in decision.preempts:
            self.evict(giver.name, "Preempted")
        conditions = {"QuotaReserved": (True, "QuotaReserved")}
        if self.admits:
            conditions["Admitted"] = (True, "Admitted")
        self.change(decision.name, conditions=conditions, admission=decision.admission)

    def settle(self) -> list[str]:
        """Runs cycles while there is work, and returns the names of the workloads that got quota,
        in order."""
        names: list[str] = []
        for _ in range(1_000):
            if not self.core.has_work():
                return names
            names += self.cycle()
        raise AssertionError("the scheduler does not come to rest")

    def admission(self, workload: str) -> Admission | None:
        """The stored admission of the workload."""
        return self.stored[workload].status.admission

    def flavors(self, workload: str) -> list[dict[str, str]]:
        """The flavor of each resource, one mapping per pod set."""
        admission = self.admission(workload)
        return [dict(ps.flavors) for ps in admission.pod_set_assignments] if admission else []

    def parked(self) -> list[str]:
        """The names of the parked workloads."""
        rows = self.core.pending(PendingQuery()).rows
        return sorted(row.name for row in rows if row.position and row.parked)

    def active(self) -> list[str]:
        """The names of the competing workloads."""
        rows = self.core.pending(PendingQuery()).rows
        return sorted(row.name for row in rows if row.position and not row.parked)

    def why(self, workload: str) -> ExplainReply:
        """Explains why the workload waits."""
        return self.core.explain(self.stored[workload].metadata.namespace, workload, now=self.now)


__all__ = ["NOON", "SteppedScheduler", "WorkloadStatus", "groups", "quota"]
