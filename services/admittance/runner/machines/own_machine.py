"""The machine of this runner: announces it, reports its runs, and stops claims while it is cordoned
or another runner has the name."""

from __future__ import annotations

import asyncio
from typing import Final

import structlog
from msgspec.structs import replace

from admittance.events.stored.machines import RunnerInventory
from admittance.events.system import RunnerStarts
from admittance.runner import decide
from admittance.runner.machines.cordon import Cordon
from admittance.runner.machines.machine_reports import MachineReports
from admittance.runner.machines.open_runs import open_runs
from admittance.runner.runs.run_manager import RunManager
from admittance.runtime import clock
from admittance.runtime.errors import AccessDenied, BusRefused, BusUnavailable
from admittance.runtime.tasks import set_within

REPORT_SECONDS: Final = 0.2
"""Least seconds between two reports of the open runs: one report covers the starts of a burst."""
DRAIN_SECONDS: Final = 2.0
"""Seconds between two looks at the jobs of a machine whose drain is over its deadline."""

log = structlog.get_logger(service="runner")


class OwnMachine:
    """What a runner says and reads about its own machine."""

    def __init__(
        self, manager: RunManager, inventory: RunnerInventory, reports: MachineReports
    ) -> None:
        self._manager = manager
        self._reports = reports
        self.inventory = inventory
        self._drain_changed = asyncio.Event()
        self._has_begun = False
        self.cordon = Cordon(manager.admissions.bus, inventory.name, self._on_cordon)
        manager.name = inventory.name
        manager.drain.announce = self._announce_failure

    async def begin(self) -> None:
        """Waits until no other runner has the name, announces the machine, and learns whether it is
        cordoned, before the runner claims anything."""
        await self._manager.retry(self._reports.wait_for_name)
        self._has_begun = True
        await self.announce(self.inventory.starts)
        await self._manager.retry(self._read_cordon)
        self._warn_of_drain()  # a drain may have ended while this runner was away

    async def announce(self, starts: RunnerStarts | None) -> None:
        """Announces the machine. ``starts``: whose jobs it starts now; None: all jobs."""
        self.inventory = replace(self.inventory, starts=starts, failure=self._manager.drain.failure)
        await self._manager.retry(lambda: self._reports.announce(self.inventory))

    async def keep_alive(self) -> None:
        """Says that the runner is alive, until cancelled; stops its claims while another runner has
        the name."""
        while True:
            await asyncio.sleep(self._reports.ttl / 3)
            self._manager.has_name = await self._manager.retry(self._reports.take_name)

    async def report_runs(self) -> None:
        """Reports the open runs at each change, until cancelled."""
        changed = self._manager.open_runs_changed
        while True:
            changed.clear()
            runs = open_runs(self._manager.folders.values())
            await self._manager.retry(lambda runs=runs: self._reports.report(runs))  # type: ignore[misc]
            await asyncio.sleep(REPORT_SECONDS)
            await changed.wait()

    async def begin_to_leave(self, seconds: float) -> None:
        """Says that the runner starts nothing more, before it gives its jobs back: placement would
        place them here again. Waits at most ``seconds`` for the bus."""
        try:
            async with asyncio.timeout(seconds):
                await self._reports.begin_to_leave()
        except (BusUnavailable, BusRefused, TimeoutError) as error:
            log.warning("leave_not_announced", reason=str(error))

    async def leave(self, seconds: float) -> None:
        """Reports what still runs when the runner ends, and gives its name back; waits at most
        ``seconds`` for the bus."""
        try:
            async with asyncio.timeout(seconds):
                await self._reports.report(open_runs(self._manager.folders.values()))
                await self._reports.leave()
        except (BusUnavailable, BusRefused, TimeoutError) as error:
            log.warning("machine_not_left", reason=str(error))

    async def give_back_drained(self) -> None:
        """Gives back, at the deadline of a drain, the jobs that any runner may start, until
        cancelled. Placement moves those that it has assigned to this runner."""
        while True:
            self._drain_changed.clear()
            drain = self.cordon.spec.drain
            deadline = drain.deadline if drain is not None else None
            if drain is None or deadline is None:
                await self._drain_changed.wait()
                continue
            left = (deadline - clock.now()).total_seconds()
            if left > 0:
                await set_within(self._drain_changed, left)
                continue
            why = "its machine is drained" + (f": {drain.reason}" if drain.reason else "")
            for key, files in list(self._manager.folders.items()):
                if not files.identity.placed and not self._manager.runs[key].leaving:
                    self._manager.handle(key, decide.ShutDown(why))
            await set_within(self._drain_changed, DRAIN_SECONDS)

    async def _announce_failure(self) -> None:
        """Announces whether the machine is drained, once the runner has its name."""
        if self._has_begun:
            await self.announce(self.inventory.starts)

    def _warn_of_drain(self) -> None:
        """Says to the shims of runs when the machine must be empty: they warn their pods before."""
        drain = self.cordon.spec.drain
        deadline = drain.deadline if drain is not None else None
        for run in self._manager.drain.set_deadline(deadline, self._manager.folders.values()):
            self._manager.launcher.tell_drain(run)
        if self._manager.claims.set_drain(deadline):
            self._manager.run_in_background(self._say_drain(), "drain of parts")

    async def _say_drain(self) -> None:
        """Says to the runners of other parts when this machine must be empty."""
        claims = self._manager.claims
        for key in await self._manager.retry(lambda: claims.renew(parts_only=True)):
            self._manager.handle(key, decide.ClaimLost())

    def _on_cordon(self) -> None:
        drain = self._manager.drain
        if drain.has_ended(self.cordon.conditions):
            self._manager.run_in_background(drain.end(), "runner undrained")
        self._manager.cordoned = self.cordon.is_on
        self._warn_of_drain()
        self._drain_changed.set()

    async def _read_cordon(self) -> None:
        try:
            await self.cordon.read()
        except AccessDenied:
            return  # an earlier permission: `Cordon.follow` reports it
