"""Passes quota from victims to their preemptor in one decision, which succeeds or fails as a whole.

The receiver and all givers are written in one batch or not at all. The givers are written first, so
that the scheduler has read all givers when it reads the receiver.

Until it has read the receiver, the scheduler makes no other decision in the domain: if the batch is
refused, the victims keep their quota, and another workload that was admitted meanwhile would exceed
the quota.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable

from admittance.scheduling.state import charging
from admittance.scheduling.state.in_flight import GivenQuota, QuotaHandover
from admittance.scheduling.state.scheduler_state import SchedulerState
from admittance.scheduling.state.workload_info import Domain, InFlight, Queue, WorkloadInfo


def begin(
    state: SchedulerState, domain: Domain, receiver: WorkloadInfo, givers: Iterable[WorkloadInfo]
) -> None:
    """Begins a handover: releases the quota of the givers. Call this function before the receiver
    is charged."""
    assert domain not in state.handovers
    handover = QuotaHandover(receiver, domain)
    state.handover_of[receiver] = state.handovers[domain] = handover
    for giver in givers:
        assert giver.charge is not None
        handover.given[giver] = GivenQuota(giver.charge, giver.candidate)
        charging.release(state, giver)
        state.handover_of[giver] = handover
        state.set_in_flight(giver, domain, InFlight.HANDED_ON)


def remove_giver(state: SchedulerState, giver: WorkloadInfo) -> Queue:
    """Takes a giver out of the handover when its new stored state arrives. Returns the ClusterQueue
    that the giver's quota belongs to."""
    return state.handover_of.pop(giver).given.pop(giver).charge.queue


def end(state: SchedulerState, handover: QuotaHandover) -> None:
    """Ends the handover. Givers without a new stored state get back exactly the quota that they
    held before the handover."""
    del state.handover_of[handover.receiver]
    del state.handovers[handover.domain]
    for giver, (held, candidate) in handover.given.items():
        del state.handover_of[giver]
        state.clear_in_flight(giver, held.queue.domain)
        charging.charge(state, giver, held.queue, held.admission, held.cells)
        if candidate is not None:
            insort(held.queue.candidates, candidate)
            giver.candidate = candidate
    handover.given.clear()
    state.schedule_cycle(handover.domain)
