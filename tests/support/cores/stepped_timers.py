"""Waiting workloads, and the retry-timer's core with a stream of timers in memory."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

import msgspec
from msgspec.structs import replace

from admittance.api.meta import Condition, ObjectMeta
from admittance.api.workload import CheckState, RequeueState
from admittance.timers.core import Corrections, Schedules
from admittance.timers.schedules import ActualSchedule, Cancel, Order, SetTimer, TimerSlot
from admittance.workload.limits import Limits, PodsReadyLimits
from admittance.workload.stored import StoredWorkload, WorkloadStatus, encode
from admittance.workload.transition_context import CheckRules
from support.builders import NOON, an_admission

LIMITS = Limits(pods_ready=PodsReadyLimits(timeout=timedelta(minutes=5)))


def seconds(count: float) -> datetime:
    """The time so many seconds after noon."""
    return NOON + timedelta(seconds=count)


def a_workload(
    *conditions: Condition, uid: str = "u", spec: str = "{}", **status: object
) -> StoredWorkload:
    """ns/w with these conditions."""
    return StoredWorkload(
        api_version="kueue.x-k8s.io/v1beta2",
        kind="Workload",
        metadata=ObjectMeta(name="w", namespace="ns", uid=uid),
        spec=msgspec.Raw(spec.encode()),
        status=WorkloadStatus(conditions=conditions, **status),  # type: ignore[arg-type]
    )


def condition(kind: str, status: bool, since: float = 0.0, reason: str = "") -> Condition:
    return Condition(
        type=kind,
        status="True" if status else "False",
        reason=reason,
        last_transition_time=seconds(since),
    )


def delayed(until: float, uid: str = "u") -> StoredWorkload:
    """A workload that waits until so many seconds after noon before it competes again."""
    return a_workload(
        condition("QuotaReserved", False),
        condition("Requeued", False, reason="AdmissionCheck"),
        uid=uid,
        requeue_state=RequeueState(requeue_at=seconds(until)),
    )


def evicted(since: float) -> StoredWorkload:
    """A workload with a job that is being stopped."""
    return a_workload(
        condition("QuotaReserved", True),
        condition("Admitted", True),
        condition("Evicted", True, since, "Preempted"),
        admission=an_admission(),
    )


def admitted(since: float, longest: int | None = None) -> StoredWorkload:
    """A workload with pods that are not ready. ``longest``: its maximal seconds of execution."""
    spec = "{}" if longest is None else f'{{"maximumExecutionTimeSeconds": {longest}}}'
    return a_workload(
        condition("QuotaReserved", True),
        condition("Admitted", True, since),
        spec=spec,
        admission=an_admission(),
    )


def checked(since: float, *checks: str) -> StoredWorkload:
    """A workload with quota since then, and with these Pending checks."""
    rows = tuple(CheckState(name=check, state="Pending") for check in checks)
    return a_workload(
        condition("QuotaReserved", True, since), admission=an_admission(), admission_checks=rows
    )


def rules(name: str, timeout: int | None) -> CheckRules:
    return CheckRules(name, "ctl", timeout_seconds=timeout)


def idle() -> StoredWorkload:
    """A workload that waits for quota only."""
    return a_workload(condition("QuotaReserved", False))


class TimerStream:
    """The stream of timers in memory: a schedule for each slot, which fires when it is due."""

    def __init__(self) -> None:
        self.standing: dict[TimerSlot, ActualSchedule] = {}
        self.fired: list[tuple[TimerSlot, ActualSchedule, datetime]] = []

    def perform(self, order: Order) -> None:
        match order:
            case SetTimer(slot, want):
                self.standing[slot] = want.expected
            case Cancel(slot):
                self.standing.pop(slot, None)

    def fire(self, now: datetime) -> None:
        for slot, stands in list(self.standing.items()):
            if stands.at is not None and stands.at <= now:
                self.fired.append((slot, stands, now))
                del self.standing[slot]


class SteppedTimers:
    """The retry-timer's core with its stream of timers, and a clock."""

    def __init__(self, limits: Limits = LIMITS, *, begun: bool = True) -> None:
        self.timers = Schedules(limits)
        self.bus = TimerStream()
        self.now = NOON
        self.revision = 0
        if begun:
            self.compare()

    def has(self, workload: StoredWorkload | None, name: str = "w") -> SteppedTimers:
        """Stores the workload in the bucket; None deletes it. As in the service, the core gets a
        workload only if its bytes say that it may wait."""
        self.revision += 1
        if workload is not None:
            workload = replace(workload, metadata=replace(workload.metadata, name=name))
            if not self.timers.may_wait(encode(workload)):
                workload = None
        self.timers.apply(f"workload.ns.{name}", workload, self.revision, self.now)
        return self

    def with_check(self, check: str, timeout: int | None) -> SteppedTimers:
        """Sets the seconds within which the AdmissionCheck's controller must send a verdict."""
        self.timers.apply_check(check, rules(check, timeout), self.now)
        return self

    def orders(self) -> list[Order]:
        return self.timers.orders(self.now)

    def follow(self) -> list[Order]:
        """Performs all orders until none is left."""
        done = []
        while orders := self.orders():
            for order in orders:
                self.bus.perform(order)
                self.timers.done(order, self.now)
            done += orders
        return done

    def later(self, count: float) -> SteppedTimers:
        """Lets seconds pass; schedules that are due fire."""
        self.now += timedelta(seconds=count)
        self.bus.fire(self.now)
        return self

    def settled(self) -> SteppedTimers:
        """Lets one second pass and performs all orders."""
        self.later(1)
        self.follow()
        return self

    def compare(self) -> Corrections:
        """Compares the timers with the stream."""
        self.timers.begin_comparison()
        return self.timers.compare(dict(self.bus.standing), self.now)

    @property
    def standing(self) -> dict[str, datetime | None]:
        """The times of the schedules of ns/w, by kind."""
        return {slot.kind: stands.at for slot, stands in self.bus.standing.items()}


def kinds(slots: Iterable[TimerSlot]) -> list[str]:
    return [slot.kind for slot in slots]
