"""Makes the controller's facts from a workload's outbox.

A workload does not change before its outbox is published, so every leader makes the same payload.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from hashlib import blake2b
from typing import Any, Final

import msgspec

from admittance.api.workload import Kept, noted_completions
from admittance.control.commit import Message
from admittance.control.manifests.objects import Objects, parts_of
from admittance.events import facts, reasons
from admittance.events.base import Fact
from admittance.events.codec import encode
from admittance.events.placement import runners_of
from admittance.events.shapes import Admission, EvictedJob, PodSetToRun
from admittance.events.span_ids import check_span_id, run_span_id, span_id_of, with_span
from admittance.events.subjects import subject_of
from admittance.workload.change import with_status
from admittance.workload.checks.pod_set_updates import merged_additions
from admittance.workload.conditions import Type, find_true, is_true
from admittance.workload.due_times import execution_end
from admittance.workload.scripts import script_of
from admittance.workload.stored import PARENT, OutboxEntry, StoredWorkload, head


class _TemplateMeta(Kept, frozen=True, kw_only=True):
    annotations: dict[str, str] = msgspec.field(default_factory=dict)


class _Template(Kept, frozen=True, kw_only=True):
    metadata: _TemplateMeta = _TemplateMeta()


class _PodSet(Kept, frozen=True, kw_only=True):
    name: str = "main"
    count: int = 1
    template: msgspec.Raw = msgspec.Raw(b"{}")


class _PodSets(Kept, frozen=True, kw_only=True):
    pod_sets: tuple[_PodSet, ...] = ()


_pod_sets = msgspec.json.Decoder(_PodSets)
_template = msgspec.json.Decoder(_Template)

_PLAIN: Final[Mapping[str, Callable[..., Fact]]] = {
    "requeued": facts.Requeued,
    "rejected": facts.Rejected,
    "pending": facts.Pending,
    "noted": facts.Noted,
}
"""Facts that have only a reason and a message, by the kind of outbox entry."""


def _span_id(fact: Fact, what: str) -> str:
    """The span that the message belongs to: that of the check, or that of the job's run, so that
    the receiver's own spans are in it; for other messages a span of their own."""
    match fact:
        case facts.CheckRequested():
            return check_span_id(fact.uid, fact.check, fact.cycle)
        case facts.Admitted():
            return run_span_id(fact.uid, fact.revision)
    return span_id_of(fact.uid, what)


def _released(
    workload: StoredWorkload, say: OutboxEntry, common: dict[str, Any], said: dict[str, Any]
) -> Fact | None:
    status = workload.status
    quota = say.released
    admission = (quota.admission if quota is not None else None) or status.admission
    if quota is None or admission is None:
        return None
    ended = is_true(workload, Type.FINISHED)
    preemptor = None if ended else status.preempted_by
    admitted = find_true(workload, Type.ADMITTED) if ended else None
    return facts.QuotaReleased(
        **common,
        **said,
        since=quota.since,
        until=quota.until,
        admission=admission,
        admission_revision=quota.revision,
        ended=ended,
        exit_code=status.exit_code if ended else None,
        queue=head(workload).queue_name,
        submitted_by=status.submitted_by,
        labels=workload.metadata.labels,
        waited_seconds=status.waited_seconds,
        submitted_at=workload.metadata.creation_timestamp,
        machines=quota.machines,
        preempted_by=preemptor.by if preemptor is not None else "",
        preemptor_submitted_by=preemptor.submitted_by if preemptor is not None else "",
        script=script_of(workload.spec),
        admitted_at=admitted.last_transition_time if admitted is not None else None,
        fact=status.log.fact,
    )


def job_to_stop(evicted: StoredWorkload) -> EvictedJob | None:
    """The job that has to stop before the quota of the workload is free. None: the stored workload
    does not say so: it was admitted by the same write, or its family has still to stop."""
    status = evicted.status
    if head(evicted).lease_duration_seconds is not None:
        return EvictedJob()
    if is_true(evicted, Type.ADMITTED):
        if not status.admitted_revision:
            return None
        return EvictedJob(revision=status.admitted_revision, runners=runners_of(status.placement))
    return None if head(evicted).role == PARENT else EvictedJob()


class MessageBuilder:
    """Makes messages from the outbox of a workload.

    ``secret`` keys the message ids: ids are shared by the whole stream, and a guessed id would
    suppress the message. ``workload``: returns the stored workload by namespace and name.
    """

    def __init__(
        self,
        objects: Objects,
        secret: bytes,
        workload: Callable[[str, str], StoredWorkload | None],
    ) -> None:
        self._objects = objects
        self._secret = secret[:64]
        self._workload = workload

    def messages(
        self, workload: StoredWorkload, revision: int, now: datetime, trace: str
    ) -> Iterator[Message]:
        """Returns the messages of the outbox that was written at ``revision``, in order."""
        uid = workload.metadata.uid
        for say in workload.status.log.outbox:
            fact = self._fact(workload, say, revision, now)
            if fact is not None:
                what = f"{uid}/{revision}/{say.what}/{say.detail}"
                yield self.message(fact, what, trace)

    def message(self, fact: Fact, what: str, trace: str) -> Message:
        """Returns the message that publishes a fact. ``what`` identifies the message among all
        messages of the workload-controller. ``trace``: the workload's traceparent."""
        own = with_span(trace, _span_id(fact, what)) if trace else ""
        return Message(subject_of(fact), encode(fact), self.identity(what), own)

    def identity(self, what: str) -> str:
        """Returns the message id of the message that ``what`` identifies. A foreign program cannot
        guess the message id."""
        return blake2b(what.encode(), key=self._secret, digest_size=16).hexdigest()

    def _fact(
        self, workload: StoredWorkload, say: OutboxEntry, revision: int, now: datetime
    ) -> Fact | None:
        meta = workload.metadata
        common: dict[str, Any] = {
            "namespace": meta.namespace,
            "name": meta.name,
            "uid": meta.uid,
            "time": now,
        }
        said: dict[str, Any] = {"revision": revision, "reason": say.reason, "message": say.message}
        match say.what:
            case "quota_reserved":
                return facts.QuotaReserved(**common, **said, admission=workload.status.admission)
            case "admitted":
                return self._admitted(workload, common, said)
            case "requeued" | "rejected" | "pending" | "noted":
                return _PLAIN[say.what](**common, **said)
            case "evicted":
                preempted = reasons.PREEMPTED in (say.reason, say.detail)
                by = workload.status.preempted_by if preempted else None
                return facts.Evicted(
                    **common,
                    **said,
                    preempted_by=by,
                    underlying_cause=say.detail,
                    job=job_to_stop(workload),
                )
            case "quota_released":
                return _released(workload, say, common, said)
            case "check_requested":
                return self._check_requested(workload, say, revision, common)
            case "check_withdrawn":
                check = self._objects.check(say.detail)
                if check is None:
                    return None
                return facts.CheckWithdrawn(
                    **common,
                    controller=check.spec.controller_name,
                    check=say.detail,
                    cycle=say.cycle,
                    reason=say.reason,
                )
        # A newer version or another program has written the outbox entry, so this version cannot
        # publish it.
        return None

    def _admitted(
        self, workload: StoredWorkload, common: dict[str, Any], said: dict[str, Any]
    ) -> Fact | None:
        admission = workload.status.admission
        if admission is None:
            return None
        return facts.Admitted(
            **common,
            **said,
            cluster_queue=admission.cluster_queue,
            queue=head(workload).queue_name,
            submitted_by=workload.status.submitted_by,
            pod_sets=tuple(self._to_run(workload, admission)),
            ends_at=execution_end(workload),
            restarts=workload.status.restarts,
            held=head(workload).lease_duration_seconds is not None,
        )

    def _to_run(self, workload: StoredWorkload, admission: Admission) -> Iterator[PodSetToRun]:
        assigned = {row.name: row for row in admission.pod_set_assignments}
        judged = self._judged(workload)
        added, _ = merged_additions(judged, lambda name: parts_of(self._objects, name))
        placement = workload.status.placement
        for pod_set in _pod_sets.decode(workload.spec).pod_sets:
            got = assigned.get(pod_set.name)
            if got is None:
                continue
            more = added[pod_set.name]
            yield PodSetToRun(
                name=pod_set.name,
                count=got.count,
                completions=noted_completions(
                    _template.decode(pod_set.template).metadata.annotations
                ),
                flavors=got.flavors,
                labels=dict(more.labels),
                annotations=dict(more.annotations),
                node_selector=dict(more.node_selector),
                tolerations=more.tolerations,
                template=pod_set.template,
                parts=tuple(part for part in placement if part.pod_set == pod_set.name),
            )

    def _judged(self, workload: StoredWorkload) -> StoredWorkload:
        """Returns the workload with the rows of its checks. A parent gets the rows of its admitted
        variant, which was written in the same batch."""
        name = workload.status.admitted_variant
        variant = self._workload(workload.metadata.namespace, name) if name else None
        if variant is None:
            return workload
        return with_status(workload, admission_checks=variant.status.admission_checks)

    def _check_requested(
        self, workload: StoredWorkload, say: OutboxEntry, revision: int, common: dict[str, Any]
    ) -> Fact | None:
        check = self._objects.check(say.detail)
        if check is None or self._objects.missing_parameters(check):
            # A request to the check is sent later, when its parameters object is created.
            return None
        row = next(
            (row for row in workload.status.admission_checks if row.name == say.detail), None
        )
        shown = {"metadata": {"labels": workload.metadata.labels}, "spec": workload.spec}
        return facts.CheckRequested(
            **common,
            controller=check.spec.controller_name,
            check=say.detail,
            cycle=workload.status.admission_cycle,
            retry_count=row.retry_count if row is not None else 0,
            revision=revision,
            parameters=msgspec.Raw(self._objects.parameters(check)),
            admission=workload.status.admission,
            workload=msgspec.Raw(encode(shown)),
        )
