"""Explains a workload that waits for a limit of its person: which workloads hold the quota of the
person, and what would unblock the workload. Source: `docs/spec/scheduling.md#3.10`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Final

from admittance.api.fields.units import render
from admittance.events.requests.explanation import Holder
from admittance.events.requests.remedies import Remedy, RemedyKind
from admittance.scheduling.explain.flavor_report import HOLDERS_MAX, LOOKED_AT_MAX
from admittance.scheduling.explain.remedies import HOLDERS_NAMED_MAX, first_names
from admittance.scheduling.state.held.person_limits import Excess
from admittance.scheduling.state.workload_info import Queue, WorkloadInfo

USER_LIMIT: Final = "UserLimit"
"""Why a holder is not preempted for another workload of its person: the limit of a person preempts
nothing."""


def excess_of(queue: Queue, workload: WorkloadInfo) -> Excess | None:
    """Returns the limit that keeps the workload from starting; None: no limit does."""
    limits = queue.limits
    if limits is None:
        return None
    assert workload.shape is not None
    return limits.excess(workload, limits.fewest(workload.shape))


def holders(queue: Queue, workload: WorkloadInfo, excess: Excess) -> tuple[Holder, ...]:
    """Returns the workloads that hold most of what counts for the person, the largest first. Checks
    at most `LOOKED_AT_MAX` workloads."""
    assert queue.limits is not None
    found: list[Holder] = []
    for other in islice(queue.holding, LOOKED_AT_MAX):
        is_relative = other.family is not None and other.family is workload.family
        if is_relative or excess.person not in queue.limits.persons_of(other):
            continue
        assert other.charge is not None
        for cell, amount in other.charge.cells:
            if cell.fr[1] == excess.resource and amount:
                found.append(
                    Holder(
                        namespace=other.key[0],
                        name=other.key[1],
                        cluster_queue=queue.name,
                        flavor=cell.fr[0],
                        resource=excess.resource,
                        amount=amount,
                        priority=other.priority,
                        leaving=other.is_leaving,
                        leased=other.leased,
                        spared_by="" if other.is_leaving else USER_LIMIT,
                    )
                )
    found.sort(key=lambda holder: (-holder.amount, holder.namespace, holder.name))
    return tuple(found[:HOLDERS_MAX])


def remedies(excess: Excess, queue: Queue, held_by: Sequence[Holder]) -> Iterator[Remedy]:
    """Yields each change after which the workload is within the limit of its person in ``queue``,
    or in a LocalQueue of it."""
    resource, place = excess.resource, excess.person.limit.place
    if excess.is_lasting:
        label = excess.person.limit.label
        field = f"perLabel[{label}]" if label else "perUser"
        more = excess.asked - excess.most
        text = f"{render(resource, more)} more {resource} in {field} of {place}, "
        text += "or a smaller request"
        yield Remedy(
            text=text,
            kind=RemedyKind.USER_LIMIT,
            resource=resource,
            amount=more,
            queue=queue.name,
        )
        return
    less = excess.held + excess.asked - excess.most
    holding = list(dict.fromkeys(f"{holder.namespace}/{holder.name}" for holder in held_by))
    names = first_names(holding, HOLDERS_NAMED_MAX)
    text = f"{render(resource, less)} {resource} less held by {excess.person} in {place}"
    yield Remedy(
        text=f"{text} (held by {names})" if names else text,
        kind=RemedyKind.USER_LIMIT,
        resource=resource,
        amount=less,
        queue=queue.name,
        workloads=tuple(holding[:HOLDERS_NAMED_MAX]),
    )
