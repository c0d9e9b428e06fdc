"""Holds back runs that may not start their pods yet: a namespace has as many pods on this runner as
it may have, another run has a device of theirs, or the disk is nearly full.

Quota does not count pods, and a pod may ask for nothing: without a limit, one user could take all
processes of a machine.
"""

from __future__ import annotations

import shutil
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Final, TypeAlias

import structlog

from admittance.events.shapes import Finding
from admittance.job_rules.limits import JobLimits
from admittance.runner.host.port import RunFiles, Shims
from admittance.runtime.telemetry import findings
from admittance.runtime.telemetry.findings import size_of

WAITS: Final = "jobs that wait on the runner"
EXECUTOR: Final = "executor of the runner"

log = structlog.get_logger(service="runner")


def free_bytes(folder: Path) -> int | None:
    """The free bytes of the folder's disk; None if they are unknown."""
    try:
        return shutil.disk_usage(folder).free
    except OSError:
        return None


Preparation: TypeAlias = Callable[[RunFiles], Awaitable[bool]]
"""A function that does what a run needs before its shim starts; False: it is not done yet."""


async def _needs_nothing(_run: RunFiles) -> bool:
    return True


class StartGate:
    """Which runs may start, given the limits. Runs of one namespace start in the order of their
    first offers, so that small jobs cannot keep a large one waiting.

    ``free``: a function that returns the free bytes of the disk with the output of jobs; None: not
    known.

    Invariants: no two started runs have the same unit of a device. While the pods of a namespace
    are limited, the pods of its started runs are at most that many, except runs that an earlier
    runner with other limits has started.
    """

    def __init__(self, limits: JobLimits, free: Callable[[], int | None]) -> None:
        self._limits = limits
        self._free = free
        self._no_space = (
            f"the disk of the runner has less than {size_of(limits.free_space)} free, so no job "
            "starts (--free-space)"
        )
        self._started: dict[str, tuple[str, int]] = {}
        """For each run that has started its namespace and pods."""
        self._pods: dict[str, int] = {}
        """For each namespace the pods of its started runs."""
        self._units: dict[str, str] = {}
        """The started run that has each unit of a device."""
        self._without_device: dict[str, RunFiles] = {}
        """The runs that wait for a device of another run."""
        self._queues: dict[str, dict[str, RunFiles]] = {}
        """For each namespace the runs that wait, in their order."""
        self.waiting: dict[str, str] = {}
        """For each run that waits, the reason."""
        self.problem = ""
        """Why the executor can start no job now; "": it can."""

    def has_started(self, key: str) -> bool:
        """Whether the run with the key counts as started."""
        return key in self._started

    def count(self, run: RunFiles, pods: int) -> None:
        """Counts a run as started, with so many pods."""
        key, namespace = run.identity.key, run.identity.namespace
        if key not in self._started:
            self._leave_queue(key, namespace)
            self._started[key] = namespace, pods
            for unit in run.identity.units:
                # A run that waited for a device and is stopped counts as started, too.
                self._units.setdefault(unit, key)
            self._pods[namespace] = self._pods.get(namespace, 0) + pods

    def offer(self, run: RunFiles) -> str:
        """Counts the run as started and returns "", or returns why the run must wait."""
        key, namespace = run.identity.key, run.identity.namespace
        if key in self._started:
            return ""
        self._without_device.pop(key, None)
        reason = self._taken_device(run)
        if reason:
            # The run has no place in the queue of its namespace: others of it may start.
            self._leave_queue(key, namespace)
            self._without_device[key] = run
            self.waiting[key] = reason
            return reason
        reason = self._refusal(run)
        if reason:
            self._queues.setdefault(namespace, {})[key] = run
            self.waiting[key] = reason
        else:
            self.count(run, run.identity.pods)
        return reason

    def wait_for_room(self, key: str) -> None:
        """Notes that the run with the key waits for room on the disk, without a place in a
        queue."""
        self.waiting[key] = self._no_space

    def wait_for_inputs(self, key: str, why: str) -> None:
        """Notes that the run with the key, which counts as started, has no inputs yet."""
        self.waiting[key] = f"its inputs cannot be read now: {why}"

    def has_inputs(self, key: str) -> None:
        """Notes that the run with the key, which counts as started, waits no longer."""
        self.waiting.pop(key, None)

    def forget(self, key: str) -> list[RunFiles]:
        """Frees the place of a run that has ended; returns the runs to offer again now."""
        if key not in self._started:
            self.waiting.pop(key, None)
            self._without_device.pop(key, None)
            for name in [name for name, queue in self._queues.items() if key in queue]:
                self._leave_queue(key, name)
            return []
        self.waiting.pop(key, None)
        namespace, pods = self._started.pop(key)
        left = self._pods.get(namespace, 0) - pods
        if left > 0:
            self._pods[namespace] = left
        else:
            self._pods.pop(namespace, None)
        for unit in [unit for unit, holder in self._units.items() if holder == key]:
            del self._units[unit]
        room = self._limits.pods - max(0, left)
        next_ones = list(self._without_device.values())
        for waiting in self._queues.get(namespace, {}).values():
            room -= waiting.identity.pods
            if room < 0:
                break
            next_ones.append(waiting)
        return next_ones

    def findings(self) -> list[Finding]:
        """The findings about runs that wait."""
        counts: dict[str, int] = {}
        for reason in tuple(self.waiting.values()):
            counts[reason] = counts.get(reason, 0) + 1
        wrong = (self._no_space, self.problem)
        waits = [
            Finding(
                state=findings.WRONG if reason in wrong else findings.NOTE,
                what=WAITS,
                found=f"{count:,}: {reason}",
            )
            for reason, count in sorted(counts.items())
        ]
        if self.problem and self.problem not in counts:
            waits.append(Finding(state=findings.WRONG, what=EXECUTOR, found=self.problem))
        return waits

    def _taken_device(self, run: RunFiles) -> str:
        """Why the run must wait for a device; "": all its devices are free. Placement gives no
        device twice, so another run can have it only as long as it takes to end."""
        for unit in run.identity.units:
            holder = self._units.get(unit)
            if holder is not None and holder != run.identity.key:
                resource, _, device = unit.partition("=")
                return f"device {device} of {resource} still belongs to run {holder}"
        return ""

    def _refusal(self, run: RunFiles) -> str:
        if self.problem:
            return self.problem
        namespace, pods = run.identity.namespace, run.identity.pods
        free = self._free() if self._limits.free_space else None
        if free is not None and free < self._limits.free_space:
            return self._no_space
        most = self._limits.pods
        first = next(iter(self._queues.get(namespace, ())), run.identity.key)
        full = self._pods.get(namespace, 0) + pods > most and namespace in self._pods
        if most and (full or first != run.identity.key):
            return (
                f"the runner runs at most {most:,} pods of namespace {namespace} at once "
                "(--pod-limit)"
            )
        return ""

    def _leave_queue(self, key: str, namespace: str) -> None:
        self.waiting.pop(key, None)
        queue = self._queues.get(namespace)
        if queue is not None:
            queue.pop(key, None)
            if not queue:
                del self._queues[namespace]


class GatedShims(StartGate):
    """The shims of a machine behind a gate: a run that may not start has no shim. Its claim is held
    and its stop is obeyed as if it had one."""

    def __init__(self, shims: Shims, limits: JobLimits, root: Path) -> None:
        super().__init__(limits, partial(free_bytes, root))
        self._shims = shims
        self.open = shims.open
        self.close = shims.close
        self.start_done = shims.start_done
        self.start_slots = shims.start_slots
        self.kill = shims.kill
        self.tell_drain = shims.tell_drain

    def resume(self, run: RunFiles) -> None:
        """Counts a run with a shim that this runner started before."""
        if run.shim_pid():
            self.count(run, run.identity.pods)

    def set_problem(self, problem: str) -> None:
        """Holds back all runs that have not started while the executor has a problem."""
        if problem and problem != self.problem:
            log.warning("executor_problem", problem=problem)
        elif self.problem and not problem:
            log.info("executor_works_again")
        self.problem = problem

    async def launch(self, run: RunFiles, prepared: Preparation = _needs_nothing) -> None:
        """Starts a shim for the run, unless the run must wait, or is not ``prepared``. Call it
        again from time to time for a run without a shim; a second call starts no second shim."""
        key = run.identity.key
        waited = key in self.waiting
        reason = self.offer(run)
        if not reason:
            if await prepared(run):
                await self._shims.launch(run)
        elif not waited:
            log.info("job_waits", run=key, reason=reason)

    def stop(self, run: RunFiles) -> bool:
        """Tells the run's shim to end its pods. Returns whether the run has not started yet: then
        it must be launched, because its shim reads the stop note and records the stop."""
        waits = not self.has_started(run.identity.key)
        self.count(run, 0)
        self._shims.stop(run)
        return waits

    def forget(self, key: str) -> list[RunFiles]:
        self._shims.start_done(key)
        return super().forget(key)
