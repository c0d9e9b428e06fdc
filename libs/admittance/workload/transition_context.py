"""What a move asks of the queues around a workload, as values.

The workload-controller answers from its catalog; tests answer with a table.
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
    """What an AdmissionCheck says about its verdicts. ``retry``: the delay where its controller
    asks for none. ``timeout_seconds``: how long it may judge; None: for ever. ``missing``: a
    sentence that names the object of its parameters, where there is none; then it is not asked."""

    name: str
    controller: str
    preemption_policy: str = "Anytime"
    retry: RetryStrategy | None = None
    timeout_seconds: int | None = None
    missing: str = ""


def check_rules(check: AdmissionCheck) -> CheckRules:
    """What that object says."""
    spec = check.spec
    return CheckRules(
        check.metadata.name,
        spec.controller_name,
        spec.preemption_policy,
        spec.retry,
        spec.check_timeout_seconds,
    )


class InactiveReason(NamedTuple):
    """Why a queue takes nobody: the reason and message of QuotaReserved=False.

    ``drains``: admitted workloads are evicted, too; ``evicted_as`` is then the reason.
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
    """What bears on times: `admittance.workload.due` asks for no more."""

    @property
    def limits(self) -> Limits:
        """What the deployment sets about time and retries."""
        ...

    def check(self, name: str) -> CheckRules | None:
        """What the AdmissionCheck of that name says; None: there is none."""
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
        """The checks of a workload with that admission, sorted by name. LIFECYCLE 2.2."""
        ...

    def named_checks(self, cluster_queue: str) -> frozenset[str]:
        """Every check that the queue names anywhere, also of flavors that nobody got."""
        ...

    def edition(self, namespace: str, queue: str, check: str) -> str:
        """A word that changes with every edit of the LocalQueue, the ClusterQueue behind it, the
        AdmissionCheck and its parameters, and with nothing else."""
        ...

    def flavor(self, name: str) -> FlavorParts:
        """What the ResourceFlavor adds to pods; nothing where there is none."""
        ...

    def not_offered(self, admission: Admission) -> tuple[str, ...]:
        """Flavors of the admission that its ClusterQueue does not list any more; without a
        ClusterQueue none, since nobody then knows."""
        ...

    def family_rules(self, namespace: str, queue: str) -> FamilyRules | None:
        """What the ClusterQueue behind a LocalQueue says of families; None: workloads are regular
        there, or everywhere, since the gate ConcurrentAdmission is off."""
        ...


class TransitionContext(NamedTuple):
    """``now`` is the controller's clock; for a due timer at least the time it was set for.
    ``sequence`` is the fact's on the log. ``at`` is when the log took it, by the server's clock:
    what is derived from it comes out the same when the fact is read again."""

    now: datetime
    sequence: int
    logged_at: datetime
    queues: QueueView


class QueueChanged(Fact, frozen=True, kw_only=True):
    """A queue, flavor or check around the workload changed. Not on the wire: the controller makes
    it of ``admit.object.applied`` for each workload that it may concern. ``asks``: checks whose
    parameters changed: whoever has not judged yet is asked again, with the new ones."""

    asks: frozenset[str] = frozenset()
