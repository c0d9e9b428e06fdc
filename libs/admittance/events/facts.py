"""The facts about workloads: from users, runners, schedulers, checks and the workload-controller.

Subjects: `admittance.events.subjects`. A workload's revision is the sequence of the last write to
the workload's key in the bucket.
"""

from __future__ import annotations

import re
from datetime import datetime
from typing import Final

import msgspec

from admittance.events import reasons
from admittance.events.base import Fact, null
from admittance.events.files import OutputFile
from admittance.events.placement import Placement
from admittance.events.shapes import (
    Admission,
    CheckStateWord,
    Delay,
    EvictedJob,
    Grounds,
    HandedOn,
    PendingPreemption,
    PodRetries,
    PodSetToRun,
    PodSetUpdate,
    PreemptedBy,
    Refusal,
    Scan,
    Shortfall,
    Taken,
)

# Published by users. --------------------------------------------------------------------


class Submitted(Fact, frozen=True, kw_only=True):
    """Creates a workload. ``workload`` is its manifest, as bytes."""

    workload: msgspec.Raw


class Activated(Fact, frozen=True, kw_only=True):
    """Sets ``spec.active``. ``reason``: why the policy activates a variant
    (`admittance.family.ActivityReason`); "": a user activates the workload.
    """

    reason: str = ""


class Deactivated(Fact, frozen=True, kw_only=True):
    """Clears ``spec.active``: the workload is evicted and not admitted again. ``reason``: why the
    policy deactivates a variant (`admittance.family.ActivityReason`); "": a user deactivates
    the workload.
    """

    reason: str = ""


class Held(Fact, frozen=True, kw_only=True):
    """Keeps the workload out of its queue until `Released`."""


class Released(Fact, frozen=True, kw_only=True):
    """Ends the hold of the workload, and opens the admission gates that people open. ``gate``:
    opens this admission gate alone, which may be one of Admittance
    (`admittance.api.workload.OWN_GATES`), and ends no hold."""

    gate: str = ""


class Reprioritized(Fact, frozen=True, kw_only=True):
    """The workload has a new priority."""

    priority: int


class Renewed(Fact, frozen=True, kw_only=True):
    """The program that holds the quota of the workload itself lives, which renews its lease.
    ``ended``: it has ended instead, so the workload finishes; ``succeeded`` and ``message``: how.
    ``exit_code``: that of a failed program; None: it is not known."""

    ended: bool = False
    succeeded: bool = True
    message: str = ""
    exit_code: int | None = None


class Deleted(Fact, frozen=True, kw_only=True):
    """Requests the deletion of the workload, once its job has stopped."""


class Verdict(Fact, frozen=True, kw_only=True):
    """The verdict of a person on an approval check, in the workload's ``cycle``. The user in
    the subject is named in the message of the check.
    """

    check: str
    cycle: int
    message: str = ""


class Approved(Verdict, frozen=True, kw_only=True):
    """A person approves the workload: its approval check becomes Ready."""


class Denied(Verdict, frozen=True, kw_only=True):
    """A person denies the workload: its approval check becomes Rejected."""


# Published by the variant-controller, beside facts of users. -----------------------------


class Ungated(Fact, frozen=True, kw_only=True):
    """Opens the preemption gate of the variant; the gates of its siblings are closed."""


class Aggregated(Fact, frozen=True, kw_only=True):
    """Requests an update of the parent's status from its variants."""


# Published by the array-controller, beside facts of users. ------------------------------


class ElementsCounted(Fact, frozen=True, kw_only=True):
    """What became of the elements of an array. ``created``: how many have been created.
    ``results``: the places of elements with a new result, such as ``0-4,7``, by the letter of the
    result (`admittance.api.workload.ArrayStatus`); places count from 0 in the order of the indexes.
    ``states``: how many elements without a result are in each state. ``over``: all elements are
    over. ``gone``: no element exists any more, so an array that is being deleted can go."""

    created: int = 0
    results: dict[str, str] = msgspec.field(default_factory=dict)
    states: dict[str, int] = msgspec.field(default_factory=dict)
    over: bool = False
    gone: bool = False


class DependenciesJudged(Fact, frozen=True, kw_only=True):
    """What became of the dependencies of a workload, by their places in its status. ``met``: those
    that are met. ``never``: one of them can no longer be met, for the reason in this sentence."""

    met: tuple[int, ...] = ()
    never: str = ""


# Published by runners. ------------------------------------------------------------------


class JobFact(Fact, frozen=True, kw_only=True):
    """What a runner reports about the job of the admission at ``revision``. These facts change
    nothing about a variant, which has no job. ``part``: the part of a job on several machines, from
    1 on in the order of its runners; 0: the whole job."""

    revision: int
    part: int = 0


class Started(JobFact, frozen=True, kw_only=True):
    """The processes of the workload's job run, for the admission at ``revision``."""


class PodsReady(JobFact, frozen=True, kw_only=True):
    """All pods of the workload are ready or have succeeded, for the admission at ``revision``."""


class PodsNotReady(JobFact, frozen=True, kw_only=True):
    """Some pod of the workload lost its readiness, for the admission at ``revision``."""

    message: str = ""


class PodsFailed(JobFact, frozen=True, kw_only=True):
    """Pods of the workload failed and run again, for the admission at ``revision``. It is published
    for some failures only: soon after the first one, and then less and less often."""

    retries: PodRetries


class Finished(Fact, frozen=True, kw_only=True):
    """The job ended by itself. ``revision``: that of the admission; 0: published by a user, for any
    admission. ``part``: as in `JobFact`.

    ``exit_code``: of the first container that failed, 128+n if signal n ended that container; None
    if no container failed or the runner does not know. ``outputs``: the files that the job left, of
    those that its workload asks for.
    """

    revision: int = 0
    succeeded: bool = True
    message: str = ""
    reason: str = ""
    exit_code: int | None = None
    part: int = 0
    outputs: tuple[OutputFile, ...] = ()


class Stopped(JobFact, frozen=True, kw_only=True):
    """No process of the workload runs any more.

    ``revision`` is that of the eviction that the runner obeyed. ``reason`` is ``NodeFailures`` if
    the job was lost without an eviction; then ``revision`` is that of the admission. ``reason`` is
    ``RunnerEnded`` if the runner was shut down, and ``PrologFailed`` if its machine could not be
    prepared: the admission lasts, and the job is started again later; but with assigned runners the
    admission ends, and the workload competes again.
    """

    reason: str = ""
    message: str = ""

    @property
    def gives_back(self) -> bool:
        """Whether the runner gave the job back, through no fault of the job."""
        return self.reason in (reasons.RUNNER_ENDED, reasons.PROLOG_FAILED)


# Published by the scheduler, fenced. ----------------------------------------------------


class Decision(Fact, frozen=True, kw_only=True):
    """A decision of the scheduler about the workload at ``revision``.

    ``seen`` is the newest revision of the bucket in the scheduler's state: if a queue, cohort or
    flavor of the workload's tree has a newer revision, the decision is void. ``domain``: the domain
    of the leader that decided. ``scan``: further inputs of the decision.
    """

    revision: int
    seen: int
    domain: str
    scan: Scan | None = None


class Assigned(Decision, frozen=True, kw_only=True):
    """Quota is assigned to the workload.

    ``taken``: the assigned amounts per flavor and resource, and what was available before.
    ``level``: how high in the cohort tree the ClusterQueue borrows; 0: no borrowing.
    ``waited_seconds``: seconds since the workload joined the queue. ``preempts``: workloads that
    lose their quota to this workload; if one of them cannot lose it, the decision is void.
    ``pending_preemption``: workloads that must be preempted before this workload can be admitted.
    ``local_usage``: the usage by which the workload's LocalQueue was ordered; None: the
    ClusterQueue does not order by usage, or the LocalQueue has no weight. ``migrates_from``: name
    and revision of the admitted sibling of a variant without checks. The sibling's job has to stop
    first: until then the variant's quota is promised, not booked.
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
    """The scheduler considered the workload, which cannot have quota now; published when the reason
    changes.
    """

    refusal: Refusal


class Planned(Decision, frozen=True, kw_only=True):
    """The planned victims of a reservation have changed, or their preemption begins."""

    pending_preemption: PendingPreemption


class Confirmed(Decision, frozen=True, kw_only=True):
    """The recheck before Admitted passed."""


class Revoked(Decision, frozen=True, kw_only=True):
    """The recheck before Admitted failed, or the reservation does not fit any more: QuotaChanged,
    or FlavorsChanged. An admitted workload is revoked only if its ClusterQueue has ``onQuotaCut:
    evict``. ``shortfalls``: the resources that are short now, with the numbers.
    """

    reason: str
    message: str = ""
    shortfalls: tuple[Shortfall, ...] = ()


class Preempted(Decision, frozen=True, kw_only=True):
    """The workload loses its quota to another one. ``times``: how often the workload has lost quota
    to the same preemptor, including this time. ``planned``: the preemptor has reserved the quota
    already.
    """

    reason: str
    message: str = ""
    by: str = ""
    by_uid: str = ""
    grounds: Grounds | None = None
    times: int = 0
    planned: bool = False


# Published by the workload-controller. --------------------------------------------------


class CommitFact(Fact, frozen=True, kw_only=True):
    """A fact that the workload-controller publishes about the workload that it wrote at
    ``revision``.
    """

    revision: int
    reason: str = ""
    message: str = ""


class QuotaReserved(CommitFact, frozen=True, kw_only=True):
    """Quota is booked; the checks may begin."""

    admission: Admission | None = None


class Admitted(CommitFact, frozen=True, kw_only=True):
    """The workload may start. The fact has everything that a runner needs. ``submitted_by``: the
    user that submitted the workload, as the server knows it; "": not known. ``ends_at``: when its
    maximum execution time is over, by the clock of the workload-controller; None: it has none.
    ``restarts``: how many admissions of the workload have ended before, without those that ended
    because the prolog of the only runner failed. ``held``: no runner starts a job: a program holds
    the quota itself."""

    cluster_queue: str = ""
    queue: str = ""
    submitted_by: str = ""
    pod_sets: tuple[PodSetToRun, ...] = ()
    ends_at: datetime | None = None
    restarts: int = 0
    held: bool = False


class Evicted(CommitFact, frozen=True, kw_only=True):
    """The workload loses its reservation. A runner stops the job and publishes `Stopped`.

    ``preempted_by``: the preemptor of a preempted workload. ``underlying_cause``: details of the
    reason: WaitForStart, WaitForRecovery, or for a deactivation AdmissionCheck,
    RequeuingLimitExceeded, MaximumExecutionTimeExceeded. ``job``: the job that has to stop; None:
    not known."""

    preempted_by: PreemptedBy | None = None
    underlying_cause: str = ""
    job: EvictedJob | None = None


class QuotaReleased(CommitFact, frozen=True, kw_only=True):
    """The workload no longer holds the quota of one admission. Of a family only variants have it.

    ``since``, ``until``: from when to when the quota was held, by the clock of the
    workload-controller. ``admission``: the queue, flavors and amounts. ``admission_revision``: the
    revision of the admission; 0: the workload lost its reservation before it was admitted.
    ``reason``: why the quota was released: that of the end of a finished workload, or of its
    eviction. ``ended``: whether the workload finished. ``queue``: its LocalQueue. ``submitted_by``:
    the user that submitted it; "": not known. ``waited_seconds``: how long it had waited for this
    quota. ``submitted_at``: when it was submitted. ``machines``: the runners that its job was
    placed on; empty: it was not placed. ``preempted_by``: the workload (``namespace/name``) for
    which the quota was taken, ``preemptor_submitted_by`` the user that submitted that workload; "":
    none, or not known. ``script``: the name of the script, module or program that the workload ran;
    "": it has no command. ``admitted_at``: when a workload that finished was admitted; None: it did
    not finish, or was not admitted. ``fact``: the sequence of the fact that released the quota. The
    quota of one admission may be reported twice, with one ``uid`` and ``since``; then the later
    report counts."""

    since: datetime
    until: datetime
    admission: Admission
    admission_revision: int = 0
    ended: bool = False
    exit_code: int | None = None
    queue: str = ""
    submitted_by: str = ""
    labels: dict[str, str] = msgspec.field(default_factory=dict)
    waited_seconds: int = 0
    submitted_at: datetime | None = None
    machines: tuple[str, ...] = ()
    preempted_by: str = ""
    preemptor_submitted_by: str = ""
    script: str = ""
    admitted_at: datetime | None = None
    fact: int = 0


class Requeued(CommitFact, frozen=True, kw_only=True):
    """The workload competes for quota again."""


class Rejected(CommitFact, frozen=True, kw_only=True):
    """A check rejected the workload, or the submission was not a valid workload (revision 0)."""


class Pending(CommitFact, frozen=True, kw_only=True):
    """The workload waits, for ``reason`` and ``message``."""


class Noted(CommitFact, frozen=True, kw_only=True):
    """A note for users, without an effect on the workload's state: RetryDelayClamped,
    ForcedRelease, MaximumExecutionTimeExceeded, ConflictingChecks, AdmissionCheckUpdated and the
    like.
    """


# Checks. --------------------------------------------------------------------------------


class CheckRequested(Fact, frozen=True, kw_only=True):
    """Requests that a check controller evaluates the workload."""

    controller: str
    check: str
    cycle: int
    retry_count: int = 0
    revision: int = 0
    parameters: msgspec.Raw = msgspec.field(default_factory=null)
    admission: Admission | None = None
    workload: msgspec.Raw = msgspec.field(default_factory=null)


class CheckWithdrawn(Fact, frozen=True, kw_only=True):
    """Requests that a check controller stops its work on the workload's ``cycle``."""

    controller: str
    check: str
    cycle: int
    reason: str = ""


class CheckReported(Fact, frozen=True, kw_only=True):
    """The verdict of a check controller. ``state``: Pending, Ready, Retry or Rejected.

    ``requeueAfterSeconds``: seconds, or a duration like ``8m0s``; it counts as whole seconds,
    rounded up. ``placement``: with Ready of the controller ``admittance.dev/machines``, the runners
    of all pods."""

    controller: str = ""
    check: str
    cycle: int
    state: CheckStateWord
    message: str = ""
    reason: str = ""
    requeue_after_seconds: Delay | None = None
    pod_set_updates: tuple[PodSetUpdate, ...] = ()
    placement: Placement = ()

    @property
    def delay_seconds(self) -> int | None:
        """``requeueAfterSeconds``, if it is a whole number of seconds; None: it is not, or there is
        none.
        """
        delay = self.requeue_after_seconds
        return delay if isinstance(delay, int) else None


# Time. ----------------------------------------------------------------------------------


class TimerDue(Fact, frozen=True, kw_only=True):
    """A timer of the workload is due. ``at``: the time for which the timer was set."""

    kind: str
    at: datetime | None = None
    revision: int = 0


ABOUT_WORKLOADS: Final[tuple[type[Fact], ...]] = (
    Submitted, Activated, Deactivated, Held, Released, Reprioritized, Renewed, Deleted,
    Ungated, Aggregated, ElementsCounted, DependenciesJudged,
    Started, PodsReady, PodsNotReady, PodsFailed, Finished, Stopped,
    Assigned, Refused, Planned, Confirmed, Revoked, Preempted,
    QuotaReserved, Admitted, Evicted, QuotaReleased, Requeued, Rejected, Pending, Noted,
)  # fmt: skip
"""The facts on the subjects ``admit.workload.<key>.<ns>.<name>``."""


def key_of(fact: type[Fact]) -> str:
    """The token of a fact about workloads in its subject: the name of its type, such as
    ``pods_ready``."""
    return re.sub("(?<!^)(?=[A-Z])", "_", fact.__name__).lower()
