"""When waiting workloads are expected to start, which the forecast process answers."""

from __future__ import annotations

from datetime import datetime
from typing import Final

import msgspec

from admittance.events.requests.base import Reply, Request

NAMES_MAX: Final = 1000
"""The most workloads of one question."""


class StartForecast(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """When a workload is expected to start, that is, to get its quota. Of ten workloads one is
    expected to start before ``p10``, five before ``p50``, nine before ``p90``. ``basis``: on which
    runs that rests, such as ``from 34 runs of train.py by ada``. ``after``: the workloads
    (``namespace/name``) that free the quota for the start in most plays, in the order in which they
    end, at most five; only those of the namespace of the workload are named. ``as_of``: when it was
    computed. ``unknown``: why there is no time, and what would let it be known; then the other
    fields but ``as_of`` are empty."""

    p10: datetime | None = None
    p50: datetime | None = None
    p90: datetime | None = None
    basis: str = ""
    after: tuple[str, ...] = ()
    as_of: datetime | None = None
    unknown: str = ""


class Forecast(Request, frozen=True, kw_only=True):
    """``admit.api.forecast[.<ns>]``: when workloads are expected to start. ``workloads``: their
    names in the namespace of the subject, or ``namespace/name``."""

    workloads: tuple[str, ...] = ()


class ForecastReply(Reply, frozen=True, kw_only=True):
    """``starts``: by the words of the question; workloads that do not wait are left out.
    ``starting``: the process has no forecast for some of them yet: ask again."""

    starts: dict[str, StartForecast] = msgspec.field(default_factory=dict)
    starting: bool = False
