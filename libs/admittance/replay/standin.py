"""The scheduler's core with a small stand-in for the rest of the system.

The stand-in applies the effects of a decision or a step at once, as the scenarios were recorded: a
victim stops immediately, and no message is lost. It does not model the workload-controller: the
differences to Kueue in docs/spec/lifecycle.md#1.5 are left out.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from admittance.api.meta import Condition, ObjectMeta
from admittance.api.reading.manifest import decode_object
from admittance.api.workload import CheckState
from admittance.events.facts import Assigned
from admittance.scheduling.config import Config, FairSharing
from admittance.scheduling.scheduler import Scheduler
from admittance.workload.stored import StoredWorkload

NEVER: Final = 1_000_000
_START: Final = datetime(2026, 1, 1, tzinfo=UTC)


def config_of_kueue(*, fair_sharing: bool) -> Config:
    """Kueue's defaults, with fair sharing if it is on."""
    return Config(
        idle_cycles=NEVER,
        preemption=True,
        partial_admission=True,
        fair_sharing=FairSharing() if fair_sharing else None,
        as_kueue=True,
    )


class StandIn:
    """Stored workloads, and the core that gets every change of them.

    ``evictions``: the reasons of evictions per workload since they were last cleared; ``trace``:
    the events since then, in the format of ``expected``; ``cycle``: the number of this cycle.
    """

    def __init__(self, config: Config) -> None:
        self.core = Scheduler(config)
        self.now = _START
        self.stored: dict[str, StoredWorkload] = {}
        self.inactive: set[str] = set()
        self.evictions: dict[str, list[str]] = {}
        self.trace: list[dict[str, Any]] = []
        self.cycle = 0
        self._revision = 0

    # The bucket. ----------------------------------------------------------------------------

    def put_object(self, obj: Mapping[str, Any]) -> None:
        """Writes the object. Raises ManifestError."""
        manifest = decode_object(obj, namespace="default").manifest
        self._revision += 1
        meta = manifest.metadata
        namespace = meta.namespace if manifest.kind == "LocalQueue" else ""
        self.core.apply_object(manifest.kind, namespace, meta.name, manifest, self._revision)

    def own_all(self) -> None:
        """Takes the leadership of every domain."""
        for domain in self.core.domains():
            self.core.own(domain)

    def put(self, name: str, stored: StoredWorkload | None) -> None:
        """Writes the workload; None: deletes it."""
        self._revision += 1
        if stored is None:
            self.stored.pop(name, None)
            self.inactive.discard(name)
        else:
            self.stored[name] = stored
        self.core.apply_workload("default", name, stored, self._revision, now=self.now)

    def create(self, workload: Mapping[str, Any]) -> None:
        """Creates a workload; moves the clock to its creation time if that is later."""
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
        """The ClusterQueue of the workload's LocalQueue; "": none."""
        queue = json.loads(bytes(self.stored[name].spec)).get("queueName", "")
        local = self.core.catalog.local_queues.get(("default", queue))
        return local.spec.cluster_queue if local is not None else ""

    def is_true(self, name: str, kind: str) -> bool:
        """Whether the workload has the condition ``kind`` with status True."""
        stored = self.stored.get(name)
        return stored is not None and any(
            one.type == kind and one.status == "True" for one in stored.status.conditions
        )

    def change(self, name: str, conditions: Mapping[str, tuple[bool, str]], **status: Any) -> None:
        """Sets conditions (type to status and reason) and fields of the status."""
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

    # What follows. --------------------------------------------------------------------------

    def evict(
        self,
        name: str,
        reason: str,
        *,
        requeued: bool = True,
        active: bool = True,
        told: str = "",
        by: str = "",
    ) -> None:
        """Takes the workload's quota at once. ``told``: the reason in the expected result."""
        self.evictions.setdefault(name, []).append(told or reason)
        self._note("evict", name, reason=told or reason, **({"by": by} if by else {}))
        stored = self.stored[name]
        if not active:
            spec = {**json.loads(bytes(stored.spec)), "active": False}
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

    def reserve(self, one: Assigned) -> None:
        """Applies the decision: reserves quota, and admits a workload without checks."""
        checks = self.core.catalog.required_checks(one.admission.cluster_queue, one.admission)
        rows = tuple(CheckState(name=name) for name in sorted(checks))
        self._note("reserve", one.name)
        if not rows:
            self._note("admit", one.name)
        self.change(
            one.name,
            {
                "QuotaReserved": (True, "QuotaReserved"),
                "Evicted": (False, "QuotaReserved"),
                "Requeued": (True, "QuotaReserved"),
                "Admitted": (not rows, "Admitted"),
            },
            admission=one.admission,
            admission_checks=rows,
        )

    def admit(self, name: str) -> None:
        """Admits the workload: every check is ready."""
        self._note("admit", name)
        self.change(name, {"Admitted": (True, "Admitted")})

    def _note(self, event: str, name: str, **more: str) -> None:
        self.trace.append({"cycle": self.cycle, "event": event, "workload": name, **more})
