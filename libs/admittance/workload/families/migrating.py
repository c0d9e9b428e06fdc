"""Migration: the better variant is admitted as soon as the job of the worse one has stopped, never
before. docs/spec/lifecycle.md#4.6, #T24.
"""

from __future__ import annotations

from typing import Final

from admittance.events import facts
from admittance.events.shapes import Admission
from admittance.family.policy import ActivityReason
from admittance.workload.change import Change, applied, ignored, with_status
from admittance.workload.check_rows import all_ready
from admittance.workload.conditions import Type, is_true, put
from admittance.workload.families.family_change import FamilyTransition
from admittance.workload.family_info import allowed_flavors
from admittance.workload.moves.check_verdicts import contradiction
from admittance.workload.moves.eviction import evict
from admittance.workload.moves.reservation import admit, assign
from admittance.workload.phase import Phase, is_reserved, phase
from admittance.workload.stored import OutboxEntry, StoredWorkload, head

MIGRATION: Final = "FlavorMigration"
"""Reason of the eviction of the worse variant."""
OF_PARENT: Final = "VariantEvicted"
"""Reason of the eviction of an evicted variant's parent."""


def begin_migration(family: FamilyTransition, better: StoredWorkload) -> Change:
    """Starts the migration to ``better``: evicts the admitted variant and the parent."""
    name = better.metadata.name
    parent = family.family_head()
    worse = family.variants.get(parent.status.admitted_variant)
    if worse is None or worse not in family.running():
        return ignored(better, "FamilyStops", "its family's job is being stopped")
    message = f"Migrating to variant {name}"
    family.put(worse.metadata.name, evict(worse, MIGRATION, message, family.context))
    change = evict(parent, OF_PARENT, message, family.parent_context, cause=MIGRATION)
    assert change.workload is not None, "an eviction deletes nothing"
    heading = with_status(change.workload, migrating_to=name)
    family.put(parent.metadata.name, change._replace(workload=heading))
    return applied(better)


def promise_quota(family: FamilyTransition, better: StoredWorkload, fact: facts.Assigned) -> Change:
    """Starts the migration to a variant without checks. Its reservation is also its admission, so
    the eviction comes first and the quota is promised to it meanwhile."""
    source = fact.migrates_from
    parent = family.family_head()
    where = phase(better, family.now)
    if where is not Phase.PENDING:
        return ignored(better, "NoMove", f"it is {where}: it competes for nothing")
    if source is None or source.name != parent.status.admitted_variant:
        return ignored(better, "StaleFamily", "another sibling is admitted by now, or none")
    required = family.context.queues.required_checks(fact.admission.cluster_queue, fact.admission)
    if required or fact.pending_preemption is not None:
        return ignored(better, "StaleFamily", "it has checks, or victims, to wait for")
    begun = begin_migration(family, better)
    if begun.workload is None or begun.reason:
        return begun
    message = "Pending the migration of 1 workload(s)"
    conditions = put(
        better.status.conditions,
        Type.QUOTA_RESERVED,
        False,
        "WaitingForPreemptedWorkloads",
        message,
        now=family.now,
    )
    return applied(
        with_status(better, conditions=conditions, promised=fact.admission),
        OutboxEntry(what="pending", reason="WaitingForPreemptedWorkloads", message=message),
    )


def taken_over(family: FamilyTransition, name: str) -> Change | None:
    """Admits the variant ``name`` after its family's job has stopped. It is rejected if the
    additions of its checks conflict. None: it no longer fulfils the conditions. The parent still
    names the stopped variant."""
    better = family.variants.get(name)
    wish = family.wish(name)
    if better is None or wish is None or not wish.active or not head(better).active:
        return None
    queues = family.context.queues
    queue = head(better).queue_name
    if queues.inactive_reason(better.metadata.namespace, queue) is not None:
        return None
    status = better.status
    admission = status.promised or status.admission
    if admission is None or queues.not_offered(admission) or not _may_have(better, admission):
        return None
    required = queues.required_checks(admission.cluster_queue, admission)
    if status.promised is not None:
        if required or queues.cluster_queue(better.metadata.namespace, queue) != (
            admission.cluster_queue
        ):
            return None
        kept = with_status(better, promised=None)
        meta = better.metadata
        fact = facts.Assigned(
            namespace=meta.namespace,
            name=meta.name,
            uid=meta.uid,
            revision=0,
            seen=0,
            domain="",
            admission=admission,
        )
        return assign(kept, fact, family.context)
    if (
        not is_reserved(better)
        or is_true(better, Type.EVICTED)
        or status.pending_preemption is not None
        or not all_ready(status.admission_checks, required)
    ):
        return None
    conflict = contradiction(better, family.context)  # A flavor may have other labels by now.
    if conflict is not None and conflict.workload is not None:
        rejected = with_status(conflict.workload, stopped_by=str(ActivityReason.REJECTED))
        return conflict._replace(workload=rejected)
    return applied(admit(better, family.context))


def _may_have(variant: StoredWorkload, admission: Admission) -> bool:
    """Whether its queue still allows these flavors."""
    allowed = allowed_flavors(variant)
    places = admission.pod_set_assignments
    return allowed is None or all(allowed.issuperset(one.flavors.values()) for one in places)
