"""Turned off and on, from every state and reason: T16, T22, F8, F9, F14, F15, L9, L24, T30."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from admittance.api.workload import ARRAY_GATE, GATED_BY
from admittance.events import facts
from admittance.workload.limits import Limits, PodsReadyLimits
from admittance.workload.phase import Phase
from admittance.workload.transition_context import InactiveReason
from support.builders import Around
from support.cores.tracked_workload import HOLD, ME, STOP, TrackedWorkload

LIMITS = Limits(pods_ready=PodsReadyLimits(timeout=timedelta(seconds=30), backoff_limit=0))
LENIENT = Limits(pods_ready=PodsReadyLimits(timeout=timedelta(seconds=30)))
LOCAL = InactiveReason("Suspended", "LocalQueue lq is stopped", True, "LocalQueueStopped")


def a_tracked_workload(limits: Limits = LIMITS, **spec: Any) -> TrackedWorkload:
    return TrackedWorkload(Around(["c"], limits=limits), **spec).admitted()


def lost(tracked: TrackedWorkload) -> TrackedWorkload:
    at = tracked.status.admitted_revision
    return tracked.happens(facts.Stopped(**ME, revision=at, reason="NodeFailures"))


DEACTIVATIONS: dict[str, Callable[[], TrackedWorkload]] = {
    "T11 rejected": lambda: a_tracked_workload().verdict("c", "Rejected"),
    "T14 pods never ready": lambda: a_tracked_workload().later(30).due("pods-ready"),
    "T15 out of time": lambda: (
        a_tracked_workload(Limits(), maximumExecutionTimeSeconds=5).later(5).due("execution")
    ),
    "T16 by a user": lambda: a_tracked_workload().off(),
}
EVICTIONS: dict[str, Callable[[], TrackedWorkload]] = {
    "Preempted": lambda: a_tracked_workload().preempted(),
    "PodsReadyTimeout": lambda: a_tracked_workload(LENIENT).later(30).due("pods-ready"),
    "AdmissionCheck": lambda: a_tracked_workload().verdict("c", "Retry", 60),
    "ClusterQueueStopped": lambda: a_tracked_workload().stops(STOP),
    "LocalQueueStopped": lambda: a_tracked_workload().stops(LOCAL),
    **DEACTIVATIONS,
}


def test_each_change_of_the_spec_is_a_generation() -> None:
    tracked = a_tracked_workload()
    before = tracked.stored.metadata.generation
    assert tracked.off().stored.metadata.generation == before + 1
    assert tracked.on().stored.metadata.generation == before + 2


@pytest.mark.scenario("F14", "L24")
@pytest.mark.parametrize("stopping", [False, True], ids=["when it has stopped", "while it stops"])
@pytest.mark.parametrize("why", sorted(EVICTIONS))
def test_after_any_eviction_an_activated_workload_is_like_new(why: str, stopping: bool) -> None:
    tracked = EVICTIONS[why]()
    tracked.around.stopped = None
    if not stopping:
        tracked.later(7).stopped()
    tracked.off().on()
    if stopping:
        assert tracked.phase is Phase.EVICTING
        tracked.later(7).stopped()
    assert tracked.phase is Phase.PENDING
    assert tracked.conditions["Requeued"] == ("True", "Reactivated")
    assert tracked.status.requeue_state is None
    assert tracked.status.accumulated_past_execution_time_seconds is None
    assert (tracked.states, tracked.counts) == ({"c": "Pending"}, {"c": 0})
    assert tracked.admitted().phase is Phase.ADMITTED


@pytest.mark.scenario("F15")
@pytest.mark.parametrize(
    "why", ["Preempted", "PodsReadyTimeout", "AdmissionCheck", "ClusterQueueStopped",
            "LocalQueueStopped", "NodeFailures"],
)  # fmt: skip
def test_every_evicted_workload_can_be_pending_again(why: str) -> None:
    tracked = lost(a_tracked_workload()) if why == "NodeFailures" else EVICTIONS[why]().stopped()
    assert tracked.conditions["Evicted"] == ("True", why)
    tracked.stops(None)
    if tracked.phase is Phase.BACKOFF:
        tracked.later(tracked.wait or 0).due()
    assert tracked.phase is Phase.PENDING
    requeued = {
        "AdmissionCheck": "BackoffFinished",
        "PodsReadyTimeout": "BackoffFinished",
        "ClusterQueueStopped": "ClusterQueueRestarted",
        "LocalQueueStopped": "LocalQueueRestarted",
    }
    assert tracked.conditions["Requeued"] == ("True", requeued.get(why, why))
    assert tracked.admitted().conditions["Evicted"] == ("False", "QuotaReserved")


@pytest.mark.scenario("F9")
@pytest.mark.parametrize("stopped", [False, True])
@pytest.mark.parametrize("why", ["Preempted", "PodsReadyTimeout", "AdmissionCheck"])
def test_an_earlier_eviction_keeps_its_reason(why: str, stopped: bool) -> None:
    tracked = EVICTIONS[why]()
    if stopped:
        tracked.stopped()
    assert tracked.off().phase is Phase.DEACTIVATED
    assert tracked.conditions["Evicted"] == ("True", why)


def test_a_second_deactivation_replaces_the_reason_of_the_first() -> None:
    tracked = a_tracked_workload().verdict("c", "Rejected").stopped().on().off()
    assert tracked.phase is Phase.DEACTIVATED
    assert tracked.conditions["Evicted"] == ("True", "Deactivated")


@pytest.mark.scenario("F8", "L9")
def test_a_deactivation_removes_the_wait() -> None:
    tracked = EVICTIONS["PodsReadyTimeout"]().stopped().verdict("c", "Retry", 600, ago=1)
    assert tracked.wait == 600
    tracked.off()
    assert (tracked.status.requeue_state, tracked.states) == (None, {"c": "Pending"})
    assert tracked.later(1000).due().phase is Phase.DEACTIVATED
    tracked.on()
    assert (tracked.phase, tracked.counts) == (Phase.PENDING, {"c": 0})


@pytest.mark.scenario("L9")
def test_verdicts_before_a_deactivation_are_stale() -> None:
    tracked = TrackedWorkload(Around(["c"])).assigned()
    cycle = tracked.status.admission_cycle
    tracked.off().on()
    for state, after in (("Rejected", None), ("Retry", 60), ("Ready", None)):
        assert tracked.verdict("c", state, after, cycle=cycle).reason == "Stale"


def test_activation_in_a_stopped_queue_has_its_reason() -> None:
    tracked = TrackedWorkload().off().stops(HOLD).on()
    assert tracked.conditions["QuotaReserved"] == ("False", "Suspended")
    assert tracked.stops(None).conditions["QuotaReserved"] == ("False", "PendingEvaluation")


@pytest.mark.scenario("F7")
def test_a_stopped_queue_withdraws_reservations_without_eviction() -> None:
    tracked = TrackedWorkload(Around(["c"])).assigned().verdict("c", "Ready").stops(HOLD)
    assert (tracked.phase, tracked.states) == (Phase.PENDING, {"c": "Pending"})
    assert tracked.conditions["QuotaReserved"] == ("False", "Suspended")
    assert "Evicted" not in tracked.conditions
    assert "Requeued" not in tracked.conditions
    assert tracked.status.admission_cycle == 1


def test_gates_keep_it_out_of_its_queue_until_it_is_released() -> None:
    tracked = TrackedWorkload(annotations={GATED_BY: "example.com/later"})
    assert tracked.conditions["QuotaReserved"] == ("False", "AdmissionGated")
    assert "example.com/later" in tracked.message("QuotaReserved")
    tracked.queue_changed()
    assert tracked.conditions["QuotaReserved"] == ("False", "AdmissionGated")
    tracked.happens(facts.Held(**ME))
    assert tracked.conditions["QuotaReserved"] == ("False", "OnHold")
    tracked.happens(facts.Released(**ME))
    assert tracked.conditions["QuotaReserved"] == ("False", "PendingEvaluation")
    assert GATED_BY not in tracked.stored.metadata.annotations
    assert tracked.happens(facts.Released(**ME)).reason == "NotHeld"


OURS, THEIRS = ARRAY_GATE, "example.com/later"


@pytest.mark.parametrize(
    ("gates", "held", "opens", "outcome", "left", "waits"),
    [
        (f"{THEIRS}, {OURS}", False, "", "applied", OURS, "AdmissionGated"),
        (f"{THEIRS}, {OURS}", False, OURS, "applied", THEIRS, "AdmissionGated"),
        (OURS, False, OURS, "applied", None, "PendingEvaluation"),
        (OURS, False, "", "refused", OURS, "AdmissionGated"),
        (OURS, False, THEIRS, "ignored", OURS, "AdmissionGated"),
        (OURS, True, "", "applied", OURS, "AdmissionGated"),
        (OURS, True, OURS, "applied", None, "OnHold"),
    ],
    ids=[
        "without a name all gates of people open",
        "a name opens one gate",
        "the last gate ends the wait",
        "without a name a gate of a service stays closed",
        "the name of another gate opens nothing",
        "without a name a hold ends beside a gate of a service",
        "a name ends no hold",
    ],
)
def test_a_release_opens_the_gates_that_it_may_open(
    gates: str, held: bool, opens: str, outcome: str, left: str | None, waits: str
) -> None:
    tracked = TrackedWorkload(annotations={GATED_BY: gates})
    if held:
        tracked.happens(facts.Held(**ME))
    assert tracked.happens(facts.Released(**ME, gate=opens)).outcome == outcome
    assert tracked.stored.metadata.annotations.get(GATED_BY) == left
    assert tracked.conditions["QuotaReserved"] == ("False", waits)
