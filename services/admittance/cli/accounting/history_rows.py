"""The rows of `admit history`: as a table, as JSON, and as CSV."""

from __future__ import annotations

import csv
import sys
from collections.abc import Sequence
from typing import Final

from admittance.cli.support import output
from admittance.cli.support.output import NOTHING, Table, columns_of
from admittance.client.arguments.times import span, stamp
from admittance.client.requests.past import History
from admittance.usage.history import PastWorkload
from admittance.usage.rows import hours

_COLUMNS: Final = columns_of(
    *("NAMESPACE", "NAME", "QUEUE", "+CLUSTERQUEUE", "~USER", "SUBMITTED", "#WAITED", "#RAN"),
    *("+ENDED", "STATE", "+REASON", "#EXIT", "~FLAVOR", "~MACHINE", "~EVICTED", "~PREEMPTED BY"),
    *("#CPU-HOURS", "#GPU-HOURS"),
)
_CSV: Final = (
    *("namespace", "name", "uid", "queue", "clusterQueue", "user", "submitted", "waitSeconds"),
    *("runSeconds", "ended", "state", "reason", "exitCode", "flavors", "machines", "runs"),
    *("evictions", "preemptedBy", "cpuSeconds", "gpuSeconds"),
)


def show(found: History, shape: str, where: str, of: str, *, several: bool) -> None:
    """Prints a history in a shape. ``where``: the namespaces, in words; ``of``: which runs it has,
    as the end of a phrase; ``several``: whether it is of several namespaces."""
    rows = found.rows
    if shape == "csv":
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow(_CSV)
        writer.writerows(map(_csv_cells, rows))
    elif not output.show_value(found, shape):
        output.say(f"{stamp(found.since)} to {stamp(found.until)}, {where}")
        if rows:
            output.show_table(table_of(rows, several=several), wide=shape == "wide")
        else:
            output.note(f"no run{of} ended in this time")


def table_of(rows: Sequence[PastWorkload], *, several: bool) -> Table:
    """The table, without columns about what no row has."""
    cells = [_cells(row) for row in rows]
    kept = [
        at
        for at, column in enumerate(_COLUMNS)
        if not (column.spare and all(line[at] == NOTHING for line in cells)) and (at or several)
    ]
    return Table([_COLUMNS[at] for at in kept], [[line[at] for at in kept] for line in cells])


def _cells(row: PastWorkload) -> list[str]:
    return [
        row.namespace,
        row.name,
        row.queue or NOTHING,
        row.cluster_queue,
        row.user or NOTHING,
        stamp(row.submitted),
        span(row.wait_seconds),
        span(row.run_seconds),
        stamp(row.ended),
        row.state.capitalize(),
        row.reason or NOTHING,
        NOTHING if row.exit_code is None else str(row.exit_code),
        ",".join(row.flavors) or NOTHING,
        ",".join(row.machines) or NOTHING,
        str(len(row.evictions) or NOTHING),
        ",".join(preemptors_of(row)) or NOTHING,
        hours(row.cpu_seconds),
        hours(row.gpu_seconds),
    ]


def preemptors_of(row: PastWorkload) -> list[str]:
    """The workloads that took the quota of its runs, each once, with their users."""
    return list(
        dict.fromkeys(
            f"{run.preempted_by} ({run.preemptor_submitted_by})"
            if run.preemptor_submitted_by
            else run.preempted_by
            for run in row.evictions
            if run.preempted_by
        )
    )


def _csv_cells(row: PastWorkload) -> list[str]:
    return [
        row.namespace,
        row.name,
        row.uid,
        row.queue,
        row.cluster_queue,
        row.user,
        stamp(row.submitted),
        str(row.wait_seconds),
        str(row.run_seconds),
        stamp(row.ended),
        row.state,
        row.reason,
        "" if row.exit_code is None else str(row.exit_code),
        " ".join(row.flavors),
        " ".join(row.machines),
        str(len(row.runs)),
        str(len(row.evictions)),
        " ".join(dict.fromkeys(run.preempted_by for run in row.evictions if run.preempted_by)),
        str(row.cpu_seconds),
        str(row.gpu_seconds),
    ]
