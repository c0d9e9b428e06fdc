"""The verdicts of the check `machines`, as a state machine: changes in, verdicts out.

What happens to a reservation, in this order:

1. Other checks may choose machines, too, and their verdicts may add selectors. So a reservation
   waits until all other deferring checks are Ready.
2. If its pods have room now, it is booked. When all other checks are Ready, the verdict is Ready.
3. If its pods have room once the planned victims have stopped, that room is booked, and the verdict
   is Pending with PreemptionRequired. No workload is preempted for a machine that does not help.
4. Otherwise the verdict is Pending, with what is missing; and after a time Retry, so that its quota
   does not sleep. The time counts from the last change of another check.

A change of a plan, a machine or a booking starts again at 2. Waiting workloads are tried in the
order of priority and of the time since which they wait (`admittance.placement.held_back`). A job
whose machine is gone gets Retry, too (`admittance.placement.moved_jobs`).

Nothing here is stored: a new instance reads bookings from the status and the rows of workloads.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterable, Iterator
from datetime import datetime, timedelta

from admittance.events import reasons
from admittance.events.placement import Placement, runners_of
from admittance.events.requests.machines import LackingRow
from admittance.events.stored.machines import OpenRun as ShownRun
from admittance.events.system import RunnerStarts
from admittance.placement.held_back import HeldBack
from admittance.placement.holds import Holds, left_on
from admittance.placement.machines.machine import Machine, OpenRun
from admittance.placement.moved_jobs import MovedJobs
from admittance.placement.reservation import (
    Judged,
    PlacementView,
    Reservation,
    has_rows,
    held_by,
    judged_by,
    lacking_row,
    reservation_of,
)
from admittance.placement.search.index import MachineClass, MachineIndex, class_key, suits
from admittance.placement.search.ledger import Ledger, Shares, shares_of
from admittance.placement.search.place import place
from admittance.placement.search.request import PlacementRequest
from admittance.placement.search.shortage import Shortage
from admittance.placement.tally import Allocated, PlacementTally, allocated_of
from admittance.placement.verdicts import (
    DueTimes,
    PlacementTimes,
    PlacementVerdict,
    runner_names,
    verdict_on,
)
from admittance.placement.waiting_groups import WaitingGroups
from admittance.workload.conditions import Type, is_true
from admittance.workload.stored import StoredWorkload, head


class _Waiting:
    """A reservation, and what is remembered about it in its cycle.

    ``booked``: the parts that are booked. ``coming``: the victims whose room is part of them.
    ``had_room``: whether anything was booked before. ``needs``: what is compared with those of
    others that lack room; None: it is tried by itself. ``short``: what is missing, since
    ``short_since``. ``published``: the last verdict, at ``published_at``. ``pause``: the time
    until the next sentence about what is missing. ``was_ready``: whether the verdict was Ready."""

    __slots__ = (
        "booked",
        "coming",
        "had_room",
        "needs",
        "pause",
        "published",
        "published_at",
        "reservation",
        "short",
        "short_since",
        "was_ready",
    )

    def __init__(self, reservation: Reservation) -> None:
        self.reservation = reservation
        self.booked: Placement = ()
        self.coming: frozenset[str] = frozenset()
        self.had_room = False
        self.needs: object = None
        self.short: Shortage | None = None
        self.short_since: datetime | None = None
        self.published: PlacementVerdict | None = None
        self.published_at: datetime | None = None
        self.pause = timedelta(0)
        self.was_ready = False

    @property
    def key(self) -> str:
        return self.reservation.judged.key


class _Pass:
    """What is remembered while waiting workloads are tried in their order. ``refused``: the needs
    that had no room. ``rules``: those of all runners."""

    def __init__(self, rules: list[RunnerStarts]) -> None:
        self.refused: dict[object, Shortage] = {}
        self._rules = rules

    def needs(self, reservation: Reservation) -> object:
        """What is equal for workloads that have room on the same machines: the second one has none
        if the first had none."""
        _, _, pod_sets, demands = reservation.request
        refusals = tuple([bool(demands.refusal(starts)) for starts in self._rules])
        return pod_sets, demands[:3], refusals, reservation.priority


class PlacementDecisions:
    """Decides for all workloads with the check. The caller applies changes in any order, and then
    takes the verdicts of `decide`; `next_due` says when to call it again without a change.

    Until all machines and workloads have been applied nothing may be decided.
    """

    def __init__(self, view: PlacementView, times: PlacementTimes | None = None) -> None:
        self.ledger = Ledger()
        self.index = MachineIndex(self.ledger)
        self._view = view
        self._times = times or PlacementTimes()
        self._stored: dict[str, tuple[StoredWorkload, int]] = {}
        """The workloads of ``_waiting``, and those with rows of which no check is known to be ours:
        they are read again when a check or a flavor changes. Each with its revision."""
        self._waiting: dict[str, _Waiting] = {}
        self._jobs = MovedJobs(self.ledger, self._times)
        self._held_back = HeldBack(self.ledger, self._times)
        self._due = DueTimes()
        self._changed: set[str] = set()
        self._groups = WaitingGroups()
        """The workloads that lack room, by their needs."""
        self._alone: set[str] = set()
        """Those that lack room and are not in a group: bookings do not count for all of them
        alike."""
        self._booked_on: dict[str, set[str]] = {}
        """The waiting workloads with a booking, by the ids of machines."""
        self._rules: frozenset[RunnerStarts] = frozenset()
        self.holds = Holds()
        self.tally = PlacementTally()
        """What happened since it was read last, for metrics."""

    # Changes. ---------------------------------------------------------------------------

    def set_machine(self, machine: Machine) -> None:
        """A machine was announced or has changed."""
        self.ledger.set_machine(machine)
        self._jobs.look_at(machine.id)

    def forget_machine(self, machine_id: str) -> None:
        """A machine is gone for good."""
        self.ledger.forget_machine(machine_id)
        self._jobs.look_at(machine_id)

    def set_runs(self, machine_id: str, runs: Iterable[OpenRun]) -> None:
        """The open runs of a machine have changed."""
        self.ledger.set_runs(machine_id, runs)

    def apply_workload(
        self, namespace: str, name: str, workload: StoredWorkload | None, revision: int
    ) -> None:
        """A workload was stored at the revision, or deleted (None). Raises as
        `admittance.api.pod_requests.needs` for a spec that was not validated."""
        key = f"{namespace}/{name}"
        judged = held = None
        if workload is not None:
            judged, held = judged_by(workload, self._view), held_by(workload, revision)
        has_job = judged is not None and judged.admitted
        self._jobs.set_job(key, judged if has_job else None, held.parts if held else ())
        self.holds.set(key, workload, held)
        if workload is not None and judged is not None and not has_job:
            self._stored[key] = workload, revision
            self._wait(workload, judged)
        else:
            self._stop_waiting(key)
            self._stored.pop(key, None)
            if workload is not None and judged is None and has_rows(workload):
                self._stored[key] = workload, revision
            if workload is not None and not has_job and _competes(workload):
                self._held_back.leave(key)
            else:
                self._held_back.forget(key)
            if held is None:
                self.ledger.release(key)
        if held is not None:
            self.ledger.book(
                key, held.family, held.shares, revision=held.revision, parts=held.parts
            )
            waiting = self._waiting.get(key)
            if waiting is not None and waiting.booked != held.parts:
                self._set_booked(waiting, held.parts)

    def configuration_changed(self) -> None:
        """A check or a flavor has changed: reservations are read again."""
        for workload, revision in list(self._stored.values()):
            meta = workload.metadata
            self.apply_workload(meta.namespace, meta.name, workload, revision)

    def _wait(self, workload: StoredWorkload, judged: Judged) -> None:
        reservation = reservation_of(workload, judged, self._view)
        waiting = self._waiting.get(judged.key)
        if waiting is None or waiting.reservation.judged.cycle != judged.cycle:
            if waiting is not None:
                self._release(waiting)
            self._stop_waiting(judged.key)
            waiting = self._waiting[judged.key] = _Waiting(reservation)
        waiting.reservation = reservation
        self._changed.add(judged.key)

    def _stop_waiting(self, key: str) -> None:
        waiting = self._waiting.pop(key, None)
        if waiting is not None:
            self._set_booked(waiting, ())
            self._groups.remove(key)
            self._alone.discard(key)

    def _set_booked(
        self, waiting: _Waiting, parts: Placement, coming: frozenset[str] = frozenset()
    ) -> None:
        for machine_id in runners_of(waiting.booked):
            keys = self._booked_on[machine_id]
            keys.discard(waiting.key)
            if not keys:
                del self._booked_on[machine_id]
        waiting.booked, waiting.coming = parts, coming
        waiting.had_room = waiting.had_room or bool(parts)
        for machine_id in runners_of(parts):
            self._booked_on.setdefault(machine_id, set()).add(waiting.key)

    # Verdicts. --------------------------------------------------------------------------

    def decide(self, now: datetime) -> list[PlacementVerdict]:
        """Returns the verdicts that are due now, in the order in which room was given."""
        self._jobs.due.take(now)
        verdicts = self._jobs.verdicts(now)
        self._held_back.forget_gone(now)
        self._changed |= self._due.take(now) | self._held_back.due.take(now)
        while self._changed or self.ledger.changed or self.ledger.gained:
            verdicts += self._decide_all(now)
        return verdicts

    def _decide_all(self, now: datetime) -> list[PlacementVerdict]:
        """Tries the workloads that have changed, those on machines that have changed, and, if
        machines gained room, those that lack room, each group up to the first that still does."""
        keys = self._changed
        self._changed = set()
        for machine_id in self.ledger.changed:
            keys |= self._booked_on.get(machine_id, set())
        if self.ledger.gained:
            keys |= self._alone
            keys |= {key for *_, key in self._groups.heads()}
        self.ledger.gained.clear()
        self.index.refresh()
        rules = frozenset(self.index.rules())
        if rules != self._rules:
            # Workloads with equal needs may now differ in the runners that start them.
            self._rules = rules
            keys |= self._waiting.keys()
        this_pass = _Pass(sorted(rules, key=repr))
        verdicts: list[PlacementVerdict] = []
        queue = [
            self._held_back.order(self._waiting[k].reservation) for k in keys & self._waiting.keys()
        ]
        heapq.heapify(queue)
        while queue:
            key = heapq.heappop(queue)[2]
            needs = self._groups.needs(key) if key in self._groups else None
            verdicts += self._decide(self._waiting[key], now, this_pass)
            if needs is not None and key not in self._groups:
                following = self._groups.next_of(needs)
                if following is not None and following[2] not in keys:
                    keys.add(following[2])
                    heapq.heappush(queue, following)
        return verdicts

    @property
    def next_due(self) -> datetime | None:
        """When `decide` must be called even without a change; None: not before one."""
        times = (self._due.first, self._jobs.due.first, self._held_back.due.first)
        return min((at for at in times if at is not None), default=None)

    def shortages(self) -> dict[str, Shortage]:
        """Of each reservation that lacks room the reason, by the key of the workload."""
        return {key: w.short for key, w in self._waiting.items() if w.short is not None}

    def lacking(self, limit: int) -> tuple[LackingRow, ...]:
        """The first reservations that lack room, in the order in which they are tried."""
        shortages = self.shortages()
        waiting = {key: self._waiting[key].reservation for key in shortages}
        order = map(self._held_back.order, waiting.values())
        return tuple(
            lacking_row(waiting[key], since, shortages[key].message)
            for _, since, key in heapq.nsmallest(limit, order)
        )

    def waiting_for_victims(self) -> int:
        """The number of reservations for which the room of planned victims is booked."""
        return sum(bool(waiting.coming) for waiting in self._waiting.values())

    def without_runner(self, machine_id: str) -> list[ShownRun]:
        """What is held of the machine beside the runs that its runner reports: by programs, and by
        jobs of the earlier data folders of its runner."""
        return [*self.holds.on(machine_id), *left_on(self.ledger, machine_id)]

    def allocated(self, machine_id: str) -> Allocated:
        """What workloads and open runs hold of the machine; room that is held back for a waiting
        workload is not held."""
        return allocated_of(self.ledger, machine_id, self._held_back.keys())

    def _decide(
        self, waiting: _Waiting, now: datetime, this_pass: _Pass
    ) -> Iterator[PlacementVerdict]:
        reservation = waiting.reservation
        if not reservation.deferring_ready:
            self._has_room(waiting)
            if reservation.judged.row.state != "Ready":
                # A Ready row is a promise: its workload may be admitted any time.
                self._release(waiting)
            return
        if self._is_valid(waiting, self._held_back.keys()):
            waiting.coming = frozenset()
        else:
            shortage = self._place(waiting, this_pass)
            if shortage is not None:
                yield from self._lacks_room(waiting, shortage, now)
                return
        self._has_room(waiting)
        if waiting.coming:
            yield from self._publish(waiting, _preemption_required(waiting), now)
            return
        self._held_back.forget(waiting.key)
        if reservation.others_ready:
            for verdict in self._publish(waiting, _ready(waiting), now):
                if not waiting.was_ready:
                    waiting.was_ready = True
                    self.tally.waits.append((now - reservation.since).total_seconds())
                yield verdict

    def _has_room(self, waiting: _Waiting) -> None:
        waiting.short = waiting.short_since = None
        self._groups.remove(waiting.key)
        self._alone.discard(waiting.key)

    def _is_valid(self, waiting: _Waiting, freed: Collection[str]) -> bool:
        """Whether the booked parts still suit the workload, and have room if the workloads
        ``freed`` hold nothing."""
        request = waiting.reservation.request
        if not waiting.booked:
            return False
        groups = {group.name: group for group in request.pod_sets}
        for part in waiting.booked:
            machine, group = self.ledger.machine(part.id), groups.get(part.pod_set)
            if machine is None or group is None or not machine.takes_pods:
                return False
            taken = MachineClass(class_key(machine))
            fits, only = suits(taken, group, request.demands, group.names_machines)
            if not fits or (only is not None and not only(machine)):
                return False
        shares = _shares(request, waiting.booked)
        return not self.ledger.overlap(request.family, shares, freed=freed)

    def _place(self, waiting: _Waiting, this_pass: _Pass) -> Shortage | None:
        """Places the workload in the room now, or in the room to come, and books it. Returns what
        is missing; None: it is booked."""
        request = waiting.reservation.request
        freed = self._freed(waiting)
        if not freed or not self._is_valid(waiting, self._held_back.keys() | freed):
            self._release(waiting)
        needs: object = None
        if not freed and not self.ledger.machines_of(request.family):
            needs = this_pass.needs(waiting.reservation)
            if needs in this_pass.refused:
                # A workload with the same needs, which comes first, had no room.
                return self._refuse(waiting, this_pass.refused[needs], needs)
        ignored = self._held_back.below(waiting.reservation.priority)
        parts = place(request, self.index, freed=ignored)
        coming: frozenset[str] = frozenset()
        if isinstance(parts, Shortage):
            shortage = parts
            if needs is not None:
                this_pass.refused[needs] = shortage
            if not freed:
                return self._refuse(waiting, shortage, needs)
            coming = freed
            parts = waiting.booked or place(request, self.index, freed=ignored | freed)
            if isinstance(parts, Shortage):
                return self._refuse(waiting, shortage, None)
        self._set_booked(waiting, parts, coming)
        self.ledger.book(request.key, request.family, _shares(request, parts))
        return None

    def _refuse(self, waiting: _Waiting, shortage: Shortage, needs: object) -> Shortage:
        """Notes the needs of a workload that lacks room; None: they are its own."""
        waiting.needs = needs
        return shortage

    def _freed(self, waiting: _Waiting) -> frozenset[str]:
        """The workloads whose room comes, with their parents: planned victims, and those that were
        it when the room was booked. The processes of a victim may end after its quota is free."""
        victims = waiting.reservation.victims | waiting.coming
        return victims | {self.ledger.family(key) for key in victims}

    def _release(self, waiting: _Waiting) -> None:
        self._set_booked(waiting, ())
        self.ledger.release(waiting.key)

    def _lacks_room(
        self, waiting: _Waiting, shortage: Shortage, now: datetime
    ) -> Iterator[PlacementVerdict]:
        reservation, times, key = waiting.reservation, self._times, waiting.key
        is_new = waiting.short is None or waiting.short.why is not shortage.why
        if is_new:
            self.tally.shortages[shortage.why] += 1
        waiting.short = shortage
        if waiting.short_since is None:
            # The time starts again if room was lost, so that victims have not stopped in vain.
            waiting.short_since = now if waiting.had_room else reservation.since
        since = max(waiting.short_since, reservation.since)
        self._held_back.wait(reservation, since, now, ends=shortage.may_end)
        if waiting.needs is not None:
            self._groups.put(self._held_back.order(reservation), waiting.needs)
            self._alone.discard(key)
        else:
            self._groups.remove(key)
            self._alone.add(key)
        if now >= since + times.retry_after:
            delay = max(1, round(times.retry_delay.total_seconds()))
            retry = verdict_on(reservation.judged, "Retry", shortage.message, delay=delay)
            yield from self._publish(waiting, retry, now)
            return
        self._due.add(key, since + times.retry_after)
        pending = verdict_on(reservation.judged, "Pending", shortage.message)
        if pending.is_stored(reservation.judged):
            # Its numbers may change although it is not tried.
            self._due.add(key, now + max(waiting.pause, times.say_again))
            return
        say_at = since + times.say_after
        if waiting.published_at is not None and not is_new:
            say_at = max(say_at, waiting.published_at + waiting.pause)
        if now < say_at and reservation.judged.row.state == "Pending":
            self._due.add(key, say_at)
            return
        waiting.pause = min(max(times.say_again, 2 * waiting.pause), times.say_again_most)
        yield from self._publish(waiting, pending, now)

    def _publish(
        self, waiting: _Waiting, verdict: PlacementVerdict, now: datetime
    ) -> Iterator[PlacementVerdict]:
        """Yields the verdict, unless the workload has it, or it was just sent. A verdict that has
        no effect is sent again after some time: it may have been refused."""
        if verdict.is_stored(waiting.reservation.judged):
            return
        # The workload-controller may have read a new machine a moment later.
        is_taken = waiting.reservation.judged.row.reason == reasons.MACHINE_TAKEN
        pause = self._times.taken_again if is_taken else self._times.repeat_after
        if verdict.repeats(waiting.published) and waiting.published_at is not None:
            again = waiting.published_at + pause
            if now < again:
                self._due.add(waiting.key, again)
                return
        waiting.published, waiting.published_at = verdict, now
        self._due.add(waiting.key, now + pause)
        yield verdict


def _competes(workload: StoredWorkload) -> bool:
    """Whether the workload may get quota again."""
    deleted = workload.metadata.deletion_timestamp is not None
    return not deleted and head(workload).active and not is_true(workload, Type.FINISHED)


def _shares(request: PlacementRequest, parts: Placement) -> Shares:
    return shares_of(parts, {group.name: group.requests for group in request.pod_sets})


def _ready(waiting: _Waiting) -> PlacementVerdict:
    message = f"placed on {runner_names(waiting.booked)}"
    verdict = verdict_on(waiting.reservation.judged, "Ready", message)
    return verdict._replace(placement=waiting.booked)


def _preemption_required(waiting: _Waiting) -> PlacementVerdict:
    runners = runner_names(waiting.booked)
    message = f"there is room on {runners} when the workloads to be preempted have stopped"
    return verdict_on(
        waiting.reservation.judged, "Pending", message, reason=reasons.PREEMPTION_REQUIRED
    )
