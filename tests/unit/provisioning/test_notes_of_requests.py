"""Answers and parameters that do not count are noted on the request."""

from __future__ import annotations

from typing import Any

import pytest

from admittance.events import provisioning as facts
from admittance.events.shapes import PodSetUpdate
from admittance.provisioning.records import State
from support.builders import NOON
from unit.provisioning.test_requests_follow import Story, notes


def foreign(story: Story, **fields: Any) -> bool:
    answered: dict[str, Any] = {"provisioning_class": "class", "id": story.asked[-1].id, **fields}
    return story.core.has_foreign_id(facts.Provisioned(namespace="ns", name="train", **answered))


def test_an_answer_with_another_uid_does_not_count() -> None:
    story = Story()
    story.reserved()

    why = story.apply_status(facts.Provisioned, uid="wrong")

    assert why == "u/capacity/1/1 belongs to the workload with the uid u, not wrong"
    assert notes(story) == [f"Provisioned of class class does not count: {why}"]
    assert foreign(story, uid="wrong"), "and a dead letter"
    assert not story.verdicts
    story.apply_status(facts.Provisioned, uid="u")
    assert story.last[0] == "Ready"


def test_an_answer_without_a_uid_counts() -> None:
    story = Story()
    story.reserved()

    assert not story.apply_status(facts.Provisioned, uid="")

    assert not foreign(story)
    assert story.last[0] == "Ready"


def test_an_answer_to_an_earlier_workload_of_the_name_is_late() -> None:
    story = Story()
    story.reserved()

    assert not foreign(story, id="before/capacity/1/1", uid="before")


def test_updates_of_unknown_pod_sets_are_left_out_and_noted() -> None:
    story = Story()
    story.reserved()
    updates = tuple(
        PodSetUpdate(name=name, labels={"by": str(number)})
        for number, name in enumerate(("main", "mian", "main"))
    )

    story.apply_status(facts.Provisioned, pod_set_updates=updates)

    assert notes(story) == [
        "podSetUpdates for 'mian' are left out: the request is for main",
        "podSetUpdates for 'main' more than once: the last one counts",
    ]
    assert story.last[0] == "Ready"
    (update,) = story.verdicts[-1].verdict.updates
    assert update.labels == {"by": "2"}


@pytest.mark.parametrize("written", ["tomorrow", "-5", "0", "", "1.5", " 7", "\u0667"])
def test_an_invalid_time_limit_is_noted_and_the_default_holds(written: str) -> None:
    story = Story(patience=30, parameters={"ValidUntilSeconds": written})

    story.reserved()

    assert story.asked[0].deadline is not None
    assert (story.asked[0].deadline - NOON).total_seconds() == 30
    assert notes(story) == [
        f"the parameter ValidUntilSeconds must be a positive integer, not {written!r}: the default "
        "holds, 30 s"
    ]


def test_an_invalid_time_limit_is_noted_without_a_default() -> None:
    story = Story(parameters={"ValidUntilSeconds": "tomorrow"})

    story.reserved()

    assert story.asked[0].deadline is None
    (note,) = notes(story)
    assert note.endswith("the default holds, none")


def test_a_request_without_such_a_parameter_has_no_notes() -> None:
    for parameters in ({}, {"ValidUntilSeconds": "7"}, {"ValidUntilSeconds": "9" * 255}):
        story = Story(parameters=parameters)
        story.reserved()
        assert notes(story) == []
        assert story.bucket["train-capacity-1"][0].status.state is State.REQUESTED
