"""What an answer about a repeated decision says, and to users of one namespace."""

from __future__ import annotations

from typing import Any

import pytest

from admittance.events.facts import Assigned
from admittance.events.shapes import Admission
from admittance.replay.answer import NOW_BYTES, reply_of
from admittance.replay.decision import NONE_MADE, Repetition
from admittance.replay.logged_decisions import LoggedDecision
from admittance.replay.past_inputs import Source

DECISION = Assigned(
    namespace="a", name="w", revision=3, seen=7, domain="d", admission=Admission(cluster_queue="cq")
)


def reply(
    *made: tuple[str, str], differences: tuple[str, ...] = (), namespace: str = "", **more: Any
) -> Any:
    repetition = Repetition(
        list(differences),
        [{"namespace": space, "name": name, **more} for space, name in made],
        ["b/first", "a/w"],
        workloads=2,
        objects=3,
        inflight=1,
    )
    sources = [Source("", 5), Source("check", 2)]
    return reply_of(LoggedDecision(12, 4, DECISION), repetition, sources, namespace)


def test_an_answer_has_the_decision_and_its_inputs() -> None:
    answer = reply(("b", "first"), ("a", "w"))
    assert (answer.sequence, answer.kind, answer.epoch) == (12, "assigned", 4)
    assert (answer.decision["name"], answer.same) == ("w", True)
    inputs = answer.inputs
    assert (inputs.revisions, inputs.checkpoint, inputs.facts) == ((7,), "check", 7)
    assert (inputs.turns, inputs.turns_elsewhere) == (("b/first", "a/w"), 0)
    assert [made["name"] for made in answer.now] == ["w", "first"]


@pytest.mark.parametrize(
    ("namespace", "made", "difference"),
    [
        ("", (("b", "x"), ("a", "v")), "but about b/x, a/v"),
        ("a", (("b", "x"), ("a", "v")), "but about a/v"),
        ("a", (("b", "x"),), "but about a workload of another namespace"),
        ("a", (), "but about no workload"),
    ],
    ids=[
        "all decisions made instead",
        "those of the namespace",
        "none of the namespace",
        "none at all",
    ],
)
def test_a_decision_that_is_not_made_now_is_explained_without_foreign_names(
    namespace: str, made: tuple[tuple[str, str], ...], difference: str
) -> None:
    answer = reply(*made, differences=(NONE_MADE,), namespace=namespace)
    assert not answer.same
    assert answer.differences == (f"{NONE_MADE}, {difference}",)


def test_a_question_about_a_namespace_is_answered_without_foreign_names() -> None:
    answer = reply(("b", "first"), ("a", "w"), namespace="a")
    assert [made["name"] for made in answer.now] == ["w"]
    assert (answer.inputs.turns, answer.inputs.turns_elsewhere) == (("a/w",), 1)


def test_an_answer_of_many_decisions_has_room_in_one_message() -> None:
    many = [("a", f"w{number}") for number in range(100)]
    answer = reply(*many, ("a", "w"), message="x" * (NOW_BYTES // 50))
    assert answer.now[0]["name"] == "w"
    assert 40 < len(answer.now) < 50
    assert len(answer.now) + answer.now_left_out == 101
