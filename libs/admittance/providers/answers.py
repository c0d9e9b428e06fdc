"""The statuses that a provider can give a request. Each is a plain value; a wrong one raises
ValueError when it is made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final, TypeAlias

import msgspec

from admittance.events.base import WHOLE_MAX
from admittance.events.shapes import PodSetUpdate
from admittance.sdk.limits import bounded, updates_of

DETAILS_MAX: Final = 64
VALUE_MAX: Final = 32_768


class Answer(msgspec.Struct, frozen=True):
    """The base of all statuses. ``message``: a sentence for people, cut to 32,768 characters.
    ``details``: facts about the capacity by name, which a ProvisioningRequestConfig may turn into
    node selectors; at most 64, and 128 KiB in all."""

    word: ClassVar[str] = ""
    ends: ClassVar[bool] = True
    message: str = ""
    details: Mapping[str, str] = {}

    def __post_init__(self) -> None:
        if not isinstance(self.message, str):
            raise ValueError(f"the message of {type(self).__name__} is no text: {self.message!r}")
        if len(self.details) > DETAILS_MAX:
            raise ValueError(f"{len(self.details)} details, {DETAILS_MAX} are allowed")
        for key, value in self.details.items():
            if not isinstance(key, str) or not isinstance(value, str) or len(value) > VALUE_MAX:
                raise ValueError(f"the detail {key!r} is no text of at most {VALUE_MAX} characters")
        bounded("details", self.details)


class Accepted(Answer, frozen=True):
    """The request is being worked on; another status must follow."""

    word: ClassVar[str] = "accepted"
    ends: ClassVar[bool] = False


class Provisioned(Answer, frozen=True):
    """The capacity is available and booked for this workload until the request is cancelled.

    ``pod_set_updates``: further additions to the pods, as `PodSetUpdate` or dicts of that shape; at
    most 128 KiB in all."""

    word: ClassVar[str] = "provisioned"
    pod_set_updates: Sequence[PodSetUpdate | Mapping[str, Any]] = ()

    def updates(self) -> tuple[PodSetUpdate, ...]:
        """``pod_set_updates`` in one shape. Raises ValueError."""
        return updates_of(self.pod_set_updates)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.updates()


class Failed(Answer, frozen=True):
    """The capacity is not available now; nothing is booked. ``retryable`` False: it never will be,
    so the workload is rejected. ``retry_after``: the seconds before a retry makes sense."""

    word: ClassVar[str] = "failed"
    retryable: bool = True
    retry_after: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.retry_after is not None and not 0 <= self.retry_after < 2**31:
            raise ValueError(f"retry_after={self.retry_after!r} is no number of seconds")


class BookingExpired(Answer, frozen=True):
    """The booking expired before the workload started."""

    word: ClassVar[str] = "booking_expired"


class CapacityRevoked(Answer, frozen=True):
    """The capacity is gone: the workload is stopped and rejected."""

    word: ClassVar[str] = "capacity_revoked"


def fitting(details: Mapping[str, str]) -> dict[str, str]:
    """The first of these details that fit into an answer, for details of another system."""
    found: dict[str, str] = {}
    left = WHOLE_MAX - 2
    for key, value in details.items():
        size = len(msgspec.json.encode({key: value}))
        if len(found) < DETAILS_MAX and len(value) <= VALUE_MAX and size <= left:
            found[key] = value
            left -= size
    return found


Status: TypeAlias = Accepted | Provisioned | Failed | BookingExpired | CapacityRevoked
