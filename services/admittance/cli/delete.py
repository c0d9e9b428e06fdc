"""``admit delete provisioningrequest``: it is taken back, and what follows is told."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Final

from admittance.cli.get import find
from admittance.cli.show.capacity_rows import record_of
from admittance.cli.show.objects import Found
from admittance.cli.support import kinds, output
from admittance.cli.support.errors import AnswerIsNo
from admittance.cli.support.link import Link
from admittance.events.applying import Delete, DeleteReply
from admittance.events.reading import Unreadable
from admittance.provisioning.records import Record
from admittance.runtime import clock
from admittance.workload.check_rows import row_of
from admittance.workload.reading import read

LATER: Final = (
    "the provisioning-check takes it back as soon as it is there: `admit doctor` tells who is"
)
PATIENCE_SECONDS: Final = 3.0
PAUSE_SECONDS: Final = 0.05


async def delete(bus: Link, name: str) -> None:
    """Prints what became of it. Raises AnswerIsNo when it is not there."""
    found = await find(bus, kinds.REQUEST, name)
    before = record_of(found)
    request = Delete(kind=kinds.REQUEST.manifest, namespace=found.namespace, name=name)
    reply = await bus.ask("delete", request, DeleteReply)
    subject = f"{kinds.REQUEST.qualified}/{name}"
    if reply.outcome == "absent":
        raise AnswerIsNo(f'{kinds.REQUEST.qualified} "{name}" not found')
    if reply.outcome not in ("deleted", "deferred"):
        raise AnswerIsNo(reply.error or f"{subject}: {reply.outcome or 'no answer'}")
    if reply.outcome == "deferred" and not await _is_gone(bus, found, before):
        output.outcome(subject, "deleting")
        output.note(LATER)
        return
    output.outcome(subject, "deleted")
    if before is not None:
        output.note(await _what_follows(bus, before))


async def _is_gone(bus: Link, found: Found, before: Record | None) -> bool:
    """It is gone, or another one has taken its place."""
    until = clock.monotonic() + PATIENCE_SECONDS
    while clock.monotonic() < until:
        entry = await bus.get(found.key)
        if entry is None or entry.value is None:
            return True
        now = record_of(Found(entry.key, entry.value, entry.revision))
        if now is not None and before is not None and now.spec.id != before.spec.id:
            return True
        await asyncio.sleep(PAUSE_SECONDS)
    return False


async def _what_follows(bus: Link, record: Record) -> str:
    spec = record.spec
    key = kinds.WORKLOAD.object_key(record.metadata.namespace, spec.workload)
    entry = await bus.get(key)
    workload = None
    if entry is not None and entry.value is not None:
        with suppress(Unreadable):
            workload = read(entry.key, entry.value)
    row = None if workload is None else row_of(workload.status.admission_checks, spec.check)
    freed = "what its provider had for it is freed"
    if workload is None or row is None or workload.metadata.uid != spec.uid:
        return freed
    if row.state == "Ready":
        return (
            f"{freed}, and nothing is asked for anew: {spec.workload} goes on without it; "
            f"`admit stop workload {spec.workload}` ends that"
        )
    if row.state == "Pending" and workload.status.admission is not None:
        return f"{freed}, and {spec.workload}, which waits for it, asks anew as the same attempt"
    return freed
