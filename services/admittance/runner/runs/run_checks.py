"""Checks, from time to time, what no notification says: shims that have ended, hang or never
started, journals that have grown, and folders of runs that were removed."""

from __future__ import annotations

import asyncio
from collections.abc import Container
from typing import Final

import structlog
from msgspec.structs import replace

from admittance.backoff import pause_after
from admittance.events.facts import PodsFailed
from admittance.runner import decide
from admittance.runner.decide import Stage
from admittance.runner.host.port import RunFiles
from admittance.runner.runs.run_manager import RunManager
from admittance.runtime.errors import AdmittanceError, BusRefused, BusUnavailable
from admittance.runtime.telemetry.object_faults import faults

REPORT_SECONDS: Final = 30.0
REPORT_SECONDS_MAX: Final = 3_600.0
"""The first and the longest pause between two facts about failed pods of one run."""
HUNG_SECONDS: Final = 20.0
"""Seconds after the grace period of a stop: a shim with a run that has not ended by then counts as
hung."""

log = structlog.get_logger(service="runner")


class FailureReports:
    """When the runner publishes that pods of a run failed: soon after the first failure, and then
    after pauses, each twice as long as the one before, whatever the number of failures. Pure."""

    def __init__(self) -> None:
        self._said: dict[str, tuple[int, float, int]] = {}
        """For each run the failures that were published, when the next ones may be, and how often
        any were published."""

    def take(self, key: str, failed: int, now: float) -> bool:
        """Whether so many failures of the run are to be published now."""
        before, due, reports = self._said.get(key, (0, now, 0))
        if failed <= before or now < due:
            return False
        pause = pause_after(reports + 1, REPORT_SECONDS, REPORT_SECONDS_MAX)
        self._said[key] = failed, now + pause, reports + 1
        return True

    def keep(self, keys: Container[str]) -> None:
        """Forgets runs that are not among the keys."""
        for key in [key for key in self._said if key not in keys]:
            del self._said[key]


async def check_runs(manager: RunManager, reports: FailureReports | None = None) -> None:
    """Checks all open runs of the runner once. ``reports``: failures of pods are published, too."""
    if reports is not None:
        reports.keep(manager.runs)
    for key in tuple(manager.without_room):
        manager.try_again(key)
    for count, (key, files) in enumerate(list(manager.folders.items())):
        if count % 50 == 49:
            await asyncio.sleep(0)
        if key not in manager.runs:
            # The run was closed while an earlier run was checked.
            continue
        try:
            await _check_run(manager, key, files)
            if reports is not None:
                _report_failures(manager, key, files, reports)
        except AdmittanceError:
            raise
        except Exception as error:
            faults.record("runner", "check a run", f"run {key}", error)


async def _check_run(manager: RunManager, key: str, files: RunFiles) -> None:
    if files.read_journal():
        manager.report_journal(key, files)
    if files.journal.outcome is not None or manager.runs[key].stage is Stage.ENDED:
        return
    if key in manager.ending:
        return
    if files.is_gone():
        # A job with the runner's Unix user can remove the folder.
        removed = decide.Ended("failed", "the folder of its run was removed")
        _end_without_shim(manager, key, files, "run_removed", removed)
    elif not files.shim_pid():
        manager.run_in_background(manager.launch(files), f"launch {key}")
    elif not files.shim_lives():
        _on_shim_death(manager, key, files, "shim_died")
    elif is_hung(manager, key, files):
        # A hung shim is killed because nothing else would end its run: the claim is renewed as long
        # as the run is open.
        manager.launcher.kill(files)
        _on_shim_death(manager, key, files, "shim_hung")


def _report_failures(
    manager: RunManager, key: str, files: RunFiles, reports: FailureReports
) -> None:
    run, boot = manager.runs.get(key), manager.machine.boot_seconds()
    failures = files.journal.failures
    if run is None or run.stage is not Stage.RUNNING:
        return
    if not reports.take(key, failures.failed, boot):
        return
    if (retries := failures.summary(manager.clock(), boot)) is not None:
        fact = PodsFailed(
            namespace=run.namespace,
            name=run.name,
            uid=run.uid,
            revision=run.revision,
            retries=retries,
        )
        manager.run_in_background(_publish(manager, key, fact), f"failures of {key}")


async def _publish(manager: RunManager, key: str, fact: PodsFailed) -> None:
    """Publishes the fact once: only people read it."""
    message = manager.message(fact, key, f"pods_failed/{fact.retries.failed}")
    try:
        await manager.admissions.bus.publish(message)
    except (BusUnavailable, BusRefused) as error:
        log.info("failures_not_published", run=key, error=str(error))


def is_hung(manager: RunManager, key: str, files: RunFiles) -> bool:
    """Whether the run was told to stop, and the shim has not ended the run in time."""
    if manager.runs[key].stage is not Stage.STOPPING:
        return False
    now = manager.machine.boot_seconds()
    hooks = files.identity.hooks
    longest = files.identity.grace + (hooks.seconds_at_most if hooks is not None else 0.0)
    return now >= manager.hung_at.setdefault(key, now + longest + HUNG_SECONDS)


def _on_shim_death(manager: RunManager, key: str, files: RunFiles, event: str) -> None:
    files.read_journal()  # the shim may have written to the journal just before it died
    manager.report_journal(key, files)
    if files.journal.outcome is None:
        lost = files.journal.result or decide.Ended("lost", "the shim of the job died")
        _end_without_shim(manager, key, files, event, lost)


def _end_without_shim(
    manager: RunManager, key: str, files: RunFiles, event: str, outcome: decide.Ended
) -> None:
    """Ends the processes of a run without a shim, in the background, because it may take a while;
    then the run has the outcome."""
    log.warning(event, run=key)
    manager.ending.add(key)
    manager.run_in_background(_end_run(manager, key, files, outcome), f"end {key}")


async def _end_run(manager: RunManager, key: str, files: RunFiles, outcome: decide.Ended) -> None:
    try:
        if await manager.executor.sweep(files):
            if files.journal.begun:
                drain = await manager.executor.epilog(files, outcome)
                outcome = replace(outcome, drain=drain)
            manager.handle(key, outcome)
        else:
            # No end is reported, because the workload would run again beside what is left. The next
            # check tries again.
            log.warning("processes_left", run=key)
    except Exception as error:
        faults.record("runner", "end a run", f"run {key}", error)
    finally:
        manager.ending.discard(key)
