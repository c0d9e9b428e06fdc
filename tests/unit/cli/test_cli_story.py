from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from admittance.cli.story import told
from admittance.events import facts
from admittance.events.base import Fact
from admittance.events.codec import encode
from admittance.events.requests import LogEntry
from admittance.events.shapes import PendingPreemption, PlannedVictim, Refusal, Taken
from admittance.events.subjects import subject_of

from builders import an_admission

NOON = datetime(2026, 2, 7, 12, tzinfo=UTC)
WHOSE: dict[str, Any] = {"namespace": "team-a", "name": "train.7"}
DECIDED: dict[str, Any] = {**WHOSE, "revision": 3, "seen": 2, "domain": "queue-cq"}


def plan(*names: str, issued: bool = False) -> PendingPreemption:
    victims = tuple(PlannedVictim(namespace="team-b", name=one, uid=one) for one in names)
    return PendingPreemption(victims=victims, issued=issued)


def entry(subject: str, data: bytes) -> LogEntry:
    return LogEntry(sequence=9, time=NOON, subject=subject, data=msgspec.Raw(data))


@pytest.mark.parametrize(
    ("fact", "want"),
    [
        pytest.param(
            facts.Submitted(**WHOSE, workload=msgspec.Raw(b'{"spec":{"queueName":"main"}}')),
            ("submitted", "", "to main"),
            id="a submission tells its queue",
        ),
        pytest.param(
            facts.Assigned(**DECIDED, admission=an_admission("cq", "spot")),
            ("assigned", "", "cq: main on spot"),
            id="an assignment tells flavors",
        ),
        pytest.param(
            facts.Planned(**DECIDED, pending_preemption=plan("a", "b", issued=True)),
            ("planned", "", "told to go for it now: team-b/a, team-b/b"),
            id="a plan tells who is told to go",
        ),
        pytest.param(
            facts.Planned(**DECIDED, pending_preemption=plan(*"abcdefg")),
            (
                "planned",
                "",
                "to go for it then: team-b/a, team-b/b, team-b/c, team-b/d, team-b/e and 2 more",
            ),
            id="a plan of many names the first",
        ),
        pytest.param(
            facts.Planned(**DECIDED, pending_preemption=plan()),
            ("planned", "", "nobody has to go for it any more"),
            id="a plan without anybody says so",
        ),
        pytest.param(
            facts.TimerDue(**WHOSE, kind="execution", at=NOON),
            ("timer due", "execution", "set for 2026-02-07T12:00:00Z"),
            id="a timer tells for when it was set",
        ),
        pytest.param(
            facts.Assigned(
                **DECIDED,
                admission=an_admission("cq", "spot"),
                taken=(
                    Taken(flavor="spot", resource="cpu", amount=4000, available=6000, borrowed=500),
                ),
                waited_seconds=75,
            ),
            (
                "assigned",
                "",
                "cq: main on spot; 4 cpu of 6 in spot, 500m borrowed, after 1m15s",
            ),
            id="an assignment tells what it took of what there was, and after how long",
        ),
        pytest.param(
            facts.Refused(**DECIDED, refusal=Refusal(reason="WaitingForQuota", message="1 short")),
            ("refused", "WaitingForQuota", "1 short"),
            id="a refusal tells what is lacking",
        ),
        pytest.param(
            facts.QuotaReserved(**WHOSE, revision=4),
            ("quota reserved", "", ""),
            id="a fact that says nothing is told by its name",
        ),
        pytest.param(
            facts.Finished(**WHOSE, succeeded=False, message="exit status 3"),
            ("finished", "Failed", "exit status 3"),
            id="a failure is called one",
        ),
        pytest.param(
            facts.CheckReported(
                **WHOSE,
                controller="example.com/budget",
                check="budget",
                cycle=2,
                state="Retry",
                message="spent",
                requeue_after_seconds=60,
            ),
            ("check reported", "budget", "Retry (again in 60 s): spent"),
            id="a verdict tells state and delay",
        ),
    ],
)
def test_a_fact_is_told_in_words(fact: Fact, want: tuple[str, str, str]) -> None:
    found = told(entry(subject_of(fact), encode(fact)))
    assert (found.what, found.reason, found.message) == want
    assert found.whose == "team-a/train.7"


@pytest.mark.parametrize(
    ("subject", "data", "whose"),
    [
        pytest.param(
            "admit.object.applied.flavor._.spot", b'{"kind":"x"}', "flavor spot", id="an object"
        ),
        pytest.param(
            "admit.lease.epoch.queue-cq", b'{"owner":"a"}', "queue-cq", id="a change of leaders"
        ),
        pytest.param(
            "admit.workload.submitted.ns.w", b'"no fact"', "ns.w", id="bytes that are no fact"
        ),
        pytest.param("admit.strange", b"{}", "", id="a subject that nobody knows"),
    ],
)
def test_what_is_no_fact_of_a_workload_is_told_by_its_subject(
    subject: str, data: bytes, whose: str
) -> None:
    assert told(entry(subject, data)).whose == whose


def test_a_line_has_time_what_whose_and_why() -> None:
    fact = facts.Evicted(**WHOSE, revision=5, reason="Preempted", message="for team-b")
    line = told(entry(subject_of(fact), encode(fact))).line()
    assert line == "2026-02-07T12:00:00Z  evicted           team-a/train.7  Preempted: for team-b"


def test_a_wide_line_begins_with_the_place_on_the_log_that_a_replay_asks_for() -> None:
    fact = facts.Evicted(**WHOSE, revision=5, reason="Preempted", message="for team-b")
    line = told(entry(subject_of(fact), encode(fact)))
    assert line.line(numbered=True).split() == [str(line.sequence), *line.line().split()]
