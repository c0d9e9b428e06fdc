"""Filters and order of lists of objects."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

from admittance.api.arrays import INDEX_LABEL
from admittance.api.fields.names import label_key_error, label_value_error
from admittance.client import kinds
from admittance.client.arguments.spelling import IN_PYTHON, Spelling
from admittance.client.errors import BadInput
from admittance.client.kinds import ObjectKind
from admittance.client.requests.objects import BucketObject, field
from admittance.events import reasons
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
_RANK: Final = {phase: rank for rank, group in enumerate(GROUPS) for phase in group}

ENDS: Final = ("Succeeded", "Failed")
NEVER: Final = datetime(1, 1, 1, tzinfo=UTC)


class Selection(NamedTuple):
    """Filters and order of a list of objects. ``queues``: LocalQueues, each as namespace and name;
    None: any queue. ``elements``: whether the elements of a listed array are listed, too.
    """

    labels: tuple[tuple[str, str, str], ...] = ()
    states: frozenset[str] = frozenset()
    since: datetime | None = None
    sort_by: str = ""
    limit: int | None = None
    queues: frozenset[tuple[str, str]] | None = None
    elements: bool = True


def selection(
    kind: ObjectKind,
    *,
    labels: Sequence[str],
    states: Sequence[str],
    since: datetime | None,
    sort_by: str | None,
    limit: int | None,
    spelled: Spelling = IN_PYTHON,
) -> Selection:
    """Builds the selection from the options of a list. Raises BadInput."""
    if states and kind is not kinds.WORKLOAD:
        raise BadInput(f"{spelled.states} goes with workloads only")
    keys = _WORKLOAD_KEYS if kind is kinds.WORKLOAD else _KEYS
    if sort_by is not None and sort_by.lower().removeprefix("-") not in keys:
        raise BadInput(
            f'{spelled.sort_by} "{sort_by}" is not one of {", ".join(keys)}; '
            "-KEY reverses the order"
        )
    return Selection(
        labels=tuple(part for word in labels for part in _requirements(word, spelled.labels)),
        states=frozenset(
            _state(state, spelled.states) for word in states for state in word.split(",")
        ),
        since=since,
        sort_by=(sort_by or "").lower(),
        limit=limit,
    )


def _requirements(word: str, spelled: str) -> list[tuple[str, str, str]]:
    """Parses ``key=value``, ``key!=value``, ``key`` and ``!key``, or several of them with commas
    between.
    """
    requirements = []
    for part in (word_part.strip() for word_part in word.split(",")):
        key, sign, value = part.partition("=")
        if sign:
            operator = "!=" if key.endswith("!") else "="
            key, value = key.removesuffix("!").strip(), value.removeprefix("=").strip()
        else:
            operator = "missing" if part.startswith("!") else "there"
            key = part.removeprefix("!").strip()
        if not key:
            raise BadInput(
                f'{spelled} "{word}" is not a selector; write KEY=VALUE, KEY!=VALUE, KEY or !KEY'
            )
        if error := label_key_error(key) or label_value_error(value):
            raise BadInput(f'{spelled} "{word}": {error}')
        requirements.append((key, operator, value))
    return requirements


def _state(typed: str, spelled: str) -> str:
    plain = typed.strip().lower().replace("-", "").replace("_", "")
    for state in (*Phase, *ENDS):
        if state.lower() == plain:
            return str(state)
    raise BadInput(f'{spelled} "{typed}" is not one of {", ".join((*Phase, *ENDS))}')


def select(
    kind: ObjectKind, objects: Sequence[BucketObject], chosen: Selection, now: datetime
) -> tuple[list[BucketObject], int]:
    """The objects of a list in order, and how many the limit leaves out.

    Running workloads come first, then waiting, then finished ones, in each group the newest first;
    other kinds are sorted by name. Variants follow a selected parent, even if the variants do not
    match the filters.
    """
    if kind is kinds.WORKLOAD:
        return _workloads(objects, chosen, now)
    kept = [stored for stored in objects if _has(stored.plain(), chosen, stored.created())]
    if chosen.sort_by:
        _sort(kept, chosen.sort_by, lambda stored, key: _KEYS[key](stored))
    return _limited(kept, chosen.limit)


def _limited(kept: list[BucketObject], limit: int | None) -> tuple[list[BucketObject], int]:
    shown = kept[:limit]
    return shown, len(kept) - len(shown)


class _Row(NamedTuple):
    found: BucketObject
    workload: StoredWorkload
    phase: Phase


def _workloads(
    objects: Sequence[BucketObject], chosen: Selection, now: datetime
) -> tuple[list[BucketObject], int]:
    decoded = ((stored, stored.workload()) for stored in objects)
    rows = [_Row(stored, workload, phase(workload, now)) for stored, workload in decoded]
    uids = {row.workload.metadata.uid for row in rows}
    beneath: dict[str, list[BucketObject]] = {}
    kept = []
    for row in rows:
        if not chosen.elements and _is_of_array(row.workload, uids):
            continue
        if head(row.workload).role == VARIANT and (owner := owner_of(row.workload)[1]) in uids:
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
        stored
        for row in shown
        for stored in (row.found, *beneath.get(row.workload.metadata.uid, ()))
    ]
    return families, len(kept) - len(shown)


def _is_of_array(workload: StoredWorkload, uids: Container[str]) -> bool:
    """Whether the workload is an element of an array with one of the uids."""
    return INDEX_LABEL in workload.metadata.labels and owner_of(workload)[1] in uids


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
    return "Succeeded" if finished.reason == reasons.SUCCEEDED else "Failed"


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
_KEYS: Final[Mapping[str, Callable[[BucketObject], Any]]] = {
    "name": lambda stored: (stored.name, stored.namespace),
    "namespace": lambda stored: (stored.namespace, stored.name),
    "created": lambda stored: stored.created() or NEVER,
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
