"""The manifests other than workloads that the controller holds, and the writes that an apply makes.
The module is pure.
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from hashlib import blake2b
from typing import Any, Final, NamedTuple, TypeVar

import msgspec

from admittance.api.checks import AdmissionCheck, PriorityClass, WorkloadPriorityClass
from admittance.api.kinds import GROUP, KINDS
from admittance.api.manifests import Manifest, token_of
from admittance.api.queues import ClusterQueue, ClusterQueueSpec, LocalQueue, ResourceFlavor
from admittance.events import reasons
from admittance.events.shapes import Admission
from admittance.events.subjects import object_key
from admittance.family import FamilyRules
from admittance.family import rules_of as families_of
from admittance.quota.catalog import Catalog
from admittance.quota.required_checks import ConflictingChecks
from admittance.text_cache import LONGEST
from admittance.workload.limits import Limits
from admittance.workload.transition_context import (
    CheckRules,
    FlavorParts,
    InactiveReason,
    RequiredCheck,
    check_rules,
)

NEEDED_BY_OTHERS: Final = frozenset({"admissioncheck", "clusterqueue", "flavor", "topology"})
"""Key prefixes of the kinds that are not deleted while another object uses them."""

FOUND_MAX: Final = 20_000
"""With so many lookups remembered, no name is remembered that no object has: users choose them."""
_UNKNOWN: Final = object()

_Kind = TypeVar("_Kind")
POD_CLASSES: Final = KINDS["PriorityClass"].token


class StoredObject(NamedTuple):
    """An object, the stored bytes of the object, and their revision in the bucket."""

    object: Any
    value: bytes
    revision: int


def key_of(manifest: Manifest) -> str:
    """The bucket key of a manifest."""
    meta = manifest.metadata
    return object_key(token_of(manifest), meta.namespace, meta.name)


class Objects:
    """All manifests but workloads, by their bucket keys."""

    def __init__(self) -> None:
        self._kept: dict[str, StoredObject] = {}
        self._by_kind: dict[str, dict[str, StoredObject]] = {}
        """The same objects by the first part of their keys: each manifest that changes is looked up
        in all checks and queues."""
        self._gone: dict[str, int] = {}
        self._found: dict[tuple[str, str, str], Any] = {}
        """Objects by the parts of their keys: each fact looks up a dozen. None: there is no such
        object."""
        self._global_defaults: dict[str, PriorityClass] = {}
        self.terminating: set[str] = set()
        """Keys of objects marked for deletion."""

    def __iter__(self) -> Iterator[tuple[str, StoredObject]]:
        return iter(self._kept.items())

    def get(self, key: str) -> StoredObject | None:
        """Returns the object at the key; None: there is no object."""
        return self._kept.get(key)

    def keep(self, key: str, kept: StoredObject) -> None:
        """Sets the object at the key."""
        self._kept[key] = kept
        self._by_kind.setdefault(key.partition(".")[0], {})[key] = kept
        self._found.clear()
        self._gone.pop(key, None)
        self._global_defaults.pop(key, None)
        if isinstance(kept.object, PriorityClass) and kept.object.global_default:
            self._global_defaults[key] = kept.object
        waits = key.partition(".")[0] in NEEDED_BY_OTHERS
        if waits and kept.object.metadata.deletion_timestamp is not None:
            self.terminating.add(key)
        else:
            self.terminating.discard(key)

    def gone(self, key: str, revision: int) -> None:
        """Records that the object at the key was deleted, and the revision of the deletion."""
        self._kept.pop(key, None)
        self._by_kind.get(key.partition(".")[0], {}).pop(key, None)
        self._found.clear()
        self._global_defaults.pop(key, None)
        self.terminating.discard(key)
        self._gone[key] = revision

    def markers(self) -> Iterator[tuple[str, int]]:
        """The keys of deleted objects, with the revision of each deletion."""
        return iter(self._gone.items())

    def expected(self, key: str) -> int:
        """The revision that a put of the key must expect. A put of a deleted key must expect the
        revision of the delete marker."""
        kept = self._kept.get(key)
        return kept.revision if kept is not None else self._gone.get(key, 0)

    def _object(self, kind: type[_Kind], prefix: str, namespace: str, name: str) -> _Kind | None:
        if not name:
            return None
        parts = prefix, namespace, name
        known = self._found.get(parts, _UNKNOWN)
        if known is _UNKNOWN:
            kept = self._kept.get(object_key(prefix, namespace, name))
            known = kept.object if kept is not None else None
            short = len(namespace) + len(name) <= LONGEST
            if kept is not None or (short and len(self._found) < FOUND_MAX):
                self._found[parts] = known
        return known if isinstance(known, kind) else None

    def local_queue(self, namespace: str, name: str) -> LocalQueue | None:
        return self._object(LocalQueue, "localqueue", namespace, name)

    def cluster_queue(self, name: str) -> ClusterQueue | None:
        return self._object(ClusterQueue, "clusterqueue", "", name)

    def flavor(self, name: str) -> ResourceFlavor | None:
        return self._object(ResourceFlavor, "flavor", "", name)

    def check(self, name: str) -> AdmissionCheck | None:
        return self._object(AdmissionCheck, "admissioncheck", "", name)

    def priority_class(self, name: str) -> WorkloadPriorityClass | None:
        return self._object(WorkloadPriorityClass, "workloadpriorityclass", "", name)

    # The priority classes, as `PriorityClasses` names them.

    def workload_class(self, name: str) -> int | None:
        kept = self.priority_class(name)
        return kept.value if kept is not None else None

    def pod_class(self, name: str) -> int | None:
        kept = self._object(PriorityClass, POD_CLASSES, "", name)
        return kept.value if kept is not None else None

    def global_default(self) -> tuple[str, int] | None:
        """Name and value of the global default; the least value, if there are several."""
        if not self._global_defaults:
            return None
        defaults = [
            (default.value, default.metadata.name) for default in self._global_defaults.values()
        ]
        value, name = min(defaults)
        return name, value

    def parameters(self, check: AdmissionCheck) -> bytes:
        """The spec of the object that a check names, as JSON; null when that object is missing."""
        key = parameters_key(check)
        kept = self._kept.get(key) if key else None
        if kept is None:
            return b"null"
        return bytes(msgspec.json.decode(kept.value, type=_SpecOnly).spec)

    def missing_parameters(self, check: AdmissionCheck, coming: Container[str] = ()) -> str:
        """A sentence naming the missing parameters object of a check; "": the parameters object
        exists, or the check names none. ``coming``: keys of objects that are about to be written,
        which count as existing."""
        key = parameters_key(check)
        return (
            "" if not key or key in self._kept or key in coming else missing_parameters_text(check)
        )

    def checks_by_parameters(self, key: str) -> frozenset[str]:
        """The names of the AdmissionChecks with ``parameters`` that name the object at the key."""
        return frozenset(
            check.metadata.name
            for check in self.of_kind("admissioncheck")
            if parameters_key(check) == key
        )

    def of_kind(self, prefix: str) -> Iterator[Any]:
        """All objects of a kind, by the first part of their keys."""
        return (kept.object for kept in self._by_kind.get(prefix, {}).values())


def parameters_key(check: AdmissionCheck) -> str:
    """The key of the object that a check names in ``parameters``; "": the check names no object."""
    named = check.spec.parameters
    if named is None or not named.name:
        return ""
    ours = KINDS.get(named.kind)
    if ours is not None and named.api_group in (ours.group, GROUP):
        return object_key(ours.token, "", named.name)
    if named.api_group == GROUP:
        return object_key(named.kind.lower(), "", named.name)
    return object_key(f"{named.kind.lower()}.{named.api_group}", "", named.name)


def missing_parameters_text(check: AdmissionCheck) -> str:
    """The sentence that a check's parameters object is missing; "": the check names no such
    object."""
    named = check.spec.parameters
    if named is None:
        return ""
    ours = KINDS.get(named.kind)
    kind = (
        named.kind
        if ours is not None and named.api_group in (ours.group, GROUP)
        else f"{named.kind}.{named.api_group}"
    )
    return f"{kind} {named.name} doesn't exist"


class _SpecOnly(msgspec.Struct):
    spec: msgspec.Raw = msgspec.Raw(b"null")


def users_of(objects: Objects, catalog: Catalog, prefix: str, name: str) -> list[str]:
    """The objects that still use the named object. The named object is not deleted while other
    objects use it."""
    users = []
    if prefix == "flavor":
        for queue in objects.of_kind("clusterqueue"):
            groups = queue.spec.resource_groups
            if any(f.name == name for group in groups for f in group.flavors):
                users.append(f"ClusterQueue {queue.metadata.name}")
    elif prefix == "topology":
        for flavor in objects.of_kind("flavor"):
            if flavor.spec.topology_name == name:
                users.append(f"ResourceFlavor {flavor.metadata.name}")
    elif prefix == "admissioncheck":
        users += [f"ClusterQueue {queue}" for queue in catalog.users_of_check(name)]
    return users


STOPPING: Final = frozenset({"Hold", "HoldAndDrain"})


class ManifestQueueView:
    """Implements `admittance.workload.transition_context.QueueView` from the held manifests."""

    def __init__(self, objects: Objects, catalog: Catalog, limits: Limits) -> None:
        self._objects = objects
        self._catalog = catalog
        self.limits = limits
        self._rules: dict[str, tuple[ClusterQueueSpec, FamilyRules | None]] = {}

    def check(self, name: str) -> CheckRules | None:
        kept = self._objects.check(name)
        if kept is None:
            return None
        return check_rules(kept)._replace(missing=self._objects.missing_parameters(kept))

    def cluster_queue(self, namespace: str, queue: str) -> str:
        behind = self._behind(self._objects.local_queue(namespace, queue))
        return behind.metadata.name if behind is not None else ""

    def _behind(self, local: LocalQueue | None) -> ClusterQueue | None:
        return self._objects.cluster_queue(local.spec.cluster_queue) if local is not None else None

    def inactive_reason(self, namespace: str, queue: str) -> InactiveReason | None:
        if not queue:
            return InactiveReason(reasons.MISCONFIGURED, "The workload names no LocalQueue")
        local = self._objects.local_queue(namespace, queue)
        if local is None:
            return InactiveReason(reasons.MISCONFIGURED, f"LocalQueue {queue} doesn't exist")
        if local.metadata.deletion_timestamp is not None:
            return InactiveReason(reasons.MISCONFIGURED, f"LocalQueue {queue} is being deleted")
        behind = self._objects.cluster_queue(local.spec.cluster_queue)
        if behind is None and local.spec.stop_policy in STOPPING:
            return _stopped_local(local)
        if behind is None:
            return InactiveReason(
                reasons.MISCONFIGURED, f"ClusterQueue {local.spec.cluster_queue} doesn't exist"
            )
        if behind.metadata.deletion_timestamp is not None:
            return InactiveReason(
                reasons.MISCONFIGURED, f"ClusterQueue {local.spec.cluster_queue} is being deleted"
            )
        # A stopped ClusterQueue is reported before a stopped LocalQueue: the drain of a
        # ClusterQueue affects more workloads.
        name = behind.metadata.name
        if behind.spec.stop_policy in STOPPING:
            return InactiveReason(
                reasons.SUSPENDED,
                f"ClusterQueue {name} is stopped",
                behind.spec.stop_policy == "HoldAndDrain",
                reasons.CLUSTER_QUEUE_STOPPED,
            )
        return _stopped_local(local) if local.spec.stop_policy in STOPPING else None

    def required_checks(
        self, cluster_queue: str, admission: Admission | None
    ) -> tuple[RequiredCheck, ...]:
        if self._objects.cluster_queue(cluster_queue) is None:
            return ()
        try:
            required = self._catalog.required_checks(cluster_queue, admission)
        except ConflictingChecks:
            # The scheduler never assigns flavors with conflicting checks, but an edit of the queue
            # can cause such a conflict for an existing reservation. A reservation with conflicting
            # checks must pass every check that the queue has.
            named = self._catalog.lists[cluster_queue].names()
            required = {n: c for n in named if (c := self._objects.check(n)) is not None}
        return tuple(
            RequiredCheck(name, check.spec.controller_name)
            for name, check in sorted(required.items())
        )

    def named_checks(self, cluster_queue: str) -> frozenset[str]:
        lists = self._catalog.lists.get(cluster_queue)
        return frozenset(lists.names()) if lists is not None else frozenset()

    def edition(self, namespace: str, queue: str, check: str) -> str:
        local = self._objects.local_queue(namespace, queue)
        judged = self._objects.check(check)
        parts = [
            f"{manifest.metadata.uid}/{manifest.metadata.generation}"
            if manifest is not None
            else "none"
            for manifest in (local, self._behind(local), judged)
        ]
        kept = self._objects.get(parameters_key(judged)) if judged is not None else None
        parts.append(str(kept.revision) if kept is not None else "none")
        return blake2b(" ".join(parts).encode(), digest_size=6).hexdigest()

    def flavor(self, name: str) -> FlavorParts:
        return parts_of(self._objects, name)

    def not_offered(self, admission: Admission) -> tuple[str, ...]:
        queue = self._objects.cluster_queue(admission.cluster_queue)
        if queue is None:
            return ()
        offered = {
            (resource.name, flavor.name)
            for group in queue.spec.resource_groups
            for flavor in group.flavors
            for resource in flavor.resources
        }
        return tuple(
            sorted(
                {
                    flavor
                    for place in admission.pod_set_assignments
                    for resource, flavor in place.flavors.items()
                    if (resource, flavor) not in offered
                }
            )
        )

    def family_rules(self, namespace: str, queue: str) -> FamilyRules | None:
        if not self.limits.families:
            return None
        behind = self._behind(self._objects.local_queue(namespace, queue))
        if behind is None or behind.spec.concurrent_admission is None:
            return None
        name = behind.metadata.name
        known = self._rules.get(name)
        if known is None or known[0] is not behind.spec:
            # The rules are needed for every fact about a family, so they are computed once per
            # version of the queue.
            known = self._rules[name] = behind.spec, families_of(behind.spec)
        return known[1]


def parts_of(objects: Objects, flavor: str) -> FlavorParts:
    """What the ResourceFlavor ``flavor`` adds to pods; empty if the flavor does not exist."""
    kept = objects.flavor(flavor)
    if kept is None:
        return FlavorParts()
    return FlavorParts(kept.spec.node_labels, kept.spec.tolerations)


def _stopped_local(local: LocalQueue) -> InactiveReason:
    return InactiveReason(
        reasons.SUSPENDED,
        f"LocalQueue {local.metadata.name} is stopped",
        local.spec.stop_policy == "HoldAndDrain",
        reasons.LOCAL_QUEUE_STOPPED,
    )
