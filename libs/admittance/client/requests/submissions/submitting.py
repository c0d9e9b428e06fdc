"""Submits the workload of a command or manifest, once however often the submission is repeated."""

from __future__ import annotations

import dataclasses
from hashlib import blake2b
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec.structs import replace

from admittance.api.reading.from_job import with_name, workload_of
from admittance.api.reading.objects import encode
from admittance.api.workload import SUBMISSION_KEY, Job, Workload
from admittance.client import kinds
from admittance.client.arguments.checked import LISTS
from admittance.client.errors import BadInput, NotFound, Refused
from admittance.client.requests.link import Link
from admittance.client.requests.objects import BucketObject, field, lookup
from admittance.client.requests.submissions.commands import (
    CommandOptions,
    check_container,
    workload_of_command,
)
from admittance.client.requests.submissions.fit import refuse_misfit
from admittance.client.requests.submissions.names import name_of_key, suffix
from admittance.client.requests.submissions.priority_classes import missing_class
from admittance.client.requests.workloads import changes
from admittance.events import facts, reasons
from admittance.events.requests.whatif import FitReply
from admittance.runtime import clock

if TYPE_CHECKING:
    from admittance.client.requests.files import WantedFiles


def workload_of_manifest(manifest: Workload | Job) -> Workload:
    """The workload of a manifest, with a name. Raises ManifestError."""
    if isinstance(manifest, Job):
        return workload_of(manifest, suffix=suffix())
    return replace(manifest, metadata=with_name(manifest.metadata, suffix()))


def submitted(workload: Workload) -> facts.Submitted:
    """The fact that submits the workload."""
    meta = workload.metadata
    return facts.Submitted(
        namespace=meta.namespace,
        name=meta.name,
        time=clock.now(),
        workload=msgspec.Raw(encode(workload)),
    )


async def fitting_command(
    link: Link,
    options: CommandOptions,
    namespace: str,
    *,
    key: str | None,
    anyway: bool,
    files: WantedFiles | None = None,
) -> tuple[Workload, FitReply | None]:
    """The workload of a command, named by the key if there is one, with its files, which are
    stored, and the scheduler's answer about it. Raises BadInput, and what `refuse_misfit` raises; a
    command that was submitted with the key before is not refused again."""
    if not options.command:
        raise BadInput(LISTS["command"])
    check_container(options.image, options.env)
    if key is not None:
        if options.name is not None:
            raise BadInput(NAME_AND_KEY)
        options = dataclasses.replace(options, name=name_of_key(namespace, link.user, key))
    workload = await workload_of_command(link, options, namespace)
    if files is not None and key is None:
        fit = await refuse_misfit(link, workload, anyway=anyway)
        return await with_stored_files(link, workload, files), fit
    if files is not None:
        workload = await with_stored_files(link, workload, files, key or "")
    if key is not None and await is_present(link, workload, key):
        anyway = True
    return workload, await refuse_misfit(link, workload, anyway=anyway)


async def with_stored_files(
    link: Link, workload: Workload, files: WantedFiles, key: str = ""
) -> Workload:
    """Stores the inputs of a workload; returns the workload with its files. Raises what
    `files.check_limit` and `files.with_files` raise."""
    # Most submissions have no files: the module costs them its import.
    from admittance.client.requests.files import check_limit, with_files

    await check_limit(link, workload.metadata.namespace, files)
    return await with_files(link, workload, files, key)


KEY_MAX: Final = 200
"""The most characters of a submission's key."""
NAME_AND_KEY: Final = (
    "a name and a key both name the job, and a key only one: leave out the name, or the key"
)


def check_key(key: str) -> None:
    """Raises BadInput if ``key`` cannot be the key of a submission."""
    if not key.strip() or len(key) > KEY_MAX or not key.isprintable():
        raise BadInput(f"key {key[:KEY_MAX]!r} is not 1 to {KEY_MAX} printable characters")


def message_id_of(workload: Workload, user: str, key: str) -> str:
    """The message id of a submission with a key. It differs for another spec, so that the log does
    not take such a submission for the earlier one."""
    meta = workload.metadata
    whole = blake2b(f"{meta.namespace}/{meta.name}/{user}/{key}/".encode(), digest_size=16)
    whole.update(msgspec.json.encode(workload.spec))
    return f"key-{whole.hexdigest()}"


async def submit(link: Link, workload: Workload, key: str = "") -> bool:
    """Submits the workload, and returns whether this call created it: False if the same submission
    or the same workload was there before. ``key``: what a repeated submission is recognised by; "":
    nothing.

    Raises Refused with the reason AlreadyExists if another workload has the name, or the key, and
    NotFound for a missing priority class.
    """
    meta = workload.metadata
    message_id = ""
    if key:
        message_id = message_id_of(workload, link.user, key)
        annotations = {**meta.annotations, SUBMISSION_KEY: key}
        workload = replace(workload, metadata=replace(meta, annotations=annotations))
        if await is_present(link, workload, key):
            return False
    if missing := await missing_class(link, workload):
        raise NotFound(f"not submitted: {missing}")
    fact = submitted(workload)
    stored_before: set[int] = set()
    sequence = await link.publish(fact, message_id=message_id, stored_before=stored_before)
    reply = await link.settle(sequence, fact.namespace)
    if key and reply.reason == reasons.ALREADY_EXISTS:
        raise Refused(
            f"the key {key!r} was used for workload {fact.namespace}/{fact.name} with another spec",
            reason=reply.reason,
        )
    changes.accepted(fact, reply)
    return reply.outcome != "ignored" and not stored_before


async def is_present(link: Link, workload: Workload, key: str) -> bool:
    """Whether a submission of this workload with the key was applied."""
    meta = workload.metadata
    stored = await lookup(link, kinds.WORKLOAD.object_key(meta.namespace, meta.name))
    message_id = message_id_of(workload, link.user, key)
    return stored is not None and is_submission(stored, key, link.user, message_id)


def is_submission(stored: BucketObject, key: str, user: str, message_id: str) -> bool:
    """Whether a submission of the user with this key and message id made the workload. ``user``: ""
    on a server without users."""
    value = stored.plain()
    annotations = field(value, "metadata", "annotations", default={})
    status = field(value, "status", default={})
    made = status.get("submittedBy", ""), status.get("submittedAs")
    return (annotations.get(SUBMISSION_KEY), *made) == (key, user, message_id)
