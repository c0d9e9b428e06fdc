"""The rows of `admit usage`: as a table, as JSON, and as CSV."""

from __future__ import annotations

import csv
import sys
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from datetime import datetime
from decimal import ROUND_HALF_UP, Decimal
from itertools import filterfalse
from typing import Any, Final, NamedTuple

import msgspec

from admittance.api.fields.usage_units import Unit, is_gpu
from admittance.cli.support.output import NOTHING, Column, Table
from admittance.client.arguments.times import span
from admittance.events.requests.reading import UsageCheck, UsageSum
from admittance.usage.costs import Prices
from admittance.usage.periods import day_of

HOUR: Final = 3600
GIB: Final = 2**30
_COUNTS: Final = ("runs", "finished", "failed", "evicted", "running")
_FIELDS: Final = {"cluster-queue": "clusterQueue"}
"""The field of a row for a word of ``--by``, where it is not the word."""


class Asked(NamedTuple):
    """What the sums are made by, and what they have besides amounts: shares of a unit, and costs;
    None: they were not asked for."""

    by: tuple[str, ...] = ()
    unit: Unit | None = None
    prices: Prices | None = None

    def names(self) -> dict[str, str]:
        """The names of the unit and of the currency, as fields."""
        unit = {"unit": self.unit.name} if self.unit is not None else {}
        currency = self.prices.currency if self.prices is not None else ""
        return {**unit, "currency": currency} if currency else unit

    def numbers(self, total: UsageSum) -> dict[str, str]:
        """Shares and costs of a sum by field; "": not known."""
        numbers: dict[str, str] = {}
        if self.unit is not None:
            numbers["used"] = total.used
        if self.unit is not None or self.prices is not None:
            numbers["share"] = _fraction(total.share)
        if self.unit is not None:
            numbers["entitled"] = _fraction(total.entitled)
        if self.prices is not None:
            numbers["cost"] = total.cost
        return numbers


def _fraction(share: float | None) -> str:
    return "" if share is None else f"{share:.6f}".rstrip("0").rstrip(".")


def gpu_seconds(total: UsageSum) -> Decimal:
    """The seconds of all resources that are GPUs, of any vendor."""
    used = total.resource_seconds
    return sum((Decimal(used[name]) for name in used if is_gpu(name)), Decimal(0))


def row_of(asked: Asked, total: UsageSum) -> dict[str, Any]:
    """A sum as programs get it, with numbers of any size."""
    used = {name: msgspec.Raw(text.encode()) for name, text in total.resource_seconds.items()}
    numbers = asked.numbers(total).items()
    return {
        **dict(zip(_fields(asked.by), total.group, strict=True)),
        **{name: getattr(total, name) for name in _COUNTS},
        "waitSeconds": total.wait_seconds,
        "cpuSeconds": used.get("cpu", 0),
        "gpuSeconds": msgspec.Raw(f"{gpu_seconds(total):f}".encode()),
        "resourceSeconds": used,
        **{name: msgspec.Raw(text.encode()) if text else None for name, text in numbers},
    }


def _fields(by: Iterable[str]) -> list[str]:
    return [_FIELDS.get(word, word) for word in by]


def show_csv(asked: Asked, rows: Sequence[Mapping[str, Any]]) -> None:
    """Prints rows as CSV, with a column for each resource."""
    resources = sorted({name for row in rows for name in row["resourceSeconds"]})
    numbers = asked.numbers(UsageSum())
    plain = [*_fields(asked.by), *_COUNTS, "waitSeconds", "cpuSeconds", "gpuSeconds", *numbers]
    others = [name for name in resources if name != "cpu"]
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow([*plain, *(f"{name} seconds" for name in others)])
    for row in rows:
        cells = [row[name] for name in plain]
        cells += [row["resourceSeconds"].get(name, 0) for name in others]
        writer.writerow([_text(cell) for cell in cells])


def _text(cell: Any) -> str:
    if cell is None:
        return ""
    return bytes(cell).decode() if isinstance(cell, msgspec.Raw) else str(cell)


def table_of(asked: Asked, sums: Sequence[UsageSum]) -> Table:
    """The table of sums, with resources in hours."""
    others = sorted(
        {name for total in sums for name in total.resource_seconds if not is_gpu(name)}
        - {"cpu", "memory"}
    )
    columns = [
        *(Column(word.upper()) for word in asked.by),
        Column("RUNS", right=True),
        *(Column(name.upper(), right=True, spare=True) for name in ("finished", "failed")),
        Column("EVICTED", right=True, spare=True),
        Column("RUNNING", right=True),
        Column("WAITED", right=True, spare=True),
        Column("CPU-HOURS", right=True),
        Column("GPU-HOURS", right=True),
        Column("GIB-HOURS", wide=True, right=True),
        *(Column(f"{name}-HOURS", wide=True, right=True) for name in others),
    ]
    extra = _extra_columns(asked, sums, {column.title for column in columns})
    cells = [[*_cells(total, others), *(read(total) for _, read in extra)] for total in sums]
    return Table([*columns, *(column for column, _ in extra)], cells)


def _extra_columns(
    asked: Asked, sums: Iterable[UsageSum], present: Container[str]
) -> list[tuple[Column, Callable[[UsageSum], str]]]:
    extra: list[tuple[Column, Callable[[UsageSum], str]]] = []
    if asked.unit is not None and (title := asked.unit.name.upper()) not in present:
        extra.append((Column(title, right=True), lambda total: _money(total.used)))
    if asked.unit is not None or asked.prices is not None:
        extra.append((Column("SHARE", right=True), lambda total: percent(total.share)))
    if any(total.entitled is not None for total in sums):
        extra.append((Column("ENTITLED", right=True), lambda total: percent(total.entitled)))
    if asked.prices is not None:
        title = f"COST {asked.prices.currency}".rstrip()
        extra.append((Column(title, right=True), lambda total: _money(total.cost)))
    return extra


def _cells(total: UsageSum, others: Sequence[str]) -> list[str]:
    used = {name: Decimal(text) for name, text in total.resource_seconds.items()}
    return [
        *(word or NOTHING for word in total.group),
        *(f"{getattr(total, name):,}" for name in _COUNTS),
        span(total.wait_seconds / total.runs) if total.runs else NOTHING,
        hours(used.get("cpu")),
        hours(gpu_seconds(total)),
        hours(used.get("memory"), GIB),
        *(hours(used.get(name)) for name in others),
    ]


def remarks(asked: Asked, sums: Iterable[UsageSum]) -> list[str]:
    """Sentences about what has no share, and what has no price."""
    resources = sorted({name for total in sums for name in total.resource_seconds})
    lines: list[str] = []
    if asked.unit is not None and not any(map(asked.unit.counts, resources)):
        lines.append(f"nothing held {asked.unit.resource}: there are no shares")
    if asked.prices is not None and (free := [*filterfalse(asked.prices.prices, resources)]):
        lines.append(f"without a price: {', '.join(free)}")
    return lines


def check_lines(checked: UsageCheck, now: datetime) -> list[str]:
    """What a comparison of the sums with the log has found, as lines."""
    if not checked.since:
        return ["the log is empty"]
    lines = [f"corrected: {line}" for line in checked.differences]
    if more := checked.corrected - len(lines):
        lines.append(f"corrected: {more:,} more")
    if checked.ahead:
        days = f"{checked.ahead[0]} to {checked.ahead[-1]}"
        lines.append(f"a clock was ahead: sums of days that have not begun, {days}")
    if checked.since > day_of(now).isoformat():
        return [*lines, f"no day is wholly on the log yet: the first one is {checked.since}"]
    result = f"{checked.corrected:,} differed" if checked.corrected else "none differs"
    sums = f"sums of days and months from {checked.since} on: {result}"
    return [*lines, f"{checked.runs:,} runs on the log; {sums}"]


def percent(share: float | None) -> str:
    """A part of all, such as ``31.2%``."""
    if share is None:
        return NOTHING
    return "<0.1%" if 0 < share < 0.0005 else f"{100 * share:.1f}%"


def _money(text: str) -> str:
    number = Decimal(text or "0")
    return f"{number:,.2f}" if not number or number >= Decimal("0.005") else "<0.01"


def hours(seconds: Decimal | float | None, unit: int = 1) -> str:
    """Seconds as hours, such as ``12.50``. ``unit``: so many of the resource count as one."""
    if not seconds:
        return NOTHING
    shown = (Decimal(seconds) / unit / HOUR).quantize(Decimal("0.01"), ROUND_HALF_UP)
    return f"{shown:,}" if shown else "<0.01"
