"""``admit.api.simulate``: what would happen if manifests were applied now. Nothing is changed.

Two copies of the bucket, one with the change and one without, are simulated until nothing more
happens; the reply lists the differences and counts the other workloads.
"""

from __future__ import annotations

from typing import Any

import msgspec

from admittance.events.requests import Applied, Delete, Reply, Request
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
    """A part of a simulation."""


class SimulatedState(Part, frozen=True, kw_only=True):
    """The state of a workload. ``phase``: as in the bucket; with ``admission`` it holds that quota,
    else it waits for ``reason`` at ``position`` of its ClusterQueue (0: it is not queued)."""

    phase: str
    reason: str = ""
    message: str = ""
    position: int = 0
    admission: Admission | None = None


class WouldStart(Part, frozen=True, kw_only=True):
    """A workload that gets quota. ``checks``: checks that must be Ready before it starts.

    ``after``: rounds of evicted jobs that have to stop first; 0: at once. ``preempts``: the
    workloads preempted for it. ``again``: it was evicted before. ``otherwise``: its state without
    the change; None: it does not exist then.
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
    otherwise: SimulatedState | None = None


class WouldWait(Part, frozen=True, kw_only=True):
    """A workload that waits in the end; without the change it does not wait, does not exist, or
    waits for another reason."""

    namespace: str
    name: str
    cluster_queue: str = ""
    local_queue: str = ""
    priority: int = 0
    position: int = 0
    reason: str = ""
    message: str = ""
    shortfalls: tuple[Shortfall, ...] = ()
    otherwise: SimulatedState | None = None


class WouldBeEvicted(Part, frozen=True, kw_only=True):
    """A workload that loses its quota. ``reason``: as in the condition Evicted, or in QuotaReserved
    if it had only a reservation; ``ran``: it was admitted, so its job is stopped.

    ``by``, ``rule``, ``grounds``: the preemptor, the rule and the numbers of a preemption.
    ``after``: as in WouldStart. ``then``: its state in the end; None: it is deleted.
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
    then: SimulatedState | None = None


class Counts(Part, frozen=True, kw_only=True):
    """The length of each list, and the number of all other workloads by state: ``run``,
    ``reserved`` (waiting for checks), ``pending``, ``off``. ``gone``: deleted by the change."""

    starts: int = 0
    waits: int = 0
    evictions: int = 0
    gone: int = 0
    run: int = 0
    reserved: int = 0
    pending: int = 0
    off: int = 0


class SimulateReply(Reply, frozen=True, kw_only=True):
    """The result of a simulation. On an error nothing was tried; ``problems`` lists the mistakes.

    ``results``: the outcome for each object; ``deleted`` for a delete, ``refused`` for an invalid
    workload, with the reason among its warnings. ``revision``: of the bucket that was copied. The
    lists are in the order of events, or of the queues. ``settled`` false: the simulation was cut
    off before its end. A long reply comes in several messages; only the first one has the counts,
    and ``parts`` in each is their number.
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


class SimulationTask(Part, frozen=True, kw_only=True):
    """Not on the wire: the input of the simulation process, from the scheduler. ``config``: the
    scheduler's own. ``limits``: workload limits that differ from the defaults."""

    request: Simulate
    config: msgspec.Raw
    limits: dict[str, Any] | None = None
    namespace: str = ""
