"""`admit wait`: phases, results, and the exit status of a job."""

from __future__ import annotations

import msgspec
import pytest

from admittance.client.errors import BadInput
from admittance.client.requests.workloads.history import why_no_output
from admittance.client.requests.workloads.waits import (
    End,
    exit_status,
    goal_named,
    is_failure,
    is_reached,
    why_unreachable,
)
from admittance.workload import stored
from admittance.workload.phase import Phase
from support.builders import a_manifest


def a_workload(*conditions: tuple[str, str, str], message: str = "") -> stored.StoredWorkload:
    rows = [{"type": t, "status": s, "reason": r, "message": message} for t, s, r in conditions]
    return stored.decode(msgspec.json.encode({**a_manifest(), "status": {"conditions": rows}}))


NEVER_RAN = a_workload(("Finished", "True", "Failed"))
RAN = a_workload(
    ("QuotaReserved", "True", "QuotaReserved"),
    ("Admitted", "True", "Admitted"),
    ("PodsReady", "True", "Started"),
    ("Finished", "True", "Succeeded"),
)


def test_logs_say_why_a_job_that_failed_to_start_has_no_output() -> None:
    message = "no command to run as a local process"
    unstartable = a_workload(("Finished", "True", "FailedToStart"), message=message)
    assert why_no_output(unstartable).endswith(
        f"has no output, because it failed to start: {message}"
    )
    assert why_no_output(NEVER_RAN) == why_no_output(a_workload()) == ""


@pytest.mark.parametrize(
    "typed", ["quotareserved", "QuotaReserved", "quota-reserved", "QUOTA_RESERVED"]
)
def test_a_phase_is_named_in_any_case(typed: str) -> None:
    assert goal_named(typed) is Phase.QUOTA_RESERVED


def test_an_unknown_phase_is_refused_with_all_phases() -> None:
    with pytest.raises(BadInput, match="Pending, Backoff, QuotaReserved"):
        goal_named("done")


@pytest.mark.parametrize(
    ("now", "wanted", "want"),
    [
        pytest.param(Phase.ADMITTED, Phase.ADMITTED, True, id="the phase itself"),
        pytest.param(Phase.RUNNING, Phase.ADMITTED, True, id="what runs is admitted"),
        pytest.param(Phase.ADMITTED, Phase.RUNNING, False, id="what is admitted need not run"),
        pytest.param(Phase.RUNNING, Phase.QUOTA_RESERVED, True, id="what runs holds quota"),
        pytest.param(Phase.EVICTING, Phase.ADMITTED, False, id="what is evicted is on its way out"),
        pytest.param(Phase.FINISHED, Phase.PENDING, False, id="what ended is not pending"),
    ],
)
def test_a_phase_is_reached(now: Phase, wanted: Phase, want: bool) -> None:
    assert is_reached(a_workload(), now, wanted) is want


@pytest.mark.parametrize("wanted", [Phase.QUOTA_RESERVED, Phase.ADMITTED, Phase.RUNNING])
def test_a_workload_that_ran_to_its_end_was_admitted(wanted: Phase) -> None:
    assert is_reached(RAN, Phase.FINISHED, wanted)
    assert not is_reached(NEVER_RAN, Phase.FINISHED, wanted)


@pytest.mark.parametrize(
    ("now", "wanted", "want"),
    [
        pytest.param(Phase.FINISHED, Phase.RUNNING, True, id="nothing comes after the end"),
        pytest.param(Phase.REJECTED, Phase.ADMITTED, True, id="rejected, until a user acts"),
        pytest.param(Phase.DEACTIVATED, Phase.FINISHED, True, id="deactivated, until a user acts"),
        pytest.param(Phase.DEACTIVATED, Phase.REJECTED, False, id="a late verdict may reject it"),
        pytest.param(Phase.BACKOFF, Phase.ADMITTED, False, id="backoff ends"),
        pytest.param(Phase.RUNNING, Phase.PENDING, False, id="what runs may be evicted"),
    ],
)
def test_a_wait_ends_if_its_phase_cannot_be_reached(now: Phase, wanted: Phase, want: bool) -> None:
    assert bool(why_unreachable(a_workload(), now, wanted)) is want


def test_the_reason_of_a_failure_does_not_repeat_failed() -> None:
    why = "pod main-0: exit code 3"
    assert is_failure(a_workload(("Finished", "True", "Failed"), message=why)) == why
    never_started = a_workload(("Finished", "True", "FailedToStart"), message=why)
    assert is_failure(never_started) == f"FailedToStart: {why}"


def test_only_a_finished_job_without_success_failed() -> None:
    assert is_failure(NEVER_RAN) == "Failed"
    assert not is_failure(RAN)
    assert not is_failure(a_workload())


@pytest.mark.parametrize(
    ("workload", "came", "other"),
    [
        pytest.param(RAN, End.SUCCEEDED, End.FAILED, id="success"),
        pytest.param(NEVER_RAN, End.FAILED, End.SUCCEEDED, id="failure"),
    ],
)
def test_a_finished_job_cannot_reach_the_other_result(
    workload: stored.StoredWorkload, came: End, other: End
) -> None:
    assert goal_named(came.lower()) is came
    assert is_reached(workload, Phase.FINISHED, came)
    assert not is_reached(workload, Phase.FINISHED, other)
    assert f"has finished and {came.lower()}" in why_unreachable(workload, Phase.FINISHED, other)


def test_a_running_job_can_reach_both_results() -> None:
    assert not is_reached(a_workload(), Phase.RUNNING, End.FAILED)
    assert not why_unreachable(a_workload(), Phase.RUNNING, End.FAILED)


@pytest.mark.parametrize(
    ("code", "status"), [(3, 3), (137, 137), (None, 1), (0, 1), (256, 1), (-9, 1), (10**18, 1)]
)
def test_the_exit_status_is_that_of_the_job(code: int | None, status: int) -> None:
    failed = msgspec.structs.replace(
        NEVER_RAN, status=msgspec.structs.replace(NEVER_RAN.status, exit_code=code)
    )
    assert exit_status(failed) == status
