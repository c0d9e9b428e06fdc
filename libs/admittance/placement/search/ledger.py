"""The bookings of all machines: what workloads and open runs hold, and the room that is left.

Room is the capacity minus the bookings of workloads and the open runs that runners report: quota
may be free before the processes of a job are gone. The open runs of a workload's present admission
are part of its booking; other runs count by themselves. No two workloads of a family run at the
same time, so the bookings of a family count as the larger one per resource and as the union of
their units, not as the sum.

Another data folder may take over the name of a runner: the machine has a new id, and jobs of the
earlier id may still run on it. So what workloads hold of earlier ids counts on the present one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from admittance.api.fields.units import render
from admittance.events.placement import PlacementPart
from admittance.placement.machines.machine import Machine, OpenRun
from admittance.placement.search.request import Amounts
from admittance.placement.search.room import Bits, Room, Units, capacity_of, units_of


class Share(NamedTuple):
    """What a booking holds on one machine. ``amounts``: of the resources without named units;
    ``units``: the ids of the units by resource."""

    amounts: Mapping[str, int]
    units: Mapping[str, tuple[str, ...]] = {}


Shares = Mapping[str, Share]
"""The share on each machine, by the id of the machine."""


def shares_of(parts: Iterable[PlacementPart], requests: Mapping[str, Amounts]) -> dict[str, Share]:
    """What the parts of an assignment hold. ``requests``: of one pod, by pod set."""
    shares: dict[str, Share] = {}
    for part in parts:
        share = shares.get(part.id)
        amounts = dict(share.amounts) if share else {}
        units = dict(share.units) if share else {}
        for resource, amount in requests.get(part.pod_set, ()):
            if resource not in part.devices:
                amounts[resource] = amounts.get(resource, 0) + amount * part.count
        for resource, ids in part.devices.items():
            units[resource] = (*units.get(resource, ()), *ids)
        shares[part.id] = Share(amounts, units)
    return shares


class _Held(NamedTuple):
    """A share with numbered units."""

    share: Share
    bits: dict[str, Bits]


_NOTHING: Final = _Held(Share({}), {})


def _together(held: Collection[_Held]) -> _Held:
    """What the members of a family hold together."""
    if len(held) == 1:
        return next(iter(held))
    amounts: dict[str, int] = {}
    bits: dict[str, Bits] = {}
    for each in held:
        for resource, amount in each.share.amounts.items():
            amounts[resource] = max(amounts.get(resource, 0), amount)
        for resource, units in each.bits.items():
            bits[resource] = bits.get(resource, 0) | units
    return _Held(Share(amounts), bits)


class _Account:
    """The bookings of one machine, known or not.

    ``held``: by family and holder. ``numbering``: the units that the machine offers or a booking
    names. ``room`` None: the machine is not known. Invariant: ``room`` is the capacity minus
    ``amounts`` and ``bits``, which are the sums over all families.
    """

    __slots__ = ("amounts", "bits", "capacity", "held", "machine", "numbering", "room")

    def __init__(self) -> None:
        self.held: dict[str, dict[str, _Held]] = {}
        self.set_machine(None)

    def set_machine(self, machine: Machine | None) -> None:
        self.machine = machine
        offered = units_of(machine) if machine is not None else {}
        self.numbering: dict[str, Units] = dict(offered)
        self.capacity = capacity_of(machine, offered) if machine is not None else {}
        self.amounts: dict[str, int] = {}
        self.bits: dict[str, Bits] = {}
        self.room: Room | None = None
        if machine is not None:
            units = {resource: each.offered for resource, each in offered.items()}
            self.room = Room(machine, dict(self.capacity), units, offered)
        for family, members in self.held.items():
            for holder, held in members.items():
                members[holder] = self._numbered(held.share)
            self._count(_NOTHING, _together(self.held[family].values()))

    def put(self, family: str, holder: str, share: Share | None) -> None:
        """Sets what a holder holds; None: nothing any more."""
        members = self.held.get(family)
        before = _together(members.values()) if members else _NOTHING
        if members is None:
            members = self.held[family] = {}
        if share is not None:
            members[holder] = self._numbered(share)
        else:
            members.pop(holder, None)
        if not members:
            del self.held[family]
        self._count(before, _together(members.values()) if members else _NOTHING)

    def without(self, family: str, holders: Collection[str]) -> Room | None:
        """The room as if the family and the holders held nothing."""
        if self.room is None:
            return None
        amounts: dict[str, int] = {}
        bits: dict[str, Bits] = {}
        for name, members in self.held.items():
            if name == family:
                continue
            left = [held for holder, held in members.items() if owner_of(holder) not in holders]
            if not left:
                continue
            held = _together(left)
            for resource, amount in held.share.amounts.items():
                amounts[resource] = amounts.get(resource, 0) + amount
            for resource, units in held.bits.items():
                bits[resource] = bits.get(resource, 0) | units
        room = self.room.copy()
        for resource in room.free:
            _settle(room, resource, self.capacity, amounts, bits)
        return room

    def _numbered(self, share: Share) -> _Held:
        bits = {}
        for resource, ids in share.units.items():
            units = self.numbering.get(resource)
            if units is None:
                units = self.numbering[resource] = Units()
            bits[resource] = units.bits(ids)
        return _Held(share, bits)

    def _count(self, before: _Held, after: _Held) -> None:
        """Replaces what a family held by what it holds."""
        touched = {*before.share.amounts, *after.share.amounts, *before.bits, *after.bits}
        for resource in touched:
            more = after.share.amounts.get(resource, 0) - before.share.amounts.get(resource, 0)
            self.amounts[resource] = self.amounts.get(resource, 0) + more
            units = after.bits.get(resource, 0)
            if before.bits.get(resource, 0) & ~units:
                # Another family may name the same units, for example after a unit was lost.
                self.bits[resource] = self._all_bits(resource)
            elif units:
                self.bits[resource] = self.bits.get(resource, 0) | units
            if self.room is not None:
                _settle(self.room, resource, self.capacity, self.amounts, self.bits)

    def _all_bits(self, resource: str) -> Bits:
        every = 0
        for members in self.held.values():
            for held in members.values():
                every |= held.bits.get(resource, 0)
        return every


def _settle(
    room: Room,
    resource: str,
    capacity: Mapping[str, int],
    amounts: Mapping[str, int],
    bits: Mapping[str, Bits],
) -> None:
    """Sets the free amount and the free units of one resource. Amounts of a resource with devices
    belong to bookings that name no units."""
    used = bits.get(resource, 0)
    units = room.numbering.get(resource)
    if units is not None:
        free = units.offered & ~used
        room.units[resource] = free
        room.free[resource] = free.bit_count() - amounts.get(resource, 0)
    else:
        room.free[resource] = (
            capacity.get(resource, 0) - used.bit_count() - amounts.get(resource, 0)
        )


def run_holder(key: str, revision: int) -> str:
    """The holder of the open runs of an admission."""
    return f"{key}@{revision}"


def owner_of(holder: str) -> str:
    """The workload's key of a holder."""
    return holder.partition("@")[0]


class _Booking(NamedTuple):
    """``revision``: of the admission; 0: the workload is not admitted."""

    family: str
    shares: Shares
    revision: int


class Ledger:
    """All bookings. ``changed``: the ids of machines whose room changed; ``gained``: of those that
    changed themselves or may have more room. The reader of a set clears it."""

    def __init__(self) -> None:
        self.changed: set[str] = set()
        self.gained: set[str] = set()
        self._accounts: dict[str, _Account] = {}
        self._bookings: dict[str, _Booking] = {}
        self._runs: dict[str, dict[tuple[str, int], tuple[str, Share]]] = {}
        """By workload, for each machine and revision: the family of the run, and what it holds."""
        self._runs_on: dict[str, set[tuple[str, int]]] = {}
        """By machine: the workload and revision of each open run."""
        self._families: dict[str, set[str]] = {}
        """The keys of the booked workloads of each family."""
        self._ids: dict[str, set[str]] = {}
        """The ids that the runner of each name has or had."""
        self._present: dict[str, str] = {}
        """The present id for each id that another one has replaced."""

    # Machines. --------------------------------------------------------------------------

    def set_machine(self, machine: Machine) -> None:
        """Sets what is known of a machine; its bookings stay, and those of the ids that its name
        had before are added."""
        self._present.pop(machine.id, None)
        for earlier in self._ids.setdefault(machine.name, set()) - {machine.id}:
            self._replace(earlier, machine)
        self._ids[machine.name].add(machine.id)
        account = self._account(machine.id)
        if account.machine != machine:
            account.set_machine(machine)
            self.changed.add(machine.id)
            self.gained.add(machine.id)

    def forget_machine(self, machine_id: str) -> None:
        """Forgets a machine; its bookings stay, and count again when it comes back."""
        account = self._accounts.get(machine_id)
        if account is not None and account.machine is not None:
            account.set_machine(None)
            self.changed.add(machine_id)
            self.gained.add(machine_id)
            self._drop_if_empty(machine_id)

    def machine(self, machine_id: str) -> Machine | None:
        """The machine with that id; None: it is not known."""
        account = self._accounts.get(machine_id)
        return account.machine if account is not None else None

    def machines(self) -> Iterator[Machine]:
        """All known machines, in no order."""
        for account in self._accounts.values():
            if account.machine is not None:
                yield account.machine

    def capacity(self, machine_id: str) -> Mapping[str, int]:
        """The capacity of a machine, of devices the number of units; empty: it is not known."""
        account = self._accounts.get(machine_id)
        return account.capacity if account is not None else {}

    def room(self, machine_id: str) -> Room | None:
        """The free room of a machine, not to be changed; None: the machine is not known."""
        account = self._accounts.get(machine_id)
        return account.room if account is not None else None

    def room_without(self, machine_id: str, family: str, keys: Collection[str] = ()) -> Room | None:
        """The room of a machine as if the family and the workloads ``keys`` held nothing."""
        account = self._accounts.get(machine_id)
        return account.without(family, keys) if account is not None else None

    # Bookings. --------------------------------------------------------------------------

    def book(
        self,
        key: str,
        family: str,
        shares: Shares,
        *,
        revision: int = 0,
        parts: Iterable[PlacementPart] = (),
    ) -> None:
        """Sets what the workload ``key`` holds. ``revision``: of its admission. ``parts``: the
        stored assignment, which names the runners of ids that may have been replaced."""
        for part in parts:
            self._name(part)
        booking = _Booking(family, shares, revision)
        before = self._bookings.get(key)
        if before == booking:
            return
        if before is not None:
            self._unbook(key, before)
        self._bookings[key] = booking
        self._families.setdefault(family, set()).add(key)
        for machine_id, share in shares.items():
            self._put(machine_id, family, key, share)
        self._rehome_runs(key)

    def release(self, key: str) -> None:
        """Removes the booking of the workload. Its open runs hold their room until they end."""
        before = self._bookings.pop(key, None)
        if before is not None:
            self._unbook(key, before)
            self._rehome_runs(key)

    def family(self, key: str) -> str:
        """The family of a booked workload, or its own key."""
        booking = self._bookings.get(key)
        return booking.family if booking is not None else key

    def shares(self, key: str) -> Shares:
        """What the workload holds on each machine, without its open runs."""
        booking = self._bookings.get(key)
        return booking.shares if booking is not None else {}

    def revision(self, key: str) -> int:
        """That of the workload's admission; 0: it is not admitted."""
        booking = self._bookings.get(key)
        return booking.revision if booking is not None else 0

    def earlier_ids(self, machine_id: str) -> set[str]:
        """The ids that the machine has replaced."""
        return {earlier for earlier, present in self._present.items() if present == machine_id}

    def set_runs(self, machine_id: str, runs: Iterable[OpenRun]) -> None:
        """Sets the open runs of a machine, as its runner reports them."""
        wanted: dict[tuple[str, int], Share] = {}
        for run in runs:
            amounts = {r: a for r, a in run.requests.items() if r not in run.devices}
            of = f"{run.namespace}/{run.name}", run.revision
            wanted[of] = Share(amounts, dict(run.devices))
        known = self._runs_on.get(machine_id, set())
        for key, revision in known - wanted.keys():
            family, _ = self._runs[key].pop((machine_id, revision))
            if not self._runs[key]:
                del self._runs[key]
            self._put(machine_id, family, run_holder(key, revision), None)
        for (key, revision), share in wanted.items():
            runs_of = self._runs.setdefault(key, {})
            before = runs_of.get((machine_id, revision))
            if before is None or before[1] != share:
                family = self._family_of_run(key, revision)
                if before is not None:
                    self.gained.add(machine_id)
                runs_of[machine_id, revision] = family, share
                self._put(machine_id, family, run_holder(key, revision), share)
        if wanted:
            self._runs_on[machine_id] = set(wanted)
        else:
            self._runs_on.pop(machine_id, None)

    def machines_of(self, family: str, keys: Collection[str] = ()) -> set[str]:
        """The ids of the machines on which the family or one of the workloads holds something."""
        return {
            machine_id
            for key in (*self._families.get(family, ()), family, *keys)
            for on in (*self.shares(key), *(on for on, _ in self._runs.get(key, ())))
            for machine_id in (self._present.get(on, on),)
        }

    def holders(self, machine_id: str) -> list[str]:
        """The workloads that hold room of a machine, sorted."""
        account = self._accounts.get(machine_id)
        members = account.held.values() if account is not None else ()
        return sorted({owner_of(holder) for each in members for holder in each})

    def overlap(self, family: str, shares: Shares, *, freed: Collection[str] = ()) -> str:
        """Why the shares cannot be booked for the family, as a sentence: other bookings have a unit
        or the room; "": they fit. Of a machine that is not known only units are compared. The
        bookings of the workloads ``freed`` do not count."""
        for machine_id in sorted(shares):
            account = self._accounts.get(self._present.get(machine_id, machine_id))
            why = ""
            if account is not None:
                why = _overlap(account, family, shares[machine_id], freed)
            if account is not None and why:
                name = account.machine.name if account.machine is not None else machine_id
                return f"runner {name}: {why}"
        return ""

    # The parts of the above. ------------------------------------------------------------

    def _account(self, machine_id: str) -> _Account:
        account = self._accounts.get(machine_id)
        if account is None:
            account = self._accounts[machine_id] = _Account()
        return account

    def _name(self, part: PlacementPart) -> None:
        """Records the name of an id; what is booked on an id that was replaced before counts on
        the present one."""
        ids = self._ids.setdefault(part.runner, set())
        if part.id in ids:
            return
        ids.add(part.id)
        for present in ids:
            machine = self.machine(present)
            if machine is not None and machine.name == part.runner and present != part.id:
                self._replace(part.id, machine)
                return

    def _replace(self, earlier: str, machine: Machine) -> None:
        """Moves what workloads hold of an earlier id to the machine with the same name. The runs of
        that id without a booking are given up: no runner will say that they have ended."""
        known = self.machine(earlier)
        if known is not None and known.name != machine.name:
            return  # The same data folder has got another name.
        self.set_runs(earlier, ())
        self.forget_machine(earlier)
        for replaced, present in self._present.items():
            if present == earlier:
                self._present[replaced] = machine.id
        self._present[earlier] = machine.id
        account = self._accounts.pop(earlier, None)
        self.changed.add(earlier)
        for family, members in account.held.items() if account is not None else ():
            for holder, held in members.items():
                self._put(machine.id, family, holder, held.share)

    def _put(self, machine_id: str, family: str, holder: str, share: Share | None) -> None:
        machine_id = self._present.get(machine_id, machine_id)
        self._account(machine_id).put(family, holder, share)
        self.changed.add(machine_id)
        if share is None:
            self.gained.add(machine_id)
            self._drop_if_empty(machine_id)

    def _drop_if_empty(self, machine_id: str) -> None:
        account = self._accounts[machine_id]
        if account.machine is None and not account.held:
            del self._accounts[machine_id]

    def _unbook(self, key: str, booking: _Booking) -> None:
        members = self._families[booking.family]
        members.discard(key)
        if not members:
            del self._families[booking.family]
        for machine_id in booking.shares:
            self._put(machine_id, booking.family, key, None)

    def _family_of_run(self, key: str, revision: int) -> str:
        """The family of the booking that a run belongs to, or a family of its own."""
        booking = self._bookings.get(key)
        if booking is not None and revision and booking.revision == revision:
            return booking.family
        return run_holder(key, revision)

    def _rehome_runs(self, key: str) -> None:
        for (machine_id, revision), (before, share) in list(self._runs.get(key, {}).items()):
            family = self._family_of_run(key, revision)
            if family != before:
                holder = run_holder(key, revision)
                self._put(machine_id, before, holder, None)
                self._put(machine_id, family, holder, share)
                self._runs[key][machine_id, revision] = family, share


def _overlap(account: _Account, family: str, share: Share, freed: Collection[str]) -> str:
    for resource, ids in share.units.items():
        wanted = set(ids)
        for other, members in account.held.items():
            for holder, held in members.items():
                both = wanted.intersection(held.share.units.get(resource, ()))
                if other != family and both and owner_of(holder) not in freed:
                    units = ", ".join(sorted(both))
                    return f"{resource} {units} is held by {owner_of(holder)}"
    room = account.without(family, freed)
    if room is None:
        return ""
    for resource, ids in share.units.items():
        here = room.numbering.get(resource)
        if here is None or here.offered_bits(ids).bit_count() != len(ids):
            return f"it does not have all of {resource} {', '.join(ids)}"
    for resource, amount in share.amounts.items():
        free = room.free.get(resource, 0)
        if amount > free:
            have = render(resource, max(0, free))
            return f"{have} of {resource} is free, {render(resource, amount)} is assigned"
    return ""
