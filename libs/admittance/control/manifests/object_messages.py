"""The messages about changed manifests. The module is pure.

The process that writes a manifest also publishes the message about the manifest. But the process
may end before it publishes the message, or may get no answer to a write of the manifest that
succeeded. A new leader therefore publishes messages about manifests that the log lacks. A leader
also publishes the messages about manifests that it finds in the bucket and did not know.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from admittance.api.checks import MACHINES_CHECK, AdmissionCheck
from admittance.api.kinds import KINDS, OBJECT_KINDS
from admittance.api.manifests import token_of
from admittance.api.meta import APPLIED_BY, ObjectMeta
from admittance.control.commit import Message
from admittance.control.controller import Controller
from admittance.control.manifests.objects import StoredObject
from admittance.events.reader import Unreadable
from admittance.events.subjects import applied_subject, object_key
from admittance.events.system import ObjectApplied
from admittance.workload.bucket_reader import names_of
from admittance.workload.checks.rows import row_of
from admittance.workload.phase import holds_quota, is_stopping
from admittance.workload.stored import PARENT, head

_encode = msgspec.json.Encoder().encode


def message_about(
    controller: Controller,
    kept: StoredObject,
    *,
    before: StoredObject | None = None,
    deleted: bool = False,
    user: str = "",
) -> Message:
    """Returns the message ``admit.object.applied`` or ``admit.object.deleted`` about a manifest.
    ``before``: the previous version of the manifest; None: the manifest is new, or the version is
    unknown. ``user``: the user that changes the manifest; "": the user that the manifest names."""
    manifest = kept.object
    meta = manifest.metadata
    said = ObjectApplied(
        kind=manifest.kind,
        namespace=meta.namespace,
        name=meta.name,
        revision=kept.revision,
        object=msgspec.Raw(kept.value),
        parameters_changed=names_others(before, manifest),
        user=user or _named_user(meta, deleted),
    )
    subject = applied_subject(token_of(manifest), meta.namespace, meta.name, deleted=deleted)
    return _message(controller, subject, said)


def _named_user(meta: ObjectMeta, deleted: bool) -> str:
    if deleted and meta.deletion_timestamp is None:
        return (
            ""  # A deleted manifest names the user that applied it, not the user that deletes it.
        )
    return meta.annotations.get(APPLIED_BY, "")


def names_others(before: StoredObject | None, manifest: Any) -> bool:
    """Whether the manifest is an AdmissionCheck that names other parameters than its previous
    version, or a check without a known previous version.
    """
    if not isinstance(manifest, AdmissionCheck):
        return False
    return before is None or before.object.spec.parameters != manifest.spec.parameters


def _message(controller: Controller, subject: str, said: ObjectApplied) -> Message:
    identity = controller.message_builder.identity(f"{subject}/{said.revision}")
    return Message(subject, _encode(said), identity)


def deletion_message(controller: Controller, key: str, revision: int) -> Message | None:
    """Returns the message ``admit.object.deleted`` for an object of which only the delete marker is
    known; None: the key does not belong to a known kind."""
    prefix = key.partition(".")[0]
    kind = OBJECT_KINDS.get(prefix)
    if kind is None:
        return None
    try:
        namespace, name = names_of(key)
    except Unreadable:
        return None
    said = ObjectApplied(kind=kind, namespace=namespace, name=name, revision=revision)
    subject = applied_subject(KINDS[kind].token, namespace, name, deleted=True)
    return _message(controller, subject, said)


def messages_about_all(controller: Controller) -> Iterator[tuple[int, Message]]:
    """For every manifest, including deleted ones, the last message about it that the log must hold,
    with the manifest's revision."""
    for _, kept in controller.objects:
        yield kept.revision, message_about(controller, kept)
    for key, revision in controller.objects.markers():
        said = deletion_message(controller, key, revision)
        if said is not None:
            yield revision, said


def message_about_rows(controller: Controller, newest: int) -> Message | None:
    """The message about the check `MACHINES_CHECK` once more, if the rows of a workload with quota
    do not agree with it: the configuration turns the check on and off, and says so in no message.
    None: they agree. ``newest``: the newest revision of the bucket, which makes the message differ
    from an earlier one."""
    kept = controller.objects.get(object_key(KINDS["AdmissionCheck"].token, "", MACHINES_CHECK))
    if kept is None:
        return None
    for _, known in controller.workloads.items():
        workload = known.workload
        admission = workload.status.admission if workload is not None else None
        if workload is None or admission is None or not holds_quota(workload):
            continue
        if is_stopping(workload) or head(workload).role == PARENT:
            continue
        required = controller.queues.required_checks(admission.cluster_queue, admission)
        row = row_of(workload.status.admission_checks, MACHINES_CHECK)
        if any(check.name == MACHINES_CHECK for check in required) is not (row is not None):
            said = message_about(controller, kept, before=kept)
            return said._replace(id=f"{said.id}/{newest}")
    return None


def load_entry(
    controller: Controller,
    key: str,
    value: bytes | None,
    revision: int,
    headers: Mapping[str, str],
) -> Message | None:
    """Loads an entry of the bucket that another program wrote, or that this leader wrote without
    getting an answer. Returns the message to publish; None: the entry was known."""
    known, before = controller.objects.expected(key), controller.objects.get(key)
    controller.load(key, value, revision, headers)
    if revision <= known:
        return None
    kept = controller.objects.get(key)
    if kept is not None:
        return message_about(controller, kept, before=before)
    return deletion_message(controller, key, revision)
