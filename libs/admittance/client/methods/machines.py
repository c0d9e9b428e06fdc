"""What programs may do with the machines of runners.

`tools/sync_client.py` makes methods of `SyncClient` from the signatures and docstrings.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from admittance.api.runners import RunnerDrain
from admittance.client.arguments.checked import at_least, checked_methods, words
from admittance.client.calls import Calls
from admittance.client.requests import machines
from admittance.client.requests.queues import capacity
from admittance.events.requests.machines import Machines, MachinesReply


@checked_methods
class MachineMethods:
    """The methods of `Client` about machines."""

    _calls: Calls

    async def machines(self, *, lacking: int = 100) -> MachinesReply:
        """What runs on each machine, by the name of its runner, and whether its runner is alive;
        and the first ``lacking`` workloads that hold quota and that no machine has room for, with
        what they miss. `list` of the kind ``runners`` has what each machine offers."""
        async with self._calls.call() as link:
            at_least(0, lacking=lacking)
            return await machines.all_machines(link, Machines(with_runs=True, lacking=lacking))

    async def answering_providers(self, classes: Sequence[str]) -> frozenset[str]:
        """The provisioning classes, of these, for which a provider answers within a second. Only
        logins that may read all namespaces may ask. Raises Unavailable if the provisioning check,
        which asks the providers, does not answer."""
        async with self._calls.call() as link:
            return await capacity.answering(link, words(classes))

    async def cordon(self, runner: str) -> bool:
        """Gives the machine of a runner no new jobs; those that run stay. Returns False if it was
        cordoned already. Raises NotFound and Refused."""
        async with self._calls.call() as link:
            return await machines.set_cordon(link, runner, on=True)

    async def uncordon(self, runner: str) -> bool:
        """Gives the machine of a runner new jobs again. Returns False if it was not cordoned.
        Raises NotFound and Refused."""
        async with self._calls.call() as link:
            return await machines.set_cordon(link, runner, on=False)

    async def drain(
        self, runner: str, *, deadline: datetime | None = None, reason: str = ""
    ) -> bool:
        """Gives the machine of a runner no new jobs, and evicts those that still run there at
        ``deadline``; None: they may end by themselves. Returns False if it is drained in the same
        way already. Raises NotFound, Refused, and BadInput."""
        async with self._calls.call() as link:
            wanted = RunnerDrain(deadline=deadline, reason=reason)
            return await machines.set_drain(link, runner, wanted)

    async def undrain(self, runner: str) -> bool:
        """Ends the drain of a machine. Returns False if it was not drained. Raises NotFound and
        Refused."""
        async with self._calls.call() as link:
            return await machines.set_drain(link, runner, None)
