"""What EC2 lets us do. Where it does not take our keys, or forbids what we are there for, nobody's
request is at fault: the class is inactive until that works again, and whoever has asked waits.

Of a reservation that is forbidden EC2 does not say whether a policy forbids that one or all of
them. So what it let us make before is asked for again, as a dry run: if that is allowed still, the
matter is the request's own.
"""

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
"""Of calls that are made for no request in particular."""
UNKNOWN: Final = (*NOT_OURS, Fault.LATER)


class Rights:
    """``threads``: for what is tried out."""

    def __init__(self, ec2: Ec2, threads: Threads, troubles: InactiveReasons) -> None:
        self._ec2 = ec2
        self._threads = threads
        self._troubles = troubles
        self._allowed: Mapping[str, Any] | None = None
        """Arguments of a reservation that we were let make."""
        self._probes: dict[str, Callable[[], object]] = {}
        self._waiting: set[str] = set()
        """Requests that wait until they may be reserved for."""

    @property
    def lacking(self) -> bool:
        """Something is forbidden."""
        return bool(self._troubles)

    def lack(
        self, what: str, trouble: Ec2Error, *, probe: Callable[[], object] | None = None
    ) -> None:
        """EC2 does not let us. ``probe``: a call that tells when it does again; without one, who is
        let says so."""
        self._troubles.begin(what, f"EC2 does not let us {what}: {trouble}")
        if probe is not None:
            self._probes[what] = probe

    def have(self, what: str) -> None:
        """EC2 lets us."""
        self._probes.pop(what, None)
        self._troubles.end(what)

    def reserved(self, arguments: Mapping[str, Any]) -> None:
        """EC2 let us make that reservation."""
        self._allowed = arguments
        self.have(RESERVE)

    async def is_own_matter(self, request_id: str, trouble: Ec2Error) -> bool:
        """Whether the reservation is forbidden to that request alone. If not, nobody gets any until
        it is allowed again: then the request is to be tried once more."""
        allowed = self._allowed
        if allowed is None:
            # Only who asked can tell when it is allowed.
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
        """The request has come to its end, or was taken back."""
        if request_id in self._waiting:
            self._waiting.discard(request_id)
            if not self._waiting and self._allowed is None:
                self.have(RESERVE)

    async def look(self) -> None:
        """Tries out what did not work."""
        for what, probe in list(self._probes.items()):
            if await self._works(probe):
                self.have(what)

    async def _works(self, probe: Callable[[], object]) -> bool:
        try:
            await self._threads.call(probe)
        except Ec2Error as trouble:
            return trouble.fault not in UNKNOWN
        return True
