"""The retry-timer: follows the bucket, sets and takes away schedules, compares now and then."""

from __future__ import annotations

from datetime import datetime
from functools import partial
from typing import Any, Final

import msgspec

from admittance.api.reading.manifest import decode_object
from admittance.events.facts import TimerDue
from admittance.events.names import plain, token
from admittance.events.subjects import TIMER_AT, TIMER_DUE
from admittance.lease.lease_state import RETRY_TIMER
from admittance.timers import schedules
from admittance.timers.core import Timers
from admittance.timers.schedules import ActualSchedule, Cancel, Order, SetTimer, Slot
from admittance.workload import stored as workloads
from admittance.workload.limits import Limits
from admittance.workload.transition_context import CheckRules
from simulation.actors.alone import Alone
from simulation.actors.bucket_reader import BucketReader
from simulation.link import Unavailable
from simulation.server import SCHEDULE, TARGET
from simulation.stream import Outgoing, Refused, Stored

COMPARE_SECONDS: Final = 20.0
"""Between two readings of the stream of timers; the shell has more patience."""
_due = msgspec.json.Decoder(TimerDue)


class RetryTimer(Alone["Active"]):
    """One instance: stands by, leads, falls."""

    kind = "retry-timer"
    domain = RETRY_TIMER
    limits: Limits = Limits()

    def begin(self, _: int, /) -> Active:
        return Active(self)


class Active:
    """The one that leads, or believes so."""

    def __init__(self, service: RetryTimer) -> None:
        self._service = service
        self._server = service.server
        self._timers = Timers(service.limits)
        self._bucket = BucketReader(service, _wants)
        self._compare_at = 0.0

    def close(self) -> None:
        """Hears no more."""
        self._bucket.close()

    def run(self) -> Any:
        """Until another one leads."""
        service, timers = self._service, self._timers
        entries = yield from service.link.ask(self._bucket.begin)
        self._take(entries)
        yield from self._compare()
        while service.leading.lease.fence(RETRY_TIMER) is not None:
            self._take(self._bucket.changes())
            compares = service.mechanisms.timers_compared
            if compares:
                for slot in timers.take_overdue(service.process.now()):
                    service.tell(f"sets {slot.kind} of {slot.name} again")
            orders = timers.orders(service.process.now())
            if orders:
                yield from self._perform(orders)
                continue
            if compares and len(timers.wanted) and service.kernel.now >= self._compare_at:
                yield from self._compare()
                continue
            yield self._bucket.come, self._patience(compares)

    def _patience(self, compares: bool) -> float | None:
        """Until something may be to do without news; None: nothing ever will."""
        timers, now = self._timers, self._service.process.now()
        waits = [timers.next_order_at()]
        if compares:
            waits.append(timers.next_overdue_at())
        found = [(at - now).total_seconds() for at in waits if at is not None]
        if compares and len(timers.wanted):
            found.append(self._compare_at - self._service.kernel.now)
        # Who leads no more hears of it in time, too: a change of the lease is no news here.
        return max(0.001, min(found)) if found else None

    # The bucket. ------------------------------------------------------------------------

    def _take(self, entries: list[Stored]) -> None:
        now = self._service.process.now()
        for entry in entries:
            if entry.subject.startswith("workload."):
                workload = None if entry.gone else workloads.decode(entry.data)
                self._timers.apply(entry.subject, workload, entry.sequence, now)
                continue
            name = plain(entry.subject.partition(".")[2])
            manifest: Any = None if entry.gone else decode_object(entry.data).manifest
            rules = None
            if manifest is not None:
                spec = manifest.spec
                rules = CheckRules(
                    name=name,
                    controller=spec.controller_name,
                    preemption_policy=spec.preemption_policy,
                    retry=spec.retry,
                    timeout_seconds=spec.check_timeout_seconds,
                )
            self._timers.apply_check(name, rules, now)

    # The stream of timers. --------------------------------------------------------------

    def _compare(self) -> Any:
        self._timers.begin_comparison()
        standing = yield from self._service.link.ask(self._standing)
        mended = self._timers.compare(standing, self._service.process.now())
        self._compare_at = self._service.kernel.now + COMPARE_SECONDS
        if mended:
            self._service.tell(f"finds {mended}")

    def _standing(self) -> dict[Slot, ActualSchedule]:
        found = {}
        for subject, stored in self._server.timers.last.items():
            kind, namespace, name = map(plain, subject.removeprefix(TIMER_AT).split("."))
            at = datetime.fromisoformat(stored.headers[SCHEDULE].removeprefix("@at "))
            found[Slot(kind, namespace, name)] = ActualSchedule(at, _due.decode(stored.data).uid)
        return found

    def _perform(self, orders: list[Order]) -> Any:
        timers, server = self._timers, self._server
        for order in orders:
            now = self._service.process.now
            try:
                if isinstance(order, Cancel):
                    yield from self._service.link.ask(partial(server.purge, _subject(order.slot)))
                else:
                    (outcome,) = yield from self._service.link.publish_all(
                        server.publish, [schedule(order)]
                    )
                    if isinstance(outcome, Refused):
                        raise Unavailable
            except Unavailable:
                timers.failed(order, now())
            else:
                timers.done(order, now())


def _wants(key: str) -> bool:
    return key.startswith(("workload.", "admissioncheck."))


def _subject(slot: Slot) -> str:
    return f"{TIMER_AT}{'.'.join(map(token, slot))}"


def schedule(order: SetTimer) -> Outgoing:
    """The schedule as the bus takes it."""
    headers = {
        SCHEDULE: f"@at {order.want.at.isoformat()}",
        TARGET: f"{TIMER_DUE}{'.'.join(map(token, order.slot))}",
    }
    return Outgoing(_subject(order.slot), schedules.due(order), headers)


__all__ = ["RetryTimer"]
