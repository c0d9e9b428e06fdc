"""Records that were deleted by hand are cancelled or written again."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from admittance.events import provisioning as facts
from admittance.provisioning.core import BUSY, ProvisioningCore
from admittance.provisioning.new_request import (
    DeletedRequestRecovery,
    cancelled_fact,
    requested_fact,
)
from admittance.provisioning.records import State, request_name
from admittance.provisioning.steps import Step
from support.builders import NOON
from unit.provisioning.test_requests_follow import Story

NAME = "train-capacity-1"


def provisioned(story: Story) -> tuple[Step | None, str]:
    """The outcome of the provider's answer, before any step that follows is performed."""
    fact = facts.Provisioned(
        namespace="ns", name="train", id=story.asked[-1].id, provisioning_class="class"
    )
    return story.core.apply_status(fact, story.now)


def lose(story: Story) -> None:
    """Deletes the record in the bucket."""
    del story.bucket[NAME]
    story.revision += 1
    story.markers[NAME] = story.revision
    story.core.observed.record(("ns", NAME), None, story.revision)


def recovered(story: Story) -> list[str]:
    """The ids that a new leader recovers from the log."""
    recovering = DeletedRequestRecovery({("ns", NAME)})
    for fact in story.said:
        recovering.read(fact, NOON)
    return [request.spec.id for request in recovering.found()]


def test_a_lost_request_that_was_cancelled_gets_another_id() -> None:
    """The provider has received the cancellation and books nothing more for that id."""
    story = Story()
    story.reserved()
    lose(story)
    story.core.observed.check("capacity", None)
    (step,) = story.core.steps(story.now)
    assert isinstance(step.fact, facts.ProvisioningCancelled)
    story.said.append(step.fact)
    story.core.failed(step)  # Published, but the outcome is unknown.

    story.core.observed.check("capacity", story.check)
    story.settle()

    first, second = story.asked
    assert first.id != second.id
    assert story.bucket[NAME][0].spec.id == second.id


def test_an_answer_counts_although_its_record_is_not_written_again_yet() -> None:
    story = Story()
    story.reserved()
    lose(story)

    assert provisioned(story) == (None, "")

    story.settle()
    ((record, _),) = story.bucket.values()
    assert (record.status.state, len(story.asked)) == (State.PROVISIONED, 1)
    assert story.last[0] == "Ready"


def test_an_answer_to_a_recovered_request_counts_before_it_is_written() -> None:
    """A new leader reads the answers that arrived while no leader was active."""
    story = Story()
    story.reserved()
    ((record, revision),) = story.bucket.values()
    story.bucket.clear()
    story.markers[NAME] = revision + 1
    story.core = ProvisioningCore(None)
    story.core.observed.check("capacity", story.check)
    story.core.observed.config("config", story.config)
    story.core.observed.workload(("ns", "train"), story.work)
    story.core.observed.recovered(record, revision + 1)

    assert provisioned(story) == (None, "")

    story.settle()
    assert story.last[0] == "Ready"


def test_an_answer_waits_while_the_record_is_being_written() -> None:
    """A fast provider answers before the write of a whole batch of records is acknowledged."""
    story = Story()
    story.reserved()
    lose(story)
    (step,) = story.core.steps(story.now)

    assert provisioned(story) == (None, BUSY)

    story.revision += 1
    assert step.write is not None
    assert step.write.record is not None
    story.bucket[NAME] = step.write.record, story.revision
    story.core.done(step, story.revision)
    story.apply_status(facts.Provisioned)
    assert story.last[0] == "Ready"


def test_an_answer_waits_while_the_record_of_its_request_is_new() -> None:
    story = Story()
    story.reserved()
    ((record, _),) = story.bucket.values()
    story.core = ProvisioningCore(None)
    story.core.observed.check("capacity", story.check)
    story.core.observed.config("config", story.config)
    story.core.observed.workload(("ns", "train"), story.work)
    (step,) = story.core.steps(story.now)
    assert step.write is not None
    assert step.write.record == record

    assert provisioned(story) == (None, BUSY)


def test_a_lost_request_marked_for_deletion_is_created_again() -> None:
    """If the record kept its deletion mark, it would be deleted and written again as long as it is
    needed."""
    story = Story()
    story.reserved()
    ((record, revision),) = story.bucket.values()
    marked = replace(record, metadata=replace(record.metadata, deletion_timestamp=NOON))
    story.core.observed.record(("ns", NAME), marked, revision + 1)
    story.revision += 1
    lose(story)

    story.settle()

    first, second = story.asked
    assert story.freed == [first.id]
    assert story.bucket[NAME][0].spec.id == second.id


def test_a_request_that_another_writer_replaced_is_cancelled() -> None:
    story = Story()
    story.reserved()
    ((record, revision),) = story.bucket.values()
    other = replace(record, spec=replace(record.spec, id="another"))
    story.bucket[NAME] = other, revision + 1
    story.revision += 1
    story.core.observed.record(("ns", NAME), other, story.revision)

    story.settle()

    assert record.spec.id in story.freed


def test_no_lost_request_of_a_slot_is_forgotten() -> None:
    """Another writer replaced the record, and then deleted it."""
    story = Story()
    story.reserved()
    ((record, _),) = story.bucket.values()
    other = replace(record, spec=replace(record.spec, id="another"))
    story.core.observed.record(("ns", NAME), other, story.revision + 1)
    story.revision += 1
    lose(story)

    story.settle()

    assert story.freed == [record.spec.id]
    assert [kept.spec.id for kept, _ in story.bucket.values()] == ["another"]


@pytest.mark.parametrize(
    ("workload", "request_id", "is_lost"),
    [
        pytest.param("train", "u/capacity/1/1", True, id="the lost request"),
        pytest.param("train", "u/capacity/1/2", False, id="another request of the workload"),
        pytest.param("other", "u/capacity/1/1", False, id="another workload"),
    ],
)
def test_a_lost_request_is_found_by_its_workload_and_id(
    workload: str, request_id: str, is_lost: bool
) -> None:
    story = Story()
    story.reserved()
    lose(story)
    slot = story.core.observed.lost_slot(("ns", workload), request_id)
    assert (slot is not None) is is_lost


def test_the_log_has_the_requests_that_were_not_cancelled() -> None:
    story = Story()
    story.reserved()
    story.configure(parameters={"zone": "b"})
    story.settle()
    assert [request.id for request in story.asked] == ["u/capacity/1/1", "u/capacity/1/1~2"]

    assert recovered(story) == ["u/capacity/1/1~2"]

    ((before, _),) = story.bucket.values()
    recovering = DeletedRequestRecovery({("ns", NAME)})
    recovering.read(requested_fact(before), NOON)
    assert recovering.found() == [before]
    # Published again by a process that did not know of it.
    for fact in (cancelled_fact(before), requested_fact(before)):
        recovering.read(fact, NOON)
    assert recovering.found() == []


def test_a_request_with_a_hashed_name_is_recovered() -> None:
    story = Story()
    story.reserved()
    ((record, _),) = story.bucket.values()
    name = request_name("train", story.asked[-1].uid, "capacity", 1, force_hash=True)
    recovering = DeletedRequestRecovery({("ns", name)})
    recovering.read(requested_fact(record), NOON)
    assert [request.metadata.name for request in recovering.found()] == [name]


def test_a_request_of_another_name_is_not_recovered() -> None:
    story = Story()
    story.reserved()
    ((record, _),) = story.bucket.values()
    recovering = DeletedRequestRecovery({("ns", "train-capacity-2"), ("other", NAME)})

    recovering.read(requested_fact(record), NOON)
    recovering.read(requested_fact(replace(record, spec=replace(record.spec, check="x"))), NOON)

    assert recovering.found() == []
