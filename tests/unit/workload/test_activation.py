"""Turned off and on, from every state and reason: T16, T22, F8, F9, F14, F15, L9, L24, T30."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest

from admittance.api.workload import GATED_BY
from admittance.events import facts
from admittance.workload.limits import Limits, PodsReadyLimits
from admittance.workload.phase import Phase
from admittance.workload.transition_context import InactiveReason
from support.builders import Around

from lives import HOLD, ME, STOP, Life

LIMITS = Limits(pods_ready=PodsReadyLimits(timeout=timedelta(seconds=30), backoff_limit=0))
LENIENT = Limits(pods_ready=PodsReadyLimits(timeout=timedelta(seconds=30)))
LOCAL = InactiveReason("Suspended", "LocalQueue lq is stopped", True, "LocalQueueStopped")


def a_life(limits: Limits = LIMITS, **spec: int) -> Life:
    return Life(Around(["c"], limits=limits), **spec).admitted()


def lost(life: Life) -> Life:
    at = life.status.admitted_revision
    return life.happens(facts.Stopped(**ME, revision=at, reason="NodeFailures"))


DEACTIVATIONS: dict[str, Callable[[], Life]] = {
    "T11 rejected": lambda: a_life().verdict("c", "Rejected"),
    "T14 pods never ready": lambda: a_life().later(30).due("pods-ready"),
    "T15 out of time": lambda: (
        a_life(Limits(), maximumExecutionTimeSeconds=5).later(5).due("execution")
    ),
    "T16 by a user": lambda: a_life().off(),
}
EVICTIONS: dict[str, Callable[[], Life]] = {
    "Preempted": lambda: a_life().preempted(),
    "PodsReadyTimeout": lambda: a_life(LENIENT).later(30).due("pods-ready"),
    "AdmissionCheck": lambda: a_life().verdict("c", "Retry", 60),
    "ClusterQueueStopped": lambda: a_life().stops(STOP),
    "LocalQueueStopped": lambda: a_life().stops(LOCAL),
    **DEACTIVATIONS,
}


@pytest.mark.scenario("F14", "L24")
@pytest.mark.parametrize("stopping", [False, True], ids=["when it has stopped", "while it stops"])
@pytest.mark.parametrize("why", sorted(EVICTIONS))
def test_after_any_eviction_an_activated_workload_is_like_new(why: str, stopping: bool) -> None:
    life = EVICTIONS[why]()
    life.around.stopped = None
    if not stopping:
        life.later(7).stopped()
    life.off().on()
    if stopping:
        assert life.phase is Phase.EVICTING
        life.later(7).stopped()
    assert life.phase is Phase.PENDING
    assert life.conditions["Requeued"] == ("True", "Reactivated")
    assert life.status.requeue_state is None
    assert life.status.accumulated_past_execution_time_seconds is None
    assert (life.states, life.counts) == ({"c": "Pending"}, {"c": 0})
    assert life.admitted().phase is Phase.ADMITTED


@pytest.mark.scenario("F15")
@pytest.mark.parametrize(
    "why", ["Preempted", "PodsReadyTimeout", "AdmissionCheck", "ClusterQueueStopped",
            "LocalQueueStopped", "NodeFailures"],
)  # fmt: skip
def test_every_evicted_workload_can_be_pending_again(why: str) -> None:
    life = lost(a_life()) if why == "NodeFailures" else EVICTIONS[why]().stopped()
    assert life.conditions["Evicted"] == ("True", why)
    life.stops(None)
    if life.phase is Phase.BACKOFF:
        life.later(life.wait or 0).due()
    assert life.phase is Phase.PENDING
    requeued = {
        "AdmissionCheck": "BackoffFinished",
        "PodsReadyTimeout": "BackoffFinished",
        "ClusterQueueStopped": "ClusterQueueRestarted",
        "LocalQueueStopped": "LocalQueueRestarted",
    }
    assert life.conditions["Requeued"] == ("True", requeued.get(why, why))
    assert life.admitted().conditions["Evicted"] == ("False", "QuotaReserved")


@pytest.mark.scenario("F9")
@pytest.mark.parametrize("stopped", [False, True])
@pytest.mark.parametrize("why", ["Preempted", "PodsReadyTimeout", "AdmissionCheck"])
def test_an_earlier_eviction_keeps_its_reason(why: str, stopped: bool) -> None:
    life = EVICTIONS[why]()
    if stopped:
        life.stopped()
    assert life.off().phase is Phase.DEACTIVATED
    assert life.conditions["Evicted"] == ("True", why)


def test_a_second_deactivation_replaces_the_reason_of_the_first() -> None:
    life = a_life().verdict("c", "Rejected").stopped().on().off()
    assert life.phase is Phase.DEACTIVATED
    assert life.conditions["Evicted"] == ("True", "Deactivated")


@pytest.mark.scenario("F8", "L9")
def test_a_deactivation_removes_the_wait() -> None:
    life = EVICTIONS["PodsReadyTimeout"]().stopped().verdict("c", "Retry", 600, ago=1)
    assert life.wait == 600
    life.off()
    assert (life.status.requeue_state, life.states) == (None, {"c": "Pending"})
    assert life.later(1000).due().phase is Phase.DEACTIVATED
    life.on()
    assert (life.phase, life.counts) == (Phase.PENDING, {"c": 0})


@pytest.mark.scenario("L9")
def test_verdicts_before_a_deactivation_are_stale() -> None:
    life = Life(Around(["c"])).assigned()
    cycle = life.status.admission_cycle
    life.off().on()
    for state, after in (("Rejected", None), ("Retry", 60), ("Ready", None)):
        assert life.verdict("c", state, after, cycle=cycle).reason == "Stale"


def test_activation_in_a_stopped_queue_has_its_reason() -> None:
    life = Life().off().stops(HOLD).on()
    assert life.conditions["QuotaReserved"] == ("False", "Suspended")
    assert life.stops(None).conditions["QuotaReserved"] == ("False", "PendingEvaluation")


@pytest.mark.scenario("F7")
def test_a_stopped_queue_withdraws_reservations_without_eviction() -> None:
    life = Life(Around(["c"])).assigned().verdict("c", "Ready").stops(HOLD)
    assert (life.phase, life.states) == (Phase.PENDING, {"c": "Pending"})
    assert life.conditions["QuotaReserved"] == ("False", "Suspended")
    assert "Evicted" not in life.conditions
    assert "Requeued" not in life.conditions
    assert life.status.admission_cycle == 1


def test_gates_keep_it_out_of_its_queue_until_it_is_released() -> None:
    life = Life(annotations={GATED_BY: "example.com/later"})
    assert life.conditions["QuotaReserved"] == ("False", "AdmissionGated")
    assert "example.com/later" in life.message("QuotaReserved")
    life.queue_changed()
    assert life.conditions["QuotaReserved"] == ("False", "AdmissionGated")
    life.happens(facts.Held(**ME))
    assert life.conditions["QuotaReserved"] == ("False", "OnHold")
    life.happens(facts.Released(**ME))
    assert life.conditions["QuotaReserved"] == ("False", "PendingEvaluation")
    assert GATED_BY not in life.stored.metadata.annotations
    assert life.happens(facts.Released(**ME)).reason == "NotHeld"
