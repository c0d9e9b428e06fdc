"""Passes quota from victims to their preemptor in one decision, which succeeds or fails as a whole.

The receiver and all givers are written in one batch or not at all. The givers are written first, so
that the scheduler has seen all of them when it sees the receiver.

Until then the scheduler makes no other decision in the domain: if the batch is refused, the victims
keep their quota, and another workload that was admitted meanwhile would exceed the quota.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable

from admittance.scheduling.state import charging, planned
from admittance.scheduling.state.in_flight import GivenQuota, QuotaHandover
from admittance.scheduling.state.scheduler_state import SchedulerState
from admittance.scheduling.state.workload_info import Domain, InFlight, Queue, WorkloadInfo


def begin(
    state: SchedulerState, domain: Domain, workload: WorkloadInfo, givers: Iterable[WorkloadInfo]
) -> None:
    """Releases the quota of the givers for the receiver. To be called before it is charged."""
    assert domain not in state.handovers
    joint = state.handover_of[workload] = state.handovers[domain] = QuotaHandover(workload, domain)
    for giver in givers:
        assert giver.charge is not None
        joint.given[giver] = GivenQuota(giver.charge, giver.candidate)
        charging.release(state, giver)
        state.handover_of[giver] = joint
        state.set_in_flight(giver, domain, InFlight.HANDED_ON)


def heard_of(state: SchedulerState, giver: WorkloadInfo) -> Queue:
    """Takes a giver out of the handover, since its stored state now says what it holds. Returns the
    ClusterQueue of the quota that it gave."""
    joint = state.handover_of.pop(giver)
    return joint.given.pop(giver).charge.queue


def end(state: SchedulerState, joint: QuotaHandover) -> None:
    """Ends the handover. Givers without a new stored state hold again exactly what they held."""
    del state.handover_of[joint.receiver]
    del state.handovers[joint.domain]
    for giver, (charge, ranked) in joint.given.items():
        del state.handover_of[giver]
        state.clear_in_flight(giver, charge.queue.domain)
        for cell, amount in charge.cells:
            cell.charge(amount)
        giver.charge = charge
        if giver.family is not None:
            charging.join_family_quota(state, giver)
        charge.queue.holding[giver] = None
        if state.accounts is not None:
            state.accounts.heard(giver, state.now, anew=True)
        if ranked is not None:
            insort(charge.queue.candidates, ranked)
            giver.candidate = ranked
        if charge.queue.domain is not None and state.planning_domains:
            planned.add_planner(state, charge.queue.domain, giver)
            planned.share_quota(state, charge.queue.domain)
        state.bump_version(charge.queue.domain)
    joint.given.clear()
    state.schedule_cycle(joint.domain)
