"""What somebody wants applied or deleted, and what speaks against it. Pure.

The endpoints ask before they write, and whoever wants to know what would follow asks the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any, Final, NamedTuple

import msgspec
from msgspec.structs import replace

from admittance.api.checks import AdmissionCheck
from admittance.api.kinds import KINDS, Manifest
from admittance.api.problems import ManifestError
from admittance.api.queues import ClusterQueue, conflicts
from admittance.api.reading.manifest import accept, encode
from admittance.api.validation.concurrent_admission import FLAVORS_MAX, check_flavors
from admittance.api.validation.validate import validate_update
from admittance.api.workload import Workload
from admittance.control.commit import Message
from admittance.control.controller_state import ControllerState
from admittance.control.known import Workloads
from admittance.control.objects import Objects, PlannedWrite, StoredObject, prefix_of, users_of
from admittance.events.applying import Applied
from admittance.events.reading import Unreadable
from admittance.events.subjects import applied_subject
from admittance.events.system import ObjectApplied
from admittance.workload.limits import Limits
from admittance.workload.phase import holds_quota
from admittance.workload.reading import names_of

PARAMETERS_MAX: Final = 400_000
"""Bytes. A check is told its parameters together with the workload, in one message of 1 MiB."""


class Proposal(NamedTuple):
    """Manifests that are valid by themselves, and the warnings of each. ``problems``: lines about
    those that are not."""

    manifests: list[Manifest]
    warnings: list[tuple[str, ...]]
    problems: list[str]


def proposal(numbered: Iterable[tuple[int, msgspec.Raw]], namespace: str) -> Proposal:
    """The manifests, each with the number that errors call it by, as typed values. ``namespace``
    "": of any namespace."""
    found = Proposal([], [], [])
    for number, raw in numbered:
        try:
            accepted = accept(
                raw, namespace=namespace, document=f"object {number}", flavors_max=FLAVORS_MAX
            )
        except ManifestError as error:
            found.problems.extend(error.lines())
            continue
        manifest = accepted.manifest
        if isinstance(manifest, Workload):
            found.problems.append(f"object {number}: a Workload is submitted, not applied")
        elif namespace and manifest.metadata.namespace != namespace:
            found.problems.append(f"object {number}: is not of the namespace {namespace}")
        found.warnings.append(accepted.warnings)
        found.manifests.append(manifest)
    return found


def objections(objects: Objects, planned: Iterable[PlannedWrite], limits: Limits) -> list[str]:
    """What forbids to write what is planned over what is there, or beyond the limits that are set,
    a line each."""
    every = list(planned)
    named = {one.name: one.object for one in every if one.kind == "AdmissionCheck"}

    def controller_of(check: str) -> str | None:
        found = named.get(check) or objects.check(check)
        return None if found is None else str(found.spec.controller_name)

    return [
        line
        for one in every
        for line in _objections(objects, one, controller_of, limits.flavors_max)
    ]


def cautions(planned: PlannedWrite, limits: Limits, objects: Objects) -> tuple[str, ...]:
    """What somebody who applies it should know. ``objects``: with all that is applied with it."""
    said = planned.object
    if isinstance(said, AdmissionCheck):
        missing = objects.missing_parameters(said)
        if not missing:
            return ()
        return (
            f"spec.parameters: {missing}: until then the check is inactive, "
            "and its queues reserve nothing",
        )
    if not isinstance(said, ClusterQueue) or said.spec.concurrent_admission is None:
        return ()
    if limits.families:
        return ()
    return (
        "spec.concurrentAdmission is kept and has no effect: "
        "the gate ConcurrentAdmission is off, and every workload is regular",
    )


def _objections(
    objects: Objects,
    planned: PlannedWrite,
    controller_of: Callable[[str], str | None],
    flavors_max: int,
) -> list[str]:
    length = len(planned.value or b"")
    if length > PARAMETERS_MAX and planned.kind not in ("ClusterQueue", "Cohort"):
        sentence = f"is {length} bytes long, {PARAMETERS_MAX} are allowed"
        return [f"{planned.kind} {planned.name}: {sentence}"]
    old = objects.get(planned.key)
    if planned.value is None:
        return []
    problems = [] if old is None else validate_update(old.object, planned.object)
    if isinstance(planned.object, ClusterQueue):
        # What was there before is no fault of this change: the queue is inactive, and says so.
        before = [] if old is None else conflicts(old.object.spec, controller_of)
        told = {problem.message for problem in before}
        found = conflicts(planned.object.spec, controller_of)
        problems += [problem for problem in found if problem.message not in told]
        if old is not None and check_flavors(old.object.spec, flavors_max):
            # Taken in when more were allowed: it may stay so, or become less.
            flavors_max = len(old.object.spec.resource_groups[0].flavors)
        problems += check_flavors(planned.object.spec, flavors_max)
    return [f"{planned.kind} {planned.name}: {problem}" for problem in problems]


def users(objects: Objects, workloads: Workloads, prefix: str, name: str) -> list[str]:
    """Who still needs the object, so that it is not deleted: a ClusterQueue is kept while
    workloads hold its quota."""
    found = users_of(objects, prefix, name)
    if prefix != "clusterqueue":
        return found
    return found + [
        f"Workload {known.workload.metadata.namespace}/{known.workload.metadata.name}"
        for _, known in workloads.items()
        if known.workload is not None
        and known.workload.status.admission is not None
        and known.workload.status.admission.cluster_queue == name
        and holds_quota(known.workload)
    ]


def marked(key: str, kept: StoredObject, now: datetime) -> PlannedWrite:
    """The object as one that is to go."""
    meta = replace(kept.object.metadata, deletion_timestamp=now)
    going = replace(kept.object, metadata=meta)
    told = Applied(kind=going.kind, namespace=meta.namespace, name=meta.name, outcome="terminating")
    return PlannedWrite(
        key, going.kind, meta.namespace, meta.name, going, encode(going), kept.revision, told
    )


def unneeded(controller: ControllerState) -> list[tuple[str, StoredObject]]:
    """The marked objects that nobody needs any more."""
    found = []
    for key in sorted(controller.objects.terminating):
        kept = controller.objects.get(key)
        prefix = key.partition(".")[0]
        if kept is None or users(
            controller.objects, controller.workloads, prefix, kept.object.metadata.name
        ):
            continue
        found.append((key, kept))
    return found


_encode = msgspec.json.Encoder().encode


def statement(
    controller: ControllerState,
    kept: StoredObject,
    *,
    before: StoredObject | None = None,
    deleted: bool = False,
) -> Message:
    """``admit.object.applied`` or ``deleted`` of a manifest. ``before``: as it was; None: it was
    not there, or nobody knows."""
    manifest = kept.object
    meta = manifest.metadata
    said = ObjectApplied(
        kind=manifest.kind,
        namespace=meta.namespace,
        name=meta.name,
        revision=kept.revision,
        object=msgspec.Raw(kept.value),
        parameters_changed=names_others(before, manifest),
    )
    subject = applied_subject(prefix_of(manifest), meta.namespace, meta.name, deleted=deleted)
    return _message(controller, subject, said)


def names_others(before: StoredObject | None, manifest: Any) -> bool:
    """It is an AdmissionCheck that names other parameters than before, as far as anybody knows."""
    if not isinstance(manifest, AdmissionCheck):
        return False
    return before is None or before.object.spec.parameters != manifest.spec.parameters


def _message(controller: ControllerState, subject: str, said: ObjectApplied) -> Message:
    identity = controller.message_builder.identity(f"{subject}/{said.revision}")
    return Message(subject, _encode(said), identity)


def ending(controller: ControllerState, key: str, revision: int) -> Message | None:
    """``admit.object.deleted`` from the marker alone; None: it is no kind of ours, or no object has
    such a key."""
    prefix = key.partition(".")[0]
    kind = next((one for one in KINDS.values() if one.token == prefix), None)
    if kind is None:
        return None
    try:
        namespace, name = names_of(key)
    except Unreadable:
        return None
    said = ObjectApplied(kind=kind.name, namespace=namespace, name=name, revision=revision)
    return _message(controller, applied_subject(prefix, namespace, name, deleted=True), said)


def statements(controller: ControllerState) -> Iterator[tuple[int, Message]]:
    """What the log must have been told of every manifest, deleted ones included, each with its
    revision; an older word of the same subject does not tell it."""
    for _, kept in controller.objects:
        yield kept.revision, statement(controller, kept)
    for key, revision in controller.objects.markers():
        said = ending(controller, key, revision)
        if said is not None:
            yield revision, said


def learn(
    controller: ControllerState,
    key: str,
    value: bytes | None,
    revision: int,
    headers: Mapping[str, str],
) -> Message | None:
    """Loads an entry of the bucket that somebody else wrote, or we without hearing that it was
    written. What is to be said of it; None: it was known."""
    known, before = controller.objects.expected(key), controller.objects.get(key)
    controller.load(key, value, revision, headers)
    if revision <= known:
        return None
    kept = controller.objects.get(key)
    if kept is not None:
        return statement(controller, kept, before=before)
    return ending(controller, key, revision)
