"""Sums of usage as rows: for programs, and as CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from decimal import ROUND_HALF_UP, Decimal
from typing import Any, Final, NamedTuple

import msgspec

from admittance.api.fields.usage_units import Unit, is_gpu
from admittance.events.requests.reading import UsageReply, UsageSum
from admittance.usage.costs import Prices

HOUR: Final = 3600
GIB: Final = 2**30
COUNTS: Final = ("runs", "finished", "failed", "evicted", "running")
_FIELDS: Final = {"cluster-queue": "clusterQueue"}
"""The field of a row for a word of ``by``, where it is not the word."""


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
        **{name: getattr(total, name) for name in COUNTS},
        "waitSeconds": total.wait_seconds,
        "cpuSeconds": used.get("cpu", 0),
        "gpuSeconds": msgspec.Raw(f"{gpu_seconds(total):f}".encode()),
        "resourceSeconds": used,
        **{name: msgspec.Raw(text.encode()) if text else None for name, text in numbers},
    }


def plain_of(asked: Asked, reply: UsageReply) -> dict[str, Any]:
    """An answer as programs get it: its days, its unit and its ``rows``."""
    rows = [row_of(asked, total) for total in reply.sums]
    return {"since": reply.since, "until": reply.until, **asked.names(), "rows": rows}


def _fields(by: Iterable[str]) -> list[str]:
    return [_FIELDS.get(word, word) for word in by]


def csv_of(asked: Asked, rows: Sequence[Mapping[str, Any]]) -> str:
    """Rows as CSV, with a column for each resource."""
    resources = sorted({name for row in rows for name in row["resourceSeconds"]})
    numbers = asked.numbers(UsageSum())
    plain = [*_fields(asked.by), *COUNTS, "waitSeconds", "cpuSeconds", "gpuSeconds", *numbers]
    others = [name for name in resources if name != "cpu"]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*plain, *(f"{name} seconds" for name in others)])
    for row in rows:
        cells = [row[name] for name in plain]
        cells += [row["resourceSeconds"].get(name, 0) for name in others]
        writer.writerow([_text(cell) for cell in cells])
    return text.getvalue()


def _text(cell: Any) -> str:
    if cell is None:
        return ""
    return bytes(cell).decode() if isinstance(cell, msgspec.Raw) else str(cell)


def percent(share: float | None) -> str:
    """A part of all, such as ``31.2%``."""
    if share is None:
        return "-"
    return "<0.1%" if 0 < share < 0.0005 else f"{100 * share:.1f}%"


def hours(seconds: Decimal | float | None, unit: int = 1) -> str:
    """Seconds as hours, such as ``12.50``. ``unit``: so many of the resource count as one."""
    if not seconds:
        return "-"
    shown = (Decimal(seconds) / unit / HOUR).quantize(Decimal("0.01"), ROUND_HALF_UP)
    return f"{shown:,}" if shown else "<0.01"
