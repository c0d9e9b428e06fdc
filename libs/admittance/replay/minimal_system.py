"""The scheduler's core with a minimal model of the other services, to play differential scenarios.

The model applies the effects of a decision or a step at once, because the scenarios were recorded
with victims that stop immediately, and without lost messages. The model has no workload-controller,
so the differences between Admittance and Kueue in docs/spec/lifecycle.md#1.5 do not show."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final, TypeAlias

import msgspec

from admittance.api.fields.units import amount
from admittance.api.meta import Condition, ObjectMeta
from admittance.api.workload import CheckState
from admittance.events import reasons
from admittance.events.facts import Assigned
from admittance.scheduling.state.config import CohortFairSharing, Config
from admittance.system.local_system import LocalSystem
from admittance.workload.stored import StoredWorkload, WorkloadStatus

NEVER: Final = 1_000_000
_START: Final = datetime(2026, 1, 1, tzinfo=UTC)


def config_of_kueue(*, fair_sharing: bool) -> Config:
    """Returns the scheduler's configuration that decides as Kueue does by default.
    ``fair_sharing``: with Kueue's fair sharing."""
    return Config(
        idle_cycles=NEVER,
        preemption=True,
        partial_admission=True,
        fair_sharing=CohortFairSharing() if fair_sharing else None,
        as_kueue=True,
    )


class MinimalSystem(LocalSystem):
    """A system in memory with workloads that are written by the model, not by the
    workload-controller's core.

    ``stored``: the workloads of the scenario, by name.
    ``evictions``: the reasons of the evictions of each workload; ``trace``: the events.
    ``evictions`` and ``trace`` begin after the last settle step, and have the format of
    ``Scenario.expected``. ``cycle``: the number of the present cycle in its settle step."""

    def __init__(self, config: Config) -> None:
        super().__init__(_START, config)
        self.stored: dict[str, StoredWorkload] = {}
        self.inactive: set[str] = set()
        self.evictions: dict[str, list[str]] = {}
        self.trace: list[dict[str, Any]] = []
        self.cycle = 0

    # The bucket. ----------------------------------------------------------------------------

    def put(self, name: str, stored: StoredWorkload | None) -> None:
        """Stores the workload ``name``; None: deletes the workload."""
        if stored is None:
            self.stored.pop(name, None)
            self.inactive.discard(name)
        else:
            self.stored[name] = stored
        self.write("default", name, stored)

    def create(self, workload: Mapping[str, Any]) -> None:
        """Creates a workload; moves the scenario's clock to the workload's creation time if that
        time is later than the clock."""
        meta = msgspec.convert(workload["metadata"], ObjectMeta)
        if meta.creation_timestamp is not None:
            self.now = max(self.now, meta.creation_timestamp)
        self.put(
            meta.name,
            StoredWorkload(
                api_version="kueue.x-k8s.io/v1beta2",
                kind="Workload",
                metadata=meta,
                spec=msgspec.Raw(json.dumps(workload["spec"]).encode()),
            ),
        )

    def cluster_queue_of(self, name: str) -> str:
        """Returns the ClusterQueue of the workload's LocalQueue; "": the LocalQueue does
        not exist."""
        queue = json.loads(bytes(self.stored[name].spec)).get("queueName", "")
        local = self.scheduler.catalog.local_queues.get(("default", queue))
        return local.spec.cluster_queue if local is not None else ""

    def is_true(self, name: str, kind: str) -> bool:
        """Whether the workload has the condition ``kind`` with status True."""
        stored = self.stored.get(name)
        return stored is not None and any(
            condition.type == kind and condition.status == "True"
            for condition in stored.status.conditions
        )

    def change(self, name: str, conditions: Mapping[str, tuple[bool, str]], **status: Any) -> None:
        """Sets conditions of the workload, and other fields of its status. ``conditions``: maps the
        type of a condition to its status and reason."""
        stored = self.stored[name]
        kept = [
            condition for condition in stored.status.conditions if condition.type not in conditions
        ]
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

    # Effects of decisions. ------------------------------------------------------------------

    def evict(
        self,
        name: str,
        reason: str,
        *,
        requeued: bool = True,
        active: bool = True,
        shown_reason: str = "",
        by: str = "",
    ) -> None:
        """Evicts the workload, which loses its quota at once. ``shown_reason``: the reason in the
        result of the settle step, if it differs from ``reason``, the reason in the condition
        Evicted."""
        shown = shown_reason or reason
        self.evictions.setdefault(name, []).append(shown)
        self._note("evict", name, reason=shown, **({"by": by} if by else {}))
        stored = self.stored[name]
        if not active:
            spec = {**json.loads(bytes(stored.spec)), "active": False}
            self.inactive.add(name)
            stored = msgspec.structs.replace(stored, spec=msgspec.Raw(json.dumps(spec).encode()))
            self.stored[name] = stored
        self.change(
            name,
            {
                "QuotaReserved": (False, reasons.PENDING),
                "Admitted": (False, reasons.NO_RESERVATION),
                "Evicted": (True, reason),
                "Requeued": (requeued, reason),
            },
            admission=None,
            admission_checks=tuple(
                CheckState(name=row.name) for row in stored.status.admission_checks
            ),
        )

    def reserve(self, decision: Assigned) -> None:
        """Applies a decision that assigns quota to a workload: reserves the quota, and admits the
        workload if it needs no checks."""
        checks = self.scheduler.catalog.required_checks(
            decision.admission.cluster_queue, decision.admission
        )
        rows = tuple(CheckState(name=name) for name in sorted(checks))
        self._note("reserve", decision.name)
        if not rows:
            self._note("admit", decision.name)
        self.change(
            decision.name,
            {
                "QuotaReserved": (True, reasons.QUOTA_RESERVED),
                "Evicted": (False, reasons.QUOTA_RESERVED),
                "Requeued": (True, reasons.QUOTA_RESERVED),
                "Admitted": (not rows, reasons.ADMITTED),
            },
            admission=decision.admission,
            admission_checks=rows,
        )

    def admit(self, name: str) -> None:
        """Admits a workload that has reserved quota, because every check of the workload is
        Ready."""
        self._note("admit", name)
        self.change(name, {"Admitted": (True, reasons.ADMITTED)})

    def _note(self, event: str, name: str, **more: str) -> None:
        self.trace.append({"cycle": self.cycle, "event": event, "workload": name, **more})


SettleResult: TypeAlias = dict[str, Any]
"""The result of one settle step: a map with ``step``, ``cycles``, ``workloads``, ``usage`` and
``trace``; see ``differential/README.md``."""

_Usage: TypeAlias = dict[str, dict[str, dict[str, int]]]


def settle_result(system: MinimalSystem, step: int, cycles: int) -> SettleResult:
    """Returns the result of a settle step in the format of ``Scenario.expected``; clears the
    recorded evictions and the trace."""
    usage: _Usage = {}
    workloads: dict[str, Any] = {}
    for name in sorted(system.stored):
        result = _workload(system, name, system.stored[name].status, usage)
        evictions = system.evictions.pop(name, None)
        if evictions:
            result["evictions"] = evictions
        workloads[name] = result
    system.evictions.clear()
    trace, system.trace = system.trace, []
    system.cycle = 0
    return {
        "step": step,
        "cycles": cycles,
        "workloads": workloads,
        "usage": usage,
        "trace": trace,
    }


def _workload(
    system: MinimalSystem, name: str, status: WorkloadStatus, usage: _Usage
) -> dict[str, Any]:
    if system.is_true(name, "Finished"):
        return {"state": "Finished"}
    if name in system.inactive:
        return {"state": "Inactive"}
    admission = status.admission
    if admission is None:
        return {"state": "Pending"}
    of_queue = usage.setdefault(admission.cluster_queue, {})
    for ps in admission.pod_set_assignments:
        for resource, flavor in ps.flavors.items():
            of_flavor = of_queue.setdefault(flavor, {})
            much = amount(resource, ps.resource_usage[resource])
            of_flavor[resource] = of_flavor.get(resource, 0) + much
    return {
        "state": "Admitted" if system.is_true(name, "Admitted") else "QuotaReserved",
        "clusterQueue": admission.cluster_queue,
        "podSets": [
            {"name": ps.name, "count": ps.count, "flavors": dict(ps.flavors)}
            for ps in admission.pod_set_assignments
        ],
    }


def differences(expected: Sequence[SettleResult], actual: Sequence[SettleResult]) -> Iterator[str]:
    """Yields one sentence for each difference between the expected and the found results of the
    settle steps. ``step``, ``cycles`` and ``trace`` of a result are not compared. In the ``usage``
    of a result a missing amount is equal to zero."""
    if len(expected) != len(actual):
        yield f"expected {len(expected)} settle steps, got {len(actual)}"
    for want, got in zip(expected, actual, strict=False):
        step = got["step"]
        for name in sorted({*want["workloads"], *got["workloads"]}):
            left, right = want["workloads"].get(name), got["workloads"].get(name)
            if left != right:
                yield f"step {step}, workload {name}: expected {left}, got {right}"
        left_usage, right_usage = _flat(want["usage"]), _flat(got["usage"])
        for key in sorted({*left_usage, *right_usage}):
            if left_usage.get(key, 0) != right_usage.get(key, 0):
                yield (
                    f"step {step}, usage of {'/'.join(key)}: "
                    f"expected {left_usage.get(key, 0)}, got {right_usage.get(key, 0)}"
                )


def _flat(usage: Mapping[str, Any]) -> dict[tuple[str, str, str], int]:
    return {
        (queue, flavor, resource): much
        for queue, flavors in usage.items()
        for flavor, resources in flavors.items()
        for resource, much in resources.items()
    }
