"""Hands quota over from victims (givers) to their preemptor (the receiver) in one decision, which
succeeds or fails as a whole.

The workload-controller writes the receiver and all givers in one batch or not at all. In the batch
the givers come first, so that the scheduler has read all givers when it reads the receiver.

Until the scheduler has read the receiver, it makes no other decision in the domain: if the batch is
refused, the victims keep their quota, and another workload that was admitted meanwhile would exceed
the quota."""

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
    """Begins a handover: releases the quota of the givers. Must be called before the receiver of
    the handover is charged for its quota."""
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
    """Takes a giver out of its handover, because its new stored state has arrived. Returns the
    queue of the quota that the giver held."""
    return state.handover_of.pop(giver).given.pop(giver).charge.queue


def end(state: SchedulerState, handover: QuotaHandover) -> None:
    """Ends a handover. Givers for which no new stored state has arrived get back exactly the quota
    that they held before."""
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
