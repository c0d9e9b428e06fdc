"""Which verdicts of checks count, and what becomes of the others. docs/spec/lifecycle.md#2.5."""

from __future__ import annotations

import msgspec

from admittance.api.checks import MACHINES_CONTROLLER
from admittance.api.validation.workload import TypedPodSetUpdate, check_updates
from admittance.api.workload import CheckState
from admittance.events import facts, reasons
from admittance.events.shapes import CHECK_STATES, DELAY_MAX
from admittance.workload.change import (
    Change,
    ignored,
    refused,
)
from admittance.workload.checks.pod_set_updates import pod_set_names
from admittance.workload.conditions import Type, find, find_false
from admittance.workload.phase import holds_quota, is_stopping, phase
from admittance.workload.stored import StoredWorkload
from admittance.workload.transition_context import TransitionContext


def ignore_verdict(
    workload: StoredWorkload, fact: facts.CheckReported, context: TransitionContext
) -> Change:
    """Returns the change for a verdict on an inactive or finished workload."""
    return ignored(
        workload, str(phase(workload, context.now)), f"it accepts no verdict of {fact.check}"
    )


def unfit(workload: StoredWorkload, fact: facts.CheckReported) -> Change | None:
    """Why a verdict is invalid for any workload; None: the verdict is valid."""
    if fact.state not in CHECK_STATES:
        message = f"{fact.state[:64]!r} is not one of {', '.join(CHECK_STATES)}"
        return refused(workload, reasons.UNKNOWN_STATE, message)
    delay = fact.requeue_after_seconds
    if isinstance(delay, str):
        message = f"requeueAfterSeconds {delay[:40]!r} is not a duration like 8m0s"
        return refused(workload, reasons.BAD_DELAY, message)
    if delay is not None and not 0 <= delay <= DELAY_MAX:
        return refused(
            workload, reasons.BAD_DELAY, f"requeueAfterSeconds is {delay:.12g}, not 0 to 2^31 - 1"
        )
    if fact.placement and fact.controller != MACHINES_CONTROLLER:
        message = f"placement: only the controller {MACHINES_CONTROLLER} assigns runners"
        return refused(workload, reasons.BAD_PLACEMENT, message)
    if fact.pod_set_updates and fact.state == "Ready":
        try:
            updates = msgspec.convert(
                msgspec.to_builtins(fact.pod_set_updates), tuple[TypedPodSetUpdate, ...]
            )
        except msgspec.ValidationError as error:
            return refused(workload, reasons.BAD_UPDATES, f"podSetUpdates: {error}")
        problems = check_updates(updates, pod_set_names(workload), "podSetUpdates")
        if problems:
            first = problems[0]
            return refused(workload, reasons.BAD_UPDATES, f"{first.field}: {first.message}")
    return None


def ignore_unlisted_check(workload: StoredWorkload, fact: facts.CheckReported) -> Change:
    """Returns the change for a verdict of a check that the workload does not have."""
    return ignored(workload, reasons.NO_SUCH_CHECK, f"the workload has no check {fact.check}")


def ignore_stale_verdict(workload: StoredWorkload, fact: facts.CheckReported) -> Change:
    """Returns the change for a verdict on a cycle that does not count any more, or does not count
    yet."""
    now = workload.status.admission_cycle
    return ignored(
        workload, reasons.STALE, f"{fact.check} judged cycle {fact.cycle}, now it is {now}"
    )


def is_under_check(workload: StoredWorkload) -> bool:
    """Whether the workload holds quota and is not being evicted, so that its checks are
    requested."""
    return holds_quota(workload) and not is_stopping(workload)


def is_known(workload: StoredWorkload, row: CheckState | None, check: str) -> bool:
    """Whether the check has a row, or had a row and the workload has reserved no quota after losing
    that row."""
    return row is not None or (
        check in workload.status.check_retry_counts and not is_under_check(workload)
    )


def waits_for_checks(workload: StoredWorkload) -> bool:
    """Whether the workload is Evicting or in Backoff because of a check, so that its rows are
    frozen and still accept verdicts."""
    if is_stopping(workload):
        evicted = find(workload, Type.EVICTED)
        return evicted is not None and evicted.reason == reasons.ADMISSION_CHECK
    waits = None if holds_quota(workload) else find_false(workload, Type.REQUEUED)
    return waits is not None and waits.reason == reasons.ADMISSION_CHECK
