"""How the variants of a family come to be admitted one after the other: what is on its way counts
as if it were written, and nobody moves while the job that they have in common is being stopped.

A better variant without checks gets quota and the job in one decision. Until the job has stopped
where it runs, that quota is kept for it, as a promise: it is charged, and belongs to nobody else.
Source: `docs/spec/lifecycle.md#4.5, #4.6, #4.7`.
"""

from __future__ import annotations

from typing import Final

from admittance.events.shapes import Admission, HandedOn
from admittance.scheduling.state.scheduler_state import SchedulerState
from admittance.scheduling.state.workload_info import Domain, FamilyInfo, InFlight, WorkloadInfo

MIGRATION: Final = "FlavorMigration"


def busy(family: FamilyInfo) -> str:
    """Why nobody of the family may be tried or confirmed now, a sentence; "": somebody may."""
    state = family.state
    assert state is not None
    if state.waits:
        return "The family waits out its backoff"
    if state.stopping or state.migrating_to:
        return "The family's job is being stopped"
    admitted = family.admitted()
    if state.admitted and (admitted is None or admitted.state != "Admitted" or admitted.is_leaving):
        return "The family's job is being stopped"
    if state.admitted and any(one is not admitted and _begins(one) for one in family.variants):
        return "A sibling is about to take over"
    return ""


def admitted_name(family: FamilyInfo) -> str:
    """The name of the variant that is admitted, or will be once what is on its way is written; ""
    is none. Where the family is `busy`, nobody may ask."""
    assert family.state is not None
    if family.state.admitted:
        return family.state.admitted
    return next((one.key[1] for one in family.variants if _begins(one)), "")


def _begins(workload: WorkloadInfo) -> bool:
    """It is admitted, as far as is known or assumed."""
    if workload.charge is None:
        return False
    if workload.state == "Admitted" or workload.in_flight is InFlight.CONFIRMED:
        return True
    family = workload.family
    return (
        workload.in_flight is InFlight.ASSIGNED
        and family is not None
        and family.assumed_admitted is workload
    )


def gives_way(
    state: SchedulerState, workload: WorkloadInfo, queue: str, admission: Admission
) -> WorkloadInfo | None:
    """The variant is about to be assigned this. The admitted sibling that has to stop before; None:
    there is none, or the variant has checks to pass, or victims to wait for, before."""
    family = workload.family
    if family is None:
        return None
    family.assumed_admitted = None
    if state.catalog.checks_to_pass(queue, admission):
        return None
    admitted = family.admitted()
    if admitted is None:
        family.assumed_admitted = workload
    return admitted


def may_begin(workload: WorkloadInfo) -> bool:
    """Nothing of its family has moved since it was its turn; so it is of every regular workload."""
    family = workload.family
    return family is None or (family.state is not None and not busy(family))


def begin(
    state: SchedulerState, domain: Domain, workload: WorkloadInfo, giver: WorkloadInfo
) -> HandedOn:
    """The workload is to take over from the giver: both are on their way, and end together."""
    family = workload.family
    assert family is not None and giver.charge is not None
    told = HandedOn(
        namespace=giver.key[0],
        name=giver.key[1],
        uid=giver.uid,
        revision=giver.revision,
        reason=MIGRATION,
        message=f"Migrates to variant {family.tag(workload)}",
    )
    family.migration = (workload, giver)
    state.set_in_flight(giver, domain, InFlight.MIGRATED)
    return told


def end(state: SchedulerState, workload: WorkloadInfo, *, taken: bool) -> None:
    """The state has heard of the workload that was to take over, or the decision does not hold.
    ``taken``: it is written so; then the giver's new state is on its way, too."""
    family = workload.family
    if family is None or family.migration is None or family.migration[0] is not workload:
        return
    giver = family.migration[1]
    family.migration = None
    if not taken and giver.in_flight is InFlight.MIGRATED:
        domain = giver.charge.queue.domain if giver.charge is not None else None
        state.clear_in_flight(giver, domain)


def taker(workload: WorkloadInfo) -> WorkloadInfo:
    """Who decides about the workload: the one that was to take over from it, or itself."""
    family = workload.family
    if (
        workload.in_flight is InFlight.MIGRATED
        and family is not None
        and family.migration is not None
    ):
        return family.migration[0]
    return workload
