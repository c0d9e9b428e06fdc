"""The facts between the provisioning check and the providers of capacity. LIFECYCLE 5.3.

``admit.provisioning.<what happened>.<class>.<ns>.<name>``: namespace and name are the workload's.
"""

from __future__ import annotations

from datetime import datetime

import msgspec

from admittance.events.base import Fact
from admittance.events.shapes import PodSetToProvision, PodSetUpdate


class ProvisioningFact(Fact, frozen=True, kw_only=True):
    """``id``: which request, `admittance.provisioning.records.request_id`. ``provisioning_class``:
    the provider's; "": as the subject says."""

    id: str
    provisioning_class: str = ""


class ProvisioningRequested(ProvisioningFact, frozen=True, kw_only=True):
    """Capacity is asked for. Said again after a crash: act once for each ``id``. ``deadline``: what
    is not provisioned by then counts as failed."""

    check: str
    cycle: int
    attempt: int
    pod_sets: tuple[PodSetToProvision, ...] = ()
    parameters: dict[str, str] = msgspec.field(default_factory=dict)
    deadline: datetime | None = None


class ProvisioningCancelled(ProvisioningFact, frozen=True, kw_only=True):
    """Free what was booked, and stop what was begun; an ``id`` that nobody knows is done."""

    check: str = ""
    cycle: int = 0
    attempt: int = 0
    reason: str = ""


class ProvisioningStatus(ProvisioningFact, frozen=True, kw_only=True):
    """What a provider says of a request. ``seq``: rises with every answer to one request; without
    it, the order of the log counts. ``details``: what pod set updates may refer to by name."""

    message: str = ""
    details: dict[str, str] = msgspec.field(default_factory=dict)
    pod_set_updates: tuple[PodSetUpdate, ...] = ()
    seq: int | None = None


class Accepted(ProvisioningStatus, frozen=True, kw_only=True):
    """It is being worked on; the message may tell when it is expected."""


class Provisioned(ProvisioningStatus, frozen=True, kw_only=True):
    """The capacity is there, and booked."""


class ProvisioningFailed(ProvisioningStatus, frozen=True, kw_only=True):
    """There is no capacity. ``retryable`` False: nor will there be. ``retry_after``: seconds."""

    retryable: bool = True
    retry_after: int | None = None


class BookingExpired(ProvisioningStatus, frozen=True, kw_only=True):
    """What was provisioned is not kept any longer for a workload that has not started."""


class CapacityRevoked(ProvisioningStatus, frozen=True, kw_only=True):
    """What was provisioned is gone."""
