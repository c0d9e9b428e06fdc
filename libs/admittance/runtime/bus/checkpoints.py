"""Reads the checkpoints that the workload-controller writes."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from admittance.events import subjects
from admittance.events.reader import Reader, SetAside, Unreadable
from admittance.events.stored.checkpoints import CheckpointMade
from admittance.runtime.bus.bus import Bus
from admittance.runtime.bus.history import PAGE, StoredMessage, read_messages
from admittance.runtime.telemetry.logger import log_set_aside

AHEAD: Final = timedelta(minutes=10)
"""How far the clock of the leader that wrote a checkpoint may be ahead of the server's clock."""

_made = Reader(CheckpointMade)


async def checkpoints(bus: Bus) -> list[CheckpointMade]:
    """All readable checkpoints, the oldest first. Raises BusRefused or BusUnavailable if the stream
    of checkpoints cannot be read.
    """
    made, aside = await all_checkpoints(bus)
    for message in aside:
        log_set_aside(message)
    return made


async def all_checkpoints(bus: Bus) -> tuple[list[CheckpointMade], list[SetAside]]:
    """All readable checkpoints, the oldest first, and the messages of checkpoints that cannot be
    decoded. Raises BusRefused or BusUnavailable if the stream of checkpoints cannot be read.
    """
    filters = [f"{subjects.CHECKPOINT_MADE}*"]
    made: list[CheckpointMade] = []
    aside: list[SetAside] = []
    after = 0
    while True:
        page = await read_messages(bus, filters, after=after, stream=subjects.CHECKPOINTS)
        for message in page:
            try:
                made.append(_read(message))
            except Unreadable as error:
                aside.append(
                    SetAside(subjects.CHECKPOINTS, message.subject, message.sequence, str(error))
                )
        if len(page) < PAGE:
            return made, aside
        after = page[-1].sequence


def _read(message: StoredMessage) -> CheckpointMade:
    made = _made(message.data)
    if message.subject != f"{subjects.CHECKPOINT_MADE}{made.id}":
        raise Unreadable("the checkpoint's id differs from the id in its subject")
    if made.id != f"{made.through}-{made.revision}" or made.time.tzinfo is None:
        raise Unreadable("the checkpoint's id does not consist of its fact and revision")
    # A checkpoint with a time in the future would stay the newest, and no other checkpoint would
    # become due.
    if made.time > message.time + AHEAD:
        raise Unreadable(f"the checkpoint is of {made.time:%Y-%m-%d %H:%M}, which is in the future")
    return made
