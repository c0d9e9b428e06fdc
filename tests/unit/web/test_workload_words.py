"""The words of the workload page: amounts, durations, sentences, holders, near names."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from msgspec.structs import replace

from admittance.api.workload import CheckState
from admittance.events.requests.explanation import (
    ExplainReply,
    FlavorVerdict,
    Holder,
    Room,
    VariantVerdict,
)
from admittance.web.views.holders import HOLDERS_MAX, check_rows, held_by
from admittance.web.views.missing import near_names
from admittance.web.views.words import amount, clock_time, state, took
from admittance.web.views.workload import Part, say
from admittance.workload.phase import Phase

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("resource", "much", "text"),
    [
        ("nvidia.com/gpu", 16, "16 GPUs"),
        ("nvidia.com/gpu", 1, "1 GPU"),
        ("cpu", 2500, "2.5 cpu"),
        ("cpu", 1, "0.001 cpu"),
        ("cpu", 12_345_000, "12,345 cpu"),
        ("memory", 3 * 2**29, "1.5Gi memory"),
        ("memory", 2**30, "1Gi memory"),
        ("memory", 1, "1 memory"),
        ("example.com/dongle", 10_000, "10,000 example.com/dongle"),
    ],
)
def test_an_amount_has_its_unit(resource: str, much: int, text: str) -> None:
    assert amount(resource, much) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (-5, "0 s"),
        (42, "42 s"),
        (881, "14 min 41 s"),
        (8940, "2 h 29 min"),
        (7200, "2 h"),
        (90_000, "1 d 1 h"),
    ],
)
def test_a_duration_has_its_two_largest_units(seconds: float, text: str) -> None:
    assert took(seconds) == text


def test_another_day_has_its_date() -> None:
    assert clock_time(NOW, NOW) == "12:00:00"
    assert clock_time(NOW.replace(day=2), NOW, seconds=False) == "2026-01-02 12:00"


def test_a_phase_of_a_newer_version_is_shown_as_it_is() -> None:
    assert (state("Running").state, state("Dreaming").text) == ("running", "Dreaming")


def verdict(flavor: str, short: int, *, fits: bool = False) -> FlavorVerdict:
    room = Room(resource="nvidia.com/gpu", requested=16, short=short)
    return FlavorVerdict(pod_set="main", flavor=flavor, rooms=(room,), fits=fits)


def text_of(parts: tuple[Part, ...]) -> str:
    return "".join(part.text for part in parts)


def test_the_sentence_has_the_numbers_of_three_flavors() -> None:
    parts = say(Phase.PENDING, "WaitingForQuota", "m", [verdict(name, 8) for name in "abcd"])
    assert text_of(parts) == (
        "It waits because no flavor takes its 16 GPUs now: a is 8 short, b is 8 short, "
        "c is 8 short and 1 more."
    )
    assert [part.text for part in parts if part.mark == "short"] == ["8 short"] * 3
    past = say(Phase.PENDING, "WaitingForQuota", "m", [verdict("a", 8)], past=True)
    assert text_of(past).endswith("takes its 16 GPUs then: a is 8 short.")


@pytest.mark.parametrize(
    ("phase", "verdicts", "text"),
    [
        (Phase.PENDING, [], "It waits: no queue."),
        (Phase.PENDING, [verdict("a", 8), verdict("b", 0, fits=True)], "It waits: no queue."),
        (Phase.REJECTED, [], "A check has rejected it: no queue."),
        (Phase.RUNNING, [verdict("a", 8)], "It runs: no queue."),
    ],
)
def test_otherwise_the_sentence_has_the_reason(
    phase: Phase, verdicts: list[FlavorVerdict], text: str
) -> None:
    assert text_of(say(phase, "Reason", "no queue.", verdicts)) == text


def holder(name: str, amount: int, spared_by: str = "PriorityNotLower") -> Holder:
    return Holder(
        namespace="ns",
        name=name,
        cluster_queue="q",
        flavor="f",
        resource="cpu",
        amount=amount,
        priority=9,
        spared_by=spared_by,
    )


def test_holders_stand_by_flavor_with_the_largest_first() -> None:
    (group,) = held_by([holder("a", 1000), holder("b", 4000), holder("c", 2000, "")], 5)
    assert [(row.name.text, row.amount) for row in group.rows] == [
        ("b", "4"),
        ("c", "2"),
        ("a", "1"),
    ]
    assert [row.why for row in group.rows] == [
        "Priority 9 is not below 5.",
        "It may be preempted.",
        "Priority 9 is not below 5.",
    ]


def test_only_the_largest_holders_are_shown() -> None:
    (group,) = held_by([holder(f"w{number}", number) for number in range(1, 15)], 0)
    assert (len(group.rows), group.more) == (HOLDERS_MAX, 14 - HOLDERS_MAX)


def test_a_rule_of_a_newer_version_is_shown_as_it_is() -> None:
    (group,) = held_by([holder("a", 1, "NewRule")], 0)
    assert group.rows[0].why == "NewRule"


def test_a_check_that_said_not_now_has_how_often_and_how_long() -> None:
    asked = CheckState(
        name="capacity",
        state="Retry",
        message="no capacity",
        retry_count=7,
        requeue_after_seconds=900,
        last_transition_time=NOW.replace(minute=5),
    )
    (row,) = check_rows([asked], NOW.replace(minute=10))
    assert (row.word.state, row.asked, row.since) == ("backoff", "7 times", "12:05:00")
    assert row.waits == "10 min"


def test_near_names_are_like_the_name_or_contain_it() -> None:
    names = ["train-17", "train-18", "big-train-1", "other"]
    assert set(near_names("train-71", names)) >= {"train-17", "train-18"}
    assert near_names("train", names)[-1] == "big-train-1"
    assert near_names("zzz", names) == []


def a_variant(name: str, phase: str, *, short: int = 0, active: bool = True) -> VariantVerdict:
    flavor = replace(verdict(name, short), fits=not short)
    explained = ExplainReply(phase=phase, flavors=(flavor,))
    return VariantVerdict(name=f"w-{name}", variant=name, active=active, explained=explained)


def test_the_sentence_of_a_family_has_its_variants_by_state() -> None:
    variants = [
        *(a_variant(name, "Pending", short=8) for name in "abcde"),
        a_variant("f", "Backoff"),
        a_variant("g", "QuotaReserved"),
        a_variant("h", "QuotaReserved"),
        a_variant("i", "Pending", short=8, active=False),
    ]
    verdicts = [each for variant in variants for each in variant.explained.flavors]
    parts = say(Phase.PENDING, "Reason", "long", verdicts, variants)
    assert text_of(parts) == (
        "It waits: a, b, c and 2 more are short of quota; f waits for its next attempt; g and h "
        "have their quota and wait for their checks; i is not tried."
    )
