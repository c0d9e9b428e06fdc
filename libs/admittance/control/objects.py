"""The manifests other than workloads that the controller holds, and the writes that an apply makes.
Pure.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator
from datetime import datetime
from typing import Any, Final, NamedTuple

import msgspec
from msgspec.structs import replace

from admittance.api.checks import AdmissionCheck, Foreign, WorkloadPriorityClass
from admittance.api.kinds import GROUP, KINDS
from admittance.api.manifests import Manifest
from admittance.api.queues import ClusterQueue, LocalQueue, ResourceFlavor
from admittance.api.reading.manifest import encode
from admittance.events.applying import Applied
from admittance.events.names import uid_of
from admittance.events.subjects import object_key

NEEDED_BY_OTHERS: Final = frozenset({"admissioncheck", "clusterqueue", "flavor"})
"""Key prefixes of the kinds that are not deleted while another object uses them."""


class StoredObject(NamedTuple):
    """An object, the bytes it is stored as, and the revision of that."""

    object: Any
    value: bytes
    revision: int


class PlannedWrite(NamedTuple):
    """One object of an apply: the value to write (None: nothing), and the result to report."""

    key: str
    kind: str
    namespace: str
    name: str
    object: Any
    value: bytes | None
    expected: int
    told: Applied


def key_of(manifest: Manifest) -> str:
    """The bucket key of a manifest."""
    meta = manifest.metadata
    return object_key(prefix_of(manifest), meta.namespace, meta.name)


def prefix_of(manifest: Manifest) -> str:
    """The first part of its key: the kind, and for a foreign one its group, too."""
    return manifest.token if isinstance(manifest, Foreign) else KINDS[manifest.kind].token


class Objects:
    """All manifests but workloads, by bucket key."""

    def __init__(self) -> None:
        self._kept: dict[str, StoredObject] = {}
        self._gone: dict[str, int] = {}
        self.terminating: set[str] = set()
        """Keys of objects marked for deletion."""

    def __iter__(self) -> Iterator[tuple[str, StoredObject]]:
        return iter(self._kept.items())

    def get(self, key: str) -> StoredObject | None:
        """The object at that key."""
        return self._kept.get(key)

    def keep(self, key: str, kept: StoredObject) -> None:
        """The object at that key from now on."""
        self._kept[key] = kept
        self._gone.pop(key, None)
        waits = key.partition(".")[0] in NEEDED_BY_OTHERS
        if waits and kept.object.metadata.deletion_timestamp is not None:
            self.terminating.add(key)
        else:
            self.terminating.discard(key)

    def gone(self, key: str, revision: int) -> None:
        """The object at that key was deleted, at that revision."""
        self._kept.pop(key, None)
        self.terminating.discard(key)
        self._gone[key] = revision

    def markers(self) -> Iterator[tuple[str, int]]:
        """The keys of what was deleted, and when."""
        return iter(self._gone.items())

    def expected(self, key: str) -> int:
        """The revision that a put of that key must expect: a deleted key has its marker's."""
        kept = self._kept.get(key)
        return kept.revision if kept is not None else self._gone.get(key, 0)

    def _object(self, prefix: str, namespace: str, name: str) -> Any:
        if not name:
            return None
        kept = self._kept.get(object_key(prefix, namespace, name))
        return kept.object if kept is not None else None

    def local_queue(self, namespace: str, name: str) -> LocalQueue | None:
        found: LocalQueue | None = self._object("localqueue", namespace, name)
        return found

    def cluster_queue(self, name: str) -> ClusterQueue | None:
        found: ClusterQueue | None = self._object("clusterqueue", "", name)
        return found

    def flavor(self, name: str) -> ResourceFlavor | None:
        found: ResourceFlavor | None = self._object("flavor", "", name)
        return found

    def check(self, name: str) -> AdmissionCheck | None:
        found: AdmissionCheck | None = self._object("admissioncheck", "", name)
        return found

    def priority_class(self, name: str) -> WorkloadPriorityClass | None:
        found: WorkloadPriorityClass | None = self._object("workloadpriorityclass", "", name)
        return found

    def parameters(self, check: AdmissionCheck) -> bytes:
        """The spec of the object that a check names, as JSON; null when it is missing."""
        key = parameters_key(check)
        kept = self._kept.get(key) if key else None
        if kept is None:
            return b"null"
        return bytes(msgspec.json.decode(kept.value, type=_SpecOnly).spec)

    def missing_parameters(self, check: AdmissionCheck, coming: Container[str] = ()) -> str:
        """A sentence naming the missing parameters object of a check; "": it exists, or the check
        names none. ``coming``: keys about to be written."""
        key = parameters_key(check)
        return "" if not key or key in self._kept or key in coming else absence(check)

    def checks_by_parameters(self, key: str) -> frozenset[str]:
        """Names of the checks that name the object at that key as parameters."""
        return frozenset(
            check.metadata.name
            for check in self.of_kind("admissioncheck")
            if parameters_key(check) == key
        )

    def of_kind(self, prefix: str) -> Iterator[Any]:
        """All objects of a kind, by the first part of their keys."""
        start = f"{prefix}."
        for key, kept in self._kept.items():
            if key.startswith(start):
                yield kept.object


def parameters_key(check: AdmissionCheck) -> str:
    """The key of the object that a check names; "": it names none."""
    named = check.spec.parameters
    if named is None or not named.name:
        return ""
    if named.api_group.startswith(GROUP):
        ours = KINDS.get(named.kind)
        return object_key(ours.token if ours is not None else named.kind.lower(), "", named.name)
    return object_key(f"{named.kind.lower()}.{named.api_group}", "", named.name)


def absence(check: AdmissionCheck) -> str:
    """The sentence that a check's parameters are missing; "": it names none."""
    named = check.spec.parameters
    if named is None:
        return ""
    ours = named.api_group == GROUP and named.kind in KINDS
    kind = named.kind if ours else f"{named.kind}.{named.api_group}"
    return f"{kind} {named.name} doesn't exist"


class _SpecOnly(msgspec.Struct):
    spec: msgspec.Raw = msgspec.Raw(b"null")


def _content(manifest: Any) -> Any:
    """What an apply can change: everything but what the system fills in."""
    if isinstance(manifest, Foreign):
        return manifest.object
    bare = replace(
        manifest,
        metadata=replace(
            manifest.metadata,
            uid="",
            resource_version="",
            generation=0,
            creation_timestamp=None,
            managed_fields=None,
        ),
    )
    # The deletion time is compared: applying an object again takes its deletion mark off.
    return replace(bare, status=None) if hasattr(bare, "status") else bare


def plan(
    objects: Objects, manifests: Iterable[Manifest], *, now: datetime
) -> Iterator[PlannedWrite]:
    """The writes of an apply, in the order of the manifests."""
    for manifest in manifests:
        meta = replace(manifest.metadata, deletion_timestamp=None)
        manifest = replace(manifest, metadata=meta)  # noqa: PLW2901
        key = key_of(manifest)
        old = objects.get(key)
        told = Applied(
            kind=manifest.kind, namespace=meta.namespace, name=meta.name, outcome="created"
        )
        if isinstance(manifest, AdmissionCheck):
            # Only its controller sets the status.
            status = old.object.status if old is not None else None
            manifest = replace(manifest, status=status)  # noqa: PLW2901
        if old is None:
            filled = replace(
                manifest,
                metadata=replace(
                    meta,
                    uid=uid_of(f"{key}/{now.isoformat()}"),
                    generation=1,
                    creation_timestamp=now,
                    resource_version="",
                ),
            )
        elif _content(old.object) == _content(manifest):
            told = replace(told, outcome="unchanged", revision=old.revision)
            yield PlannedWrite(
                key, manifest.kind, meta.namespace, meta.name, old.object, None, old.revision, told
            )
            continue
        else:
            told = replace(told, outcome="changed")
            before = old.object.metadata
            filled = replace(
                manifest,
                metadata=replace(
                    meta,
                    uid=before.uid,
                    generation=before.generation + 1,
                    creation_timestamp=before.creation_timestamp,
                    resource_version="",
                ),
            )
        yield PlannedWrite(
            key,
            manifest.kind,
            meta.namespace,
            meta.name,
            filled,
            encode(filled),
            objects.expected(key),
            told,
        )


def users_of(objects: Objects, prefix: str, name: str) -> list[str]:
    """The objects that still use this one; it is not deleted while there are any."""
    users = []
    if prefix == "flavor":
        for queue in objects.of_kind("clusterqueue"):
            groups = queue.spec.resource_groups
            if any(f.name == name for group in groups for f in group.flavors):
                users.append(f"ClusterQueue {queue.metadata.name}")
    elif prefix == "admissioncheck":
        for queue in objects.of_kind("clusterqueue"):
            if name in checks_of(queue):
                users.append(f"ClusterQueue {queue.metadata.name}")
    return users


def checks_of(queue: ClusterQueue) -> set[str]:
    """Every check that a queue names, in any of the forms."""
    spec = queue.spec
    named = set(spec.admission_checks)
    if spec.admission_checks_strategy is not None:
        named |= {rule.name for rule in spec.admission_checks_strategy.admission_checks}
    for group in spec.resource_groups:
        for flavor in group.flavors:
            named |= set(flavor.admission_checks)
    return named
