"""Lines of `admit events`."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from admittance.api.meta import ObjectMeta
from admittance.client.requests.workloads.history import RemovedEvents, is_of
from admittance.client.wording.facts import FactEffects, is_bookkeeping, line_of
from admittance.events import facts
from admittance.events.base import Fact
from admittance.events.codec import encode
from admittance.events.requests.history import LogEntry
from admittance.events.shapes import HandedOn, PendingPreemption, PlannedVictim, Refusal, Taken
from admittance.events.subjects import subject_of
from admittance.events.system import DeadLetter
from support.builders import an_admission

NOON = datetime(2026, 2, 7, 12, tzinfo=UTC)
WORKLOAD: dict[str, Any] = {"namespace": "team-a", "name": "train.7"}
DECIDED: dict[str, Any] = {**WORKLOAD, "revision": 3, "seen": 2, "domain": "queue-cq"}
MINE: dict[str, Any] = {"namespace": "ns", "name": "w"}


def preemption_of(*names: str, issued: bool = False) -> PendingPreemption:
    victims = tuple(PlannedVictim(namespace="team-b", name=name, uid=name) for name in names)
    return PendingPreemption(victims=victims, issued=issued)


def entry(subject: str, data: bytes) -> LogEntry:
    return LogEntry(sequence=9, time=NOON, subject=subject, data=msgspec.Raw(data))


FACT_CASES: dict[str, tuple[Fact, tuple[str, str, str]]] = {
    "a submission tells its queue": (
        facts.Submitted(**WORKLOAD, workload=msgspec.Raw(b'{"spec":{"queueName":"main"}}')),
        ("submitted", "", "to main"),
    ),
    "an assignment tells flavors": (
        facts.Assigned(**DECIDED, admission=an_admission("cq", "spot")),
        ("assigned", "", "cq: main on spot"),
    ),
    "a plan names its victims": (
        facts.Planned(**DECIDED, pending_preemption=preemption_of("a", "b", issued=True)),
        ("planned", "", "preempts now: team-b/a, team-b/b"),
    ),
    "a plan of many names the first": (
        facts.Planned(**DECIDED, pending_preemption=preemption_of(*"abcdefg")),
        (
            "planned",
            "",
            "will preempt: team-b/a, team-b/b, team-b/c, team-b/d, team-b/e and 2 more",
        ),
    ),
    "a plan without victims": (
        facts.Planned(**DECIDED, pending_preemption=preemption_of()),
        ("planned", "", "needs no preemption any more"),
    ),
    "a timer tells for when it was set": (
        facts.TimerDue(**WORKLOAD, kind="execution", at=NOON),
        ("timer due", "execution", "set for 2026-02-07T12:00:00Z"),
    ),
    "an assignment tells what it took of what there was, and after how long": (
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
    ),
    "a refusal tells what is lacking": (
        facts.Refused(**DECIDED, refusal=Refusal(reason="WaitingForQuota", message="1 short")),
        ("refused", "WaitingForQuota", "1 short"),
    ),
    "a fact that says nothing is told by its name": (
        facts.QuotaReserved(**WORKLOAD, revision=4),
        ("quota reserved", "", ""),
    ),
    "a failure is called one": (
        facts.Finished(**WORKLOAD, succeeded=False, message="exit status 3"),
        ("finished", "Failed", "exit status 3"),
    ),
    "a verdict tells state and delay": (
        facts.CheckReported(
            **WORKLOAD,
            controller="example.com/budget",
            check="budget",
            cycle=2,
            state="Retry",
            message="spent",
            requeue_after_seconds=60,
        ),
        ("check reported", "budget", "Retry (retry in 60 s): spent"),
    ),
}


@pytest.mark.parametrize("case", FACT_CASES)
def test_a_fact_is_shown_as_text(case: str) -> None:
    fact, want = FACT_CASES[case]
    shown = line_of(entry(subject_of(fact), encode(fact)))
    assert (shown.what, shown.reason, shown.message) == want
    assert shown.subject == "team-a/train.7"


MESSAGE_CASES: dict[str, tuple[str, bytes, str]] = {
    "an object": ("admit.object.applied.flavor._.spot", b'{"kind":"x"}', "flavor spot"),
    "a change of leaders": ("admit.lease.epoch.queue-cq", b'{"owner":"a"}', "queue-cq"),
    "bytes that are no fact": ("admit.workload.submitted.ns.w", b'"no fact"', "ns.w"),
    "an unknown subject": ("admit.strange", b"{}", ""),
}


@pytest.mark.parametrize("case", MESSAGE_CASES)
def test_a_message_about_no_workload_is_shown_by_its_subject(case: str) -> None:
    subject, data, about = MESSAGE_CASES[case]
    assert line_of(entry(subject, data)).subject == about


def test_an_event_line_has_time_kind_workload_and_reason() -> None:
    fact = facts.Evicted(**WORKLOAD, revision=5, reason="Preempted", message="for team-b")
    line = line_of(entry(subject_of(fact), encode(fact))).line()
    assert line == "2026-02-07T12:00:00Z  evicted           team-a/train.7  Preempted: for team-b"


def test_a_wide_event_line_begins_with_the_sequence() -> None:
    fact = facts.Evicted(**WORKLOAD, revision=5, reason="Preempted", message="for team-b")
    line = line_of(entry(subject_of(fact), encode(fact)))
    assert line.line(numbered=True).split() == [str(line.sequence), *line.line().split()]


VARIANT: dict[str, Any] = {"namespace": "team-a", "name": "train.7-variant-spot"}
MANIFEST = (
    b'{"metadata":{"ownerReferences":[{"kind":"Workload","name":"train.7"}]},'
    b'"spec":{"role":"variant","variant":"spot","queueName":"main"}}'
)
LEFT = HandedOn(namespace="team-a", name="train.7-variant-spot", uid="u", revision=4, reason="")


FACTS_CASES: dict[str, tuple[Fact, tuple[str, str, str]]] = {
    "a variant that comes": (
        facts.Submitted(**VARIANT, workload=msgspec.Raw(MANIFEST)),
        ("submitted", "CreatedVariant", "spot of train.7"),
    ),
    "one that goes": (facts.Deleted(**VARIANT), ("deleted", "DeletedVariant", "spot")),
    "one that is turned on": (
        facts.Activated(**VARIANT),
        ("activated", "ActivatedVariant", "spot"),
    ),
    "one that is turned off by policy, with the reason": (
        facts.Deactivated(**VARIANT, reason="lowerThanAdmitted"),
        (
            "deactivated",
            "DeactivatedVariant",
            "spot: lowerThanAdmitted, a better variant is admitted",
        ),
    ),
    "one that a user turns off": (
        facts.Deactivated(**VARIANT),
        ("deactivated", "DeactivatedVariant", "spot: User, a user stopped it"),
    ),
    "a variant with an open gate": (
        facts.Ungated(**VARIANT),
        ("ungated", "PreemptionUngatedVariant", "spot may preempt"),
    ),
    "one that is to take over": (
        facts.Assigned(
            **{**DECIDED, "name": "train.7-variant-reserved"},
            admission=an_admission("cq", "reserved"),
            migrates_from=LEFT,
        ),
        (
            "assigned",
            "",
            "cq: main on reserved; takes over from train.7-variant-spot once its job has stopped",
        ),
    ),
    "the parent, when its job moves": (
        facts.Evicted(
            **WORKLOAD, revision=5, reason="VariantEvicted", underlying_cause="FlavorMigration"
        ),
        ("evicted", "VariantEvicted", "moves to a better variant"),
    ),
}


@pytest.mark.parametrize("case", FACTS_CASES)
def test_facts_about_variants_have_reasons_of_their_family(case: str) -> None:
    fact, want = FACTS_CASES[case]
    line = line_of(entry(subject_of(fact), encode(fact)), {"train.7-variant-spot": "spot"})
    assert (line.what, line.reason, line.message) == want


def test_facts_show_an_unknown_variant_as_a_variant() -> None:
    deactivated = facts.Deactivated(**VARIANT, reason="race")
    assert (
        line_of(entry(subject_of(deactivated), encode(deactivated))).reason == "DeactivatedVariant"
    )
    plain = facts.Deactivated(**WORKLOAD)
    assert line_of(entry(subject_of(plain), encode(plain))).reason == ""


def test_refreshes_of_a_parents_summary_are_recognized() -> None:
    nudge, other = facts.Aggregated(**WORKLOAD), facts.Activated(**WORKLOAD)
    assert is_bookkeeping(entry(subject_of(nudge), encode(nudge)))
    assert not is_bookkeeping(entry(subject_of(other), encode(other)))


@pytest.mark.parametrize(
    ("subject", "until", "missing"),
    [
        pytest.param("admit.workload.finished.ns.w", NOON, True, id="the first one left is late"),
        pytest.param("admit.user.ada.deleted.ns.w", NOON, True, id="that of a user"),
        pytest.param("admit.workload.submitted.ns.w", NOON, False, id="its submission is left"),
        pytest.param("admit.user.ada.submitted.ns.w", NOON, False, id="by a user"),
        pytest.param("admit.workload.finished.ns.w", None, False, id="no facts were removed"),
    ],
)
def test_events_that_were_removed_are_missed_before_the_first_one_left(
    subject: str, until: datetime | None, missing: bool
) -> None:
    removed = RemovedEvents()
    removed.until = until
    assert removed.are_before(entry(subject, b"{}")) is missing


EVENTS_CASES: dict[str, tuple[Fact, int, bool]] = {
    "its own": (facts.Held(**MINE, uid="new"), 5, True),
    "one of its namesake": (facts.Held(**MINE, uid="old"), -5, False),
    "a late one of its namesake": (facts.Released(**MINE, uid="old"), 5, False),
    "what made it": (facts.Submitted(**MINE, workload=msgspec.Raw(b"{}")), 0, True),
    "what made its namesake, and names no uid": (
        facts.Submitted(**MINE, workload=msgspec.Raw(b"{}")),
        -5,
        False,
    ),
    "one of its variants": (facts.Held(namespace="ns", name="w-spot", uid="any"), 5, True),
    "one of its namesake's variants": (
        facts.Held(namespace="ns", name="w-spot", uid="any"),
        -5,
        False,
    ),
}


@pytest.mark.parametrize("case", EVENTS_CASES)
def test_events_of_an_earlier_workload_of_that_name_are_left_out(case: str) -> None:
    fact, seconds, own = EVENTS_CASES[case]
    meta = ObjectMeta(name="w", namespace="ns", uid="new", creation_timestamp=NOON)
    told_at = replace(entry(subject_of(fact), encode(fact)), time=NOON + timedelta(seconds=seconds))
    assert is_of(told_at, meta) is own


def test_unreadable_messages_count_from_the_creation_of_the_workload() -> None:
    odd = entry("admit.workload.held.ns.w", b'{"namespace": 7}')
    meta = ObjectMeta(name="w", namespace="ns", uid="new", creation_timestamp=NOON)
    assert is_of(odd, meta)
    assert not is_of(replace(odd, time=NOON - timedelta(seconds=1)), meta)


def test_a_refused_second_submission_is_not_shown_as_a_rejection() -> None:
    message = "a workload team-a/train.7 exists with another spec"
    again = facts.Rejected(**WORKLOAD, revision=0, reason="AlreadyExists", message=message)
    line = line_of(entry(subject_of(again), encode(again)))
    assert (line.what, line.reason) == ("submit refused", "AlreadyExists")
    assert (
        line.message
        == f"{message}; that submission was refused, the existing workload is unchanged"
    )
    invalid = facts.Rejected(**WORKLOAD, revision=0, reason="InvalidWorkload", message="no pods")
    line = line_of(entry(subject_of(invalid), encode(invalid)))
    assert (line.what, line.message) == ("submit refused", "no pods")
    by_check = facts.Rejected(**WORKLOAD, revision=7, reason="AdmissionCheck", message="no")
    assert line_of(entry(subject_of(by_check), encode(by_check))).what == "rejected"


def test_a_dead_letter_is_shown_with_the_workload_that_it_is_about() -> None:
    letter = DeadLetter(
        service="workload-controller",
        subject="admit.check.reported.example_com=2Fbudget.team-a.train_7",
        reason="UnknownState: 'Maybe' is none of Pending, Ready",
    )
    line = line_of(entry("admit.deadletter.workload-controller", msgspec.json.encode(letter)))
    assert (line.what, line.subject) == ("dead letter", "team-a/train.7")
    assert line.message == (
        "workload-controller refused check reported of example.com/budget: "
        "UnknownState: 'Maybe' is none of Pending, Ready"
    )


def test_a_verdict_for_another_cycle_is_shown_as_not_counting() -> None:
    follow = FactEffects()
    about: dict[str, Any] = {**WORKLOAD, "controller": "c", "check": "budget"}
    story = [
        facts.CheckRequested(**about, cycle=2, workload=msgspec.Raw(b"{}")),
        facts.CheckReported(**about, cycle=1, state="Ready", message="late"),
        facts.CheckReported(**about, cycle=2, state="Ready", message="in time"),
    ]
    lines = [line_of(entry(subject_of(fact), encode(fact)), effects=follow) for fact in story]
    assert lines[1].message == "Ready: late (does not count: it is of cycle 1, not 2)"
    assert lines[2].message == "Ready: in time"


def test_facts_without_effect_are_marked_with_the_remembered_outcome() -> None:
    fact = facts.Started(**WORKLOAD, revision=3)
    ignored = replace(
        entry(subject_of(fact), encode(fact)),
        outcome="ignored",
        reason="Stale",
        message="the admission is 7, not 3",
    )
    line = line_of(ignored).line()
    assert line.endswith("(does not count: Stale: the admission is 7, not 3)")
    for counts in ({"outcome": "applied"}, {"reason": "Noted"}):
        assert "does not count" not in line_of(replace(ignored, **counts)).line()


@pytest.mark.parametrize(
    ("fact", "remark"),
    [
        (facts.Started(**WORKLOAD, revision=4), "it is of admission 4, not 9"),
        (facts.Finished(**WORKLOAD, revision=4), "it is of admission 4, not 9"),
        (facts.Finished(**WORKLOAD), ""),
        (facts.PodsReady(**WORKLOAD, revision=9), ""),
        (
            facts.Refused(**DECIDED, refusal=Refusal(reason="WaitingForQuota", message="")),
            "it is about revision 3, not 9",
        ),
        (facts.Started(**MINE, revision=4), ""),
    ],
)
def test_facts_about_an_earlier_admission_or_revision_are_marked(fact: Fact, remark: str) -> None:
    effects = FactEffects()
    effects.remark(facts.QuotaReserved(**WORKLOAD, revision=5))
    effects.remark(facts.Admitted(**WORKLOAD, revision=9))
    assert effects.remark(fact) == remark
