"""The drain of a machine on which a prolog or an epilog failed, as its Runner object has it."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from admittance.api.meta import Condition
from admittance.api.runners import RunnerDrain
from admittance.events.stored.machines import MachineFailure
from admittance.placement.machines.failed_hooks import (
    HOOKS_FAILED,
    drained_by_hooks,
    is_new,
    is_undrained,
)
from support.builders import NOON

OTHER = Condition(type="NameConflict", status="False", last_transition_time=NOON)
FAILED = MachineFailure(at=NOON, reason="PrologFailed", message="no disk")
BY_HOOK = RunnerDrain(reason="no disk")
BY_ADMIN = RunnerDrain(deadline=NOON, reason="a fan")


def after(seconds: int) -> datetime:
    return NOON + timedelta(seconds=seconds)


def condition(
    status: str = "True",
    at: datetime = NOON,
    reason: str = "PrologFailed",
    message: str = "no disk",
) -> Condition:
    return Condition(
        type=HOOKS_FAILED, status=status, reason=reason, message=message, last_transition_time=at
    )


def ended(at: datetime) -> Condition:
    return condition("False", at, "Undrained", "")


@pytest.mark.parametrize(
    ("drain", "known", "failure", "result", "then"),
    [
        pytest.param(None, None, None, None, None, id="nothing has failed"),
        pytest.param(BY_ADMIN, None, None, BY_ADMIN, None, id="an admin drains"),
        pytest.param(None, None, FAILED, BY_HOOK, condition(), id="a hook has failed"),
        pytest.param(
            BY_ADMIN, None, FAILED, BY_ADMIN, condition(), id="the drain of an admin stays"
        ),
        pytest.param(
            BY_HOOK, condition(), FAILED, BY_HOOK, condition(), id="the failure is said again"
        ),
        pytest.param(
            BY_HOOK, condition(), None, BY_HOOK, condition(), id="the runner has lost its folder"
        ),
        pytest.param(
            None, condition(), FAILED, None, ended(after(9)), id="an admin ends the drain"
        ),
        pytest.param(
            None,
            ended(after(9)),
            FAILED,
            None,
            ended(after(9)),
            id="its runner has not seen it yet",
        ),
        pytest.param(
            None,
            ended(after(9)),
            MachineFailure(at=after(10), reason="EpilogFailed", message="no disk"),
            BY_HOOK,
            condition(at=after(10), reason="EpilogFailed"),
            id="the next failure",
        ),
        pytest.param(
            None,
            condition(at=after(60)),
            None,
            None,
            ended(after(60)),
            id="the clock of the machine is ahead",
        ),
    ],
)
def test_a_failed_hook_drains_its_machine_once(
    drain: RunnerDrain | None,
    known: Condition | None,
    failure: MachineFailure | None,
    result: RunnerDrain | None,
    then: Condition | None,
) -> None:
    before = (OTHER, known) if known is not None else (OTHER,)
    now = after(9).replace(microsecond=5)
    wanted = (OTHER, then) if then is not None else (OTHER,)
    assert drained_by_hooks(drain, before, failure, now) == (result, wanted)
    assert drained_by_hooks(result, wanted, failure, after(99)) == (result, wanted)


def test_the_reason_of_a_drain_has_a_longest_length() -> None:
    drained = drained_by_hooks(
        None, (), MachineFailure(at=NOON, reason="PrologFailed", message="x" * 2000), NOON
    )
    assert drained.drain is not None
    assert len(drained.drain.reason) == 1000


@pytest.mark.parametrize(
    ("known", "new", "undrained"),
    [
        ((), True, None),
        ((condition(),), False, None),
        ((ended(NOON),), False, NOON),
        ((ended(after(9)),), False, after(9)),
        ((ended(after(-1)),), True, None),
        ((Condition(type=HOOKS_FAILED, status="False"),), True, None),
    ],
)
def test_the_condition_says_which_failure_was_applied_last(
    known: tuple[Condition, ...], new: bool, undrained: datetime | None
) -> None:
    assert is_new(FAILED, (OTHER, *known)) == new
    assert is_undrained(FAILED, (OTHER, *known)) == undrained
    assert not is_new(None, known)
