"""Commands on one workload: each publishes one fact to the log and prints its outcome."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from admittance.cli.get import find
from admittance.cli.show.families import is_variant, refuse_variant
from admittance.cli.show.objects import Found
from admittance.cli.support import kinds, output
from admittance.cli.support.errors import AnswerIsNo
from admittance.cli.support.link import Link, link
from admittance.cli.support.options import Call
from admittance.cli.support.output import sentence
from admittance.events import facts
from admittance.events.base import Fact
from admittance.events.requests import SettledReply
from admittance.runtime import clock
from admittance.workload.phase import phase
from admittance.workload.stored import owner_of

NO: Final = frozenset({"refused", "dead-lettered"})
NO_REASONS: Final = frozenset({"NoMove", "NoSuchWorkload", "OtherUid", "Stale"})
"""Reasons of an ignored fact that make a command fail. With all other reasons nothing had to
change, and the command succeeds.
"""
VARIANT_FOLLOWS: Final = {
    "stop": "which continues with the others",
    "cancel": "which continues with the others",
    "activate": "which tries it again if the policy allows it",
}
"""For each command that may name a variant: what the variant's parent does after the command."""


async def outcome_of(bus: Link, fact: Fact) -> SettledReply:
    """Publishes a fact and waits for its outcome. Raises AnswerIsNo if the fact was refused."""
    return accepted(fact, await bus.settle(await bus.publish(fact), fact.namespace))


def accepted(fact: Fact, reply: SettledReply) -> SettledReply:
    """Returns ``reply``, the outcome of the fact. Raises AnswerIsNo if the fact was refused."""
    why = sentence(reply.reason, reply.message)
    if reply.error:
        raise AnswerIsNo(f"workload {fact.namespace}/{fact.name}: {reply.error}")
    if reply.outcome in NO:
        # A fact that became a dead letter is reported like a refused fact.
        raise AnswerIsNo(
            f"workload {fact.namespace}/{fact.name}: refused" + (f": {why}" if why else "")
        )
    return reply


class WorkloadCommand(NamedTuple):
    """What a command publishes and prints. ``fact``: the fact that is published. ``done``: the text
    that is printed, with ``{}`` for the value. ``on_variants``: False if the command is accepted
    for the parent only.
    """

    fact: type[Fact]
    done: str
    on_variants: bool = False


CHANGES: Final = {
    "stop": WorkloadCommand(facts.Deactivated, "stopped", on_variants=True),
    "cancel": WorkloadCommand(facts.Deactivated, "stopped", on_variants=True),
    "activate": WorkloadCommand(facts.Activated, "activated", on_variants=True),
    "hold": WorkloadCommand(facts.Held, "held"),
    "release": WorkloadCommand(facts.Released, "released"),
    "priority": WorkloadCommand(facts.Reprioritized, "has priority {}"),
    "finish": WorkloadCommand(facts.Finished, "finished"),
}
"""For each command the fact that it publishes and the word that it prints."""


async def change(call: Call, name: str, command: str, words: str = "", **fields: Any) -> None:
    """Publishes the fact of a command about an existing workload, and prints the outcome.

    ``words``: the words of the command line after the workload's name. ``fields``: fields of the
    fact.
    """
    known = CHANGES[command]
    async with link(call) as bus:
        found = await find(bus, kinds.WORKLOAD, name)
        if not known.on_variants:
            refuse_variant(
                found, f"`{' '.join(filter(None, (f'admit {command} workload {{}}', words)))}`"
            )
        reply = await outcome_of(bus, fact_about(found, known.fact, **fields))
    if reply.outcome == "ignored" and reply.reason in NO_REASONS:
        raise AnswerIsNo(why_not(found, command, reply))
    word = "unchanged" if reply.outcome == "ignored" else known.done.format(words)
    output.outcome(f"{kinds.WORKLOAD.qualified}/{name}", word)
    if reply.outcome == "ignored" and reply.message:
        output.note(f'workload "{name}": {reply.message}')
    elif is_variant(found.workload()):
        parent, _ = owner_of(found.workload())
        output.note(f'{name} is one variant of workload "{parent}", {VARIANT_FOLLOWS[command]}')


def why_not(found: Found, command: str, reply: SettledReply) -> str:
    """The error text for a command that changed nothing."""
    if reply.reason == "NoMove":
        where = phase(found.workload(), clock.now())
        return f'workload "{found.name}" is {where}: `admit {command}` changes nothing'
    return f'workload "{found.name}": {reply.message or reply.reason}'


def fact_about(found: Found, kind: type[Fact], **fields: Any) -> Fact:
    """A fact of that kind about an existing workload."""
    names: dict[str, Any] = {
        "namespace": found.namespace,
        "name": found.name,
        "uid": found.workload().metadata.uid,
    }
    return kind(**names, time=clock.now(), **fields)
