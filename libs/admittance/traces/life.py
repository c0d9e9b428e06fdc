"""The life of one workload as spans: what each fact begins and ends.

A workload is in one *stage* at a time, which is a span: in the queue, with a reservation, admitted,
waiting to be requeued, or inactive. The facts of the workload-controller end and begin stages;
facts of other programs begin and end the spans in them. A variant of a family is a life of its own
inside the span of its parent; its job is the parent's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from admittance.events import facts, reasons
from admittance.events.base import Fact
from admittance.events.placement import runners_of
from admittance.events.shapes import Admission
from admittance.events.span_ids import run_span_id, span_id_of
from admittance.events.subjects import user_of
from admittance.traces.recorder import OpenSpan, Recorder, messaging
from admittance.traces.spans import Attribute, Kind, LoggedFact, SpanLink, Status
from admittance.workload.moves.parts import PartFact, end_of_job, note_part
from admittance.workload.stored import JobParts

QUEUE: Final = "queue"
RESERVATION: Final = "reservation"
ADMISSION: Final = "admission"
REQUEUE: Final = "requeue"
INACTIVE: Final = "inactive"
BACKOFFS: Final = (reasons.ADMISSION_CHECK, reasons.PODS_READY_TIMEOUT)
"""Reasons of workloads that wait for a time before they are requeued."""

LinkTo = Callable[[str, str, str], SpanLink | None]
"""Returns a link to the span of another workload, from its namespace, name and uid; None if its
trace is not known."""


class Decided(NamedTuple):
    """A decision of the scheduler that the workload-controller has not yet applied or dropped, as
    far as the facts show.
    """

    logged: LoggedFact
    fact: facts.Assigned | facts.Refused


class Life:
    """``common``: the attributes that every span of the workload gets. ``uid``: the uid of the
    workload, derived from its submission. ``wire_uid``: the uid in the facts about the workload; ""
    before the first one. ``revision``: the workload's revision in the newest fact of the
    workload-controller. ``again``: a later submission of the same workload name, which takes effect
    if this workload is gone. ``ended``: the workload finished, or was deleted or refused.
    """

    def __init__(
        self,
        recorder: Recorder,
        root: OpenSpan,
        uid: str,
        *,
        common: dict[str, Attribute],
        parent: Life | None = None,
    ) -> None:
        self.recorder = recorder
        self.root = root
        self.common = common
        self.uid = uid
        self.wire_uid = ""
        self.parent = parent
        self.variants: dict[str, Life] = {}
        self.again: LoggedFact | None = None
        self.revision = 0
        self.ended = False
        self.stage: OpenSpan | None = None
        self.checks: dict[str, OpenSpan] = {}
        self.requests: dict[str, OpenSpan] = {}
        self.admitted_revision = 0
        self._parts = JobParts()
        self._part_count = 0
        self._decided: Decided | None = None
        self._evicted_revision = 0
        self._start: OpenSpan | None = None
        self._run: OpenSpan | None = None
        self._eviction: OpenSpan | None = None
        self._deleting = False
        self._runs = 0

    # Spans. ---------------------------------------------------------------------------------

    @property
    def place(self) -> OpenSpan:
        """The span of the workload's present stage; without a stage, the workload's own span."""
        return self.stage or self.root

    def open(
        self,
        name: str,
        logged: LoggedFact,
        parent: OpenSpan,
        *,
        span_id: str = "",
        kind: Kind = Kind.INTERNAL,
    ) -> OpenSpan:
        """Begins a span at the time of the message. With ``span_id`` "", the span's id is derived
        from the message's sequence.
        """
        own = span_id or span_id_of(self.uid, name, logged.sequence)
        span = self.recorder.open(name, own, parent, kind)
        span.attributes |= self.common
        span.attributes |= messaging(logged, kind)
        return span

    def enter(self, name: str, logged: LoggedFact) -> OpenSpan | None:
        """Ends the workload's present stage and begins another stage. An inactive variant gets no
        span for the stage, because the policy for variants makes variants inactive.
        """
        self.leave()
        if name != INACTIVE or self.parent is None:
            self.stage = self.open(name, logged, self.root)
        return self.stage

    def leave(self, status: Status = Status.UNSET) -> None:
        """Ends the span of the workload's present stage."""
        if self.stage is not None:
            self.recorder.close(self.stage, status)
        self.stage = self._start = self._run = self._eviction = None
        self._runs = 0
        self.checks = {name: check for name, check in self.checks.items() if not check.ended}
        self.requests = {
            name: request for name, request in self.requests.items() if not request.ended
        }

    def end(self, outcome: str, status: Status = Status.UNSET, message: str = "") -> None:
        """Ends the trace of the workload, or of the variant."""
        self.ended = True
        self.leave()
        self.root.set(outcome=outcome)
        self.recorder.close(self.root, status, message)

    # Facts. ---------------------------------------------------------------------------------

    def take(self, logged: LoggedFact, fact: Fact, link_to: LinkTo) -> None:
        """Begins and ends the spans that a fact about the workload begins and ends. A fact without
        an effect on the workload changes no span, or becomes an event of a span.
        """
        if isinstance(fact, facts.CommitFact) and fact.revision:
            if fact.revision < self.revision:
                return  # the fact was published again after a crash
            self.revision = fact.revision
        match fact:
            case facts.Decision(revision=revision) if revision < self.revision:
                pass  # the decision is about an earlier state of the workload, so it has no effect
            case facts.Assigned() | facts.Refused():
                self._decided = Decided(logged, fact)
            case facts.Confirmed() | facts.Revoked() | facts.Planned():
                self._on_recheck(logged, fact, link_to)
            case facts.QuotaReserved():
                self._on_reserved(logged, fact, link_to)
            case facts.Pending():
                self._on_pending(logged, fact, link_to)
            case facts.Requeued():
                self._on_requeued(logged, fact)
            case facts.Admitted():
                self._on_admitted(logged, fact)
            case facts.Evicted():
                self._on_evicted(logged, fact, link_to)
            case facts.Preempted():
                if self.parent is not None:
                    self._on_preempted(fact, link_to)
            case _:
                self._of_programs(logged, fact)

    def _of_programs(self, logged: LoggedFact, fact: Fact) -> None:
        match fact:
            case facts.Started(revision=revision):
                if self._is_of_admission(revision):
                    self._on_started(logged)
            case facts.PodsReady(revision=revision):
                if self._is_of_admission(revision):
                    self._on_started(logged)
                    if self._run is not None:
                        self.recorder.event(self._run, "pods_ready")
            case facts.PodsNotReady(revision=revision, message=message):
                if self._run is not None and self._is_of_admission(revision):
                    self.recorder.event(self._run, "pods_not_ready", message=message)
            case facts.PodsFailed(revision=revision, retries=retries):
                if self._run is not None and self._is_of_admission(revision):
                    self.recorder.event(self._run, "pods_failed", message=retries.message)
            case facts.Finished() | facts.Stopped():
                whole = self._of_all_parts(fact)
                if isinstance(whole, facts.Finished):
                    self._on_finished(logged, whole)
                elif isinstance(whole, facts.Stopped):
                    self._on_stopped(logged, whole)
            case facts.Deleted():
                self._deleting = self.stage is not None and self.stage.name == ADMISSION
                if not self._deleting:
                    self.end(reasons.DELETED)
            case facts.Rejected(reason=reason, message=message):
                self.recorder.event(self.root, "rejected", reason=reason, message=message)
            case facts.Noted(reason=reason, message=message):
                self.recorder.event(self.place, "noted", reason=reason, message=message)
                if self._deleting and reason == reasons.FORCED_RELEASE:
                    self.end(reasons.DELETED)
            case facts.Activated(reason=reason) | facts.Deactivated(reason=reason):
                self._on_request(logged, fact, reason=reason)
            case facts.Reprioritized(priority=priority):
                self._on_request(logged, fact, priority=priority)
            case facts.Held() | facts.Released() | facts.Ungated():
                self._on_request(logged, fact)

    def _on_request(self, logged: LoggedFact, fact: Fact, **given: Attribute) -> None:
        name = type(fact).__name__.lower()
        self.recorder.event(self.place, name, user=user_of(logged.subject), **given)

    # The scheduler. -------------------------------------------------------------------------

    def _attempt(self, logged: LoggedFact, fact: facts.Decision, **given: Attribute) -> OpenSpan:
        """Begins the span of a scheduler's decision. `_over` ends the span, which lasts from the
        time when the scheduler made the decision, if the clocks agree, to the time when the
        decision was stored.
        """
        return self.open("attempt", logged, self.place).set(domain=fact.domain, **given)

    def _over(self, span: OpenSpan, logged: LoggedFact, fact: facts.Decision) -> None:
        # Any program may have published the decision, so its time may have no zone.
        made = fact.time if fact.time is not None and fact.time.tzinfo else logged.time
        self.recorder.close_between(span, made, logged.time)

    def _decision_applied(self, link_to: LinkTo) -> bool:
        """Records the span of the scheduler's decision that the workload-controller has just
        applied, if there was such a decision. Returns False if no decision of the scheduler was
        applied.
        """
        if self._decided is None or self.stage is None or self.stage.name != QUEUE:
            return False
        logged, fact = self._decided
        self._decided = None
        if isinstance(fact, facts.Assigned):
            span = self._attempt(logged, fact, outcome="assigned", message=fact.message)
            span.set(**of_admission(fact.admission), borrowing_level=fact.level or None)
            pending = fact.pending_preemption
            victims = [(victim.namespace, victim.name, victim.uid) for victim in fact.preempts]
            victims += [(v.namespace, v.name, v.uid) for v in (pending.victims if pending else ())]
            if fact.migrates_from is not None:
                span.set(migrates_from=fact.migrates_from.name)
            self._preempts(span, victims, link_to)
        else:
            refusal = fact.refusal
            span = self._attempt(logged, fact, outcome="refused")
            span.set(reason=refusal.reason, message=refusal.message)
        self._over(span, logged, fact)
        return True

    def _preempts(
        self, span: OpenSpan, victims: Iterable[tuple[str, str, str]], link_to: LinkTo
    ) -> None:
        named = []
        for namespace, name, uid in victims:
            named.append(f"{namespace}/{name}")
            self.recorder.link(span, link_to(namespace, name, uid))
        span.set(preempts=tuple(named))

    def _on_recheck(
        self,
        logged: LoggedFact,
        fact: facts.Confirmed | facts.Revoked | facts.Planned,
        link_to: LinkTo,
    ) -> None:
        if not self._has_quota:
            return
        match fact:
            case facts.Confirmed():
                span = self._attempt(logged, fact, outcome="confirmed")
            case facts.Revoked(reason=reason, message=message):
                span = self._attempt(logged, fact, outcome="revoked", reason=reason)
                span.set(message=message)
            case facts.Planned(pending_preemption=plan):
                span = self._attempt(logged, fact, outcome="preempts" if plan.issued else "planned")
                victims = [(victim.namespace, victim.name, victim.uid) for victim in plan.victims]
                self._preempts(span, victims, link_to)
        self._over(span, logged, fact)

    def _on_preempted(self, fact: facts.Preempted, link_to: LinkTo) -> None:
        """Records the preemption of a variant: only the fact `Preempted` reports it, because the
        eviction is published for the variant's parent.
        """
        namespace, _, name = fact.by.partition("/")
        link = link_to(namespace, name, fact.by_uid)
        given = {"by": fact.by, "rule": fact.reason, "message": fact.message}
        self.recorder.event(self.place, "preempted", **given)
        self.recorder.link(self.place, link)

    # The workload-controller. ---------------------------------------------------------------

    def _on_reserved(self, logged: LoggedFact, fact: facts.QuotaReserved, link_to: LinkTo) -> None:
        self._decision_applied(link_to)
        self._lose(logged)
        span = self.enter(RESERVATION, logged)
        if span is not None and fact.admission is not None:
            span.set(**of_admission(fact.admission))
            self.root.set(cluster_queue=fact.admission.cluster_queue)

    def _on_pending(self, logged: LoggedFact, fact: facts.Pending, link_to: LinkTo) -> None:
        shown = self._decision_applied(link_to)
        after = stage_after(fact.reason)
        name = self.stage.name if self.stage is not None else ""
        if self._has_quota:
            self._lose(logged, fact.reason, fact.message)
            name = ""
        if not name or (name != after and after != QUEUE):
            self.enter(after, logged)
            self.place.set(reason=fact.reason, message=fact.message)
        elif not shown:
            self.recorder.event(self.place, "pending", reason=fact.reason, message=fact.message)

    def _on_requeued(self, logged: LoggedFact, fact: facts.Requeued) -> None:
        name = self.stage.name if self.stage is not None else ""
        if name == QUEUE:
            self.recorder.event(self.place, "requeued", reason=fact.reason)
            return
        self._lose(logged, fact.reason, fact.message)
        if name not in (REQUEUE, INACTIVE) and self.parent is None:
            self.enter(REQUEUE, logged)
            self.place.set(reason=fact.reason, message=fact.message)
        self.enter(QUEUE, logged)

    def _on_admitted(self, logged: LoggedFact, fact: facts.Admitted) -> None:
        if fact.revision == self.admitted_revision and self.stage is not None:
            return
        variant = self._admitted_variant(fact)
        if variant is not None:
            variant.leave(Status.OK)
        if self.stage is not None and self.stage.name == RESERVATION:
            self.leave(Status.OK)
        self.admitted_revision = fact.revision
        self._parts = JobParts()
        self._part_count = len(
            runners_of(part for pod_set in fact.pod_sets for part in pod_set.parts)
        )
        self._lose(logged)
        span = self.enter(ADMISSION, logged)
        assert span is not None, "a variant is not admitted itself"
        flavors = (pod_set.flavors for pod_set in fact.pod_sets)
        span.set(
            cluster_queue=fact.cluster_queue,
            flavors=flavors_of(flavors),
            variant=variant.common.get("admittance.variant") if variant is not None else None,
            revision=fact.revision,
        )
        self.root.set(cluster_queue=fact.cluster_queue)
        self._start = self.open("start", logged, span, kind=Kind.PRODUCER)

    def _admitted_variant(self, fact: facts.Admitted) -> Life | None:
        """The variant with the quota that the parent uses: the one that the message names, or the
        last one with a reservation."""
        reserved = [
            (name, variant)
            for name, variant in self.variants.items()
            if variant.stage is not None and variant.stage.name == RESERVATION
        ]
        words = fact.message.split()
        named = [variant for name, variant in reserved if name in words]
        return next(iter(named), reserved[-1][1] if reserved else None)

    def _on_evicted(self, logged: LoggedFact, fact: facts.Evicted, link_to: LinkTo) -> None:
        if self._eviction is not None or not self._has_quota:
            return
        span = self._eviction = self.open("eviction", logged, self.place, kind=Kind.PRODUCER)
        span.set(reason=fact.reason, underlying_cause=fact.underlying_cause, message=fact.message)
        if fact.preempted_by is not None:
            by = fact.preempted_by
            span.set(preempted_by=by.by, rule=by.rule)
            namespace, _, preemptor = by.by.partition("/")
            self.recorder.link(span, link_to(namespace, preemptor, by.by_uid))
        self._evicted_revision = fact.revision
        if self.place.name == RESERVATION:
            self.leave()

    @property
    def _has_quota(self) -> bool:
        return self.stage is not None and self.stage.name in (RESERVATION, ADMISSION)

    def _lose(self, logged: LoggedFact, reason: str = "", message: str = "") -> None:
        """Ends a reservation or an admission: its quota is free. ``reason``: why the reservation or
        admission ended, if no eviction was published.
        """
        if not self._has_quota:
            return
        if reason and self._eviction is None:
            eviction = self.open("eviction", logged, self.place).set(reason=reason, message=message)
            self.recorder.close(eviction)
        self.leave()

    # The runner and users. ------------------------------------------------------------------

    def _is_of_admission(self, revision: int) -> bool:
        """Whether a runner's fact is about the present admission."""
        admitted = self.stage is not None and self.stage.name == ADMISSION
        return admitted and revision in (0, self.admitted_revision)

    def _on_started(self, logged: LoggedFact) -> None:
        if self._start is not None:
            self.recorder.close(self._start)
            self._start = None
        if self._run is None and self.stage is not None:
            # A job that its runner starts again runs for the same admission.
            own = "" if self._runs else run_span_id(self.uid, self.admitted_revision)
            self._run = self.open("run", logged, self.stage, span_id=own)
            self._runs += 1

    def _of_all_parts(self, fact: facts.Finished | facts.Stopped) -> PartFact | None:
        """The report about the whole job; None: of a job on several machines other parts still
        run."""
        if not fact.part:
            return fact
        self._parts = note_part(self._parts, fact)
        if len(self._parts.over) < self._part_count:
            return None
        return end_of_job(self._parts, fact, self.admitted_revision, self._part_count)

    def _on_stopped(self, logged: LoggedFact, fact: facts.Stopped) -> None:
        if self.stage is None or self.stage.name != ADMISSION:
            return
        if fact.revision not in (0, self.admitted_revision, self._evicted_revision):
            return
        if self._eviction is not None:
            self.leave()
            if self._deleting:
                self.end(reasons.DELETED)
            return
        again = fact.gives_back
        if self._run is not None:
            self._run.set(reason=fact.reason)
            status = Status.UNSET if again else Status.ERROR
            self.recorder.close(self._run, status, fact.message or fact.reason)
            self._run = None
        if again and self._start is None:
            self._start = self.open("start", logged, self.stage)

    def _on_finished(self, logged: LoggedFact, fact: facts.Finished) -> None:
        if 0 < fact.revision < self.admitted_revision:
            return
        status = Status.OK if fact.succeeded else Status.ERROR
        reason = fact.reason or (reasons.SUCCEEDED if fact.succeeded else reasons.FAILED)
        message = "" if fact.succeeded else fact.message or reason
        if self._run is not None:
            self._run.set(exit_code=fact.exit_code)
            self.recorder.close(self._run, status, message)
            self._run = None
        self.root.set(reason=reason, message=fact.message, finished_by=user_of(logged.subject))
        self.end(reasons.SUCCEEDED if fact.succeeded else reasons.FAILED, status, message)


def stage_after(reason: str) -> str:
    """The stage of a workload that is pending for the reason."""
    if reason in BACKOFFS:
        return REQUEUE
    return INACTIVE if reason.startswith(reasons.DEACTIVATED) else QUEUE


def of_admission(admission: Admission) -> dict[str, Attribute]:
    """The attributes that say where the quota is."""
    flavors = (assignment.flavors for assignment in admission.pod_set_assignments)
    return {"cluster_queue": admission.cluster_queue, "flavors": flavors_of(flavors)}


def flavors_of(pod_sets: Iterable[dict[str, str]]) -> tuple[str, ...]:
    """The flavor of each resource as ``resource=flavor``."""
    pairs = (f"{resource}={flavor}" for pod_set in pod_sets for resource, flavor in pod_set.items())
    return tuple(dict.fromkeys(pairs))
