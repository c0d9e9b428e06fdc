"""What the provisioning check knows: its checks and their configuration, workloads that have these
checks, their requests, and heartbeats of providers. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from heapq import heappush
from typing import Final, NamedTuple

from admittance.api.checks import (
    AdmissionCheck,
    ProvisioningRequestConfig,
    ProvisioningRequestConfigSpec,
)
from admittance.api.queues import ResourceFlavor
from admittance.events.system import ProviderAlive
from admittance.provisioning.records import Record, State
from admittance.provisioning.steps import Slot
from admittance.workload.conditions import Type, is_true
from admittance.workload.stored import StoredWorkload

MISSING: Final = 3
INSTANCES_MAX: Final = 1000
"""Most start times of replicas remembered for one class."""


class ProviderHeartbeats:
    """Which provisioning classes have a live provider. Times are monotonic seconds.

    A class that ever sent a heartbeat is down when three in a row are missing; a class that never
    sent one counts as served. ``every_seconds``: the interval of heartbeats."""

    def __init__(self, every_seconds: float) -> None:
        self._patience = MISSING * every_seconds
        self._last: dict[str, float] = {}
        self._said: dict[str, ProviderAlive] = {}
        self._began: dict[str, dict[str, datetime]] = {}

    def expect(self, provisioning_class: str, now: float) -> None:
        """The class sent heartbeats before this leader listened: its silence is counted from
        now."""
        self._last.setdefault(provisioning_class, now)

    def hear(self, provisioning_class: str, beat: ProviderAlive, now: float) -> bool:
        """Notes a heartbeat. True: the provider is new or has restarted, so it may have lost
        requests or not have sent its last answers."""
        back = self.trouble(provisioning_class, now) is not None
        back |= provisioning_class not in self._said
        began = self._began.setdefault(provisioning_class, {})
        if beat.since is not None and began.get(beat.instance) != beat.since:
            back = True
            if len(began) >= INSTANCES_MAX:
                began.clear()
            began[beat.instance] = beat.since
        self._last[provisioning_class] = now
        self._said[provisioning_class] = beat
        return back

    def slept(self, now: float) -> None:
        """This process was disconnected or asleep: the silence of all classes is counted from
        now."""
        self._last = dict.fromkeys(self._last, now)

    def trouble(self, provisioning_class: str, now: float) -> str | None:
        """Why the class is not served; None: it is served, or it never sent a heartbeat."""
        last = self._last.get(provisioning_class)
        if last is None:
            return None
        if now - last >= self._patience:
            return f"the provider of {provisioning_class} sends no heartbeats any more"
        said = self._said.get(provisioning_class)
        if said is not None and not said.active:
            return said.message or f"the provider of {provisioning_class} says it is not ready"
        return None

    def knows(self, provisioning_class: str) -> bool:
        """Whether the class has ever sent a heartbeat."""
        return provisioning_class in self._last

    def classes(self) -> list[str]:
        """The classes that ever sent a heartbeat."""
        return list(self._last)

    def next_loss(self, now: float) -> float | None:
        """When the next class counts as down if it stays silent."""
        times = (last + self._patience for last in self._last.values())
        return min((time for time in times if time > now), default=None)


CONTROLLER: Final = "kueue.x-k8s.io/provisioning-request"
GROUP: Final = "kueue.x-k8s.io"
KIND: Final = "ProvisioningRequestConfig"


class Trouble(NamedTuple):
    """Why a check cannot be evaluated: reason and message of its Active condition."""

    reason: str
    message: str


class CheckConfigurations:
    """``checks``: those of this controller. ``down``: why a class is not served, by class."""

    def __init__(self) -> None:
        self.checks: dict[str, AdmissionCheck] = {}
        self.configs: dict[str, ProvisioningRequestConfig] = {}
        self.flavors: dict[str, ResourceFlavor] = {}
        self.down: dict[str, str] = {}

    def config_of(self, check: str) -> ProvisioningRequestConfigSpec | None:
        """The configuration that the check refers to; None: it is missing or not valid, see
        `trouble`."""
        found = self.checks.get(check)
        reference = found.spec.parameters if found is not None else None
        if reference is None or (reference.api_group, reference.kind) != (GROUP, KIND):
            return None
        config = self.configs.get(reference.name)
        return config.spec if config is not None else None

    def trouble(self, check: str) -> Trouble | None:
        """Why the check cannot be evaluated; None: it can."""
        found = self.checks.get(check)
        if found is None:
            return Trouble("NotFound", f"AdmissionCheck {check} doesn't exist")
        reference = found.spec.parameters
        if reference is None:
            return Trouble("BadParametersRef", f"{check} has no parametersRef to a {KIND}")
        if (reference.api_group, reference.kind) != (GROUP, KIND):
            told = f"{reference.kind}.{reference.api_group}"
            return Trouble("BadParametersRef", f"parametersRef names a {told}, not a {KIND}")
        config = self.configs.get(reference.name)
        if config is None:
            return Trouble("BadParametersRef", f"{KIND} {reference.name} doesn't exist")
        why = self.down.get(config.spec.provisioning_class_name)
        return Trouble("ProviderDown", why) if why is not None else None


Name = tuple[str, str]


OPEN: Final = frozenset({State.REQUESTED, State.ACCEPTED})


def is_open(record: Record) -> bool:
    """Whether the request has no final answer and is not cancelled."""
    return record.status.state in OPEN and not record.status.cancelled


def slot_of(record: Record) -> Slot:
    """The slot of the request."""
    return Slot(record.metadata.namespace, record.spec.workload, record.spec.check)


class StoredRecord(NamedTuple):
    """A record and its revision in the bucket."""

    record: Record
    revision: int


class ObservedState(CheckConfigurations):
    """``workloads``: unfinished workloads that have checks, or requests. ``records``: by slot.
    ``dirty``: slots to be looked at, in the order in which they came."""

    def __init__(self) -> None:
        super().__init__()
        self.workloads: dict[Name, StoredWorkload] = {}
        self.finished: dict[Name, str] = {}
        """The uids of finished workloads."""
        self.records: dict[Slot, StoredRecord] = {}
        self.taken: dict[Name, Slot] = {}
        """The slot of the record at each name."""
        self._of: dict[Name, dict[Slot, None]] = {}
        self.dirty: dict[Slot, None] = {}
        self._markers: dict[Name, dict[str, int]] = {}
        self._gone: dict[Name, int] = {}
        """Names of records that this leader deleted, with the revision, until the bucket confirms
        it.
        Older entries are ignored."""
        self.lost: dict[Slot, list[Record]] = {}
        """Records that were deleted or overwritten by another writer, one for each request id."""
        self.deadlines: list[tuple[datetime, Slot]] = []
        """A heap of deadlines of requests; some entries are out of date."""
        self.answers_read = True
        """All answers on the log have been read, so a request without an answer at its deadline is
        late."""

    # What changes. --------------------------------------------------------------------------

    def workload(self, name: Name, workload: StoredWorkload | None) -> None:
        """The workload changed to this; None: it was deleted."""
        before = self.workloads.pop(name, None)
        self.finished.pop(name, None)
        if workload is None:
            self._markers.pop(name, None)
        # Also workloads with other checks only: a check may become ours later.
        elif workload.status.admission_checks or name in self._of:
            if is_true(workload, Type.FINISHED):
                self.finished[name] = workload.metadata.uid
            else:
                self.workloads[name] = workload
        for one in (before, self.workloads.get(name)):
            for row in one.status.admission_checks if one is not None else ():
                if row.name in self.checks:
                    self.dirty[Slot(*name, row.name)] = None
        # Also slots of deleted checks.
        for slot in self._of.get(name, ()):
            self.dirty[slot] = None

    def record(
        self, name: Name, record: Record | None, revision: int, *, ours: bool = False
    ) -> None:
        """The record at that name changed to this; None: it was deleted. ``ours``: this leader
        wrote it."""
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
        self.records[new] = StoredRecord(record, revision)
        self.taken[name] = new
        self._of.setdefault((new.namespace, new.workload), {})[new] = None
        if record.spec.deadline is not None and is_open(record):
            heappush(self.deadlines, (record.spec.deadline, new))
        self.dirty[new] = None

    def recovered(self, record: Record, revision: int) -> None:
        """The record was deleted by hand before this leader began; ``revision``: of the delete
        marker."""
        slot = slot_of(record)
        # A copy that was read from the bucket knows more than the log.
        if all(one.spec.id != record.spec.id for one in self.lost.get(slot, ())):
            self._loses(record, slot)
        self.marked(slot, record.metadata.name, revision)

    def _loses(self, record: Record, slot: Slot) -> None:
        records = self.lost.setdefault(slot, [])
        records[:] = [one for one in records if one.spec.id != record.spec.id]
        records.append(record)

    def lost_slot(self, workload: Name, request_id: str) -> Slot | None:
        """The slot whose newest lost record has that id."""
        for slot, records in self.lost.items():
            if (slot.namespace, slot.workload) == workload and records[-1].spec.id == request_id:
                return slot
        return None

    def replace_lost(self, slot: Slot, record: Record) -> None:
        """The newest lost record of the slot changed to this."""
        self.lost[slot][-1] = record
        self.dirty[slot] = None

    def settle_lost(self, slot: Slot, record: Record) -> None:
        """The lost record has been dealt with."""
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
        """The AdmissionCheck changed to this; None: it was deleted. A check of another controller
        is dropped, too."""
        if check is None or check.spec.controller_name != CONTROLLER:
            self.checks.pop(name, None)
        else:
            self.checks[name] = check
        self.touch([name])

    def config(self, name: str, config: ProvisioningRequestConfig | None) -> None:
        """The ProvisioningRequestConfig changed to this; None: it was deleted."""
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
        """The ResourceFlavor changed to this; it counts for new requests."""
        if flavor is None:
            self.flavors.pop(name, None)
        else:
            self.flavors[name] = flavor

    def touch(self, checks: Iterable[str]) -> None:
        """Marks all slots of these checks as dirty."""
        names = set(checks)
        for (namespace, workload), one in self.workloads.items():
            for row in one.status.admission_checks:
                if row.name in names:
                    self.dirty[Slot(namespace, workload, row.name)] = None
        for slot in self.records:
            if slot.check in names:
                self.dirty[slot] = None

    def slots_of(self, name: Name) -> tuple[Slot, ...]:
        """The slots of a workload that have a record, also those of deleted checks."""
        return tuple(self._of.get(name, ()))

    # Own writes. -------------------------------------------------------------------------

    def wrote(self, slot: Slot, name: Name, record: Record | None, revision: int) -> None:
        """This leader's write succeeded at that revision; the bucket's update comes later."""
        if record is not None:
            self.record(name, record, revision, ours=True)
        else:
            if slot in self.records:
                self._forget(slot)
            self._gone[name] = revision
            self.marked(slot, name[1], revision)

    def marked(self, slot: Slot, name: str, revision: int) -> None:
        """The key of that name has a delete marker with that revision."""
        work = slot.namespace, slot.workload
        if work in self.workloads:
            self._markers.setdefault(work, {})[name] = revision
        self.dirty[slot] = None

    def expected(self, slot: Slot, name: str) -> int:
        """The revision that a new record of that name must expect."""
        return self._markers.get((slot.namespace, slot.workload), {}).get(name, 0)
