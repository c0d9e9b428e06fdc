"""Faults: exceptions that a step of a service raised for one object.

One workload's data must not end a process. So a service catches an exception of a step that
concerns one object, sets the object aside, and continues with all others. The exception is a bug of
Admittance all the same: it is logged with its traceback, counted, and reported by `admit doctor`
until the process ends.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from admittance.events.reader import reason_of
from admittance.events.shapes import Finding
from admittance.object_errors import ObjectError
from admittance.runtime.telemetry.logger import logger
from admittance.runtime.telemetry.metrics import Counter

FAULTS_MAX: Final = 1_000
"""The most faults that are remembered."""
SHOWN_MAX: Final = 3
"""How many faults of one service `admit doctor` shows."""

log = logger()


class ObjectFault(NamedTuple):
    """An exception of one step of a service for one object. ``about``: the object, such as
    ``workload team/train``; ``reason``: the exception, in one line."""

    service: str
    step: str
    about: str
    reason: str


class ObjectFaults:
    """The faults of this process."""

    def __init__(self) -> None:
        self.counter = Counter(
            "object_faults",
            "Exceptions by bugs of Admittance that concerned one object: the step failed for this "
            "object, and the service went on with all others; the log has the tracebacks",
            (),
        )
        self._known: dict[tuple[str, str, str], ObjectFault] = {}

    def record(self, service: str, step: str, about: str, error: BaseException) -> str:
        """Counts a fault, and logs it with its traceback if it is the first of this step for this
        object. Returns the reason in one line. ``step``: what failed, such as ``plan a job``."""
        reason = fault_reason(error)
        self.counter.add(())
        place = service, step, about
        if place not in self._known:
            if len(self._known) >= FAULTS_MAX:
                del self._known[next(iter(self._known))]
            log.error("object_fault", service=service, step=step, about=about, exc_info=error)
        self._known[place] = ObjectFault(service, step, about, reason)
        return reason

    def record_all(self, service: str, errors: Iterable[ObjectError]) -> None:
        """Records the exceptions of a core."""
        for error in errors:
            self.record(service, error.step, error.about, error.error)

    def take(self) -> list[ObjectFault]:
        """Returns the remembered faults and forgets them."""
        known = list(self._known.values())
        self._known.clear()
        return known

    def findings(self) -> list[Finding]:
        """The findings of `admit doctor`: one for each service with a fault."""
        by_service: dict[str, list[ObjectFault]] = {}
        for fault in tuple(self._known.values()):
            by_service.setdefault(fault.service, []).append(fault)
        return [_finding(service, faults) for service, faults in by_service.items()]


def fault_reason(error: BaseException) -> str:
    """The exception in one line, with its type."""
    return f"{type(error).__name__}: {reason_of(error)}"


def _finding(service: str, faults: list[ObjectFault]) -> Finding:
    shown = [f"{fault.about} ({fault.step}: {fault.reason})" for fault in faults[-SHOWN_MAX:]]
    more = len(faults) - len(shown)
    return Finding(
        state="wrong",
        what=f"faults of {service}",
        found="set aside by a bug of Admittance: "
        + "; ".join(shown)
        + (f"; and {more} more" if more else ""),
        todo="report it with the lines object_fault of the log: "
        "docs/operations.md#an-object-is-set-aside-by-a-fault",
    )


faults: Final = ObjectFaults()
