"""What `admit explain` tells of a workload that does not compete for quota."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from admittance.cli.explain import up_to_a_user
from admittance.events.requests import ExplainReply
from admittance.workload.stored import StoredWorkload

from builders import a_manifest

NOON = datetime(2026, 2, 7, 12, tzinfo=UTC)
OF_THE_SCHEDULER = ExplainReply(
    phase="Backoff",
    reason="Suspended",
    position=3,
    holders=("ns/other",),
    unblocked_by=("the end of its wait", "quota being released: cpu: 2 short"),
)


def a_workload(*conditions: tuple[str, str, str], **spec: Any) -> StoredWorkload:
    rows = [{"type": kind, "status": truth, "reason": reason} for kind, truth, reason in conditions]
    manifest = {**a_manifest(**spec), "status": {"conditions": rows}}
    return msgspec.json.decode(msgspec.json.encode(manifest), type=StoredWorkload)


@pytest.mark.parametrize(
    ("workload", "phase", "reason", "remedies"),
    [
        pytest.param(
            a_workload(("QuotaReserved", "False", "Deactivated"), active=False),
            "Deactivated",
            "Deactivated",
            ("`admit activate workload w`",),
            id="a stopped one waits for a user who activates it, not for quota or time",
        ),
        pytest.param(
            a_workload(("Evicted", "True", "DeactivatedDueToAdmissionCheck"), active=False),
            "Rejected",
            "DeactivatedDueToAdmissionCheck",
            ("`admit activate workload w`",),
            id="a rejected one too",
        ),
        pytest.param(
            a_workload(("QuotaReserved", "False", "OnHold")),
            "Pending",
            "OnHold",
            ("`admit release workload w`",),
            id="one on hold waits for a user who releases it",
        ),
        pytest.param(
            a_workload(("Finished", "True", "Succeeded")),
            "Finished",
            "Succeeded",
            (),
            id="one that has finished waits for nothing",
        ),
    ],
)
def test_only_a_user_lets_go_on_what_does_not_compete(
    workload: StoredWorkload, phase: str, reason: str, remedies: tuple[str, ...]
) -> None:
    told = up_to_a_user(workload, OF_THE_SCHEDULER, NOON)
    assert (told.phase, told.reason, told.unblocked_by) == (phase, reason, remedies)
    assert (told.position, told.holders) == (0, ())


def test_what_competes_is_explained_by_the_scheduler_alone() -> None:
    waiting = a_workload(("QuotaReserved", "False", "WaitingForQuota"))
    assert up_to_a_user(waiting, OF_THE_SCHEDULER, NOON) is OF_THE_SCHEDULER
