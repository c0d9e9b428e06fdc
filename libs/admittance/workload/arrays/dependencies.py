"""What a workload waits for: resolved at its submission, and met or not later.
docs/spec/arrays.md#5."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec
from msgspec.structs import replace

from admittance.api.arrays import parse_indexes
from admittance.api.dependencies import AFTER_UNMET, DEPENDENCIES_GATE
from admittance.api.workload import GATED_BY, DependencyRow, Kept, gate_names
from admittance.events import facts, reasons
from admittance.workload.arrays.elements import array_of
from admittance.workload.arrays.moves import turn_off
from admittance.workload.change import (
    Change,
    applied,
    ignored,
    with_condition,
    with_status,
)
from admittance.workload.conditions import Type, find_false, gated_by, is_true, waits_for
from admittance.workload.moves import requests
from admittance.workload.moves.requests import Arrived, deactivate
from admittance.workload.stored import ARRAY, VARIANT, StoredWorkload, head
from admittance.workload.transition_context import TransitionContext

CANCEL, KEEP = AFTER_UNMET
_MARK: Final = b'"after"'


class _Dependency(Kept, frozen=True, kw_only=True):
    workload: str = ""
    condition: str = "ok"
    index: int | None = None
    elementwise: bool = False


class _Array(Kept, frozen=True, kw_only=True):
    indexes: str = ""


class _Spec(Kept, frozen=True, kw_only=True):
    after: tuple[_Dependency, ...] = ()
    array: _Array | None = None


_specs: Final = msgspec.json.Decoder(_Spec)


class _Manifest(Kept, frozen=True, kw_only=True):
    spec: _Spec = _Spec()


class _Submitted(Kept, frozen=True, kw_only=True):
    workload: _Manifest = _Manifest()


_submissions: Final = msgspec.json.Decoder(_Submitted)


def names_in(fact: bytes) -> tuple[str, ...]:
    """The workloads for which the workload of a fact ``submitted`` waits."""
    if _MARK not in fact:
        return ()
    try:
        after = _submissions.decode(fact).workload.spec.after
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return ()  # No error is reported here: the validation of the submission reports it.
    return tuple(dependency.workload for dependency in after)


def resolved(arrived: Arrived, known: Callable[[str], StoredWorkload | None]) -> Arrived | str:
    """The submission with its dependencies, each with the uid of the workload that it names; or why
    one of them is refused, as a sentence. ``known``: returns the workload of the namespace with a
    name. A dependency is always older than what waits for it, so no cycle can be made."""
    if _MARK not in bytes(arrived.spec):
        return arrived
    spec = _specs.decode(arrived.spec)
    rows: list[DependencyRow] = []
    for dependency in spec.after:
        name = dependency.workload
        target = known(name)
        if target is None or target.metadata.deletion_timestamp is not None:
            return f"it waits for {name}, which does not exist"
        if head(target).role == VARIANT:
            return f"it waits for {name}, which is a variant: name its parent"
        if dependency.elementwise or dependency.index is not None:
            if head(target).role != ARRAY:
                return f"it waits for an element of {name}, which is not an array"
            theirs = parse_indexes(array_of(target).indexes)
            if dependency.index is not None and dependency.index not in theirs:
                return f"it waits for {name}[{dependency.index}], an element that {name} lacks"
            own = parse_indexes(spec.array.indexes) if spec.array is not None else ()
            if dependency.elementwise and theirs != own:
                return f"it waits for {name}[=], which has other indexes"
        rows.append(
            DependencyRow(
                workload=name,
                uid=target.metadata.uid,
                condition=dependency.condition,
                index=dependency.index,
                elementwise=dependency.elementwise,
            )
        )
    return with_rows(arrived, tuple(rows))


def with_rows(arrived: Arrived, rows: tuple[DependencyRow, ...]) -> Arrived:
    """The submission with these dependencies, and with their gate if it waits for one itself."""
    meta = arrived.metadata
    if any(not row.elementwise for row in rows):
        gates = gate_names(meta.annotations.get(GATED_BY, ""))
        if DEPENDENCIES_GATE not in gates:
            written = ",".join((*gates, DEPENDENCIES_GATE))
            meta = replace(meta, annotations={**meta.annotations, GATED_BY: written})
    return replace(arrived, metadata=meta, dependencies=rows)


def rows_of_element(array: StoredWorkload, index: int) -> tuple[DependencyRow, ...]:
    """The dependencies of an element: the element with the same index, of each array that its array
    waits for in this way."""
    return tuple(
        replace(row, index=index, elementwise=False)
        for row in array.status.dependencies
        if row.elementwise
    )


def judged(
    workload: StoredWorkload, fact: facts.DependenciesJudged, context: TransitionContext
) -> Change:
    """T31: stores which dependencies are met; with the last one the gate opens. A dependency that
    can no longer be met deactivates the workload, or is only noted. A dependency that is met stays
    so, because the workload that was waited for may leave the bucket."""
    if is_true(workload, Type.FINISHED):
        return ignored(workload, reasons.REPEATED, "it has finished")
    rows = list(workload.status.dependencies)
    for place in fact.met:
        if 0 <= place < len(rows) and rows[place].since is None:
            rows[place] = replace(rows[place], since=context.now)
    noted = with_status(workload, dependencies=tuple(rows))
    is_changed = noted.status.dependencies != workload.status.dependencies
    if DEPENDENCIES_GATE not in gate_names(gated_by(workload)):
        return applied(noted) if is_changed else ignored(workload, reasons.REPEATED)
    if all(row.since is not None or row.elementwise for row in rows):
        met = with_condition(
            noted, Type.DEPENDENCIES_MET, True, reasons.DEPENDENCIES_MET, now=context.now
        )
        opened = facts.Released(namespace=fact.namespace, name=fact.name, gate=DEPENDENCIES_GATE)
        return requests.release(met, opened, context)
    if not fact.never:
        return (
            applied(_waiting(noted, context)) if is_changed else ignored(workload, reasons.REPEATED)
        )
    before = find_false(noted, Type.DEPENDENCIES_MET)
    is_known = before is not None and before.message == fact.never
    noted = with_condition(
        noted, Type.DEPENDENCIES_MET, False, reasons.DEPENDENCY_UNMET, fact.never, now=context.now
    )
    spec = head(workload)
    if spec.after_unmet == KEEP or not spec.active:
        return applied(noted) if is_changed or not is_known else ignored(workload, reasons.REPEATED)
    reason = reasons.DEACTIVATED_DUE_TO_DEPENDENCY
    message = f"It {waits_for(noted)}: {fact.never}"
    if spec.role == ARRAY:
        return turn_off(noted, reason, message, context)
    return deactivate(noted, reason, message, context)


def _waiting(workload: StoredWorkload, context: TransitionContext) -> StoredWorkload:
    reason, message = reasons.WAITS_FOR_DEPENDENCIES, waits_for(workload)
    return with_condition(workload, Type.DEPENDENCIES_MET, False, reason, message, now=context.now)
