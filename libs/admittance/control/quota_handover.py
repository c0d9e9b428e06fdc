"""Decisions about several workloads at once: some hand their quota over to another one.

All of them are written in one atomic batch, the giving workloads before the receiving one, or none
is.
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
    """A workload that hands its quota over, and its change."""

    key: str
    known: VersionedWorkload
    change: Change


def keys_of(fact: Assigned) -> list[str]:
    """The keys of the workloads that hand their quota over."""
    return [workload_key(one.namespace, one.name) for one in fact.preempts]


def givers(
    fact: Assigned,
    known_of: Callable[[str], VersionedWorkload],
    moved: Callable[[str], bool],
    domain_of: Callable[[str], str | None],
    transition: Transition,
) -> tuple[list[Giver], str]:
    """The changes of the workloads that hand their quota over, or why the decision is void.

    ``moved``: whether an earlier fact of this batch moved the key. ``domain_of``: the domain of a
    ClusterQueue.
    """
    found: list[Giver] = []
    for one in fact.preempts:
        key = workload_key(one.namespace, one.name)
        known = known_of(key)
        workload = known.workload
        label = f"{one.namespace}/{one.name}"
        if workload is None or workload.metadata.uid != one.uid:
            return [], f"{label} was deleted meanwhile"
        if moved(key) or known.revision != one.revision:
            return [], f"{label} moved meanwhile, decided from revision {one.revision}"
        admission = workload.status.admission
        if admission is None or domain_of(admission.cluster_queue) != fact.domain:
            return [], f"{label} holds no quota of {fact.domain}"
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
            # Its job must stop first, so its quota cannot be handed over now.
            return [], f"{label} does not merely hold a reservation"
        found.append(Giver(key, known, change))
    return found, ""


def parted(puts: Sequence[Put]) -> tuple[list[Put], list[list[Put]]]:
    """The puts without a group, and the groups."""
    alone = [put for put in puts if not put.group]
    groups: dict[int, list[Put]] = {}
    for put in puts:
        if put.group:
            groups.setdefault(put.group, []).append(put)
    return alone, list(groups.values())


def packed(groups: Iterable[list[Put]], most: int) -> Iterator[list[list[Put]]]:
    """Packs groups into batches of at most ``most`` puts. A group is never split: a longer group
    gets its own batch, which the bus refuses."""
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
