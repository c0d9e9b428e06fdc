"""Decisions about several workloads at once: quota that is handed on from some to another.

All of it is written in one atomic batch, those who give before the one who gets, or nothing is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from admittance.control.commit import Put
from admittance.control.known import VersionedWorkload
from admittance.events.facts import Assigned, Preempted
from admittance.events.subjects import workload_key
from admittance.workload.change import Change, Outcome
from admittance.workload.phase import holds_quota

Transition = Callable[[VersionedWorkload, Preempted], Change]


class Giver(NamedTuple):
    """One that hands its quota on, and what becomes of it."""

    key: str
    known: VersionedWorkload
    change: Change


def keys_of(fact: Assigned) -> list[str]:
    """The keys of those who hand quota on."""
    return [workload_key(one.namespace, one.name) for one in fact.preempts]


def givers(
    fact: Assigned,
    known_of: Callable[[str], VersionedWorkload],
    moved: Callable[[str], bool],
    domain_of: Callable[[str], str | None],
    transition: Transition,
) -> tuple[list[Giver], str]:
    """What becomes of everybody who hands quota on, or why the decision holds of nobody.

    moved: somebody else moved the key in this batch. domain_of: the domain of a ClusterQueue.
    """
    found: list[Giver] = []
    for one in fact.preempts:
        key = workload_key(one.namespace, one.name)
        known = known_of(key)
        workload = known.workload
        who = f"{one.namespace}/{one.name}"
        if workload is None or workload.metadata.uid != one.uid:
            return [], f"{who} was deleted meanwhile"
        if moved(key) or known.revision != one.revision:
            return [], f"{who} moved meanwhile, decided from revision {one.revision}"
        admission = workload.status.admission
        if admission is None or domain_of(admission.cluster_queue) != fact.domain:
            return [], f"{who} holds no quota of {fact.domain}"
        change = transition(
            known,
            Preempted(
                namespace=one.namespace,
                name=one.name,
                uid=one.uid,
                time=fact.time,
                revision=one.revision,
                seen=fact.seen,
                domain=fact.domain,
                reason=one.reason,
                message=one.message,
                by=f"{fact.namespace}/{fact.name}",
                by_uid=fact.uid,
                grounds=one.grounds,
            ),
        )
        after = change.workload
        if change.outcome is not Outcome.APPLIED or (after is not None and holds_quota(after)):
            # Its job has to stop first; then its quota is not there to be handed on.
            return [], f"{who} does not merely hold a reservation"
        found.append(Giver(key, known, change))
    return found, ""


def parted(puts: Sequence[Put]) -> tuple[list[Put], list[list[Put]]]:
    """The puts that go each for itself, and the groups that go as a whole."""
    alone = [put for put in puts if not put.group]
    groups: dict[int, list[Put]] = {}
    for put in puts:
        if put.group:
            groups.setdefault(put.group, []).append(put)
    return alone, list(groups.values())


def packed(groups: Iterable[list[Put]], most: int) -> Iterator[list[list[Put]]]:
    """Groups that share a batch of at most so many puts. A group is never torn: one that is longer
    goes in a batch of its own, and is refused by whoever knows the limit."""
    batch: list[list[Put]] = []
    length = 0
    for group in groups:
        if batch and length + len(group) > most:
            yield batch
            batch, length = [], 0
        batch.append(group)
        length += len(group)
    if batch:
        yield batch
