"""A workload is submitted: T01."""

from __future__ import annotations

from typing import Final

import msgspec
from msgspec.structs import replace

from admittance.api.meta import ObjectMeta
from admittance.events.base import Fact
from admittance.events.names import uid_of
from admittance.workload.change import Change, applied, ignored, refused, with_status
from admittance.workload.check_rows import synced
from admittance.workload.conditions import Type, put
from admittance.workload.reasons import pending_reason
from admittance.workload.stored import PARENT, OutboxEntry, StoredWorkload, head
from admittance.workload.transition_context import TransitionContext


class Arrived(Fact, frozen=True, kw_only=True):
    """A validated submission. Not on the wire: the controller makes it from `Submitted`. ``spec``
    is canonical: equal specs are equal bytes. ``remark``: a note for the user. ``message_id``:
    digest of the submission's message id; "": it had none.
    """

    api_version: str
    metadata: ObjectMeta
    spec: msgspec.Raw
    remark: str = ""
    message_id: str = ""


REPEATED: Final = "Repeated"
"""Reason of a repeated submission of the same workload; no message follows."""


def arrive(workload: StoredWorkload | None, fact: Arrived, context: TransitionContext) -> Change:
    """T01, or a refusal: a name is taken until its workload is deleted.

    Identity and creation time come from the log, so that reading the submission again makes the
    same workload.
    """
    if workload is not None:
        if workload.metadata.deletion_timestamp is not None:
            return refused(
                workload,
                "BeingDeleted",
                f"the workload {fact.namespace}/{fact.name} is being deleted: "
                "submit it again when its job has stopped",
            )
        return _taken(workload, fact)
    seed = f"{fact.namespace}/{fact.name}/{context.sequence}/{context.logged_at.isoformat()}"
    metadata = replace(
        fact.metadata,
        name=fact.name,
        namespace=fact.namespace,
        generate_name="",
        uid=fact.uid or uid_of(seed),
        generation=1,
        creation_timestamp=context.logged_at,
        deletion_timestamp=None,
        resource_version="",
        managed_fields=None,
    )
    new = StoredWorkload(
        api_version=fact.api_version, kind="Workload", metadata=metadata, spec=fact.spec
    )
    spec = head(new)
    queue = context.queues.cluster_queue(fact.namespace, spec.queue_name)
    # Only the variants of a parent are queued.
    asked = queue and spec.role != PARENT
    required = context.queues.required_checks(queue, None) if asked else ()
    standing = pending_reason(new, context)
    says: tuple[OutboxEntry, ...] = ()
    if not spec.active:
        reason, message = "Deactivated", "The workload is deactivated"
    elif standing is not None:
        reason, message = standing
        says = (OutboxEntry(what="pending", reason=reason, message=message),)
    else:
        reason, message = "PendingEvaluation", ""
    if fact.remark:
        says = (*says, OutboxEntry(what="noted", reason="RegularWorkload", message=fact.remark))
    return applied(
        with_status(
            new,
            conditions=put((), Type.QUOTA_RESERVED, False, reason, message, now=context.now),
            admission_checks=synced((), {}, required, now=context.now).rows,
            submitted_as=fact.message_id,
        ),
        *says,
    )


def _taken(workload: StoredWorkload, fact: Arrived) -> Change:
    """The name belongs to another workload, or the same workload is submitted again."""
    about = f"a workload {fact.namespace}/{fact.name} exists"
    if bytes(workload.spec) != bytes(fact.spec):
        return refused(workload, "AlreadyExists", f"{about} with another spec")
    if fact.uid and fact.uid != workload.metadata.uid:
        return refused(workload, "AlreadyExists", f"{about} with another uid")
    known = workload.status.submitted_as
    if fact.uid or (known and known == fact.message_id):
        return ignored(workload, REPEATED, "the same submission made the workload")
    return ignored(workload, "Unchanged", "the workload exists and is the same")
