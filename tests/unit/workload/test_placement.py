"""The runners that the check `machines` assigns to the pods of a workload.
docs/spec/lifecycle.md#2.9."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from admittance.events import facts
from admittance.events.placement import PlacementPart
from admittance.workload.change import FactOutcome
from admittance.workload.checks.rows import row_of
from admittance.workload.transition_context import CheckRules
from support.builders import Around
from support.cores.tracked_workload import ME, TrackedWorkload

CONTROLLER = "admittance.dev/machines"


def part(**more: Any) -> PlacementPart:
    pods: dict[str, Any] = {"pod_set": "main", "first": 0, "count": 1}
    return PlacementPart(**{"runner": "gpu-1", "id": "one", **pods, **more})


HERE = (part(devices={"nvidia.com/gpu": ("a", "b")}),)


def reserved(*checks: str) -> TrackedWorkload:
    around = Around(("machines", *checks), rules=[CheckRules("machines", CONTROLLER)])
    return TrackedWorkload(around).assigned()


def says(tracked: TrackedWorkload, state: str = "Ready", **more: Any) -> TrackedWorkload:
    given: dict[str, Any] = {"placement": HERE if state == "Ready" else ()}
    return tracked.verdict("machines", state, **{"controller": CONTROLLER, **given, **more})


def in_row(tracked: TrackedWorkload) -> int:
    row = row_of(tracked.status.admission_checks, "machines")
    return len(row.placement) if row is not None else 0


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"placement": ()}, "0 of 1 pods"),
        ({"placement": (part(count=2),)}, "2 of 1 pods"),
        ({"placement": (part(pod_set="other"),)}, "no such pod set"),
        ({"placement": (part(runner=""),)}, "the runner's name"),
        ({"controller": "ctl-c", "check": "c", "placement": HERE}, "only the controller"),
    ],
)
def test_a_verdict_that_assigns_no_runner_to_every_pod_is_refused(
    more: dict[str, Any], why: str
) -> None:
    tracked = reserved("c")
    check = more.pop("check", "machines")
    before = tracked.stored
    fields: dict[str, Any] = {"controller": CONTROLLER, **more}
    tracked.verdict(check, "Ready", **fields)
    assert (tracked.outcome, tracked.reason) == (FactOutcome.REFUSED, "BadPlacement")
    assert why in tracked.why
    assert tracked.stored is before


def test_runners_with_another_state_than_ready_have_no_effect_and_a_note() -> None:
    tracked = says(reserved(), "Pending", placement=HERE, message="4 GPUs: 3 are free")
    assert in_row(tracked) == 0
    assert "placement has an effect only with Ready" in tracked.noted()["VerdictPartIgnored"]


def test_a_check_that_takes_its_ready_back_takes_the_runners_back() -> None:
    tracked = says(reserved("c"))
    assert (in_row(tracked), tracked.status.placement) == (1, ())
    assert in_row(says(tracked, "Pending", message="gpu-1 is gone")) == 0


def admitted() -> TrackedWorkload:
    return says(reserved()).confirmed()


def runner_ended(tracked: TrackedWorkload, reason: str = "RunnerEnded") -> TrackedWorkload:
    stopped = facts.Stopped(
        **ME, revision=tracked.status.admitted_revision, reason=reason, message="m"
    )
    return tracked.happens(stopped)


@pytest.mark.parametrize(
    ("happens", "phase"),
    [
        (TrackedWorkload.preempted, "Evicting"),
        (TrackedWorkload.off, "Deactivated"),
        (lambda tracked: says(tracked, "Retry", after=60), "Evicting"),
        (lambda tracked: tracked.lists(), "Admitted"),
        (lambda tracked: says(tracked, "Pending"), "Admitted"),
        (lambda tracked: says(tracked, placement=(part(id="two"),)), "Admitted"),
        (lambda tracked: tracked.happens(facts.Finished(**ME)), "Finished"),
    ],
    ids=["preempted", "deactivated", "retry", "uncovered", "doubt", "another", "finished"],
)
def test_the_runners_of_an_admission_are_known_until_its_job_has_stopped(
    happens: Callable[[TrackedWorkload], TrackedWorkload], phase: str
) -> None:
    tracked = admitted()
    assert tracked.status.placement == HERE
    happens(tracked)
    assert (tracked.phase, tracked.status.placement) == (phase, HERE)
    if phase in ("Evicting", "Deactivated"):
        tracked.stopped()
        assert (tracked.status.placement, in_row(tracked)) == ((), 0)


def test_runners_that_come_after_the_start_have_no_effect_and_a_note() -> None:
    tracked = reserved()
    tracked.lists()
    tracked.confirmed().lists("machines")
    assert (tracked.phase, tracked.states) == ("Admitted", {"machines": "Pending"})
    says(tracked)
    assert (tracked.status.placement, in_row(tracked)) == ((), 0)
    assert "come after the start of the pods" in tracked.noted()["VerdictPartIgnored"]


@pytest.mark.parametrize(
    ("reason", "restarts"),
    [("RunnerEnded", 1), ("PrologFailed", 0)],
    ids=["a job that may have started", "a job that a failed prolog kept from its start"],
)
def test_an_assigned_runner_gives_the_workload_back_uncounted(reason: str, restarts: int) -> None:
    tracked = runner_ended(admitted(), reason)
    assert tracked.status.restarts == restarts
    assert tracked.phase == "Pending"
    assert tracked.conditions["Evicted"] == ("True", "NodeFailures")
    assert tracked.status.scheduling_stats is None
    assert (tracked.status.placement, tracked.states) == ((), {"machines": "Pending"})
    assert tracked.outbox_kinds == ["evicted", "check_withdrawn", "requeued"]


def test_an_assigned_runner_that_ends_during_an_eviction_has_stopped_the_job() -> None:
    assert runner_ended(admitted().preempted()).phase == "Pending"


@pytest.mark.parametrize("reason", ["RunnerEnded", "PrologFailed"])
def test_a_job_that_is_given_back_keeps_the_admission_without_assigned_runners(
    reason: str,
) -> None:
    tracked = runner_ended(TrackedWorkload(Around()).admitted(), reason)
    assert (tracked.phase, tracked.outcome) == ("Admitted", FactOutcome.IGNORED)
    assert tracked.reason == reason
