"""What programs may do that hold quota themselves.

`tools/sync_client.py` makes methods of `SyncClient` from the signatures and docstrings.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Final, Unpack, overload

from admittance.api.workload import Workload
from admittance.client import opening
from admittance.client.arguments.checked import at_least, checked_methods
from admittance.client.calls import Calls, check_timeout
from admittance.client.errors import BadInput
from admittance.client.holding import Hold, HoldOptions, OnEvicted, WorkloadHold
from admittance.client.requests.link import Link
from admittance.client.requests.submissions import commands, submitting
from admittance.client.requests.submissions.commands import CommandOptions
from admittance.client.requests.submissions.fit import refuse_misfit
from admittance.client.requests.submissions.holds import workload_to_hold
from admittance.client.requests.submissions.names import suffix
from admittance.client.requests.workloads import changes
from admittance.events.requests.history import SettledReply

AMOUNTS: Final = frozenset({"cpu", "memory", "gpu"})


@checked_methods
class HoldMethods:
    """The methods of `Client` for programs that no runner starts."""

    _calls: Calls

    @overload
    def hold(
        self, queue: str | None = None, *, name: str | None = None, namespace: str | None = None
    ) -> WorkloadHold: ...

    @overload
    def hold(
        self,
        queue: str | None = None,
        *,
        name: str | None = None,
        namespace: str | None = None,
        **options: Unpack[HoldOptions],
    ) -> Hold: ...

    def hold(
        self,
        queue: str | None = None,
        *,
        name: str | None = None,
        namespace: str | None = None,
        **options: Unpack[HoldOptions],
    ) -> WorkloadHold | Hold:
        """``hold(name)`` keeps a waiting workload out of its queue until `release`.

        With an amount of ``cpu``, ``memory`` or ``gpu`` it is `hold_quota`, and takes its
        arguments: ``async with client.hold(queue, gpu=1) as held``, with a `SyncClient` ``with``.
        """
        if any(options.get(amount) is not None for amount in AMOUNTS):
            return self.hold_quota(queue, name=name, namespace=namespace, **options)
        workload = name if queue is None else queue
        if options or workload is None or None not in (name, queue):
            raise BadInput(
                "hold takes the name of a workload, or a queue with an amount of cpu, memory or gpu"
            )

        async def kept() -> SettledReply:
            async with self._calls.call() as link:
                space = namespace or ""
                made = await changes.change(link, changes.HOLD, workload, space, spelled="hold")
                return made.reply

        return WorkloadHold(kept())

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
