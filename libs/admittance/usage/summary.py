"""A summary: the sums of one day or month, ClusterQueue and namespace, and its form on the bus."""

from __future__ import annotations

from datetime import datetime
from typing import Final, NamedTuple

import msgspec

from admittance.events.names import BadToken, plain, token
from admittance.events.reader import Reader, Unreadable
from admittance.events.subjects import SUMMARY
from admittance.events.system import SystemMessage
from admittance.usage.periods import Period, Span, parts
from admittance.usage.runs import OTHERS, Run

ROWS_MAX: Final = 4_000
"""The most rows of one summary, so that it fits into one message. Further users count as
`OTHERS`."""


class Counts(msgspec.Struct, rename="camel", omit_defaults=True, gc=False):
    """Sums. A run is counted in the period in which it ends.

    ``runs``: admissions that ended. ``finished``, ``failed``: the workloads that finished with
    them, by their result; ``evicted``: the admissions that ended otherwise. ``wait_seconds``: how
    long workloads had waited for quota that was released. ``amounts``: by resource, accounting
    units times seconds, in the period in which the quota was held.
    """

    runs: int = 0
    finished: int = 0
    failed: int = 0
    evicted: int = 0
    wait_seconds: int = 0
    amounts: dict[str, int] = msgspec.field(default_factory=dict)

    def add(self, other: Counts, sign: int = 1) -> None:
        """Adds the other sums, or subtracts them with ``sign`` -1."""
        self.runs += sign * other.runs
        self.finished += sign * other.finished
        self.failed += sign * other.failed
        self.evicted += sign * other.evicted
        self.wait_seconds += sign * other.wait_seconds
        for resource, amount in other.amounts.items():
            left = self.amounts.get(resource, 0) + sign * amount
            if left:
                self.amounts[resource] = left
            else:
                self.amounts.pop(resource, None)

    def is_empty(self) -> bool:
        """Whether all sums are 0."""
        counted = self.runs, self.finished, self.failed, self.evicted, self.wait_seconds
        return not self.amounts and not any(counted)


class RowKey(NamedTuple):
    """What a row of a summary is about. ``queue``: the LocalQueue. ``flavor`` "": the row counts
    each run once, and has no amounts; the rows of flavors count a run in each of its flavors.
    ``labels``: as in `Run`; stored summaries have none."""

    queue: str
    user: str
    flavor: str
    labels: tuple[str, ...] = ()


class SummaryKey(NamedTuple):
    """What a summary is about."""

    period: Period
    cluster_queue: str
    namespace: str

    @property
    def subject(self) -> str:
        """The subject of the summary on the bus."""
        span, name = self.period
        return f"{SUMMARY}{span}.{name}.{token(self.cluster_queue)}.{token(self.namespace)}"


def key_of(subject: str) -> SummaryKey:
    """The inverse of `SummaryKey.subject`. Raises Unreadable."""
    match subject.removeprefix(SUMMARY).split("."):
        case ["day" | "month" as span, name, queue, namespace]:
            try:
                return SummaryKey(Period(_SPANS[span], name), plain(queue), plain(namespace))
            except BadToken as error:
                raise Unreadable(str(error)) from None
    raise Unreadable(f"{subject} is not the subject of a summary")


_SPANS: Final[dict[str, Span]] = {"day": "day", "month": "month"}


class Summary:
    """The rows of one summary. ``position``: the rows have every fact of the log up to this
    sequence; ``revision``: that of the summary on its stream, 0: it is not stored."""

    def __init__(self, position: int = 0, revision: int = 0) -> None:
        self.position = position
        self.revision = revision
        self.rows: dict[RowKey, Counts] = {}

    def add(self, key: RowKey, counts: Counts, sign: int = 1) -> None:
        """Adds the counts to a row, or subtracts them with ``sign`` -1."""
        row = self.rows.get(key)
        if row is None and (sign < 0 or len(self.rows) >= ROWS_MAX):
            key = key._replace(user=OTHERS, labels=(OTHERS,) * len(key.labels))
            row = self.rows.get(key)
        if row is None:
            row = self.rows[key] = Counts()
        row.add(counts, sign)
        if sign < 0 and row.is_empty():
            del self.rows[key]


class Share(NamedTuple):
    """What a run adds to the rows of one summary."""

    about: SummaryKey
    rows: list[tuple[RowKey, Counts]]


def shares_of(run: Run) -> list[Share]:
    """What a run adds to the rows of summaries."""
    shares: list[Share] = []
    rows: list[tuple[RowKey, Counts]] = []
    same: tuple[int, bool] | None = None
    for period, seconds, last in parts(run.since, run.until):
        if same != (seconds, last):
            # Mostly a run is in one day, and adds the same to the day and to the month.
            rows, same = _rows_of(run, seconds, last), (seconds, last)
        shares.append(Share(SummaryKey(period, run.cluster_queue, run.namespace), rows))
    return shares


def _rows_of(run: Run, seconds: int, last: bool) -> list[tuple[RowKey, Counts]]:
    rows = [(RowKey(run.queue, run.user, "", run.labels), _ended(run))] if last else []
    by_flavor: dict[str, Counts] = {}
    for flavor, resource, booked in run.amounts:
        counts = by_flavor.get(flavor)
        if counts is None:
            counts = by_flavor[flavor] = _ended(run) if last else Counts()
            rows.append((RowKey(run.queue, run.user, flavor, run.labels), counts))
        if used := booked * seconds:
            counts.amounts[resource] = used
    return rows


def _ended(run: Run) -> Counts:
    return Counts(
        runs=int(run.admitted and bool(run.outcome)),
        finished=int(run.outcome == "finished"),
        failed=int(run.outcome == "failed"),
        evicted=int(run.outcome == "evicted"),
        wait_seconds=run.waited_seconds,
    )


# On the bus. ------------------------------------------------------------------------------------


class SummaryRow(Counts, kw_only=True, rename="camel", omit_defaults=True):
    """A row of a stored summary."""

    queue: str = ""
    user: str = ""
    flavor: str = ""


class StoredSummary(SystemMessage, frozen=True, kw_only=True):
    """``admit.usage.sum.<span>.<period>.<cluster queue>.<ns>``: the sums of one day or month.
    ``position``: the rows have every fact of the log up to this sequence."""

    position: int
    rows: tuple[SummaryRow, ...] = ()


class UsagePosition(SystemMessage, frozen=True, kw_only=True):
    """``admit.usage.position``: all summaries have every fact of the log up to ``through``.
    ``again``: from the fact after this sequence on, a later fact may repeat one; its reader reads
    these facts again. ``compacted``: facts about workloads up to this sequence were removed from
    the log, because it was larger than its bound; ``compacted_until``: the time of the last one."""

    through: int = 0
    again: int = 0
    compacted: int = 0
    compacted_until: datetime | None = None


_summary = Reader(StoredSummary)
_encoder = msgspec.json.Encoder()


def encode_summary(summary: Summary, position: int) -> bytes:
    """The message of a summary that has every fact up to ``position``."""
    rows = tuple(
        SummaryRow(
            queue=key.queue,
            user=key.user,
            flavor=key.flavor,
            runs=row.runs,
            finished=row.finished,
            failed=row.failed,
            evicted=row.evicted,
            wait_seconds=row.wait_seconds,
            amounts=row.amounts,
        )
        for key, row in summary.rows.items()
    )
    return _encoder.encode(StoredSummary(position=position, rows=rows))


def decode_summary(data: bytes, revision: int) -> Summary:
    """The summary in a message of the stream. Raises Unreadable."""
    stored = _summary(data)
    summary = Summary(stored.position, revision)
    for row in stored.rows:
        summary.add(RowKey(row.queue, row.user, row.flavor), row)
    return summary
