"""The four answers that a check can give.

Each is a plain value; what is wrong with one is told where it is made, by a ValueError.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import timedelta
from fractions import Fraction
from typing import Any, ClassVar, Final, TypeAlias

import msgspec

from admittance.api.units import seconds
from admittance.events.shapes import PodSetUpdate
from admittance.sdk.limits import updates_of

REASON_MAX: Final = 1024


class Answer(msgspec.Struct, frozen=True):
    """What all answers have: a sentence for people, shown beside the workload."""

    state: ClassVar[str] = ""
    message: str = ""

    def __post_init__(self) -> None:
        if not isinstance(self.message, str):
            raise ValueError(f"the message of {type(self).__name__} is no text: {self.message!r}")


class Pending(Answer, frozen=True, kw_only=True):
    """Not decided yet; the reservation is kept. Say more later, with ``request.report``.

    ``reason`` "PreemptionRequired": let the preemptions that the reservation needs happen now.
    """

    state: ClassVar[str] = "Pending"
    reason: str = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.reason, str) or len(self.reason) > REASON_MAX:
            raise ValueError(f"the reason is no text of at most {REASON_MAX} characters")


class Ready(Answer, frozen=True, kw_only=True):
    """This check has nothing against the start. Every check can still change its mind.

    ``pod_set_updates``: what to add to the pods before they start, as `PodSetUpdate` or as dicts of
    the same shape (``name``, ``labels``, ``annotations``, ``nodeSelector``, ``tolerations``). They
    only add: a key that has another value already makes a conflict, and that rejects the workload.
    """

    state: ClassVar[str] = "Ready"
    pod_set_updates: Sequence[PodSetUpdate | Mapping[str, Any]] = ()

    def updates(self) -> tuple[PodSetUpdate, ...]:
        """``pod_set_updates`` in one shape. Raises ValueError."""
        return updates_of(self.pod_set_updates)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.updates()


class Retry(Answer, frozen=True, kw_only=True):
    """Not now: the workload gives its quota back, and a job that runs already is stopped.

    ``after``: seconds, a timedelta, or a duration like "8m0s", that it waits at least before it
    competes again; None leaves it to the retry strategy of the AdmissionCheck, without which it
    competes again at once.
    """

    state: ClassVar[str] = "Retry"
    after: float | timedelta | str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        self.seconds()

    def seconds(self) -> int | None:
        """``after`` in whole seconds, rounded up. Raises ValueError."""
        if self.after is None:
            return None
        length: float | Fraction | timedelta = (
            seconds(self.after) if isinstance(self.after, str) else self.after
        )
        found = length.total_seconds() if isinstance(length, timedelta) else length
        if isinstance(found, bool) or not isinstance(found, int | float | Fraction):
            raise ValueError(f"after is no number of seconds: {self.after!r}")
        if not 0 <= found < 2**31:
            raise ValueError(f"after={self.after!r} is no delay: seconds, from 0 to 2^31 - 1")
        return math.ceil(found)


class Rejected(Answer, frozen=True):
    """Never: the workload is deactivated, until somebody activates it again."""

    state: ClassVar[str] = "Rejected"


class Later:
    """Nothing is said yet, and not by returning: the verdict comes by ``controller.report``, from
    whoever finds it out, also after a restart. The request counts as dealt with: keep its
    ``reference`` where no crash reaches it before you answer this."""


Verdict: TypeAlias = Pending | Ready | Retry | Rejected
