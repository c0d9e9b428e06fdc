"""What services answer about their state, and providers about a request for capacity."""

from __future__ import annotations

from datetime import datetime
from typing import Final

import msgspec

from admittance.events.requests.base import Reply, Request
from admittance.events.shapes import Finding, PodSetUpdate

# Answered by the retry-timer. -----------------------------------------------------------


class Timers(Request, frozen=True, kw_only=True):
    """``admit.api.timers``: the state of the schedules."""


class TimersReply(Reply, frozen=True, kw_only=True):
    """``wanted``: times that workloads wait for. ``pending``: schedules that are not up to date.
    Counted since this instance leads: ``mended`` schedules that were lost, wrong or without a
    workload, and ``again``, schedules that came due without an effect and were set again.
    ``compared``: when the schedules were last compared with the stream."""

    wanted: int = 0
    pending: int = 0
    mended: int = 0
    again: int = 0
    compared: datetime | None = None


# Answered by the variant-controller. -----------------------------------------------------


class Families(Request, frozen=True, kw_only=True):
    """``admit.api.families``: the state of the families."""


class FamiliesReply(Reply, frozen=True, kw_only=True):
    """``families``: number of parents. ``pending``: number of families to be reconciled, and of
    published facts without an effect so far; ``stuck``: number of facts published three times or
    more without an effect. ``stated``: number of facts published since this instance leads.
    ``gates_open``: families in which a variant may preempt, by ClusterQueue."""

    families: int = 0
    pending: int = 0
    stuck: int = 0
    stated: int = 0
    gates_open: dict[str, int] = msgspec.field(default_factory=dict)


# Answered by the array-controller. -------------------------------------------------------


class Arrays(Request, frozen=True, kw_only=True):
    """``admit.api.arrays``: the state of the arrays."""


class ArraysReply(Reply, frozen=True, kw_only=True):
    """``arrays``: number of arrays; ``unfinished``: of their elements without a result;
    ``waiting``: of workloads that wait for others.
    ``pending``: number of arrays to be looked at, and of published facts without an effect so far;
    ``stuck``: number of facts published three times or more without an effect. ``stated``: number
    of facts published since this instance leads."""

    arrays: int = 0
    unfinished: int = 0
    waiting: int = 0
    pending: int = 0
    stuck: int = 0
    stated: int = 0


# Answered by providers of capacity. --------------------------------------------------------


class ProviderQuery(Request, frozen=True, kw_only=True):
    """``admit.api.provider.<class>``: requests the status of a request for capacity. Sent after a
    restart, and when the provider's heartbeats stop."""

    id: str


class ProviderReply(Reply, frozen=True, kw_only=True):
    """The last status of a request for capacity. ``status``: accepted, provisioned, failed,
    booking_expired or capacity_revoked, as in the subjects; "": no status yet; cancelled: the
    request was withdrawn. ``known`` False: the provider does not know the request. All other fields
    are those of the status fact."""

    id: str = ""
    known: bool = True
    status: str = ""
    message: str = ""
    details: dict[str, str] = msgspec.field(default_factory=dict)
    pod_set_updates: tuple[PodSetUpdate, ...] = ()
    seq: int | None = None
    retryable: bool = True
    retry_after: int | None = None


# Answered by the provisioning check. -------------------------------------------------------

CLASSES_ASKED_MAX: Final = 100
"""The most provisioning classes in one request."""


class Providers(Request, frozen=True, kw_only=True):
    """``admit.api.providers``: for which of these provisioning classes a provider answers; at most
    `CLASSES_ASKED_MAX`. A class without a provider takes a second."""

    classes: tuple[str, ...] = ()


class ProvidersReply(Reply, frozen=True, kw_only=True):
    """``answering``: the classes for which a provider answers."""

    answering: tuple[str, ...] = ()


# Answered by every service. -------------------------------------------------------------


class Health(Request, frozen=True, kw_only=True):
    """``admit.api.health``: the state of each instance; every instance answers."""


class Series(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What an instance did in the last hour at most: a number for each minute, the oldest first,
    the present minute last. ``p99_ms``: the 99th percentile of the time of a decision, in steps of
    a tenth; 0: there was none. ``waiting``: how many workloads waited."""

    decisions: tuple[int, ...] = ()
    p99_ms: tuple[float, ...] = ()
    waiting: tuple[int, ...] = ()


class HealthReply(Reply, frozen=True, kw_only=True):
    """``leads``: the domains that this instance leads. ``lag``: number of facts that this instance
    has not read yet. ``denied``: ``publish SUBJECT`` and ``subscribe SUBJECT`` that the server
    refused lately, in lower case. ``user``: the user in the service's credentials file; "": none.
    ``time``: by the clock of the machine. ``replicas``: how many replicas the service asks for in
    each stream; 0: it makes no streams. ``findings``: what the process found out about itself.
    ``series``: of an instance that makes decisions."""

    service: str = ""
    instance: str = ""
    ready: bool = False
    leads: tuple[str, ...] = ()
    lag: int = 0
    details: dict[str, str] = msgspec.field(default_factory=dict)
    denied: tuple[str, ...] = ()
    user: str = ""
    time: datetime | None = None
    replicas: int = 0
    findings: tuple[Finding, ...] = ()
    series: Series | None = None
