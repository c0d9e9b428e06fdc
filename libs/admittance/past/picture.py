"""A light picture of one moment: queues, pending workloads, and why one of them waited, from rows.
The module is pure.

Quota is what the scheduler's own tree says of it. Reasons are those that were stored then, and the
order is by priority and age; usage-based order and promises of a start are not in it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Final

from msgspec.structs import replace

from admittance.api.kinds import KINDS
from admittance.events.reader import BROKEN
from admittance.events.requests.explanation import (
    Ahead,
    ExplainReply,
    FlavorVerdict,
    Holder,
    Room,
)
from admittance.events.requests.queues import (
    HoldingRow,
    PendingQuery,
    PendingReply,
    PendingRow,
    Queues,
    QueuesReply,
    QueueStatus,
)
from admittance.past.rows import Facts, Row, time_of
from admittance.quota.cell import available, potential
from admittance.quota.tree import Node
from admittance.scheduling.configuration_updates import apply_object
from admittance.scheduling.explain.cohort_tree import QueueCounts, of_cohort
from admittance.scheduling.explain.queue_status import RUNS
from admittance.scheduling.explain.queue_status import queues as queue_statuses
from admittance.scheduling.state.config import Config
from admittance.scheduling.state.scheduler_state import SchedulerState
from admittance.scheduling.state.workload_info import Queue
from admittance.workload.bucket_reader import names_of, read_manifest
from admittance.workload.stored import ARRAY, PARENT, VARIANT

Key = tuple[str, str]
ROWS_MAX: Final = 1_000
AHEAD_MAX: Final = 5
HOLDERS_MAX: Final = 20
ROOM: Final = "It had room; the whole explanation says whether the flavor suited"
HOLDING_MAX: Final = 200
_KINDS: Final[Mapping[str, str]] = {kind.prefix: kind.name for kind in KINDS.values()}


class Picture:
    """What was there at one revision. ``rows``: by key of the bucket."""

    def __init__(self, rows: Iterable[Row], config: Config, now: datetime) -> None:
        self._now = now
        self._state = SchedulerState(config)
        self._state.now = now
        self.unreadable: list[str] = []
        """Keys of objects that could not be read."""
        self._facts: dict[Key, Facts] = {}
        for row in rows:
            if row.facts is not None:
                self._facts[names_of(row.key)] = row.facts
            elif row.value is not None:
                self._apply(row, row.value)
        self._holding: dict[str, list[Key]] = {}
        self._waiting: dict[str, list[Key]] = {}
        for key, facts in self._facts.items():
            if facts.usage and self._node(facts.cluster_queue) is not None:
                self._holding.setdefault(facts.cluster_queue, []).append(key)
            if facts.competes and facts.role not in (VARIANT, ARRAY):
                self._waiting.setdefault(self._queue_of(key[0], facts.local_queue), []).append(key)
        for name in self._waiting:
            self._waiting[name].sort(key=self._place)
        for queue, usage in self._charged():
            for fr, much in usage.items():
                queue.cell(fr).charge(much)

    def _apply(self, row: Row, value: bytes) -> None:
        namespace, name = names_of(row.key)
        kind = _KINDS[row.key.partition(".")[0]]
        try:
            manifest = read_manifest(row.key, value)
        except BROKEN:
            self.unreadable.append(row.key)
            return
        apply_object(self._state, kind, namespace, name, manifest, row.revision, now=self._now)

    def _node(self, queue: str) -> Node | None:
        known = self._state.queues.get(queue)
        return known.node if known is not None else None

    def _queue_of(self, namespace: str, local_queue: str) -> str:
        local = self._state.catalog.local_queues.get((namespace, local_queue))
        name = local.spec.cluster_queue if local is not None else ""
        return name if self._node(name) is not None else ""

    def _place(self, key: Key) -> tuple[int, float, str, Key]:
        facts = self._facts[key]
        return -facts.priority, facts.queued, facts.uid, key

    def _charged(self) -> Iterator[tuple[Node, dict[tuple[str, str], int]]]:
        """Yields the quota that is held, with its ClusterQueue. A family holds the largest amounts
        of its variants."""
        families: dict[tuple[str, str, str], dict[tuple[str, str], int]] = {}
        for queue, keys in self._holding.items():
            node = self._node(queue)
            assert node is not None
            for key in keys:
                facts = self._facts[key]
                usage = {(flavor, name): much for flavor, name, much in facts.usage}
                if facts.role != VARIANT:
                    yield node, usage
                    continue
                held = families.setdefault((queue, key[0], facts.family), {})
                for fr, much in usage.items():
                    held[fr] = max(held.get(fr, 0), much)
        for (queue, _, _), held in families.items():
            node = self._node(queue)
            assert node is not None
            yield node, held

    # Queues. ------------------------------------------------------------------------------

    def queues(self, query: Queues, namespace: str) -> QueuesReply:
        """The queues, as `admit.api.queues` returns them."""
        if query.last_day is not None:
            return QueuesReply(error="the last 24 hours of a past moment are not known")
        if query.cohort:
            return of_cohort(self._state, query.cohort, self._counts)
        reply = queue_statuses(self._state, query, namespace)
        return QueuesReply(
            error=reply.error,
            cluster_queues=tuple(map(self._counted, reply.cluster_queues)),
            local_queues=tuple(map(self._counted_local, reply.local_queues)),
        )

    def _counts(self, queue: Queue) -> QueueCounts:
        holding = self._standing(queue.name)
        running, admitted = self._admitted(holding)
        waiting = len(self._waiting.get(queue.name, ()))
        return QueueCounts(waiting, len(holding), running, admitted)

    def _admitted(self, holding: Iterable[Key]) -> tuple[int, dict[tuple[str, str], int]]:
        """How many of the workloads are admitted, and their quota."""
        admitted: dict[tuple[str, str], int] = {}
        running = 0
        for key in holding:
            facts = self._facts[key]
            if facts.state in RUNS:
                running += 1
                for flavor, resource, much in facts.usage:
                    admitted[flavor, resource] = admitted.get((flavor, resource), 0) + much
        return running, admitted

    def _counted(self, status: QueueStatus) -> QueueStatus:
        holding = self._standing(status.name)
        return self._with_counts(status, holding, len(self._waiting.get(status.name, ())))

    def _counted_local(self, status: QueueStatus) -> QueueStatus:
        def own(key: Key) -> bool:
            return (key[0], self._facts[key].local_queue) == (status.namespace, status.name)

        holding = [key for key in self._standing(status.cluster_queue) if own(key)]
        waiting = sum(map(own, self._waiting.get(status.cluster_queue, ())))
        counted = self._with_counts(status, holding, waiting)
        held: dict[tuple[str, str], int] = {}
        for key in holding:
            for flavor, resource, much in self._facts[key].usage:
                held[flavor, resource] = held.get((flavor, resource), 0) + much
        usage = tuple(
            replace(each, reserved=held.get((each.flavor, each.resource), 0))
            for each in counted.usage
        )
        return replace(counted, usage=usage)

    def _with_counts(
        self, status: QueueStatus, holding: Sequence[Key], waiting: int
    ) -> QueueStatus:
        running, admitted = self._admitted(holding)
        usage = tuple(
            replace(each, admitted=admitted.get((each.flavor, each.resource), 0))
            for each in status.usage
        )
        return replace(
            status, pending=waiting, reserving=len(holding), admitted=running, usage=usage
        )

    def _standing(self, queue: str) -> list[Key]:
        """The workloads that hold quota of the ClusterQueue; of a family the admitted variant."""
        return [
            key
            for key in self._holding.get(queue, ())
            if self._facts[key].role != VARIANT or self._facts[key].state in RUNS
        ]

    # Pending workloads. -------------------------------------------------------------------

    def pending(self, query: PendingQuery, namespace: str) -> PendingReply:
        """The pending workloads, as `admit.api.pending` returns them."""
        target = query.cluster_queue
        if query.local_queue and namespace:
            if (namespace, query.local_queue) not in self._state.catalog.local_queues:
                return PendingReply(error=f"no LocalQueue {namespace}/{query.local_queue}")
            target = self._queue_of(namespace, query.local_queue)
        elif target and self._node(target) is None:
            return PendingReply(error=f"no ClusterQueue {target}")
        if query.others or query.first_elements or query.states or query.reasons or query.counts:
            return PendingReply(
                error="others, firstElements, states, reasons and counts are not known of the past"
            )
        names = [target] if query.cluster_queue or target else self._names()
        selected: list[tuple[str, int, Key]] = []
        for name in names:
            for position, key in enumerate(self._waiting.get(name, ()), start=1):
                if self._is_selected(key, query, namespace):
                    selected.append((name, position if name else 0, key))
        skip, limit = max(0, query.skip), max(0, min(query.limit, ROWS_MAX))
        rows = [self._pending_row(*each) for each in selected[skip : skip + limit]]
        holding = [
            key
            for name in names
            for key in self._standing(name)
            if self._is_selected(key, query, namespace)
        ]
        holding.sort(key=lambda key: self._facts[key].reserved)
        first = holding[: max(0, min(query.holding, HOLDING_MAX))]
        return PendingReply(
            rows=tuple(rows),
            total=len(selected),
            holding=tuple(map(self._holding_row, first)),
            holding_total=len(holding) if query.holding > 0 else 0,
        )

    def _names(self) -> list[str]:
        return [*sorted(name for name in self._waiting if name), ""]

    def _is_selected(self, key: Key, query: PendingQuery, namespace: str) -> bool:
        facts = self._facts[key]
        return (
            namespace in ("", key[0])
            and query.local_queue in ("", facts.local_queue)
            and query.user in ("", facts.user)
        )

    def _pending_row(self, queue: str, position: int, key: Key) -> PendingRow:
        facts = self._facts[key]
        since = facts.queued if facts.queued != facts.created else 0.0
        return PendingRow(
            namespace=key[0],
            name=key[1],
            cluster_queue=queue,
            local_queue=facts.local_queue,
            position=position,
            priority=facts.priority,
            reason=facts.reason,
            message=facts.message,
            created=time_of(facts.created),
            waiting_since=time_of(since),
            requests=dict(facts.requests),
            user=facts.user,
            array=facts.array,
        )

    def _holding_row(self, key: Key) -> HoldingRow:
        facts = self._facts[key]
        return HoldingRow(
            namespace=key[0],
            name=key[1],
            cluster_queue=facts.cluster_queue,
            local_queue=facts.local_queue,
            state=facts.state,
            priority=facts.priority,
            reserved_at=time_of(facts.reserved),
            flavors=tuple(dict.fromkeys(flavor for flavor, _, _ in facts.usage)),
            requests=dict(facts.requests),
            user=facts.user,
            array=facts.array,
        )

    # One workload. ------------------------------------------------------------------------

    def explain(self, namespace: str, name: str) -> ExplainReply:
        """The stored reason of a workload, and the room in the flavors of its queue then. Nothing
        is decided again."""
        key = (namespace, name)
        facts = self._facts.get(key)
        if facts is None:
            return ExplainReply(error=f"no workload {namespace}/{name} that had not finished")
        queue = facts.cluster_queue or self._queue_of(namespace, facts.local_queue)
        node = self._node(queue)
        line = self._waiting.get(queue, []) if node is not None else []
        position = line.index(key) + 1 if key in line else 0
        waits = position > 0 and facts.role != PARENT
        verdicts = tuple(self._verdicts(node, facts)) if node is not None and waits else ()
        return ExplainReply(
            phase=facts.phase,
            reason=facts.reason,
            message=facts.message,
            cluster_queue=queue,
            local_queue=facts.local_queue,
            cohort=node.parent.name if node is not None and node.parent is not None else "",
            position=position,
            pending=len(line),
            priority=facts.priority,
            waiting_since=time_of(facts.queued),
            ahead=tuple(
                Ahead(namespace=space, name=other, position=at, priority=ahead.priority)
                for at, (space, other) in enumerate(line[: min(position - 1, AHEAD_MAX)], start=1)
                for ahead in (self._facts[space, other],)
            ),
            flavors=verdicts,
            held_by=tuple(self._holders(node, verdicts)) if node is not None else (),
        )

    def _verdicts(self, node: Node, facts: Facts) -> Iterator[FlavorVerdict]:
        asked = dict(facts.requests)
        rooms: dict[str, list[Room]] = {}
        for (flavor, resource), cell in sorted(node.cells.items()):
            if resource not in asked or not cell.is_listed:
                continue
            free = max(0, available(cell))
            rooms.setdefault(flavor, []).append(
                Room(
                    resource=resource,
                    requested=asked[resource],
                    available=free,
                    short=max(0, asked[resource] - free),
                    usage=cell.usage,
                    nominal=cell.nominal,
                    borrowing_limit=cell.borrow,
                    potential=potential(cell),
                )
            )
        for flavor, of in rooms.items():
            # Taints and labels are not looked at, so that no flavor is said to fit.
            yield FlavorVerdict(
                pod_set="main",
                flavor=flavor,
                resources=tuple(room.resource for room in of),
                message="" if any(room.short for room in of) else ROOM,
                rooms=tuple(of),
            )

    def _holders(self, node: Node, verdicts: Iterable[FlavorVerdict]) -> Iterator[Holder]:
        """The workloads of the cohort tree that held most of what was short."""
        names = [each.name for each in node.root().queues()] if node.parent else [node.name]
        for verdict in verdicts:
            for room in verdict.rooms:
                if room.short:
                    found = [
                        Holder(
                            namespace=key[0],
                            name=key[1],
                            cluster_queue=name,
                            flavor=flavor,
                            resource=resource,
                            amount=much,
                            priority=self._facts[key].priority,
                            spared_by="NotLookedAt",
                            leaving=self._facts[key].state == "Evicting",
                        )
                        for name in names
                        for key in self._standing(name)
                        for flavor, resource, much in self._facts[key].usage
                        if (flavor, resource) == (verdict.flavor, room.resource)
                    ]
                    found.sort(key=lambda holder: (-holder.amount, holder.namespace, holder.name))
                    yield from found[:HOLDERS_MAX]
