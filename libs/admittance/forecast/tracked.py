"""The part of the bucket that a forecast needs, updated by every change: the scheduler's view of
queues and workloads, and the run times and arrivals of earlier workloads."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import msgspec

from admittance.api.fields.units import BadQuantity
from admittance.forecast.arrivals import DAY, DAYS, Arrivals
from admittance.forecast.forecast import Memory, Rows
from admittance.forecast.past_runs import PastRun, source_of
from admittance.forecast.play import QueueRules
from admittance.forecast.rows import Holding, Key, Need, Source, Waiting
from admittance.forecast.run_times import RunTimes
from admittance.forecast.widening import Widening
from admittance.quota.cell import potential
from admittance.quota.tree import Node
from admittance.scheduling.configuration_updates import apply_object
from admittance.scheduling.cycle.flavor_assigner import examine
from admittance.scheduling.state.config import Config
from admittance.scheduling.state.flavor_plan import FlavorPlan
from admittance.scheduling.state.held.person_limits import Person
from admittance.scheduling.state.requests import RequestShape
from admittance.scheduling.state.scheduler_state import SchedulerState
from admittance.scheduling.state.workload_info import Domain, Queue, WorkloadInfo
from admittance.scheduling.workload_updates import apply_workload
from admittance.workload.conditions import Type, find, is_true
from admittance.workload.quota_release import reserved_at
from admittance.workload.scripts import script_of
from admittance.workload.stored import StoredWorkload, head

Choices = tuple[tuple[Need, ...], ...]
SHAPES_MAX: Final = 8_192
"""For how many shapes of a queue the choices of flavors are kept."""

NOT_WAITING: Final = "it does not compete for quota now"
INACTIVE: Final = "its queue does not admit workloads now"
FAMILY: Final = "it has variants, which the forecast does not play"
FAIR_SHARING: Final = "fair sharing orders its queue, which the forecast does not play"
TOO_LARGE: Final = "no flavor of its queue has so much quota"


@dataclass(slots=True)
class _Seen:
    """A workload of the bucket. ``is_counted``: it finished, and its run time is counted."""

    uid: str
    source: Source
    is_counted: bool = False


class Tracked:
    """The state of one forecast process. ``known_since``: the time in seconds from which on all
    workloads that arrived are in the bucket or were seen."""

    def __init__(
        self, config: Config, known_since: float, widenings: dict[str, Widening] | None = None
    ) -> None:
        """``widenings``: the errors of earlier forecasts by tree, to which this adds."""
        self._config = config
        self._state = SchedulerState(config)
        self._seen: dict[Key, _Seen] = {}
        self._choices: dict[str, tuple[FlavorPlan, dict[RequestShape, Choices | None]]] = {}
        self._memories: dict[str, Memory] = {}
        self._widenings = {} if widenings is None else widenings
        self.run_times = RunTimes()
        self.arrivals = Arrivals(known_since)

    # Changes. -----------------------------------------------------------------------------

    def apply_object(self, kind: str, namespace: str, name: str, obj: Any, revision: int) -> None:
        """Applies an object of the configuration; None: it was deleted."""
        self._state.seen = max(self._state.seen, revision)
        apply_object(self._state, kind, namespace, name, obj, revision, now=self._state.now)

    def apply_workload(
        self, key: Key, stored: StoredWorkload | None, revision: int, now: datetime
    ) -> None:
        """Applies a stored workload; None: it was deleted."""
        state = self._state
        state.now = max(state.now, now)
        apply_workload(state, key, stored, revision, now=now)
        self._note_start(key)
        if stored is None:
            self._seen.pop(key, None)
            return
        known = self._seen.get(key)
        if known is None or known.uid != stored.metadata.uid:
            known = self._seen[key] = _Seen(stored.metadata.uid, self._source(stored))
            self._note_arrival(key, stored, known.source, now)
        if not known.is_counted and is_true(stored, Type.FINISHED):
            # A finished workload may be stored again, and counts once.
            known.is_counted = True
            self._note_end(stored, known.source)

    def _source(self, stored: StoredWorkload) -> Source:
        local = self._state.catalog.local_queues.get(
            (stored.metadata.namespace, head(stored).queue_name)
        )
        admission = stored.status.admission
        queue = admission.cluster_queue if admission is not None else ""
        return source_of(
            queue or (local.spec.cluster_queue if local is not None else ""),
            stored.status.submitted_by,
            script_of(stored.spec),
            stored.metadata.labels,
        )

    def _note_arrival(
        self, key: Key, stored: StoredWorkload, source: Source, now: datetime
    ) -> None:
        created = stored.metadata.creation_timestamp
        if created is None or created.timestamp() < now.timestamp() - DAYS * DAY:
            return
        queue = self._state.queues.get(source.queue)
        if queue is None or queue.plan is None or head(stored).role != "regular":
            return
        try:
            needs = self._state.shapes.needs(stored.spec)
        except (msgspec.MsgspecError, BadQuantity):
            return
        choices = self._choices_of(queue, needs.shape)
        if choices is not None:
            self.arrivals.add(
                Waiting(
                    key=key,
                    queue=queue.name,
                    queued_at=created.timestamp(),
                    choices=choices,
                    source=source,
                    priority=needs.priority,
                    limit=needs.max_seconds,
                )
            )

    def _note_end(self, stored: StoredWorkload, source: Source) -> None:
        admitted, finished = find(stored, Type.ADMITTED), find(stored, Type.FINISHED)
        if admitted is None or finished is None or admitted.status != "True":
            return
        begin, end = admitted.last_transition_time, finished.last_transition_time
        if begin is not None and end is not None:
            seconds = max(0.0, (end - begin).total_seconds())
            checked = max(0.0, (begin - (reserved_at(stored) or begin)).total_seconds())
            self.run_times.add(source, seconds, end.timestamp(), checked)

    def add_past_run(self, run: PastRun) -> None:
        """Adds a run from the log, unless the bucket has its workload: then it counts already."""
        seen = self._seen.get(run.key)
        if seen is None or seen.uid != run.uid:
            self.run_times.add(run.source, run.seconds, run.ended, run.checked)

    def _note_start(self, key: Key) -> None:
        """Compares the forecasts of a workload with its start, or drops them if it does not wait
        any more."""
        for memory in self._memories.values():
            if key not in memory.made:
                continue
            workload = self._state.workloads.get(key)
            if workload is not None and workload.charge is not None:
                at = workload.reserved_at
                if at is not None:
                    memory.started(key, at.timestamp())
            elif workload is None or workload.queue is None or workload.inadmissible is not None:
                memory.gone(key)

    def forget(self, now: datetime) -> None:
        """Forgets what is too old to count."""
        self.run_times.forget(now.timestamp())
        self.arrivals.forget(now.timestamp())
        # Nothing publishes refusals here, so they are not kept for it.
        self._state.refusal_queue.items.clear()

    # Answers. -----------------------------------------------------------------------------

    def memory(self, domain: str) -> Memory:
        """What earlier workloads say about those of a cohort tree."""
        known = self._memories.get(domain)
        if known is None:
            widening = self._widenings.setdefault(domain, Widening())
            known = self._memories[domain] = Memory(self.run_times, self.arrivals, widening)
        return known

    @property
    def memories(self) -> Mapping[str, Memory]:
        """What is known of each tree that was forecast, by name."""
        return self._memories

    def domain_of(self, key: Key) -> str | None:
        """The name of the cohort tree in which a workload waits; None: it does not wait."""
        workload = self._state.workloads.get(key)
        queue = None if workload is None else workload.queue
        return None if queue is None or queue.domain is None else queue.domain.name

    def queue_of(self, key: Key) -> str:
        """The ClusterQueue in which a workload waits; "": it does not wait."""
        workload = self._state.workloads.get(key)
        return "" if workload is None or workload.queue is None else workload.queue.name

    def queued_at(self, key: Key) -> float:
        """The time that orders a waiting workload, but no earlier than its creation."""
        workload = self._state.workloads.get(key)
        times = () if workload is None else (workload.queued_at, workload.created_at)
        return max((at.timestamp() for at in times if at is not None), default=0.0)

    def why_unknown(self, key: Key) -> str:
        """Why no start of the workload can be known, whatever the plays say; "": it can."""
        workload = self._state.workloads.get(key)
        queue = None if workload is None else workload.queue
        if workload is None or queue is None:
            return NOT_WAITING
        if workload.family is not None:
            return FAMILY
        if workload.inadmissible is not None:
            return workload.inadmissible.message or NOT_WAITING
        if not queue.activity.active or queue.in_cycle:
            return INACTIVE
        if queue.domain is not None and self._is_shared(queue.domain):
            return FAIR_SHARING
        if not self._can_fit(queue, workload):
            return TOO_LARGE
        return ""

    def _is_shared(self, domain: Domain) -> bool:
        fair = self._config.fair_sharing is not None
        return fair or any(queue.lanes is not None for queue in domain.queues)

    def rows(self, name: str, errors: dict[Key, Exception] | None = None) -> Rows | None:
        """The tree with this name now; None: it does not exist, or its order cannot be played.
        ``errors``: gets the exceptions of workloads that have no row, because their data raise
        one."""
        domain = self._state.domains.get(name)
        if domain is None or self._is_shared(domain):
            return None
        failed = {} if errors is None else errors
        rules: dict[str, QueueRules] = {}
        waiting: list[Waiting] = []
        holding: list[Holding] = []
        for queue in domain.queues:
            if queue.node is None or queue.plan is None:
                continue
            rules[queue.name] = QueueRules(queue.node, queue.strict, queue.plan.borrow_next)
            holding += self._holding(queue, failed)
            if queue.activity.active and not queue.in_cycle:
                waiting += self._waiting(queue, queue.node, failed)
        persons = {(row.queue, row.source.user): row.persons for row in holding if row.persons}
        persons |= {(row.queue, row.source.user): row.persons for row in waiting if row.persons}
        return Rows(rules, waiting, holding, persons)

    def _holding(self, queue: Queue, errors: dict[Key, Exception]) -> Iterator[Holding]:
        for workload in queue.holding:
            try:
                row = self._holding_row(queue, workload)
            except Exception as error:
                errors[workload.key] = error
            else:
                if row is not None:
                    yield row

    def _holding_row(self, queue: Queue, workload: WorkloadInfo) -> Holding | None:
        charge = workload.charge
        since = workload.admitted_at or workload.reserved_at
        if charge is None or since is None:
            return None
        return Holding(
            workload.key,
            queue.name,
            tuple((cell.fr, amount) for cell, amount in charge.cells),
            since.timestamp(),
            self.source_of(workload.key),
            workload.seconds_left,
            _persons_of(queue, workload),
            is_checked=workload.admitted_at is None,
        )

    def _waiting(self, queue: Queue, node: Node, errors: dict[Key, Exception]) -> Iterator[Waiting]:
        for workload in (each for cls in queue.classes.values() for each in cls.waiting()):
            try:
                row = self._waiting_row(queue, node, workload)
            except Exception as error:
                errors[workload.key] = error
            else:
                if row is not None:
                    yield row

    def _waiting_row(self, queue: Queue, node: Node, workload: WorkloadInfo) -> Waiting | None:
        if workload.family is not None or workload.shape is None or workload.queued_at is None:
            return None
        choices = self._choices_of(queue, workload.shape)
        if choices is None or not (queue.strict or _fits_ever(node, choices)):
            return None
        return Waiting(
            workload.key,
            queue.name,
            workload.queued_at.timestamp(),
            choices,
            self.source_of(workload.key),
            workload.priority,
            workload.seconds_left,
            _persons_of(queue, workload),
        )

    def source_of(self, key: Key) -> Source:
        """Where a workload comes from."""
        known = self._seen.get(key)
        return Source("") if known is None else known.source

    def _can_fit(self, queue: Queue, workload: WorkloadInfo) -> bool:
        if queue.node is None or workload.shape is None:
            return False
        choices = self._choices_of(queue, workload.shape)
        return choices is not None and _fits_ever(queue.node, choices)

    def _choices_of(self, queue: Queue, shape: RequestShape) -> Choices | None:
        """For each pod set and resource group the needs of the flavors that the shape may use;
        None: no flavor may be used for one of them."""
        plan = queue.plan
        if plan is None:
            return None
        known = self._choices.get(queue.name)
        if known is None or known[0] is not plan or len(known[1]) >= SHAPES_MAX:
            known = self._choices[queue.name] = (plan, {})
        if shape not in known[1]:
            known[1][shape] = _choices(plan, shape, self._config)
        return known[1][shape]


def _persons_of(queue: Queue, workload: WorkloadInfo) -> tuple[Person, ...]:
    return () if queue.limits is None else queue.limits.persons_of(workload)


def _choices(plan: FlavorPlan, shape: RequestShape, config: Config) -> Choices | None:
    groups: dict[tuple[str, int], list[Need]] = {}
    for offer in examine(plan, shape):
        resource = offer.amounts[0][0]
        needs = groups.setdefault((offer.pod_set, plan.groups[resource].at), [])
        if offer.rooms:
            cells = offer.option.cells
            needs.append(tuple((cells[name].fr, amount) for name, amount in offer.amounts))
    undeclared = any(
        amount and resource not in plan.groups
        for amounts in shape.totals
        for resource, amount in amounts
    )
    if undeclared and config.quota_check_strategy != "IgnoreUndeclared":
        return None
    if not all(groups.values()):
        return None
    return tuple(tuple(needs) for needs in groups.values())


def _fits_ever(node: Node, choices: Choices) -> bool:
    """Whether each group has a flavor with enough quota in an empty tree."""
    return all(
        any(all(amount <= potential(node.cell(fr)) for fr, amount in need) for need in needs)
        for needs in choices
    )
