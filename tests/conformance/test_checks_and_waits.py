"""Kueue's smaller tables about checks, waits and conditions of a workload."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from admittance.api.checks import AdmissionCheck, AdmissionCheckSpec
from admittance.api.fields.units import seconds
from admittance.api.meta import Condition, ObjectMeta
from admittance.api.queues import ClusterQueue
from admittance.api.reading.manifest import decode_object
from admittance.api.workload import CheckState, RequeueState
from admittance.events import facts
from admittance.events.shapes import Admission
from admittance.quota.required_checks import CheckLists, required_checks
from admittance.workload import stored
from admittance.workload.change import with_status
from admittance.workload.checks.rows import Rows, synced_rows
from admittance.workload.conditions import Type, find, is_held, is_true, put
from admittance.workload.due_times import TimerKind, due_times
from admittance.workload.limits import Limits, PodsReadyLimits
from admittance.workload.moves.backoff import check_deadline, requeue_state_of
from admittance.workload.moves.eviction import total_seconds
from admittance.workload.moves.timeouts import timer_due
from admittance.workload.stored import StoredWorkload
from admittance.workload.transition_context import RequiredCheck
from admittance.workload.transitions import transition
from conformance.lifecycle_differences import SYNC_ADMITTED
from conformance.tables import cases, needs_data, time_of
from support.builders import Around, an_admission, occasion
from support.cores.tracked_workload import ME

BARE = {"apiVersion": "v1", "kind": "Workload", "metadata": {"name": "w", "namespace": "ns"}}

pytestmark = needs_data


def a_workload(given: Mapping[str, Any] | None, **status: Any) -> StoredWorkload:
    whole = {**BARE, **(given or {})}
    whole["status"] = {**whole.get("status", {}), **status}
    return stored.decode(msgspec.json.encode(whole))


def rows_of(states: Any) -> Rows:
    return tuple(msgspec.convert(state, CheckState) for state in states or ())


# Which checks. --------------------------------------------------------------------------


def checks_for(queue: Mapping[str, Any], admission: Admission | None) -> list[str]:
    manifest = decode_object(queue).manifest
    assert isinstance(manifest, ClusterQueue)
    lists = CheckLists(manifest)
    known = {
        name: AdmissionCheck(
            metadata=ObjectMeta(name=name), spec=AdmissionCheckSpec(controller_name=f"ctl-{name}")
        )
        for name in lists.names()
    }
    return sorted(required_checks(lists, admission, known.get))


@pytest.mark.scenario("B0", "B1", "B7")
@pytest.mark.parametrize(
    "case",
    [*cases("workload/TestFilterChecksForAdmission"),
     *cases("workload/TestAdmissionChecksForWorkload")],
)  # fmt: skip
def test_the_checks_of_a_workload_are_those_of_its_flavors(case: dict[str, Any]) -> None:
    given = case["given"]
    workload = a_workload(given["wl"])
    names = checks_for(given["cq"], workload.status.admission)
    assert names == case["want"].get("admissionChecks", [])


@pytest.mark.scenario("B7")
@pytest.mark.parametrize("case", cases("controllers/TestReconcileSyncAdmissionChecks"))
def test_rows_follow_the_lists_of_the_queue(case: dict[str, Any]) -> None:
    workload = a_workload(case["given"]["wl"])
    names = checks_for(case["given"]["cq"], workload.status.admission)
    wanted = [RequiredCheck(name, "") for name in names]
    rows = synced_rows(workload.status.admission_checks, {}, wanted, now=time_of(None)).rows
    assert {row.name: row.state for row in rows} == {
        check["name"]: check["state"] for check in case["want"]["checks"]
    }


@pytest.mark.parametrize("case", cases("controllers/TestSyncCheckStates"))
def test_rows_that_stay_are_untouched(case: dict[str, Any]) -> None:
    given, want = case["given"], case["want"]
    before = rows_of(given.get("states"))
    wanted = [RequiredCheck(name, "") for name in given.get("list", ())]
    rows = synced_rows(before, {}, wanted, now=time_of(given["now"])).rows
    assert (rows != before) == want["change"]
    shown = [(row.name, row.state, row.message) for row in rows]
    assert shown == [(row.name, row.state, row.message) for row in rows_of(want["states"])]


@pytest.mark.parametrize("case", cases("admissionchecks/TestFilterCheckStates"))
def test_a_controller_has_the_rows_of_its_own_checks(case: dict[str, Any]) -> None:
    given = case["given"]
    owners = {
        check["metadata"]["name"]: check["spec"]["controllerName"]
        for check in given.get("admissionchecks", ())
    }
    names = [row["name"] for row in given.get("states", ())
             if owners.get(row["name"]) == "test-controller"]  # fmt: skip
    assert names == case["want"]["result"]


# Waits. ---------------------------------------------------------------------------------


@pytest.mark.scenario("L1")
@pytest.mark.parametrize("case", cases("workload/TestGetMaxRetryTime"))
def test_the_latest_end_of_all_delays(case: dict[str, Any]) -> None:
    want = case["want"].get("retryTime")
    deadline = check_deadline(rows_of(case["given"]["checkStates"]))
    assert deadline == (None if want is None else time_of(want))


@pytest.mark.scenario("L10")
@pytest.mark.parametrize("case", cases("workload/TestSetRequeueState"))
def test_the_time_of_a_wait_only_moves_forward_with_its_own_count(
    case: dict[str, Any],
) -> None:
    given, want = case["given"], case["want"]
    now, until = time_of(given["now"]), time_of(given["waitUntil"])
    state = dict(given["workload"].get("status", {}).get("requeueState") or {})
    if not state.get("requeueAt"):
        state.pop("requeueAt", None)
    before = a_workload(None, requeueState=state) if state else a_workload(None)
    if given["incrementCount"]:
        timeout = timed_out(before, now, until)
    else:
        row = CheckState(
            name="c", state="Retry", last_transition_time=now,
            requeue_after_seconds=int((until - now).total_seconds()),
        )  # fmt: skip
        timeout = requeue_state_of(before, (row,))
    assert timeout is not None
    assert timeout.requeue_at == time_of(want["requeueAt"])
    assert timeout.count == want.get("count")


def timed_out(before: StoredWorkload, now: Any, until: Any) -> RequeueState | None:
    wait = int((until - now).total_seconds())
    limits = PodsReadyLimits(timeout=timedelta(0), backoff_base=wait, backoff_max=wait)
    admitted = put(before.status.conditions, Type.ADMITTED, True, "Admitted", now=now)
    admitted = put(admitted, Type.QUOTA_RESERVED, True, "QuotaReserved", now=now)
    ready = with_status(before, conditions=admitted, admission=an_admission())
    around = Around(limits=Limits(pods_ready=limits))
    due = facts.TimerDue(**ME, kind="pods-ready")
    change = timer_due(ready, due, occasion(1, now, around))
    assert change.workload is not None
    return change.workload.status.requeue_state


@pytest.mark.scenario("F3")
@pytest.mark.parametrize("case", cases("controllers/TestAdmittedNotReadyWorkload"))
def test_how_long_pods_may_still_take(case: dict[str, Any]) -> None:
    given, want = case["given"], case["want"]
    now = time_of(given["now"])
    waiting = given.get("waitForPodsReady")
    limits = Limits()
    if waiting is not None:
        span = {key: timedelta(seconds=float(seconds(value))) for key, value in waiting.items()}
        limits = Limits(
            pods_ready=PodsReadyLimits(
                timeout=span.get("timeout", timedelta(0)), recovery=span.get("recoveryTimeout")
            )
        )
    status = dict(given["workload"].get("status", {}))
    status.pop("admission", None)
    due = due_times(a_workload(None, **status), now, Around(limits=limits)).get(
        TimerKind.PODS_READY
    )
    left = timedelta(0) if due is None else max(timedelta(0), due - now)
    assert left.total_seconds() == float(seconds(want["recheckAfter"]))
    assert (due is not None) == ("underlyingCause" in want)


# Conditions. ----------------------------------------------------------------------------


@pytest.mark.parametrize("case", cases("workload/TestIsOnHold"))
def test_a_workload_with_the_hold_gate_is_on_hold(case: dict[str, Any]) -> None:
    assert is_held(a_workload(case["given"]["wl"])) == case["want"]["result"]


@pytest.mark.parametrize(
    "case", cases("workload/TestSetConditionAndUpdate", {"initial empty with error": ""})
)
def test_a_condition_is_set(case: dict[str, Any]) -> None:
    given = case["given"]
    before = a_workload(None, **given.get("oldStatus", {})).status.conditions
    (new,) = put(
        before,
        given["condType"],
        given["condStatus"] == "True",
        given["reason"],
        given.get("message", ""),
        now=time_of(None),
    )
    (want,) = case["want"]["status"]["conditions"]
    assert (new.type, new.status, new.reason, new.message) == (
        want["type"],
        want["status"],
        want["reason"],
        want.get("message", ""),
    )


def shown(conditions: tuple[Condition, ...]) -> dict[str, tuple[str, str, str, Any]]:
    return {
        condition.type: (
            condition.status,
            condition.reason,
            condition.message,
            condition.last_transition_time,
        )
        for condition in conditions
    }


@pytest.mark.parametrize("case", cases("workload/TestSetQuotaReservation"))
def test_a_reservation_resets_earlier_conditions(case: dict[str, Any]) -> None:
    args, now = case["given"]["args"], time_of(case["given"]["now"])
    fact = facts.Assigned(
        **ME, revision=1, seen=0, domain="d",
        admission=msgspec.convert(args["admission"], Admission),
    )  # fmt: skip
    workload = a_workload({**args["workload"], "metadata": BARE["metadata"]})
    change = transition(workload, fact, occasion(1, now, Around(["c"])))
    assert change.workload is not None
    want = a_workload(case["want"]["workload"])
    conditions = shown(change.workload.status.conditions)
    assert conditions.pop("Admitted")[:2] == ("False", "UnsatisfiedAdmissionChecks")
    assert conditions == shown(want.status.conditions)
    assert change.workload.status.admission == want.status.admission


@pytest.mark.scenario("F12")
@pytest.mark.parametrize("case", cases("workload/TestTotalExecutionTime"))
def test_the_total_time_of_a_finished_workload(case: dict[str, Any]) -> None:
    workload = a_workload(case["given"]["wl"])
    want = case["want"].get("duration")
    if want is None:
        assert not (is_true(workload, "Admitted") and is_true(workload, "Finished"))
        return
    assert total_seconds(workload, time_of(case["given"]["now"])) == seconds(want)


@pytest.mark.scenario("A2", "A7", "F12")
@pytest.mark.parametrize("case", cases("workload/TestSyncAdmittedCondition", SYNC_ADMITTED))
def test_admitted_follows_from_the_reservation_and_the_checks(case: dict[str, Any]) -> None:
    given, want = case["given"], case["want"]
    now = time_of(given["now"])
    past = given["pastAdmittedTime"] or None
    workload = a_workload(
        None,
        conditions=given.get("conditions", []),
        accumulatedPastExecutionTimeSeconds=past,
    )
    rows = rows_of(given.get("checkStates"))
    around = Around([row.name for row in rows])
    at = occasion(1, now, around)
    if is_true(workload, "Admitted"):
        held = put(workload.status.conditions, Type.QUOTA_RESERVED, True, "R", now=now)
        held = put(held, Type.EVICTED, True, "Preempted", now=now)
        stopping = with_status(
            workload, conditions=held, admission=an_admission(), admission_checks=rows
        )
        change = transition(stopping, facts.Stopped(**ME, revision=0), at)
    elif is_true(workload, "QuotaReserved"):
        change = judged(rows, around, now)
    else:
        change = transition(with_status(workload, admission_checks=rows),
                            facts.TimerDue(**ME, kind="requeue"), at)  # fmt: skip
    assert change is not None and change.workload is not None
    admitted = find(change.workload, Type.ADMITTED)
    wanted = [(c["status"], c["reason"]) for c in want["conditions"] if c["type"] == "Admitted"]
    assert ([] if admitted is None else [(admitted.status, admitted.reason)]) == wanted
    if want["admittedTime"] > 0:
        spent = change.workload.status.accumulated_past_execution_time_seconds
        assert spent == want["admittedTime"]


def judged(rows: Rows, around: Around, now: Any) -> Any:
    """Reserved, with these verdicts, and looked at again."""
    at = occasion(1, now, around)
    common = {**ME, "revision": 1, "seen": 0, "domain": "d"}
    change = transition(a_workload(None), facts.Assigned(**common, admission=an_admission()), at)
    for row in rows:
        said = facts.CheckReported(
            **ME, controller=f"ctl-{row.name}", check=row.name, cycle=0, state=row.state
        )
        change = transition(change.workload, said, at)
    return transition(change.workload, facts.Confirmed(**common), at)
