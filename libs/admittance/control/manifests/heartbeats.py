"""Which check controllers are alive and can evaluate their checks. The module is pure.

A controller that has sent a heartbeat counts as lost when three in a row are missing. A controller
that has never sent a heartbeat counts as active, and no condition is written for its checks.
Replicas of a controller differ by ``instance``: a check is active as long as one live replica
reports the check as active.

Times are monotonic seconds. After a takeover the stored conditions show which controllers sent
heartbeats before. The new leader counts each controller with stored conditions as if its heartbeat
had arrived at the moment of the takeover.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterable
from datetime import datetime
from typing import Final, NamedTuple

from msgspec.structs import replace

from admittance.api.checks import AdmissionCheck, ObjectStatus
from admittance.api.meta import Condition
from admittance.control.manifests.objects import Objects, missing_parameters_text
from admittance.events import reasons
from admittance.events.system import EVERY_CALL_FAILS, CheckAlive

ACTIVE: Final = "Active"
"""Type of the Active condition, and the reason of that condition while its status is True."""
RIVALS: Final = "Different programs go by this controller's name and take each other's requests:"
"""First words of a condition's message that names rival programs."""
MISSING: Final = 3
"""Number of missing heartbeats after which a controller counts as lost."""
INSTANCES_MAX: Final = 100
"""How many replicas are kept per controller: those with the latest heartbeats."""
MESSAGE_MAX: Final = 1024
MESSAGE_SECONDS: Final = 60.0
"""Least time between two writes that change only the message: every write gives the AdmissionCheck
a new revision, and the scheduler then repeats decisions that it made from the old one."""

_REASON: Final = re.compile(r"\A[A-Za-z](?:[A-Za-z0-9_,:]{0,62}[A-Za-z0-9_])?\Z")


class _Received(NamedTuple):
    beat: CheckAlive
    at: float


class _Controller:
    """A check controller with heartbeats. ``last``: the time of the latest heartbeat of any replica
    of the controller, or of a later call of `expect`, before which no heartbeat could arrive."""

    __slots__ = ("last", "replicas")

    def __init__(self, last: float) -> None:
        self.last = last
        self.replicas: dict[str, _Received] = {}


class Heartbeats:
    """The heartbeats of each controller. ``every_seconds``: the expected interval between two
    heartbeats."""

    def __init__(self, every_seconds: float) -> None:
        self._patience = MISSING * every_seconds
        self._controllers: dict[str, _Controller] = {}

    def knows(self, controller: str) -> bool:
        """Whether the controller has sent heartbeats to this leader or to an earlier one."""
        return controller in self._controllers

    def record(self, controller: str, beat: CheckAlive, now: float) -> bool:
        """Records a heartbeat; returns True if the heartbeat differs from the previous one of that
        replica."""
        known = self._controllers.get(controller)
        if known is None:
            known = self._controllers[controller] = _Controller(now)
        report = replace(beat, time=None)
        before = known.replicas.pop(beat.instance, None)
        # The entry is removed and inserted again, so that the replica with the oldest heartbeat
        # comes first in the dict.
        known.replicas[beat.instance] = _Received(report, now)
        silent = now - known.last >= self._patience
        known.last = now
        if len(known.replicas) > INSTANCES_MAX:
            del known.replicas[next(iter(known.replicas))]
        return before is None or silent or before.beat != report

    def expect(self, controllers: Iterable[str], now: float) -> None:
        """Counts the given controllers as if their heartbeats had arrived at ``now``: no heartbeat
        could arrive before, for example because the process was suspended."""
        for controller in controllers:
            self._controllers.setdefault(controller, _Controller(now)).last = now

    def expect_all(self, now: float) -> None:
        """Calls `expect` for every check controller that has sent a heartbeat."""
        for known in self._controllers.values():
            known.last = now
            known.replicas = {
                name: _Received(received.beat, now) for name, received in known.replicas.items()
            }

    def forget(self, but: set[str]) -> None:
        """Removes the heartbeats of every controller that is not in ``but``."""
        for controller in self._controllers.keys() - but:
            del self._controllers[controller]

    def next_loss(self, now: float) -> float | None:
        """When the next replica or controller will count as lost if it stays silent."""
        times = [
            time + self._patience
            for known in self._controllers.values()
            for time in (known.last, *(received.at for received in known.replicas.values()))
        ]
        return min((time for time in times if time > now), default=None)

    def condition(
        self, check: AdmissionCheck, now: float, clock: datetime, written: float | None
    ) -> Condition | None:
        """The new Active condition of the check; None: the condition does not change.

        ``written``: when the caller wrote the condition last.
        """
        known = self._controllers.get(check.spec.controller_name)
        if known is None:
            return None
        live = self._live(known, now)
        if not live and now - known.last < self._patience:
            return None
        report = _report(check.metadata.name, live) if live else _LOST
        before = active_of(check)
        if before is not None:
            if (before.status, before.reason, before.message) == report:
                return None
            lately = written is not None and now - written < MESSAGE_SECONDS
            if (
                (before.status, before.reason) == report[:2]
                and lately
                and not _rivals_changed(before, report)
                and not _began_to_fail(before, report)
            ):
                return None
        return _active(check, report, clock)

    def rivals(self, controller: str, now: float) -> tuple[str, ...]:
        """The programs that use this controller's name, if there are several. Two programs with one
        controller name take requests from each other."""
        known = self._controllers.get(controller)
        return _programs(self._live(known, now)) if known is not None else ()

    def _live(self, known: _Controller, now: float) -> list[CheckAlive]:
        gone = [n for n, received in known.replicas.items() if now - received.at >= self._patience]
        for name in gone:
            del known.replicas[name]
        return [received.beat for received in known.replicas.values()]


_LOST: Final = ("False", reasons.CONTROLLER_LOST, "The controller sends no heartbeats any more")


def _report(check: str, live: list[CheckAlive]) -> tuple[str, str, str]:
    """Status, reason and message of the check's condition from the live replicas. If replicas
    agree, the newest report counts."""
    words = [beat.checks.get(check, beat) for beat in live]
    active = [word for word in words if word.active]
    if not active:
        reason = words[-1].reason if _REASON.match(words[-1].reason) else "Inactive"
        message = words[-1].message or "The controller says that it cannot evaluate the check"
        return "False", reason, _cut(message)
    rivals = _programs(live)
    if rivals:
        return "True", ACTIVE, _cut(f"{RIVALS} {', '.join(rivals)}")
    return "True", ACTIVE, _cut(active[-1].message or "The admission check is active")


def _rivals_changed(before: Condition, report: tuple[str, str, str]) -> bool:
    """Whether rival programs appeared or disappeared between the written condition and the
    report."""
    return before.message.startswith(RIVALS) != report[2].startswith(RIVALS)


def _began_to_fail(before: Condition, report: tuple[str, str, str]) -> bool:
    """Whether every call of the check's function fails now, and did not when the condition was
    written. The end of failures may wait, so that a check that fails now and then is written
    seldom."""
    return report[2].startswith(EVERY_CALL_FAILS) and not before.message.startswith(
        EVERY_CALL_FAILS
    )


def _programs(live: list[CheckAlive]) -> tuple[str, ...]:
    named = {beat.program[:100] for beat in live if beat.program}
    return tuple(sorted(named))[:5] if len(named) > 1 else ()


def _cut(message: str) -> str:
    return message.encode("utf-8", "replace").decode()[:MESSAGE_MAX]


def active_of(check: AdmissionCheck) -> Condition | None:
    """The Active condition of the check; None: the controller of the check has never sent a
    heartbeat."""
    if check.status is None:
        return None
    return next(
        (condition for condition in check.status.conditions if condition.type == ACTIVE), None
    )


def with_active(check: AdmissionCheck, condition: Condition | None) -> AdmissionCheck:
    """The check with the given Active condition; a condition of None removes the Active
    condition."""
    others = check.status.conditions if check.status is not None else ()
    kept = tuple(other for other in others if other.type != ACTIVE)
    new = () if condition is None else (condition,)
    return replace(check, status=ObjectStatus(conditions=(*kept, *new)))


def with_new_condition(
    check: AdmissionCheck,
    objects: Objects,
    beats: Heartbeats,
    now: float,
    clock: datetime,
    written: float | None = None,
    coming: Container[str] = (),
) -> AdmissionCheck | None:
    """The check with its new Active condition; None: the condition does not change. ``now``:
    monotonic seconds; ``written``: when the caller wrote the condition last. ``coming``: keys of
    objects written in the same apply.
    """
    new = _with_parameters(check, objects, clock, coming)
    if not reports_missing_parameters(new):
        # The parameters object of the check exists, so only the heartbeats of the controller can
        # make the check inactive.
        condition = beats.condition(new, now, clock, written)
        if condition is not None:
            new = with_active(new, condition)
    return None if active_of(new) == active_of(check) else new


def with_changed_parameters(objects: Objects, clock: datetime) -> list[AdmissionCheck]:
    """The checks with a changed Active condition because their parameters were created or deleted,
    each with the new condition."""
    checks = objects.of_kind("admissioncheck")
    return [
        new for check in checks if (new := _with_parameters(check, objects, clock)) is not check
    ]


def _with_parameters(
    check: AdmissionCheck, objects: Objects, clock: datetime, coming: Container[str] = ()
) -> AdmissionCheck:
    """The check with the condition that its parameters are missing, or without that condition if
    they exist; the same object if nothing changes."""
    reported = reports_missing_parameters(check)
    missing = objects.missing_parameters(check, coming)
    if reported == bool(missing):
        return check
    report = ("False", reasons.BAD_PARAMETERS_REF, missing)
    return with_active(check, _active(check, report, clock) if missing else None)


def reports_missing_parameters(check: AdmissionCheck) -> bool:
    """Whether the Active condition of the check reports missing parameters, and nothing about its
    controller."""
    active = active_of(check)
    return (
        active is not None
        and active.reason == reasons.BAD_PARAMETERS_REF
        and active.message == missing_parameters_text(check) != ""
    )


def _active(check: AdmissionCheck, report: tuple[str, str, str], clock: datetime) -> Condition:
    """Returns the Active condition of the check from a report with status, reason and message."""
    status, reason, message = report
    before = active_of(check)
    since = before.last_transition_time if before is not None and before.status == status else clock
    return Condition(
        type=ACTIVE,
        status=status,
        reason=reason,
        message=message,
        last_transition_time=since,
        observed_generation=check.metadata.generation,
    )
