"""Families as they are stored, the variant-controller's core, and a clock. What the core orders is
done by a plain reading of each order, at once or whenever a test wants it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any

import msgspec
from msgspec.structs import replace

from admittance.api.meta import Condition, ObjectMeta
from admittance.api.reading.canonical import spec_of
from admittance.api.reading.manifest import decode_object
from admittance.api.workload import FAMILY_GATE, GateHolder, GatePosition, Workload
from admittance.events import facts
from admittance.events.base import Fact
from admittance.family import FamilyRules, desired_variants, rules_of
from admittance.variants.core import FamilyActs
from admittance.workload.change import with_spec
from admittance.workload.families.parent_status import rows_of, summary_of
from admittance.workload.family_info import parent_state, variant_state
from admittance.workload.stored import StoredWorkload, WorkloadStatus, head, owner_of
from support.builders import (
    API,
    NOON,
    a_condition,
    a_spec,
    an_admission,
    an_object,
    resource_groups,
)
from support.cores.family_queues import family_policy

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
    types = {one.type for one in conditions}
    kept = tuple(one for one in workload.status.conditions if one.type not in types)
    return replace(workload, status=replace(workload.status, conditions=(*kept, *conditions)))


class SteppedVariants:
    """``ordered``: every fact that was ordered. ``log``: those not done yet."""

    def __init__(self, *, queues: bool = True, **core: Any) -> None:
        self.core = FamilyActs(**core)
        self.now = NOON
        self.revision = 0
        self.stored: dict[str, StoredWorkload] = {}
        self.objects: dict[tuple[str, str, str], Any] = {}
        self.ordered: list[Fact] = []
        self.log: list[Fact] = []
        self._uids = 0
        if queues:
            self.offer()
            self.local_queue()

    # Configuration. -------------------------------------------------------------------------

    def offer(self, *flavors: str, **more: Any) -> SteppedVariants:
        """``cq`` says this from now on."""
        if flavors:
            more["flavors"] = flavors
        found = decode_object(a_cluster_queue(**more)).manifest
        return self._object("ClusterQueue", "", "cq", found)

    def no_queue(self) -> SteppedVariants:
        return self._object("ClusterQueue", "", "cq", None)

    @property
    def rules(self) -> FamilyRules | None:
        """What ``cq`` says of the families of ``lq``."""
        queue = self.objects.get(("ClusterQueue", "", "cq"))
        local = self.objects.get(("LocalQueue", NS, "lq"))
        return rules_of(queue.spec) if queue is not None and local is not None else None

    def _object(self, kind: str, namespace: str, name: str, found: Any) -> SteppedVariants:
        self.objects[kind, namespace, name] = found
        self.core.apply_object(kind, namespace, name, found, self.now)
        return self

    def there(self) -> set[tuple[str, str, str]]:
        """The objects that there are: kind, namespace, name."""
        return {key for key, found in self.objects.items() if found is not None}

    def another(self, order: Sequence[str] = ()) -> FamilyActs:
        """A core that has read what is stored, and knows of nothing else. ``order``: of names."""
        core = FamilyActs()
        names = [*order, *(name for name in self.stored if name not in order)]
        for name in names:
            core.apply(f"workload.{NS}.{name}", self.stored.get(name), 1, self.now)
        for (kind, namespace, name), found in self.objects.items():
            core.apply_object(kind, namespace, name, found, self.now)
        return core

    def local_queue(self, name: str = "lq", cluster_queue: str = "cq") -> SteppedVariants:
        """A LocalQueue that leads there; ``cluster_queue`` "": there is none."""
        found = None
        if cluster_queue:
            spec = {"clusterQueue": cluster_queue}
            found = decode_object(an_object("LocalQueue", name, spec, NS)).manifest
        return self._object("LocalQueue", NS, name, found)

    # The bucket. ----------------------------------------------------------------------------

    def put(self, name: str, workload: StoredWorkload | None) -> SteppedVariants:
        """The bucket has it so; None: not any more."""
        self.revision += 1
        if workload is None:
            self.stored.pop(name, None)
        else:
            self.stored[name] = workload
        self.core.apply(f"workload.{NS}.{name}", workload, self.revision, self.now)
        return self

    def workload(self, name: str = "j", uid: str = "", **spec: Any) -> SteppedVariants:
        """A workload appears: a parent, unless its role is said."""
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
        one = with_conditions(self.stored[name], *conditions)
        return self.put(name, replace(one, status=replace(one.status, **fields)))

    def spec(self, name: str, **fields: Any) -> SteppedVariants:
        """Writes these fields of its spec, as on the wire."""
        return self.put(name, with_spec(self.stored[name], **fields))

    def meta(self, name: str, **fields: Any) -> SteppedVariants:
        one = self.stored[name]
        return self.put(name, replace(one, metadata=replace(one.metadata, **fields)))

    def admit(self, tag: str, parent: str = "j") -> SteppedVariants:
        """The variant is admitted, and so is its parent."""
        return self.admit_name(self.named(tag, parent), parent)

    def admit_name(self, name: str, parent: str = "j") -> SteppedVariants:
        """The same, by its name."""
        yes = (a_condition("QuotaReserved", True), a_condition("Admitted", True))
        self.status(name, *yes, admission=an_admission())
        first = self.stored[parent].status.first_admitted_at or self.now
        return self.status(parent, *yes, admitted_variant=name, first_admitted_at=first)

    def named(self, tag: str, parent: str = "j") -> str:
        """The name of the parent's variant with that tag."""
        (name,) = (name for name, one in self.family(parent).items() if head(one).variant == tag)
        return name

    def family(self, parent: str = "j") -> dict[str, StoredWorkload]:
        """The parent's variants, by name."""
        uid = self.stored[parent].metadata.uid
        return {
            name: one
            for name, one in sorted(self.stored.items())
            if head(one).role == "variant" and owner_of(one)[1] == uid
        }

    def active(self, parent: str = "j") -> str:
        """The tags of its active variants, the best first."""
        found = sorted(self.family(parent).values(), key=lambda one: head(one).sibling_index or 0)
        return " ".join(head(one).variant for one in found if head(one).active)

    # Orders. --------------------------------------------------------------------------------

    def orders(self) -> list[str]:
        """What is ordered now, a line each; it stays on the log."""
        found = self.core.orders(self.now)
        self.ordered += found
        self.log += found
        return [line(one) for one in found]

    def follow(self) -> list[str]:
        """What is ordered now and what follows is done, until nothing more is."""
        found: list[str] = []
        for _ in range(100):
            orders = self.orders()
            if not self.log:
                return found
            found += orders
            while self.log:
                self.obey(self.log.pop(0))
        raise AssertionError(f"it does not come to rest: {found[-10:]}")

    def later(self, seconds: float) -> SteppedVariants:
        self.now += timedelta(seconds=seconds)
        return self

    def obey(self, fact: Fact) -> None:
        """What the writer of workloads does with it."""
        one = self.stored.get(fact.name)
        if isinstance(fact, facts.Submitted):
            self._arrive(fact)
            return
        if one is None or (fact.uid and fact.uid != one.metadata.uid):
            return
        match fact:
            case facts.Activated() | facts.Deactivated():
                active = isinstance(fact, facts.Activated)
                if head(one).active != active and self._wants(one) is active:
                    self.spec(fact.name, active=active)
            case facts.Reprioritized():
                if head(one).priority != fact.priority:
                    self.spec(fact.name, priority=fact.priority)
            case facts.Deleted():
                self.put(fact.name, None)
            case facts.Ungated():
                gate = GatePosition(name=FAMILY_GATE, position="Open")
                self.status(fact.name, preemption_gates=(gate,))
                holder = GateHolder(holder=fact.name, since=self.now)
                parent, uid = owner_of(one)
                if parent in self.stored and self.stored[parent].metadata.uid == uid:
                    self.status(parent, preemption_gate=holder)
            case facts.Aggregated():
                self._aggregate(fact.name)

    def _arrive(self, fact: facts.Submitted) -> None:
        manifest = decode_object(fact.workload, namespace=NS).manifest
        assert isinstance(manifest, Workload)
        owner = manifest.metadata.owner_references[0]
        parent = self.stored.get(owner.name)
        if parent is None or parent.metadata.uid != owner.uid or fact.name in self.stored:
            return
        self._uids += 1
        spec = manifest.spec
        self.put(
            fact.name,
            StoredWorkload(
                api_version=API,
                kind="Workload",
                metadata=replace(manifest.metadata, uid=f"uid-{self._uids}"),
                spec=msgspec.Raw(msgspec.json.encode(spec)),
                status=WorkloadStatus(
                    conditions=(
                        a_condition(
                            "QuotaReserved",
                            False,
                            "PendingEvaluation" if spec.active else "Deactivated",
                        ),
                    )
                ),
            ),
        )

    def _wants(self, one: StoredWorkload) -> bool | None:
        parent = self.stored.get(owner_of(one)[0])
        if parent is None:
            return None
        states = [variant_state(each) for each in self.family(parent.metadata.name).values()]
        wish = desired_variants(parent_state(parent), states, self.rules, self.now).get(
            one.metadata.name
        )
        return wish.active if wish is not None else None

    def _aggregate(self, parent: str) -> None:
        own = self.family(parent).values()
        state = parent_state(self.stored[parent])
        queues = {("ClusterQueue", "", "cq"), ("LocalQueue", NS, "lq")}
        if self.rules is None and queues <= self.there() and not state.admitted:
            self.spec(parent, role="regular")
            return
        wants = desired_variants(state, [variant_state(one) for one in own], self.rules, self.now)
        rows = rows_of([summary_of(one) for one in own], wants)
        more: Iterable[Condition] = ()
        if self.rules is not None and not self.rules.tags_within(state.allowed):
            more = (a_condition("QuotaReserved", False, "NoMatchingFlavor"),)
        self.status(parent, *more, variants=rows)


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
