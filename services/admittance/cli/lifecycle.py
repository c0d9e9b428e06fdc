"""What users may do to a workload: one fact on the log, and what became of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from admittance.cli.get import find
from admittance.cli.show.families import refuse_variant
from admittance.cli.show.objects import Found
from admittance.cli.show.order import is_variant
from admittance.cli.support import kinds, output
from admittance.cli.support.errors import AnswerIsNo
from admittance.cli.support.link import Link, link
from admittance.cli.support.options import Call
from admittance.events import facts
from admittance.events.applying import SettledReply
from admittance.events.base import Fact
from admittance.events.subjects import BUCKET
from admittance.runtime import clock
from admittance.workload.stored import owner_of

GONE_SECONDS: Final = 10.0
"""How long a deletion waits for the job to stop before it says so."""

NO: Final = frozenset({"refused", "dead-lettered"})
HOPELESS: Final = frozenset({"NoMove", "NoSuchWorkload", "OtherUid", "Stale"})
"""Reasons to ignore a fact that mean no; any other means that it was so already."""
VARIANT_FOLLOWS: Final = {
    "stopped": "which goes on with the others",
    "activated": "which tries it again where its policy wants it",
}
"""What its family does then, by what was done to a variant."""


async def outcome_of(bus: Link, fact: Fact) -> SettledReply:
    """States fact and waits for its effect. Raises AnswerIsNo when it has none, saying why."""
    return judged(fact, await bus.settle(await bus.state(fact)))


def judged(fact: Fact, reply: SettledReply) -> SettledReply:
    """reply, unless it says no: then AnswerIsNo about the workload of fact."""
    why = ": ".join(part for part in (reply.reason, reply.message) if part)
    if reply.error:
        raise AnswerIsNo(f"workload {fact.namespace}/{fact.name}: {reply.error}")
    if reply.outcome in NO:
        raise AnswerIsNo(
            f"workload {fact.namespace}/{fact.name}: {reply.outcome}" + (f": {why}" if why else "")
        )
    return reply


async def change(
    call: Call, name: str, make: Callable[[Found], Fact], done: str, *, instead: str = ""
) -> None:
    """States the fact that make builds about an existing workload, and prints done.

    ``unchanged`` is printed instead when the fact changed nothing. ``instead``: what is to be done
    with a variant's parent (``{}``), where this is nothing for a variant.
    """
    async with link(call) as bus:
        found = await find(bus, kinds.WORKLOAD, name)
        if instead:
            refuse_variant(found, instead)
        reply = await outcome_of(bus, make(found))
    if reply.outcome == "ignored" and reply.reason in HOPELESS:
        raise AnswerIsNo(f'workload "{name}": {reply.message or reply.reason}')
    word = "unchanged" if reply.outcome == "ignored" else done
    output.outcome(f"{kinds.WORKLOAD.qualified}/{name}", word)
    if reply.outcome == "ignored" and reply.message:
        output.note(reply.message)
    elif is_variant(found.workload()):
        parent, _ = owner_of(found.workload())
        follows = VARIANT_FOLLOWS.get(done, "whose job it is")
        output.note(f'{name} is one variant of workload "{parent}", {follows}')


def activated(found: Found) -> Fact:
    return facts.Activated(
        namespace=found.namespace, name=found.name, uid=_uid(found), time=clock.now()
    )


def stopped(found: Found) -> Fact:
    """A user stops a workload: it is deactivated, and evicted where it runs."""
    return facts.Deactivated(
        namespace=found.namespace, name=found.name, uid=_uid(found), time=clock.now()
    )


def held(found: Found) -> Fact:
    return facts.Held(namespace=found.namespace, name=found.name, uid=_uid(found), time=clock.now())


def released(found: Found) -> Fact:
    return facts.Released(
        namespace=found.namespace, name=found.name, uid=_uid(found), time=clock.now()
    )


def reprioritized(priority: int) -> Callable[[Found], Fact]:
    """Gives the workload another priority."""
    return lambda found: facts.Reprioritized(
        namespace=found.namespace,
        name=found.name,
        uid=_uid(found),
        time=clock.now(),
        priority=priority,
    )


def finished(*, failed: bool, message: str) -> Callable[[Found], Fact]:
    """Declares the workload's job to have ended, whatever still runs."""
    return lambda found: facts.Finished(
        namespace=found.namespace,
        name=found.name,
        uid=_uid(found),
        time=clock.now(),
        succeeded=not failed,
        message=message,
    )


def deleted(found: Found) -> Fact:
    return facts.Deleted(
        namespace=found.namespace, name=found.name, uid=_uid(found), time=clock.now()
    )


def _uid(found: Found) -> str:
    return found.workload().metadata.uid


async def delete(bus: Link, name: str) -> None:
    """Deletes a workload, and waits a little for its job to stop."""
    found = await find(bus, kinds.WORKLOAD, name)
    if not found.is_workload():
        await _delete_unreadable(bus, found)
        return
    refuse_variant(
        found, f"`admit delete workload {{}}`, or `admit stop workload {name}` to try it no more"
    )
    await outcome_of(bus, deleted(found))
    from admittance.cli.wait import follow

    subject = f"{kinds.WORKLOAD.qualified}/{name}"
    try:
        async with asyncio.timeout(GONE_SECONDS):
            async for seen in follow(bus, found.namespace, name):
                if seen is None or seen.workload().metadata.uid != _uid(found):
                    output.outcome(subject, "deleted")
                    return
    except TimeoutError:
        output.outcome(subject, "deleting")
        output.note(f"{name} disappears as soon as its job has stopped")


async def _delete_unreadable(bus: Link, found: Found) -> None:
    """Deletes what cannot be read at a workload's key: it counts as none."""
    fact = facts.Deleted(namespace=found.namespace, name=found.name, time=clock.now())
    reply = await outcome_of(bus, fact)
    if reply.outcome == "ignored":
        raise AnswerIsNo(
            f"{found.key} cannot be read, and was written after the workload-controller began: "
            f"`nats kv del {BUCKET} {found.key}` deletes it"
        )
    output.outcome(f"{kinds.WORKLOAD.qualified}/{found.name}", "deleted")
