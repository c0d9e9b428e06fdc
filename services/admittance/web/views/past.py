"""The bar of a page that shows a past moment, and the slider over the facts of a workload."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final
from urllib.parse import urlencode

import msgspec
from msgspec.structs import replace

from admittance.events.requests.history import LogEntry
from admittance.events.requests.past import Moment
from admittance.web.views.missing import Missing
from admittance.web.views.pending import PendingView
from admittance.web.views.queues import QueuesView
from admittance.web.views.words import Link, between, took

LACKS: Final = (
    "It has no machines, heartbeats, output or bookings of providers, and its actions are off."
)
FACTS_A_SECOND: Final = 5_000
"""About how many messages of the log are folded in a second."""
STEPS: Final = (timedelta(minutes=-60), timedelta(minutes=-10), timedelta(minutes=10))
"""How far the links of a page without a slider go from its moment."""


class Slider(msgspec.Struct, frozen=True, kw_only=True):
    """``at``: the fact that is shown, from 1 to ``count``; 0: the moment is before the first one.
    ``path``: where the form of the slider leads."""

    at: int
    count: int
    path: str


class PastBar(msgspec.Struct, frozen=True, kw_only=True):
    """``text``: which moment it is, with its ``sequence`` on the log; ``lacks``: what a picture of
    the past does not have; ``links``: to other moments; ``more``: to what takes seconds."""

    text: str
    sequence: int
    time: datetime
    lacks: str
    now: Link
    links: tuple[Link, ...] = ()
    slider: Slider | None = None
    more: Link | None = None


def at_path(path: str, at: int | datetime, **more: str) -> str:
    """The address of a page at a moment."""
    written = f"{at:%Y-%m-%dT%H:%M:%SZ}" if isinstance(at, datetime) else str(at)
    return f"{path}?{urlencode({'at': written, **more})}"


def also_at(link: Link, at: int) -> Link:
    """The link at a past moment."""
    return Link(link.text, f"{link.href}{'&' if '?' in link.href else '?'}at={at}")


def pending_at(view: PendingView, at: int) -> PendingView:
    """The view with links to other pages of the same moment."""
    return replace(
        view,
        earlier=also_at(view.earlier, at) if view.earlier else None,
        later=also_at(view.later, at) if view.later else None,
    )


def queues_at(view: QueuesView, at: int) -> QueuesView:
    """The view with links to resources, folded cohorts and queues of the same moment."""
    return replace(
        view,
        resources=tuple(also_at(link, at) for link in view.resources),
        rows=tuple(
            replace(
                row,
                link=row.link and also_at(row.link, at),
                fold=row.fold and also_at(row.fold, at),
            )
            for row in view.rows
        ),
    )


def bar(path: str, moment: Moment, now: datetime, **query: str) -> PastBar:
    """The bar of a page of queues. ``query``: what the page shows, such as a queue."""
    return PastBar(
        text=_text(moment, now),
        sequence=moment.sequence,
        time=moment.time,
        lacks=LACKS,
        now=Link("now", path + (f"?{urlencode(query)}" if query else "")),
        links=tuple(
            Link(_step(step), at_path(path, moment.time + step, **query))
            for step in STEPS
            if moment.time + step < now
        ),
    )


def workload_bar(
    path: str, moment: Moment, entries: Sequence[LogEntry], now: datetime, *, whole: bool
) -> PastBar:
    """The bar of the page of a workload. ``entries``: all its facts by sequence; ``whole``: the
    page has the whole explanation."""
    sequences = [entry.sequence for entry in entries]
    at = bisect_right(sequences, moment.sequence)
    links = []
    if at > 1:
        links.append(Link("earlier fact", at_path(path, sequences[at - 2])))
    if at < len(sequences):
        links.append(Link("later fact", at_path(path, sequences[at])))
    explained = at_path(path, moment.sequence, explain="1")
    return PastBar(
        text=_text(moment, now),
        sequence=moment.sequence,
        time=moment.time,
        lacks=LACKS,
        now=Link("now", path),
        links=tuple(links),
        slider=Slider(at=at, count=len(sequences), path=path) if sequences else None,
        more=None if whole else Link("explain it as of then, in seconds", explained),
    )


def _text(moment: Moment, now: datetime) -> str:
    ago = between(moment.time, now)
    text = (
        f"This is the past: {moment.time:%Y-%m-%d %H:%M:%S} UTC, {ago} ago, after fact "
        f"{moment.sequence:,} of the log."
    )
    if moment.facts:
        text += (
            f" It was made from {moment.facts:,} messages of the log, since the history of the "
            "bucket begins later."
        )
        if moment.lacks:
            text += f" {moment.lacks:,} workloads of then cannot be made again."
    elif moment.lacks:
        text += (
            f" {moment.lacks:,} writes just before it were not kept, so some of it may be older."
        )
    return text


def takes_longer(moment: Moment, href: str) -> Missing:
    """Says that the page of a moment before the history takes longer. ``href``: of that page."""
    return Missing(
        title="Before the history",
        text=(
            f"The history of the bucket begins later than {moment.time:%Y-%m-%d %H:%M:%S} UTC. The "
            f"page can be made from {moment.facts:,} messages of the log, which takes about "
            f"{took(1 + moment.facts / FACTS_A_SECOND)}."
        ),
        more=Link("Make it from the log", href),
    )


def _step(step: timedelta) -> str:
    minutes = abs(int(step.total_seconds())) // 60
    return f"{minutes} min {'earlier' if step < timedelta() else 'later'}"
