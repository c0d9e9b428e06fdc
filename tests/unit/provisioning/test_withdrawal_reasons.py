"""The reason of a cancellation, for the provider and for users."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from admittance.api.meta import Condition
from admittance.events import provisioning as facts
from unit.provisioning.test_requests_follow import Story


def _finishes(story: Story) -> None:
    story.condition("Finished", "Succeeded")


def _is_deleted(story: Story) -> None:
    story.becomes(None)


def _is_another(story: Story) -> None:
    assert story.work is not None
    story.becomes(replace(story.work, metadata=replace(story.work.metadata, uid="v")))


def _is_preempted(story: Story) -> None:
    story.condition("Evicted", "Preempted")


def _is_released(story: Story) -> None:
    assert story.work is not None
    status = replace(story.work.status, conditions=(), admission=None, admission_cycle=2)
    story.becomes(replace(story.work, status=status))


def _is_reserved_once_more(story: Story) -> None:
    story.reserved(cycle=2)


def _stopped(reason: str) -> Callable[[Story], None]:
    def stop(story: Story) -> None:
        assert story.work is not None
        spec: dict[str, Any] = {**msgspec.json.decode(story.work.spec), "active": False}
        evicted = Condition(type="Evicted", status="True", reason=reason)
        status = replace(story.work.status, conditions=(*story.work.status.conditions, evicted))
        raw = msgspec.Raw(msgspec.json.encode(spec))
        story.becomes(replace(story.work, spec=raw, status=status))

    return stop


def _is_not_asked(story: Story) -> None:
    assert story.work is not None
    status = replace(story.work.status, admission_checks=())
    story.becomes(replace(story.work, status=status))


def _is_retried(story: Story) -> None:
    story.reserved(state="Retry")


def _loses_its_config(story: Story) -> None:
    story.core.observed.config("config", None)
    story.settle()


@pytest.mark.parametrize(
    ("happens", "reason"),
    [
        pytest.param(_finishes, "the workload has finished", id="finished"),
        pytest.param(_is_deleted, "the workload was deleted", id="deleted"),
        pytest.param(_is_another, "the workload was deleted", id="another of the same name"),
        pytest.param(_is_preempted, "the workload was evicted: Preempted", id="preempted"),
        pytest.param(_stopped("Deactivated"), "the workload was deactivated", id="stopped"),
        pytest.param(
            _stopped("DeactivatedDueToAdmissionCheck"),
            "the workload was deactivated: AdmissionCheck",
            id="rejected",
        ),
        pytest.param(_is_released, "the workload has lost its reservation", id="released"),
        pytest.param(
            _is_reserved_once_more,
            "the workload has a newer reservation",
            id="reserved once more",
        ),
        pytest.param(_is_not_asked, "the check is not required any more", id="no row"),
        pytest.param(_is_retried, "the check is Retry", id="judged"),
        pytest.param(_loses_its_config, "the check is not active", id="no configuration"),
    ],
)
@pytest.mark.parametrize("restarted", [False, True], ids=["at once", "by the next leader"])
def test_a_cancellation_has_the_reason(
    happens: Callable[[Story], None], reason: str, restarted: bool
) -> None:
    story = Story()
    story.reserved()
    if restarted and happens is not _loses_its_config:
        # The earlier leader died before it wrote anything.
        kept = dict(story.bucket)
        happens(story)
        story.said.clear()
        story.markers.clear()
        story.bucket = kept
        story.restart()
    else:
        happens(story)

    ended = [fact for fact in story.said if isinstance(fact, facts.ProvisioningCancelled)]
    assert [(cancellation.id, cancellation.reason) for cancellation in ended][:1] == [
        ("u/capacity/1/1", reason)
    ]


def test_a_finished_workload_is_known_until_it_is_deleted() -> None:
    story = Story()
    story.reserved()
    story.condition("Finished", "Succeeded")
    assert story.core.observed.finished

    story.becomes(None)

    assert not story.core.observed.finished
    assert not story.core.observed.workloads
