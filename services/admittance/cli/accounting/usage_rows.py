"""The rows of `admit usage`: as a table, as JSON, and as CSV."""

from __future__ import annotations

import csv
import sys
from collections.abc import Mapping, Sequence
from decimal import ROUND_HALF_UP, Decimal
from typing import Any, Final

import msgspec

from admittance.cli.support.output import NOTHING, Column, Table
from admittance.client.arguments.times import span
from admittance.events.requests.reading import UsageSum

HOUR: Final = 3600
GIB: Final = 2**30
_TITLES: Final[Mapping[str, str]] = {
    "cluster-queue": "clusterQueue",
    "namespace": "namespace",
    "queue": "queue",
    "user": "user",
    "flavor": "flavor",
}
"""The field of a row for each word of ``--by``."""
_COUNTS: Final = ("runs", "finished", "failed", "evicted", "running")


def gpu_seconds(total: UsageSum) -> Decimal:
    """The seconds of all resources that are GPUs, of any vendor."""
    used = total.resource_seconds
    return sum((Decimal(used[name]) for name in used if name.endswith("/gpu")), Decimal(0))


def row_of(by: Sequence[str], total: UsageSum) -> dict[str, Any]:
    """A sum as programs get it, with numbers of any size."""
    used = {name: msgspec.Raw(text.encode()) for name, text in total.resource_seconds.items()}
    return {
        **dict(zip((_TITLES[word] for word in by), total.group, strict=True)),
        **{name: getattr(total, name) for name in _COUNTS},
        "waitSeconds": total.wait_seconds,
        "cpuSeconds": used.get("cpu", 0),
        "gpuSeconds": msgspec.Raw(f"{gpu_seconds(total):f}".encode()),
        "resourceSeconds": used,
    }


def show_csv(by: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> None:
    """Prints rows as CSV, with a column for each resource."""
    resources = sorted({name for row in rows for name in row["resourceSeconds"]})
    plain = [*(_TITLES[word] for word in by), *_COUNTS, "waitSeconds", "cpuSeconds", "gpuSeconds"]
    others = [name for name in resources if name != "cpu"]
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow([*plain, *(f"{name} seconds" for name in others)])
    for row in rows:
        cells = [row[name] for name in plain]
        cells += [row["resourceSeconds"].get(name, 0) for name in others]
        writer.writerow([_text(cell) for cell in cells])


def _text(cell: Any) -> str:
    return bytes(cell).decode() if isinstance(cell, msgspec.Raw) else str(cell)


def table_of(by: Sequence[str], sums: Sequence[UsageSum]) -> Table:
    """The table of sums, with resources in hours."""
    others = sorted(
        {name for total in sums for name in total.resource_seconds}
        - {"cpu", "memory"}
        - {name for total in sums for name in total.resource_seconds if name.endswith("/gpu")}
    )
    columns = [
        *(Column(word.upper()) for word in by),
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
    return Table(columns, [_cells(total, others) for total in sums])


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


def hours(seconds: Decimal | float | None, unit: int = 1) -> str:
    """Seconds as hours, such as ``12.50``. ``unit``: so many of the resource count as one."""
    if not seconds:
        return NOTHING
    shown = (Decimal(seconds) / unit / HOUR).quantize(Decimal("0.01"), ROUND_HALF_UP)
    return f"{shown:,}" if shown else "<0.01"
