"""What the provisioning check knows of the stored state: its AdmissionChecks and their
configurations, workloads with these checks, their capacity requests, and heartbeats of providers.
Pure.
"""

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
from admittance.events import reasons
from admittance.events.subjects import PROVISIONING_CONTROLLER
from admittance.events.system import ProviderAlive
from admittance.provisioning.records import Record, State
from admittance.provisioning.steps import RequestSlot
from admittance.workload.conditions import Type, is_true
from admittance.workload.stored import StoredWorkload

MISSED_HEARTBEATS: Final = 3
"""A provider that misses this number of heartbeats in a row is down."""
INSTANCES_MAX: Final = 1000
"""The most start times of replicas that are remembered for one provisioning class."""


class ProviderHeartbeats:
    """Which provisioning classes have a live provider. The times that its methods take are
    monotonic seconds.

    A class that never sent a heartbeat counts as served. ``every_seconds``: the interval at which
    providers send heartbeats.
    """

    def __init__(self, every_seconds: float) -> None:
        self._limit_seconds = MISSED_HEARTBEATS * every_seconds
        self._heard_at: dict[str, float] = {}
        self._newest: dict[str, ProviderAlive] = {}
        self._started: dict[str, dict[str, datetime]] = {}

    def expect(self, provisioning_class: str, now: float) -> None:
        """Expects heartbeats of the class from now on, because the class sent heartbeats before
        this leader began to listen.
        """
        self._heard_at.setdefault(provisioning_class, now)

    def record(self, provisioning_class: str, beat: ProviderAlive, now: float) -> bool:
        """Records a heartbeat. Returns whether the provider is new or has restarted, so that it may
        have lost requests, or not have sent its last answers.
        """
        is_back = self.trouble(provisioning_class, now) is not None
        is_back |= provisioning_class not in self._newest
        started = self._started.setdefault(provisioning_class, {})
        if beat.since is not None and started.get(beat.instance) != beat.since:
            is_back = True
            if len(started) >= INSTANCES_MAX:
                started.clear()
            started[beat.instance] = beat.since
        self._heard_at[provisioning_class] = now
        self._newest[provisioning_class] = beat
        return is_back

    def restart_limits(self, now: float) -> None:
        """Counts the silence of all classes from now on, because this process was suspended or had
        no connection.
        """
        self._heard_at = dict.fromkeys(self._heard_at, now)

    def trouble(self, provisioning_class: str, now: float) -> str | None:
        """Why the provisioning class has no live provider; None if a provider is alive, or no
        heartbeat of the class ever came."""
        last = self._heard_at.get(provisioning_class)
        if last is None:
            return None
        if now - last >= self._limit_seconds:
            return f"the provider of {provisioning_class} sends no heartbeats any more"
        newest = self._newest.get(provisioning_class)
        if newest is not None and not newest.active:
            return newest.message or f"the provider of {provisioning_class} says it is not ready"
        return None

    def knows(self, provisioning_class: str) -> bool:
        """Whether any provider of the class has ever sent a heartbeat."""
        return provisioning_class in self._heard_at

    def classes(self) -> list[str]:
        """The provisioning classes for which any provider has ever sent a heartbeat."""
        return list(self._heard_at)

    def next_loss(self, now: float) -> float | None:
        """When the next class counts as down if it stays silent; None if no class can become
        down.
        """
        times = (last + self._limit_seconds for last in self._heard_at.values())
        return min((time for time in times if time > now), default=None)


CONTROLLER: Final = PROVISIONING_CONTROLLER
GROUP: Final = "kueue.x-k8s.io"
KIND: Final = "ProvisioningRequestConfig"


class Trouble(NamedTuple):
    """Why a check is inactive: reason and message of its Active condition."""

    reason: str
    message: str


class CheckConfigurations:
    """The checks of this controller with their configurations. ``down``: for each class without a
    live provider the reason.
    """

    def __init__(self) -> None:
        self.checks: dict[str, AdmissionCheck] = {}
        self.configs: dict[str, ProvisioningRequestConfig] = {}
        self.flavors: dict[str, ResourceFlavor] = {}
        self.down: dict[str, str] = {}

    def config_of(self, check: str) -> ProvisioningRequestConfigSpec | None:
        """The configuration that the check names; None if there is no usable configuration, for the
        reason that `trouble` returns.
        """
        known = self.checks.get(check)
        reference = known.spec.parameters if known is not None else None
        if reference is None or (reference.api_group, reference.kind) != (GROUP, KIND):
            return None
        config = self.configs.get(reference.name)
        return config.spec if config is not None else None

    def trouble(self, check: str) -> Trouble | None:
        """Why the check is inactive; None if it is active."""
        known = self.checks.get(check)
        if known is None:
            return Trouble(reasons.NOT_FOUND, f"AdmissionCheck {check} doesn't exist")
        reference = known.spec.parameters
        if reference is None:
            return Trouble(reasons.BAD_PARAMETERS_REF, f"{check} has no parametersRef to a {KIND}")
        if (reference.api_group, reference.kind) != (GROUP, KIND):
            kind = f"{reference.kind}.{reference.api_group}"
            return Trouble(
                reasons.BAD_PARAMETERS_REF, f"parametersRef names a {kind}, not a {KIND}"
            )
        config = self.configs.get(reference.name)
        if config is None:
            return Trouble(reasons.BAD_PARAMETERS_REF, f"{KIND} {reference.name} doesn't exist")
        why = self.down.get(config.spec.provisioning_class_name)
        return Trouble(reasons.PROVIDER_DOWN, why) if why is not None else None


Name = tuple[str, str]


OPEN: Final = frozenset({State.REQUESTED, State.ACCEPTED})


def is_open(record: Record) -> bool:
    """Whether the request has no final answer and is not cancelled."""
    return record.status.state in OPEN and not record.status.cancelled


def slot_of(record: Record) -> RequestSlot:
    """The slot to which the request belongs."""
    return RequestSlot(record.metadata.namespace, record.spec.workload, record.spec.check)


class StoredRecord(NamedTuple):
    """A record and its revision in the bucket."""

    record: Record
    revision: int


class ObservedState(CheckConfigurations):
    """``workloads``: unfinished workloads with checks or requests. ``dirty``: slots to decide
    again, oldest change first."""

    def __init__(self) -> None:
        super().__init__()
        self.workloads: dict[Name, StoredWorkload] = {}
        self.finished: dict[Name, str] = {}
        """The uids of finished workloads."""
        self.records: dict[RequestSlot, StoredRecord] = {}
        self.slot_at: dict[Name, RequestSlot] = {}
        """The slot of the record with each namespace and name."""
        self._slots_of: dict[Name, dict[RequestSlot, None]] = {}
        self.dirty: dict[RequestSlot, None] = {}
        self._markers: dict[Name, dict[str, int]] = {}
        """For each workload: the names of deleted records, with the revision of the delete
        marker.
        """
        self._own_deletions: dict[Name, int] = {}
        """The revision at which this leader deleted a record, kept until the watch has reached it.
        Entries of the same name with an older revision are ignored.
        """
        self.lost_records: dict[RequestSlot, list[Record]] = {}
        """Records that were deleted or overwritten by another writer, one for each request id."""
        self.deadlines: list[tuple[datetime, RequestSlot]] = []
        """A heap of the deadlines of requests. Some requests in the heap are closed by now."""
        self.answers_read = True
        """Whether all answers on the log have been read. Until all answers are read, no request is
        overdue.
        """

    # Changes. --------------------------------------------------------------------------

    def workload(self, name: Name, workload: StoredWorkload | None) -> None:
        """Takes the new state of a workload; None if it was deleted."""
        before = self.workloads.pop(name, None)
        self.finished.pop(name, None)
        if workload is None:
            self._markers.pop(name, None)
        # Workloads with checks of other controllers are kept as well: a check may get this
        # controller later.
        elif workload.status.admission_checks or name in self._slots_of:
            if is_true(workload, Type.FINISHED):
                self.finished[name] = workload.metadata.uid
            else:
                self.workloads[name] = workload
        for version in (before, self.workloads.get(name)):
            for row in version.status.admission_checks if version is not None else ():
                if row.name in self.checks:
                    self.dirty[RequestSlot(*name, row.name)] = None
        # Slots with a record are marked as well, also those whose check is deleted, has another
        # controller, or is no longer a check of the workload.
        for slot in self._slots_of.get(name, ()):
            self.dirty[slot] = None

    def record(
        self, name: Name, record: Record | None, revision: int, *, ours: bool = False
    ) -> None:
        """Takes the new state of the record with that name; None if it was deleted. ``ours``:
        whether this leader wrote the record.
        """
        slot = self.slot_at.get(name)
        deleted_at = self._own_deletions.get(name)
        if deleted_at is not None:
            if revision < deleted_at:
                return
            del self._own_deletions[name]
        if record is None:
            if slot is not None and self.records[slot].revision < revision:
                self._add_lost(self.records[slot].record, slot)
                self._forget(slot)
                self.marked(slot, name[1], revision)
            return
        new = RequestSlot(name[0], record.spec.workload, record.spec.check)
        known = self.records.get(new)
        if known is not None and known.revision >= revision:
            return
        for old in {slot, new}:
            if old is not None and old in self.records:
                if not ours and self.records[old].record.spec.id != record.spec.id:
                    self._add_lost(self.records[old].record, old)
                self._forget(old)
        self.records[new] = StoredRecord(record, revision)
        self.slot_at[name] = new
        self._slots_of.setdefault((new.namespace, new.workload), {})[new] = None
        if record.spec.deadline is not None and is_open(record):
            heappush(self.deadlines, (record.spec.deadline, new))
        self.dirty[new] = None

    def recovered(self, record: Record, revision: int) -> None:
        """Adds a record that another writer deleted before this leader started. ``revision``: the
        revision of the delete marker.
        """
        slot = slot_of(record)
        # A copy of the record from the bucket also has the answers, which the request on the log
        # lacks.
        if all(lost.spec.id != record.spec.id for lost in self.lost_records.get(slot, ())):
            self._add_lost(record, slot)
        self.marked(slot, record.metadata.name, revision)

    def _add_lost(self, record: Record, slot: RequestSlot) -> None:
        records = self.lost_records.setdefault(slot, [])
        records[:] = [lost for lost in records if lost.spec.id != record.spec.id]
        records.append(record)

    def lost_slot(self, workload: Name, request_id: str) -> RequestSlot | None:
        """The slot of the lost record with that request id; None if no such record is lost."""
        for slot, records in self.lost_records.items():
            if (slot.namespace, slot.workload) == workload and records[-1].spec.id == request_id:
                return slot
        return None

    def replace_lost(self, slot: RequestSlot, record: Record) -> None:
        """Replaces the newest lost record of the slot by ``record``."""
        self.lost_records[slot][-1] = record
        self.dirty[slot] = None

    def settle_lost(self, slot: RequestSlot, record: Record) -> None:
        """Drops a lost record, because the record is written again or its request is cancelled."""
        self.lost_records[slot].remove(record)
        if not self.lost_records[slot]:
            del self.lost_records[slot]

    def _forget(self, slot: RequestSlot) -> None:
        kept = self.records.pop(slot)
        self.slot_at.pop((slot.namespace, kept.record.metadata.name), None)
        here = self._slots_of[(slot.namespace, slot.workload)]
        del here[slot]
        if not here:
            del self._slots_of[(slot.namespace, slot.workload)]
        self.dirty[slot] = None

    def check(self, name: str, check: AdmissionCheck | None) -> None:
        """Takes the new state of an AdmissionCheck; None if it was deleted. A check of another
        controller is dropped.
        """
        if check is None or check.spec.controller_name != CONTROLLER:
            self.checks.pop(name, None)
        else:
            self.checks[name] = check
        self.touch([name])

    def config(self, name: str, config: ProvisioningRequestConfig | None) -> None:
        """Takes the new state of a ProvisioningRequestConfig; None if it was deleted."""
        if config is None:
            self.configs.pop(name, None)
        else:
            self.configs[name] = config
        self.touch(
            check
            for check, named in self.checks.items()
            if named.spec.parameters is not None and named.spec.parameters.name == name
        )

    def flavor(self, name: str, flavor: ResourceFlavor | None) -> None:
        """Takes the new state of a ResourceFlavor; None if it was deleted. Only new requests use
        the changed flavor.
        """
        if flavor is None:
            self.flavors.pop(name, None)
        else:
            self.flavors[name] = flavor

    def touch(self, checks: Iterable[str]) -> None:
        """Marks all slots of the named checks as dirty, so that their next steps are decided
        again."""
        names = set(checks)
        for (namespace, workload), work in self.workloads.items():
            for row in work.status.admission_checks:
                if row.name in names:
                    self.dirty[RequestSlot(namespace, workload, row.name)] = None
        for slot in self.records:
            if slot.check in names:
                self.dirty[slot] = None

    def slots_of(self, name: Name) -> tuple[RequestSlot, ...]:
        """The slots of a workload that have a record, also those of deleted checks."""
        return tuple(self._slots_of.get(name, ()))

    # Own writes. -------------------------------------------------------------------------

    def wrote(self, slot: RequestSlot, name: Name, record: Record | None, revision: int) -> None:
        """Takes a record that this leader wrote at that revision; the watch has not reached the
        write yet.
        """
        if record is not None:
            self.record(name, record, revision, ours=True)
        else:
            if slot in self.records:
                self._forget(slot)
            self._own_deletions[name] = revision
            self.marked(slot, name[1], revision)

    def marked(self, slot: RequestSlot, name: str, revision: int) -> None:
        """Records that a delete marker exists at that name, with that revision."""
        work = slot.namespace, slot.workload
        if work in self.workloads:
            self._markers.setdefault(work, {})[name] = revision
        self.dirty[slot] = None

    def expected(self, slot: RequestSlot, name: str) -> int:
        """The revision that the write of a new record with that name must expect."""
        return self._markers.get((slot.namespace, slot.workload), {}).get(name, 0)
