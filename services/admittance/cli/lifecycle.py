"""Commands on one workload: each publishes one fact to the log and prints its outcome."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from admittance.cli.get import find
from admittance.cli.show.families import is_variant, refuse_variant
from admittance.cli.show.objects import Found
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
"""How long a deletion waits for the job to stop."""

NO: Final = frozenset({"refused", "dead-lettered"})
NO_REASONS: Final = frozenset({"NoMove", "NoSuchWorkload", "OtherUid", "Stale"})
"""Reasons of an ignored fact that mean no; any other means that nothing had to change."""
VARIANT_FOLLOWS: Final = {
    "stopped": "which continues with the others",
    "activated": "which tries it again if the policy allows it",
}
"""What its parent does after a change to a variant."""


async def outcome_of(bus: Link, fact: Fact) -> SettledReply:
    """Publishes a fact and waits for its outcome. Raises AnswerIsNo if it was refused."""
    return judged(fact, await bus.settle(await bus.state(fact)))


def judged(fact: Fact, reply: SettledReply) -> SettledReply:
    """Returns reply. Raises AnswerIsNo if the fact was refused."""
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
    """Publishes the fact that ``make`` builds for an existing workload, and prints ``done``, or
    ``unchanged`` if the fact changed nothing.

    ``instead``: the command to use on the parent (``{}``), if variants are refused.
    """
    async with link(call) as bus:
        found = await find(bus, kinds.WORKLOAD, name)
        if instead:
            refuse_variant(found, instead)
        reply = await outcome_of(bus, make(found))
    if reply.outcome == "ignored" and reply.reason in NO_REASONS:
        raise AnswerIsNo(f'workload "{name}": {reply.message or reply.reason}')
    word = "unchanged" if reply.outcome == "ignored" else done
    output.outcome(f"{kinds.WORKLOAD.qualified}/{name}", word)
    if reply.outcome == "ignored" and reply.message:
        output.note(reply.message)
    elif is_variant(found.workload()):
        parent, _ = owner_of(found.workload())
        follows = VARIANT_FOLLOWS.get(done, "which owns the job")
        output.note(f'{name} is one variant of workload "{parent}", {follows}')


def activated(found: Found) -> Fact:
    return facts.Activated(
        namespace=found.namespace, name=found.name, uid=_uid(found), time=clock.now()
    )


def stopped(found: Found) -> Fact:
    """A user stops a workload: it is deactivated, and evicted if it runs."""
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
    """Declares the workload's job finished, even if it still runs."""
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
        found,
        f"`admit delete workload {{}}`, or `admit stop workload {name}` to stop it alone",
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
    """Deletes an unreadable entry at a workload's key."""
    fact = facts.Deleted(namespace=found.namespace, name=found.name, time=clock.now())
    reply = await outcome_of(bus, fact)
    if reply.outcome == "ignored":
        raise AnswerIsNo(
            f"{found.key} cannot be read, and was written after the workload-controller began: "
            f"`nats kv del {BUCKET} {found.key}` deletes it"
        )
    output.outcome(f"{kinds.WORKLOAD.qualified}/{found.name}", "deleted")
