"""What programs may do to workloads that exist: stop, hold, approve them, and more.

`tools/sync_client.py` makes methods of `SyncClient` from the signatures and docstrings.
"""

from __future__ import annotations

from typing import Any

from admittance.client.arguments.checked import checked_methods
from admittance.client.calls import Calls
from admittance.client.requests.workloads import changes
from admittance.events.requests.history import SettledReply


@checked_methods
class WorkloadChanges:
    """The methods of `Client` that change a workload; each is one fact on the log."""

    _calls: Calls

    async def stop(self, name: str, *, namespace: str | None = None) -> SettledReply:
        """Stops a workload: it is evicted, and not admitted again until `activate`. The outcome is
        ``ignored`` if it is stopped already."""
        return await self._change(changes.STOP, "stop", name, namespace)

    async def activate(self, name: str, *, namespace: str | None = None) -> SettledReply:
        """Puts a stopped or rejected workload back into its queue."""
        return await self._change(changes.ACTIVATE, "activate", name, namespace)

    async def release(
        self, name: str, *, gate: str = "", namespace: str | None = None
    ) -> SettledReply:
        """Puts a held or gated workload back into its queue. ``gate``: opens only this admission
        gate, also one that a service opens, such as that of an array."""
        return await self._change(changes.RELEASE, "release", name, namespace, gate=gate)

    async def set_priority(
        self, name: str, priority: int, *, namespace: str | None = None
    ) -> SettledReply:
        """Changes the priority of a workload."""
        changes.check_priority(priority)
        return await self._change(
            changes.SET_PRIORITY, "set_priority", name, namespace, priority=priority
        )

    async def finish(
        self,
        name: str,
        *,
        succeeded: bool = True,
        message: str = "",
        namespace: str | None = None,
    ) -> SettledReply:
        """Declares a workload finished; its quota is released at once."""
        return await self._change(
            changes.FINISH, "finish", name, namespace, succeeded=succeeded, message=message
        )

    async def approve(
        self,
        name: str,
        *,
        check: str | None = None,
        message: str = "",
        user: str | None = None,
        namespace: str | None = None,
    ) -> None:
        """Approves a workload: its approval check becomes Ready. ``check``: by default the pending
        approval check, or the only pending one. ``user``: who approves, on a server without users;
        by default ``$ADMIT_USER``, or the login."""
        await self._verdict(name, namespace, approve=True, check=check, message=message, user=user)

    async def deny(
        self,
        name: str,
        *,
        check: str | None = None,
        message: str = "",
        user: str | None = None,
        namespace: str | None = None,
    ) -> None:
        """Denies a workload: it is Rejected, and not admitted again until `activate`. The arguments
        are those of `approve`."""
        await self._verdict(name, namespace, approve=False, check=check, message=message, user=user)

    async def _change(
        self,
        kind: changes.ChangeKind,
        spelled: str,
        name: str,
        namespace: str | None,
        **fields: Any,
    ) -> SettledReply:
        async with self._calls.call() as link:
            made = await changes.change(
                link, kind, name, namespace or "", spelled=spelled, **fields
            )
            return made.reply

    async def _verdict(self, name: str, namespace: str | None, **given: Any) -> None:
        async with self._calls.call() as link:
            await changes.give_verdict(link, name, namespace or "", **given)
