"""``admit.api.simulate``: what would follow if manifests were applied now. Nothing is changed.

The same things are decided on two copies of the bucket, one with the change and one without, until
nothing more happens; the answer tells what is different, and counts the rest.
"""

from __future__ import annotations

from typing import Any

import msgspec

from admittance.events.applying import Applied, Delete
from admittance.events.requests import Reply, Request
from admittance.events.shapes import Admission, Grounds, Shortfall


class Simulate(Request, frozen=True, kw_only=True):
    """``admit.api.simulate[.<ns>]``: these manifests applied, then these objects deleted.

    ``objects``: as JSON, of any kind, Workloads and Jobs included. ``limit``: rows of each list;
    0: all of them.
    """

    objects: tuple[msgspec.Raw, ...] = ()
    deletes: tuple[Delete, ...] = ()
    limit: int = 100


class Part(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A part of the answer."""


class Standing(Part, frozen=True, kw_only=True):
    """How a workload stands. ``phase``: as in the bucket; with ``admission`` it holds that quota,
    else it waits for ``reason`` at ``position`` of its ClusterQueue (0: it is not queued)."""

    phase: str
    reason: str = ""
    message: str = ""
    position: int = 0
    admission: Admission | None = None


class WouldStart(Part, frozen=True, kw_only=True):
    """Gets quota. ``checks``: those that have to say Ready before it starts.

    ``after``: how often evicted jobs have to stop first; 0: at once. ``preempts``: who is told to
    go for it. ``again``: it was evicted before. ``otherwise``: how it stands without the change;
    None: it is not there.
    """

    namespace: str
    name: str
    local_queue: str = ""
    priority: int = 0
    admission: Admission
    checks: tuple[str, ...] = ()
    after: int = 0
    preempts: tuple[str, ...] = ()
    again: bool = False
    otherwise: Standing | None = None


class WouldWait(Part, frozen=True, kw_only=True):
    """Waits in the end, while without the change it does not, is not there, or waits for another
    reason."""

    namespace: str
    name: str
    cluster_queue: str = ""
    local_queue: str = ""
    priority: int = 0
    position: int = 0
    reason: str = ""
    message: str = ""
    shortfalls: tuple[Shortfall, ...] = ()
    otherwise: Standing | None = None


class WouldBeEvicted(Part, frozen=True, kw_only=True):
    """Loses its quota. ``reason`` as in the condition Evicted, or of QuotaReserved where it had
    only a reservation; ``ran``: it was admitted, so that its job is stopped.

    ``by``, ``rule``, ``grounds``: for whom it is preempted, under which rule, and with which
    numbers. ``after`` as in WouldStart.
    ``then``: how it stands in the end; None: it is gone.
    """

    namespace: str
    name: str
    cluster_queue: str = ""
    local_queue: str = ""
    priority: int = 0
    reason: str
    message: str = ""
    rule: str = ""
    by: str = ""
    grounds: Grounds | None = None
    ran: bool = False
    after: int = 0
    then: Standing | None = None


class Counts(Part, frozen=True, kw_only=True):
    """How many there are in each list, and how many workloads are as they are without the change:
    they ``run``, are ``reserved`` and wait for checks, are ``pending``, or ``off``. ``gone``:
    deleted by the change."""

    starts: int = 0
    waits: int = 0
    evictions: int = 0
    gone: int = 0
    run: int = 0
    reserved: int = 0
    pending: int = 0
    off: int = 0


class SimulateReply(Reply, frozen=True, kw_only=True):
    """What would follow. On an error nothing was tried; ``problems`` has all that is wrong.

    ``results``: what would become of each object; for a delete ``deleted``, for a workload that
    would not be taken ``refused``, with why among its warnings. ``revision``: the bucket's that
    all of it is based on. The lists are in the order in which things happen, or of the queues.
    ``settled`` false: it went on and on, and was cut off. A long answer comes in several messages;
    only the first has the counts, and ``parts`` in each says how many there are.
    """

    revision: int = 0
    results: tuple[Applied, ...] = ()
    problems: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    counts: Counts = Counts()
    starts: tuple[WouldStart, ...] = ()
    waits: tuple[WouldWait, ...] = ()
    evictions: tuple[WouldBeEvicted, ...] = ()
    settled: bool = True
    part: int = 1
    parts: int = 1


class Errand(Part, frozen=True, kw_only=True):
    """Not on the wire: what a scheduler gives to the process that finds the answer. ``config``: the
    one that it decides by itself. ``limits``: what of the limits in the life of workloads is not as
    by default."""

    request: Simulate
    config: msgspec.Raw
    limits: dict[str, Any] | None = None
    namespace: str = ""
