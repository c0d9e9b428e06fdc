"""What a forecast reads of workloads and queues. Times are seconds since the epoch."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

from admittance.quota.cell import FlavorResource
from admittance.scheduling.state.held.person_limits import Person

Key: TypeAlias = tuple[str, str]
"""Namespace and name of a workload."""
Need: TypeAlias = tuple[tuple[FlavorResource, int], ...]
"""Amounts of flavors and resources, in accounting units."""


class Source(NamedTuple):
    """Where a workload comes from: workloads of one source run for about the same time.

    ``script``: the name of its command, or ""; ``array``: the uid of its array, or "".
    """

    queue: str
    user: str = ""
    script: str = ""
    array: str = ""


class Waiting(NamedTuple):
    """A workload that waits for quota.

    ``choices``: for each resource group the needs of the flavors that may be used, in order.
    ``limit``: the greatest run time that its manifest declares; None: there is none. ``persons``:
    those that its quota counts for, where a queue limits what one person may hold.
    """

    key: Key
    queue: str
    queued_at: float
    choices: tuple[tuple[Need, ...], ...]
    source: Source
    priority: int = 0
    limit: float | None = None
    persons: tuple[Person, ...] = ()


class Holding(NamedTuple):
    """A workload that holds quota. ``since``: when its run began, or when it reserved quota.
    ``is_checked``: its checks are not over, so its run has not begun. ``is_leaving``: it is being
    evicted. ``again``: the workload as it waits again after an eviction; None: it does not."""

    key: Key
    queue: str
    need: Need
    since: float
    source: Source
    limit: float | None = None
    persons: tuple[Person, ...] = ()
    is_checked: bool = False
    is_leaving: bool = False
    again: Waiting | None = None
