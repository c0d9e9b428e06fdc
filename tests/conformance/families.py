"""One reconcile call of Kueue's variant controller, played by our cores, and what both made of it.

There one controller looks at a family and writes whatever it finds lacking. Here the
workload-controller moves a parent and its variants together, in the commit of the fact that moved
the first of them; so what Kueue is about to notice is wound back, and then stated. What is left is
what the variant-controller orders. The scheduler listens, and decides only where it is asked to.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

import msgspec

from admittance.api.manifests import flavors_of_annotation
from admittance.api.meta import Condition, ObjectMeta
from admittance.api.reading.manifest import decode_object, encode
from admittance.api.workload import FAMILY_GATE, AdmissionConstraints, GateHolder
from admittance.control.manifests.objects import key_of
from admittance.events import facts
from admittance.events.base import Fact
from admittance.events.reader import BucketEntry
from admittance.events.shapes import Admission
from admittance.system.local_system import LocalSystem
from admittance.workload import stored
from admittance.workload.change import with_spec, with_status
from admittance.workload.conditions import Type, find, is_true, without_condition
from admittance.workload.stored import PARENT, VARIANT, StoredWorkload, head
from conformance.tables import time_of

SOME = 5
"""A revision that a runner names."""
LABEL = "kueue.x-k8s.io/concurrent-admission-parent"
SEEN = (Type.QUOTA_RESERVED, Type.ADMITTED, Type.EVICTED, Type.FINISHED, Type.PODS_READY)


class Reconciled:
    """A case, played until no process has anything left to do."""

    def __init__(self, given: Mapping[str, Any]) -> None:
        self.now = time_of(given.get("now"))
        self.given = given
        offered = _offered(given)
        parent = as_parent(given.get("parentWorkload"))
        variants = [
            as_variant(manifest, parent, offered)
            for manifest in given.get("variantWorkloads") or ()
        ]
        self.parent = _name(parent) if parent is not None else None
        said: list[Fact] = []
        if parent is not None:
            parent, variants, said = _wound_back(parent, variants)
        self.system = a_system(
            (*map(_with_quota, given["clusterQueues"]), *given["localQueues"]),
            [workload for workload in (parent, *variants) if workload is not None],
            self.now,
        )
        self._before = {tag: state for tag, state in self.family().items() if tag}
        if said:
            self.system.apply_facts(*map(self._as_of_now, said))
        while orders := self.system.orders():
            self.system.apply_facts(*orders)

    def _as_of_now(self, fact: Fact) -> Fact:
        if not isinstance(fact, facts.Decision):
            return fact
        key = f"workload.{fact.namespace}.{fact.name}"
        known = self.system.controller.workloads.get(key)
        assert known.workload is not None
        admission = known.workload.status.admission
        assert admission is not None
        return msgspec.structs.replace(
            fact,
            revision=known.revision,
            seen=self.system.revision,
            domain=f"queue-{admission.cluster_queue}",
        )

    def family(self) -> dict[str, dict[str, Any]]:
        """The parent under "", and the variants by their flavors, as far as they are compared."""
        members = {}
        for workload in all_workloads(self.system):
            if workload.metadata.name == self.parent:
                members[""] = seen(workload)
            elif head(workload).role == VARIANT:
                members[head(workload).variant] = seen(workload)
        return members

    def variant_events(self) -> Counter[str]:
        """The changes of the variants, in the words of events."""
        before, after = self._before, self.family()
        variant_events = Counter({"CreatedVariant": len(after.keys() - before.keys() - {""})})
        variant_events["DeletedVariant"] = len(before.keys() - after.keys())
        for tag in before.keys() & after.keys():
            was, is_now = before[tag], after[tag]
            variant_events["ActivatedVariant"] += is_now["active"] and not was["active"]
            variant_events["DeactivatedVariant"] += was["active"] and not is_now["active"]
            variant_events["PreemptionUngatedVariant"] += is_now["open"] and not was["open"]
        return +variant_events


def wanted(want: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """What the case expects, in the form of `seen`, by flavor."""
    members = {}
    if want.get("parentWorkload") is not None:
        members[""] = seen(as_stored(want["parentWorkload"]))
    for raw in want.get("variantWorkloads") or ():
        members[_flavor(raw)] = seen(as_stored(raw))
    return members


def seen(workload: StoredWorkload) -> dict[str, Any]:
    """The compared parts of a variant: whether it is active, is admitted and may preempt, and its
    conditions."""
    variant_events: dict[str, Any] = {
        "active": head(workload).active,
        "admission": workload.status.admission is not None,
        "open": any(
            gate.name == FAMILY_GATE and gate.position == "Open"
            for gate in workload.status.preemption_gates
        ),
    }
    for kind in SEEN:
        condition = find(workload, kind)
        if condition is None or condition.status != "True":
            continue
        if kind is Type.EVICTED and condition.reason == "Deactivated":
            continue  # There another controller says so, a step later.
        variant_events[kind] = condition.reason if kind in (Type.EVICTED, Type.FINISHED) else "True"
    return variant_events


# What there is. -----------------------------------------------------------------------------


def all_workloads(system: LocalSystem) -> list[StoredWorkload]:
    """As they are stored now, finished ones included."""
    return [
        stored.decode(entry.value)
        for entry in system.entries()
        if entry.key.startswith("workload.") and entry.value is not None
    ]


def a_system(
    objects: Iterable[Mapping[str, Any]], workloads: Iterable[StoredWorkload], now: datetime
) -> LocalSystem:
    """All cores over these."""
    entries: list[BucketEntry] = []
    for obj in objects:
        manifest = decode_object(obj).manifest
        entries.append(BucketEntry(key_of(manifest), encode(manifest), len(entries) + 1))
    for workload in workloads:
        meta = workload.metadata
        key = f"workload.{meta.namespace}.{meta.name.replace('.', '_')}"
        entries.append(BucketEntry(key, stored.encode(workload), len(entries) + 1))
    system = LocalSystem(now)
    system.load(entries)
    return system


def cycle(system: LocalSystem) -> None:
    """Runs one cycle of the scheduler, and stores its decisions."""
    system.apply_facts(*system.run_cycle())


def _with_quota(queue: Mapping[str, Any]) -> dict[str, Any]:
    """The queue, offering cpu in every flavor: the cases leave resources out."""
    quota = [{"name": "cpu", "nominalQuota": "10"}]
    groups = [
        {
            "coveredResources": ["cpu"],
            "flavors": [{**flavor, "resources": quota} for flavor in group["flavors"]],
        }
        for group in queue["spec"].get("resourceGroups", ())
    ]
    return {**queue, "spec": {**queue["spec"], "resourceGroups": groups}}


def _offered(given: Mapping[str, Any]) -> dict[str, list[str]]:
    """The flavors of the ClusterQueue behind each LocalQueue, the best first."""
    queues = {
        raw["metadata"]["name"]: [
            flavor["name"]
            for group in raw["spec"].get("resourceGroups", ())
            for flavor in group["flavors"]
        ]
        for raw in given["clusterQueues"]
    }
    return {
        raw["metadata"]["name"]: queues[raw["spec"]["clusterQueue"]] for raw in given["localQueues"]
    }


def as_stored(raw: Mapping[str, Any]) -> StoredWorkload:
    """A workload of the data."""
    return stored.decode(msgspec.json.encode(raw))


def _name(workload: StoredWorkload) -> str:
    return workload.metadata.name


def _flavor(raw: Mapping[str, Any]) -> str:
    metadata = msgspec.convert(raw["metadata"], ObjectMeta)
    [flavor] = flavors_of_annotation(metadata) or ("",)
    return flavor


def as_parent(raw: Mapping[str, Any] | None) -> StoredWorkload | None:
    """A workload of the case as it would be stored here; a label makes it a parent."""
    if raw is None:
        return None
    workload = as_stored(raw)
    meta = workload.metadata
    meta = msgspec.structs.replace(
        meta,
        uid=meta.uid or f"uid-{meta.name}",
        creation_timestamp=meta.creation_timestamp or time_of(None),
    )
    workload = msgspec.structs.replace(workload, metadata=meta)
    return with_spec(workload, role=PARENT) if LABEL in meta.labels else workload


def refused(workload: StoredWorkload) -> StoredWorkload:
    """The workload; where its gate keeps it back, as it is written here: the same write gives a
    refused workload the reason."""
    if is_true(workload, Type.BLOCKED_ON_PREEMPTION_GATES):
        return _with(workload, Type.QUOTA_RESERVED, status="False")
    return workload


def with_families(queue: Mapping[str, Any]) -> dict[str, Any]:
    """The queue with a policy, where the case leaves it out."""
    policy = {"migration": {"mode": "TryPreferredFlavors"}}
    return {**queue, "spec": {"concurrentAdmissionPolicy": policy, **queue["spec"]}}


def as_family(given: Mapping[str, Any]) -> list[StoredWorkload]:
    """The siblings of a scheduler case, and their parent, which the case leaves out."""
    raws = given["workloads"]
    [owner] = {
        (reference["name"], reference["uid"])
        for raw in raws
        for reference in raw["metadata"]["ownerReferences"]
    }
    name, uid = owner
    metadata = {
        "name": name,
        "uid": uid,
        "namespace": raws[0]["metadata"]["namespace"],
        "labels": {LABEL: "true"},
    }
    parent = as_parent({**raws[0], "metadata": metadata, "status": {}})
    offered = _offered(given)
    variants = [as_variant(raw, parent, offered) for raw in raws]
    admitted = next(variant for variant in variants if is_true(variant, Type.ADMITTED))
    assert parent is not None
    parent = _with(_runs_on(parent, admitted), Type.QUOTA_RESERVED, Type.ADMITTED)
    return [parent, *variants]


def admitted_on(admission: Admission | None) -> list[str]:
    """Its flavors."""
    places = admission.pod_set_assignments if admission is not None else ()
    return [flavor for place in places for flavor in place.flavors.values()]


def as_variant(
    raw: Mapping[str, Any], parent: StoredWorkload | None, offered: Mapping[str, list[str]]
) -> StoredWorkload:
    """A child of the case as a variant."""
    flavor = _flavor(raw)
    workload = as_stored(raw)
    meta = workload.metadata
    uid = parent.metadata.uid if parent is not None else ""
    owners = tuple(
        msgspec.structs.replace(owner, uid=owner.uid or uid) for owner in meta.owner_references
    )
    meta = msgspec.structs.replace(
        meta,
        uid=meta.uid or f"uid-{meta.name}",
        creation_timestamp=meta.creation_timestamp or time_of(None),
        owner_references=owners,
    )
    flavors = offered.get(head(workload).queue_name, [])
    place = flavors.index(flavor) if flavor in flavors else len(flavors)
    allowed = AdmissionConstraints(allowed_resource_flavors=(flavor,))
    workload = msgspec.structs.replace(workload, metadata=meta)
    workload = refused(workload)
    return with_spec(
        workload,
        role=VARIANT,
        variant=flavor,
        siblingIndex=place,
        admissionConstraints=msgspec.to_builtins(allowed),
    )


# What is about to be noticed. ---------------------------------------------------------------


def _wound_back(
    parent: StoredWorkload, variants: list[StoredWorkload]
) -> tuple[StoredWorkload, list[StoredWorkload], list[Fact]]:
    """The family as it was just before, and what happened then."""
    me: dict[str, Any] = {"namespace": parent.metadata.namespace, "name": _name(parent)}
    parent, variants = _gates(parent, variants)
    admitted = next((variant for variant in variants if is_true(variant, Type.ADMITTED)), None)
    evicted = admitted is not None and is_true(admitted, Type.EVICTED)
    if is_true(parent, Type.FINISHED):
        return _less(parent, Type.FINISHED), variants, [facts.Finished(**me)]
    if not head(parent).active and any(head(variant).active for variant in variants):
        return with_spec(parent, active=True), variants, [facts.Deactivated(**me)]
    if admitted is None:
        return parent, variants, []
    others = [variant for variant in variants if variant is not admitted]
    if is_true(parent, Type.ADMITTED):
        parent = _runs_on(parent, admitted)
        if evicted:
            back = _less(admitted, Type.EVICTED)
            return parent, [back, *others], [_preempted(admitted)]
        pods = find(parent, Type.PODS_READY)
        if pods is not None:
            mirrored = find(admitted, Type.PODS_READY)
            assert mirrored is not None
            kept = without_condition(parent.status.conditions, Type.PODS_READY)
            back = with_status(parent, conditions=(*kept, mirrored))
            kind = facts.PodsReady if pods.status == "True" else facts.PodsNotReady
            return back, variants, [kind(**me, revision=SOME)]
        return parent, variants, []
    if evicted:
        # The parent's job has just stopped.
        stopping = _runs_on(parent, admitted)
        stopping = _with(stopping, Type.QUOTA_RESERVED, Type.ADMITTED, Type.EVICTED)
        return stopping, variants, [facts.Stopped(**me, revision=SOME)]
    reserved = _less(admitted, Type.ADMITTED)
    return parent, [reserved, *others], [_confirmed(admitted)]


def _gates(
    parent: StoredWorkload, variants: list[StoredWorkload]
) -> tuple[StoredWorkload, list[StoredWorkload]]:
    """The parent records which gate was opened last."""
    opened = [
        (gate.last_transition_time, _name(variant))
        for variant in variants
        for gate in variant.status.preemption_gates
        if gate.position == "Open" and gate.last_transition_time is not None
    ]
    if not opened:
        return parent, variants
    since, holder = max(opened)
    return with_status(parent, preemption_gate=GateHolder(holder=holder, since=since)), variants


def _runs_on(parent: StoredWorkload, variant: StoredWorkload) -> StoredWorkload:
    return with_status(
        parent,
        admitted_variant=_name(variant),
        admission=variant.status.admission,
        admitted_revision=SOME,
        evicted_revision=SOME,
    )


def _less(workload: StoredWorkload, kind: str) -> StoredWorkload:
    return with_status(workload, conditions=without_condition(workload.status.conditions, kind))


def _with(workload: StoredWorkload, *kinds: str, status: str = "True") -> StoredWorkload:
    added = tuple(Condition(type=kind, status=status, reason="VariantEvicted") for kind in kinds)
    return with_status(workload, conditions=(*workload.status.conditions, *added))


def _confirmed(variant: StoredWorkload) -> Fact:
    meta = variant.metadata
    return facts.Confirmed(namespace=meta.namespace, name=meta.name, revision=0, seen=0, domain="")


def _preempted(variant: StoredWorkload) -> Fact:
    meta = variant.metadata
    return facts.Preempted(
        namespace=meta.namespace,
        name=meta.name,
        revision=0,
        seen=0,
        domain="",
        reason="InClusterQueue",
        by="default/other",
    )
