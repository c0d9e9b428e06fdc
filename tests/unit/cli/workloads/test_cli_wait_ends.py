"""For commands that wait, a job that ran out of execution time has failed."""

from __future__ import annotations

from datetime import timedelta

import pytest
from msgspec.structs import replace

from admittance.api.meta import Condition
from admittance.client.requests.workloads.waits import (
    End,
    Goal,
    is_failure,
    is_reached,
    why_unreachable,
)
from admittance.events import reasons
from admittance.workload import stored
from admittance.workload.phase import Phase, phase
from admittance.workload.stored import StoredWorkload
from support.builders import NOON
from support.stored.values import stages

TOLD = "Exceeded the maximum execution time: it ran 5 s, 5 s are allowed"


def deactivated(reason: str) -> StoredWorkload:
    workload = stored.decode(stages()["evicted"][1])
    conditions = tuple(
        Condition(type="Evicted", status="True", reason=reason, message=TOLD)
        if condition.type == "Evicted"
        else condition
        for condition in workload.status.conditions
    )
    return replace(workload, status=replace(workload.status, conditions=conditions))


@pytest.mark.parametrize(
    ("goal", "reached"),
    [(Phase.FINISHED, True), (End.FAILED, True), (End.SUCCEEDED, False), (Phase.RUNNING, False)],
)
def test_a_job_that_ran_out_of_time_has_failed(goal: Goal, reached: bool) -> None:
    late = deactivated(reasons.DEACTIVATED_DUE_TO_EXECUTION_TIME)
    now = phase(late, NOON + timedelta(hours=1))
    assert is_failure(late) == TOLD
    assert is_reached(late, now, goal) is reached
    assert reached or TOLD in why_unreachable(late, now, goal)


def test_a_job_that_a_user_stopped_has_not_failed() -> None:
    stopped = deactivated("Deactivated")
    assert is_failure(stopped) == ""
    assert not is_reached(stopped, Phase.DEACTIVATED, Phase.FINISHED)
