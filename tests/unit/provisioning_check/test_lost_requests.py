"""What somebody deleted behind the back of the check: freed, or asked for anew, from the log."""

from __future__ import annotations

from msgspec.structs import replace

from admittance.events import provisioning as facts
from admittance.provisioning.new_record import DeletedRequestRecovery
from admittance.provisioning.request_content import cancelled, requested
from unit.provisioning_check.test_requests_follow import Story

from builders import NOON

NAME = "train-capacity-1"


def lose(story: Story) -> None:
    """The record is deleted in the bucket."""
    del story.bucket[NAME]
    story.revision += 1
    story.markers[NAME] = story.revision
    story.core.observed.record(("ns", NAME), None, story.revision)


def recovered(story: Story) -> list[str]:
    """The ids that somebody who takes over finds on the log."""
    recovering = DeletedRequestRecovery({("ns", NAME)})
    for fact in story.said:
        recovering.hear(fact, NOON)
    return [one.spec.id for one in recovering.found()]


def test_what_was_freed_is_not_written_again_when_it_is_wanted_after_all() -> None:
    """Its provider was told, and books nothing for that id any more."""
    story = Story()
    story.reserved()
    lose(story)
    story.core.observed.check("capacity", None)
    (step,) = story.core.steps(story.now)
    assert isinstance(step.fact, facts.ProvisioningCancelled)
    story.said.append(step.fact)
    story.core.failed(step)  # Said, but nobody knows.

    story.core.observed.check("capacity", story.check)
    story.settle()

    first, second = story.asked
    assert first.id != second.id
    assert story.bucket[NAME][0].spec.id == second.id


def test_the_log_tells_what_was_asked_for_and_not_taken_back() -> None:
    story = Story()
    story.reserved()
    story.configure(parameters={"zone": "b"})
    story.settle()
    assert [one.id for one in story.asked] == ["u/capacity/1/1", "u/capacity/1/1~2"]

    assert recovered(story) == ["u/capacity/1/1~2"]

    ((before, _),) = story.bucket.values()
    recovering = DeletedRequestRecovery({("ns", NAME)})
    recovering.hear(requested(before), NOON)
    assert recovering.found() == [before]
    # Said once more by somebody who did not know.
    for fact in (cancelled(before), requested(before)):
        recovering.hear(fact, NOON)
    assert recovering.found() == []


def test_a_request_of_another_name_is_nobody_that_was_lost() -> None:
    story = Story()
    story.reserved()
    ((record, _),) = story.bucket.values()
    recovering = DeletedRequestRecovery({("ns", "train-capacity-2"), ("other", NAME)})

    recovering.hear(requested(record), NOON)
    recovering.hear(requested(replace(record, spec=replace(record.spec, check="x"))), NOON)

    assert recovering.found() == []
