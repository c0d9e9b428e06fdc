"""Facts that people cause count as the facts they stand for, with the user of their subject."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from admittance.api.meta import APPLIED_BY
from admittance.api.reading.manifest import accept
from admittance.control.batch import fold
from admittance.control.commit import LogMessage
from admittance.control.controller import Controller
from admittance.control.manifests.object_messages import message_about
from admittance.control.manifests.objects import key_of
from admittance.control.manifests.planned_writes import deletion_mark, planned_writes
from admittance.control.user_requests.people import fact_of
from admittance.events import facts
from admittance.events.base import Fact
from admittance.events.codec import Undecodable, encode
from admittance.events.names import token
from admittance.events.subjects import address_of, user_of, user_subject
from admittance.replay.log_messages import log_message
from admittance.workload.stored import StoredWorkload
from support.builders import NOON, a_manifest

ME: dict[str, Any] = {"namespace": "ns", "name": "w"}
KEY = "workload.ns.w"
COHORT = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Cohort", "metadata": {"name": "lab"}}


def said(fact: Fact, user: str = "ada", sequence: int = 1, rights: str = "") -> LogMessage:
    headers = {"Admit-Rights": rights} if rights else {}
    return log_message(sequence, user_subject(user, fact), encode(fact), headers, NOON)


def submission() -> facts.Submitted:
    return facts.Submitted(**ME, workload=msgspec.Raw(msgspec.json.encode(a_manifest())))


def after(controller: Controller, *messages: LogMessage) -> StoredWorkload:
    for message in messages:
        for put in fold(controller, [message], NOON).puts:
            controller.committed(put, message.sequence, NOON)
    workload = controller.workloads.get(KEY).workload
    assert workload is not None
    return workload


@pytest.mark.parametrize("user", ["ada", "ada.lovelace", "ada@example.com", "Ada L."])
def test_subject_keeps_the_name_of_the_user(user: str) -> None:
    subject = user_subject(user, facts.Held(**ME))
    assert subject == f"admit.user.{token(user)}.held.ns.w"
    assert user_of(subject) == user
    assert address_of(subject) == (facts.Held, user, "ns", "w")


def test_subjects_of_services_name_no_user() -> None:
    assert user_of("admit.workload.held.ns.w") == ""


def test_submitted_workload_keeps_its_user() -> None:
    assert after(Controller(b"s"), said(submission())).status.submitted_by == "ada"


def test_submission_without_a_user_keeps_none() -> None:
    controller = Controller(b"s")
    message = log_message(1, "admit.workload.submitted.ns.w", encode(submission()), {}, NOON)
    assert after(controller, message).status.submitted_by == ""


def test_a_manifest_cannot_name_its_submitter() -> None:
    manifest = {**a_manifest(), "status": {"submittedBy": "eve"}}
    fact = facts.Submitted(**ME, workload=msgspec.Raw(msgspec.json.encode(manifest)))
    assert after(Controller(b"s"), said(fact)).status.submitted_by == "ada"


def test_message_names_the_user_that_holds_a_workload() -> None:
    held = after(Controller(b"s"), said(submission()), said(facts.Held(**ME), "eve", 2))
    [condition] = held.status.conditions
    assert condition.message == "The workload is on hold by eve"


@pytest.mark.parametrize(
    ("fact", "state", "word"),
    [
        pytest.param(facts.Approved, "Ready", "approved", id="approved"),
        pytest.param(facts.Denied, "Rejected", "denied", id="denied"),
    ],
)
def test_verdict_of_a_person_is_one_of_the_approval_check(
    fact: type[facts.Verdict], state: str, word: str
) -> None:
    meant = fact_of(said(fact(**ME, check="c", cycle=3, message="fine"), "eve"))
    assert meant == facts.CheckReported(
        **ME,
        controller="admittance.dev/approval",
        check="c",
        cycle=3,
        state=state,
        message=f"{word} by eve at 2026-01-01T12:00:00Z: fine",
    )


@pytest.mark.parametrize(
    ("fact", "meant"),
    [
        pytest.param(
            facts.Finished(**ME, revision=9),
            facts.Finished(**ME),
            id="a person does not report the end of a job",
        ),
        pytest.param(
            facts.Activated(**ME, reason="Policy"),
            facts.Activated(**ME),
            id="a person does not activate for the policy",
        ),
    ],
)
def test_a_person_cannot_publish_for_a_service(fact: Fact, meant: Fact) -> None:
    assert fact_of(said(fact)) == meant


@pytest.mark.parametrize(
    "subject",
    [
        pytest.param("admit.user.ada.assigned.ns.w", id="decision"),
        pytest.param("admit.user.a=zz.held.ns.w", id="broken user"),
        pytest.param("admit.user.=ED=A0=80.held.ns.w", id="a user that is not text"),
        pytest.param("admit.user.ada.held.other.w", id="other namespace"),
    ],
)
def test_wrong_subject_is_undecodable(subject: str) -> None:
    with pytest.raises(Undecodable):
        fact_of(log_message(1, subject, encode(facts.Held(**ME)), {}, NOON))


def test_applied_manifest_names_the_user_of_the_subject() -> None:
    forged = {**COHORT, "metadata": {"name": "lab", "annotations": {APPLIED_BY: "eve"}}}
    manifest = accept(forged).manifest
    controller = Controller(b"s")
    [write] = planned_writes(controller.objects, [manifest], now=NOON, user="ada")
    assert write.object.metadata.annotations == {APPLIED_BY: "ada"}
    [write] = planned_writes(controller.objects, [manifest], now=NOON)
    assert write.object.metadata.annotations == {}


def test_same_manifest_of_another_user_is_unchanged() -> None:
    controller = Controller(b"s")
    [write] = planned_writes(controller.objects, [accept(COHORT).manifest], now=NOON, user="ada")
    controller.keep_object(key_of(write.object), write.object, write.value or b"", 1)
    [again] = planned_writes(controller.objects, [accept(COHORT).manifest], now=NOON, user="eve")
    assert again.result.outcome == "unchanged"
    assert again.value is None


def test_log_names_the_user_that_marked_a_manifest_for_deletion() -> None:
    controller = Controller(b"s")
    [write] = planned_writes(controller.objects, [accept(COHORT).manifest], now=NOON, user="ada")
    controller.keep_object(write.key, write.object, write.value or b"", 1)
    kept = controller.objects.get(write.key)
    assert kept is not None
    going = deletion_mark(write.key, kept, NOON, "eve")
    controller.keep_object(going.key, going.object, going.value or b"", 2)
    kept = controller.objects.get(write.key)
    assert kept is not None
    message = msgspec.json.decode(message_about(controller, kept, deleted=True).data)
    assert message["user"] == "eve"


def priority(**named: Any) -> Fact:
    return facts.Reprioritized(**{**ME, **named}, priority=5)


CHANGES: list[Fact] = [
    *(facts.Activated(**ME), facts.Deactivated(**ME), facts.Held(**ME), facts.Released(**ME)),
    *(priority(), facts.Deleted(**ME), submission()),
]


def outcome(controller: Controller, message: LogMessage) -> str:
    commit = fold(controller, [message], NOON)
    reply = commit.outcomes.get(message.sequence)
    if reply is None or reply.outcome != "refused":
        return ""
    assert not commit.puts
    return f"{reply.reason}: {reply.message}"


@pytest.mark.parametrize("fact", CHANGES, ids=lambda fact: type(fact).__name__)
def test_owner_changes_its_own_workload_only(fact: Fact) -> None:
    controller = Controller(b"s")
    after(controller, said(submission(), "ben", rights="owner"))
    refusal = "NotOwner: role owner: workload w belongs to ben"
    assert outcome(controller, said(fact, "ada", 2, "owner")) == refusal
    assert outcome(controller, said(fact, "ben", 2, "owner")) == ""
    # Other roles change every workload of their namespaces.
    assert "NotOwner" not in outcome(controller, said(fact, "ada", 2))


def test_workload_without_a_submitter_belongs_to_no_owner() -> None:
    controller = Controller(b"s")
    message = log_message(1, "admit.workload.submitted.ns.w", encode(submission()), {}, NOON)
    after(controller, message)
    refusal = "NotOwner: role owner: workload w has no known owner"
    assert outcome(controller, said(facts.Held(**ME), "ada", 2, "owner")) == refusal


def test_ownership_is_checked_when_the_fact_is_applied() -> None:
    """A name may belong to another user when a fact has waited for its turn."""
    controller = Controller(b"s")
    messages = [
        said(submission(), "ada", 1, "owner"),
        said(facts.Deleted(**ME), "ada", 2, "owner"),
        said(submission(), "ben", 3, "owner"),
        said(facts.Deleted(**ME), "ada", 4, "owner"),
    ]
    assert after(controller, *messages).status.submitted_by == "ben"


def test_refused_submission_of_an_owner_is_a_fact_of_the_log() -> None:
    controller = Controller(b"s")
    after(controller, said(submission(), "ben"))
    [note] = fold(controller, [said(submission(), "ada", 2, "owner")], NOON).notes
    assert note.subject == "admit.workload.rejected.ns.w"
    assert b"NotOwner" in note.data


def test_owner_submits_no_variant_of_the_workload_of_another_user() -> None:
    controller = Controller(b"s")
    after(controller, said(submission(), "ben"))
    reference = {"kind": "Workload", "name": "w", "uid": "u", "apiVersion": "v1"}
    manifest = a_manifest(name="w-x")
    manifest["metadata"]["ownerReferences"] = [reference]
    manifest["spec"] |= {"role": "variant", "variant": "x"}
    variant = facts.Submitted(
        namespace="ns", name="w-x", workload=msgspec.Raw(msgspec.json.encode(manifest))
    )
    refusal = "NotOwner: role owner: workload w belongs to ben"
    assert outcome(controller, said(variant, "ada", 2, "owner")) == refusal
    assert "NotOwner" not in outcome(controller, said(variant, "ben", 2, "owner"))


@pytest.mark.parametrize("references", [[], [{"kind": "Workload", "name": "gone", "uid": "u"}]])
def test_variant_of_no_workload_is_refused_as_for_other_roles(references: list[Any]) -> None:
    manifest = a_manifest(role="variant", variant="x")
    manifest["metadata"]["ownerReferences"] = references
    fact = facts.Submitted(**ME, workload=msgspec.Raw(msgspec.json.encode(manifest)))
    refusals = {outcome(Controller(b"s"), said(fact, rights=rights)) for rights in ("", "owner")}
    assert len(refusals) == 1
    assert "NoParent" in refusals.pop()


def test_unreadable_workload_belongs_to_no_owner() -> None:
    controller = Controller(b"s")
    controller.load(KEY, b"junk", 1, {})
    for fact in (facts.Deleted(**ME), submission()):
        assert "has no known owner" in outcome(controller, said(fact, "ada", 2, "owner"))
