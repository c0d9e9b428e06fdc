"""``admit delete``: deletes objects through the workload-controller."""

from __future__ import annotations

import re
import shlex
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Final, TypeVar

from admittance.cli.commands.arguments import KIND_HELP, names_of
from admittance.cli.commands.arguments import kinds as kind_words
from admittance.cli.commands.declare import PLACE, argument, command, option
from admittance.cli.support import output
from admittance.cli.support.link import link
from admittance.cli.support.options import Call
from admittance.client import kinds, requests
from admittance.client.errors import BadInput, ClientError, NoResponder, NotAllowed, RequestFailed

if TYPE_CHECKING:
    from admittance.client.requests.link import Link
    from admittance.client.requests.objects import BucketObject
    from admittance.provisioning.records import Record

T = TypeVar("T")
KEY: Final = re.compile(r"[A-Za-z0-9_=/-]+(\.[A-Za-z0-9_=/-]+)*", re.ASCII)
"""The characters that nats-server allows in a key of a bucket."""

LATER: Final = (
    "the provisioning-check cancels it once it runs; `admit doctor` shows whether it runs"
)
PATIENCE_SECONDS: Final = 3.0
PAUSE_SECONDS: Final = 0.05


@command(PLACE)
@argument("[KIND]", KIND_HELP, complete=kind_words)
@argument("[NAME]...", "Names of one or more objects.", name="names", complete=names_of())
@option(
    "--stored KEY",
    "Delete the stored value at this key, which `admit doctor` names; repeatable.",
    many=True,
)
async def delete(call: Call, kind: str | None, names: Sequence[str], stored: Sequence[str]) -> int:
    """Delete objects. A workload is gone once its job has stopped.

    `runner NAME` deletes what a runner left that is gone for good, which `admit doctor` lists.
    """
    if stored:
        if kind is not None:
            raise BadInput(f'--stored KEY stands alone; "{kind}" is one word too many')
        return await _each(call, stored, _delete_stored)
    if kind is None:
        raise BadInput("which object? write KIND NAME, or --stored KEY")
    return await _each(call, targets_of(kind, names), _delete_target)


async def _each(
    call: Call, targets: Sequence[T], delete_one: Callable[[Link, T], Awaitable[None]]
) -> int:
    """Deletes objects one by one and prints each outcome.

    The exit status is 1 if an object did not exist or is still needed; all other objects are
    deleted.
    """
    status = 0
    async with link(call) as bus:
        for target in targets:
            try:
                await delete_one(bus, target)
            except ClientError as error:
                if len(targets) == 1:
                    raise
                for line in error.lines:
                    output.error(line)
                status = max(status, error.status)
    return status


async def _delete_target(bus: Link, target: tuple[kinds.ObjectKind, str]) -> None:
    kind, name = target
    if kind is kinds.WORKLOAD:
        for one in await requests.objects.element_names(bus, name):
            await _delete_workload(bus, one)
    elif kind is kinds.REQUEST:
        await _delete_request(bus, name)
    elif kind is kinds.RUNNER:
        await _delete_runner(bus, name)
    else:
        await _delete_object(bus, kind, name)


async def _ask(bus: Link, subject: str, if_absent: str, **request: str) -> str:
    """Asks the workload-controller to delete something; returns ``deleted`` or ``deferred``. Raises
    RequestFailed for any other outcome. ``subject``: what is deleted. ``request``: the fields of
    the request."""
    from admittance.events.requests.manifests import Delete, DeleteReply

    reply = await bus.ask("delete", Delete(**request), DeleteReply)
    if reply.outcome == "absent":
        raise RequestFailed(if_absent)
    if reply.outcome not in ("deleted", "deferred"):
        raise RequestFailed(
            reply.error or f"{subject} was not deleted: {reply.outcome or 'no answer'}"
        )
    return reply.outcome


async def _delete_stored(bus: Link, key: str) -> None:
    if not KEY.fullmatch(key):
        raise BadInput(f'"{key}" is not a key of the bucket, such as `admit doctor` prints')
    try:
        await _ask(bus, key, f"the bucket has no key {key}", kind="", name="", stored=key)
    except NoResponder as error:
        await _delete_directly(bus, key, error)
    output.outcome(key, "deleted")


async def _delete_directly(bus: Link, key: str, no_answer: NoResponder) -> None:
    """Deletes the value at the key without the workload-controller, for which a damaged value may
    be the reason not to run. Raises RequestFailed."""
    from admittance.doctor.kept_values import why_kept
    from admittance.runtime.bus.bucket import delete_message
    from admittance.runtime.errors import AccessDenied, BusRefused, BusUnavailable

    entry = await bus.get(key)
    if entry is None:
        raise RequestFailed(f"the bucket has no key {key}")
    if kept := why_kept(key, entry.value or b""):
        raise RequestFailed(kept)
    try:
        await bus.bus.publish(delete_message(key, expected=entry.revision))
    except AccessDenied:
        raise NotAllowed(
            f"{no_answer}; without it, only a login of the role workload-controller deletes a key: "
            f"`admit --creds FILE delete --stored {shlex.quote(key)}`"
        ) from None
    except (BusRefused, BusUnavailable) as error:
        raise RequestFailed(f"{key} was not deleted: {error}") from None


async def _delete_workload(bus: Link, name: str) -> None:
    """Deletes a workload, and waits up to `GONE_SECONDS` for its job to stop."""
    stored = await requests.objects.find(bus, kinds.WORKLOAD, name)
    if not stored.is_workload():
        await _delete_unreadable(bus, stored)
        return
    instead = f"`admit delete workload {{}}`, or `admit stop workload {name}` to stop it alone"
    reply = await requests.applying.delete_workload(bus, stored, instead)
    subject = f"{kinds.WORKLOAD.qualified}/{name}"
    output.outcome(subject, "deleted" if reply.outcome == "deleted" else "deleting")
    if reply.outcome != "deleted":
        output.note(f"{name} disappears as soon as its job has stopped")


async def _delete_unreadable(bus: Link, stored: BucketObject) -> None:
    """Deletes an unreadable entry at a workload's key in the bucket."""
    from admittance.events import facts
    from admittance.runtime import clock

    fact = facts.Deleted(namespace=stored.namespace, name=stored.name, time=clock.now())
    reply = await requests.changes.outcome_of(bus, fact)
    if reply.outcome == "ignored":
        raise RequestFailed(
            f"the entry {stored.key} cannot be read, and was written after the workload-controller "
            f"started: `admit delete --stored {shlex.quote(stored.key)}` deletes it"
        )
    output.outcome(f"{kinds.WORKLOAD.qualified}/{stored.name}", "deleted")


async def _delete_object(bus: Link, kind: kinds.ObjectKind, name: str) -> None:
    reply = await requests.applying.delete_object(bus, kind, name)
    done = reply.outcome == "deleted"
    output.outcome(f"{kind.qualified}/{name}", "deleted" if done else "deleting")
    if not done:
        output.note(f"{name} is deleted as soon as no object needs it: {reply.error}")


async def _delete_runner(bus: Link, name: str) -> None:
    """Deletes what a runner left that is gone for good. Raises RequestFailed while it answers."""
    absent = f"no runner {name}: `admit doctor` lists those that are away"
    await _ask(bus, f"runner {name}", absent, kind=kinds.RUNNER.singular, name=name)
    output.outcome(f"runner/{name}", "deleted")


def targets_of(typed: str, names: Sequence[str]) -> list[tuple[kinds.ObjectKind, str]]:
    """``KIND NAME…`` or ``KIND/NAME…`` as kinds and names. Raises BadInput."""
    if "/" in typed:
        targets = []
        for word in (typed, *names):
            kind, name = kinds.target(word, None)
            if not name:
                raise BadInput(f'"{word}" is not an object; write kind/name')
            targets.append((kind, name))
        return targets
    kind, _ = kinds.target(typed, None)
    if not names:
        raise BadInput(f"which {kind.singular}? the name is missing")
    return [(kind, name) for name in names]


async def _delete_request(bus: Link, name: str) -> None:
    """Deletes a ProvisioningRequest and prints the outcome. Raises RequestFailed."""
    stored = await requests.objects.find(bus, kinds.REQUEST, name)
    before = requests.capacity.record_of(stored)
    subject = f"{kinds.REQUEST.qualified}/{name}"
    outcome = await _ask(
        bus,
        subject,
        f'{kinds.REQUEST.qualified} "{name}" not found',
        kind=kinds.REQUEST.manifest,
        namespace=stored.namespace,
        name=name,
    )
    if outcome == "deferred" and not await _is_gone(bus, stored, before):
        output.outcome(subject, "deleting")
        output.note(LATER)
        return
    output.outcome(subject, "deleted")
    if before is not None:
        output.note(await _what_follows(bus, before))


async def _is_gone(bus: Link, stored: BucketObject, before: Record | None) -> bool:
    """Whether the ProvisioningRequest was deleted or replaced within a few seconds."""
    import asyncio

    from admittance.runtime import clock

    until = clock.monotonic() + PATIENCE_SECONDS
    while clock.monotonic() < until:
        present = await requests.objects.lookup(bus, stored.key)
        if present is None:
            return True
        now = requests.capacity.record_of(present)
        if now is not None and before is not None and now.spec.id != before.spec.id:
            return True
        await asyncio.sleep(PAUSE_SECONDS)
    return False


async def _what_follows(bus: Link, record: Record) -> str:
    from admittance.workload.checks.rows import row_of

    spec = record.spec
    key = kinds.WORKLOAD.object_key(record.metadata.namespace, spec.workload)
    stored = await requests.objects.lookup(bus, key)
    workload = stored.workload() if stored is not None and stored.is_workload() else None
    row = None if workload is None else row_of(workload.status.admission_checks, spec.check)
    freed = "its provider frees the capacity"
    if workload is None or row is None or workload.metadata.uid != spec.uid:
        return freed
    if row.state == "Ready":
        return (
            f"{freed} and gets no new request: {spec.workload} runs on without it; "
            f"`admit stop workload {spec.workload}` stops it"
        )
    if row.state == "Pending" and workload.status.admission is not None:
        return f"{freed}; {spec.workload} still waits and makes a new request in the same attempt"
    return freed
