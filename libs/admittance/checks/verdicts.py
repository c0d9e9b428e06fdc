"""The four verdicts that a check can return. A verdict with wrong fields raises ValueError when it
is created.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import timedelta
from fractions import Fraction
from typing import Any, ClassVar, Final, TypeAlias

import msgspec

from admittance.api.fields.units import seconds
from admittance.events.shapes import PodSetUpdate, updates_of

REASON_MAX: Final = 1024


class BaseVerdict(msgspec.Struct, frozen=True):
    """The base of all verdicts. ``message``: a sentence for people, shown with the workload."""

    state: ClassVar[str] = ""
    message: str = ""

    def __post_init__(self) -> None:
        if not isinstance(self.message, str):
            raise ValueError(
                f"the message of {type(self).__name__} is not a text: {self.message!r}"
            )


class Pending(BaseVerdict, frozen=True, kw_only=True):
    """Not decided yet. With the verdict Pending the workload keeps its quota. Report the verdict
    later, with ``request.report``.

    ``reason`` "PreemptionRequired" asks the scheduler to start now the preemptions that the quota
    reservation needs.
    """

    state: ClassVar[str] = "Pending"
    reason: str = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.reason, str) or len(self.reason) > REASON_MAX:
            raise ValueError(
                f"the reason of a Pending verdict is not a text of at most {REASON_MAX} characters"
            )


class Ready(BaseVerdict, frozen=True, kw_only=True):
    """With Ready the check allows the workload to start. The check can still replace Ready by
    another verdict later.

    ``pod_set_updates``: what to add to the pods before they start, as `PodSetUpdate` or as dicts of
    the same shape (``name``, ``labels``, ``annotations``, ``nodeSelector``, ``tolerations``). If a
    pod set already has another value for a key, the conflict rejects the workload.
    """

    state: ClassVar[str] = "Ready"
    pod_set_updates: Sequence[PodSetUpdate | Mapping[str, Any]] = ()

    def updates(self) -> tuple[PodSetUpdate, ...]:
        """``pod_set_updates`` as a tuple of `PodSetUpdate`. Raises ValueError."""
        return updates_of(self.pod_set_updates)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.updates()


class Retry(BaseVerdict, frozen=True, kw_only=True):
    """The workload cannot start now: it releases its quota, and a running job is stopped.

    ``after``: the shortest wait before the workload is requeued, as seconds, a timedelta, or a
    duration like "8m0s". With ``after`` None the retry strategy of the AdmissionCheck applies;
    without a strategy the workload is requeued at once.
    """

    state: ClassVar[str] = "Retry"
    after: float | timedelta | str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        self.seconds()

    def seconds(self) -> int | None:
        """The delay ``after`` of a Retry in whole seconds, rounded up. Raises ValueError."""
        if self.after is None:
            return None
        length: float | Fraction | timedelta = (
            seconds(self.after) if isinstance(self.after, str) else self.after
        )
        seconds_given = length.total_seconds() if isinstance(length, timedelta) else length
        if isinstance(seconds_given, bool) or not isinstance(seconds_given, int | float | Fraction):
            raise ValueError(f"after={self.after!r} of a Retry is not a number of seconds")
        if not 0 <= seconds_given < 2**31:
            raise ValueError(
                f"after={self.after!r} of a Retry is not a delay of 0 to 2^31 - 1 seconds"
            )
        return math.ceil(seconds_given)


class Rejected(BaseVerdict, frozen=True):
    """The verdict that the workload may never start: the workload is deactivated, until a person
    activates it again.
    """

    state: ClassVar[str] = "Rejected"


class Later:
    """No verdict yet: a later ``controller.report`` publishes it, perhaps from another process or
    after a restart. The request counts as handled: store its ``reference`` safely before the check
    returns `Later`.
    """


Verdict: TypeAlias = Pending | Ready | Retry | Rejected
