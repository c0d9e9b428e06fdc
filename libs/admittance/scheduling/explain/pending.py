"""Lists pending workloads queue by queue, in order, with their positions and waiting reasons.

The cost of a list grows with the number of listed workloads and of classes in the queue, not with
the number of workloads behind the last listed one. For a query about one namespace or LocalQueue
the cost grows with the workloads of that namespace or LocalQueue."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from heapq import nsmallest
from itertools import islice
from typing import Final, NamedTuple, TypeAlias

from admittance.events import reasons
from admittance.events.codec import encode
from admittance.events.requests.queues import (
    HoldingRow,
    PendingCount,
    PendingQuery,
    PendingReply,
    PendingRow,
)
from admittance.events.shapes import Refusal
from admittance.scheduling.explain import pending_rows as rows
from admittance.scheduling.explain.pending_counts import count_reasons, count_states, reason_of
from admittance.scheduling.explain.pending_rows import PENDING, STATES
from admittance.scheduling.explain.queue_status import RUNS, stands_for_itself
from admittance.scheduling.state.equivalence import EquivalenceClass, Key
from admittance.scheduling.state.queue import age_key, in_listed_order, position_in, sort_key
from admittance.scheduling.state.scheduler_state import SchedulerState
from admittance.scheduling.state.workload_info import Queue, WorkloadInfo

LIMIT_MAX: Final = 1_000
"""How many pending workloads one reply lists at most: they fill about half of a message."""
HOLDING_MAX: Final = 200
"""How many workloads with quota one reply lists at most: they fill less than a quarter of a
message."""
NEVER: Final = datetime.max.replace(tzinfo=UTC)
"""The time at which a workload got its quota that is not stored yet: after all others."""
BYTES_MAX: Final = 700_000
"""How many bytes the rows of pending workloads in one reply have at most, unless there is one row.
"""
FEW: Final = 2_000
"""If a query selects fewer pending workloads of a queue than this number, they are sorted; if it
selects more, they are picked from the ordered queue."""

Numbered: TypeAlias = Callable[[int], Iterator[tuple[int, WorkloadInfo]]]
"""Returns the first so many workloads of a list, each with its position in its queue."""


def pending(state: SchedulerState, query: PendingQuery, namespace: str) -> PendingReply:
    """Returns the workloads that the query selects, queue by queue, in order: of each queue those
    that are pending, then those with quota that wait for checks, then those that are held."""
    target = query.cluster_queue
    if query.first_elements and query.skip:
        return PendingReply(error="firstElements goes with skip 0 only")
    states = frozenset(query.states) or frozenset({PENDING})
    if unknown := sorted(states.difference(STATES)):
        return PendingReply(error=f"no state {unknown[0]}: there are {', '.join(STATES)}")
    if query.local_queue and namespace:
        local = state.catalog.local_queues.get((namespace, query.local_queue))
        if local is None:
            return PendingReply(error=f"no LocalQueue {namespace}/{query.local_queue}")
        target = local.spec.cluster_queue
    if target and (target not in state.queues or state.queues[target].node is None):
        if not query.local_queue:
            return PendingReply(error=f"no ClusterQueue {target}")
        queues: list[Queue] = []
    elif target:
        queues = [state.queues[target]]
    else:
        queues = _queues_by_name(state)
    wanted = frozenset(query.reasons)
    used_from = {space for space, _ in state.catalog.locals_of(target)}
    others = query.others and namespace in used_from and not query.user
    others = others and not query.states and not wanted
    counts: Counter[tuple[str, str]] = Counter()
    page = _Page(query)
    for queue in queues:
        selected = _selected(state, queue, namespace, query)
        if PENDING in states:
            waiting = _waiting(state, queue, None if others else selected, wanted)
            numbered = waiting.numbered
            if query.first_elements:
                numbered = _first_elements(waiting, namespace if others else "")
            page.add(
                waiting.size,
                partial(_numbered_rows, state, queue, numbered, namespace if others else ""),
            )
        if query.counts or len(states) > (PENDING in states):
            further = _further(state, queue, namespace, query)
            if query.counts:
                count_states(state, queue, selected, further, counts)
            of_page = [
                row
                for row in (rows.further_row(queue, workload) for workload in further)
                if row.state in states and (not wanted or row.reason in wanted)
            ]
            page.add(len(of_page), partial(_first_rows, of_page))
    if not query.cluster_queue:
        apart = [
            rows.row_without_queue(state, workload)
            for workload in _without_queue(state, namespace, query)
        ]
        if query.counts:
            counts.update((PENDING, row.reason) for row in apart)
        if PENDING in states:
            chosen = [row for row in apart if not wanted or row.reason in wanted]
            page.add(len(chosen), partial(_first_rows, chosen))
    listed = tuple(fitting(page.rows))
    holding, holding_total = _holding(queues, namespace, query) if query.holding > 0 else ((), 0)
    return PendingReply(
        rows=listed,
        total=page.total,
        holding=holding,
        holding_total=holding_total,
        counts=tuple(
            PendingCount(state=which, reason=reason, count=count)
            for (which, reason), count in counts.most_common()
        ),
    )


class _Page:
    """The rows of a reply, which begin after those that the query skips."""

    def __init__(self, query: PendingQuery) -> None:
        self.rows: list[PendingRow] = []
        self.total = 0
        self._skip = max(0, query.skip)
        self._limit = max(0, min(query.limit, LIMIT_MAX))

    def add(self, count: int, first: Callable[[int], Iterable[PendingRow]]) -> None:
        """Adds the next ``count`` rows, as far as they belong to the page. ``first``: makes at most
        so many of them."""
        self.total += count
        left = self._limit - len(self.rows)
        if left > 0 and self._skip < count:
            self.rows += islice(first(self._skip + left), self._skip, self._skip + left)
        self._skip = max(0, self._skip - count)


def _numbered_rows(
    state: SchedulerState,
    queue: Queue,
    numbered: Numbered,
    namespace: str,
    limit: int,
) -> Iterator[PendingRow]:
    """Yields the rows of the first ``limit`` numbered workloads. ``namespace``: only the rows of
    this namespace are whole; "": all are."""
    for at, workload in numbered(limit):
        if namespace in ("", workload.key[0]):
            yield rows.row(state, queue, workload, at, rows.refusal(state, workload))
        else:
            yield rows.row_of_another_namespace(queue, workload, at)


def _first_rows(listed: Sequence[PendingRow], limit: int) -> Sequence[PendingRow]:
    return listed[:limit]


class _Waiting(NamedTuple):
    """The selected pending workloads of a queue, and how many there are."""

    size: int
    numbered: Numbered


def _waiting(
    state: SchedulerState,
    queue: Queue,
    selected: Mapping[WorkloadInfo, None] | None,
    wanted: frozenset[str],
) -> _Waiting:
    """``wanted``: the reasons of the workloads; empty: all."""
    if not wanted:
        count = queue.pending if selected is None else len(selected)
        return _Waiting(count, partial(_listed, queue, selected))
    if selected is None:
        reasons_here = count_reasons(state, queue)
        count = sum(reasons_here.get(reason, 0) for reason in wanted)
        return _Waiting(count, partial(_listed_for_reasons, state, queue, wanted, count))
    kept = dict.fromkeys(
        workload for workload in selected if reason_of(state, queue, workload) in wanted
    )
    return _Waiting(len(kept), partial(_listed, queue, kept))


def _listed_for_reasons(
    state: SchedulerState, queue: Queue, wanted: frozenset[str], count: int, limit: int
) -> Iterator[tuple[int, WorkloadInfo]]:
    """Yields the first ``limit`` of the ``count`` workloads that wait for these reasons. The
    classes of other reasons cost one step each."""

    def may_have(cls: EquivalenceClass[WorkloadInfo]) -> bool:
        return not queue.activity.active or cls.parked is None or cls.parked.reason in wanted

    found = (
        workload
        for workload in in_listed_order(queue, may_have)
        if reason_of(state, queue, workload) in wanted
    )
    for workload in islice(found, min(count, limit)):
        yield position_in(queue, workload), workload


def _first_elements(waiting: _Waiting, namespace: str) -> Numbered:
    def numbered(limit: int) -> Iterator[tuple[int, WorkloadInfo]]:
        listed = waiting.numbered(waiting.size)
        return islice(_without_later_elements(listed, namespace), limit)

    return numbered


def _further(
    state: SchedulerState, queue: Queue, namespace: str, query: PendingQuery
) -> list[WorkloadInfo]:
    """Returns the selected workloads that have quota and are not admitted, by the time of their
    reservation, and those that are held, the oldest first."""
    keys = dict.fromkeys(state.catalog.locals_of(queue.name))
    inside = queue.live + len(queue.parked_workloads) + len(queue.parents)
    reserved = []
    for workload in queue.holding:
        inside += workload.local_queue in keys
        if (
            workload.state not in RUNS
            and workload.charge is not None
            and workload.family is None
            and _matches(workload, namespace, query)
        ):
            reserved.append(workload)
    if len(reserved) > 1:
        reserved.sort(key=_held_since)
    # Most queues have only workloads that wait or hold quota: then no workload needs a look.
    if sum(len(state.by_local_queue.get(key, ())) for key in keys) <= inside:
        return reserved
    held = (
        workload
        for key in keys
        if namespace in ("", key[0]) and query.local_queue in ("", key[1])
        for workload in state.by_local_queue.get(key, ())
        if not workload.competes
        and workload.charge is None
        and workload.status_reason == reasons.ON_HOLD
        and not workload.is_variant
        and _matches(workload, namespace, query)
    )
    return [*reserved, *sorted(held, key=age_key)]


def _matches(workload: WorkloadInfo, namespace: str, query: PendingQuery) -> bool:
    """Returns whether the workload has the namespace, LocalQueue and user of the query."""
    return (
        namespace in ("", workload.key[0])
        and query.local_queue in ("", workload.local_queue[1])
        and query.user in ("", workload.user)
    )


def _holding(
    queues: Iterable[Queue], namespace: str, query: PendingQuery
) -> tuple[tuple[HoldingRow, ...], int]:
    """Returns the rows of the selected workloads that hold quota, and how many hold it. A family
    has one row, for its admitted variant."""
    holding = (
        workload
        for queue in queues
        for workload in queue.holding
        if workload.charge is not None and stands_for_itself(workload)
    )
    selected = [workload for workload in holding if _matches(workload, namespace, query)]
    limit, total = min(query.holding, HOLDING_MAX), len(selected)
    if query.first_elements:
        selected.sort(key=_held_since)
        first = [each for _, each in islice(_without_later_elements(enumerate(selected)), limit)]
    else:
        first = nsmallest(limit, selected, key=_held_since)
    return tuple(map(rows.holding_row, first)), total


def _held_since(workload: WorkloadInfo) -> tuple[datetime, Key]:
    return workload.reserved_at or NEVER, workload.key


def fitting(rows: list[PendingRow]) -> list[PendingRow]:
    """Returns the first rows of a list of pending workloads, as many as fit into one message. A
    client gets the following rows with a further query that skips the returned rows."""
    left = BYTES_MAX
    for at, row in enumerate(rows):
        left -= len(encode(row)) + len(",")
        if left < 0 and at:
            return rows[:at]
    return rows


def all_pending(state: SchedulerState) -> Iterator[tuple[PendingRow, Refusal | None]]:
    """Yields all pending workloads in the order of `pending`, each with its refusal; None: the
    workload was not refused, or its LocalQueue has no ClusterQueue."""
    for queue in _queues_by_name(state):
        for at, workload in enumerate(in_listed_order(queue), start=1):
            refused = rows.refusal(state, workload)
            yield rows.row(state, queue, workload, at, refused), refused
    for workload in _without_queue(state, "", PendingQuery()):
        yield rows.row_without_queue(state, workload), None


def _queues_by_name(state: SchedulerState) -> list[Queue]:
    return sorted(
        (queue for queue in state.queues.values() if queue.node is not None),
        key=lambda queue: queue.name,
    )


def _selected(
    state: SchedulerState, queue: Queue, namespace: str, query: PendingQuery
) -> dict[WorkloadInfo, None] | None:
    """Returns the workloads of the queue that a query selects; None: the query selects all
    workloads."""
    local_queue = query.local_queue
    if not namespace and not local_queue and not query.user:
        return None
    return {
        workload: None
        for key in state.catalog.locals_of(queue.name)
        if (not namespace or key[0] == namespace) and (not local_queue or key[1] == local_queue)
        for workload in state.by_local_queue.get(key, ())
        if workload.queue is queue and not workload.is_variant and query.user in ("", workload.user)
    }


def _listed(
    queue: Queue, selected: Mapping[WorkloadInfo, None] | None, limit: int
) -> Iterator[tuple[int, WorkloadInfo]]:
    """Yields the first ``limit`` selected workloads of the queue, each with its position in the
    queue."""
    if selected is not None and len(selected) < min(FEW, queue.live // 4):
        for workload in nsmallest(limit, selected, key=lambda workload: sort_key(queue, workload)):
            yield position_in(queue, workload), workload
        return
    numbered = enumerate(in_listed_order(queue), start=1)
    if selected is None:
        yield from islice(numbered, limit)
        return
    yield from islice((place for place in numbered if place[1] in selected), limit)


def _without_later_elements(
    numbered: Iterable[tuple[int, WorkloadInfo]], namespace: str = ""
) -> Iterator[tuple[int, WorkloadInfo]]:
    """Yields the numbered workloads without those that follow another element of their array.
    ``namespace``: the rows of other namespaces do not say of which array they are; "": all do.
    """
    seen: set[Key] = set()
    for at, workload in numbered:
        if workload.array and namespace in ("", workload.key[0]):
            array = workload.key[0], workload.array
            if array in seen:
                continue
            seen.add(array)
        yield at, workload


def _without_queue(
    state: SchedulerState, namespace: str, query: PendingQuery
) -> Iterator[WorkloadInfo]:
    """Yields the workloads that cannot compete because their LocalQueue does not exist, is stopped
    or has no ClusterQueue."""
    for key, workloads in state.by_local_queue.items():
        if namespace not in ("", key[0]) or query.local_queue not in ("", key[1]):
            continue
        if state.catalog.without_cluster_queue(*key) is not None:
            yield from sorted(
                (
                    workload
                    for workload in workloads
                    if workload.competes
                    and workload.queue is None
                    and workload.charge is None
                    and not workload.is_variant
                    and query.user in ("", workload.user)
                ),
                key=age_key,
            )
