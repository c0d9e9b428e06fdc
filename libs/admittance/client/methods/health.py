"""What programs may ask about the health of the system.

`tools/sync_client.py` makes methods of `SyncClient` from the signatures and docstrings.
"""

from __future__ import annotations

from importlib import import_module
from typing import Final

from admittance.client.arguments.checked import checked_methods
from admittance.client.calls import Calls
from admittance.client.health_report import HealthReport

EXAMINATION: Final = "admittance.examination"
"""The module that examines all services. This library imports no service, so it is loaded by its
name, at the call."""


@checked_methods
class HealthMethods:
    """The methods of `Client` about the health of the system."""

    _calls: Calls

    async def health(self, *, thorough: bool = False) -> HealthReport:
        """What `admit doctor` finds, as rows, with the instances of services, consumers, leaders,
        streams and dead letters. It takes a second. ``thorough``: every stored value is read, too,
        and a message is written to each stream, which a full disk refuses. Raises NotAllowed for a
        role other than viewer and admin."""
        async with self._calls.call() as link:
            examination = import_module(EXAMINATION)
            report: HealthReport = await examination.report(link, thorough=thorough)
            return report
