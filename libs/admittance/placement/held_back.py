"""The room that is held back for a workload which has waited long.

Small jobs find room sooner than a gang, so they could pass it for ever. After a time the first
waiting workload of each set of flavors gets a target: machines that have room for it once their
jobs have ended, those with the most room first. What it needs there is booked without units, so
that room which jobs free is not given to workloads of the same or a lower priority. The workload
keeps its place and its target between a Retry and its next reservation.
"""

from __future__ import annotations

from datetime import datetime
from typing import Final, NamedTuple

from admittance.placement.machines.machine import Machine
from admittance.placement.reservation import Reservation
from admittance.placement.search.index import MachineClass, class_key, suits
from admittance.placement.search.ledger import Ledger, Share
from admittance.placement.search.place import group_order
from admittance.placement.search.request import PlacementRequest, PodGroup
from admittance.placement.search.room import Room, empty_room
from admittance.placement.verdicts import DueTimes, PlacementTimes

_PREFIX: Final = "held back for "


def hold_key(key: str) -> str:
    """The key of the booking of room that is held back for the workload ``key``."""
    return _PREFIX + key


class _Patient(NamedTuple):
    """A workload that lacks room, since that time. ``without_quota``: whether it has lost its
    reservation; ``until``: how long it is remembered then."""

    priority: int
    since: datetime
    without_quota: bool = False
    until: datetime | None = None


RETRIES_MAX: Final = 100_000
"""More Retries of one workload count as many: half a year."""


def waits_since(reservation: Reservation, times: PlacementTimes) -> datetime:
    """Since when the workload lacks room, at the latest, by what is stored: a Retry comes after a
    wait and a delay, and the workload has not run since. A Retry that moved a job, which counts,
    too, comes before the job has stopped."""
    retries = min(reservation.judged.row.retry_count, RETRIES_MAX)
    waited = retries * (times.retry_after + times.retry_delay)
    return max(reservation.idle_since, reservation.reserved_at - waited)


class HeldBack:
    """The workloads that lack room, in their order, and the room that is held back for some."""

    def __init__(self, ledger: Ledger, times: PlacementTimes) -> None:
        self.due = DueTimes()
        self._ledger = ledger
        self._times = times
        self._patients: dict[str, _Patient] = {}
        self._gone: set[str] = set()
        """Those without a reservation."""
        self._holders: dict[frozenset[str], str] = {}
        """By flavors, the workload for which room is held back."""

    def order(self, reservation: Reservation) -> tuple[int, datetime, str]:
        """The place of a reservation among those that wait."""
        key = reservation.judged.key
        patient = self._patients.get(key)
        since = patient.since if patient else waits_since(reservation, self._times)
        return -reservation.priority, since, key

    def keys(self) -> frozenset[str]:
        """The keys of all bookings of room that is held back."""
        return frozenset(hold_key(key) for key in self._holders.values())

    def below(self, priority: int) -> frozenset[str]:
        """The keys of the bookings that do not count for a workload with that priority."""
        return frozenset(
            hold_key(key)
            for key in self._holders.values()
            if self._patients[key].priority < priority
        )

    def wait(self, reservation: Reservation, since: datetime, now: datetime, *, ends: bool) -> None:
        """The reservation lacks room since that time, which is not before its quota was reserved.
        ``ends``: other jobs that end make room."""
        key = reservation.judged.key
        known = self._patients.get(key)
        if known is not None:
            since = known.since
        elif reservation.judged.row.retry_count:
            # It waited under another instance, which knew since when.
            since = waits_since(reservation, self._times)
        self._patients[key] = _Patient(reservation.priority, since)
        self._gone.discard(key)
        after = self._times.hold_after
        if after is None or not ends:
            self._let_go(key)
        elif now >= since + after:
            self._hold(reservation)
        else:
            self.due.add(key, since + after)

    def leave(self, key: str) -> None:
        """The workload lost its reservation, and competes again."""
        patient = self._patients.get(key)
        if patient is not None and not patient.without_quota:
            self._patients[key] = patient._replace(without_quota=True)
            self._gone.add(key)

    def forget(self, key: str) -> None:
        """The workload has its room, or needs none any more."""
        if self._patients.pop(key, None) is not None:
            self._gone.discard(key)
            self._let_go(key)

    def forget_gone(self, now: datetime) -> None:
        """Forgets the workloads that have had no reservation for long."""
        for key in sorted(self._gone):
            patient = self._patients[key]
            until = patient.until or now + self._times.hold_without_quota
            if now >= until:
                self.forget(key)
            else:
                self._patients[key] = patient._replace(until=until)
                self.due.add(key, until)

    def _hold(self, reservation: Reservation) -> None:
        key, flavors = reservation.judged.key, reservation.flavors
        holder = self._holders.get(flavors)
        if holder is not None and holder != key:
            other = self._patients[holder]
            if (-other.priority, other.since, holder) < self.order(reservation):
                return
            self._let_go(holder)
        elif holder == key and self._is_target_valid(key):
            return
        self._let_go(key)
        target = hold_target(reservation.request, self._ledger)
        if target is not None:
            self._holders[flavors] = key
            self._ledger.book(hold_key(key), reservation.request.family, target)

    def _let_go(self, key: str) -> None:
        for flavors, holder in list(self._holders.items()):
            if holder == key:
                del self._holders[flavors]
                self._ledger.release(hold_key(key))

    def _is_target_valid(self, key: str) -> bool:
        machines = [self._ledger.machine(on) for on in self._ledger.shares(hold_key(key))]
        return all(machine is not None and machine.takes_pods for machine in machines)


def hold_target(request: PlacementRequest, ledger: Ledger) -> dict[str, Share] | None:
    """What is held back on which machines, by their ids; None: the machines are too small, also
    when they are empty."""
    empty: dict[str, Room] = {}
    amounts: dict[str, dict[str, int]] = {}
    machines = sorted(
        (machine for machine in ledger.machines() if machine.takes_pods),
        key=lambda machine: (machine.name, machine.id),
    )
    for group in sorted(request.pod_sets, key=group_order):
        left = group.count
        for machine in _by_room(machines, group, request, ledger):
            if not left:
                break
            room = empty.get(machine.id) or empty_room(machine)
            pods = room.pods(group.requests, left)
            if not pods or (group.together and pods < left):
                continue
            empty[machine.id] = room
            here = amounts.setdefault(machine.id, {})
            for resource, amount in group.requests:
                room.free[resource] -= amount * pods
                here[resource] = here.get(resource, 0) + amount * pods
            left -= pods
        if left:
            return None
    return {machine_id: Share(here) for machine_id, here in amounts.items()}


def _by_room(
    machines: list[Machine], group: PodGroup, request: PlacementRequest, ledger: Ledger
) -> list[Machine]:
    """The machines that suit the pods, those with room for the most pods first."""
    suited = []
    by_name = group.names_machines
    for machine in machines:
        fits, only = suits(MachineClass(class_key(machine)), group, request.demands, by_name)
        room = ledger.room_without(machine.id, request.family)
        if fits and room is not None and (only is None or only(machine)):
            suited.append((-max(0, room.pods(group.requests, group.count)), machine))
    return [machine for _, machine in sorted(suited, key=lambda pair: pair[0])]
