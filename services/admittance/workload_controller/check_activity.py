"""What the Active condition of an AdmissionCheck must be. Pure.

Two things decide: whether the object that it names in ``parameters`` is there, and what its
controller tells in heartbeats. Without the object the check cannot be evaluated, whatever its
controller tells, also where no controller was ever heard.
"""

from __future__ import annotations

from collections.abc import Container
from datetime import datetime
from typing import Final

from msgspec.structs import replace

from admittance.api.checks import AdmissionCheck
from admittance.api.meta import Condition
from admittance.workload_controller.heartbeats import (
    ACTIVE,
    Heartbeats,
    active_of,
    with_condition,
)
from admittance.workload_controller.objects import Objects, absence

BAD_PARAMETERS: Final = "BadParametersRef"
"""Reason of Active=False: the object that the check names in ``parameters`` is not there."""


def changed(
    check: AdmissionCheck,
    objects: Objects,
    beats: Heartbeats,
    now: float,
    clock: datetime,
    written: float | None = None,
    coming: Container[str] = (),
) -> AdmissionCheck | None:
    """The check with the Active condition that it must have; None: it has it. ``now``, ``written``:
    as of `Heartbeats.condition`. ``coming``: keys of objects that are written together with it."""
    new = _changed(check, objects, beats, now, clock, written, coming)
    return None if new is None or active_of(new) == active_of(check) else new


def _changed(
    check: AdmissionCheck,
    objects: Objects,
    beats: Heartbeats,
    now: float,
    clock: datetime,
    written: float | None,
    coming: Container[str],
) -> AdmissionCheck | None:
    missing = objects.missing_parameters(check, coming)
    if missing:
        return with_condition(check, _inactive(check, missing, clock))
    if not tells_of_parameters(check):
        condition = beats.condition(check, now, clock, written)
        return None if condition is None else with_condition(check, condition)
    # The parameters have come: only its controller may know something else against it.
    condition = beats.condition(_untold(check), now, clock, None)
    return _untold(check) if condition is None else with_condition(check, condition)


def by_parameters(objects: Objects, clock: datetime) -> list[AdmissionCheck]:
    """The checks whose Active condition must change since their parameters have come or gone, each
    as it must become."""
    silence = Heartbeats(0.0)
    new = (
        changed(check, objects, silence, 0.0, clock) for check in objects.of_kind("admissioncheck")
    )
    return [check for check in new if check is not None]


def tells_of_parameters(check: AdmissionCheck) -> bool:
    """Its Active condition only tells that its parameters are missing, and nothing of its
    controller."""
    found = active_of(check)
    return (
        found is not None
        and found.reason == BAD_PARAMETERS
        and found.message == absence(check) != ""
    )


def _inactive(check: AdmissionCheck, missing: str, clock: datetime) -> Condition:
    before = active_of(check)
    unmoved = before is not None and before.status == "False"
    if before is not None and unmoved and before.message == missing:
        return before
    return Condition(
        type=ACTIVE,
        status="False",
        reason=BAD_PARAMETERS,
        message=missing,
        last_transition_time=before.last_transition_time if before and unmoved else clock,
        observed_generation=check.metadata.generation,
    )


def _untold(check: AdmissionCheck) -> AdmissionCheck:
    """The check as if nothing had been heard of it."""
    status = check.status
    assert status is not None, "it has a condition"
    kept = tuple(one for one in status.conditions if one.type != ACTIVE)
    return replace(check, status=replace(status, conditions=kept))
