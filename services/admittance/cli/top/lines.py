"""What the screen of `admit top` shows: rows in the order and with the words that were chosen."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Any, Final, NamedTuple, TypeVar

from admittance.cli.show.queue_rows import queue_table, running_table, waiting_table
from admittance.cli.support.output import Table, aligned, clean
from admittance.client.requests.queues.overview import QueueOverview, RunningRow, WaitingRow

Row = RunningRow | WaitingRow
R = TypeVar("R", bound=Row)


class Order(StrEnum):
    """The order of rows. ``QUEUE``: that of the answer, in which workloads are tried, and what
    has held its quota longest first."""

    QUEUE = "queue"
    NAME = "name"
    PRIORITY = "priority"
    TIME = "time"
    USER = "user"


class Choice(NamedTuple):
    """What the user chose: an order, also ``reverse``, and ``words`` of which each stands in the
    name, the queue, the user, the machines or the reason of a row."""

    order: Order = Order.QUEUE
    reverse: bool = False
    words: str = ""

    def by(self, order: Order) -> Choice:
        """The choice of an order; the same order again is reversed."""
        return self._replace(order=order, reverse=order is self.order and not self.reverse)

    def sentence(self) -> str:
        """The choice for the head of the screen."""
        order = f"by {self.order}{', reversed' if self.reverse else ''}"
        return f'{order}, with "{self.words}"' if self.words else order


def _begin(row: Row) -> tuple[bool, float]:
    begin = row.started if isinstance(row, RunningRow) else row.since
    return (True, 0.0) if begin is None else (False, begin.timestamp())


KEYS: Final[dict[Order, Callable[[Row], Any]]] = {
    Order.NAME: lambda row: (row.namespace, row.name),
    Order.PRIORITY: lambda row: -row.priority,
    Order.TIME: _begin,
    Order.USER: lambda row: (row.user, row.namespace, row.name),
}
"""The keys of orders other than that of the answer: the greatest priority and the earliest begin
come first, rows without a begin last."""


def chosen(rows: Sequence[R], choice: Choice) -> list[R]:
    """The rows that have the words of the choice, in its order."""
    words = choice.words.lower().split()
    kept = [row for row in rows if all(word in _text(row) for word in words)]
    if choice.order is not Order.QUEUE:
        kept.sort(key=KEYS[choice.order])
    return kept[::-1] if choice.reverse else kept


def _text(row: Row) -> str:
    more = row.machines if isinstance(row, RunningRow) else (row.reason,)
    return " ".join((row.namespace, row.name, row.queue, row.user, *more)).lower()


def queue_lines(seen: QueueOverview) -> str:
    """The queues with their use, as lines."""
    return "\n".join(aligned(_cleaned(queue_table(seen.queues)))) if seen.queues else "no queues"


def running(rows: Sequence[RunningRow], now: datetime, *, several: bool) -> Table:
    """What holds quota, as a table without wide columns."""
    return _cleaned(running_table(rows, now, several=several))


def waiting(rows: Sequence[WaitingRow], now: datetime, *, several: bool) -> Table:
    """What waits, as a table without wide columns."""
    return _cleaned(waiting_table(rows, now, several=several))


def _cleaned(table: Table) -> Table:
    narrow = table.narrowed(wide=False)
    return Table(narrow.columns, [[clean(cell) for cell in row] for row in narrow.rows])


def title(what: str, shown: int, read: int, total: int) -> str:
    """The title of a part. ``shown``: rows on the screen, of those that were ``read``. ``total``:
    workloads, of which an array has many in one row."""
    if shown < read:
        return f"{what}: {total:,}, {shown:,} rows shown"
    return f"{what}: {total:,}" if read else f"{what}: none"
