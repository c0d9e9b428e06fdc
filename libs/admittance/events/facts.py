"""The facts about workloads: what users, runners, schedulers, checks and the controller say.

Subjects and who says what: CONTRACT of the public face, `admittance.events.subjects`.
Revisions are those of the bucket: the sequence of the last write to the workload's key.
"""

from __future__ import annotations

from datetime import datetime

import msgspec

from admittance.events.base import Fact, null
from admittance.events.shapes import (
    Admission,
    CheckStateWord,
    Delay,
    Grounds,
    HandedOn,
    PendingPreemption,
    PodSetToRun,
    PodSetUpdate,
    PreemptedBy,
    Refusal,
    Scan,
    Shortfall,
    Taken,
)

# What users say. ------------------------------------------------------------------------


class Submitted(Fact, frozen=True, kw_only=True):
    """A workload exists from now on. ``workload`` is its manifest, as bytes."""

    workload: msgspec.Raw


class Activated(Fact, frozen=True, kw_only=True):
    """``spec.active`` is turned on. ``reason``: of a variant, why policy wants it so
    (`admittance.family.policy.Why`); "": a user does."""

    reason: str = ""


class Deactivated(Fact, frozen=True, kw_only=True):
    """``spec.active`` is turned off: never admit, evict if running. ``reason``: of a variant, why
    policy wants it so (`admittance.family.policy.Why`); "": a user does."""

    reason: str = ""


class Held(Fact, frozen=True, kw_only=True):
    """The workload stays out of its queue until released."""


class Released(Fact, frozen=True, kw_only=True):
    """A held workload may compete again."""


class Reprioritized(Fact, frozen=True, kw_only=True):
    """The workload has a new priority."""

    priority: int


class Deleted(Fact, frozen=True, kw_only=True):
    """The workload is to disappear, once its job has stopped."""


# What the variant-controller says, beside what users may say. ----------------------------


class Ungated(Fact, frozen=True, kw_only=True):
    """The variant may preempt from now on: its gate is opened, and none of its siblings'."""


class Aggregated(Fact, frozen=True, kw_only=True):
    """What the parent tells of its variants is to be brought up to date."""


# What runners say. ----------------------------------------------------------------------


class Started(Fact, frozen=True, kw_only=True):
    """The processes of the admission ``revision`` run."""

    revision: int


class PodsReady(Fact, frozen=True, kw_only=True):
    """All pods of the admission ``revision`` are ready or have succeeded."""

    revision: int


class PodsNotReady(Fact, frozen=True, kw_only=True):
    """Some pod of the admission ``revision`` lost its readiness."""

    revision: int
    message: str = ""


class Finished(Fact, frozen=True, kw_only=True):
    """The job ended by itself. ``revision`` 0: a user says so, of whatever runs.

    ``exit_code``: of the first container that failed, 128+n where signal n ended it; None where
    nothing failed or the runner does not know.
    """

    revision: int = 0
    succeeded: bool = True
    message: str = ""
    reason: str = ""
    exit_code: int | None = None


class Stopped(Fact, frozen=True, kw_only=True):
    """Nothing of the workload runs any more.

    ``revision`` is that of the eviction acted on. ``reason`` is ``NodeFailures`` when the job was
    lost without an eviction; then ``revision`` is that of the admission. It is ``RunnerEnded`` when
    the runner has ended in order: the admission lasts, and its job is started again later.
    """

    revision: int
    reason: str = ""
    message: str = ""


# What the scheduler says, fenced. -------------------------------------------------------


class Decision(Fact, frozen=True, kw_only=True):
    """A decision of the scheduler about the workload at ``revision``.

    ``seen`` is the newest revision of the bucket that the scheduler's picture held: every queue,
    cohort and flavor of the workload's tree must be as old or older, else the decision is void.
    ``domain`` is the tree it decided for. ``scan``: what else it was made from, if anything.
    """

    revision: int
    seen: int
    domain: str
    scan: Scan | None = None


class Assigned(Decision, frozen=True, kw_only=True):
    """Quota is set aside for the workload.

    ``taken``: per flavor and resource, with what there was before. ``level``: how high in the tree
    of cohorts it borrows; 0: it does not. ``waited_seconds``: since it took its place in the queue.
    ``preempts``: whose quota it gets; the decision holds of all of them, or not at all.
    ``pending_preemption``: who still has to go before it can be admitted.
    ``local_usage``: what its LocalQueue was compared by, where the one that used least goes first;
    None: elsewhere, and where it has no weight.
    ``migrates_from``: the admitted sibling of a variant without checks, as of its revision. Its job
    has to stop first: until then the quota is promised, not booked.
    """

    admission: Admission
    message: str = ""
    taken: tuple[Taken, ...] = ()
    level: int = 0
    waited_seconds: int = 0
    preempts: tuple[HandedOn, ...] = ()
    pending_preemption: PendingPreemption | None = None
    local_usage: float | None = None
    migrates_from: HandedOn | None = None


class Refused(Decision, frozen=True, kw_only=True):
    """The workload was considered and cannot have quota now; said when the reason changes."""

    refusal: Refusal


class Planned(Decision, frozen=True, kw_only=True):
    """Who has to go for a reservation was found out anew: other workloads, fewer, or nobody any
    more; or they are told to go now."""

    pending_preemption: PendingPreemption


class Confirmed(Decision, frozen=True, kw_only=True):
    """The recheck before Admitted passed."""


class Revoked(Decision, frozen=True, kw_only=True):
    """The recheck before Admitted failed, or the reservation fits no longer: QuotaChanged, or
    FlavorsChanged. Of an admitted workload: its ClusterQueue says ``onQuotaCut: evict``.
    ``shortfalls``: of what there is too little now, and how much of what it holds is left."""

    reason: str
    message: str = ""
    shortfalls: tuple[Shortfall, ...] = ()


class Preempted(Decision, frozen=True, kw_only=True):
    """The workload loses its quota in favor of another one. ``times``: how often to the same one,
    this time counted. ``planned``: that one has reserved the quota already."""

    reason: str
    message: str = ""
    by: str = ""
    by_uid: str = ""
    grounds: Grounds | None = None
    times: int = 0
    planned: bool = False


# What the workload-controller says. -----------------------------------------------------


class Said(Fact, frozen=True, kw_only=True):
    """Something that followed from the commit of ``revision``."""

    revision: int
    reason: str = ""
    message: str = ""


class QuotaReserved(Said, frozen=True, kw_only=True):
    """Quota is booked; the checks may begin."""

    admission: Admission | None = None


class Admitted(Said, frozen=True, kw_only=True):
    """The workload may start. Carries all that a runner needs."""

    cluster_queue: str = ""
    queue: str = ""
    pod_sets: tuple[PodSetToRun, ...] = ()


class Evicted(Said, frozen=True, kw_only=True):
    """The workload loses its reservation. A runner stops the job and says `Stopped`.

    ``preempted_by``: in favor of whom, when that is why. ``underlying_cause``: what is behind the
    reason, where that leaves it open: WaitForStart, WaitForRecovery, or of a deactivation
    AdmissionCheck, RequeuingLimitExceeded, MaximumExecutionTimeExceeded."""

    preempted_by: PreemptedBy | None = None
    underlying_cause: str = ""


class Requeued(Said, frozen=True, kw_only=True):
    """The workload competes again."""


class Rejected(Said, frozen=True, kw_only=True):
    """A check rejected the workload, or the submission was no valid workload (revision 0)."""


class Pending(Said, frozen=True, kw_only=True):
    """The workload waits; reason and message say why."""


class Noted(Said, frozen=True, kw_only=True):
    """Something that people should know and that moves nobody: RetryDelayClamped, ForcedRelease,
    MaximumExecutionTimeExceeded, ConflictingChecks, AdmissionCheckUpdated, and the like."""


# Checks. --------------------------------------------------------------------------------


class CheckRequested(Fact, frozen=True, kw_only=True):
    """A check controller is asked to judge."""

    controller: str
    check: str
    cycle: int
    retry_count: int = 0
    revision: int = 0
    parameters: msgspec.Raw = msgspec.field(default_factory=null)
    admission: Admission | None = None
    workload: msgspec.Raw = msgspec.field(default_factory=null)


class CheckWithdrawn(Fact, frozen=True, kw_only=True):
    """A check controller stops what it started for ``cycle``."""

    controller: str
    check: str
    cycle: int
    reason: str = ""


class CheckReported(Fact, frozen=True, kw_only=True):
    """The verdict of a check controller. ``state``: Pending, Ready, Retry or Rejected.

    ``requeueAfterSeconds``: seconds, or a duration like ``8m0s``, which counts as whole seconds,
    rounded up."""

    controller: str = ""
    check: str
    cycle: int
    state: CheckStateWord
    message: str = ""
    reason: str = ""
    requeue_after_seconds: Delay | None = None
    pod_set_updates: tuple[PodSetUpdate, ...] = ()

    @property
    def delay_seconds(self) -> int | None:
        """``requeueAfterSeconds`` where it is a number, or was made one."""
        delay = self.requeue_after_seconds
        return None if isinstance(delay, str) else delay


# Time. ----------------------------------------------------------------------------------


class TimerDue(Fact, frozen=True, kw_only=True):
    """A time that was set for the workload has come. ``at``: the time it was set for."""

    kind: str
    at: datetime | None = None
    revision: int = 0
