"""The scheduler's core with families: parents, their variants, and what the other cores write."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

from admittance.api.fields.units import amount, render
from admittance.api.meta import OwnerReference
from admittance.api.workload import (
    FAMILY_GATE,
    GatePosition,
    ReclaimablePod,
)
from admittance.events import facts
from admittance.events.facts import Assigned, Decision, Preempted
from admittance.events.shapes import Admission, PodSetAssignment
from admittance.family import FamilyRules, rules_of
from admittance.scheduling.scheduler import Scheduler
from admittance.scheduling.state.config import Config
from admittance.scheduling.state.queue import in_order
from admittance.scheduling.state.workload_info import Queue, WorkloadInfo
from admittance.workload.phase import is_stopping
from admittance.workload.stored import PARENT, VARIANT, StoredWorkload, head
from simulation.invariants.reference_quota import Usage
from support.builders import API, resource_groups
from support.cores.families.family_queues import family_policy
from support.cores.stepped_scheduler import SteppedScheduler
from support.cores.written_usage import written_usage

Pods = Sequence[tuple[int, Mapping[str, str]]]
"""For each pod set the number of pods, and the requests of one pod."""


class FamilyScheduler(SteppedScheduler):
    """A system in memory. The workload-controller applies every decision at once. Workloads are
    written by hand, and variants are named ``<parent>-<tag>``. Checks are Ready by `passes` only,
    and gates open by `opens` only. Jobs of families stop by `stops` only, and other jobs at once,
    unless ``jobs_stop`` is False.

    ``decisions``: of the last cycle. ``revoked``, ``confirmed``: the workloads of all such
    decisions so far.
    """

    def __init__(self, config: Config | None = None) -> None:
        super().__init__(config)
        self.jobs_stop = True
        self.decisions: list[Decision] = []
        self.revoked: list[str] = []
        self.confirmed: list[str] = []

    # Configuration. -------------------------------------------------------------------------

    def restart_in(self, order: Sequence[str]) -> None:
        """Restarts the scheduler, which reads the stored workloads in that order."""
        self.scheduler = Scheduler(self.config)
        for key, kept in self.controller.objects:
            self._object_changed(key, kept.revision)
        for name in order:
            self.restore(name, self.stored[name])
        self.own_all()

    def family_queue(
        self,
        name: str = "cq",
        *,
        mode: str = "UpgradeOnly",
        explicit: Sequence[Mapping[str, Any]] = (),
        floor: str = "",
        flavors: Mapping[str, Any] | None = None,
        checks: Mapping[str, Sequence[str]] | None = None,
        **spec: Any,
    ) -> None:
        """A ClusterQueue of families. ``flavors``: to its cpu, the best first; ``checks``: flavor
        to those that it brings."""
        offered = dict(flavors or {"best": "4", "mid": "4", "worst": "4"})
        for flavor in offered:
            self.flavor(flavor)
        made = resource_groups(offered, checks=checks)
        said = family_policy(mode, floor, explicit)
        self.queue(name, **{"resourceGroups": made, "concurrentAdmission": said, **spec})

    def rules(self, queue: str) -> FamilyRules:
        """What the ClusterQueue says of families."""
        rules = rules_of(self.core.catalog.cluster_queues[queue].spec)
        assert rules is not None
        return rules

    # Workloads. -----------------------------------------------------------------------------

    def family(
        self,
        name: str,
        queue: str = "cq",
        cpu: str = "4",
        *,
        tags: Sequence[str] | None = None,
        parent_first: bool = True,
        priority: int = 0,
        age: float = 0,
        **more: str,
    ) -> None:
        """A parent and the variants that its queue has for it, or only those of ``tags``; they
        follow policy. ``more``: what it asks for beside cpu."""
        pods = [(1, {"cpu": cpu, **more})]
        if parent_first:
            self._put_parent(name, queue, pods, priority, age)
        for tag in self.rules(queue).tags:
            if tags is None or tag.name in tags:
                self._put_variant(name, queue, pods, priority, age, tag.name, tag.flavors)
        if not parent_first:
            self._put_parent(name, queue, pods, priority, age)
        self.follow()

    def open_family(
        self,
        name: str,
        queue: str,
        tags: Mapping[str, Sequence[str]],
        pods: Pods,
        *,
        priority: int = 0,
        age: float = 0,
    ) -> None:
        """A parent and these variants (tag to flavors, the best first), which may all preempt and
        stay active."""
        self._put_parent(name, queue, pods, priority, age)
        for tag, flavors in tags.items():
            self._put_variant(name, queue, pods, priority, age, tag, flavors)
            self._open_gate(f"{name}-{tag}")

    def _put_parent(self, name: str, queue: str, pods: Pods, priority: int, age: float) -> None:
        self.job(name, queue, pods, priority=priority, age=age, spec={"role": "parent"})

    def _put_variant(
        self,
        parent: str,
        queue: str,
        pods: Pods,
        priority: int,
        age: float,
        tag: str,
        flavors: Sequence[str],
    ) -> None:
        owner = OwnerReference(api_version=API, kind="Workload", name=parent, uid=f"uid-{parent}")
        spec = {
            "role": "variant",
            "variant": tag,
            "admissionConstraints": {"allowedResourceFlavors": list(flavors)},
            "preemptionGates": [{"name": FAMILY_GATE}],
        }
        # Its own id and age mean nothing: it has the place of its parent in the order.
        self.job(
            f"{parent}-{tag}",
            queue,
            pods,
            priority=priority,
            age=age - 1,
            spec=spec,
            uid=f"v-{len(self.stored)}",
            owner_references=(owner,),
        )

    def job(self, name: str, queue: str, pods: Pods, **more: Any) -> None:
        """Submits a workload with these pod sets."""
        sets = [{"count": count, "requests": dict(asked)} for count, asked in pods]
        self.submit(name, queue, pods=sets, **more)

    def parent_of(self, name: str) -> str:
        """The parent's name; "": it is a regular workload, or a parent."""
        owners = self.stored[name].metadata.owner_references
        return owners[0].name if owners else ""

    def admitted(self, parent: str) -> str:
        """The tag of the admitted variant; "" if none is admitted."""
        name = self.stored[parent].status.admitted_variant
        return name.removeprefix(f"{parent}-")

    def follow(self) -> None:
        """Turns variants on and off as the family policy requires now. Gates open by `opens`
        only."""
        changes = (facts.Activated, facts.Deactivated)
        for order in self.orders():
            if isinstance(order, changes):
                self.apply_facts(order)

    def later(self, seconds: float) -> None:
        """Lets so many seconds pass."""
        self.now += timedelta(seconds=seconds)
        self.core.wake(now=self.now)

    # What the workload-controller reads. ----------------------------------------------------

    def cycle(self, *, confirm: bool = True) -> list[str]:
        decisions = self.core.cycle(now=self.now)
        self.decisions = [*decisions, *self.core.refusals(now=self.now)]
        self.decided = [decision for decision in decisions if isinstance(decision, Assigned)]
        self.preempted = [decision for decision in decisions if isinstance(decision, Preempted)]
        self.all_preempted += self.preempted
        if confirm:
            for decision in self.decisions:
                self.apply(decision)
        return [decision.name for decision in self.decided]

    def apply(self, decision: Decision) -> None:
        """Applies the decision as the workload-controller does."""
        self.apply_facts(decision)
        match decision:
            case facts.Confirmed():
                self.confirmed.append(decision.name)
            case facts.Revoked():
                self.revoked.append(decision.name)
            case facts.Refused():
                self.waiting.append(decision)
        if self.jobs_stop:
            for name, workload in list(self.stored.items()):
                if head(workload).role not in (PARENT, VARIANT) and is_stopping(workload):
                    self.stops(name)
        self.follow()

    def evict(self, workload: str, reason: str, *, requeued: bool = True) -> None:
        """Preempts the workload, which loses its quota at once or when its job has stopped."""
        member = self.member(workload)
        queue = member.charge.queue if member.charge is not None else member.queue
        assert queue is not None and queue.domain is not None
        self.apply(
            Preempted(
                namespace="ns",
                name=workload,
                uid=member.uid,
                revision=member.revision,
                seen=self.revision,
                domain=queue.domain.name,
                reason=reason,
                message="m",
            )
        )

    def stops(self, name: str) -> None:
        """The job of the workload has stopped, or that of its parent."""
        job = self.parent_of(name) or name
        revision = self.workload(job).status.evicted_revision
        self.apply_facts(facts.Stopped(namespace="ns", name=job, revision=revision))
        self.follow()

    def workload(self, name: str) -> StoredWorkload:
        """The workload as it is stored, with its own revision."""
        workload = self.stored_workload("ns", name)
        assert workload is not None
        return workload

    def passes(self, *names: str, state: str = "Ready") -> None:
        """Makes all checks of these workloads report that state."""
        for name in names:
            status = self.stored[name].status
            for row in status.admission_checks:
                rules = self.controller.queues.check(row.name)
                assert rules is not None
                self.apply_facts(
                    facts.CheckReported(
                        namespace="ns",
                        name=name,
                        check=row.name,
                        controller=rules.controller,
                        cycle=status.admission_cycle,
                        state=state,
                    )
                )
        self.follow()

    def opens(self, name: str) -> None:
        """Publishes ``ungated`` for the variant: its preemption gate opens."""
        self.apply_facts(facts.Ungated(namespace="ns", name=name))

    # What is written by hand. ---------------------------------------------------------------

    def _open_gate(self, name: str) -> None:
        self.change(name, preemption_gates=(GatePosition(name=FAMILY_GATE, position="Open"),))

    def admit(self, name: str) -> None:
        """Admits the variant and its parent."""
        runs = {
            "QuotaReserved": (True, "QuotaReserved"),
            "Admitted": (True, "Admitted"),
            "Evicted": (False, "QuotaReserved"),
        }
        admission = self.stored[name].status.admission
        self.change(name, conditions=runs)
        parent = self.parent_of(name)
        if parent:
            self.change(
                parent,
                conditions=runs,
                admission=admission,
                admitted_variant=name,
                first_admitted_at=self.stored[parent].status.first_admitted_at or self.now,
                migrating_to="",
            )

    def lose(self, name: str, reason: str) -> None:
        """Releases the quota of the workload."""
        self.change(
            name,
            conditions={
                "QuotaReserved": (False, "Pending"),
                "Admitted": (False, "NoReservation"),
                "Evicted": (True, reason),
                "Requeued": (True, reason),
            },
            admission=None,
            promised=None,
            pending_preemption=None,
        )

    def reserve(self, name: str, queue: str, *flavors: Mapping[str, str]) -> None:
        """Reserves quota of these flavors, for each pod set."""
        admission = self.as_admission(name, queue, *flavors)
        reserved = {"QuotaReserved": (True, "QuotaReserved")}
        self.change(name, conditions=reserved, admission=admission)

    def as_admission(self, name: str, queue: str, *flavors: Mapping[str, str]) -> Admission:
        """The admission that would be stored for it."""
        spec = json.loads(bytes(self.stored[name].spec))
        rows = []
        for at, pod_set in enumerate(spec["podSets"]):
            asked = pod_set["template"]["spec"]["containers"][0]["resources"]["requests"]
            usage = {
                resource: render(resource, pod_set["count"] * amount(resource, much))
                for resource, much in asked.items()
            }
            rows.append(
                PodSetAssignment(
                    name=pod_set["name"],
                    flavors=dict(flavors[min(at, len(flavors) - 1)]),
                    resource_usage=usage,
                    count=pod_set["count"],
                )
            )
        return Admission(cluster_queue=queue, pod_set_assignments=tuple(rows))

    def reclaim(self, name: str, *counts: int) -> None:
        """Reports that ``count`` pods of each set are not needed any more."""
        sets = json.loads(bytes(self.stored[name].spec))["podSets"]
        pods = tuple(
            ReclaimablePod(name=pod_set["name"], count=much)
            for pod_set, much in zip(sets, counts, strict=False)
        )
        self.change(name, reclaimable_pods=pods)

    def activate(self, name: str) -> None:
        """Writes the variant as active, even against the family policy."""
        self.respec(name, active=True)
        self.change(name, conditions={"Requeued": (True, "Activated")})

    # Looking. -------------------------------------------------------------------------------

    def holds(self, name: str) -> bool:
        """Whether quota is booked for the workload, or promised to it."""
        status = self.stored[name].status
        return status.admission is not None or status.promised is not None

    def tried(self, queue: str = "cq") -> list[str]:
        """The variants that are tried, in order."""
        return [workload.key[1] for workload in in_order(self.queue_of(queue))]

    def member(self, name: str) -> WorkloadInfo:
        """The workload in the scheduler's state."""
        return self.core._state.workloads["ns", name]

    def queue_of(self, name: str) -> Queue:
        """The queue in the scheduler's state."""
        return self.core._state.queues[name]

    def used(self, queue: str) -> Usage:
        """The usage of the queue, in accounting units, with all flavors."""
        node = self.core.catalog.tree.queues[queue]
        return {fr: cell.usage for fr, cell in node.cells.items() if cell.usage}

    def should_be_used(self, without: Sequence[str] = ()) -> dict[str, Usage]:
        """The usage of every queue, added up anew from the stored workloads; of a family only the
        largest variant counts."""
        return written_usage(self.stored, without)


def full(scheduler: FamilyScheduler, queue: str = "cq", **flavors: str) -> None:
    """Fills each flavor with the given amount, by a running workload ``r-<flavor>``."""
    for flavor, cpu in (flavors or {"best": "4", "mid": "4", "worst": "4"}).items():
        scheduler.submit(
            f"r-{flavor}",
            queue,
            cpu,
            age=1_000,
            annotations={"kueue.x-k8s.io/workload-allowed-resource-flavors": flavor},
        )
    scheduler.settle()
