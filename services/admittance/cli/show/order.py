"""Order of workloads in a list, with variants below their parent; start and duration of jobs."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Final, NamedTuple

from admittance.cli.show.objects import Found
from admittance.workload.conditions import Type, find
from admittance.workload.stored import VARIANT, StoredWorkload, head, owner_of

BRANCH: Final = "├─ "
LAST: Final = "└─ "


class Line(NamedTuple):
    """``mark``: printed before the name. ``why``: why a variant is active or inactive; "" if
    its parent is not in the list."""

    found: Found
    workload: StoredWorkload
    mark: str = ""
    why: str = ""


def arranged(found: Sequence[Found]) -> list[Line]:
    """All workloads in order, with variants moved below their parent, best first. A variant without
    its parent keeps its place."""
    lines = [Line(one, one.workload()) for one in found]
    parents = {line.workload.metadata.uid for line in lines if head(line.workload).role != VARIANT}
    beneath: dict[str, list[Line]] = {}
    above: list[Line] = []
    for line in lines:
        owner = owner_of(line.workload)[1] if head(line.workload).role == VARIANT else ""
        if owner and owner in parents:
            beneath.setdefault(owner, []).append(line)
        else:
            above.append(line)
    return [shown for line in above for shown in _family(line, beneath)]


def _family(line: Line, beneath: dict[str, list[Line]]) -> list[Line]:
    variants = sorted(beneath.get(line.workload.metadata.uid, ()), key=_place)
    whys = {row.name: row.why for row in line.workload.status.variants}
    last = len(variants) - 1
    return [
        line,
        *(
            one._replace(mark=LAST if number == last else BRANCH, why=whys.get(one.found.name, ""))
            for number, one in enumerate(variants)
        ),
    ]


def _place(line: Line) -> tuple[int, str]:
    index = head(line.workload).sibling_index
    return (index if index is not None else 1_000, line.found.name)


def is_variant(workload: StoredWorkload) -> bool:
    """Whether the workload is a variant of another workload."""
    return head(workload).role == VARIANT


def started_at(workload: StoredWorkload) -> datetime | None:
    """When it was admitted; None if it is not admitted and did not run to its end."""
    admitted = find(workload, Type.ADMITTED)
    if admitted is None or admitted.status != "True":
        return None
    return admitted.last_transition_time


def duration_seconds(workload: StoredWorkload, now: datetime) -> float | None:
    """How long the job has run, or ran until its end; None if it does not run."""
    began = started_at(workload)
    if began is None:
        return None
    finished = find(workload, Type.FINISHED)
    over = finished is not None and finished.status == "True"
    end = finished.last_transition_time if over and finished is not None else None
    return ((end or now) - began).total_seconds()
