"""What must hold of budgets: what an account has used in the window, and what its approved jobs may
still use, is not above its limit, if every job has a time limit. docs/spec/budgets.md#2.

Read plainly from stored workloads, and sharing nothing with `admittance.budgets`. The time in which
quota is held before the start of a job and while it stops may pass the limit, and is left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import date, datetime, timedelta
from typing import Any, Final, NamedTuple

from admittance.api.budgets import BUDGET_CONTROLLER
from admittance.workload.conditions import Type, find, is_true
from admittance.workload.stored import StoredWorkload, head
from simulation.invariants.seen import Manifests, Seen
from simulation.transcript import Broken

ROUNDING_SECONDS: Final = 2.0
"""By how much the begin and the end of a run may be rounded."""


class _Use(NamedTuple):
    """What a job uses. ``since``: the begin of its run; None: it may start. ``seconds``: how long
    it may run from then on; None: it has no time limit. ``until``: when its run ended; None: it
    has not."""

    owners: Mapping[str, str]
    cpu: float
    since: datetime | None
    seconds: int | None
    until: datetime | None = None

    def used(self, day: date, now: datetime) -> float:
        """The cpu-seconds of that day until now, at most to the time limit."""
        if self.since is None:
            return 0.0
        until = min(self.until or now, self._latest(now))
        begin = datetime(day.year, day.month, day.day, tzinfo=now.tzinfo)
        until = min(until, begin + timedelta(days=1))
        return self.cpu * max(0.0, (until - max(self.since, begin)).total_seconds())

    def ahead(self, now: datetime) -> float:
        """The cpu-seconds that the job may use after now."""
        if self.until is not None or self.seconds is None:
            return 0.0
        if self.since is None:
            return self.cpu * self.seconds
        return self.cpu * max(0.0, (self._latest(now) - now).total_seconds())

    def _latest(self, now: datetime) -> datetime:
        assert self.since is not None
        return now if self.seconds is None else self.since + timedelta(seconds=self.seconds)


class Budgets:
    """``budgets``: the stored budgets by name. ``spread``: by how much two clocks may differ."""

    def __init__(self, around: Manifests, budgets: Mapping[str, Any], spread: timedelta) -> None:
        self._around = around
        self._budgets = budgets
        self._spread = spread
        self._uses: dict[str, _Use] = {}
        """By key of the workload, what its present run uses, or may use."""
        self._ended: list[_Use] = []

    def stored(self, key: str, before: Seen, after: Seen, now: datetime) -> None:
        """Checks a write of a workload."""
        if not self._budgets:
            return
        old, new = self._uses.pop(key, None), after.workload
        use = _use_of(after) if new is not None else None
        if old is not None and old.since is not None and (use is None or use.since != old.since):
            self._ended.append(old._replace(until=now))
        if use is None or new is None:
            return
        ready = self._ready_checks(new)
        waits = [row.name for row in new.status.admission_checks if row.name in self._checks()]
        if use.since is not None or len(ready) == len(waits):
            self._uses[key] = use
        was = before.workload
        had = set() if was is None or not before.usage else self._ready_checks(was)
        if was is not None and was.status.admission_cycle != new.status.admission_cycle:
            had = set()
        for check in sorted(ready - had):
            self._approved(key, check, use, now)

    def _checks(self) -> dict[str, str]:
        """The budget of each check of our controller."""
        return {
            name: check.spec.parameters.name
            for name, check in self._around.checks.items()
            if check.spec.controller_name == BUDGET_CONTROLLER
        }

    def _ready_checks(self, workload: StoredWorkload) -> set[str]:
        checks = self._checks()
        rows = workload.status.admission_checks
        return {row.name for row in rows if row.name in checks and row.state == "Ready"}

    def _approved(self, key: str, check: str, use: _Use, now: datetime) -> None:
        budget = self._budgets.get(self._checks()[check])
        if budget is None:
            return
        owner = use.owners[budget.spec.per]
        limit = budget.spec.limits.get(owner, budget.spec.limit)
        if limit is None:
            return
        # The clock of the leader may show the next day already.
        days = {(now + ahead).date() for ahead in (timedelta(0), self._spread)}
        booked = min(self._booked(budget.spec.per, owner, day, now) for day in days)
        if booked > float(limit):
            raise Broken(
                f"{key} is approved, and {owner or 'no user'} books {booked:.1f} of {limit}"
            )

    def _booked(self, per: str, owner: str, day: date, now: datetime) -> float:
        """What the account has used on that day and may still use, at least."""
        uses = [use for use in self._all() if use.owners[per] == owner]
        if any(use.seconds is None for use in uses):
            return 0.0
        unsure = ROUNDING_SECONDS + self._spread.total_seconds()
        booked = 0.0
        for use in uses:
            each = use.used(day, now) + use.ahead(now)
            booked += max(0.0, each - (use.cpu * unsure if use.since is not None else 0.0))
        return booked

    def _all(self) -> Iterator[_Use]:
        yield from self._ended
        yield from self._uses.values()


def _use_of(seen: Seen) -> _Use | None:
    """What the workload uses, or may use once it starts; None: it holds no quota, or stops."""
    workload = seen.workload
    assert workload is not None
    if not seen.usage or is_true(workload, Type.EVICTED) or is_true(workload, Type.FINISHED):
        return None
    assert workload.status.admission is not None
    admitted = find(workload, Type.ADMITTED)
    is_admitted = admitted is not None and admitted.status == "True"
    most = head(workload).maximum_execution_time_seconds
    spent = workload.status.accumulated_past_execution_time_seconds or 0
    namespace = workload.metadata.namespace
    return _Use(
        owners={
            "ClusterQueue": workload.status.admission.cluster_queue,
            "LocalQueue": f"{namespace}/{head(workload).queue_name}",
            "Namespace": namespace,
            "User": workload.status.submitted_by,
        },
        cpu=sum(amount for (_, name), amount in seen.usage.items() if name == "cpu") / 1000,
        since=admitted.last_transition_time if admitted is not None and is_admitted else None,
        seconds=None if most is None else max(0, most - spent),
    )
