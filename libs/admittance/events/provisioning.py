"""The facts between the provisioning check and capacity providers. docs/spec/lifecycle.md#5.3

Subjects: ``admit.provisioning.<what happened>.<class>.<ns>.<name>``, with namespace and name of the
workload.
"""

from __future__ import annotations

from datetime import datetime

import msgspec

from admittance.events.base import Fact
from admittance.events.shapes import PodSetToProvision, PodSetUpdate


class ProvisioningFact(Fact, frozen=True, kw_only=True):
    """``id``: id of the request for capacity, `admittance.provisioning.records.request_id`.
    ``provisioning_class``: the class of the provider; "": the class in the subject.
    """

    id: str
    provisioning_class: str = ""


class ProvisioningRequested(ProvisioningFact, frozen=True, kw_only=True):
    """Capacity is requested. The fact is published again after a crash, so a provider must act only
    once for each ``id``. ``deadline``: a request that is not provisioned by then counts as failed.
    """

    check: str
    cycle: int
    attempt: int
    pod_sets: tuple[PodSetToProvision, ...] = ()
    parameters: dict[str, str] = msgspec.field(default_factory=dict)
    deadline: datetime | None = None


class ProvisioningCancelled(ProvisioningFact, frozen=True, kw_only=True):
    """The request is withdrawn: the provider frees booked capacity and stops provisioning. A
    provider ignores an unknown ``id``.
    """

    check: str = ""
    cycle: int = 0
    attempt: int = 0
    reason: str = ""


class ProvisioningStatus(ProvisioningFact, frozen=True, kw_only=True):
    """A provider's status of a request. ``seq``: a number that rises with every status of one
    request; without ``seq`` the order of the log counts. ``details``: values from the provider that
    pod set updates may refer to.
    """

    message: str = ""
    details: dict[str, str] = msgspec.field(default_factory=dict)
    pod_set_updates: tuple[PodSetUpdate, ...] = ()
    seq: int | None = None


class Accepted(ProvisioningStatus, frozen=True, kw_only=True):
    """The provider works on the request; ``message`` may say when capacity is expected."""


class Provisioned(ProvisioningStatus, frozen=True, kw_only=True):
    """The requested capacity is available and booked."""


class ProvisioningFailed(ProvisioningStatus, frozen=True, kw_only=True):
    """The provider cannot provide the capacity. ``retryable`` False: no retry of the request can
    succeed. ``retry_after``: seconds until a retry of the request may succeed.
    """

    retryable: bool = True
    retry_after: int | None = None


class BookingExpired(ProvisioningStatus, frozen=True, kw_only=True):
    """The booked capacity is freed, since the workload did not start in time."""


class CapacityRevoked(ProvisioningStatus, frozen=True, kw_only=True):
    """The provisioned capacity is lost, for example because machines failed."""
