"""The queues, checks and limits that a transition reads, as values.

The workload-controller implements `QueueView` with its catalog, and tests implement it with a
table.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from types import MappingProxyType
from typing import NamedTuple, Protocol

from admittance.api.checks import AdmissionCheck, RetryStrategy
from admittance.api.meta import Toleration
from admittance.events.base import Fact
from admittance.events.placement import Placement
from admittance.events.shapes import Admission
from admittance.family import FamilyRules
from admittance.workload.limits import Limits
from admittance.workload.stored import StoredWorkload


class RequiredCheck(NamedTuple):
    """One check that a workload has to pass before it is admitted."""

    name: str
    controller: str


class CheckRules(NamedTuple):
    """Rules of an AdmissionCheck. ``retry``: the strategy for a Retry without a delay.
    ``timeout_seconds``: the time limit for a verdict of the check; None: no limit. ``missing``: a
    sentence that the check's parameters object does not exist; in that case the check is not
    requested."""

    name: str
    controller: str
    preemption_policy: str = "Anytime"
    retry: RetryStrategy | None = None
    timeout_seconds: int | None = None
    missing: str = ""


def check_rules(check: AdmissionCheck) -> CheckRules:
    """Returns the rules of an AdmissionCheck from its manifest."""
    spec = check.spec
    return CheckRules(
        check.metadata.name,
        spec.controller_name,
        spec.preemption_policy,
        spec.retry,
        spec.check_timeout_seconds,
    )


class InactiveReason(NamedTuple):
    """Why a queue admits no workloads: reason and message for the condition QuotaReserved=False.

    ``drains``: admitted workloads of the queue are evicted too, with the reason ``evicted_as``.
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
        """The rules of the AdmissionCheck with that name; None: the check does not exist."""
        ...


class QueueView(TimeRules, Protocol):
    """What a transition reads about the present queues, checks and flavors."""

    def cluster_queue(self, namespace: str, queue: str) -> str:
        """The ClusterQueue behind a LocalQueue; "" when either is missing."""
        ...

    def inactive_reason(self, namespace: str, queue: str) -> InactiveReason | None:
        """Why the queue of a workload is missing or stopped; None: the queue exists and runs."""
        ...

    def required_checks(
        self, cluster_queue: str, admission: Admission | None
    ) -> tuple[RequiredCheck, ...]:
        """The checks of a workload with the given admission in the ClusterQueue, sorted by name.
        docs/spec/lifecycle.md#2.2."""
        ...

    def named_checks(self, cluster_queue: str) -> frozenset[str]:
        """Every check that the queue has, including checks of flavors that are not assigned."""
        ...

    def edition(self, namespace: str, queue: str, check: str) -> str:
        """A token that changes with every edit of the LocalQueue, its ClusterQueue, the
        AdmissionCheck or the parameters of that check, and never without such an edit."""
        ...

    def flavor(self, name: str) -> FlavorParts:
        """What the ResourceFlavor adds to pods; empty if the flavor does not exist."""
        ...

    def not_offered(self, admission: Admission) -> tuple[str, ...]:
        """Flavors of the admission that its ClusterQueue no longer lists; none if the ClusterQueue
        does not exist."""
        ...

    def family_rules(self, namespace: str, queue: str) -> FamilyRules | None:
        """The family rules of the ClusterQueue behind a LocalQueue; None: workloads of that queue
        are regular, or the gate ConcurrentAdmission is off."""
        ...


def no_submitter(_workload: str) -> str:
    """A ``submitter`` for a server without users: always ""."""
    return ""


def no_overlap(_workload: StoredWorkload, _parts: Placement) -> str:
    """An ``overlap`` for a workload that is alone: always ""."""
    return ""


class TransitionContext(NamedTuple):
    """What a transition knows besides workload and fact. ``now``: the controller's clock; for a
    fact from a timer at least the time for which the timer was set. ``sequence``: the fact's
    sequence on the log. ``logged_at``: the server's time at which the log stored the fact; a value
    derived from this time stays the same when the fact is read once more. ``user``: the user that
    caused the fact; "": unknown. ``submitter``: returns the user that submitted the workload
    ``namespace/name``; "": unknown. ``overlap``: returns why the parts cannot be assigned to the
    workload, since others hold them, as a sentence; "": they can."""

    now: datetime
    sequence: int
    logged_at: datetime
    queues: QueueView
    user: str = ""
    submitter: Callable[[str], str] = no_submitter
    overlap: Callable[[StoredWorkload, Placement], str] = no_overlap

    @property
    def by_user(self) -> str:
        """The end of a message, like `` by ada``; "": the user is unknown."""
        return f" by {self.user}" if self.user else ""


class QueueChanged(Fact, frozen=True, kw_only=True):
    """A queue, flavor or check of the workload changed. A `QueueChanged` fact is never on the wire:
    the controller makes it from ``admit.object.applied`` for each affected workload. ``asks``:
    checks with changed parameters; such a check is requested again unless it has sent a verdict."""

    asks: frozenset[str] = frozenset()
