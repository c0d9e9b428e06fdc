"""A request that a user deletes is cancelled, and made again if it is needed."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from admittance.api.meta import with_user
from admittance.events import provisioning as facts
from admittance.provisioning.steps import DELETED
from support.builders import NOON
from unit.provisioning.test_requests_follow import Story


def delete(story: Story, user: str = "") -> None:
    """Marks the request like `admit delete` of the user."""
    ((name, (record, _)),) = story.bucket.items()
    meta = replace(with_user(record.metadata, user), deletion_timestamp=NOON)
    marked = replace(record, metadata=meta)
    story.revision += 1
    story.bucket[name] = marked, story.revision
    story.core.observed.record(("ns", name), marked, story.revision)
    story.settle()


def reasons(story: Story) -> list[str]:
    return [fact.reason for fact in story.said if isinstance(fact, facts.ProvisioningCancelled)]


@pytest.mark.parametrize("answered", [None, facts.Accepted], ids=["not answered", "accepted"])
def test_a_deleted_request_is_made_again_while_the_workload_waits(
    answered: type[facts.ProvisioningStatus] | None,
) -> None:
    story = Story()
    story.reserved()
    if answered is not None:
        story.apply_status(answered, message="soon")

    delete(story)

    first, second = story.asked
    assert (story.freed, reasons(story)) == ([first.id], [DELETED])
    assert (first.attempt, second.attempt) == (1, 1)
    assert second.id == f"{first.id}~2"
    ((name, (record, _)),) = story.bucket.items()
    assert name == "train-capacity-1"
    assert record.metadata.deletion_timestamp is None
    story.apply_status(facts.Provisioned)
    assert story.last[0] == "Ready"


def test_the_cancellation_names_the_user_that_deleted_the_request() -> None:
    story = Story()
    story.reserved()

    delete(story, user="ada")

    assert reasons(story) == ["the request was deleted by ada"]
    ((record, _),) = story.bucket.values()
    assert record.metadata.annotations == {}


def test_a_deleted_request_is_not_made_again_when_the_check_is_ready() -> None:
    """E9: the job continues."""
    story = Story()
    story.reserved()
    story.apply_status(facts.Provisioned)
    story.reserved(state="Ready", conditions=("Admitted",))
    count = len(story.verdicts)

    delete(story)

    assert story.freed == [story.asked[0].id]
    assert len(story.asked) == 1
    assert not story.bucket
    assert len(story.verdicts) == count


def test_the_id_of_a_deleted_cancelled_request_is_not_used_again() -> None:
    story = Story()
    story.reserved()
    story.core.observed.config("config", None)
    story.settle()
    assert story.bucket

    delete(story)
    assert not story.bucket
    assert len(story.freed) == 1

    story.core.observed.config("config", story.config)
    story.settle()
    first, second = story.asked
    assert first.id != second.id


def test_a_new_leader_finishes_a_deletion() -> None:
    story = Story()
    story.reserved()
    ((name, (record, revision)),) = story.bucket.items()
    marked = replace(record, metadata=replace(record.metadata, deletion_timestamp=NOON))
    story.bucket[name] = marked, revision

    story.restart()

    first, second = story.asked
    assert story.freed == [first.id]
    assert first.id != second.id


def test_a_deleted_request_is_not_counted_any_more() -> None:
    story = Story()
    story.reserved()
    assert sum(story.core.counts().values()) == 1

    story.becomes(None)

    assert story.core.counts() == {}
