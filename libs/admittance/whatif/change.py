"""The simulated change: manifests and deletions as values, and how a copy gets them.

Mistakes are found by the same functions as in the workload-controller, with the same texts.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from admittance.api.kinds import kind_named
from admittance.api.problems import ManifestError
from admittance.api.reading.from_job import named, workload_of
from admittance.api.reading.manifest import decode_object, encode
from admittance.api.workload import Job, Workload
from admittance.control.heartbeats import by_parameters
from admittance.control.manifest_changes import (
    Proposal,
    cautions,
    marked,
    objections,
    proposal,
    statement,
    users,
)
from admittance.control.objects import StoredObject, key_of, plan
from admittance.events import facts
from admittance.events.applying import Applied, Delete
from admittance.events.subjects import object_key
from admittance.events.whatif import Simulate
from admittance.whatif.copy import Copy

SUFFIX = "simulated"
"""Suffix for a generateName; the real one would be random."""
WORKLOAD_KINDS = frozenset({"Workload", "Job"})


class InvalidChange(Exception):
    """The change is not possible. ``problems``: mistakes in manifests, a line each; if empty, the
    text says what prevents the change."""

    def __init__(self, *problems: str, because: str = "") -> None:
        super().__init__(because or problems[0])
        self.problems = problems


class Change(NamedTuple):
    """``objects``: all manifests except workloads, which are ``submissions``."""

    objects: Proposal
    submissions: list[Workload]
    deletes: tuple[Delete, ...]


class _Kind(msgspec.Struct):
    kind: str = ""


def change_of(request: Simulate, namespace: str = "") -> Change:
    """The change in the request. ``namespace``: everything must be in it. Raises InvalidChange."""
    objects: list[tuple[int, msgspec.Raw]] = []
    submissions: list[Workload] = []
    problems: list[str] = []
    for number, raw in enumerate(request.objects, 1):
        try:
            spelled = msgspec.json.decode(raw, type=_Kind).kind
        except msgspec.MsgspecError:
            spelled = ""
        if spelled not in WORKLOAD_KINDS:
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
            problems.append(f"object {number}: is not of the namespace {namespace}")
        submissions.append(workload)
    proposed = proposal(objects, namespace)
    problems += proposed.problems
    for one in request.deletes:
        kind = kind_named(one.kind)
        if not one.kind or not one.name or (kind and kind.namespaced and not one.namespace):
            problems.append(f"{one.kind} {one.name}: a deletion needs kind, name, and namespace")
        elif namespace and one.namespace != namespace:
            problems.append(f"{one.kind} {one.name}: is not of the namespace {namespace}")
    if problems:
        raise InvalidChange(*problems)
    return Change(proposed, submissions, request.deletes)


def _submission(raw: msgspec.Raw, namespace: str, document: str) -> Workload:
    """The workload in a manifest. Raises ManifestError. It is validated later, as submitted."""
    manifest = decode_object(raw, namespace=namespace or "default", document=document).manifest
    if isinstance(manifest, Job):
        return workload_of(manifest, suffix=SUFFIX)
    assert isinstance(manifest, Workload), manifest.kind
    return replace(manifest, metadata=named(manifest.metadata, SUFFIX))


def perform(copy: Copy, change: Change) -> list[Applied]:
    """Applies the change to the copy; returns the outcome for each object, in this order:
    manifests, submissions, deletions. Raises InvalidChange; the copy is unusable then."""
    results = list(_apply(copy, change.objects))
    results += _submit(copy, change.submissions)
    results += [_delete(copy, one) for one in change.deletes]
    return results


def _apply(copy: Copy, proposed: Proposal) -> Iterator[Applied]:
    objects = copy.controller.objects
    planned = list(plan(objects, proposed.manifests, now=copy.now))
    limits = copy.controller.queues.limits
    problems = objections(objects, planned, limits)
    if problems:
        raise InvalidChange(*problems)
    written: list[StoredObject] = []
    for one in planned:
        if one.value is not None:
            revision = copy.put_object(one.key, one.object, one.value)
            written.append(StoredObject(one.object, one.value, revision))
    # All objects are written before any has an effect.
    for kept in written:
        said = statement(copy.controller, kept)
        copy.state(said.subject, said.data)
    _update_checks(copy)
    for one, warnings in zip(planned, proposed.warnings, strict=True):
        more = cautions(one, limits, objects)
        yield replace(one.told, revision=0, warnings=(*warnings, *more))


def _update_checks(copy: Copy) -> None:
    """Updates the Active condition of AdmissionChecks when their parameters come or go."""
    for check in by_parameters(copy.controller.objects, copy.now):
        key, value = key_of(check), encode(check)
        before = copy.controller.objects.get(key)
        kept = StoredObject(check, value, copy.put_object(key, check, value))
        said = statement(copy.controller, kept, before=before)
        copy.state(said.subject, said.data)


def _submit(copy: Copy, submissions: list[Workload]) -> Iterator[Applied]:
    submitted = [
        facts.Submitted(
            namespace=one.metadata.namespace,
            name=one.metadata.name,
            time=copy.now,
            workload=msgspec.Raw(encode(one)),
        )
        for one in submissions
    ]
    for fact, reply in zip(submitted, copy.say(submitted), strict=True):
        told = Applied(kind="Workload", namespace=fact.namespace, name=fact.name, outcome="created")
        if reply.outcome == "ignored":
            told = replace(told, outcome="unchanged")
        elif reply.outcome != "applied":
            told = replace(told, outcome="refused", warnings=(f"{reply.reason}: {reply.message}",))
        yield told


def _delete(copy: Copy, request: Delete) -> Applied:
    kind = kind_named(request.kind)
    prefix = kind.token if kind is not None else request.kind.lower()
    told = Applied(
        kind=kind.name if kind is not None else request.kind,
        namespace=request.namespace,
        name=request.name,
        outcome="deleted",
    )
    about = f"{told.kind} {f'{told.namespace}/' if told.namespace else ''}{told.name}"
    if prefix == "workload":
        if not copy.has_workload((request.namespace, request.name)):
            raise InvalidChange(because=f"{about} not found")
        copy.say([facts.Deleted(namespace=request.namespace, name=request.name, time=copy.now)])
        return told
    key = object_key(prefix, request.namespace, request.name)
    controller = copy.controller
    kept = controller.objects.get(key)
    if kept is None:
        raise InvalidChange(because=f"{about} not found")
    needed = users(controller.objects, controller.workloads, prefix, request.name)
    if needed:
        planned = marked(key, kept, copy.now)
        value = planned.value or b""
        revision = copy.put_object(key, planned.object, value)
        said = statement(controller, StoredObject(planned.object, value, revision))
        copy.state(said.subject, said.data)
        sentence = f"it disappears only when nothing needs it: {', '.join(needed[:5])}"
        return replace(told, outcome="terminating", warnings=(sentence,))
    revision = copy.put_object(key, None, b"")
    said = statement(controller, kept._replace(revision=revision), deleted=True)
    copy.state(said.subject, said.data)
    _update_checks(copy)
    return told
