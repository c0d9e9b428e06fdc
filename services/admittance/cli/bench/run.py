"""`admit bench`: one generator file against a live system."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import msgspec
import psutil

from admittance.cli.bench import generator as queues
from admittance.cli.bench import system as measure
from admittance.cli.bench.generator import BenchPlan, bench_plan, read
from admittance.cli.bench.load import Outcome, execute
from admittance.cli.bench.report import Report, lines_of, report, write
from admittance.cli.bench.system import embedded
from admittance.events import subjects
from admittance.runtime import clock
from admittance.runtime.bus.bus import Bus, Outgoing
from admittance.runtime.connection_options import NO_OPTIONS, ConnectionOptions
from admittance.runtime.errors import AdmittanceError, Refused

Find = Callable[[], Iterable[psutil.Process]]


def run(
    generator: Path,
    *,
    json_path: Path | None = None,
    scale: float = 1.0,
    nats_url: str | None = None,
    access: ConnectionOptions = NO_OPTIONS,
    as_json: bool = False,
) -> int:
    """Plays a generator file, prints the figures and writes them to json_path; returns 0 if all
    workloads finished.

    Without nats_url an embedded system is started as a child process on a temporary data folder.
    With nats_url, the measured processes are those of this machine that are connected to that
    server. Raises SetupError if the file is wrong or the system or the server does not work.
    """
    what = bench_plan(read(generator), scale=scale)
    found = measured(what, nats_url, access)
    if json_path is not None:
        write(found, json_path)
    if as_json:
        lines = [msgspec.json.format(msgspec.json.encode(found), indent=2).decode()]
    else:
        lines = lines_of(found)
    sys.stdout.write("\n".join([*lines, ""]))
    return 0 if found.finished == found.workloads and not found.trouble else 1


def measured(
    what: BenchPlan, nats_url: str | None, access: ConnectionOptions = NO_OPTIONS
) -> Report:
    """The figures of one plan, measured on the system at nats_url, or on an embedded system without
    nats_url.
    """
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        return runner.run(outcome_of(what, nats_url, access))[0]


def main_of(command: Callable[[], list[str]]) -> None:
    """Runs command as a program: prints its lines, or its error with exit status 1."""
    try:
        lines = command()
    except AdmittanceError as error:
        sys.stderr.write(f"{error}\n")
        raise SystemExit(1) from None
    sys.stdout.write("\n".join([*lines, ""]))


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop]:
    """Returns the factory of a fast event loop, which leaves the cores to the system."""
    import uvloop

    return uvloop.new_event_loop


async def outcome_of(
    what: BenchPlan, nats_url: str | None, access: ConnectionOptions = NO_OPTIONS
) -> tuple[Report, Outcome]:
    """The figures of one plan, and the outcome that they are computed from."""
    async with system(nats_url, access) as (url, login, find):
        bus = await Bus.connect(url, name="admit-bench", access=login)
        try:
            return await play(bus, what, find)
        finally:
            await bus.close()


async def play(bus: Bus, what: BenchPlan, find: Find) -> tuple[Report, Outcome]:
    """Creates the queues, executes the plan, and measures the processes that ``find`` returns."""
    await queues.create(bus, what)
    meter = measure.Meter(find)
    own = measure.Meter(lambda: [psutil.Process()])
    before = await messages_stored(bus)
    meter.start()
    own.start()
    outcome = await execute(bus, what)
    processes = meter.stop()
    load_generator = own.stop()[0]
    persisted = await messages_stored(bus) - before
    # Measured after the run on the same warm server, so that the measurement does not disturb the
    # run.
    raw_per_second = await publish_per_second(bus)
    made = report(
        what,
        outcome,
        processes=processes,
        peak_memory_bytes=meter.peak_memory_bytes,
        load_generator=msgspec.structs.replace(load_generator, name="(load generator)"),
        raw_per_second=raw_per_second,
        persisted=persisted,
    )
    return made, outcome


@asynccontextmanager
async def system(
    nats_url: str | None, access: ConnectionOptions = NO_OPTIONS
) -> AsyncIterator[tuple[str, ConnectionOptions, Find]]:
    """URL, login and processes of the system under test; an embedded one unless a URL is given."""
    if nats_url is not None:
        found = measure.connected(nats_url)
        yield nats_url, access, lambda: found
        return
    async with embedded("--no-runner") as child:
        yield child.url, child.access, lambda: measure.family(child.pid)


STREAM: Final = "ADMITTANCE_BENCH_RAW"
SUBJECT: Final = "admittance_bench.raw"
MESSAGES: Final = 20_000
BYTES: Final = 600
"""Size of a published message, about that of a fact."""


async def publish_per_second(bus: Bus) -> float:
    """Pipelined publications a second into a temporary file stream."""
    await bus.api(
        f"STREAM.CREATE.{STREAM}",
        {"name": STREAM, "subjects": [SUBJECT], "retention": "limits", "storage": "file"},
    )
    try:
        messages = [Outgoing(SUBJECT, b"x" * BYTES)] * 1000
        started = clock.monotonic()
        for _ in range(0, MESSAGES, len(messages)):
            await bus.publish_all(messages)
        return MESSAGES / (clock.monotonic() - started)
    finally:
        await bus.api(f"STREAM.DELETE.{STREAM}")


MEASURED_STREAMS: Final = (
    subjects.STREAM,
    subjects.TIMERS,
    f"KV_{subjects.BUCKET}",
    f"KV_{subjects.CLAIMS}",
)


async def messages_stored(bus: Bus, streams: Sequence[str] = MEASURED_STREAMS) -> int:
    """Number of messages ever stored in these streams; a missing stream counts as 0."""
    count = 0
    for stream in streams:
        try:
            info = await bus.api(f"STREAM.INFO.{stream}")
        except Refused:
            continue
        count += int(info["state"]["last_seq"])
    return count
