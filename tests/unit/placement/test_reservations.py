"""Which workloads are placed, and what is read of their reservations: by direct calls."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import msgspec
import pytest

from admittance.api.checks import MACHINES_CONTROLLER, PREEMPTS_AFTER_CHECK
from admittance.api.meta import Condition, ObjectMeta
from admittance.api.workload import CheckState
from admittance.events.placement import PlacementPart
from admittance.events.shapes import (
    Admission,
    PendingPreemption,
    PlannedVictim,
    PodSetAssignment,
)
from admittance.placement.reservation import has_rows, held_by, judged_by, reservation_of
from admittance.placement.search.request import NO_DEMANDS, Demands
from admittance.workload.stored import StoredWorkload, WorkloadStatus
from admittance.workload.transition_context import CheckRules, FlavorParts
from support.builders import NOON, a_condition

PARTS = (PlacementPart(runner="a", id="id-a", pod_set="main", first=0, count=1),)
ADMISSION = Admission(
    cluster_queue="cq",
    pod_set_assignments=(PodSetAssignment(name="main", flavors={"cpu": "f"}, count=1),),
)


def at(seconds: int) -> datetime:
    return NOON + timedelta(seconds=seconds)


class Rules:
    """The check ``machines`` is that of the runners; ``slow`` defers preemption."""

    def check(self, name: str) -> CheckRules | None:
        return {
            "machines": CheckRules("machines", MACHINES_CONTROLLER),
            "slow": CheckRules("slow", "ctl", PREEMPTS_AFTER_CHECK),
            "fast": CheckRules("fast", "ctl"),
        }.get(name)

    def flavor(self, name: str) -> FlavorParts:
        return FlavorParts()

    def demands(self, workload: StoredWorkload) -> Demands:
        return NO_DEMANDS


def row(name: str, state: str = "Pending", since: int | None = 0, **more: Any) -> CheckState:
    last = at(since) if since is not None else None
    return CheckState(name=name, state=state, last_transition_time=last, **more)


def a_workload(
    *conditions: Condition, spec: dict[str, Any] | None = None, **status: Any
) -> StoredWorkload:
    """A workload with quota since noon, which waits for its runners."""
    template = {"spec": {"containers": [{"resources": {"requests": {"cpu": "1"}}}]}}
    whole = {
        "queueName": "q",
        "podSets": [{"name": "main", "count": 1, "template": template}],
        **(spec or {}),
    }
    fields = {
        "admission": ADMISSION,
        "admission_checks": (row("machines"),),
        "conditions": (a_condition("QuotaReserved", True), *conditions),
        **status,
    }
    return StoredWorkload(
        api_version="v1",
        kind="Workload",
        metadata=ObjectMeta(name="w", namespace="ns", uid="u"),
        spec=msgspec.Raw(msgspec.json.encode(whole)),
        status=WorkloadStatus(**fields),
    )


ADMITTED = a_condition("Admitted", True)
EVICTED = a_condition("Evicted", True)


@pytest.mark.parametrize(
    ("workload", "rows", "judged"),
    [
        pytest.param(a_workload(), True, True, id="waits"),
        pytest.param(a_workload(ADMITTED), False, True, id="admitted without runners"),
        pytest.param(a_workload(ADMITTED, placement=PARTS), True, True, id="has runners"),
        pytest.param(a_workload(EVICTED), False, False, id="is being stopped"),
        pytest.param(a_workload(spec={"role": "parent"}), False, False, id="a parent"),
        pytest.param(a_workload(spec={"role": "variant"}), True, True, id="a variant"),
        pytest.param(a_workload(admission_checks=()), False, False, id="no rows"),
        pytest.param(a_workload(admission=None), False, False, id="no quota"),
        pytest.param(
            a_workload(admission_checks=(row("other"),)), True, False, id="an unknown check"
        ),
        pytest.param(
            a_workload(admission_checks=(row("slow"),)), True, False, id="another controller"
        ),
    ],
)
def test_a_workload_is_judged_while_it_holds_quota(
    workload: StoredWorkload, rows: bool, judged: bool
) -> None:
    assert has_rows(workload) is rows
    found = judged_by(workload, Rules())
    assert (found is not None) is judged
    assert found is None or found.row.name == "machines"


@pytest.mark.parametrize(
    ("others", "deferring_ready", "others_ready", "since"),
    [
        pytest.param((), True, True, 0, id="no other check"),
        pytest.param((row("slow", "Ready", 5),), True, True, 5, id="a deferring one is Ready"),
        pytest.param((row("slow", "Pending", 5),), False, False, 5, id="a deferring one waits"),
        pytest.param((row("fast", "Pending", 5),), True, False, 5, id="another one waits"),
        pytest.param((row("gone", "Pending", 5),), True, False, 5, id="an unknown one waits"),
        pytest.param(
            (row("slow", "Ready", 5), row("fast", "Pending", 9)), True, False, 9, id="both"
        ),
        pytest.param((row("fast", "Ready", -5),), True, True, 0, id="Ready before the quota"),
        pytest.param((row("fast", "Ready", None),), True, True, 0, id="without a time"),
    ],
)
def test_runners_are_looked_for_after_the_other_checks(
    others: tuple[CheckState, ...], deferring_ready: bool, others_ready: bool, since: int
) -> None:
    workload = a_workload(admission_checks=(row("machines", since=99), *others))
    judged = judged_by(workload, Rules())
    assert judged is not None
    found = reservation_of(workload, judged, Rules())
    assert (found.deferring_ready, found.others_ready) == (deferring_ready, others_ready)
    assert (found.since, found.reserved_at) == (at(since), NOON)


@pytest.mark.parametrize(
    ("conditions", "idle"),
    [
        pytest.param((), 0, id="never ran"),
        pytest.param((a_condition("Admitted", False, since=at(-60)),), -60, id="lost its quota"),
        pytest.param((a_condition("Admitted", False, since=at(60)),), 0, id="later than reserved"),
        pytest.param((a_condition("Admitted", True, since=at(-60)),), 0, id="runs"),
    ],
)
def test_a_job_is_idle_since_it_lost_its_quota(
    conditions: tuple[Condition, ...], idle: int
) -> None:
    workload = a_workload(*conditions)
    judged = judged_by(workload, Rules())
    assert judged is not None
    assert judged.admitted is (conditions != () and conditions[0].status == "True")
    assert reservation_of(workload, judged, Rules()).idle_since == at(idle)


@pytest.mark.parametrize(("spec", "priority"), [({}, 0), ({"priority": -3}, -3)])
def test_a_reservation_has_priority_flavors_and_victims(
    spec: dict[str, Any], priority: int
) -> None:
    victim = PlannedVictim(namespace="ns", name="v", uid="v")
    workload = a_workload(spec=spec, pending_preemption=PendingPreemption(victims=(victim,)))
    judged = judged_by(workload, Rules())
    assert judged is not None
    found = reservation_of(workload, judged, Rules())
    assert (found.priority, found.flavors) == (priority, {"f"})
    assert found.victims == {"ns/v"}
    plain = a_workload()
    assert reservation_of(plain, judged, Rules()).victims == frozenset()


@pytest.mark.parametrize(
    ("workload", "revision"),
    [
        pytest.param(a_workload(), None, id="nothing is assigned"),
        pytest.param(a_workload(placement=PARTS), 0, id="not admitted"),
        pytest.param(a_workload(ADMITTED, placement=PARTS), 7, id="admitted just now"),
        pytest.param(a_workload(ADMITTED, placement=PARTS, admitted_revision=4), 4, id="admitted"),
        pytest.param(a_workload(ADMITTED, EVICTED, placement=PARTS), 7, id="is being stopped"),
        pytest.param(a_workload(placement=PARTS, admission=None), None, id="no quota"),
    ],
)
def test_a_workload_holds_its_runners_until_its_job_has_stopped(
    workload: StoredWorkload, revision: int | None
) -> None:
    held = held_by(workload, 7)
    assert (held.revision if held is not None else None) == revision
    assert held is None or held.parts == PARTS
