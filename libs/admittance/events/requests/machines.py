"""What runs on the machines of runners, which the placement service answers."""

from __future__ import annotations

import msgspec

from admittance.events.requests.base import Reply, Request
from admittance.events.stored.machines import OpenRun


class Machines(Request, frozen=True, kw_only=True):
    """``admit.api.machines``: what runs on the machines, and whether their runners are alive.

    ``runner``: only this one, with its runs; "": all, a page of at most ``limit``, by name, after
    the name ``after``."""

    runner: str = ""
    after: str = ""
    limit: int = 1000


class MachineState(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """One machine. ``ready``: its runner is alive. ``in_use``: what its open runs have asked for,
    and programs hold by leases, in accounting units. ``runs``: these runs, if the request names the
    runner."""

    runner: str
    ready: bool = False
    in_use: dict[str, int] = msgspec.field(default_factory=dict)
    runs: tuple[OpenRun, ...] = ()


class MachinesReply(Reply, frozen=True, kw_only=True):
    """``more``: there are machines after the last one of this page."""

    machines: tuple[MachineState, ...] = ()
    more: bool = False
