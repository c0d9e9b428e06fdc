"""The guard of decisions: why a decision of a scheduler must change nothing any more, and which
changes of other workloads belong to a decision.

A scheduler decides from what it has read. Until the workload-controller reads the decision, the
workload, its queue or the scheduler's leadership may have changed.

A decision may concern several workloads at once: some hand their quota over to another one. All
givers and the receiver are written in one atomic batch, the giving workloads before the receiving
one."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from admittance.control.controller import Controller
from admittance.control.workloads import VersionedWorkload
from admittance.events import facts, reasons
from admittance.events.facts import Assigned, Preempted
from admittance.events.subjects import workload_key
from admittance.lease import Fence
from admittance.workload import stored
from admittance.workload.change import Change, FactOutcome, ignored
from admittance.workload.conditions import Type, is_true
from admittance.workload.phase import holds_quota


def why_void(
    state: Controller,
    fact: facts.Decision,
    known: VersionedWorkload,
    fence: Fence | None,
    *,
    changed: bool,
) -> Change | None:
    """Returns why a decision is void; None: the decision is valid. The scheduler sees the change
    that voids its decision in its watch, and drops its assumption.

    ``known``: the workload of the decision; ``changed``: earlier facts of the same batch have
    changed the workload; ``fence``: the fence of the message."""
    workload = known.workload
    finished = (
        is_true(workload, Type.FINISHED)
        if workload is not None
        else state.workloads.must_load(workload_key(fact.namespace, fact.name))
    )
    if finished:
        # The scheduler forgets a finished workload, so it never decides from a finished state.
        return ignored(workload, reasons.STALE_REVISION, "it has finished meanwhile")
    if workload is None:
        return ignored(None, reasons.NO_SUCH_WORKLOAD, "it was deleted meanwhile")
    if changed or fact.revision != known.revision:
        return ignored(workload, reasons.STALE_REVISION, f"decided from revision {fact.revision}")
    queue = state.queues.cluster_queue(fact.namespace, stored.head(workload).queue_name)
    domain = state.catalog.domain_of(queue) if queue else None
    if domain is None or domain != fact.domain:
        return ignored(workload, reasons.OTHER_DOMAIN, f"decided for {fact.domain}")
    if fence is None or fence.domain != domain:
        return ignored(workload, reasons.NO_FENCE, f"the message carries no fence of {domain}")
    newest = max(state.catalog.newest(domain), state.manifests_floor)
    if newest > fact.seen:
        message = f"a queue changed at revision {newest}, seen {fact.seen}"
        return ignored(workload, reasons.OUT_OF_DATE, message)
    return None


# Handover of quota. --------------------------------------------------------------------


KnownWorkload = Callable[[str], VersionedWorkload]
"""A function that returns the workload at a key, with the changes of the batch so far."""
HasMoved = Callable[[str], bool]
"""A function that returns whether an earlier fact of the batch changed the workload at a key."""
Transition = Callable[[VersionedWorkload, Preempted], Change]


class Giver(NamedTuple):
    """A workload that hands its quota over, and the change that the handover makes to it."""

    key: str
    known: VersionedWorkload
    change: Change


def keys_of(fact: Assigned) -> list[str]:
    """The keys of the workloads that hand their quota over."""
    return [workload_key(giver.namespace, giver.name) for giver in fact.preempts]


def moved_sibling(fact: Assigned, known_of: KnownWorkload, moved: HasMoved) -> str:
    """Why the sibling that the variant replaces differs from the decision; "": the sibling does not
    differ."""
    source = fact.migrates_from
    if source is None:
        return ""
    key = workload_key(source.namespace, source.name)
    known = known_of(key)
    gone = known.workload is None or known.workload.metadata.uid != source.uid
    if gone or moved(key) or known.revision != source.revision:
        return f"{source.namespace}/{source.name} moved meanwhile"
    return ""


def changes_of_givers(
    fact: Assigned,
    known_of: KnownWorkload,
    moved: HasMoved,
    domain_of: Callable[[str], str | None],
    transition: Transition,
) -> tuple[list[Giver], str]:
    """Returns the changes of the workloads that hand their quota over, or why the decision is void.
    ``domain_of``: the domain of a ClusterQueue."""
    givers: list[Giver] = []
    for giver in fact.preempts:
        key = workload_key(giver.namespace, giver.name)
        known = known_of(key)
        workload = known.workload
        label = f"{giver.namespace}/{giver.name}"
        if workload is None or workload.metadata.uid != giver.uid:
            return [], f"{label} was deleted meanwhile"
        if moved(key) or known.revision != giver.revision:
            return [], f"{label} moved meanwhile, decided from revision {giver.revision}"
        admission = workload.status.admission
        if admission is None or domain_of(admission.cluster_queue) != fact.domain:
            return [], f"{label} holds no quota of {fact.domain}"
        change = transition(
            known,
            Preempted(
                namespace=giver.namespace,
                name=giver.name,
                uid=giver.uid,
                time=fact.time,
                revision=giver.revision,
                seen=fact.seen,
                domain=fact.domain,
                reason=giver.reason,
                message=giver.message,
                by=f"{fact.namespace}/{fact.name}",
                by_uid=fact.uid,
                grounds=giver.grounds,
            ),
        )
        after = change.workload
        if change.outcome is not FactOutcome.APPLIED or (after is not None and holds_quota(after)):
            # The job of the workload must stop first, so its quota cannot be handed over now.
            return [], f"{label} does not merely hold a reservation"
        givers.append(Giver(key, known, change))
    return givers, ""
