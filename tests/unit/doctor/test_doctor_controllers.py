"""`admit doctor` about check controllers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import pytest

from admittance.api.checks import AdmissionCheck, AdmissionCheckSpec, ObjectStatus
from admittance.api.meta import Condition, ObjectMeta
from admittance.client.errors import NoResponder, NotAllowed
from admittance.client.requests.link import Link
from admittance.client.requests.queues.capacity import answering
from admittance.doctor import controllers
from admittance.doctor.controllers import (
    capacity_classes,
    check_controllers,
    controller_finding,
)
from admittance.doctor.finding import OK, Finding
from admittance.events.system import EVERY_CALL_FAILS


def a_check(status: str = "", reason: str = "", message: str = "") -> AdmissionCheck:
    condition = Condition(type="Active", status=status, reason=reason, message=message)
    return AdmissionCheck(
        metadata=ObjectMeta(name="budget"),
        spec=AdmissionCheckSpec(controller_name="ctl"),
        status=ObjectStatus(conditions=(condition,)) if status else None,
    )


@pytest.mark.parametrize(
    ("durable", "check", "fine", "text"),
    [
        pytest.param(
            {"num_pending": 0}, a_check("True", "Active"), True, "budget: active", id="all is well"
        ),
        pytest.param({"num_pending": 0}, a_check(), True, "no heartbeat yet", id="a silent one"),
        pytest.param(
            {"num_pending": 3, "num_ack_pending": 5, "num_redelivered": 5},
            a_check(),
            False,
            "5 redelivered: it does not acknowledge in time",
            id="one that never acknowledges",
        ),
        pytest.param(
            {"num_redelivered": 5},
            a_check("True", "Active", f"{EVERY_CALL_FAILS} (ValueError): see the log"),
            False,
            "5 redelivered: every call fails",
            id="every call raises",
        ),
        pytest.param(
            {"num_pending": 5_000}, a_check(), False, "5,000 not read", id="one that never reads"
        ),
        pytest.param(
            {},
            a_check("False", "ControllerLost", "gone"),
            False,
            "budget: ControllerLost (gone)",
            id="one that is lost",
        ),
        pytest.param(None, a_check(), False, "no durable consumer", id="one without a durable"),
        pytest.param(
            {},
            a_check("True", "Active", "Different programs go by …"),
            False,
            "Different programs",
            id="two under one name",
        ),
    ],
)
def test_the_doctor_checks_a_check_controller(
    durable: dict[str, Any] | None, check: AdmissionCheck, fine: bool, text: str
) -> None:
    finding = controller_finding("ctl", durable, [check])
    assert (finding.state == OK) is fine
    assert text in finding.found


def test_a_durable_without_an_admission_check_is_a_note() -> None:
    finding = controller_finding("ctl", {"num_pending": 0}, [])
    assert (finding.state == OK, "no AdmissionCheck names it" in finding.found) == (False, True)


async def test_no_provider_answers_for_a_stored_request_without_a_class() -> None:
    link: Any = SimpleNamespace(bus=None)
    assert not await answering(link, [""])


@pytest.mark.parametrize("look", [check_controllers, capacity_classes])
@pytest.mark.parametrize(
    ("failure", "ends"), [(NoResponder("not running"), False), (NotAllowed("no right"), True)]
)
async def test_without_a_workload_controller_doctor_shows_its_other_findings(
    monkeypatch: pytest.MonkeyPatch,
    look: Callable[[Link], Awaitable[list[Finding]]],
    failure: Exception,
    ends: bool,
) -> None:
    async def consumers(_: object) -> dict[str, Any]:
        return {"ctl": {}}

    async def fails(*_: object) -> None:
        raise failure

    durables = SimpleNamespace(existing=consumers)
    monkeypatch.setattr(controllers, "check_durables", durables)
    monkeypatch.setattr(controllers, "provider_durables", durables)
    monkeypatch.setattr(controllers, "lookup_all", fails)
    link: Any = SimpleNamespace(bus=None)
    if ends:
        with pytest.raises(NotAllowed):
            await look(link)
    else:
        assert await look(link) == []
