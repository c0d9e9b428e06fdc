"""The part of the bucket that a forecast needs, updated by every change: the scheduler's view of
queues and workloads, and the run times and arrivals of earlier workloads."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import msgspec

from admittance.api.checks import MACHINES_CONTROLLER
from admittance.api.fields.units import BadQuantity
from admittance.events import reasons
from admittance.forecast.arrivals import DAY, DAYS, Arrivals
from admittance.forecast.choices import FlavorChoices, fits_ever
from admittance.forecast.forecast import Memory, Rows
from admittance.forecast.past_runs import PastRun, source_of
from admittance.forecast.played import QueueRules
from admittance.forecast.rows import Holding, Key, Source, Waiting
from admittance.forecast.run_times import RunTimes
from admittance.forecast.widening import Widening
from admittance.quota.tree import Node
from admittance.scheduling.configuration_updates import apply_object
from admittance.scheduling.cycle.promises import job_of
from admittance.scheduling.families import admitted_name, desired_states, why_busy
from admittance.scheduling.state.config import Config
from admittance.scheduling.state.flavor_plan import FlavorPlan
from admittance.scheduling.state.held.person_limits import Person
from admittance.scheduling.state.scheduler_state import SchedulerState
from admittance.scheduling.state.workload_info import Domain, FamilyInfo, Queue, WorkloadInfo
from admittance.scheduling.workload_updates import apply_workload
from admittance.workload.conditions import Type, find, is_true
from admittance.workload.quota_release import reserved_at
from admittance.workload.scripts import script_of
from admittance.workload.stored import PARENT, StoredWorkload, head

NOT_WAITING: Final = "it does not compete for quota now"
INACTIVE: Final = "its queue does not admit workloads now"
VARIANT: Final = "it is a variant: ask about its parent, which starts with the first of them"
MIGRATION: Final = (
    "its family has quota, and the forecast does not play when a better variant takes over"
)
FAMILY: Final = (
    "variants of its family do not wait now, and the forecast does not play when they begin"
)
USAGE: Final = (
    "its cohort tree is ordered by the past usage of LocalQueues or users, which the forecast does "
    "not play"
)
PLAN: Final = (
    "a reservation in its cohort tree shares quota with workloads that it plans to preempt: it is "
    "known when they have stopped"
)
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
        self._choices = FlavorChoices(config)
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
        if not known.is_counted and is_true(stored, Type.FINISHED) and head(stored).role != PARENT:
            # A finished workload may be stored again, and counts once. Of a family the variants
            # count, as in the log.
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
        choices = self._choices.of_shape(queue, needs.shape)
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
        if workload.is_variant:
            return VARIANT
        if workload.inadmissible is not None and not _is_held_back(workload):
            return workload.inadmissible.message or NOT_WAITING
        if not queue.activity.active or queue.in_cycle:
            return INACTIVE
        if queue.domain is not None and (why := self._why_not_played(queue.domain)):
            return why
        if workload.family is not None and (why := self._why_no_family(queue, workload.family)):
            return why
        if not self._can_fit(queue, workload):
            return TOO_LARGE
        return ""

    def _why_not_played(self, domain: Domain) -> str:
        """Why no start in the cohort tree can be known; "": it can."""
        if any(queue.lanes is not None for queue in domain.queues):
            return USAGE
        return PLAN if domain.plan_quotas else ""

    def _why_no_family(self, queue: Queue, family: FamilyInfo) -> str:
        """Why the start of a family that waits cannot be known; "": it can."""
        if family.state is None or why_busy(family) or admitted_name(family):
            return MIGRATION
        desired = desired_states(self._state, queue, family)
        waits = [
            variant.key[1] in desired and desired[variant.key[1]].active and info.active
            for variant, info in family.variants.items()
        ]
        if not all(waits) or any(tag not in self._tags(family) for tag in queue.tags):
            return FAMILY
        return ""

    @staticmethod
    def _tags(family: FamilyInfo) -> set[str]:
        return {info.tag for info in family.variants.values()}

    def rows(self, name: str, errors: dict[Key, Exception] | None = None) -> Rows | None:
        """The tree with this name now; None: it does not exist, or its order cannot be played.
        ``errors``: gets the exceptions of workloads that have no row, because their data raise
        one."""
        domain = self._state.domains.get(name)
        if domain is None or self._why_not_played(domain):
            return None
        failed = {} if errors is None else errors
        rules: dict[str, QueueRules] = {}
        waiting: list[Waiting] = []
        holding: list[Holding] = []
        for queue in domain.queues:
            if queue.node is None or queue.plan is None:
                continue
            rules[queue.name] = self._rules(queue, queue.node, queue.plan)
            holding += self._holding(queue, failed)
            if queue.activity.active and not queue.in_cycle:
                waiting += self._waiting(queue, queue.node, failed)
        persons = {(row.queue, row.source.user): row.persons for row in holding if row.persons}
        persons |= {(row.queue, row.source.user): row.persons for row in waiting if row.persons}
        fair = self._config.fair_sharing
        return Rows(
            rules,
            waiting,
            holding,
            persons,
            strategies=None if fair is None else fair.strategies,
            migrates=any(
                variant.is_variant and variant.family and variant.family.admitted() is not None
                for queue in domain.queues
                if queue.variants
                for variant in queue.waiting()
            ),
        )

    def _rules(self, queue: Queue, node: Node, plan: FlavorPlan) -> QueueRules:
        young = self._state.min_runs.of(queue.name, "")
        checks = (
            controller
            for group in plan.groups.values()
            for option in group.options
            for controller, _ in option.checks
        )
        return QueueRules(
            node,
            strict=queue.strict,
            tries_next=plan.borrow_next,
            policy=plan.policy,
            preempts_first=not plan.preempt_next,
            borrow_preempts=plan.borrow_preempts,
            spared=young.least.total_seconds() if young and young.is_required else 0.0,
            backfill=queue.backfill,
            begins_at_once=all(controller == MACHINES_CONTROLLER for controller in checks),
            is_active=queue.activity.active,
        )

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
            job_of(workload).seconds_left,
            _persons_of(queue, workload),
            is_checked=workload.admitted_at is None,
            is_leaving=workload.is_leaving,
            again=self._again(queue, workload),
        )

    def _again(self, queue: Queue, workload: WorkloadInfo) -> Waiting | None:
        """A workload with quota, as it waits again after a preemption; None: it does not."""
        if queue.node is None or (workload.is_leaving and workload.preempted_by is None):
            return None
        return self._waiting_row(queue, queue.node, workload)

    def _waiting(self, queue: Queue, node: Node, errors: dict[Key, Exception]) -> Iterator[Waiting]:
        for workload in queue.waiting():
            if workload.is_variant or (workload.inadmissible and not _is_held_back(workload)):
                continue
            try:
                row = self._waiting_row(queue, node, workload)
            except Exception as error:
                errors[workload.key] = error
            else:
                if row is not None:
                    yield row

    def _waiting_row(self, queue: Queue, node: Node, workload: WorkloadInfo) -> Waiting | None:
        if workload.is_variant or workload.shape is None or workload.queued_at is None:
            return None
        family = workload.family
        if family is not None and self._why_no_family(queue, family):
            return None
        choices = self._choices.of_workload(queue, workload)
        if choices is None or not (queue.strict or fits_ever(node, choices)):
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
        if queue.node is None:
            return False
        choices = self._choices.of_workload(queue, workload)
        return choices is not None and fits_ever(queue.node, choices)


def _is_held_back(workload: WorkloadInfo) -> bool:
    """Whether the workload waits for a promised start only, which is played."""
    alone = workload.inadmissible
    return alone is not None and alone.reason == reasons.WAITING_FOR_PROMISED_START


def _persons_of(queue: Queue, workload: WorkloadInfo) -> tuple[Person, ...]:
    return () if queue.limits is None else queue.limits.persons_of(workload)
