"""Filters and order of the lists of `admit get`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

from admittance.api.names import label_key_error, label_value_error
from admittance.cli.show.families import is_variant
from admittance.cli.show.objects import Found, field
from admittance.cli.support import kinds
from admittance.cli.support.errors import BadInput
from admittance.cli.support.kinds import Kind
from admittance.cli.support.times import moment_of
from admittance.workload.conditions import Type, find
from admittance.workload.phase import Phase, phase
from admittance.workload.stored import VARIANT, StoredWorkload, head, owner_of

GROUPS: Final = (
    (Phase.RUNNING, Phase.ADMITTED, Phase.EVICTING),
    (Phase.QUOTA_RESERVED, Phase.PENDING, Phase.BACKOFF),
    (Phase.DEACTIVATED, Phase.REJECTED, Phase.FINISHED),
)
"""Groups of phases in the order of lists: running workloads first, then waiting, then finished
workloads."""
_RANK: Final = {one: rank for rank, group in enumerate(GROUPS) for one in group}

ENDS: Final = ("Succeeded", "Failed")
NEVER: Final = datetime(1, 1, 1, tzinfo=UTC)


class Selection(NamedTuple):
    """Filters and order of a list of objects. ``queues``: LocalQueues, each as namespace and name;
    None: any queue.
    """

    labels: tuple[tuple[str, str, str], ...] = ()
    states: frozenset[str] = frozenset()
    since: datetime | None = None
    sort_by: str = ""
    limit: int | None = None
    queues: frozenset[tuple[str, str]] | None = None


def selection(
    kind: Kind,
    *,
    labels: Sequence[str],
    states: Sequence[str],
    since: str | None,
    sort_by: str | None,
    limit: int | None,
    now: datetime,
) -> Selection:
    """Builds the selection from the options of `admit get`. Raises BadInput."""
    if states and kind is not kinds.WORKLOAD:
        raise BadInput("--state goes with workloads only")
    keys = _WORKLOAD_KEYS if kind is kinds.WORKLOAD else _KEYS
    if sort_by is not None and sort_by.lower().removeprefix("-") not in keys:
        raise BadInput(
            f'--sort-by "{sort_by}" is not one of {", ".join(keys)}; -KEY reverses the order'
        )
    return Selection(
        labels=tuple(part for word in labels for part in _requirements(word)),
        states=frozenset(_state(one) for word in states for one in word.split(",")),
        since=None if since is None else moment_of(since, "--since", now),
        sort_by=(sort_by or "").lower(),
        limit=limit,
    )


def _requirements(word: str) -> list[tuple[str, str, str]]:
    """Parses ``key=value``, ``key!=value``, ``key`` and ``!key``, or several of them with commas
    between.
    """
    found = []
    for part in (one.strip() for one in word.split(",")):
        key, sign, value = part.partition("=")
        if sign:
            operator = "!=" if key.endswith("!") else "="
            key, value = key.removesuffix("!").strip(), value.removeprefix("=").strip()
        else:
            operator = "missing" if part.startswith("!") else "there"
            key = part.removeprefix("!").strip()
        if not key:
            raise BadInput(
                f'-l "{word}" is not a selector; write KEY=VALUE, KEY!=VALUE, KEY or !KEY'
            )
        if error := label_key_error(key) or label_value_error(value):
            raise BadInput(f'-l "{word}": {error}')
        found.append((key, operator, value))
    return found


def _state(typed: str) -> str:
    plain = typed.strip().lower().replace("-", "").replace("_", "")
    for one in (*Phase, *ENDS):
        if one.lower() == plain:
            return str(one)
    raise BadInput(f'--state "{typed}" is not one of {", ".join((*Phase, *ENDS))}')


def select(
    kind: Kind, found: Sequence[Found], chosen: Selection, now: datetime
) -> tuple[list[Found], int]:
    """The objects of a list in order, and how many the limit leaves out.

    Running workloads come first, then waiting, then finished ones, in each group the newest first;
    other kinds are sorted by name. Variants follow a selected parent, even if the variants do not
    match the filters.
    """
    if kind is kinds.WORKLOAD:
        return _workloads(found, chosen, now)
    kept = [one for one in found if _has(one.plain(), chosen, one.created())]
    if chosen.sort_by:
        _sort(kept, chosen.sort_by, lambda one, key: _KEYS[key](one))
    return _limited(kept, chosen.limit)


def _limited(kept: list[Found], limit: int | None) -> tuple[list[Found], int]:
    shown = kept[:limit]
    return shown, len(kept) - len(shown)


class _Row(NamedTuple):
    found: Found
    workload: StoredWorkload
    phase: Phase


def _workloads(found: Sequence[Found], chosen: Selection, now: datetime) -> tuple[list[Found], int]:
    decoded = ((one, one.workload()) for one in found)
    rows = [_Row(one, workload, phase(workload, now)) for one, workload in decoded]
    uids = {row.workload.metadata.uid for row in rows}
    beneath: dict[str, list[Found]] = {}
    kept = []
    for row in rows:
        if is_variant(row.workload) and (owner := owner_of(row.workload)[1]) in uids:
            beneath.setdefault(owner, []).append(row.found)
        elif _is_chosen(row, chosen):
            kept.append(row)
    kept.sort(key=lambda row: row.found.name)
    kept.sort(key=lambda row: row.workload.metadata.creation_timestamp or NEVER, reverse=True)
    kept.sort(key=lambda row: _RANK[row.phase])
    if chosen.sort_by:
        _sort(kept, chosen.sort_by, lambda row, key: _WORKLOAD_KEYS[key](row, now))
    shown = kept[: chosen.limit]
    families = [
        one for row in shown for one in (row.found, *beneath.get(row.workload.metadata.uid, ()))
    ]
    return families, len(kept) - len(shown)


def _is_chosen(row: _Row, chosen: Selection) -> bool:
    workload = row.workload
    if chosen.states and not chosen.states & {str(row.phase), _end(workload)}:
        return False
    queue = row.found.namespace, head(workload).queue_name
    if chosen.queues is not None and queue not in chosen.queues:
        return False
    meta = workload.metadata
    if chosen.since is not None and (meta.creation_timestamp or NEVER) < chosen.since:
        return False
    return _matches(meta.labels, chosen.labels)


def _end(workload: StoredWorkload) -> str:
    """Succeeded or Failed; "" while the workload has not finished."""
    finished = find(workload, Type.FINISHED)
    if finished is None or finished.status != "True":
        return ""
    return "Succeeded" if finished.reason == "Succeeded" else "Failed"


def _has(plain: Mapping[str, Any], chosen: Selection, created: datetime | None) -> bool:
    if chosen.since is not None and (created or NEVER) < chosen.since:
        return False
    return _matches(field(plain, "metadata", "labels", default={}), chosen.labels)


def _matches(labels: Mapping[str, Any], wanted: Sequence[tuple[str, str, str]]) -> bool:
    for key, operator, value in wanted:
        match operator:
            case "=" if labels.get(key) != value:
                return False
            case "!=" if labels.get(key) == value:
                return False
            case "there" if key not in labels:
                return False
            case "missing" if key in labels:
                return False
    return True


def _sort(rows: list[Any], sort_by: str, key_of: Callable[[Any, str], Any]) -> None:
    """Sorts rows in place; rows with equal keys keep their order."""
    key = sort_by.removeprefix("-")
    downwards = key in _GREATEST_FIRST
    rows.sort(key=lambda row: key_of(row, key), reverse=downwards != sort_by.startswith("-"))


_GREATEST_FIRST: Final = frozenset({"priority", "created", "started", "duration"})
_KEYS: Final[Mapping[str, Callable[[Found], Any]]] = {
    "name": lambda one: (one.name, one.namespace),
    "namespace": lambda one: (one.namespace, one.name),
    "created": lambda one: one.created() or NEVER,
}
_WORKLOAD_KEYS: Final[Mapping[str, Callable[[_Row, datetime], Any]]] = {
    "name": lambda row, _: (row.found.name, row.found.namespace),
    "namespace": lambda row, _: (row.found.namespace, row.found.name),
    "queue": lambda row, _: head(row.workload).queue_name,
    "priority": lambda row, _: head(row.workload).priority or 0,
    "state": lambda row, _: (_RANK[row.phase], row.phase),
    "created": lambda row, _: row.workload.metadata.creation_timestamp or NEVER,
    "started": lambda row, _: started_at(row.workload) or NEVER,
    "duration": lambda row, now: duration_seconds(row.workload, now) or -1.0,
}


BRANCH: Final = "├─ "
LAST: Final = "└─ "


class Line(NamedTuple):
    """One workload in a list. ``mark``: the text that is printed before the workload's name, such
    as a branch of the tree of variants. ``why``: why a variant is active or inactive; "" if the
    variant's parent is not in the list.
    """

    found: Found
    workload: StoredWorkload
    mark: str = ""
    why: str = ""


def arranged(found: Sequence[Found]) -> list[Line]:
    """All workloads in order, with variants moved below their parent, best first. A variant keeps
    its place if its parent is not among the workloads.
    """
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


def started_at(workload: StoredWorkload) -> datetime | None:
    """When the workload was admitted; None if it is not admitted and did not run to its end."""
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
