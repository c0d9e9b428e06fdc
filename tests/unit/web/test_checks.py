"""The page of checks: which controllers are alive, what waits for them, and the inbox."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from admittance.api.checks import AdmissionCheck, AdmissionCheckSpec, ObjectStatus
from admittance.api.meta import Condition, ObjectMeta
from admittance.api.workload import CheckState
from admittance.client.calls import Login
from admittance.client.errors import NotFound, Unavailable
from admittance.client.requests.objects import BucketObject
from admittance.events.codec import encode
from admittance.events.requests.queues import PendingReply, PendingRow
from admittance.events.shapes import Admission
from admittance.events.subjects import APPROVAL_CONTROLLER
from admittance.web.pages.checks import NAMED_MAX, under_checks
from admittance.web.views.system.checks import APPROVALS_MAX, ChecksView, build
from admittance.workload.stored import StoredWorkload, WorkloadStatus

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
ADMIN = Login("root", "admin")


def check(name: str, controller: str = "example.com/c", status: str = "") -> AdmissionCheck:
    active = Condition(
        type="Active", status=status, reason="ControllerLost", last_transition_time=NOW
    )
    return AdmissionCheck(
        metadata=ObjectMeta(name=name),
        spec=AdmissionCheckSpec(controller_name=controller),
        status=ObjectStatus(conditions=(active,)) if status else None,
    )


def waits(
    name: str, *states: str, minutes: int = 1, reserved: bool = True, retries: int = 0
) -> StoredWorkload:
    """A workload with a row of the checks c0, c1, … in each state."""
    conditions = (Condition(type="QuotaReserved", status=str(reserved)),)
    rows = tuple(
        CheckState(
            name=f"c{place}",
            state=state,
            last_transition_time=NOW - timedelta(minutes=minutes),
            requeue_after_seconds=600 if state == "Retry" else None,
            retry_count=retries,
        )
        for place, state in enumerate(states)
    )
    status = WorkloadStatus(
        conditions=conditions,
        admission=Admission(cluster_queue="q") if reserved else None,
        admission_checks=rows,
    )
    meta = ObjectMeta(name=name, namespace="team", creation_timestamp=NOW)
    return StoredWorkload(api_version="v", kind="Workload", metadata=meta, status=status)


def view(
    *workloads: StoredWorkload,
    login: Login = ADMIN,
    controller: str = "example.com/c",
    status: str = "",
) -> ChecksView:
    return build([check("c0", controller, status)], workloads, login, NOW)


@pytest.mark.parametrize(
    ("controller", "status", "text", "state"),
    [
        pytest.param("c", "True", "Alive", "running", id="a heartbeat came lately"),
        pytest.param("c", "False", "ControllerLost", "rejected", id="none comes any more"),
        pytest.param("c", "", "No heartbeat yet", "rejected", id="none ever came"),
        pytest.param(APPROVAL_CONTROLLER, "", "By people", "admitted", id="people need none"),
    ],
)
def test_a_check_says_whether_its_controller_is_alive(
    controller: str, status: str, text: str, state: str
) -> None:
    [line] = view(controller=controller, status=status).checks
    assert (line.word.text, line.word.state) == (text, state)
    assert line.since == ("12:00:00" if status else "")


@pytest.mark.parametrize(
    ("workload", "waiting"),
    [
        pytest.param(waits("a", "Pending"), 1, id="asked, without an answer"),
        pytest.param(waits("a", "Ready"), 0, id="answered"),
        pytest.param(waits("a", "Retry"), 0, id="answered with not now"),
        pytest.param(waits("a", "Pending", reserved=False), 0, id="not asked before the quota"),
        pytest.param(waits("a"), 0, id="of a queue without checks"),
    ],
)
def test_a_workload_waits_for_a_check_that_was_asked(
    workload: StoredWorkload, waiting: int
) -> None:
    assert view(workload).checks[0].waiting == waiting


def test_a_check_names_the_workload_that_waits_longest() -> None:
    [line] = view(waits("young", "Pending"), waits("old", "Pending", minutes=90)).checks
    assert line.oldest is not None
    assert (line.oldest.text, line.oldest_waits) == ("old", "1 h 30 min")


def test_retries_are_counted_and_the_next_end_of_a_delay_is_named() -> None:
    later = waits("later", "Retry", minutes=1, retries=1)
    sooner = waits("sooner", "Retry", minutes=4, retries=2)
    over = waits("over", "Retry", minutes=30, retries=4)
    runs = waits("runs", "Ready", retries=8)
    admitted = replace(runs.status, conditions=(Condition(type="Admitted", status="True"),))
    [line] = view(later, sooner, over, replace(runs, status=admitted)).checks
    assert (line.retries, line.delayed) == (7, "2, the next until 12:06:00")


def test_the_inbox_has_the_approvals_that_wait_the_oldest_first() -> None:
    checks = [check("c0", APPROVAL_CONTROLLER), check("c1", APPROVAL_CONTROLLER)]
    young, old = waits("young", "Pending", "Ready"), waits("old", "Ready", "Pending", minutes=9)
    shown = build(checks, [young, old], ADMIN, NOW)
    assert [(row.name.text, row.check) for row in shown.approvals] == [
        ("old", "c1"),
        ("young", "c0"),
    ]
    assert [act.path for act in shown.approvals[0].acts] == [
        "/checks/team/old/approve:c1",
        "/checks/team/old/deny:c1",
    ]
    assert shown.title == "2 wait for approval"


def test_the_inbox_has_the_oldest_approvals_and_the_number_of_the_others() -> None:
    many = [waits(f"w{place}", "Pending") for place in range(APPROVALS_MAX + 3)]
    shown = view(*many, controller=APPROVAL_CONTROLLER)
    assert (len(shown.approvals), shown.more) == (APPROVALS_MAX, 3)


@pytest.mark.parametrize(
    ("role", "verdicts"), [("admin", 2), ("approver", 2), ("user", 0), ("viewer", 0)]
)
def test_only_a_role_that_gives_verdicts_has_the_buttons(role: str, verdicts: int) -> None:
    login = Login("eve", role)
    [row] = view(waits("a", "Pending"), login=login, controller=APPROVAL_CONTROLLER).approvals
    assert len(row.acts) == verdicts


@pytest.mark.parametrize(
    ("shown", "say"),
    [
        (
            build([], [], ADMIN, NOW),
            "There is no AdmissionCheck: workloads are admitted as soon as they have quota.",
        ),
        (build([], [], ADMIN, NOW, every=False), "No workload that you may see has a check."),
        (view(status="True"), "No workload waits for a check."),
        (view(waits("a", "Pending"), status="True"), "1 workload waits for a check."),
        (
            view(waits("a", "Pending"), status="False"),
            "1 workload waits for a check. c0 gives no verdicts now.",
        ),
        (
            view(waits("a", "Pending"), waits("b", "Pending"), controller=APPROVAL_CONTROLLER),
            "2 workloads wait for checks, for the approval of a person.",
        ),
        (
            build(
                [check("c0", APPROVAL_CONTROLLER), check("c1", status="True")],
                [waits("a", "Pending", "Pending"), waits("b", "Ready", "Pending")],
                ADMIN,
                NOW,
            ),
            "2 workloads wait for checks, 1 of them for the approval of a person.",
        ),
    ],
)
def test_the_sentence_says_what_waits_and_which_check_is_silent(
    shown: ChecksView, say: str
) -> None:
    assert shown.say == say
    assert shown.trouble == ("no verdicts" in say)


def stored(name: str) -> BucketObject:
    return BucketObject(f"workload.team.{name}", encode(waits(name, "Pending")), 1)


class Services(SimpleNamespace):
    """A client of a system in which two workloads wait for checks, one of which was deleted just
    now. ``total``: what the scheduler says, None: it does not answer; ``asked``: the questions."""

    def __init__(self, total: int | None) -> None:
        super().__init__(total=total, asked=[])

    async def pending(self, **chosen: Any) -> PendingReply:
        if self.total is None:
            raise Unavailable("no scheduler")
        if "reasons" in chosen:
            return PendingReply()
        rows = tuple(
            PendingRow(namespace="team", name=name, cluster_queue="q", local_queue="l", position=0)
            for name in ("waits", "gone")
        )
        return PendingReply(rows=rows, total=self.total)

    async def get(self, _kind: str, name: str, **_: Any) -> BucketObject:
        self.asked.append(name)
        if name == "gone":
            raise NotFound(name)
        return stored(name)

    async def list(self, _kind: str, *, namespace: str | None, **_: Any) -> Sequence[BucketObject]:
        self.asked.append(f"all of {namespace}")
        return [stored("waits")]


@pytest.mark.parametrize(
    ("total", "login", "asked"),
    [
        (2, ADMIN, ["waits", "gone"]),
        (NAMED_MAX + 1, ADMIN, ["all of None"]),
        (None, ADMIN, ["all of None"]),
        (2, Login("ada", "user", ("team",)), ["all of team"]),
        (2, Login("ann", "approver", ("team",)), ["all of team"]),
    ],
)
def test_a_person_of_all_namespaces_reads_only_workloads_that_wait_for_checks(
    total: int | None, login: Login, asked: list[str]
) -> None:
    client: Any = Services(total)
    found = asyncio.run(under_checks(client, login))
    assert [workload.metadata.name for workload in found] == ["waits"]
    assert client.asked == asked


def test_a_check_has_the_last_answer_of_its_controller() -> None:
    checks = [check("a", "example.com/a"), check("b", "example.com/b")]
    view = build(checks, [], ADMIN, NOW, answers={"example.com/a": NOW})
    assert [line.last_answer for line in view.checks] == ["12:00:00", ""]
