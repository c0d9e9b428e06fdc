"""``admit.api.simulate`` and ``admit.api.fit``: what would happen if manifests were applied now.
Nothing is changed.

For ``simulate``, two copies of the bucket, one with the change and one without, are simulated until
nothing more happens; the reply lists the differences and counts the other workloads.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from admittance.events.requests.base import Reply, Request
from admittance.events.requests.manifests import Applied, Delete
from admittance.events.shapes import Admission, Grounds, Shortfall


class WorkloadChange(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Another priority or LocalQueue of an existing workload; None: as it is.

    A workload cannot change its queue, so with ``queue`` it is deleted and submitted again there:
    a job that runs is stopped, and the workload begins to wait now."""

    namespace: str
    workload: str
    priority: int | None = None
    queue: str | None = None


class Simulate(Request, frozen=True, kw_only=True):
    """``admit.api.simulate[.<ns>]``: what would happen if these manifests were applied, these
    workloads changed, and then these objects deleted.

    ``objects``: manifests as JSON, of any kind, Workloads and Jobs included. ``limit``: the most
    rows of each list; 0: no limit.
    """

    objects: tuple[msgspec.Raw, ...] = ()
    deletes: tuple[Delete, ...] = ()
    changes: tuple[WorkloadChange, ...] = ()
    limit: int = 100


class Fit(Request, frozen=True, kw_only=True):
    """``admit.api.fit.<ns>``: whether a workload that is not submitted could ever start in its
    present queue. ``workload``: the workload's manifest."""

    workload: msgspec.Raw


class FitReply(Reply, frozen=True, kw_only=True):
    """``fits`` false: the ClusterQueue could not hold the workload even if empty, for ``reason``
    (ExceedsMaxQuota, NoMatchingFlavor, NoSuchQueue); ``message`` has the nominal quota and the
    borrowing limit. ``uncharged``: each requested resource for which no quota is charged, with the
    reason. ``inactive``: why the ClusterQueue admits no workloads now, although it is neither
    stopped nor terminating; "": it admits some. ``machines``: why no machine of its runners could
    start a workload that fits, also if nothing else ran there, or that it gets no devices, as a
    sentence; "": one could, or the workload is not placed on machines. ``seen``: the newest
    revision of the bucket known to the scheduler."""

    fits: bool = True
    reason: str = ""
    message: str = ""
    local_queue: str = ""
    cluster_queue: str = ""
    uncharged: dict[str, str] = msgspec.field(default_factory=dict)
    inactive: str = ""
    machines: str = ""
    seen: int = 0


class Part(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A part of a request or reply about a simulation."""


class SimulatedState(Part, frozen=True, kw_only=True):
    """The state of a workload in a simulation. ``phase``: the workload's phase, derived as for a
    stored workload. With an ``admission`` the workload holds that quota; without one it waits for
    ``reason`` at ``position`` of its ClusterQueue (0: not queued).
    """

    phase: str
    reason: str = ""
    message: str = ""
    position: int = 0
    admission: Admission | None = None


class WouldStart(Part, frozen=True, kw_only=True):
    """A workload that gets quota. ``checks``: checks that must be Ready before the workload starts.

    ``after``: how many rounds of evicted jobs have to stop before the workload gets quota; 0: none.
    ``preempts``: the workloads preempted for this workload. ``again``: the workload was evicted
    earlier in the simulation. ``otherwise``: the workload's state without the change; None: without
    the change it does not exist.
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
    """A workload that waits at the end of the simulation, and that without the change does not
    wait, does not exist, or waits for another reason.
    """

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
    if it had only a reservation; ``ran``: the workload was admitted, so its job is stopped.

    ``by``, ``rule``, ``grounds``: the preemptor, the rule and the numbers of a preemption.
    ``after``: how many rounds of evicted jobs have to stop before the workload loses its quota; 0:
    none. ``then``: the workload's state at the end; None: the workload is deleted.
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
    ``reserved`` (waiting for checks), ``pending``, ``off``. ``gone``: number of workloads that the
    change deletes.
    """

    starts: int = 0
    waits: int = 0
    evictions: int = 0
    gone: int = 0
    run: int = 0
    reserved: int = 0
    pending: int = 0
    off: int = 0


class SimulateReply(Reply, frozen=True, kw_only=True):
    """The result of a simulation. If ``error`` is set, nothing was simulated, and ``problems``
    lists the mistakes.

    ``results``: the outcome for each object: ``deleted`` for a deletion, ``refused`` for an invalid
    workload, with the reason among the warnings. ``revision``: revision of the bucket that was
    copied. The lists are in the order of events, or of the queues. ``settled`` false: the
    simulation was stopped before its end. A long reply comes in several messages; only the first
    message has the counts, and ``parts`` in each is the number of messages.
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


REPLY_LISTS: Final = ("results", "evictions", "starts", "waits")
"""The lists of a `SimulateReply`, which may be split over several messages."""


def joined_reply(parts: Sequence[SimulateReply]) -> SimulateReply:
    """Joins the messages of a reply, given in any order, to the whole reply."""
    ordered = sorted(parts, key=lambda part: part.part)
    lists = {
        name: tuple(row for part in ordered for row in getattr(part, name)) for name in REPLY_LISTS
    }
    return replace(ordered[0], part=1, parts=1, **lists)


class SimulationTask(Part, frozen=True, kw_only=True):
    """Not on the wire: the input of the simulation process, from the scheduler. ``config``: the
    configuration of the scheduler. ``limits``: limits of workloads that differ from the defaults.
    """

    request: Simulate
    config: msgspec.Raw
    limits: dict[str, Any] | None = None
    namespace: str = ""
