"""The queues, checks and limits that a transition reads, as values.

The workload-controller implements `QueueView` with its catalog, tests with a table.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from types import MappingProxyType
from typing import NamedTuple, Protocol

from admittance.api.checks import AdmissionCheck, RetryStrategy
from admittance.api.meta import Toleration
from admittance.events.base import Fact
from admittance.events.shapes import Admission
from admittance.family.policy import FamilyRules
from admittance.workload.limits import Limits


class RequiredCheck(NamedTuple):
    """One check that a workload has to pass."""

    name: str
    controller: str


class CheckRules(NamedTuple):
    """Rules of an AdmissionCheck. ``retry``: the strategy for a Retry without a delay.
    ``timeout_seconds``: the time limit for its verdict; None: no limit. ``missing``: a sentence
    that its parameters object does not exist; then the check is not requested."""

    name: str
    controller: str
    preemption_policy: str = "Anytime"
    retry: RetryStrategy | None = None
    timeout_seconds: int | None = None
    missing: str = ""


def check_rules(check: AdmissionCheck) -> CheckRules:
    """The rules of an AdmissionCheck."""
    spec = check.spec
    return CheckRules(
        check.metadata.name,
        spec.controller_name,
        spec.preemption_policy,
        spec.retry,
        spec.check_timeout_seconds,
    )


class InactiveReason(NamedTuple):
    """Why a queue admits no workloads: reason and message of QuotaReserved=False.

    ``drains``: admitted workloads are evicted too, with the reason ``evicted_as``.
    """

    reason: str
    message: str
    drains: bool = False
    evicted_as: str = ""


class FlavorParts(NamedTuple):
    """What a flavor adds to the pods that get it."""

    node_labels: Mapping[str, str] = MappingProxyType({})
    tolerations: tuple[Toleration, ...] = ()


class TimeRules(Protocol):
    """The part of QueueView that `admittance.workload.due_times` needs."""

    @property
    def limits(self) -> Limits:
        """The deployment's limits of times and retries."""
        ...

    def check(self, name: str) -> CheckRules | None:
        """The rules of the AdmissionCheck with that name; None: it does not exist."""
        ...


class QueueView(TimeRules, Protocol):
    """The queues as they are now."""

    def cluster_queue(self, namespace: str, queue: str) -> str:
        """The ClusterQueue behind a LocalQueue; "" when either is missing."""
        ...

    def inactive_reason(self, namespace: str, queue: str) -> InactiveReason | None:
        """Why the queue of a workload is missing or stopped; None when it runs."""
        ...

    def required_checks(
        self, cluster_queue: str, admission: Admission | None
    ) -> tuple[RequiredCheck, ...]:
        """The checks of a workload with that admission, sorted by name.
        docs/spec/lifecycle.md#2.2."""
        ...

    def named_checks(self, cluster_queue: str) -> frozenset[str]:
        """Every check that the queue names, also for flavors that are not assigned."""
        ...

    def edition(self, namespace: str, queue: str, check: str) -> str:
        """A token that changes with every edit of the LocalQueue, its ClusterQueue, the
        AdmissionCheck or its parameters, and only then."""
        ...

    def flavor(self, name: str) -> FlavorParts:
        """What the ResourceFlavor adds to pods; empty if it does not exist."""
        ...

    def not_offered(self, admission: Admission) -> tuple[str, ...]:
        """Flavors of the admission that its ClusterQueue no longer lists; none if the ClusterQueue
        does not exist."""
        ...

    def family_rules(self, namespace: str, queue: str) -> FamilyRules | None:
        """The family rules of the ClusterQueue behind a LocalQueue; None: its workloads are
        regular, or the gate ConcurrentAdmission is off."""
        ...


class TransitionContext(NamedTuple):
    """``now``: the controller's clock; for a due timer at least the timer's time. ``sequence``: the
    fact's sequence on the log. ``logged_at``: the server's time at which the log stored the fact; a
    value derived from it stays the same when the fact is read again."""

    now: datetime
    sequence: int
    logged_at: datetime
    queues: QueueView


class QueueChanged(Fact, frozen=True, kw_only=True):
    """A queue, flavor or check of the workload changed. Not on the wire: the controller makes it
    from ``admit.object.applied`` for each affected workload. ``asks``: checks with changed
    parameters, which are requested again unless they have sent a verdict."""

    asks: frozenset[str] = frozenset()
