"""Turns each kind of submission into a fact for the transitions: a workload, a variant of a parent,
or an element of an array."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from msgspec.structs import replace

from admittance.control.commit import LogMessage
from admittance.control.controller import Controller
from admittance.control.user_requests.people import user_behind
from admittance.control.user_requests.submissions import claim_of, digest, validate_submission
from admittance.control.workloads import BatchFamilies, VersionedWorkload, ref_to
from admittance.events import facts, reasons
from admittance.events.subjects import workload_key
from admittance.workload.arrays.dependencies import resolved
from admittance.workload.arrays.elements import claimed_element
from admittance.workload.change import Change, refused
from admittance.workload.moves.requests import Arrived
from admittance.workload.stored import StoredWorkload, head


def enter(
    fact: facts.Submitted,
    logged: LogMessage,
    present: StoredWorkload | None,
    state: Controller,
    families: BatchFamilies,
    known: Callable[[str], VersionedWorkload],
    now: datetime,
) -> Arrived | Change:
    """Returns the submission as an `Arrived` fact, or the change of a variant or an element that is
    refused or changes nothing. ``present``: the stored workload with the submitted name. ``known``:
    returns the workload at a key of the bucket. Raises InvalidSubmission."""
    written = bytes(fact.workload)
    queues = state.queues
    if (claim := claim_of(fact)) is not None:
        family = families.members(ref_to(fact.namespace, *claim.owner))
        rules = None
        if family.parent is not None:
            rules = queues.family_rules(fact.namespace, head(family.parent).queue_name)
        return state.variant_intake.enter(fact, claim, present, family, rules, now)
    if (element := claimed_element(written)) is not None:
        array = known(workload_key(fact.namespace, element.array)).workload
        queue = head(array).queue_name if array is not None else ""
        return state.element_intake.enter(
            fact,
            element,
            present,
            array,
            user_behind(logged),
            has_variants=queues.family_rules(fact.namespace, queue) is not None,
        )
    arrived = validate_submission(fact, state.objects, queues, state.workload_reader)
    arrived = replace(arrived, message_id=digest(logged), submitted_by=user_behind(logged))
    if present is not None:
        return arrived  # The submission creates nothing.
    entered = resolved(arrived, lambda name: known(workload_key(fact.namespace, name)).workload)
    if isinstance(entered, str):
        return refused(None, reasons.NO_DEPENDENCY, entered)
    return entered
