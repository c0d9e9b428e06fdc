"""Ends the runs of a runner that shuts down: their jobs run again later."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Final

from admittance.runner import decide
from admittance.runner.decide import Stage
from admittance.runner.host.port import RunFiles
from admittance.runner.runs.run_manager import RunManager

SHUTDOWN_CHECK_SECONDS: Final = 0.2
"""Seconds between two checks for running jobs while the runner shuts down."""


async def shut_down(manager: RunManager, seconds: float, gone_seconds: float) -> bool:
    """Stops all jobs and releases their claims; returns False if some runs are still open after
    ``seconds``. While the bus is unreachable, jobs still get their grace period; then the
    runner waits ``gone_seconds`` for the bus.
    """
    manager.shutting_down = True
    for key in list(manager.runs):
        manager.handle(key, decide.ShutDown())
    left = gone_seconds
    try:
        async with asyncio.timeout(seconds):
            while manager.runs and left > 0:
                manager.idle.clear()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(SHUTDOWN_CHECK_SECONDS):
                        await manager.idle.wait()
                if manager.admissions.bus.is_up:
                    left = gone_seconds
                    continue
                _stop_without_bus(manager)
                may_run = any(map(_may_run, manager.folders.values()))
                left = gone_seconds if may_run else left - SHUTDOWN_CHECK_SECONDS
    except TimeoutError:
        return False
    return not manager.runs


def _stop_without_bus(manager: RunManager) -> None:
    """Stops, at once, jobs that have an earlier effect which still waits for the bus."""
    for key, files in manager.folders.items():
        if manager.runs[key].stage is Stage.STOPPING and files.stop_note() is None:
            manager.stop(key)


def _may_run(run: RunFiles) -> bool:
    """Whether processes of the run may still run."""
    run.read_journal()
    return run.journal.outcome is None and run.shim_lives()
