"""Families in a system in memory, and the orders of the variant-controller's core one by one."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

import msgspec
from msgspec.structs import replace

from admittance.api.meta import Condition, ObjectMeta
from admittance.api.reading.canonical import spec_of
from admittance.control.workloads import with_own_revision
from admittance.events import facts
from admittance.events.base import Fact
from admittance.events.subjects import workload_key
from admittance.family import FamilyRules
from admittance.system.local_system import LocalSystem
from admittance.variants.core import FamilyActs
from admittance.workload.bucket_reader import names_of
from admittance.workload.change import with_spec
from admittance.workload.phase import is_stopping
from admittance.workload.stored import VARIANT, StoredWorkload, WorkloadStatus, head, owner_of
from support.builders import (
    API,
    NOON,
    a_condition,
    a_spec,
    an_admission,
    an_object,
    resource_groups,
)
from support.cores.families.family_queues import family_policy

NS = "ns"


def a_cluster_queue(
    flavors: Sequence[str] = ("reservation", "demand", "spot"),
    mode: str = "UpgradeOnly",
    floor: str = "",
    explicit: Sequence[Mapping[str, Any]] = (),
    *,
    policy: bool = True,
    quota: int = 4,
) -> dict[str, Any]:
    """A ClusterQueue ``cq`` as a person writes it."""
    spec: dict[str, Any] = {"resourceGroups": resource_groups(dict.fromkeys(flavors, quota))}
    if policy:
        spec["concurrentAdmission"] = family_policy(mode, floor, explicit)
    return an_object("ClusterQueue", "cq", spec)


def with_conditions(workload: StoredWorkload, *conditions: Condition) -> StoredWorkload:
    """The workload with these in place of those of their types."""
    types = {condition.type for condition in conditions}
    kept = tuple(
        condition for condition in workload.status.conditions if condition.type not in types
    )
    return replace(workload, status=replace(workload.status, conditions=(*kept, *conditions)))


class SteppedVariants(LocalSystem):
    """A system in memory. A test decides when the workload-controller gets the orders of the
    variant-controller. ``stored``: all workloads by name. ``ordered``: every fact that was ordered.
    ``waiting``: those that the workload-controller has not read yet. ``core``: settings of the
    variant-controller's core."""

    def __init__(self, *, queues: bool = True, **core: Any) -> None:
        self.stored: dict[str, StoredWorkload] = {}
        self.ordered: list[Fact] = []
        self.waiting: list[Fact] = []
        self._settings = core
        self._uids = 0
        super().__init__(NOON)
        if queues:
            self.offer()
            self.local_queue()

    def _start_cores(self) -> None:
        super()._start_cores()
        self.families = FamilyActs(**self._settings)

    # Configuration. -------------------------------------------------------------------------

    def offer(self, *flavors: str, **more: Any) -> SteppedVariants:
        """``cq`` has this spec from now on."""
        if flavors:
            more["flavors"] = flavors
        self.apply_manifest(a_cluster_queue(**more))
        return self

    def no_queue(self) -> SteppedVariants:
        """``cq`` is deleted."""
        self.put_object("clusterqueue.cq", None, b"")
        return self

    def local_queue(self, name: str = "lq", cluster_queue: str = "cq") -> SteppedVariants:
        """A LocalQueue of ``cluster_queue``; "": the LocalQueue is deleted."""
        if cluster_queue:
            spec = {"clusterQueue": cluster_queue}
            self.apply_manifest(an_object("LocalQueue", name, spec, NS))
        else:
            self.put_object(f"localqueue.{NS}.{name}", None, b"")
        return self

    @property
    def rules(self) -> FamilyRules | None:
        """The rules of ``cq`` for the families of ``lq``."""
        return self.controller.queues.family_rules(NS, "lq")

    def another(self, order: Sequence[str] = ()) -> FamilyActs:
        """A new core of the variant-controller that has read the bucket. ``order``: of names."""
        core = FamilyActs()
        for name in [*order, *(name for name in self.stored if name not in order)]:
            core.apply(workload_key(NS, name), self.stored.get(name), 1, self.now)
        for key, kept in self.controller.objects:
            core.apply_object(kept.object.kind, *names_of(key), kept.object, self.now)
        return core

    # The bucket. ----------------------------------------------------------------------------

    def saw(self, key: str, before: StoredWorkload | None, after: StoredWorkload | None) -> None:
        _, name = names_of(key)
        self.stored.pop(name, None)
        if after is not None:
            self.stored[name] = with_own_revision(after, self.revision)

    def put(self, name: str, workload: StoredWorkload | None) -> SteppedVariants:
        """Stores the workload; None: deletes it."""
        self.write(NS, name, workload)
        return self

    def workload(self, name: str = "j", uid: str = "", **spec: Any) -> SteppedVariants:
        """Stores a new workload, which is a parent unless ``spec`` has another role."""
        self._uids += 1
        spec.setdefault("role", "parent")
        return self.put(
            name,
            StoredWorkload(
                api_version=API,
                kind="Workload",
                metadata=ObjectMeta(
                    name=name,
                    namespace=NS,
                    uid=uid or f"uid-{self._uids}",
                    creation_timestamp=self.now,
                ),
                spec=msgspec.Raw(json.dumps(a_spec(**spec)).encode()),
                status=WorkloadStatus(
                    conditions=(a_condition("QuotaReserved", False, "PendingEvaluation", self.now),)
                ),
            ),
        )

    def status(self, name: str, *conditions: Condition, **fields: Any) -> SteppedVariants:
        """Writes these fields of its status."""
        workload = with_conditions(self.stored[name], *conditions)
        return self.put(name, replace(workload, status=replace(workload.status, **fields)))

    def spec(self, name: str, **fields: Any) -> SteppedVariants:
        """Writes these fields of its spec, as on the wire."""
        return self.put(name, with_spec(self.stored[name], **fields))

    def meta(self, name: str, **fields: Any) -> SteppedVariants:
        """Writes these fields of its metadata."""
        workload = self.stored[name]
        return self.put(name, replace(workload, metadata=replace(workload.metadata, **fields)))

    def admit(self, tag: str, parent: str = "j") -> SteppedVariants:
        """The variant is admitted, and so is its parent."""
        return self.admit_name(self.named(tag, parent), parent)

    def admit_name(self, name: str, parent: str = "j") -> SteppedVariants:
        """The same, by its name."""
        yes = (a_condition("QuotaReserved", True), a_condition("Admitted", True))
        admission = an_admission()
        self.status(name, *yes, admission=admission)
        first = self.stored[parent].status.first_admitted_at or self.now
        return self.status(
            parent, *yes, admission=admission, admitted_variant=name, first_admitted_at=first
        )

    def named(self, tag: str, parent: str = "j") -> str:
        """The name of the parent's variant with that tag."""
        (name,) = (
            name for name, variant in self.family(parent).items() if head(variant).variant == tag
        )
        return name

    def family(self, parent: str = "j") -> dict[str, StoredWorkload]:
        """The parent's variants, by name."""
        uid = self.stored[parent].metadata.uid
        return {
            name: workload
            for name, workload in sorted(self.stored.items())
            if head(workload).role == VARIANT and owner_of(workload)[1] == uid
        }

    def active(self, parent: str = "j") -> str:
        """The tags of its active variants, the best first."""
        variants = sorted(
            self.family(parent).values(), key=lambda variant: head(variant).sibling_index or 0
        )
        return " ".join(head(variant).variant for variant in variants if head(variant).active)

    def decide(self, kind: type[facts.Decision], name: str, **fields: Any) -> None:
        """Lets the workload-controller read a decision of a scheduler that has read the whole
        bucket."""
        uid, revision = self.stored[name].metadata.uid, self.revision_of(name)
        whole = {"uid": uid, "revision": revision, "seen": self.revision, **fields}
        self.apply_facts(kind(namespace=NS, name=name, domain="queue-cq", **whole))

    def revision_of(self, name: str) -> int:
        """The revision of the workload."""
        return self.controller.workloads.get(workload_key(NS, name)).revision

    # Orders. --------------------------------------------------------------------------------

    def ordered_now(self) -> list[str]:
        """The orders of the variant-controller now, one line each; the workload-controller has not
        read them."""
        orders = self.orders()
        self.ordered += orders
        self.waiting += orders
        return [line(fact) for fact in orders]

    def follow(self) -> list[str]:
        """Applies each order of the variant-controller at once, until no more orders come; returns
        all orders."""
        lines: list[str] = []
        for _ in range(100):
            lines += self.ordered_now()
            stopped = self._stopped()
            if not self.waiting and not stopped:
                return lines
            self.apply_facts(*stopped)
            while self.waiting:
                self.apply_facts(self.waiting.pop(0))
        raise AssertionError(f"it does not come to rest: {lines[-10:]}")

    def _stopped(self) -> list[Fact]:
        """What the runner publishes: the jobs of evicted parents have stopped."""
        return [
            facts.Stopped(namespace=NS, name=name, revision=workload.status.evicted_revision)
            for name, workload in self.stored.items()
            if head(workload).role != VARIANT and is_stopping(workload)
        ]

    def later(self, seconds: float) -> SteppedVariants:
        """Lets so many seconds pass."""
        self.now += timedelta(seconds=seconds)
        return self


def line(fact: Fact) -> str:
    """A fact in few words."""
    what = type(fact).__name__.lower()
    match fact:
        case facts.Activated() | facts.Deactivated():
            return f"{what} {fact.name} {fact.reason}"
        case facts.Reprioritized():
            return f"{what} {fact.name} {fact.priority}"
        case facts.Submitted():
            spec = spec_of(msgspec.json.decode(fact.workload, type=_Spec).spec)
            return f"{what} {fact.name}" + ("" if spec.active else " inactive")
    return f"{what} {fact.name}"


class _Spec(msgspec.Struct):
    spec: msgspec.Raw


def a_family(*flavors: str, **more: Any) -> SteppedVariants:
    """``j`` with its variants, as it was created at noon."""
    table = SteppedVariants()
    if flavors or more:
        table.offer(*flavors, **more)
    table.workload()
    table.follow()
    return table
