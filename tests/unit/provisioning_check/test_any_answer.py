"""The check continues after any answer that can be decoded."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from admittance.api.checks import NodeSelectorUpdate, ProvisioningPodSetUpdates
from admittance.events.base import DEEP_MAX
from admittance.events.codec import Undecodable, decode, encode
from admittance.events.names import token
from admittance.events.provisioning import ProvisioningStatus
from admittance.provisioning.steps import Step
from admittance.provisioning_check.messages import (
    fact_message,
    record_message,
    reference_of,
    verdict_of,
)
from support.examples import examples
from unit.provisioning.test_requests_follow import Story

WORDS = ["accepted", "provisioned", "failed", "booking_expired", "capacity_revoked"]
ODD_TEXTS = ["", "\0", "\ud800", "\udfff\ud800", "é" * 300, "x" * 70_000, "main", "Rack", "a/b/c/d"]
TEXTS = st.one_of(st.text(max_size=20), st.sampled_from(ODD_TEXTS))
NUMBERS = st.one_of(
    st.integers(), st.sampled_from([0, -1, 2**31, 2**63, 2**64, -(2**70), 10**400, 10**4000])
)
TIMES = st.one_of(
    st.datetimes().map(lambda time: time.isoformat()),
    st.sampled_from(
        ["0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00", "2026-01-01T00:00:00"]
    ),
)
ANYTHING = st.recursive(
    st.one_of(st.none(), st.booleans(), NUMBERS, st.floats(), TEXTS),
    lambda of: st.one_of(st.lists(of, max_size=3), st.dictionaries(TEXTS, of, max_size=3)),
    max_leaves=6,
)
MAPS = st.dictionaries(TEXTS, TEXTS, max_size=4)
UPDATES = st.fixed_dictionaries(
    {"name": st.one_of(st.just("main"), TEXTS)},
    optional={
        "labels": MAPS,
        "annotations": MAPS,
        "nodeSelector": MAPS,
        "tolerations": st.lists(st.dictionaries(TEXTS, ANYTHING, max_size=3), max_size=2),
    },
)
STATUSES = st.fixed_dictionaries(
    {"id": st.one_of(st.just("u/capacity/1/1"), st.just("u/capacity/1/1"), TEXTS)},
    optional={
        "uid": st.one_of(st.just("u"), TEXTS),
        "time": TIMES,
        "message": TEXTS,
        "provisioningClass": st.one_of(st.just("class"), TEXTS),
        "details": MAPS,
        "podSetUpdates": st.lists(UPDATES, max_size=3),
        "seq": NUMBERS,
        "retryable": st.booleans(),
        "retryAfter": NUMBERS,
    },
)
CLASSES = st.one_of(st.just("class"), st.just("class"), TEXTS.filter(bool))


class EncodedStory(Story):
    """A story that also encodes the messages of its steps."""

    def __init__(self) -> None:
        selector = NodeSelectorUpdate(key="rack", value_from_provisioning_class_detail="Rack")
        super().__init__(
            pod_set_updates=ProvisioningPodSetUpdates(node_selector=(selector,)),
            parameters={"zone": "a"},
        )
        self.reserved()

    def receive(self, word: str, provisioning_class: str, payload: bytes) -> bool:
        """Applies the message; returns whether it could be decoded."""
        subject = f"admit.provisioning.{word}.{token(provisioning_class)}.ns.train"
        try:
            fact = decode(subject, payload)
        except Undecodable as error:
            self.does(
                self.core.note_unreadable(("ns", "train"), provisioning_class, str(error), self.now)
            )
            return False
        assert isinstance(fact, ProvisioningStatus)
        step, _ = self.core.apply_status(fact, self.now)
        self.does(step)
        self.core.has_foreign_id(fact)
        for due_step in list(self.core.steps(self.now)):
            self.does(due_step)
        return True

    def does(self, step: Step | None) -> None:
        if step is None:
            return
        if step.write is not None:
            self.revision += 1
            record_message(step.slot, step.write)
        if step.fact is not None:
            fact_message(step.fact, 1)
        if step.report is not None:
            reference_of(step)
            verdict_of(step.report.verdict)
        self.core.done(step, self.revision)


def said(fields: dict[str, Any]) -> bytes:
    return json.dumps({"namespace": "ns", "name": "train", **fields}).encode()


@settings(max_examples=examples(100))
@given(st.lists(st.tuples(st.sampled_from(WORDS), CLASSES, STATUSES), max_size=4))
def test_no_answer_of_a_provider_ends_the_check(
    answers: list[tuple[str, str, dict[str, Any]]],
) -> None:
    story = EncodedStory()
    for word, provisioning_class, fields in answers:
        story.receive(word, provisioning_class, said(fields))


def nested(levels: int, **more: Any) -> bytes:
    update = {"name": "main", "tolerations": [{"key": "deep"}]}
    whole = said({"id": "u/capacity/1/1", "podSetUpdates": [update], **more})
    return whole.replace(b'"deep"', b"[" * levels + b"]" * levels)


def test_the_deepest_answer_that_can_be_decoded_is_applied() -> None:
    """Encoding needs more levels of recursion than decoding."""
    story = EncodedStory()
    read = [story.receive("provisioned", "class", nested(levels)) for levels in range(1000)]
    assert read[DEEP_MAX - 6]
    assert not any(read[DEEP_MAX:])


@pytest.mark.parametrize("subject", ["provisioning.provisioned", "check.reported"])
def test_a_message_that_is_nested_too_deep_is_undecodable(subject: str) -> None:
    with pytest.raises(Undecodable, match="podSetUpdates: more than 16 levels deep"):
        decode(f"admit.{subject}.class.ns.train", nested(50, check="c", cycle=1, state="Ready"))


@pytest.mark.parametrize("name", ODD_TEXTS[2:4])
def test_a_class_that_is_not_text_is_undecodable(name: str) -> None:
    """A subject may have characters that JSON cannot have."""
    assert not EncodedStory().receive("provisioned", name, said({"id": "u/capacity/1/1"}))


@pytest.mark.parametrize("place", range(3))
@pytest.mark.parametrize("odd", [token(text) for text in ODD_TEXTS[2:4]])
def test_the_error_about_an_invalid_subject_can_be_encoded(odd: str, place: int) -> None:
    """In a log, and in a dead letter."""
    names = ["class", "ns", "train"]
    names[place] = odd
    with pytest.raises(Undecodable) as caught:
        decode(f"admit.provisioning.accepted.{'.'.join(names)}", said({"id": "x"}))
    assert encode(str(caught.value))


def test_a_decoded_fact_can_be_encoded() -> None:
    fact = decode("admit.provisioning.failed.class.ns.train", said({"id": "x", "seq": 10**400}))
    assert encode(fact)
