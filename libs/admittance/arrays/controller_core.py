"""`ArrayControllerCore`: arrays and dependencies as one core of acts. The module is pure."""

from __future__ import annotations

from datetime import datetime, timedelta

from admittance.acts import Act
from admittance.arrays.core import COALESCE, ArrayActs
from admittance.arrays.dependents import DependentActs
from admittance.events import facts
from admittance.events.base import Fact
from admittance.events.subjects import WorkloadName
from admittance.object_errors import ObjectError
from admittance.workload.stored import StoredWorkload


class ArrayControllerCore:
    """The acts of arrays and of workloads that wait for others."""

    def __init__(
        self,
        *,
        coalesce: timedelta = COALESCE,
        gather: timedelta = timedelta(0),
        errors: list[ObjectError] | None = None,
    ) -> None:
        """The arguments are those of `ArrayActs`."""
        self.arrays = ArrayActs(coalesce=coalesce, gather=gather, errors=errors)
        self.dependents = DependentActs()

    @property
    def unreadable(self) -> dict[WorkloadName, str]:
        """The arrays with acts that cannot be computed, each with the reason."""
        return self.arrays.unreadable

    def apply(self, key: str, stored: StoredWorkload | None, revision: int, now: datetime) -> None:
        """Records the stored workload with the key ``key``; None: the workload was deleted."""
        self.arrays.apply(key, stored, revision, now)
        self.dependents.apply(key, stored, revision, now)

    def ordinary(self, key: str) -> None:
        """Records that the workload with the key ``key`` is neither an array nor an element, and
        neither waits nor is waited for."""
        self.arrays.ordinary(key)
        self.dependents.ordinary(key)

    def set_aside(self, key: str) -> None:
        """Records that the workload with the key ``key`` cannot be read."""
        self.arrays.set_aside(key)

    def orders(self, now: datetime) -> list[Fact]:
        """Returns the facts of the acts to publish now, in order."""
        return [act.fact for act in self.acts(now)]

    def acts(self, now: datetime) -> list[Act]:
        """Returns the acts to publish now, in order."""
        return self.arrays.acts(now) + self.dependents.acts(now)

    def stated(self, fact: Fact, sequence: int) -> None:
        """Records that the log has stored the act at ``sequence``."""
        if isinstance(fact, facts.DependenciesJudged):
            self.dependents.stated(fact, sequence)
        else:
            self.arrays.stated(fact, sequence)

    def failed(self, fact: Fact, now: datetime) -> None:
        """Records that publishing the act failed, or that the outcome is unknown."""
        if isinstance(fact, facts.DependenciesJudged):
            self.dependents.failed(fact, now)
        else:
            self.arrays.failed(fact, now)

    def wake(self) -> datetime | None:
        """Returns when to call `acts` next if nothing changes until then; None: never."""
        times = (self.arrays.wake(), self.dependents.wake())
        return min((at for at in times if at is not None), default=None)

    @property
    def pending(self) -> int:
        """The number of parents to be looked at, and of acts without an effect so far."""
        return self.arrays.pending + self.dependents.pending

    @property
    def stuck(self) -> int:
        """The number of acts that were repeated several times without effect."""
        return self.arrays.stuck + self.dependents.stuck

    def __contains__(self, name: object) -> bool:
        return name in self.arrays

    def __len__(self) -> int:
        return len(self.arrays)
