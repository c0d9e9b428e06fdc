"""What was said or asked and does not count is noted beside the request, where people look."""

from __future__ import annotations

from typing import Any

from admittance.events import provisioning as facts
from admittance.events.shapes import PodSetUpdate
from unit.provisioning_check.test_requests_follow import Story, notes


def foreign(story: Story, **fields: Any) -> bool:
    told: dict[str, Any] = {"provisioning_class": "class", "id": story.asked[-1].id, **fields}
    return story.core.is_foreign(facts.Provisioned(namespace="ns", name="train", **told))


def test_an_answer_whose_uid_is_another_ones_does_not_count() -> None:
    story = Story()
    story.reserved()

    why = story.says(facts.Provisioned, uid="wrong")

    assert why == "u/capacity/1/1 is of the workload with the uid u, not wrong"
    assert notes(story) == [f"Provisioned of class class does not count: {why}"]
    assert foreign(story, uid="wrong"), "and a dead letter"
    assert not story.told
    story.says(facts.Provisioned, uid="u")
    assert story.last[0] == "Ready"


def test_an_answer_without_a_uid_counts() -> None:
    story = Story()
    story.reserved()

    assert not story.says(facts.Provisioned, uid="")

    assert not foreign(story)
    assert story.last[0] == "Ready"


def test_an_answer_about_a_namesake_of_earlier_is_merely_late() -> None:
    story = Story()
    story.reserved()

    assert not foreign(story, id="before/capacity/1/1", uid="before")


def test_updates_of_pod_sets_that_were_not_asked_for_are_left_out_and_noted() -> None:
    story = Story()
    story.reserved()
    updates = tuple(
        PodSetUpdate(name=name, labels={"by": str(number)})
        for number, name in enumerate(("main", "mian", "main"))
    )

    story.says(facts.Provisioned, pod_set_updates=updates)

    assert notes(story) == [
        "podSetUpdates for 'mian', which was not asked for, only main: left out",
        "podSetUpdates for 'main' more than once: the last one counts",
    ]
    assert story.last[0] == "Ready"
    (update,) = story.told[-1].answer.updates
    assert update.labels == {"by": "2"}
