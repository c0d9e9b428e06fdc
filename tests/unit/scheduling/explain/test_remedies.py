"""Typed remedies: each says the same as its sentence."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import msgspec

from admittance.api.fields.units import render
from admittance.events.requests.explanation import ExplainReply, remedies_of, with_remedies
from admittance.events.requests.remedies import Remedy, RemedyKind, of_command, together
from support.documents import ROOT
from unit.scheduling.explain.test_whole_answers import ANSWERS


def values_of(remedy: Remedy) -> Iterator[str]:
    """The words of the typed values, each of which the sentence must have."""
    named = (remedy.queue, remedy.cohort, remedy.local_queue, remedy.check, remedy.command)
    yield from (name for name in (*named, *remedy.workloads, remedy.variant) if name)
    if remedy.kind == RemedyKind.USER_LIMIT:
        return
    if remedy.amount:
        yield f"{render(remedy.resource, remedy.amount)} more"
        yield f"{remedy.resource} "
    if remedy.priority is not None:
        yield f"above {remedy.priority - 1},"
    elif remedy.flavor:
        yield f"flavor {remedy.flavor}"
    if remedy.at is not None:
        yield f"{remedy.at:%Y-%m-%dT%H:%M:%SZ}"


def says_what_it_is(remedy: Remedy) -> bool:
    return remedy.kind in set(RemedyKind) and all(
        value in remedy.text for value in values_of(remedy)
    )


def replies_in(value: Any) -> Iterator[ExplainReply]:
    if isinstance(value, list):
        for inner in value:
            yield from replies_in(inner)
    elif isinstance(value, dict):
        if "unblockedBy" in value:
            yield msgspec.convert(value, ExplainReply)
        yield from replies_in(list(value.values()))


def test_the_sentence_of_a_remedy_has_its_typed_values() -> None:
    replies = list(replies_in(json.loads(ANSWERS.read_text())))
    remedies = [remedy for reply in replies for remedy in reply.remedies]
    assert [remedy for remedy in remedies if not says_what_it_is(remedy)] == []
    assert {remedy.kind for remedy in remedies} >= {"FreeQuota", "MoreQuota", "Priority", "Check"}
    for reply in replies:
        assert tuple(dict.fromkeys(each.text for each in reply.remedies)) == reply.unblocked_by


def test_every_kind_of_remedy_is_on_the_page() -> None:
    table = (ROOT / "docs/why.md").read_text().partition("| kind |")[2].partition("\n\n")[0]
    documented = {word for word in table.split("`")[1::2] if word[0].isupper()}
    assert documented == set(RemedyKind)


def test_an_older_scheduler_answers_sentences_only() -> None:
    reply = ExplainReply(unblocked_by=("its turn",))
    assert remedies_of(reply) == (Remedy(text="its turn"),)


def test_steps_that_are_needed_together_are_one_remedy() -> None:
    first, second = of_command("admit release workload w"), Remedy(text="its turn", kind="Turn")
    (both,) = together((first, second))
    assert both.text == "`admit release workload w`, and its turn"
    assert (both.command, both.also) == (first.command, (second,))
    assert together(()) == ()
    assert with_remedies(ExplainReply(), (both, both)).unblocked_by == (both.text,)
