"""The statuses with which a provider can answer a capacity request. The constructor of a status
raises ValueError if a field is not valid.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final, TypeAlias

import msgspec

from admittance.events.base import WHOLE_MAX, check_length
from admittance.events.shapes import PodSetUpdate, updates_of

DETAILS_MAX: Final = 64
VALUE_MAX: Final = 32_768


class BaseStatus(msgspec.Struct, frozen=True):
    """The base class of all statuses of a provider. ``message``: a sentence for users, cut to
    32,768 characters. ``details``: facts about the capacity by name, from which a
    ProvisioningRequestConfig may make node selectors; at most 64 details of 128 KiB in all.
    """

    word: ClassVar[str] = ""
    ends: ClassVar[bool] = True
    message: str = ""
    details: Mapping[str, str] = {}

    def __post_init__(self) -> None:
        if not isinstance(self.message, str):
            raise ValueError(f"the message of {type(self).__name__} is not text: {self.message!r}")
        if len(self.details) > DETAILS_MAX:
            raise ValueError(
                f"a status has {len(self.details)} details, at most {DETAILS_MAX} are allowed"
            )
        for key, value in self.details.items():
            if not isinstance(key, str) or not isinstance(value, str) or len(value) > VALUE_MAX:
                raise ValueError(
                    f"the detail {key!r} is not text of at most {VALUE_MAX} characters"
                )
        check_length("details", self.details)


class Accepted(BaseStatus, frozen=True):
    """The provider works on the capacity request. A later status must follow Accepted."""

    word: ClassVar[str] = "accepted"
    ends: ClassVar[bool] = False


class Provisioned(BaseStatus, frozen=True):
    """The capacity is available, and booked for the workload until the request is cancelled.

    ``pod_set_updates``: additions to the pods of the workload, each a `PodSetUpdate` or a dict with
    the same fields; at most 128 KiB in all."""

    word: ClassVar[str] = "provisioned"
    pod_set_updates: Sequence[PodSetUpdate | Mapping[str, Any]] = ()

    def updates(self) -> tuple[PodSetUpdate, ...]:
        """The additions to the pods in ``pod_set_updates``, each as a `PodSetUpdate`. Raises
        ValueError.
        """
        return updates_of(self.pod_set_updates)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.updates()


class Failed(BaseStatus, frozen=True):
    """The capacity is not available, and nothing is booked. ``retryable`` False: the capacity will
    never be available, so the workload is rejected. ``retry_after``: seconds after which the
    capacity is requested again.
    """

    word: ClassVar[str] = "failed"
    retryable: bool = True
    retry_after: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.retry_after is not None and not 0 <= self.retry_after < 2**31:
            raise ValueError(f"retry_after={self.retry_after!r} is not a number of seconds")


class BookingExpired(BaseStatus, frozen=True):
    """The booking expired before the workload started."""

    word: ClassVar[str] = "booking_expired"


class CapacityRevoked(BaseStatus, frozen=True):
    """The booked capacity is gone, so the workload is stopped and rejected."""

    word: ClassVar[str] = "capacity_revoked"


def fitting_details(details: Mapping[str, str]) -> dict[str, str]:
    """Returns the first of the details, as many as one status may have, without those that are too
    long.
    """
    fitting: dict[str, str] = {}
    left = WHOLE_MAX - 2
    for key, value in details.items():
        size = len(msgspec.json.encode({key: value}))
        if len(fitting) < DETAILS_MAX and len(value) <= VALUE_MAX and size <= left:
            fitting[key] = value
            left -= size
    return fitting


Status: TypeAlias = Accepted | Provisioned | Failed | BookingExpired | CapacityRevoked
