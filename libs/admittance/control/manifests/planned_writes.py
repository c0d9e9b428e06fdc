"""The writes that an apply or a deletion of manifests makes. The module is pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Any, NamedTuple

from msgspec.structs import replace

from admittance.api.checks import AdmissionCheck, Foreign
from admittance.api.manifests import Manifest
from admittance.api.meta import with_user
from admittance.api.reading.manifest import encode
from admittance.api.runners import Runner
from admittance.control.controller import Controller
from admittance.control.manifests.objects import Objects, StoredObject, key_of, users_of
from admittance.events.names import uid_of
from admittance.events.requests.manifests import Applied, DeleteReply
from admittance.workload.phase import holds_quota


def users_of_object(controller: Controller, prefix: str, name: str) -> list[str]:
    """Names everything that still uses the object. While something uses the object, the object is
    not deleted: for example, a ClusterQueue is kept while workloads hold its quota."""
    users = users_of(controller.objects, controller.catalog, prefix, name)
    if prefix != "clusterqueue":
        return users
    return users + [
        f"Workload {known.workload.metadata.namespace}/{known.workload.metadata.name}"
        for _, known in controller.workloads.items()
        if known.workload is not None
        and known.workload.status.admission is not None
        and known.workload.status.admission.cluster_queue == name
        and holds_quota(known.workload)
    ]


def deletion_mark(key: str, kept: StoredObject, now: datetime, user: str = "") -> PlannedWrite:
    """The write that marks the object for deletion. ``user``: the user that asks for the deletion;
    "": unknown."""
    meta = replace(with_user(kept.object.metadata, user), deletion_timestamp=now)
    going = replace(kept.object, metadata=meta)
    return planned_write(key, going, kept.revision, "terminating")


class PlannedDeletion(NamedTuple):
    """What a request to delete an object does: answers with ``reply``, and marks the object for
    deletion (``mark``) or removes the unused object (``unneeded``)."""

    reply: DeleteReply
    mark: PlannedWrite | None = None
    unneeded: StoredObject | None = None


def planned_deletion(
    controller: Controller, key: str, *, now: datetime, user: str = ""
) -> PlannedDeletion:
    """Plans the deletion of the object at the key. The deletion is deferred while something uses
    the object; a repeated request does not mark the object again. ``user``: the user that asks for
    the deletion; "": unknown."""
    kept = controller.objects.get(key)
    if kept is None:
        return PlannedDeletion(DeleteReply(outcome="absent"))
    name = kept.object.metadata.name
    users = users_of_object(controller, key.partition(".")[0], name)
    if not users:
        return PlannedDeletion(DeleteReply(outcome="deleted"), unneeded=kept)
    marked = key in controller.objects.terminating
    return PlannedDeletion(
        DeleteReply(outcome="deferred", error=f"still in use by {', '.join(users[:5])}"),
        mark=None if marked else deletion_mark(key, kept, now, user),
    )


def unneeded_objects(controller: Controller) -> list[tuple[str, StoredObject]]:
    """The objects marked for deletion that nothing uses any more."""
    unneeded = []
    for key in sorted(controller.objects.terminating):
        kept = controller.objects.get(key)
        prefix = key.partition(".")[0]
        if kept is None or users_of_object(controller, prefix, kept.object.metadata.name):
            continue
        unneeded.append((key, kept))
    return unneeded


class PlannedWrite(NamedTuple):
    """One object of an apply: the value to write (None: nothing is written), and the result to
    report for the object."""

    key: str
    object: Any
    value: bytes | None
    expected: int
    result: Applied

    @property
    def kind(self) -> str:
        kind: str = self.object.kind
        return kind

    @property
    def name(self) -> str:
        name: str = self.object.metadata.name
        return name


def planned_write(key: str, manifest: Any, expected: int, outcome: str) -> PlannedWrite:
    """The write of a manifest. ``outcome``: the word in the reported result, such as "created"."""
    meta = manifest.metadata
    result = Applied(kind=manifest.kind, namespace=meta.namespace, name=meta.name, outcome=outcome)
    return PlannedWrite(key, manifest, encode(manifest), expected, result)


def _content(manifest: Any) -> Any:
    """The part of a manifest that an apply can change: without the fields that the system fills
    in."""
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
    bare = replace(bare, metadata=with_user(bare.metadata, ""))
    # The deletion time is compared too, because applying an object again removes its deletion mark.
    return replace(bare, status=None) if hasattr(bare, "status") else bare


def planned_writes(
    objects: Objects, manifests: Iterable[Manifest], *, now: datetime, user: str = ""
) -> Iterator[PlannedWrite]:
    """Yields the write of each manifest in an apply, in the order of the manifests. ``user``: the
    user that applies the manifests; "": unknown."""
    for manifest in manifests:
        meta = replace(
            with_user(manifest.metadata, user),
            deletion_timestamp=None,
            deletion_grace_period_seconds=None,
            managed_fields=None,
            self_link="",
        )
        manifest = replace(manifest, metadata=meta)  # noqa: PLW2901
        key = key_of(manifest)
        old = objects.get(key)
        if hasattr(manifest, "status"):
            # A user never sets a status. Only those of checks and runners are stored.
            kept = old if isinstance(manifest, AdmissionCheck | Runner) else None
            status = kept.object.status if kept is not None else None
            manifest = replace(manifest, status=status)  # noqa: PLW2901
        if old is not None and _content(old.object) == _content(manifest):
            same = planned_write(key, old.object, old.revision, "unchanged")
            result = replace(same.result, revision=old.revision)
            yield same._replace(value=None, result=result)
            continue
        before = old.object.metadata if old is not None else None
        meta = replace(
            meta,
            uid=before.uid if before else uid_of(f"{key}/{now.isoformat()}"),
            generation=before.generation + 1 if before else 1,
            creation_timestamp=before.creation_timestamp if before else now,
            resource_version="",
        )
        outcome = "changed" if before else "created"
        yield planned_write(key, replace(manifest, metadata=meta), objects.expected(key), outcome)
