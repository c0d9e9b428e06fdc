"""The tree of variants in lists of workloads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from admittance.client.requests.objects import BucketObject
from admittance.workload.stored import VARIANT, StoredWorkload, head, owner_of

BRANCH: Final = "├─ "
LAST: Final = "└─ "


class Line(NamedTuple):
    """One workload in a list. ``mark``: the text that is printed before the workload's name, such
    as a branch of the tree of variants. ``why``: why a variant is active or inactive; "" if the
    variant's parent is not in the list.
    """

    found: BucketObject
    workload: StoredWorkload
    mark: str = ""
    why: str = ""


def arranged(stored: Sequence[BucketObject]) -> list[Line]:
    """All workloads in order, with variants moved below their parent, best first. A variant keeps
    its place if its parent is not among the workloads.
    """
    lines = [Line(each, each.workload()) for each in stored]
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
            variant._replace(
                mark=LAST if number == last else BRANCH, why=whys.get(variant.found.name, "")
            )
            for number, variant in enumerate(variants)
        ),
    ]


def _place(line: Line) -> tuple[int, str]:
    index = head(line.workload).sibling_index
    return (index if index is not None else 1_000, line.found.name)
