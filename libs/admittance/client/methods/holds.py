"""What programs may do that hold quota themselves.

`tools/sync_client.py` makes methods of `SyncClient` from the signatures and docstrings.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence

from admittance.api.workload import Workload
from admittance.client import opening
from admittance.client.arguments.checked import at_least, checked_methods
from admittance.client.calls import Calls, check_timeout
from admittance.client.holding import Hold, OnEvicted
from admittance.client.requests.link import Link
from admittance.client.requests.submissions import commands, submitting
from admittance.client.requests.submissions.commands import CommandOptions
from admittance.client.requests.submissions.fit import refuse_misfit
from admittance.client.requests.submissions.holds import workload_to_hold
from admittance.client.requests.submissions.names import suffix


@checked_methods
class HoldMethods:
    """The methods of `Client` for programs that no runner starts."""

    _calls: Calls

    def hold_quota(
        self,
        queue: str | None = None,
        *,
        cpu: str | float | None = None,
        memory: str | int | None = None,
        gpu: str | int | None = None,
        name: str | None = None,
        priority: int | None = None,
        priority_class: str | None = None,
        labels: Mapping[str, str] | None = None,
        flavors: Sequence[str] = (),
        max_seconds: int | None = None,
        lease_seconds: int = 60,
        on_evicted: OnEvicted | None = None,
        timeout: float | None = None,
        anyway: bool = False,
        namespace: str | None = None,
    ) -> Hold:
        """Quota, and devices of this machine if a runner serves it, for this program while a block
        runs: ``async with client.hold_quota(…) as held``, with a `SyncClient` ``with``. The block
        begins once there is quota.

        ``held.devices`` has the devices, ``held.environ()`` the variables that show them. The lease
        is renewed all the time; if the program dies, the quota is free after ``lease_seconds``.
        ``on_evicted``: called once, with the reason, when the program must give the quota up, as
        ``held.evicted`` then says; it should leave the block soon. ``timeout``: the most seconds to
        wait for quota. The other arguments are those of `submit`.

        The block raises BadInput, NotFound, Refused and TimedOut before it begins.
        """
        at_least(1, max_seconds=max_seconds)
        options = CommandOptions(
            command=tuple(sys.argv[:1]) if sys.argv and sys.argv[0] else ("python",),
            queue=queue,
            name=name or f"hold-{suffix()}",
            requests=commands.requests_of(cpu, memory, gpu),
            priority=priority,
            priority_class=priority_class,
            labels=labels or {},
            max_seconds=max_seconds,
            flavors=flavors,
        )

        async def submit(link: Link) -> Workload:
            space = opening.namespace_of(namespace, link.namespace)
            workload = await workload_to_hold(link, options, space, lease_seconds)
            await refuse_misfit(link, workload, anyway=anyway)
            await submitting.submit(link, workload)
            return workload

        return Hold(
            self._calls,
            submit,
            lease_seconds=lease_seconds,
            timeout=check_timeout(timeout),
            on_evicted=on_evicted,
        )
