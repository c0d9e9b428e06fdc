"""The metrics of workloads, counted from the commits of a leader: docs/spec/lifecycle.md#8.

The metrics are derived from each written workload, before and after the write, and from the
outcomes of verdicts without effect. The labels of the metrics are only names of existing objects
and fixed words, so their number is limited.

A family of workloads counts as one workload, by its parent. Variants count only in the metrics of
verdicts, since checks judge variants.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import msgspec

from admittance.api.workload import CheckState, EvictionCount
from admittance.control.commit import LogMessage
from admittance.control.controller import Controller
from admittance.events import reasons
from admittance.events.requests.history import SettledReply
from admittance.events.system import DeadLetterReason
from admittance.quota.catalog import is_check_active
from admittance.runtime.telemetry.metrics import SIZES, Counter, Histogram, Metric, gauge
from admittance.workload.conditions import Type, find
from admittance.workload.stored import VARIANT, StoredWorkload, head, priority_class
from admittance.workload_controller.lifecycle_metrics import (
    LifecycleMetrics,
    Place,
    QueueCounter,
    metrics_of,
    seconds_between,
)

REPORTED: Final = "admit.check.reported."
UNKNOWN: Final = ""
"""The label that stands for an AdmissionCheck that does not exist."""
ERRORS: Final = (
    reasons.NO_SUCH_CHECK,
    reasons.OTHER_CONTROLLER,
    reasons.UNKNOWN_STATE,
    reasons.BAD_DELAY,
    reasons.BAD_PLACEMENT,
    reasons.BAD_UPDATES,
    "Undecodable",
)
"""The reasons of verdicts without effect that are errors of a check controller. Their counters
begin at 0, so that an alert sees the first error."""


CHECK_ACTIVE: Final = gauge(
    "admission_check_active",
    "1 if the controller of the AdmissionCheck can judge, 0 if its heartbeats are missing, "
    "or the condition Active has another reason",
    ("check", "controller"),
)


def active_checks(controller: Controller) -> dict[tuple[str, ...], float]:
    """The values of the gauge `CHECK_ACTIVE`, read from the stored AdmissionChecks."""
    return {
        (check.metadata.name, check.spec.controller_name): int(is_check_active(check))
        for check in controller.objects.of_kind("admissioncheck")
    }


class _Named(msgspec.Struct):
    check: str = ""


_named = msgspec.json.Decoder(_Named)


class WorkloadMetrics:
    """The workload metrics of one process, summed over all periods in which the process leads."""

    def __init__(self) -> None:
        check = ("check", "controller", "cluster_queue")
        self.retries = Counter(
            "check_retries", "Verdicts Retry, and checks without a verdict in time", check
        )
        self.delays = Histogram(
            "check_retry_delay_seconds", "The delay of such a verdict; 0: at once", check
        )
        self.check_wait = Histogram(
            "check_ready_wait_time_seconds",
            "From the reservation until the verdict Ready of the check",
            check,
        )
        self.rejections = Counter("check_rejections", "Workloads that a check rejected", check)
        self.stale = Counter(
            "stale_check_updates",
            "Verdicts without effect: Stale (of an earlier cycle), Repeated, NoSuchCheck, "
            "OtherController, NoReservation, UnknownState, BadDelay, BadUpdates, Undecodable",
            ("check", "why"),
            start=[(UNKNOWN, why) for why in ERRORS],
        )
        self.clamped = Counter(
            "clamped_retry_delays", "Verdicts Retry with a delay that was cut to the longest", check
        )
        self.dead = Counter(
            "dead_letters",
            "Messages on the log that are no valid fact, by reason",
            ("reason",),
            start=[(reason,) for reason in DeadLetterReason],
        )
        self.batches = Histogram("commit_facts", "How many facts one commit applied", (), SIZES)
        self.durations = Histogram("commit_duration_seconds", "How long one commit took", ())
        self.conflicts = Counter(
            "commit_conflicts", "Workloads that another writer had changed before a commit", ()
        )
        self.forced = Counter(
            "forced_releases",
            "Quota freed without a report that the job had stopped",
            ("cluster_queue",),
        )
        self.evicted = QueueCounter(
            "evicted_workloads", "Evictions", ("reason", "underlying_cause")
        )
        self.evicted_once = Counter(
            "evicted_workloads_once",
            "Workloads that were evicted at least once for this reason",
            ("cluster_queue", "reason", "underlying_cause", "priority_class"),
        )
        self.lifecycle = LifecycleMetrics()
        self.cohort_admitted = Counter(
            "cohort_subtree_admitted_workloads",
            "Admissions in all ClusterQueues below the cohort",
            ("cohort", "priority_class"),
        )
        self.migrations = Counter(
            "migrations", "Families that moved to a better variant", ("cluster_queue", "from", "to")
        )
        self.refused_requests = Counter(
            "refused_user_requests", "Requests of people that were refused, and why", ("reason",)
        )

    @property
    def metrics(self) -> tuple[Metric, ...]:
        return *metrics_of(self), *metrics_of(self.lifecycle)

    def written(
        self, controller: Controller, before: StoredWorkload | None, after: StoredWorkload
    ) -> None:
        """Counts what the write of a workload changed. ``before``, ``after``: the workload before
        and after the write."""
        status = after.status
        for say in status.log.says:
            match say.what:
                case "admitted":
                    self._admitted(controller, after)
                case "rejected" if say.detail:
                    queue = _queue(controller, before, after)
                    self.rejections.add((say.detail, _controller(controller, say.detail), queue))
                case "noted" if say.reason == reasons.RETRY_DELAY_CLAMPED:
                    queue = _queue(controller, before, after)
                    self.clamped.add((say.detail, _controller(controller, say.detail), queue))
                case "noted" if say.reason == reasons.FORCED_RELEASE:
                    self.forced.add((_queue(controller, before, after),))
        if before is None:
            return
        came, went = status.admitted_variant, before.status.admitted_variant
        if came and went and came != went:
            queue = _queue(controller, before, after)
            self.migrations.add((queue, _tag(before, went), _tag(after, came)))
        if head(after).role != VARIANT:
            if status.conditions is not before.status.conditions:
                self.lifecycle.stepped(_place(controller, before, after), before, after)
            if status.preempted_by is not before.status.preempted_by:
                self.lifecycle.preempted_by(before, after)
        if status.admission is not None and before.status.admission is None:
            self._reserved(controller, after)
        if status.scheduling_stats is not before.status.scheduling_stats:
            self._evicted(controller, before, after)
        if status.admission_checks is not before.status.admission_checks:
            self._judged(controller, before, after)

    def committed(self, facts: int, seconds: float) -> None:
        """Records one commit: its number of facts and its duration."""
        self.batches.observe((), facts)
        self.durations.observe((), seconds)

    def settled(
        self,
        controller: Controller,
        batch: Iterable[LogMessage],
        outcomes: Mapping[int, SettledReply],
    ) -> None:
        """Counts the facts of a batch that became dead letters, and the verdicts that had no
        effect."""
        if not outcomes:
            return
        for logged in batch:
            reply = outcomes.get(logged.sequence)
            if reply is not None and reply.outcome == "dead-lettered":
                self.dead.add((reply.reason,))
            if reply is None or not reply.reason or not logged.subject.startswith(REPORTED):
                continue
            if reply.outcome == "applied":
                continue
            try:
                check = _named.decode(logged.data).check
            except (msgspec.MsgspecError, UnicodeError, RecursionError):
                check = UNKNOWN
            known = controller.objects.check(check) is not None
            self.stale.add((check if known else UNKNOWN, reply.reason))

    def _admitted(self, controller: Controller, after: StoredWorkload) -> None:
        place = _place(controller, None, after)
        self.lifecycle.admitted.add(place)
        for cohort in _cohorts_above(controller, place.cluster_queue):
            self.cohort_admitted.add((cohort, place.priority_class))
        if not after.status.admission_checks:
            return
        reserved, admitted = find(after, Type.QUOTA_RESERVED), find(after, Type.ADMITTED)
        self.lifecycle.checks_wait.observe(place, seconds_between(reserved, admitted))

    def _evicted(
        self, controller: Controller, before: StoredWorkload, after: StoredWorkload
    ) -> None:
        stats, old = after.status.scheduling_stats, before.status.scheduling_stats
        if stats is None or head(after).role == VARIANT:
            return
        counted = {(e.reason, e.underlying_cause): e.count for e in (old.evictions if old else ())}
        for eviction in stats.evictions:
            more = eviction.count - counted.get((eviction.reason, eviction.underlying_cause), 0)
            if more > 0:
                place = _place(controller, before, after)
                reason, cause = _counted_as(eviction)
                self.evicted.add(place, reason, cause, amount=more)
                self.lifecycle.evicted(place, reason, cause, before, after)
                if eviction.count == more:
                    labels = (place.cluster_queue, reason, cause, place.priority_class)
                    self.evicted_once.add(labels)

    def _reserved(self, controller: Controller, after: StoredWorkload) -> None:
        queue = _queue(controller, None, after)
        self.forced.begin((queue,))
        for row in after.status.admission_checks:
            labels = (row.name, _controller(controller, row.name), queue)
            for counter in (self.retries, self.rejections, self.clamped):
                counter.begin(labels)
            for why in ERRORS:
                self.stale.begin((row.name, why))

    def _judged(
        self, controller: Controller, before: StoredWorkload, after: StoredWorkload
    ) -> None:
        old = {row.name: row for row in before.status.admission_checks}
        counts = after.status.check_retry_counts
        new = {row.name: row for row in after.status.admission_checks}
        for name in {**old, **new}:
            delay = _delay(old.get(name), new.get(name), counts.get(name, 0))
            seconds = _ready_after(after, old.get(name), new.get(name))
            if delay is None and seconds is None:
                continue
            labels = (name, _controller(controller, name), _queue(controller, before, after))
            if delay is not None:
                self.retries.add(labels)
                self.delays.observe(labels, delay)
            if seconds is not None:
                self.check_wait.observe(labels, seconds)


def _tag(parent: StoredWorkload, variant: str) -> str:
    """The label of a variant in metrics: its flavor, or its name if the variant is explicit."""
    return next((row.variant for row in parent.status.variants if row.name == variant), UNKNOWN)


def _counted_as(eviction: EvictionCount) -> tuple[str, str]:
    """The reason and cause under which an eviction is counted. A migration to a better variant has
    its own reason, apart from other evictions.
    """
    if (eviction.reason, eviction.underlying_cause) == (
        reasons.VARIANT_EVICTED,
        reasons.FLAVOR_MIGRATION,
    ):
        return reasons.FLAVOR_MIGRATION, ""
    return eviction.reason, eviction.underlying_cause


def _delay(old: CheckState | None, new: CheckState | None, count: int) -> float | None:
    """The delay that a verdict Retry has caused between the states ``old`` and ``new`` of a check;
    None if the verdict was not Retry."""
    if new is not None and new.state == "Retry":
        moved = old is None or old.state != "Retry"
        if moved or (old is not None and old.last_transition_time != new.last_transition_time):
            return float(new.requeue_after_seconds or 0)
        return None
    # A Retry without a delay begins and ends in one write, so only the number of retries shows it.
    if old is None or old.state == "Retry":
        return None
    return 0.0 if max(count, new.retry_count if new is not None else 0) > old.retry_count else None


def _ready_after(
    workload: StoredWorkload, old: CheckState | None, new: CheckState | None
) -> float | None:
    """Seconds from the workload's quota reservation until the check became Ready; None if the check
    did not become Ready, or if the workload has no reservation."""
    reserved = find(workload, Type.QUOTA_RESERVED)
    if new is None or new.state != "Ready" or (old is not None and old.state == "Ready"):
        return None
    if reserved is None or reserved.status != "True" or new.verdict_cycle is None:
        return None
    return seconds_between(reserved, new)


def _cohorts_above(controller: Controller, cluster_queue: str) -> Iterator[str]:
    """The names of the cohorts above the ClusterQueue, the nearest first."""
    node = controller.catalog.tree.queues.get(cluster_queue)
    above = node.parent if node is not None else None
    while above is not None:
        yield above.name
        above = above.parent


def _controller(controller: Controller, check: str) -> str:
    manifest = controller.objects.check(check)
    return manifest.spec.controller_name if manifest is not None else UNKNOWN


def _queue(controller: Controller, before: StoredWorkload | None, after: StoredWorkload) -> str:
    """The ClusterQueue from which the workload has its quota, or had it before the write; otherwise
    the ClusterQueue in which it waits.
    """
    for workload in (after, before):
        if workload is not None and workload.status.admission is not None:
            return workload.status.admission.cluster_queue
    return controller.queues.cluster_queue(after.metadata.namespace, head(after).queue_name)


def _place(controller: Controller, before: StoredWorkload | None, after: StoredWorkload) -> Place:
    namespace, local = after.metadata.namespace, head(after).queue_name
    exists = bool(controller.queues.cluster_queue(namespace, local))
    return Place(
        _queue(controller, before, after),
        local if exists else "",
        namespace,
        _class(controller, after),
    )


def _class(controller: Controller, workload: StoredWorkload) -> str:
    named = priority_class(workload)
    return named if named and controller.objects.priority_class(named) is not None else ""
