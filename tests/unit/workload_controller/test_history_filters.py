"""Which subjects the history of a workload has."""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec
import pytest

from admittance.events.system import DeadLetter
from admittance.runtime.bus.history import StoredMessage
from admittance.workload_controller.endpoints.events_endpoint import filters_of, is_under


def matches(subject: str, filters: list[str]) -> bool:
    words = subject.split(".")
    return any(
        tokens == [">"]
        or (
            len(tokens) == len(words)
            and all(a in ("*", b) for a, b in zip(tokens, words, strict=True))
        )
        for tokens in (each.split(".") for each in filters)
    )


@pytest.mark.parametrize(
    ("subject", "own", "in_namespace"),
    [
        ("admit.workload.submitted.ns.x", True, True),
        ("admit.check.requested.example_com=2Fa.ns.x", True, True),
        ("admit.provisioning.accepted.pool.ns.x", True, True),
        ("admit.timer.due.requeue.ns.x", True, True),
        ("admit.object.applied.localqueue.ns.x", False, True),
        ("admit.object.deleted.localqueue.ns.x", False, True),
        ("admit.workload.submitted.ns.y", False, True),
        ("admit.workload.submitted.other.x", False, False),
        ("admit.object.applied.clusterqueue._.x", False, False),
    ],
)
def test_an_object_of_another_kind_is_not_in_the_story_of_its_namesake(
    subject: str, own: bool, in_namespace: bool
) -> None:
    assert matches(subject, filters_of("ns", ["x"])) is own
    assert matches(subject, filters_of("ns", [])) is in_namespace
    assert matches(subject, filters_of("", []))
    everywhere = own or subject == "admit.workload.submitted.other.x"
    assert matches(subject, filters_of("", ["x"])) is everywhere


@pytest.mark.parametrize(
    ("namespace", "names", "filters"),
    [
        ("ns", ["x", "y"], ["admit.workload.pending.ns.x", "admit.workload.pending.ns.y"]),
        ("ns", [], ["admit.workload.pending.ns.*"]),
        ("", ["x"], ["admit.workload.pending.*.x"]),
        ("", [], ["admit.workload.pending.*.*"]),
    ],
)
def test_facts_of_one_kind_have_one_filter_for_each_name(
    namespace: str, names: list[str], filters: list[str]
) -> None:
    assert filters_of(namespace, names, ["pending", "pending"]) == filters


def test_facts_of_a_type_have_one_filter_for_each_publisher() -> None:
    filters = filters_of("ns", ["x", "y"], types=["submitted", "timer_due", "dead_letter"])
    assert filters == [
        f"{start}.ns.{name}"
        for name in "xy"
        for start in ("admit.workload.submitted", "admit.user.*.submitted", "admit.timer.due.*")
    ]


@pytest.mark.parametrize(
    ("about", "own"),
    [
        ("admit.check.reported.example_com=2Fa.ns.x", True),
        ("admit.check.reported.example_com=2Fa.ns.y", False),
        ("admit.object.applied.localqueue.ns.x", False),
    ],
)
def test_a_dead_letter_counts_as_the_message_that_it_holds(about: str, own: bool) -> None:
    letter = DeadLetter(service="workload-controller", subject=about, reason="BadDelay")
    message = StoredMessage(
        sequence=1,
        time=datetime(2026, 2, 7, tzinfo=UTC),
        subject="admit.deadletter.workload-controller",
        data=msgspec.json.encode(letter),
        headers={},
    )
    assert is_under(filters_of("ns", ["x"]), message) is own
    assert is_under(filters_of("", []), message)


def test_a_dead_letter_that_cannot_be_read_is_of_no_workload() -> None:
    message = StoredMessage(
        sequence=1,
        time=datetime(2026, 2, 7, tzinfo=UTC),
        subject="admit.deadletter.workload-controller",
        data=b"junk",
        headers={},
    )
    assert not is_under(filters_of("ns", ["x"]), message)
