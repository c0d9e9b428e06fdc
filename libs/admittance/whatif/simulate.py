"""Simulates a change of the bucket: takes the bucket's entries, manifests to apply and objects to
delete; returns the reply to the what-if request. The module is pure.

The workload-controller's functions check the manifests, so mistakes have the same texts as in a
real apply."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from datetime import datetime
from itertools import islice
from typing import Any, Final, NamedTuple, TypeVar

import msgspec
from msgspec.structs import replace

from admittance.api.fields.problems import ManifestError
from admittance.api.kinds import KINDS, SUBMITTED_KINDS, kind_named
from admittance.api.reading.from_job import with_name, workload_of
from admittance.api.reading.manifest import decode_object, encode
from admittance.api.workload import Job, Workload
from admittance.control.manifests.heartbeats import with_changed_parameters
from admittance.control.manifests.object_messages import message_about
from admittance.control.manifests.objects import StoredObject, key_of
from admittance.control.manifests.planned_writes import (
    deletion_mark,
    planned_writes,
    users_of_object,
)
from admittance.control.manifests.proposals import (
    Proposal,
    proposal,
    refusal_reasons,
    warnings_about,
)
from admittance.events import facts
from admittance.events.reader import BucketEntry
from admittance.events.requests.manifests import Applied, Delete
from admittance.events.requests.whatif import (
    REPLY_LISTS,
    Fit,
    Simulate,
    SimulateReply,
    WorkloadChange,
)
from admittance.events.subjects import object_key
from admittance.scheduling.state.config import Config
from admittance.whatif.bucket_copy import BucketCopy
from admittance.whatif.changed_workloads import change_workload, mistakes_in
from admittance.whatif.difference import Difference, baseline, new_problems, queue_problems
from admittance.workload.limits import Limits

PART_BYTES: Final = 500_000
"""The most bytes of rows in one message of a reply; a longer reply is split. NATS limits a message
to 1 MiB."""
SUFFIX: Final = "simulated"
"""Suffix of the name of a simulated workload with generateName; a real submission makes a random
suffix."""
T = TypeVar("T")


def simulate(
    entries: Sequence[BucketEntry],
    request: Simulate,
    config: Config,
    *,
    now: datetime,
    namespace: str = "",
    limits: Limits | None = None,
) -> SimulateReply:
    """Returns the reply to a what-if request. ``entries``: all entries of the bucket at one moment.
    ``namespace``: the only namespace that the request may change, and of which the reply lists
    workloads; "": all namespaces. ``limits``: the limits for workloads and manifests; None: the
    default limits."""
    try:
        change = change_of(request, namespace)
        return _try(entries, change, config, limits, now, namespace, request.limit)
    except InvalidChange as error:
        return SimulateReply(error=str(error), problems=error.problems)


def _try(
    entries: Sequence[BucketEntry],
    change: SimulatedChange,
    config: Config,
    limits: Limits | None,
    now: datetime,
    namespace: str,
    limit: int,
) -> SimulateReply:
    copy = BucketCopy(entries, config, now, limits)
    revision = copy.revision
    copy.settle()
    without, before = baseline(copy), queue_problems(copy)
    if copy.before:
        # The simulation without the change has written to the first copy of the bucket, so the
        # simulation with the change needs a new copy.
        copy = BucketCopy(entries, config, now, limits)
    copy.clear_records()
    results = perform(copy, change)
    copy.settle()
    difference = Difference(copy, without, namespace=namespace)
    return SimulateReply(
        revision=revision,
        results=tuple(results),
        warnings=tuple(new_problems(copy, before, difference.queues_of_new())),
        counts=difference.counts(),
        starts=_some(difference.starts(), limit),
        waits=_some(difference.waits(), limit),
        evictions=_some(difference.evictions(), limit),
        settled=not copy.cut_off,
    )


def _some(rows: Iterator[T], limit: int) -> tuple[T, ...]:
    return tuple(islice(rows, min(limit, sys.maxsize)) if limit > 0 else rows)


def in_parts(reply: SimulateReply, size: int = PART_BYTES) -> list[SimulateReply]:
    """Splits a reply into messages of limited size, in order. Each message has its own number and
    the count of all messages."""
    parts: list[dict[str, list[Any]]] = [{}]
    room = size
    for name in REPLY_LISTS:
        for row in getattr(reply, name):
            length = len(msgspec.json.encode(row)) + 1
            if length > room and parts[-1]:
                parts.append({})
                room = size
            parts[-1].setdefault(name, []).append(row)
            room -= length
    bare = replace(reply, **dict.fromkeys(REPLY_LISTS, ()))
    return [
        replace(
            bare if number == 1 else SimulateReply(),
            part=number,
            parts=len(parts),
            **{name: tuple(rows) for name, rows in part.items()},
        )
        for number, part in enumerate(parts, 1)
    ]


class InvalidChange(Exception):
    """The change in a what-if request is not possible. ``problems``: the mistakes in the manifests
    of the request, one line for each; empty: the error text says why the change is not possible."""

    def __init__(self, *problems: str, because: str = "") -> None:
        super().__init__(because or problems[0])
        self.problems = problems


class SimulatedChange(NamedTuple):
    """A change to simulate. ``objects``: the manifests to apply, except workloads; ``submissions``:
    the workloads to submit; ``deletes``: the objects to delete; ``changes``: other priorities and
    queues of workloads."""

    objects: Proposal
    submissions: list[Workload]
    deletes: tuple[Delete, ...]
    changes: tuple[WorkloadChange, ...]


class _Head(msgspec.Struct, rename="camel"):
    api_version: str = ""
    kind: str = ""


def _is_submitted(raw: msgspec.Raw) -> bool:
    """Whether the manifest is a Workload or a Job of our API groups. A foreign kind may have the
    same name."""
    try:
        head = msgspec.json.decode(raw, type=_Head)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return False  # `proposal` says what is wrong with the manifest.
    return head.kind in SUBMITTED_KINDS and head.api_version in KINDS[head.kind].versions


def change_of(request: Simulate, namespace: str = "") -> SimulatedChange:
    """Reads the manifests and deletions in a what-if request; returns them as the change to
    simulate. ``namespace``: the only namespace that the objects may have; "": any namespace. Raises
    InvalidChange if the request has mistakes."""
    objects: list[tuple[int, msgspec.Raw]] = []
    submissions: list[Workload] = []
    problems: list[str] = []
    for number, raw in enumerate(request.objects, 1):
        if not _is_submitted(raw):
            objects.append((number, raw))
            continue
        try:
            workload = _submission(raw, namespace, f"object {number}")
        except ManifestError as error:
            problems += error.lines()
            continue
        if not workload.metadata.name:
            problems.append(f"object {number}: metadata.name: must be set")
        elif namespace and workload.metadata.namespace != namespace:
            problems.append(f"object {number}: is not in the namespace {namespace}")
        submissions.append(workload)
    proposed = proposal(objects, namespace)
    problems += proposed.problems
    for obj in request.deletes:
        kind = kind_named(obj.kind)
        if not obj.kind or not obj.name or (kind and kind.namespaced and not obj.namespace):
            problems.append(f"{obj.kind} {obj.name}: a deletion needs kind, name, and namespace")
        elif namespace and obj.namespace != namespace:
            problems.append(f"{obj.kind} {obj.name}: is not in the namespace {namespace}")
    problems += mistakes_in(request.changes, namespace)
    if problems:
        raise InvalidChange(*problems)
    return SimulatedChange(proposed, submissions, request.deletes, request.changes)


def _submission(raw: msgspec.Raw, namespace: str, document: str) -> Workload:
    """Returns the workload in a submitted manifest. The workload is validated later, when it is
    submitted. Raises ManifestError if the manifest is invalid."""
    manifest = decode_object(raw, namespace=namespace or "default", document=document).manifest
    if isinstance(manifest, Job):
        return workload_of(manifest, suffix=SUFFIX)
    assert isinstance(manifest, Workload), manifest.kind
    return replace(manifest, metadata=with_name(manifest.metadata, SUFFIX))


def perform(copy: BucketCopy, change: SimulatedChange) -> list[Applied]:
    """Applies a simulated change to a copy of the bucket. Returns the outcome of each manifest,
    then of each submission, of each changed workload, and of each deletion. Raises InvalidChange if
    the simulated change is not possible; the bucket copy is then half changed and must not be used.
    """
    results = list(_apply(copy, change.objects))
    results += _submit(copy, change.submissions)
    for changed in change.changes:
        problem = change_workload(copy, changed)
        if problem:
            raise InvalidChange(because=problem)
        results.append(
            Applied(
                kind="Workload",
                namespace=changed.namespace,
                name=changed.workload,
                outcome="changed",
            )
        )
    results += [_delete(copy, deletion) for deletion in change.deletes]
    return results


def _apply(copy: BucketCopy, proposed: Proposal) -> Iterator[Applied]:
    objects = copy.controller.objects
    planned = list(planned_writes(objects, proposed.manifests, now=copy.now))
    limits = copy.controller.queues.limits
    problems = refusal_reasons(objects, planned, limits)
    if problems:
        raise InvalidChange(*problems)
    written: list[tuple[StoredObject, StoredObject | None]] = []
    for write in planned:
        if write.value is not None:
            before = objects.get(write.key)
            revision = copy.put_object(write.key, write.object, write.value)
            written.append((StoredObject(write.object, write.value, revision), before))
    # All manifests are written to the bucket copy before the message about the first of them is
    # folded and affects workloads.
    for kept, before in written:
        message = message_about(copy.controller, kept, before=before)
        copy.apply_message(message.subject, message.data)
    _update_checks(copy)
    for write, warnings in zip(planned, proposed.warnings, strict=True):
        more = warnings_about(write, copy.controller)
        yield replace(write.result, revision=0, warnings=(*warnings, *more))


def _update_checks(copy: BucketCopy) -> None:
    """Updates the condition Active of each AdmissionCheck in the bucket copy if the check's
    parameters object was created or deleted."""
    for check in with_changed_parameters(copy.controller.objects, copy.now):
        key, value = key_of(check), encode(check)
        before = copy.controller.objects.get(key)
        kept = StoredObject(check, value, copy.put_object(key, check, value))
        message = message_about(copy.controller, kept, before=before)
        copy.apply_message(message.subject, message.data)


def _submit(copy: BucketCopy, submissions: list[Workload]) -> Iterator[Applied]:
    submitted = [
        facts.Submitted(
            namespace=manifest.metadata.namespace,
            name=manifest.metadata.name,
            time=copy.now,
            workload=msgspec.Raw(encode(manifest)),
        )
        for manifest in submissions
    ]
    for fact, reply in zip(submitted, copy.apply_facts(*submitted), strict=True):
        applied = Applied(
            kind="Workload", namespace=fact.namespace, name=fact.name, outcome="created"
        )
        if reply.outcome == "ignored":
            applied = replace(applied, outcome="unchanged")
        elif reply.outcome != "applied":
            applied = replace(
                applied, outcome="refused", warnings=(f"{reply.reason}: {reply.message}",)
            )
        elif misfit := copy.scheduler.fit(Fit(workload=fact.workload), fact.namespace).machines:
            applied = replace(applied, warnings=(misfit,))
        yield applied


def _delete(copy: BucketCopy, request: Delete) -> Applied:
    kind = kind_named(request.kind)
    prefix = kind.token if kind is not None else request.kind.lower()
    applied = Applied(
        kind=kind.name if kind is not None else request.kind,
        namespace=request.namespace,
        name=request.name,
        outcome="deleted",
    )
    object_name = (
        f"{applied.kind} {f'{applied.namespace}/' if applied.namespace else ''}{applied.name}"
    )
    if prefix == "workload":
        if not copy.has_workload((request.namespace, request.name)):
            raise InvalidChange(because=f"{object_name} not found")
        copy.apply_facts(
            facts.Deleted(namespace=request.namespace, name=request.name, time=copy.now)
        )
        return applied
    key = object_key(prefix, request.namespace, request.name)
    controller = copy.controller
    kept = controller.objects.get(key)
    if kept is None:
        raise InvalidChange(because=f"{object_name} not found")
    needed = users_of_object(controller, prefix, request.name)
    if needed:
        planned = deletion_mark(key, kept, copy.now)
        value = planned.value or b""
        revision = copy.put_object(key, planned.object, value)
        message = message_about(controller, StoredObject(planned.object, value, revision))
        copy.apply_message(message.subject, message.data)
        sentence = f"it is deleted once nothing uses it: {', '.join(needed[:5])}"
        return replace(applied, outcome="terminating", warnings=(sentence,))
    revision = copy.put_object(key, None, b"")
    message = message_about(controller, kept._replace(revision=revision), deleted=True)
    copy.apply_message(message.subject, message.data)
    _update_checks(copy)
    return applied
