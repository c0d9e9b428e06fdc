"""`admit explain` of a workload that does not compete for quota."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from admittance.api.workload import GATED_BY
from admittance.cli.show import tables
from admittance.client.errors import NoResponder, TimedOut
from admittance.client.requests.link import Link
from admittance.client.requests.workloads.explanation import (
    NO_RUNNER,
    START_A_RUNNER,
    RunnerAnswer,
    answer_of_runner,
    corrected,
    state_of,
    with_runners,
    with_turn,
)
from admittance.events.requests.explanation import ExplainReply, OpenCheck, with_remedies
from admittance.events.requests.history import LogsReply
from admittance.events.requests.reading import RunnersReply
from admittance.events.requests.remedies import Remedy, RemedyKind
from admittance.workload.stored import StoredWorkload
from admittance.workload.waiting_reason import reason_of
from support.builders import a_manifest

NOON = datetime(2026, 2, 7, 12, tzinfo=UTC)
OF_THE_SCHEDULER = ExplainReply(
    phase="Backoff",
    reason="Suspended",
    position=3,
    holders=("ns/other",),
    unblocked_by=("the end of its wait", "quota being released: cpu: 2 short"),
)
STOPPED_QUEUE = "removal of stopPolicy Hold from ClusterQueue cq"
OBSTACLE = Remedy(text="removal of this obstacle: x", kind=RemedyKind.OBSTACLE)


def a_workload(
    *conditions: tuple[str, str, str], status: dict[str, Any] | None = None, **spec: Any
) -> StoredWorkload:
    rows = [{"type": kind, "status": truth, "reason": reason} for kind, truth, reason in conditions]
    manifest = {**a_manifest(**spec), "status": {"conditions": rows, **(status or {})}}
    return msgspec.json.decode(msgspec.json.encode(manifest), type=StoredWorkload)


WORKLOAD_CASES: dict[str, tuple[StoredWorkload, str, str, tuple[str, ...]]] = {
    "a stopped one waits for its activation, not for quota or time": (
        a_workload(("QuotaReserved", "False", "Deactivated"), active=False),
        "Deactivated",
        "Deactivated",
        ("`admit activate workload w`",),
    ),
    "a rejected one waits for its activation": (
        a_workload(("Evicted", "True", "DeactivatedDueToAdmissionCheck"), active=False),
        "Rejected",
        "DeactivatedDueToAdmissionCheck",
        ("`admit activate workload w`",),
    ),
    "one on hold waits for its release": (
        a_workload(("QuotaReserved", "False", "OnHold")),
        "Pending",
        "OnHold",
        ("`admit release workload w`",),
    ),
    "one that has finished waits for nothing": (
        a_workload(("Finished", "True", "Succeeded")),
        "Finished",
        "Succeeded",
        (),
    ),
}


@pytest.mark.parametrize("case", WORKLOAD_CASES)
def test_a_workload_out_of_the_queue_is_unblocked_by_a_user_only(case: str) -> None:
    workload, phase, reason, remedies = WORKLOAD_CASES[case]
    shown = corrected(workload, OF_THE_SCHEDULER, NOON)
    assert (shown.phase, shown.reason, shown.unblocked_by) == (phase, reason, remedies)
    assert (shown.position, shown.holders) == (0, ())


def test_a_held_workload_in_a_stopped_queue_needs_both_ended() -> None:
    held = a_workload(("QuotaReserved", "False", "OnHold"))
    stopped = Remedy(text=STOPPED_QUEUE, kind=RemedyKind.STOP_POLICY, queue="cq")
    shown = corrected(held, with_remedies(OF_THE_SCHEDULER, (stopped,)), NOON)
    assert shown.unblocked_by == (f"`admit release workload w`, and {STOPPED_QUEUE}",)
    (remedy,) = shown.remedies
    assert (remedy.command, remedy.also) == ("admit release workload w", (stopped,))


@pytest.mark.parametrize(
    ("stopped_by", "steps"),
    [
        ("", "`admit release workload w`"),
        ("User", "`admit release workload w`, and `admit activate workload w`"),
    ],
    ids=["by its parent", "by a user"],
)
def test_a_stopped_variant_of_a_held_parent_needs_the_parents_release(
    stopped_by: str, steps: str
) -> None:
    parent = a_workload(("QuotaReserved", "False", "OnHold"))
    variant = a_workload(
        ("QuotaReserved", "False", "Deactivated"),
        status={"stoppedBy": stopped_by},
        active=False,
    )
    assert corrected(variant, OF_THE_SCHEDULER, NOON, parent).unblocked_by == (steps,)


def test_a_competing_workload_is_explained_by_the_scheduler_only() -> None:
    waiting = a_workload(("QuotaReserved", "False", "WaitingForQuota"))
    assert corrected(waiting, OF_THE_SCHEDULER, NOON) is OF_THE_SCHEDULER


def test_a_workload_in_backoff_is_unblocked_by_its_retry() -> None:
    waiting = a_workload(
        ("Requeued", "False", "AdmissionCheck"),
        ("QuotaReserved", "False", "Pending"),
        status={"requeueState": {"requeueAt": "2026-02-07T12:01:30Z"}},
    )
    shown = corrected(waiting, OF_THE_SCHEDULER, NOON)
    assert (shown.phase, shown.reason, shown.position) == ("Backoff", "AdmissionCheck", 0)
    assert shown.unblocked_by == ("its retry at 2026-02-07T12:01:30Z (in 1m30s)",)


def test_a_workload_in_backoff_names_a_check_without_its_controller() -> None:
    waiting = a_workload(
        ("Requeued", "False", "AdmissionCheck"),
        status={"requeueState": {"requeueAt": "2026-02-07T12:01:30Z"}},
    )
    active = "ClusterQueue cq becoming active (AdmissionCheckInactive): AdmissionCheck room"
    reply = replace(
        OF_THE_SCHEDULER,
        checks=(OpenCheck(name="room", inactive="ControllerLost"), OpenCheck(name="other")),
    )
    reply = with_remedies(reply, (Remedy(text=active, kind=RemedyKind.ACTIVE_QUEUE, queue="cq"),))
    shown = corrected(waiting, reply, NOON)
    assert shown.message == "room is inactive (ControllerLost)"
    assert shown.unblocked_by == (f"its retry at 2026-02-07T12:01:30Z (in 1m30s), and {active}",)


def test_a_parent_in_backoff_has_the_reason_for_which_its_variants_wait() -> None:
    rows = [
        {"name": f"w-{tag}", "variant": tag, "active": True, "conditions": conditions}
        for tag, conditions in (
            ("a", [{"type": "QuotaReserved", "status": "False", "reason": "PendingEvaluation"}]),
            ("b", [{"type": "Requeued", "status": "False", "reason": "AdmissionCheck"}]),
        )
    ]
    parent = a_workload(
        ("QuotaReserved", "False", "PendingEvaluation"),
        status={"requeueState": {"requeueAt": "2026-02-07T12:01:30Z"}, "variants": rows},
        role="parent",
    )
    assert reason_of(parent, NOON) == ("AdmissionCheck", "")
    assert corrected(parent, OF_THE_SCHEDULER, NOON).reason == "AdmissionCheck"
    assert tables.wait_of(parent, NOON) == " (1m30s left)"
    assert tables.wait_of(parent, NOON.replace(hour=13)) == ""


def test_a_workload_on_hold_in_backoff_needs_its_release_too() -> None:
    waiting = a_workload(
        ("Requeued", "False", "AdmissionCheck"),
        ("QuotaReserved", "False", "OnHold"),
        status={"requeueState": {"requeueAt": "2026-02-07T12:01:30Z"}},
    )
    shown = corrected(waiting, OF_THE_SCHEDULER, NOON)
    (remedy,) = shown.unblocked_by
    assert remedy.startswith("`admit release workload ")
    assert remedy.endswith("`, and its retry at 2026-02-07T12:01:30Z (in 1m30s)")


def test_an_admitted_workload_with_ready_pods_is_running() -> None:
    running = a_workload(
        ("QuotaReserved", "True", "QuotaReserved"),
        ("Admitted", "True", "Admitted"),
        ("PodsReady", "True", "Started"),
    )
    reply = ExplainReply(phase="Admitted", message="Holds quota in ClusterQueue cq")
    assert corrected(running, reply, NOON).phase == "Running"
    assert corrected(running, reply, NOON).message == reply.message


ADMITTED = (("QuotaReserved", "True", "QuotaReserved"), ("Admitted", "True", "Admitted"))
RUNNING = (*ADMITTED, ("PodsReady", "True", "Started"))
PENDING = (("QuotaReserved", "False", "WaitingForQuota"),)


class OneAnswer(Link):
    """A link on which every request gets one answer."""

    def __init__(self, answer: LogsReply | Exception) -> None:
        self._answer = answer

    async def ask(self, *_: Any, **__: Any) -> Any:
        if isinstance(self._answer, Exception):
            raise self._answer
        return self._answer


@pytest.mark.parametrize(
    ("conditions", "answer", "held_back"),
    [
        pytest.param(ADMITTED, NoResponder("x"), NO_RUNNER, id="no runner answers"),
        pytest.param(RUNNING, NoResponder("x"), "", id="nor for a job that runs"),
        pytest.param(ADMITTED, TimedOut("x"), "", id="a runner that is slow"),
        pytest.param(ADMITTED, LogsReply(waiting="full"), "full", id="a runner that waits"),
        pytest.param(PENDING, LogsReply(waiting="full"), "", id="a workload without quota"),
    ],
)
async def test_an_admitted_workload_is_held_back_by(
    conditions: tuple[tuple[str, str, str], ...], answer: LogsReply | Exception, held_back: str
) -> None:
    answered = await answer_of_runner(OneAnswer(answer), a_workload(*conditions), NOON)
    assert answered == RunnerAnswer(held_back)


def test_an_admitted_workload_that_no_runner_takes_is_unblocked_by_a_runner() -> None:
    reply = ExplainReply(phase="Admitted", message="Holds quota in ClusterQueue cq")
    shown = with_runners(reply, NO_RUNNER, RunnersReply())
    assert shown.message == "Holds quota in ClusterQueue cq; no runner answers"
    assert shown.unblocked_by == (START_A_RUNNER,)
    waits = with_runners(reply, "", RunnersReply(why="no rule", needed="a rule"))
    assert (waits.message, waits.unblocked_by) == (reply.message, ("besides: a rule",))


@pytest.mark.parametrize(
    ("gates", "message", "unblocked"),
    [
        pytest.param("", "before", ("removal of this obstacle: x", "quota"), id="no gate"),
        pytest.param(
            "example.com/admittance.dev/array",
            "before",
            ("removal of this obstacle: x", "quota"),
            id="the gate of another program",
        ),
        pytest.param(
            "example.com/mine,admittance.dev/array",
            "waits for its turn: array sweep has as many open elements as it may have at once",
            (
                "the end of an earlier element of array sweep",
                "quota",
                "`admit release workload w --gate admittance.dev/array`",
            ),
            id="its turn in the array has not come",
        ),
    ],
)
def test_an_element_beyond_the_number_at_once_waits_for_its_turn(
    gates: str, message: str, unblocked: tuple[str, ...]
) -> None:
    manifest = a_manifest()
    manifest["metadata"] |= {
        "labels": {"admittance.dev/array": "sweep"},
        "annotations": {GATED_BY: gates},
    }
    workload = msgspec.json.decode(msgspec.json.encode(manifest), type=StoredWorkload)
    reply = with_remedies(ExplainReply(message="before"), (OBSTACLE, Remedy(text="quota")))
    said = with_turn(workload, reply)
    assert (said.message, said.unblocked_by) == (message, unblocked)


@pytest.mark.parametrize(
    ("active", "condition", "state"),
    [
        (False, ("DependencyUnmet", "prep failed"), "Deactivated since 5m, because prep failed"),
        (False, ("WaitsForDependencies", "waits for prep to succeed"), "Deactivated since 5m"),
        (True, ("DependencyUnmet", "prep failed"), "Pending since 5m"),
    ],
)
def test_the_state_of_a_dependency_says_that_its_own_dependency_failed(
    active: bool, condition: tuple[str, str], state: str
) -> None:
    manifest = a_manifest()
    manifest["metadata"]["annotations"] = {GATED_BY: "admittance.dev/dependencies"}
    manifest["spec"]["active"] = active
    reason, message = condition
    manifest["status"] = {
        "conditions": [
            {
                "type": "DependenciesMet",
                "status": "False",
                "reason": reason,
                "message": message,
                "lastTransitionTime": "2026-02-07T11:55:00Z",
            }
        ]
    }
    workload = msgspec.json.decode(msgspec.json.encode(manifest), type=StoredWorkload)
    assert state_of(workload, NOON) == state
