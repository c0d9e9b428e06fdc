"""One admission on one runner: the stages of its run and the legal moves between them. Pure.

A run begins when its claim is requested and is closed when its last fact is published. The run
manager turns claims, facts and the shim's journal into events, calls `step`, and carries out the
effects in order. Every effect may be carried out twice: a second publication has the same message
id, a second start finds the run's folder, a second claim finds the claim's revision.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Any, Final, TypeAlias, assert_never

import msgspec

from admittance.events import reasons
from admittance.events.facts import Finished, PodsReady, Started, Stopped

MESSAGE_MAX: Final = 1_000
"""The most characters of a message about the end of a job: a job may name a program with a hundred
thousand characters, and the server refuses a fact that is too long."""


class Stage(enum.Enum):
    """The stage of a run."""

    CLAIMING = "claiming"
    """The runner has requested the claim; another runner may get it."""
    STARTING = "starting"
    """This runner has claimed the admission; the run is in the data folder, perhaps without a shim
    yet.
    """
    RUNNING = "running"
    """The processes of the run work under a shim."""
    STOPPING = "stopping"
    """The processes of the run were told to end."""
    EPILOG = "epilog"
    """No process of the job is left and its result is published; the epilog of the runner runs, and
    the run keeps its devices and its room."""
    ENDED = "ended"
    """No process of the run is left. The facts of the run are published, and after a crash
    published again, until acknowledged.
    """


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """The run of one admission of a workload. ``revision``: the revision at which the workload was
    admitted. ``evicted``: the revision of the eviction that stops the run; 0 if there is none.
    ``claim_lost``: another runner may hold the claim of the admission. ``leaving``: the run is
    stopped because the runner shuts down, or for the reason ``why``; the job must run again later.
    ``ready``: whether
    ``pods_ready`` was published for the run. ``part``: the part of a job on several machines; 0:
    the whole job. ``placed``: the job is assigned to this runner, so its admission ends when the
    runner gives it back.
    """

    namespace: str
    name: str
    uid: str
    revision: int
    part: int = 0
    placed: bool = False
    stage: Stage = Stage.CLAIMING
    evicted: int = 0
    claim_lost: bool = False
    leaving: bool = False
    why: str = ""
    ready: bool = False


# Events. --------------------------------------------------------------------------------


class Claimed(msgspec.Struct, frozen=True):
    """The event that this runner holds the admission's claim, and that the admission is still
    current."""


class NotOurs(msgspec.Struct, frozen=True):
    """The event that another runner holds the admission's claim, or that the admission is over."""


class JobEvicted(msgspec.Struct, frozen=True):
    """The event that the workload was evicted, at its revision ``revision``."""

    revision: int


class Unstartable(msgspec.Struct, frozen=True):
    """The event that the job can never start, with the reason in ``message``."""

    message: str


class Up(msgspec.Struct, frozen=True):
    """The event that the first processes of the job are running."""


class PodsAllReady(msgspec.Struct, frozen=True):
    """The event that every pod of the job runs or has succeeded."""


class Ended(msgspec.Struct, frozen=True):
    """The event that the job has ended. ``kind``: succeeded, failed, stopped (on request), lost
    (the end of the job is unknown, or the lease of the data folder expired) or unprepared (the
    machine could not be prepared, so no process of the job has started). ``exit_code``: the
    exit code of the failed container; 0 if not known. ``reason``: the policy that failed the job,
    such as BackoffLimitExceeded; "": none. ``drain``: why the machine must get no new jobs; "": it
    may get them.
    """

    kind: str
    message: str = ""
    exit_code: int = 0
    reason: str = ""
    drain: str = ""

    @property
    def is_result(self) -> bool:
        """Whether the job ended without a stop request: then its result counts, also if the
        workload was evicted or the claim was lost."""
        return self.kind in ("succeeded", "failed")


class ResultKnown(msgspec.Struct, frozen=True):
    """The event that no process of the job is left and that its result is known, before the epilog
    of the runner has ended."""

    result: Ended


class ClaimLost(msgspec.Struct, frozen=True):
    """The event that this runner no longer holds the claim of the admission."""


class ShutDown(msgspec.Struct, frozen=True):
    """The event that the runner shuts down, or that its machine must be empty. ``why``: for people;
    "": the runner ends."""

    why: str = ""


Event: TypeAlias = (
    Claimed
    | NotOurs
    | JobEvicted
    | Unstartable
    | Up
    | PodsAllReady
    | ResultKnown
    | Ended
    | ClaimLost
    | ShutDown
)


# Effects. -------------------------------------------------------------------------------


class StartRun(msgspec.Struct, frozen=True):
    """The effect that writes the run to the data folder and then starts a shim for the run."""


class StopRun(msgspec.Struct, frozen=True):
    """The effect that writes the stop note to the data folder and then tells the shim to stop the
    pods."""


class Publish(msgspec.Struct, frozen=True):
    """The effect that publishes the fact, repeatedly until the log has the fact."""

    fact: Started | PodsReady | Finished | Stopped


class DrainMachine(msgspec.Struct, frozen=True):
    """The effect that drains the machine of the runner and announces why. It comes before the facts
    of the run, so that placement does not choose this machine again."""

    reason: str
    message: str


class MarkOver(msgspec.Struct, frozen=True):
    """The effect that marks the admission's claim as over, so that no runner starts the admission.
    The fact ``then`` is published only if no other runner holds the claim by now; a runner that
    holds the claim publishes the end of the job itself.
    """

    then: Stopped | None = None


class Release(msgspec.Struct, frozen=True):
    """The effect that releases the admission's claim: the runner that claims the admission next
    runs the job from the beginning. The output of this run is kept.
    """


class Close(msgspec.Struct, frozen=True):
    """The effect that closes the run after all its facts are published. The output of the run is
    kept for a while.
    """


Effect: TypeAlias = StartRun | StopRun | Publish | DrainMachine | MarkOver | Release | Close
Effects: TypeAlias = tuple[Effect, ...]


def step(run: Run, event: Event) -> tuple[Run, Effects]:
    """Returns the run as it is after the event, and the effects to carry out, in their order.

    An event that comes late or twice changes nothing.
    """
    match event:
        case Claimed():
            return _claimed(run)
        case NotOurs():
            return (_at(run, Stage.ENDED), (Close(),)) if run.stage is Stage.CLAIMING else (run, ())
        case JobEvicted(revision):
            return _evicted(run, revision)
        case Unstartable(message):
            if run.stage in (Stage.EPILOG, Stage.ENDED):
                return run, ()
            failure = Ended("failed", message, reason=reasons.FAILED_TO_START)
            return _end(run, (Publish(result_of(run, failure)),))
        case Up():
            if run.stage is not Stage.STARTING:
                return run, ()
            return _at(run, Stage.RUNNING), (Publish(Started(**_of(run))),)
        case PodsAllReady():
            if run.stage is not Stage.RUNNING or run.ready:
                return run, ()
            return msgspec.structs.replace(run, ready=True), (Publish(PodsReady(**_of(run))),)
        case ResultKnown(result):
            return _result_known(run, result)
        case Ended():
            return _ended(run, event)
        case ClaimLost() | ShutDown() if run.stage in (Stage.EPILOG, Stage.ENDED):
            return run, ()
        case ClaimLost():
            return _stop_if_running(msgspec.structs.replace(run, claim_lost=True))
        case ShutDown():
            if run.stage is Stage.CLAIMING:
                return _at(run, Stage.ENDED), (Release(), Close())
            return _stop_if_running(msgspec.structs.replace(run, leaving=True, why=event.why))
    assert_never(event)


def runs_to_evict(
    runs: Mapping[str, Run], namespace: str, name: str, evicted: int, admitted: int = 0
) -> list[str]:
    """The keys of the runs that an eviction of the workload at revision ``evicted`` stops.

    ``admitted``: the revision of the workload's last admission before the eviction, 0 if not known.
    A run of an admission before ``admitted`` was stopped by an earlier eviction and does not answer
    this eviction.
    """
    return [
        key
        for key, run in runs.items()
        if (run.namespace, run.name) == (namespace, name)
        and run.revision < evicted
        and not run.revision < admitted < evicted
    ]


def _of(run: Run) -> dict[str, Any]:
    return {
        "namespace": run.namespace,
        "name": run.name,
        "uid": run.uid,
        "revision": run.revision,
        "part": run.part,
    }


def _at(run: Run, stage: Stage) -> Run:
    return msgspec.structs.replace(run, stage=stage)


def result_of(run: Run, end: Ended) -> Finished:
    """The fact ``finished`` for a run with a result."""
    succeeded = end.kind == "succeeded"
    return Finished(
        **_of(run),
        succeeded=succeeded,
        message=end.message,
        reason=reasons.SUCCEEDED if succeeded else end.reason or reasons.FAILED,
        exit_code=end.exit_code or None,
    )


def _stopped(run: Run, *, reason: str = "", message: str = "") -> Stopped:
    fact = Stopped(**_of(run), reason=reason, message=message)
    return msgspec.structs.replace(fact, revision=run.evicted, reason="") if run.evicted else fact


def _claimed(run: Run) -> tuple[Run, Effects]:
    if run.stage is not Stage.CLAIMING:
        return run, ()
    if run.claim_lost:
        # The claim was lost while the bucket was read: another runner may have reported the job's
        # end.
        lost = _stopped(
            run, reason=reasons.NODE_FAILURES, message="the claim was lost before the start"
        )
        return _at(run, Stage.ENDED), (MarkOver(then=lost), Close())
    if run.evicted:
        return _end(run, (Publish(_stopped(run)),))
    return _at(run, Stage.STARTING), (StartRun(),)


def _evicted(run: Run, revision: int) -> tuple[Run, Effects]:
    if revision <= max(run.revision, run.evicted):
        return run, ()  # the eviction is older than the run's admission, or was handled before
    run = msgspec.structs.replace(run, evicted=revision)
    match run.stage:
        case Stage.CLAIMING:
            return run, ()  # the eviction is handled when the runner knows whether it got the claim
        case Stage.STARTING | Stage.RUNNING:
            return _at(run, Stage.STOPPING), (StopRun(),)
        case Stage.STOPPING:
            # The stop note, written for another reason, gets the revision of the eviction.
            return run, (StopRun(),)
        case Stage.EPILOG | Stage.ENDED:
            # If another runner has claimed the admission and runs its job, that runner stops the
            # job.
            return run, (MarkOver(then=_stopped(run)),)
    assert_never(run.stage)


def _stop_if_running(run: Run) -> tuple[Run, Effects]:
    if run.stage in (Stage.STARTING, Stage.RUNNING):
        return _at(run, Stage.STOPPING), (StopRun(),)
    return run, ()


def _end(run: Run, effects: Effects) -> tuple[Run, Effects]:
    return _at(run, Stage.ENDED), (*effects, MarkOver(), Close())


def _give_back(run: Run, effects: Effects) -> tuple[Run, Effects]:
    """A placed job must not start again under its admission: this runner may be back before the
    workload-controller has ended the admission, and then its quota would be freed under the job."""
    if run.placed:
        return _end(run, effects)
    return _at(run, Stage.ENDED), (*effects, Release(), Close())


def _result_known(run: Run, result: Ended) -> tuple[Run, Effects]:
    if run.stage in (Stage.EPILOG, Stage.ENDED) or not result.is_result:
        return run, ()
    return _at(run, Stage.EPILOG), _publish_result(run, result)


def _publish_result(run: Run, result: Ended) -> Effects:
    effects: Effects = (Publish(result_of(run, result)),)
    return (*effects, Publish(_stopped(run))) if run.evicted else effects


def _ended(run: Run, end: Ended) -> tuple[Run, Effects]:
    if run.stage is Stage.ENDED:
        return run, ()
    hook = reasons.PROLOG_FAILED if end.kind == "unprepared" else reasons.EPILOG_FAILED
    drain: Effects = (DrainMachine(hook, end.drain),) if end.drain else ()
    if run.stage is Stage.EPILOG:
        return _end(run, drain)
    if end.is_result:
        return _end(run, (*drain, *_publish_result(run, end)))
    over = _at(run, Stage.ENDED)
    lost = _stopped(run, reason=reasons.NODE_FAILURES, message=end.message)
    if run.claim_lost:
        return over, (*drain, MarkOver(then=lost), Close())
    if run.evicted:
        return _end(run, (*drain, Publish(lost)))
    if end.kind == "unprepared":
        said = _stopped(run, reason=reasons.PROLOG_FAILED, message=end.message)
        return _give_back(run, (*drain, Publish(said)))
    if end.kind == "stopped" and run.leaving:
        said = _stopped(
            run,
            reason=reasons.RUNNER_ENDED,
            message=run.why or "its runner ended; it runs again under a runner",
        )
        return _give_back(run, (*drain, Publish(said)))
    # The job ended without a stop request or a result: its quota is freed and the workload runs
    # again.
    return over, (*drain, MarkOver(then=lost), Close())
