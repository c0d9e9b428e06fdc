"""One workload in the pure state machine: facts happen to it, each write at the next revision.
Every change is held against the table of moves and the invariants of docs/spec/lifecycle.md#1.4.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from admittance.control.workloads import with_own_revision
from admittance.events import facts
from admittance.events.base import Fact
from admittance.workload.change import FactOutcome
from admittance.workload.due_times import due_times, marks_of
from admittance.workload.moves.requests import Arrived
from admittance.workload.phase import Phase, phase
from admittance.workload.stored import OutboxEntry, StoredWorkload, WorkloadStatus, encode
from admittance.workload.transition_context import InactiveReason, QueueChanged
from admittance.workload.transitions import MOVES, transition
from support.builders import NOON, Around, an_admission, an_arrival, conditions_of, occasion
from support.cores.lifecycle_invariants import Watch

ME: dict[str, Any] = {"namespace": "ns", "name": "w"}
STOP = InactiveReason("Suspended", "ClusterQueue cq is stopped", True, "ClusterQueueStopped")
HOLD = STOP._replace(drains=False)


class TrackedWorkload:
    """``outbox``: what the last fact led to; ``outbox_kinds``: its names. ``outcome``,
    ``reason``, ``why``: of the last fact."""

    def __init__(
        self,
        around: Around | None = None,
        *,
        annotations: dict[str, str] | None = None,
        now: datetime = NOON,
        **spec: Any,
    ) -> None:
        self.around = around or Around()
        self.workload: StoredWorkload | None = None
        self.revision = 0
        self.now = now
        self.outbox_kinds: list[str] = []
        self.outbox: tuple[OutboxEntry, ...] = ()
        self.outcome = FactOutcome.APPLIED
        self.reason = self.why = ""
        self.flavor = "default"
        self._watch = Watch(lambda *_: self.around.stopped is not None)
        self.happens(an_arrival(annotations=annotations, **spec))

    def happens(self, fact: Fact) -> TrackedWorkload:
        self.revision += 1
        before = None if self.workload is None else self.phase
        change = transition(self.workload, fact, occasion(self.revision, self.now, self.around))
        self.outcome, self.reason, self.why = change.outcome, change.reason, change.message
        if change.outcome is FactOutcome.APPLIED:
            self.workload = change.workload and with_own_revision(change.workload, self.revision)
            if before is not None:
                self._is_a_way(before, fact)
            self._watch.saw("w", self.workload, self.now)
            self._is_marked()
        self.outbox = change.outbox
        self.outbox_kinds = [entry.what for entry in change.outbox]
        return self

    def _is_marked(self) -> None:
        """The retry-timer decodes every workload that has a due time."""
        if self.workload is not None and due_times(self.workload, self.now, self.around):
            value = encode(self.workload)
            assert any(mark in value for mark in marks_of(self.around.limits))

    def _is_a_way(self, before: Phase, fact: Fact) -> None:
        if isinstance(fact, Arrived):
            return
        after = None if self.workload is None else self.phase
        allowed = {way.to for way in MOVES[(before, type(fact))].ways}
        kind = type(fact).__name__
        assert after in allowed, f"{before} -> {after} by {kind}, the table has {allowed}"

    # What it is now. ------------------------------------------------------------------------

    @property
    def stored(self) -> StoredWorkload:
        assert self.workload is not None
        return self.workload

    @property
    def status(self) -> WorkloadStatus:
        return self.stored.status

    @property
    def phase(self) -> Phase:
        return phase(self.stored, self.now)

    @property
    def conditions(self) -> dict[str, tuple[str, str]]:
        return conditions_of(self.stored)

    def message(self, kind: str) -> str:
        return next(
            condition.message for condition in self.status.conditions if condition.type == kind
        )

    @property
    def states(self) -> dict[str, str]:
        return {row.name: row.state for row in self.status.admission_checks}

    @property
    def counts(self) -> dict[str, int]:
        return {row.name: row.retry_count for row in self.status.admission_checks}

    @property
    def wait(self) -> float | None:
        """Seconds from now to requeueAt; None: requeueAt is not set."""
        state = self.status.requeue_state
        if state is None or state.requeue_at is None:
            return None
        return (state.requeue_at - self.now).total_seconds()

    def noted(self) -> dict[str, str]:
        """The ``noted`` events that the last fact caused, as reason to message."""
        return {entry.reason: entry.message for entry in self.outbox if entry.what == "noted"}

    # What happens. --------------------------------------------------------------------------

    def assigned(self, flavor: str = "") -> TrackedWorkload:
        self.flavor = flavor or self.flavor
        return self.happens(
            facts.Assigned(
                **ME,
                revision=self.revision,
                seen=0,
                domain="queue-cq",
                admission=an_admission(flavor=self.flavor),
            )
        )

    def admitted(self, flavor: str = "") -> TrackedWorkload:
        self.assigned(flavor)
        for name in sorted(self.states):
            self.verdict(name, "Ready")
        if self.states:
            self.confirmed()
        assert self.phase is Phase.ADMITTED
        return self

    def confirmed(self) -> TrackedWorkload:
        return self.happens(
            facts.Confirmed(**ME, revision=self.revision, seen=0, domain="queue-cq")
        )

    def verdict(
        self,
        check: str,
        state: str,
        after: int | None = None,
        ago: int = 0,
        *,
        cycle: int | None = None,
        controller: str | None = None,
        **more: Any,
    ) -> TrackedWorkload:
        """ago: of how many cycles ago."""
        named = self.status.admission_cycle - ago if cycle is None else cycle
        return self.happens(
            facts.CheckReported(
                **ME,
                controller=f"ctl-{check}" if controller is None else controller,
                check=check,
                cycle=named,
                state=state,
                requeue_after_seconds=after,
                **more,
            )
        )

    def preempted(self) -> TrackedWorkload:
        return self.happens(
            facts.Preempted(
                **ME, revision=0, seen=0, domain="queue-cq", reason="InClusterQueue", message="m"
            )
        )

    def stopped(self) -> TrackedWorkload:
        return self.happens(facts.Stopped(**ME, revision=self.status.evicted_revision))

    def ready(self, *, ready: bool = True) -> TrackedWorkload:
        kind = facts.PodsReady if ready else facts.PodsNotReady
        return self.happens(kind(**ME, revision=self.status.admitted_revision))

    def off(self) -> TrackedWorkload:
        return self.happens(facts.Deactivated(**ME))

    def on(self) -> TrackedWorkload:
        return self.happens(facts.Activated(**ME))

    def due(self, kind: str = "requeue") -> TrackedWorkload:
        return self.happens(facts.TimerDue(**ME, kind=kind))

    def queue_changed(self) -> TrackedWorkload:
        return self.happens(QueueChanged(**ME))

    def stops(self, hindrance: InactiveReason | None) -> TrackedWorkload:
        """Gives the workload's queue a reason not to admit; None: the queue admits again."""
        self.around.stopped = hindrance
        return self.queue_changed()

    def lists(
        self, *checks: str, per_flavor: dict[str, tuple[str, ...]] | None = None
    ) -> TrackedWorkload:
        """Makes the workload's queue list these checks."""
        self.around.checks = checks
        self.around.per_flavor = per_flavor or {}
        return self.queue_changed()

    def later(self, seconds: float) -> TrackedWorkload:
        self.now += timedelta(seconds=seconds)
        return self
