"""The drain of a machine on which a prolog or an epilog failed. Pure.

The runner announces the failure until the drain has ended. The condition of the Runner object says
which failure was applied last, by its time: so `admit undrain` ends the drain although the failure
is still announced, and the next failure drains the machine again.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Final, NamedTuple

from admittance.api.meta import Condition
from admittance.api.runners import REASON_MAX, RunnerDrain
from admittance.events import reasons
from admittance.events.stored.machines import MachineFailure

HOOKS_FAILED: Final = "HooksFailed"
"""The condition of a Runner after its prolog or epilog has failed."""


class DrainedByHooks(NamedTuple):
    """The drain of a Runner and its conditions."""

    drain: RunnerDrain | None
    conditions: tuple[Condition, ...]


def condition_of(conditions: Iterable[Condition]) -> Condition | None:
    """The condition `HOOKS_FAILED`; None: no hook has failed."""
    return next((each for each in conditions if each.type == HOOKS_FAILED), None)


def is_new(failure: MachineFailure | None, conditions: Iterable[Condition]) -> bool:
    """Whether the announced failure has not drained the machine yet."""
    if failure is None:
        return False
    known = condition_of(conditions)
    if known is None or known.last_transition_time is None:
        return True
    return failure.at > known.last_transition_time


def is_undrained(failure: MachineFailure, conditions: Iterable[Condition]) -> datetime | None:
    """When the drain after the failure was ended; None: it was not."""
    known = condition_of(conditions)
    if known is None or known.status != "False" or is_new(failure, [known]):
        return None
    return known.last_transition_time


def drained_by_hooks(
    drain: RunnerDrain | None,
    conditions: tuple[Condition, ...],
    failure: MachineFailure | None,
    now: datetime,
) -> DrainedByHooks:
    """The drain and the conditions with the announced failure. A drain that an admin has set stays
    as it is."""
    known = condition_of(conditions)
    if failure is not None and is_new(failure, conditions):
        condition = Condition(
            type=HOOKS_FAILED,
            status="True",
            reason=failure.reason,
            message=failure.message,
            last_transition_time=failure.at,
        )
        drain = drain or RunnerDrain(reason=failure.message[:REASON_MAX])
    elif known is not None and known.status == "True" and drain is None:
        ended = now.replace(microsecond=0)
        condition = Condition(
            type=HOOKS_FAILED,
            status="False",
            reason=reasons.UNDRAINED,
            last_transition_time=max(ended, known.last_transition_time or ended),
        )
    else:
        return DrainedByHooks(drain, conditions)
    others = tuple(each for each in conditions if each is not known)
    return DrainedByHooks(drain, (*others, condition))
