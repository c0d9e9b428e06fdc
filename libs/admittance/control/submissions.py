"""Decodes, completes and validates submissions, and makes the messages about refused ones."""

from __future__ import annotations

from datetime import datetime
from hashlib import blake2b
from typing import Any, Final, NamedTuple

import msgspec
from msgspec.structs import replace

from admittance.api.limits import Role
from admittance.api.problems import ManifestError
from admittance.api.reading.canonical import to_stored
from admittance.api.reading.manifest import accept
from admittance.api.validation.workload import exceeding
from admittance.api.workload import PARENT_VARIANT, Workload
from admittance.control.commit import LogMessage, Message
from admittance.control.messages import MessageBuilder
from admittance.control.objects import Objects
from admittance.events import facts
from admittance.events.base import Fact
from admittance.events.codec import encode
from admittance.events.subjects import subject_of
from admittance.workload.moves.arrival import Arrived
from admittance.workload.transition_context import QueueView

WORKLOAD_MAX: Final = 512 * 1024
"""Bytes of metadata and spec. The server's message of 1 MiB must also hold the status, the updates
of checks and the outbox."""


class InvalidSubmission(ValueError):
    """A submission is not a valid workload; the text says why, in one line."""


def validate_submission(fact: facts.Submitted, objects: Objects, queues: QueueView) -> Arrived:
    """The submission as a fact for `transition`. Raises InvalidSubmission.

    A named priority class is resolved to its value here; later changes count by the number. Its
    queue, not the submission, decides whether the workload is a parent.
    """

    def value_of(name: str) -> int:
        found = objects.priority_class(name)
        if found is None:
            raise InvalidSubmission(f"WorkloadPriorityClass {name} doesn't exist")
        return found.value

    try:
        manifest, _ = accept(fact.workload, namespace=fact.namespace, priority_of=value_of)
    except ManifestError as error:
        raise InvalidSubmission(str(error)) from error
    if not isinstance(manifest, Workload):
        raise InvalidSubmission(f"a {manifest.kind} was submitted, a Workload is wanted")
    above = exceeding(manifest.spec)
    if above:
        # It could never be admitted, so refuse it now.
        raise InvalidSubmission("; ".join(str(problem) for problem in above))
    meta = manifest.metadata
    if meta.name not in ("", fact.name) or meta.namespace not in ("", fact.namespace):
        raise InvalidSubmission(
            f"the manifest is of {meta.namespace}/{meta.name}, "
            f"the message of {fact.namespace}/{fact.name}"
        )
    manifest, remark = in_role(manifest, fact.namespace, queues)
    meta = manifest.metadata
    spec = to_stored(manifest)
    if len(fact.workload) > WORKLOAD_MAX // 4:
        length = len(spec) + len(msgspec.json.encode(meta))
        if length > WORKLOAD_MAX:
            raise InvalidSubmission(
                f"the workload is {length} bytes long, {WORKLOAD_MAX} are allowed"
            )
    return Arrived(
        namespace=fact.namespace,
        name=fact.name,
        uid=fact.uid,
        api_version=manifest.api_version,
        metadata=meta,
        spec=msgspec.Raw(spec),
        remark=remark,
    )


def in_role(manifest: Workload, namespace: str, queues: QueueView) -> tuple[Workload, str]:
    """The workload with the role that its queue gives it (regular or parent), and a remark for the
    user."""
    spec, meta = manifest.spec, manifest.metadata
    role: Role = "regular"
    remark = ""
    if queues.family_rules(namespace, spec.queue_name) is not None:
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


class ReceivedSubmission(NamedTuple):
    """A received submission, and what is needed to answer it."""

    heard: LogMessage
    fact: Fact
    now: datetime
    message_builder: MessageBuilder


def rejected(about: ReceivedSubmission, reason: str, message: str) -> Message:
    """The message that a submission is refused: it is invalid, or its name is taken."""
    fact = facts.Rejected(**_common(about), reason=reason, message=message)
    return _message(about, fact, "rejected")


def unchanged(about: ReceivedSubmission, message: str) -> Message:
    """The message that the same workload exists already."""
    said = f"A second submission changes nothing: {message}"
    fact = facts.Noted(**_common(about), reason="AlreadyExists", message=said)
    return _message(about, fact, "noted")


def digest(heard: LogMessage) -> str:
    """Digest of the submission's message id that the workload stores; "": the submission had no
    id."""
    if not heard.message_id:
        return ""
    return blake2b(heard.message_id.encode("utf-8", "replace"), digest_size=6).hexdigest()


def _common(about: ReceivedSubmission) -> dict[str, Any]:
    fact = about.fact
    return {
        "namespace": fact.namespace,
        "name": fact.name,
        "uid": fact.uid,
        "time": about.now,
        "revision": 0,
    }


def _message(about: ReceivedSubmission, fact: Fact, what: str) -> Message:
    identity = about.message_builder.identity(f"{about.heard.sequence}/{what}")
    return Message(subject_of(fact), encode(fact), identity, about.heard.trace)
