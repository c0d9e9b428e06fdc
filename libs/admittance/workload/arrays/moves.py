"""The effects of facts on an array: requests of users, and the counts of the array-controller.
docs/spec/arrays.md#3, docs/spec/arrays.md#4."""

from __future__ import annotations

from msgspec.structs import replace

from admittance.api.array_status import WORDS, summary
from admittance.api.arrays import BadIndexes, parse_indexes
from admittance.api.workload import DELETED, ENDED, NO_RESULT, SUCCEEDED, ArrayStatus
from admittance.events import facts, reasons
from admittance.events.base import Fact
from admittance.workload.arrays.elements import element_of, indexes_of, result_of
from admittance.workload.change import (
    Change,
    applied,
    ignored,
    refused,
    with_condition,
    with_spec,
    with_status,
)
from admittance.workload.conditions import Type, is_true, pending_reason, without_condition
from admittance.workload.moves import requests
from admittance.workload.stored import OutboxEntry, StoredWorkload, head
from admittance.workload.transition_context import TransitionContext


def apply(array: StoredWorkload, fact: Fact, context: TransitionContext) -> Change:
    """The change that the fact makes to an array."""
    if isinstance(fact, facts.ElementsCounted):
        return _count(array, fact, context)
    over = is_true(array, Type.FINISHED)
    if isinstance(fact, facts.Deleted):
        return _remove(array, context, over=over)
    if not over and array.metadata.deletion_timestamp is None:
        match fact:
            case facts.Deactivated():
                return _turn_off(array, context)
            case facts.Activated():
                return _turn_on(array, context)
            case facts.Released():
                return requests.release(array, fact, context)
            case facts.Reprioritized():
                return requests.reprioritize(array, fact, context)
            case facts.Finished() if not fact.revision:
                return requests.finish(array, fact, context)
            case facts.Held():
                return refused(
                    array,
                    reasons.IS_ARRAY,
                    "it is an array, which is in no queue: stop it, or hold its elements",
                )
    return ignored(
        array, reasons.NO_MOVE, f"it is an array: {type(fact).__name__.lower()!r} changes nothing"
    )


def _turn_off(array: StoredWorkload, context: TransitionContext) -> Change:
    if not head(array).active:
        return ignored(array, reasons.REPEATED, "it is not active")
    message = f"The array is deactivated{context.by_user}"
    return turn_off(array, reasons.DEACTIVATED, message, context)


def turn_off(
    array: StoredWorkload, reason: str, message: str, context: TransitionContext
) -> Change:
    """Deactivates an array, whose elements the array-controller then deactivates."""
    off = with_spec(array, active=False)
    off = with_condition(off, Type.EVICTED, True, reason, message, now=context.now)
    off = with_condition(
        off, Type.QUOTA_RESERVED, False, reasons.DEACTIVATED, message, now=context.now
    )
    return applied(off, OutboxEntry(what="pending", reason=reasons.DEACTIVATED, message=message))


def _turn_on(array: StoredWorkload, context: TransitionContext) -> Change:
    if head(array).active:
        return ignored(array, reasons.REPEATED, "it is active")
    on = with_spec(array, active=True)
    conditions = without_condition(on.status.conditions, Type.EVICTED)
    on = _waiting(with_status(on, conditions=conditions), context)
    return applied(on, OutboxEntry(what="requeued", reason=reasons.REACTIVATED))


def _waiting(array: StoredWorkload, context: TransitionContext) -> StoredWorkload:
    """The array with the reason why it has not ended yet."""
    waits = pending_reason(array, context)
    assert waits is not None, "an array does not compete"
    reason, message = waits
    if reason == reasons.ARRAY and array.status.array is not None:
        message = summary(array.status.array)
    return with_condition(array, Type.QUOTA_RESERVED, False, reason, message, now=context.now)


def _remove(array: StoredWorkload, context: TransitionContext, *, over: bool) -> Change:
    """Deletes an array that has ended at once, and marks any other: its elements go first."""
    if over:
        return Change(None)
    if array.metadata.deletion_timestamp is not None:
        return ignored(array, reasons.REPEATED, "it is being deleted")
    meta = replace(array.metadata, deletion_timestamp=context.logged_at)
    return applied(replace(array, metadata=meta))


def _count(
    array: StoredWorkload, fact: facts.ElementsCounted, context: TransitionContext
) -> Change:
    """Adds results of elements and sets the counts. A result is never taken back, so the facts of
    two array-controllers may come in any order."""
    if array.metadata.deletion_timestamp is not None:
        return Change(None) if fact.gone else ignored(array, reasons.REPEATED)
    if fact.gone:
        return ignored(array, reasons.STALE, "it is not being deleted")
    before = array.status.array
    assert before is not None, "a stored workload with the role array has status.array"
    try:
        results = _with_results(before.results, fact)
    except BadIndexes as error:
        return refused(array, reasons.NOT_AN_ELEMENT, str(error))
    finished = is_true(array, Type.FINISHED)
    ends = head(array).active and not finished and (fact.over or NO_RESULT not in results)
    if ends or (finished and fact.over):
        results = results.replace(NO_RESULT, ENDED)
    created = min(max(before.created, fact.created), len(results))
    states = {state: count for state, count in fact.states.items() if count > 0}
    after = ArrayStatus(
        created=created, results=results, states=states if NO_RESULT in results else {}
    )
    if after == before and not ends:
        return ignored(array, reasons.REPEATED)
    counted = with_status(array, array=after)
    if not ends:
        return applied(
            counted if finished or not head(array).active else _waiting(counted, context)
        )
    succeeded = set(results) == {SUCCEEDED}
    reason = reasons.SUCCEEDED if succeeded else reasons.FAILED
    counted = with_condition(counted, Type.FINISHED, True, reason, summary(after), now=context.now)
    return applied(counted)


def with_gone_element(array: StoredWorkload, gone: StoredWorkload) -> Change | None:
    """The array with the result of an element that leaves the bucket; None: it has the result, or
    is being deleted. The array-controller may not have counted the element yet, and its next leader
    would create it again."""
    element, before = element_of(gone), array.status.array
    if element is None or before is None or array.metadata.deletion_timestamp is not None:
        return None
    indexes = indexes_of(array)
    if element.number not in indexes:
        return None
    place = indexes.index(element.number)
    if before.results[place : place + 1] != NO_RESULT:
        return None
    letter = result_of(gone) or DELETED
    results = f"{before.results[:place]}{letter}{before.results[place + 1 :]}"
    return applied(with_status(array, array=replace(before, results=results)))


def _with_results(before: str, fact: facts.ElementsCounted) -> str:
    """The letters of results with those of the fact where there was none."""
    letters = list(before)
    for letter, written in fact.results.items():
        for place in parse_indexes(written) if letter in WORDS else ():
            if place < len(letters) and letters[place] == NO_RESULT:
                letters[place] = letter
    return "".join(letters)
