"""What the provisioning check knows: workloads that have its checks, their requests, and what the
configuration says. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from heapq import heappush
from typing import Final, NamedTuple

from admittance.api.checks import AdmissionCheck, ProvisioningRequestConfig
from admittance.api.queues import ResourceFlavor
from admittance.provisioning.providing import CONTROLLER, Configured
from admittance.provisioning.records import Record, State
from admittance.provisioning.steps import Slot
from admittance.workload.conditions import Type, is_true
from admittance.workload.stored import StoredWorkload

Name = tuple[str, str]


OPEN: Final = frozenset({State.REQUESTED, State.ACCEPTED})


def is_open(record: Record) -> bool:
    """Nobody has answered it for good, and nobody took it back."""
    return record.status.state in OPEN and not record.status.cancelled


def slot_of(record: Record) -> Slot:
    """Whose request it is."""
    return Slot(record.metadata.namespace, record.spec.workload, record.spec.check)


class Kept(NamedTuple):
    """A record and its revision in the bucket."""

    record: Record
    revision: int


class Picture(Configured):
    """``works``: unfinished workloads that have checks, or requests. ``records``: by slot.
    ``dirty``: slots to be looked at, in the order in which they came."""

    def __init__(self) -> None:
        super().__init__()
        self.works: dict[Name, StoredWorkload] = {}
        self.finished: dict[Name, str] = {}
        """The uids of those that have."""
        self.records: dict[Slot, Kept] = {}
        self.taken: dict[Name, Slot] = {}
        """Whose record stands at a name."""
        self._of: dict[Name, dict[Slot, None]] = {}
        self.dirty: dict[Slot, None] = {}
        self._markers: dict[Name, dict[str, int]] = {}
        self._gone: dict[Name, int] = {}
        """Where we deleted records, until the bucket tells: what it tells before is of the past."""
        self.lost: dict[Slot, list[Record]] = {}
        """Records that somebody else deleted, or wrote another over, while they counted."""
        self.deadlines: list[tuple[datetime, Slot]] = []
        """When open requests are late, soonest first; some of them out of date."""
        self.heard = True
        """What providers have said is known: who has not answered at the deadline is late."""

    # What changes. --------------------------------------------------------------------------

    def workload(self, name: Name, workload: StoredWorkload | None) -> None:
        """The workload is so now; None: it is gone."""
        before = self.works.pop(name, None)
        self.finished.pop(name, None)
        if workload is None:
            self._markers.pop(name, None)
        # Also with others' checks only: which are ours may be heard of later.
        elif workload.status.admission_checks or name in self._of:
            if is_true(workload, Type.FINISHED):
                self.finished[name] = workload.metadata.uid
            else:
                self.works[name] = workload
        for one in (before, self.works.get(name)):
            for row in one.status.admission_checks if one is not None else ():
                if row.name in self.checks:
                    self.dirty[Slot(*name, row.name)] = None
        # Also of checks that are no more.
        for slot in self._of.get(name, ()):
            self.dirty[slot] = None

    def record(
        self, name: Name, record: Record | None, revision: int, *, ours: bool = False
    ) -> None:
        """The record at that name is so now; None: it is gone. ``ours``: we wrote it."""
        slot = self.taken.get(name)
        gone = self._gone.get(name)
        if gone is not None:
            if revision >= gone:
                del self._gone[name]
            if revision <= gone:
                return
        if record is None:
            if slot is not None and self.records[slot].revision < revision:
                self._loses(self.records[slot].record, slot)
                self._forget(slot)
                self.marked(slot, name[1], revision)
            return
        new = Slot(name[0], record.spec.workload, record.spec.check)
        known = self.records.get(new)
        if known is not None and known.revision >= revision:
            return
        for old in {slot, new}:
            if old is not None and old in self.records:
                if not ours and self.records[old].record.spec.id != record.spec.id:
                    self._loses(self.records[old].record, old)
                self._forget(old)
        self.records[new] = Kept(record, revision)
        self.taken[name] = new
        self._of.setdefault((new.namespace, new.workload), {})[new] = None
        if record.spec.deadline is not None and is_open(record):
            heappush(self.deadlines, (record.spec.deadline, new))
        self.dirty[new] = None

    def recovered(self, record: Record, revision: int) -> None:
        """Somebody deleted the record before we led; ``revision``: of the marker."""
        slot = slot_of(record)
        self._loses(record, slot)
        self.marked(slot, record.metadata.name, revision)

    def _loses(self, record: Record, slot: Slot) -> None:
        self.lost.setdefault(slot, []).append(record)

    def found(self, slot: Slot, record: Record) -> None:
        """What was to be done about a lost record is done."""
        self.lost[slot].remove(record)
        if not self.lost[slot]:
            del self.lost[slot]

    def _forget(self, slot: Slot) -> None:
        kept = self.records.pop(slot)
        self.taken.pop((slot.namespace, kept.record.metadata.name), None)
        here = self._of[(slot.namespace, slot.workload)]
        del here[slot]
        if not here:
            del self._of[(slot.namespace, slot.workload)]
        self.dirty[slot] = None

    def check(self, name: str, check: AdmissionCheck | None) -> None:
        """The AdmissionCheck is so now; None: it is gone, or somebody else judges it."""
        if check is None or check.spec.controller_name != CONTROLLER:
            self.checks.pop(name, None)
        else:
            self.checks[name] = check
        self.touch([name])

    def config(self, name: str, config: ProvisioningRequestConfig | None) -> None:
        """The ProvisioningRequestConfig is so now; None: it is gone."""
        if config is None:
            self.configs.pop(name, None)
        else:
            self.configs[name] = config
        self.touch(
            check
            for check, one in self.checks.items()
            if one.spec.parameters is not None and one.spec.parameters.name == name
        )

    def flavor(self, name: str, flavor: ResourceFlavor | None) -> None:
        """The ResourceFlavor is so now: it counts for what is asked from now on."""
        if flavor is None:
            self.flavors.pop(name, None)
        else:
            self.flavors[name] = flavor

    def touch(self, checks: Iterable[str]) -> None:
        """Everything of these checks is to be looked at again."""
        names = set(checks)
        for (namespace, workload), one in self.works.items():
            for row in one.status.admission_checks:
                if row.name in names:
                    self.dirty[Slot(namespace, workload, row.name)] = None
        for slot in self.records:
            if slot.check in names:
                self.dirty[slot] = None

    def slots_of(self, name: Name) -> tuple[Slot, ...]:
        """The slots of a workload that have a record, whatever their check is now."""
        return tuple(self._of.get(name, ()))

    # What we write. -------------------------------------------------------------------------

    def wrote(self, slot: Slot, name: Name, record: Record | None, revision: int) -> None:
        """Our own write went through, at that revision: known before the bucket tells."""
        if record is not None:
            self.record(name, record, revision, ours=True)
        else:
            if slot in self.records:
                self._forget(slot)
            self._gone[name] = revision
            self.marked(slot, name[1], revision)

    def marked(self, slot: Slot, name: str, revision: int) -> None:
        """There is no record of that name, but the marker of one, at that revision."""
        work = slot.namespace, slot.workload
        if work in self.works:
            self._markers.setdefault(work, {})[name] = revision
        self.dirty[slot] = None

    def expected(self, slot: Slot, name: str) -> int:
        """The revision that a new record of that name must expect."""
        return self._markers.get((slot.namespace, slot.workload), {}).get(name, 0)
