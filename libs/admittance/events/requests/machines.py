"""What runs on the machines of runners, which the placement service answers."""

from __future__ import annotations

from datetime import datetime

import msgspec

from admittance.events.requests.base import Reply, Request
from admittance.events.stored.machines import OpenRun


class Machines(Request, frozen=True, kw_only=True):
    """``admit.api.machines``: what runs on the machines, and whether their runners are alive.

    ``runner``: only this one, with its runs; "": all, a page of at most ``limit``, by name, after
    the name ``after``. ``with_runs``: each machine comes with its runs, and a page ends after the
    machine with the 1,500th run, so that it fits into a message. ``lacking``: the most workloads
    that lack room."""

    runner: str = ""
    after: str = ""
    limit: int = 1000
    with_runs: bool = False
    lacking: int = 0


class MachineState(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """One machine. ``ready``: its runner is alive. ``in_use``: what its open runs have asked for,
    and programs hold by leases, in accounting units. ``runs``: these runs, if the request names the
    runner or asks for them."""

    runner: str
    ready: bool = False
    in_use: dict[str, int] = msgspec.field(default_factory=dict)
    runs: tuple[OpenRun, ...] = ()


class LackingRow(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A workload that holds quota and that no machine has room for. ``since``: when it began to
    wait; ``message``: what is missing, a sentence without a point."""

    namespace: str
    name: str
    priority: int
    since: datetime
    message: str


class MachinesReply(Reply, frozen=True, kw_only=True):
    """``more``: there are machines after the last one of this page. ``lacking``: workloads that
    lack room, in the order in which they are tried; ``lacking_total``: how many there are."""

    machines: tuple[MachineState, ...] = ()
    more: bool = False
    lacking: tuple[LackingRow, ...] = ()
    lacking_total: int = 0
