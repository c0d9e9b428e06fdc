"""``python -m admittance.whatif`` reads a `SimulationTask` from standard input and writes the reply
to standard output, one message per line.

A scheduler starts one what-if process for each what-if request. Copying many workloads takes
seconds, and the scheduler continues to decide during those seconds. The what-if process reads the
bucket and writes nothing to it.
"""

from __future__ import annotations

import asyncio
import sys

import msgspec
import structlog

from admittance.events.reader import BucketEntry, reason_of
from admittance.events.requests.whatif import SimulateReply, SimulationTask
from admittance.runtime import clock
from admittance.runtime.bus.bucket import BucketReader
from admittance.runtime.bus.bus import Bus
from admittance.runtime.errors import AdmittanceError
from admittance.runtime.process.errand import run_errand
from admittance.runtime.process.settings import Settings
from admittance.scheduling.state.config import Config
from admittance.whatif.simulate import in_parts, simulate
from admittance.workload.limits import limits_from

log = structlog.get_logger()


def main() -> int:
    """Runs one simulation; returns the exit status of the process."""
    return run_errand("whatif", _reply)


def _reply(settings: Settings, data: bytes) -> list[SimulateReply]:
    errand = msgspec.json.decode(data, type=SimulationTask)
    config = msgspec.json.decode(errand.config, type=Config)
    try:
        entries = asyncio.run(_bucket(settings))
    except AdmittanceError as error:
        return [SimulateReply(error=f"cannot read the bucket: {error}")]
    try:
        reply = simulate(
            entries,
            errand.request,
            config,
            now=clock.now(),
            namespace=errand.namespace,
            limits=limits_from(errand.limits),
        )
    except Exception as error:
        # Users choose the manifests of a simulation, so the simulation ends with one line for the
        # user and one for the log.
        reason = reason_of(error)
        log.error("simulation_failed", error=type(error).__name__, reason=reason)
        reply = SimulateReply(
            error=f"these objects cannot be simulated ({type(error).__name__}: {reason})"
        )
    return in_parts(reply)


async def _bucket(settings: Settings) -> list[BucketEntry]:
    """Returns the entries of all keys of the bucket at one moment, deleted keys included, in the
    order of revisions.
    """
    bus = await Bus.connect(settings.url, name="admit-whatif", access=settings.connection)
    reader = BucketReader(bus)
    entries: dict[str, BucketEntry] = {}
    try:
        async for batch in reader.batches():
            for entry in batch:
                entries.pop(entry.key, None)
                entries[entry.key] = BucketEntry(
                    entry.key, entry.value, entry.revision, entry.headers
                )
            if reader.loaded.is_set():
                break
    finally:
        await reader.close()
        await bus.close()
    return list(entries.values())


if __name__ == "__main__":
    sys.exit(main())
