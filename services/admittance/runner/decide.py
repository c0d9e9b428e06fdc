"""One admission on one runner: its stages and its legal moves. Pure.

A run begins when its claim is asked for and is forgotten when nothing is left to say. The shell
turns what happened (claims, facts, the shim's journal) into events, calls `step`, and carries out
the effects in their order. Every effect may be repeated: saying is idempotent by its revision,
starting by the run's folder, the claim by its revision.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Any, Final, TypeAlias, assert_never

import msgspec

from admittance.events.facts import Finished, PodsReady, Started, Stopped

NODE_FAILURES: Final = "NodeFailures"
RUNNER_ENDED: Final = "RunnerEnded"
FAILED_TO_START: Final = "FailedToStart"


class Stage(enum.Enum):
    """Where a run stands."""

    CLAIMING = "claiming"
    """Asked for; it may turn out to be another runner's."""
    STARTING = "starting"
    """Ours, and in the data folder; a shim may or may not have it yet."""
    RUNNING = "running"
    """Its processes run under a shim."""
    STOPPING = "stopping"
    """Its processes were told to end."""
    ENDED = "ended"
    """Nothing runs. What follows is said, and said again after a crash until acknowledged."""


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """``revision``: of the admission. ``evicted``: revision of the eviction acted on, 0 for none.
    ``claim_lost``: another one may hold the claim. ``leaving``: the runner is ending; the
    admission is to run again later. ``ready``: said that all pods run."""

    namespace: str
    name: str
    uid: str
    revision: int
    stage: Stage = Stage.CLAIMING
    evicted: int = 0
    claim_lost: bool = False
    leaving: bool = False
    ready: bool = False


# Events. --------------------------------------------------------------------------------


class Claimed(msgspec.Struct, frozen=True):
    """The claim is ours and the admission still stands."""


class NotOurs(msgspec.Struct, frozen=True):
    """Another runner holds the claim, or the admission is over."""


class Evicted(msgspec.Struct, frozen=True):
    """The admission was taken back, at ``revision``."""

    revision: int


class Unstartable(msgspec.Struct, frozen=True):
    """No try will ever start it."""

    message: str


class Up(msgspec.Struct, frozen=True):
    """The first processes run."""


class Ready(msgspec.Struct, frozen=True):
    """Every pod runs or has succeeded."""


class Ended(msgspec.Struct, frozen=True):
    """``kind``: succeeded, failed, stopped (asked to) or lost (nobody knows how it ended, or it
    had to end without being asked). ``exit_code``: of what failed; 0: not known."""

    kind: str
    message: str = ""
    exit_code: int = 0


class ClaimLost(msgspec.Struct, frozen=True):
    """The claim is not ours any more."""


class Leave(msgspec.Struct, frozen=True):
    """The runner ends."""


Event: TypeAlias = (
    Claimed | NotOurs | Evicted | Unstartable | Up | Ready | Ended | ClaimLost | Leave
)


# Effects. -------------------------------------------------------------------------------


class Start(msgspec.Struct, frozen=True):
    """Put the run into the data folder, then hand it to a shim."""


class Stop(msgspec.Struct, frozen=True):
    """Note in the data folder why, then tell the shim."""


class Say(msgspec.Struct, frozen=True):
    """State the fact, until the log has it."""

    fact: Started | PodsReady | Finished | Stopped


class Bury(msgspec.Struct, frozen=True):
    """Mark the claim: this admission is over, nobody may start it. If another runner has the
    claim by now, what would be said ``then`` is not said: it is the other's to say."""

    then: Stopped | None = None


class Release(msgspec.Struct, frozen=True):
    """Give the claim back: the runner that takes it runs the admission from its beginning. Of this
    run the output is kept."""


class Forget(msgspec.Struct, frozen=True):
    """All is said: the run is closed, its output is kept for a while."""


Effect: TypeAlias = Start | Stop | Say | Bury | Release | Forget
Effects: TypeAlias = tuple[Effect, ...]


def step(run: Run, event: Event) -> tuple[Run, Effects]:
    """What event makes of run, and what is to be done, in this order.

    An event that comes late or twice changes nothing.
    """
    match event:
        case Claimed():
            return _claimed(run)
        case NotOurs():
            return (
                (_at(run, Stage.ENDED), (Forget(),)) if run.stage is Stage.CLAIMING else (run, ())
            )
        case Evicted(revision):
            return _evicted(run, revision)
        case Unstartable(message):
            if run.stage is Stage.ENDED:
                return run, ()
            return _over(
                run,
                (
                    Say(
                        Finished(
                            **_of(run), succeeded=False, message=message, reason=FAILED_TO_START
                        )
                    ),
                ),
            )
        case Up():
            if run.stage is not Stage.STARTING:
                return run, ()
            return _at(run, Stage.RUNNING), (Say(Started(**_of(run))),)
        case Ready():
            if run.stage is not Stage.RUNNING or run.ready:
                return run, ()
            return msgspec.structs.replace(run, ready=True), (Say(PodsReady(**_of(run))),)
        case Ended(kind, message, exit_code):
            return _ended(run, kind, message, exit_code)
        case ClaimLost() | Leave() if run.stage is Stage.ENDED:
            return run, ()
        case ClaimLost():
            return _leave_off(msgspec.structs.replace(run, claim_lost=True))
        case Leave():
            if run.stage is Stage.CLAIMING:
                return _at(run, Stage.ENDED), (Release(), Forget())
            return _leave_off(msgspec.structs.replace(run, leaving=True))
    assert_never(event)


def concerned(
    runs: Mapping[str, Run], namespace: str, name: str, evicted: int, admitted: int = 0
) -> list[str]:
    """Keys of the runs that an eviction of the workload means. ``admitted``: the revision of its
    last admission, 0 if nobody knows: a job of an earlier one, whose quota is free since nobody
    heard of its end in time, has been evicted itself, and does not answer for another's."""
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
    }


def _at(run: Run, stage: Stage) -> Run:
    return msgspec.structs.replace(run, stage=stage)


def result_of(run: Run, kind: str, message: str, exit_code: int = 0) -> Finished:
    """What is said of a run that has ended by itself. ``kind``: succeeded or failed."""
    succeeded = kind == "succeeded"
    return Finished(
        **_of(run),
        succeeded=succeeded,
        message=message,
        reason="Succeeded" if succeeded else "Failed",
        exit_code=exit_code or None,
    )


def _stopped(run: Run, *, reason: str = "", message: str = "") -> Stopped:
    fact = Stopped(**_of(run), reason=reason, message=message)
    return msgspec.structs.replace(fact, revision=run.evicted, reason="") if run.evicted else fact


def _claimed(run: Run) -> tuple[Run, Effects]:
    if run.stage is not Stage.CLAIMING:
        return run, ()
    if run.evicted:
        return _over(run, (Say(_stopped(run)),))
    return _at(run, Stage.STARTING), (Start(),)


def _evicted(run: Run, revision: int) -> tuple[Run, Effects]:
    if revision <= max(run.revision, run.evicted):
        return run, ()  # an eviction before this admission, or one that we heard
    run = msgspec.structs.replace(run, evicted=revision)
    match run.stage:
        case Stage.CLAIMING:
            return run, ()  # decided when we know whose it is
        case Stage.STARTING | Stage.RUNNING:
            return _at(run, Stage.STOPPING), (Stop(),)
        case Stage.STOPPING:
            return run, (Stop(),)  # the data folder has to know the revision as well
        case Stage.ENDED:
            # It may have ended because another runner has it, and runs it: then that one stops it.
            return run, (Bury(then=_stopped(run)),)
    assert_never(run.stage)


def _leave_off(run: Run) -> tuple[Run, Effects]:
    if run.stage in (Stage.STARTING, Stage.RUNNING):
        return _at(run, Stage.STOPPING), (Stop(),)
    return run, ()


def _over(run: Run, says: Effects) -> tuple[Run, Effects]:
    return _at(run, Stage.ENDED), (*says, Bury(), Forget())


def _ended(run: Run, kind: str, message: str, exit_code: int) -> tuple[Run, Effects]:
    if run.stage is Stage.ENDED:
        return run, ()
    if kind in ("succeeded", "failed"):
        # Also in the middle of an eviction, or under a lost claim: what ended by itself has ended.
        says: Effects = (Say(result_of(run, kind, message, exit_code)),)
        if run.evicted:
            says = (*says, Say(_stopped(run)))
        return _over(run, says)
    over = _at(run, Stage.ENDED)
    lost = _stopped(run, reason=NODE_FAILURES, message=message)
    if run.claim_lost:
        return over, (Bury(then=lost), Forget())
    if run.evicted:
        return _over(run, (Say(lost),))
    if kind == "stopped" and run.leaving:
        said = _stopped(
            run, reason=RUNNER_ENDED, message="its runner ended; it runs again under a runner"
        )
        return over, (Say(said), Release(), Forget())
    # It ended in our absence or against our will: the quota goes back, the workload runs again.
    return over, (Bury(then=lost), Forget())
