"""Missing rights in EC2. If EC2 refuses the credentials or forbids a basic call, requests are not
at fault: the class is inactive until the call works again, and requests wait.

EC2 does not say whether a policy forbids one reservation or all. So a reservation that was allowed
before is tried as a dry run: if that still works, only the new request is forbidden."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from admittance.provider_aws.ec2 import Ec2, Ec2Error, Fault
from admittance.providers.health import InactiveReasons
from admittance.sdk.threads import Threads

LOOK: Final = "look"
CANCEL: Final = "cancel"
RESERVE: Final = "reserve"
MACHINES: Final = "ask what machines there are"
NOT_OURS: Final = (Fault.CREDENTIALS, Fault.FORBIDDEN)
"""Causes that concern the provider, not one request."""
UNKNOWN: Final = (*NOT_OURS, Fault.LATER)


class Rights:
    """Keeps the class inactive while a right is missing. ``threads``: run the probes."""

    def __init__(self, ec2: Ec2, threads: Threads, troubles: InactiveReasons) -> None:
        self._ec2 = ec2
        self._threads = threads
        self._troubles = troubles
        self._allowed: Mapping[str, Any] | None = None
        """Arguments of a reservation that EC2 allowed."""
        self._probes: dict[str, Callable[[], object]] = {}
        self._waiting: set[str] = set()
        """Requests that wait for the right to reserve."""

    @property
    def lacking(self) -> bool:
        """Whether a right is missing."""
        return bool(self._troubles)

    def lack(
        self, what: str, trouble: Ec2Error, *, probe: Callable[[], object] | None = None
    ) -> None:
        """A right is missing. ``probe``: a call that works again when the right is back; without a
        probe the next successful caller reports that."""
        self._troubles.begin(what, f"EC2 does not allow us to {what}: {trouble}")
        if probe is not None:
            self._probes[what] = probe

    def have(self, what: str) -> None:
        """The right is there."""
        self._probes.pop(what, None)
        self._troubles.end(what)

    def reserved(self, arguments: Mapping[str, Any]) -> None:
        """EC2 allowed that reservation."""
        self._allowed = arguments
        self.have(RESERVE)

    async def is_forbidden_for_request_only(self, request_id: str, trouble: Ec2Error) -> bool:
        """Whether the reservation is forbidden for this request only. If not, the class is inactive
        until the right is back, and the request must be tried again."""
        allowed = self._allowed
        if allowed is None:
            # There is no probe, so only the request itself can find out.
            self._waiting.add(request_id)
            self.lack(RESERVE, trouble)
            return False

        def probe() -> None:
            self._ec2.try_out(allowed)

        if await self._works(probe):
            return True
        self.lack(RESERVE, trouble, probe=probe)
        return False

    def waits_no_more(self, request_id: str) -> None:
        """The request has ended or was cancelled."""
        if request_id in self._waiting:
            self._waiting.discard(request_id)
            if not self._waiting and self._allowed is None:
                self.have(RESERVE)

    async def look(self) -> None:
        """Runs the probes of missing rights."""
        for what, probe in list(self._probes.items()):
            if await self._works(probe):
                self.have(what)

    async def _works(self, probe: Callable[[], object]) -> bool:
        try:
            await self._threads.call(probe)
        except Ec2Error as trouble:
            return trouble.fault not in UNKNOWN
        return True
