"""A scheduler to be told stories of families: parents, their variants, and what a controller would
write of them, in one step each."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

import msgspec

from admittance.api.meta import ObjectMeta, OwnerReference
from admittance.api.units import amount, render
from admittance.api.workload import FAMILY_GATE, CheckState, GatePosition, ReclaimablePod
from admittance.events.facts import Assigned, Confirmed, Planned, Preempted, Refused, Revoked
from admittance.events.shapes import Admission, PodSetAssignment
from admittance.scheduling.scheduler import Scheduler
from admittance.scheduling.state.config import Config
from admittance.scheduling.state.workload_info import Queue, WorkloadInfo
from admittance.workload.conditions import Type, is_true
from admittance.workload.stored import StoredWorkload, WorkloadStatus
from support.cores.stepped_scheduler import API, NOON, SteppedScheduler

Pods = Sequence[tuple[int, Mapping[str, str]]]
"""Per pod set how many, and what one of them asks for."""


def both(flavors: Mapping[str, str], cpu: str, *, shared: str = "cpu-only") -> list[dict[str, Any]]:
    """Two resource groups: gpu in these flavors, in order, and cpu in one that all share."""
    return [
        {
            "coveredResources": ["gpu"],
            "flavors": [
                {"name": name, "resources": [{"name": "gpu", "nominalQuota": much}]}
                for name, much in flavors.items()
            ],
        },
        {
            "coveredResources": ["cpu"],
            "flavors": [{"name": shared, "resources": [{"name": "cpu", "nominalQuota": cpu}]}],
        },
    ]


def explicit(*tags: str, shared: str = "cpu-only", mode: str = "UpgradeOnly") -> dict[str, Any]:
    """One explicit variant per gpu flavor, each with the flavor of the cpu."""
    return {
        "migrationConstraints": {"mode": mode},
        "explicitVariants": [
            {"name": tag, "allowedResourceFlavors": [tag, shared]} for tag in tags
        ],
    }


class FamilyScheduler(SteppedScheduler):
    """Variants are named ``parent.tag``. A workload with checks stays reserved until they are
    Ready (`says_ready`) and the scheduler confirms it. Without checks it is admitted at once, or
    takes over. ``stubborn``: jobs of victims stop only by `stops`. ``revoked``: workloads with a
    revoked reservation; ``confirmed``: workloads that were admitted."""

    def __init__(self, config: Config | None = None) -> None:
        self._config = config
        self._objects: dict[tuple[str, str, str], Any] = {}
        super().__init__(config)
        self.stubborn = False
        self.decisions: list[Any] = []
        self.revoked: list[str] = []
        self.confirmed: list[str] = []

    # Configuration. -------------------------------------------------------------------------

    def put(self, kind: str, name: str, spec: Any = None, namespace: str = "", **more: Any) -> None:
        super().put(kind, name, spec, namespace, **more)
        self._objects[kind, namespace, name] = spec, more

    def delete(self, kind: str, name: str, namespace: str = "") -> None:
        super().delete(kind, name, namespace)
        self._objects.pop((kind, namespace, name), None)

    def restart(self, order: Sequence[str] | None = None) -> None:
        """A new scheduler continues from the stored values, read in that order."""
        self.core = Scheduler(self._config)
        for (kind, namespace, name), (spec, more) in list(self._objects.items()):
            super().put(kind, name, spec, namespace, **more)
        for name in order if order is not None else list(self.stored):
            self._write("ns", name, self.stored[name])

    # Workloads. -----------------------------------------------------------------------------

    def family(
        self,
        name: str,
        queue: str,
        tags: Mapping[str, Sequence[str]],
        pods: Pods,
        *,
        priority: int = 0,
        age: float = 0,
        is_open: bool = True,
    ) -> None:
        """A parent and its variants: tag to flavors, the best first. ``is_open``: they may
        preempt."""
        self._made(name, queue, pods, priority, age, {"role": "parent"}, ())
        owner = OwnerReference(api_version=API, kind="Workload", name=name, uid=f"uid-{name}")
        for place, (tag, flavors) in enumerate(tags.items()):
            spec = {
                "role": "variant",
                "variant": tag,
                "siblingIndex": place,
                "admissionConstraints": {"allowedResourceFlavors": list(flavors)},
                "preemptionGates": [{"name": FAMILY_GATE}],
            }
            self._made(f"{name}.{tag}", queue, pods, priority, age, spec, (owner,))
            if is_open:
                self.open_gate(f"{name}.{tag}")

    def job(
        self, name: str, queue: str, pods: Pods, *, priority: int = 0, age: float = 0, **spec: Any
    ) -> None:
        """A regular workload."""
        self._made(name, queue, pods, priority, age, spec, ())

    def _made(
        self,
        name: str,
        queue: str,
        pods: Pods,
        priority: int,
        age: float,
        spec: Mapping[str, Any],
        owners: tuple[OwnerReference, ...],
    ) -> None:
        sets = [
            {
                "name": f"set-{number}",
                "count": count,
                "template": {"spec": {"containers": [{"resources": {"requests": dict(asked)}}]}},
            }
            for number, (count, asked) in enumerate(pods)
        ]
        value = {"queueName": queue, "priority": priority, "podSets": sets, **spec}
        meta = ObjectMeta(
            name=name,
            namespace="ns",
            uid=f"uid-{name}",
            creation_timestamp=NOON - timedelta(seconds=age),
            owner_references=owners,
        )
        made = StoredWorkload(
            api_version=API,
            kind="Workload",
            metadata=meta,
            spec=msgspec.Raw(json.dumps(value).encode()),
        )
        self._write("ns", name, made)

    def open_gate(self, variant: str) -> None:
        """It may preempt."""
        self.change(variant, preemption_gates=(GatePosition(name=FAMILY_GATE, position="Open"),))

    # What a controller writes. --------------------------------------------------------------

    def parent_of(self, name: str) -> str:
        """The parent's name; "": it is a regular workload, or a parent."""
        owners = self.stored[name].metadata.owner_references
        return owners[0].name if owners else ""

    def reserve(self, name: str, queue: str, *flavors: Mapping[str, str]) -> None:
        """It holds quota, of these flavors per pod set."""
        self.change(
            name,
            conditions={"QuotaReserved": (True, "QuotaReserved")},
            admission=self.as_admission(name, queue, *flavors),
        )

    def as_admission(self, name: str, queue: str, *flavors: Mapping[str, str]) -> Admission:
        """What would be written for it."""
        spec = json.loads(bytes(self.stored[name].spec))
        rows = []
        for at, one in enumerate(spec["podSets"]):
            asked = one["template"]["spec"]["containers"][0]["resources"]["requests"]
            usage = {
                resource: render(resource, one["count"] * amount(resource, much))
                for resource, much in asked.items()
            }
            rows.append(
                PodSetAssignment(
                    name=one["name"],
                    flavors=dict(flavors[min(at, len(flavors) - 1)]),
                    resource_usage=usage,
                    count=one["count"],
                )
            )
        return Admission(cluster_queue=queue, pod_set_assignments=tuple(rows))

    def admit(self, name: str) -> None:
        """It is admitted, and its parent with it."""
        parent = self.parent_of(name)
        self.change(name, conditions={"Admitted": (True, "Admitted")})
        if parent:
            first = self.stored[parent].status.first_admitted_at or self.now
            self.change(
                parent,
                conditions={
                    "QuotaReserved": (True, "QuotaReserved"),
                    "Admitted": (True, "Admitted"),
                    "Evicted": (False, "QuotaReserved"),
                },
                admission=self.admission(name),
                admitted_variant=name,
                first_admitted_at=first,
                migrating_to="",
            )

    def begin_swap(self, better: str, worse: str, promised: Admission | None) -> None:
        """The worse one's job is being stopped, so that the better one takes over."""
        self.change(worse, conditions={"Evicted": (True, "FlavorMigration")})
        parent = self.parent_of(better)
        if promised is not None:
            self.change(
                better,
                conditions={"QuotaReserved": (False, "WaitingForPreemptedWorkloads")},
                promised=promised,
            )
        self.change(parent, conditions={"Evicted": (True, "VariantEvicted")}, migrating_to=better)

    def end_swap(self, parent: str) -> None:
        """The job has stopped: the better one takes over."""
        status = self.stored[parent].status
        better, worse = status.migrating_to, status.admitted_variant
        self.lose(worse, "FlavorMigration", requeued=False)
        kept = self.stored[better].status.promised
        if kept is not None:
            self.change(
                better,
                conditions={"QuotaReserved": (True, "QuotaReserved")},
                admission=kept,
                promised=None,
            )
        self.admit(better)

    def lose(self, name: str, reason: str, *, requeued: bool = True) -> None:
        """It holds nothing any more."""
        self.change(
            name,
            conditions={
                "QuotaReserved": (False, "Pending"),
                "Admitted": (False, "NoReservation"),
                "Evicted": (True, reason),
                "Requeued": (requeued, reason),
            },
            admission=None,
            promised=None,
            admission_checks=(),
            pending_preemption=None,
        )

    def reset(self, parent: str, reason: str = "Preempted") -> None:
        """The admitted variant's job stopped for a preemptor: the family competes again."""
        for name in list(self.stored):
            if self.parent_of(name) == parent and self.holds(name):
                self.lose(name, reason)
        self.change(
            parent,
            conditions={
                "QuotaReserved": (False, "Pending"),
                "Admitted": (False, "NoReservation"),
                "Evicted": (True, "VariantEvicted"),
                "Requeued": (True, "Preempted"),
            },
            admission=None,
            preemption_gate=None,
            admitted_variant="",
            first_admitted_at=None,
            migrating_to="",
            family_start=self.now,
        )

    def says_ready(self, name: str) -> None:
        """All its checks do."""
        rows = self.stored[name].status.admission_checks
        ready = tuple(msgspec.structs.replace(one, state="Ready") for one in rows)
        self.change(name, admission_checks=ready)

    def raise_if_cancelled(self, name: str) -> None:
        """It is confirmed; if another one of its family runs, that is stopped first."""
        parent = self.parent_of(name)
        running = self.stored[parent].status.admitted_variant if parent else ""
        if running and running != name:
            self.begin_swap(name, running, None)
        else:
            self.admit(name)

    def reclaim(self, name: str, *counts: int) -> None:
        """So many pods of each set are not needed any more."""
        pods = tuple(ReclaimablePod(name=f"set-{at}", count=much) for at, much in enumerate(counts))
        self.change(name, reclaimable_pods=pods)

    def holds(self, name: str) -> bool:
        """Quota is booked for it, or kept."""
        status = self.stored[name].status
        return status.admission is not None or status.promised is not None

    # Deciding. ------------------------------------------------------------------------------

    def cycle(self, *, confirm: bool = True) -> list[str]:
        """One cycle, and what a controller makes of it: the names of those that got quota."""
        decisions = self.decisions = self.core.cycle(now=self.now)
        self.decided = [one for one in decisions if isinstance(one, Assigned)]
        self.preempted = [one for one in decisions if isinstance(one, Preempted)]
        self.told += self.preempted
        if confirm:
            for one in decisions:
                self.take_in(one)
        return [one.name for one in self.decided]

    def take_in(self, one: Any) -> None:
        """A decision is applied."""
        if isinstance(one, Refused):
            self.waiting.append(one)
            self.change(one.name, conditions={"QuotaReserved": (False, one.refusal.reason)})
        elif isinstance(one, Assigned):
            self.taken(one)
        elif isinstance(one, Confirmed):
            self.confirmed.append(one.name)
            self.raise_if_cancelled(one.name)
        elif isinstance(one, Preempted):
            self.told_to_go(one.name)
        elif isinstance(one, Planned):
            self.change(one.name, pending_preemption=one.pending_preemption)
        elif isinstance(one, Revoked):
            self.revoked.append(one.name)
            self.told_to_go(one.name)

    def told_to_go(self, name: str) -> None:
        """It stops, and its family begins anew if it was the one that ran."""
        parent = self.parent_of(name)
        if not is_true(self.stored[name], Type.ADMITTED):
            self.lose(name, "Preempted")
            return
        self.change(name, conditions={"Evicted": (True, "Preempted")})
        if parent:
            self.change(parent, conditions={"Evicted": (True, "VariantEvicted")}, migrating_to="")
        if not self.stubborn:
            self.stops(name)

    def stops(self, name: str) -> None:
        """Its job, which was told to, has stopped."""
        parent = self.parent_of(name)
        if parent and self.stored[parent].status.migrating_to:
            self.end_swap(parent)
        elif parent:
            self.reset(parent)
        else:
            self.lose(name, "Preempted")

    def taken(self, one: Assigned) -> None:
        """An assignment is applied."""
        for giver in one.preempts:
            self.lose(giver.name, "Preempted")
        if one.migrates_from is not None:
            self.begin_swap(one.name, one.migrates_from.name, one.admission)
            return
        names = self.core.catalog.checks_to_pass(one.admission.cluster_queue, one.admission)
        self.change(
            one.name,
            conditions={
                "QuotaReserved": (True, "QuotaReserved"),
                "Evicted": (False, "QuotaReserved"),
                "Requeued": (True, "QuotaReserved"),
            },
            admission=one.admission,
            pending_preemption=one.pending_preemption,
            admission_checks=tuple(CheckState(name=each, state="Pending") for each in names),
        )
        if not names:
            self.admit(one.name)

    # Looking. -------------------------------------------------------------------------------

    def member(self, name: str) -> WorkloadInfo:
        """It in the scheduler's picture."""
        return self.core._state.workloads["ns", name]

    def queue_of(self, name: str) -> Queue:
        """The queue in the scheduler's picture."""
        return self.core._state.queues[name]

    def used(self, queue: str) -> dict[tuple[str, str], int]:
        """What counts there, in accounting units; nothing is left out."""
        node = self.core.catalog.tree.queues[queue]
        return {fr: cell.usage for fr, cell in node.cells.items() if cell.usage}

    def should_be_used(self, without: Sequence[str] = ()) -> dict[str, dict[tuple[str, str], int]]:
        """The same of every queue, added up anew from what is written: of a family the largest."""
        families: dict[tuple[str, str, str, str], int] = {}
        for name, stored in self.stored.items():
            admission = _booked(stored.status)
            if admission is None or name in without or self._is_parent(name):
                continue
            holder = self.parent_of(name) or f"\0{name}"
            held: dict[tuple[str, str], int] = {}
            gone = {one.name: one.count for one in stored.status.reclaimable_pods}
            for row in admission.pod_set_assignments:
                left = max(0, row.count - gone.get(row.name, 0))
                for resource, flavor in row.flavors.items():
                    much = amount(resource, row.resource_usage[resource]) // row.count * left
                    held[flavor, resource] = held.get((flavor, resource), 0) + much
            for (flavor, resource), much in held.items():
                key = admission.cluster_queue, holder, flavor, resource
                families[key] = max(families.get(key, 0), much)
        found: dict[str, dict[tuple[str, str], int]] = {}
        for (queue, _, flavor, resource), much in families.items():
            if much:
                of = found.setdefault(queue, {})
                of[flavor, resource] = of.get((flavor, resource), 0) + much
        return found

    def _is_parent(self, name: str) -> bool:
        return bool(json.loads(bytes(self.stored[name].spec)).get("role") == "parent")


def _booked(status: WorkloadStatus) -> Admission | None:
    return status.admission if status.admission is not None else status.promised
