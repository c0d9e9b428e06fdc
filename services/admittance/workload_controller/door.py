"""The door: a submission is decoded, filled in, validated once, and after that never again."""

from __future__ import annotations

from typing import Final

import msgspec
from msgspec.structs import replace

from admittance.api.manifest import accept
from admittance.api.problems import ManifestError
from admittance.api.stored_form import to_stored
from admittance.api.validate_pods import exceeding
from admittance.api.words import Role
from admittance.api.workload import PARENT_VARIANT, Workload
from admittance.events import facts
from admittance.workload.arrive import Arrived
from admittance.workload.surroundings import Surroundings
from admittance.workload_controller.objects import Objects

WORKLOAD_MAX: Final = 512 * 1024
"""Bytes of metadata and spec. Status, what checks add and what is said of it need room, too, in the
server's message of 1 MiB."""


class Unfit(ValueError):
    """A submission that is no valid workload; the text says why, in one line."""


def open_door(fact: facts.Submitted, objects: Objects, around: Surroundings) -> Arrived:
    """The submission as a fact that the moves take. Raises Unfit.

    Where only a priority class is named, its value is looked up here: the number is what counts
    from then on. Who is a parent is decided here, too, whatever the submission says of it.
    """

    def value_of(name: str) -> int:
        found = objects.priority_class(name)
        if found is None:
            raise Unfit(f"WorkloadPriorityClass {name} doesn't exist")
        return found.value

    try:
        manifest, _ = accept(fact.workload, namespace=fact.namespace, priority_of=value_of)
    except ManifestError as error:
        raise Unfit(str(error)) from error
    if not isinstance(manifest, Workload):
        raise Unfit(f"a {manifest.kind} was submitted, a Workload is wanted")
    above = exceeding(manifest.spec)
    if above:
        # It would wait for ever: better told at once.
        raise Unfit("; ".join(str(problem) for problem in above))
    meta = manifest.metadata
    if meta.name not in ("", fact.name) or meta.namespace not in ("", fact.namespace):
        raise Unfit(
            f"the manifest is of {meta.namespace}/{meta.name}, "
            f"the message of {fact.namespace}/{fact.name}"
        )
    manifest, remark = in_role(manifest, fact.namespace, around)
    meta = manifest.metadata
    spec = to_stored(manifest)
    if len(fact.workload) > WORKLOAD_MAX // 4:
        length = len(spec) + len(msgspec.json.encode(meta))
        if length > WORKLOAD_MAX:
            raise Unfit(f"the workload is {length} bytes long, {WORKLOAD_MAX} are allowed")
    return Arrived(
        namespace=fact.namespace,
        name=fact.name,
        uid=fact.uid,
        api_version=manifest.api_version,
        metadata=meta,
        spec=msgspec.Raw(spec),
        remark=remark,
    )


def in_role(manifest: Workload, namespace: str, around: Surroundings) -> tuple[Workload, str]:
    """The workload as its queue makes it, regular or a parent, and what is to be said of that."""
    spec, meta = manifest.spec, manifest.metadata
    role: Role = "regular"
    remark = ""
    if around.family_rules(namespace, spec.queue_name) is not None:
        if any(one.min_count is not None for one in spec.pod_sets):
            remark = "No variants are made of a workload with minCount: it is a regular one"
        else:
            role = "parent"
    notes = meta.annotations
    if (PARENT_VARIANT in notes) != (role == "parent"):
        notes = {k: v for k, v in notes.items() if k != PARENT_VARIANT}
        if role == "parent":
            notes[PARENT_VARIANT] = "true"
    if spec.role == role and notes is meta.annotations:
        return manifest, remark
    return (
        replace(
            manifest,
            metadata=replace(meta, annotations=notes),
            spec=replace(spec, role=role),
        ),
        remark,
    )
