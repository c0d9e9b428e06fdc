"""The accounts of what LocalQueues or users consume, in ClusterQueues that order workloads by the
usage of LocalQueues or users.

Every instance keeps these accounts, whether it leads the domain or not: an account follows from the
stored consumption of its LocalQueue or user and from the workloads that began to consume after that
consumption was stored. The leader of a domain stores changed accounts in the bucket, so that the
next leader continues from the stored consumption."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Final

from admittance.events.requests.queues import LocalUsage
from admittance.events.shapes import ConsumedUsage
from admittance.quota.catalog import Catalog
from admittance.scheduling.fairsharing.usage import (
    Account,
    Nanos,
    consumed_of,
    penalty_of,
    status_of,
    to_billionths,
)
from admittance.scheduling.state.config import UsageFairSharing
from admittance.scheduling.state.equivalence import Key
from admittance.scheduling.state.lanes import Lane, Lanes, names_in
from admittance.scheduling.state.workload_info import Queue, WorkloadInfo
from admittance.scheduling.state.workload_view import LONG_AGO

SAVE_DELAY: Final = timedelta(seconds=1)
"""How long after a change an account is stored in the bucket. Because of the delay, one write
covers a burst of admissions."""


@dataclass(slots=True)
class WorkloadUsage:
    """The bill of one workload: what it adds to the consumption of its LocalQueue. ``amounts``:
    what the workload holds; ``penalty``: its entry penalty; ``started``: since when the workload
    consumes; None: it does not consume yet."""

    amounts: Nanos
    penalty: Nanos
    started: datetime | None


@dataclass(slots=True, eq=False)
class LaneAccount:
    """The account of one LocalQueue or user, with the bills (`WorkloadUsage`) of its workloads and
    its lane."""

    account: Account
    lanes: Lanes[WorkloadInfo]
    lane: Lane[WorkloadInfo]
    bills: dict[WorkloadInfo, WorkloadUsage] = field(default_factory=dict)
    base: datetime = LONG_AGO  # the time of the stored usage record from which it was restored
    # The time of the newest record of this account that `Accounts.to_write` has yielded.
    saved: datetime = LONG_AGO

    def update_lane(self) -> None:
        """Updates the place of the LocalQueue's lane among the lanes of its ClusterQueue."""
        self.lanes.lane_changed(self.lane)

    def start(self, bill: WorkloadUsage, at: datetime) -> None:
        """Bills the workload of ``bill`` as consuming since ``at``. A record of the LocalQueue's
        consumption that was stored after ``at`` includes the workload's entry penalty already."""
        bill.started = at
        if at <= self.base:
            self.account.start(bill.amounts, {}, self.base)
        else:
            self.account.start(bill.amounts, bill.penalty, at)

    def restore(self, record: ConsumedUsage) -> None:
        """Sets the account to a stored record of the LocalQueue's consumption, and bills the
        present workloads again."""
        self.base = record.last_update
        self.account.restore(consumed_of(record), self.base)
        for bill in self.bills.values():
            if bill.started is None:
                self.account.expect(bill.penalty)
            else:
                self.start(bill, bill.started)


class Accounts:
    """The accounts of all LocalQueues and users with a usage that counts, by the key of the lane.
    ``sampled``: when the usages were compared last."""

    def __init__(
        self,
        config: UsageFairSharing,
        catalog: Catalog,
        queues: Mapping[str, Queue],
        workloads: Mapping[Key, Mapping[WorkloadInfo, None]],
        owned: set[str],
    ) -> None:
        self.config = config
        self.sampled = LONG_AGO
        self._catalog = catalog
        self._queues = queues
        self._members = workloads
        self._owned = owned
        self._rows: dict[Key, LaneAccount] = {}
        # The accounts of users that have a bill of the workload. Its LocalQueue may be gone.
        self._billed: dict[WorkloadInfo, LaneAccount] = {}
        self._records: dict[Key, ConsumedUsage] = {}
        self._unsaved: dict[Key, datetime] = {}
        self._moving = False

    def of(self, key: Key) -> Account | None:
        """Returns the usage account of a LocalQueue; None: the LocalQueue's usage does not
        count."""
        row = self._rows.get(key)
        return row.account if row is not None else None

    def status(self, key: Key) -> LocalUsage | None:
        """Returns the usage of a LocalQueue for replies; None: the LocalQueue's usage does not
        count."""
        account = self.of(key)
        return local_usage(account) if account is not None else None

    def users(self, queue: Queue) -> Iterator[tuple[str, LocalUsage]]:
        """Yields the users with a usage in the ClusterQueue, the least usage first."""
        rows = [row for row in tuple(self._rows.values()) if row.lanes is queue.lanes]
        for row in sorted(rows, key=lambda row: (row.account.value, row.lane.key)):
            if names := names_in(row.lane.key):
                yield names[1], local_usage(row.account)

    # LocalQueues. -----------------------------------------------------------------------------

    def sync(self, key: Key, now: datetime) -> None:
        """Updates whether the usage of the LocalQueue ``key`` counts, after that LocalQueue or the
        mode of its ClusterQueue changed."""
        local = self._catalog.local_queues.get(key)
        queue = self._queues.get(local.spec.cluster_queue) if local is not None else None
        lanes = queue.lanes if queue is not None else None
        if lanes is not None and lanes.users_of:
            lanes = None
        row = self._rows.get(key)
        if row is not None and row.lanes is not lanes:
            self._close(row)
            row = None
        if local is None:
            if self._records.pop(key, None) is not None:
                self._unsaved[key] = now
            return
        if lanes is None:
            return
        weight = self._catalog.local_queue_weight(key)
        if row is not None:
            row.account.weight = weight
            row.account.weigh()
            row.update_lane()
            return
        row = self._open(lanes, key, weight)
        for workload in self._members.get(key, ()):
            if _is_billed(workload):
                self._bill(row, workload)
        row.account.sample(self.sampled)
        row.update_lane()

    def _open(self, lanes: Lanes[WorkloadInfo], key: Key, weight: float) -> LaneAccount:
        """Opens the account of a LocalQueue or user, with its stored consumption."""
        lane = lanes.lane(key)
        account = lane.account = Account(self.config, weight, LONG_AGO)
        row = self._rows[key] = LaneAccount(account, lanes, lane)
        record = self._records.get(key)
        if record is not None:
            row.restore(record)
        self._moving = True
        return row

    def _close(self, row: LaneAccount) -> None:
        row.lane.account = None
        row.update_lane()
        for workload in row.bills:
            self._billed.pop(workload, None)
        del self._rows[row.lane.key]

    # Users. -----------------------------------------------------------------------------------

    def sync_users(self, queue: Queue, before: Lanes[WorkloadInfo] | None) -> None:
        """Updates whether the usage of users counts in the ClusterQueue, after its lanes changed.
        ``before``: its former lanes. A deleted ClusterQueue has no records of usage any more."""
        if before is not None and before.users_of:
            for row in [row for row in self._rows.values() if row.lanes is before]:
                self._close(row)
        keys = [key for key in self._records if (names_in(key) or ("",))[0] == queue.name]
        lanes = queue.lanes
        if lanes is None or not lanes.users_of:
            if queue.node is None:
                self._unsaved |= dict.fromkeys(keys, self.sampled)
            return
        for key in keys:
            self._user_row(lanes, key)
        for workload in queue.holding:
            if _is_billed(workload):
                self._bill(self._user_row(lanes, lanes.key_of(workload)), workload)
        for row in self._rows.values():
            if row.lanes is lanes:
                row.account.sample(self.sampled)
                row.update_lane()

    def _user_row(self, lanes: Lanes[WorkloadInfo], key: Key) -> LaneAccount:
        row = self._rows.get(key)
        if row is None:
            row = self._open(lanes, key, 1.0)
            row.account.sample(self.sampled)
            row.update_lane()
        return row

    def _row_of(self, workload: WorkloadInfo) -> LaneAccount | None:
        """Returns the account that has or gets the bill of the workload; None: its usage does not
        count, or it holds no quota and its user has no bill of it."""
        row = self._rows.get(workload.local_queue) or self._billed.get(workload)
        if row is not None or workload.charge is None:
            return row
        lanes = workload.charge.queue.lanes
        if lanes is None or not lanes.users_of:
            return None
        return self._user_row(lanes, lanes.key_of(workload))

    # Workloads. -------------------------------------------------------------------------------

    def update_bills(
        self, workload: WorkloadInfo, now: datetime, *, is_new_amount: bool = False
    ) -> None:
        """Updates the workload's bill in the account of its LocalQueue or user, after its quota or
        admission may have changed.

        ``is_new_amount``: the workload holds another amount from now on, and has paid its entry
        penalty if it consumes already. Of the variants of a family only the one that counts for the
        family is billed."""
        variants = workload.family.variants if workload.family is not None else ()
        row = self._row_of(workload)
        if row is None:
            row = next(filter(None, map(self._row_of, variants)), None)
        if row is None:
            return
        for member in (*variants, workload):
            self._update_bill(row, member, now, is_new_amount=is_new_amount and member is workload)

    def _update_bill(
        self, row: LaneAccount, workload: WorkloadInfo, now: datetime, *, is_new_amount: bool
    ) -> None:
        bill = row.bills.get(workload)
        if not _is_billed(workload):
            if bill is None:
                return
            del row.bills[workload]
            self._billed.pop(workload, None)
            self._cancel(row, bill, now)
        elif bill is None:
            self._bill(row, workload, again=now if is_new_amount else None)
        elif (bill.started is None) is ((since := self._consumes_since(workload)) is None):
            return
        elif since is not None:
            row.account.excuse(bill.penalty)
            row.start(bill, since)
        else:
            self._cancel(row, bill, now)
            bill.started, bill.penalty = None, {}
        row.update_lane()
        self._moving = True
        self._unsaved.setdefault(row.lane.key, now)

    def _cancel(self, row: LaneAccount, bill: WorkloadUsage, now: datetime) -> None:
        if bill.started is None:
            row.account.excuse(bill.penalty)
        else:
            row.account.stop(bill.amounts, now)

    def _bill(
        self, row: LaneAccount, workload: WorkloadInfo, again: datetime | None = None
    ) -> None:
        """Makes the bill of a workload that holds quota. ``again``: for a workload that consumes
        and has paid its entry penalty before, since when its present quota counts; else None.
        """
        assert workload.charge is not None
        amounts: Nanos = {}
        for cell, much in workload.charge.cells:
            resource = cell.fr[1]
            amounts[resource] = amounts.get(resource, 0) + to_billionths(resource, much)
        penalty = {} if _goes_on(workload) else penalty_of(self.config, amounts)
        bill = row.bills[workload] = WorkloadUsage(amounts, penalty, None)
        if row.lanes.users_of:
            self._billed[workload] = row
        since = self._consumes_since(workload)
        if since is None:
            row.account.expect(bill.penalty)
        elif again is None:
            row.start(bill, since)
        else:
            bill.started = again
            row.account.start(amounts, {}, again)

    def _consumes_since(self, workload: WorkloadInfo) -> datetime | None:
        """Returns since when the workload consumes: since the reservation that is stored in the
        bucket, or since its admission; None: it does not consume yet."""
        if self.config.from_reservation:
            return workload.reserved_at
        return workload.admitted_at

    # Time. ------------------------------------------------------------------------------------

    def is_due(self, now: datetime) -> bool:
        """Returns whether `sample` must be called, because a new sampling interval has begun."""
        interval = self.config.usage_sampling_interval
        return self._moving and bool(interval) and now >= self.sampled + interval

    def sample(self, now: datetime) -> None:
        """Compares all LocalQueues by their consumption at the beginning of the present sampling
        interval. All instances of the scheduler have intervals that begin at the same moments."""
        seconds = self.config.usage_sampling_interval.total_seconds()
        self.sampled = datetime.fromtimestamp(now.timestamp() // seconds * seconds, UTC)
        self._moving = False
        for key, row in list(self._rows.items()):
            if row.account.is_idle:
                continue
            self._moving = True
            row.account.sample(self.sampled)
            row.update_lane()
            if row.lanes.users_of and not row.bills and not row.account.seen:
                # There may be ever more users, so those without usage have no account.
                self._close(row)
                if self._records.pop(key, None) is not None:
                    self._unsaved.setdefault(key, now)
                continue
            if row.account.rate:
                self._unsaved.setdefault(key, now)

    def next_wake(self) -> datetime | None:
        """Returns when to compare usages or store accounts next; None: not before an account
        changes."""
        times = [since + SAVE_DELAY for since in islice(self._unsaved.values(), 1)]
        interval = self.config.usage_sampling_interval
        if interval and self._moving:
            times.append(self.sampled + interval)
        return min(times, default=None)

    # Stored records. --------------------------------------------------------------------------

    def remembered(self, key: Key, record: ConsumedUsage | None) -> bool:
        """Applies a record of a LocalQueue's consumption that was read from the bucket; None: the
        record was deleted. Returns whether the account of the LocalQueue changed."""
        if record is None:
            self._records.pop(key, None)
            return False
        self._records[key] = record
        row = self._rows.get(key)
        if row is None:
            names = names_in(key)
            queue = self._queues.get(names[0]) if names is not None else None
            if queue is None or queue.lanes is None or not queue.lanes.users_of:
                return False
            row = self._user_row(queue.lanes, key)
        elif record.last_update <= row.saved:
            return False
        row.restore(record)
        row.account.sample(self.sampled)
        row.update_lane()
        self._moving = True
        return True

    def to_write(
        self, now: datetime, *, at_once: bool = False
    ) -> Iterator[tuple[Key, ConsumedUsage | None]]:
        """Yields the records to store in the bucket, of changed accounts in domains that this
        scheduler leads; record None: the LocalQueue was deleted, so its record must be deleted.
        For a user, None: the usage of the user is 0, or the ClusterQueue was deleted. ``at_once``:
        yield also the records of accounts that changed less than `SAVE_DELAY` ago."""
        latest = now if at_once else now - SAVE_DELAY
        for key in [key for key, since in self._unsaved.items() if since <= latest]:
            del self._unsaved[key]
            names = names_in(key)
            row = self._rows.get(key)
            name = names[0] if names is not None else self._queue_of(key)
            domain = self._catalog.domain_of(name) if name is not None else None
            if name is None or (names is not None and domain is None):
                self._records.pop(key, None)
                yield key, None
            elif domain not in self._owned:
                continue
            elif row is None and names is not None:
                yield key, None
            elif row is not None:
                record = self._records[key] = status_of(row.account, max(now, row.account.since))
                row.saved = record.last_update
                yield key, record

    def _queue_of(self, key: Key) -> str | None:
        """Returns the ClusterQueue of a LocalQueue; None: the LocalQueue was deleted."""
        local = self._catalog.local_queues.get(key)
        return local.spec.cluster_queue if local is not None else None


def local_usage(account: Account) -> LocalUsage:
    """Returns the usage in an account for replies."""
    return LocalUsage(
        consumed=status_of(account, max(account.since, account.sampled)),
        weight=account.weight,
        value=account.value if account.weight > 0 else None,
    )


def _is_billed(workload: WorkloadInfo) -> bool:
    """Returns whether the quota of the workload counts as usage of its LocalQueue. Of a family the
    quota of only one variant counts."""
    if workload.charge is None:
        return False
    return workload.family_quota is None or workload.family_quota.counts is workload


def _goes_on(workload: WorkloadInfo) -> bool:
    """Returns whether the workload is a variant of a family that was admitted before and only
    migrates, so that the admission penalty is not billed again."""
    state = workload.family.state if workload.family is not None else None
    if state is None or state.first_admitted is None:
        return False
    return workload.admitted_at is None or workload.admitted_at > state.first_admitted
