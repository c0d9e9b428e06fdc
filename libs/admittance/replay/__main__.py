"""``python -m admittance.replay`` reads a `ReplayTask` from standard input and writes the reply to
standard output.

A scheduler starts one process for each question. To rebuild the bucket of a past moment takes
seconds, and the scheduler continues to decide meanwhile. The process writes nothing to the bus.
"""

from __future__ import annotations

import asyncio
import sys

import msgspec

from admittance.events.requests.replays import ReplayReply, ReplayTask
from admittance.replay.answer import answer
from admittance.runtime.bus.bus import Bus
from admittance.runtime.errors import AdmittanceError
from admittance.runtime.process.errand import run_errand
from admittance.runtime.process.settings import Settings


def main() -> int:
    """Decides one decision again; returns the exit status of the process."""
    return run_errand("replay", _reply)


def _reply(settings: Settings, data: bytes) -> list[ReplayReply]:
    task = msgspec.json.decode(data, type=ReplayTask)
    try:
        return [asyncio.run(_answer(settings, task))]
    except AdmittanceError as error:
        return [ReplayReply(error=f"cannot read the log: {error}")]


async def _answer(settings: Settings, task: ReplayTask) -> ReplayReply:
    bus = await Bus.connect(settings.url, name="admit-replay", access=settings.connection)
    try:
        return await answer(bus, task.request, task.namespace)
    finally:
        await bus.close()


if __name__ == "__main__":
    sys.exit(main())
