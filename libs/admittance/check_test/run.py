"""A whole trial: a bus, perhaps of its own; the controller, perhaps started for it; all cases."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

from admittance.check_test.cases import Trial
from admittance.check_test.report import FAILED, NOT_APPLICABLE, PASSED, Outcome, Report, outcome
from admittance.check_test.stand import Stand
from admittance.runtime import clock, streams
from admittance.runtime.bus import Bus
from admittance.runtime.errors import SetupError
from admittance.runtime.server import EmbeddedServer

START_SECONDS: Final = 20.0
"""How long a controller that we start may take until it listens, beside the first answer."""
END_SECONDS: Final = 12.0


class Wanted(NamedTuple):
    """What to try. ``command``: how to start the controller, with ADMIT_NATS_URL set; empty: it
    runs already, or is started within ``patience`` seconds. ``only``: those cases; empty: all."""

    controller: str
    check: str
    parameters: Any
    timeout: float
    patience: float
    command: Sequence[str] = ()
    only: Collection[str] = ()


async def try_out(
    bus: Bus, url: str, wanted: Wanted, *, tell: Callable[[str], None], ready: Callable[[], None]
) -> Report:
    """Everything about one controller on that bus. ``ready`` is called when it may be started,
    ``tell`` hears what is tried. Raises SetupError."""
    began = clock.monotonic()
    stand = Stand(bus, wanted.controller, wanted.check, wanted.parameters)
    await stand.start()
    outcomes: list[Outcome] = []
    try:
        ready()
        process = await _started(wanted.command, url) if wanted.command else None
        try:
            patience = wanted.timeout + START_SECONDS if process is not None else wanted.patience
            trial = Trial(
                stand,
                timeout=wanted.timeout,
                patience=patience,
                only=wanted.only,
                runs=lambda: process is None or process.returncode is None,
            )
            outcomes += await trial.run(tell)
        finally:
            if process is not None:
                outcomes.append(await _ended(process))
    finally:
        await stand.leave()
    if process is None and not wanted.only:
        outcomes.append(
            outcome("ends", NOT_APPLICABLE, "it was not started here: give its command")
        )
    return Report(
        controller=wanted.controller,
        check=wanted.check,
        outcomes=tuple(outcomes),
        usual=trial.usual,
        seconds=round(clock.monotonic() - began, 1),
    )


async def _started(command: Sequence[str], url: str) -> asyncio.subprocess.Process:
    environment = {**os.environ, "ADMIT_NATS_URL": url, "NATS_URL": url}
    try:
        # Its output is not our answer.
        return await asyncio.create_subprocess_exec(*command, env=environment, stdout=2)
    except OSError as error:
        raise SetupError(f"cannot start {command[0]}: {error.strerror}") from None


async def _ended(process: asyncio.subprocess.Process) -> Outcome:
    if process.returncode is not None:
        return outcome("ends", FAILED, f"it ended by itself, with status {process.returncode}")
    process.terminate()
    try:
        status = await asyncio.wait_for(process.wait(), END_SECONDS)
    except TimeoutError:
        process.kill()
        await process.wait()
        return outcome("ends", FAILED, f"it did not end within {END_SECONDS:g} s of SIGTERM")
    if status not in (0, -15, 143):
        return outcome("ends", FAILED, f"after SIGTERM it ended with status {status}")
    return outcome("ends", PASSED)


@asynccontextmanager
async def embedded(port: int) -> AsyncIterator[str]:
    """A server of its own with the log on it, gone in the end; its URL. Raises SetupError."""
    with tempfile.TemporaryDirectory(prefix="check-test-") as folder:
        server = EmbeddedServer(Path(folder), port=port)
        url = await server.start()
        try:
            bus = await Bus.connect(url, name="check-test")
            try:
                await streams.ensure(bus)
            finally:
                await bus.close()
            yield url
        finally:
            await server.stop()
