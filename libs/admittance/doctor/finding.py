"""How checks of `admit doctor` state what they found."""

from __future__ import annotations

from collections.abc import Iterable

from admittance.events.shapes import Finding
from admittance.runtime.telemetry.findings import NOTE, OK, WRONG

__all__ = ["NOTE", "OK", "WRONG", "Finding", "finding", "note", "ok", "without_repeats", "wrong"]


def ok(what: str, found: str) -> Finding:
    """A finding about a thing that is as it should be."""
    return Finding(state=OK, what=what, found=found)


def note(what: str, found: str, todo: str = "") -> Finding:
    """A finding that may be on purpose."""
    return Finding(state=NOTE, what=what, found=found, todo=todo)


def wrong(what: str, found: str, todo: str) -> Finding:
    """A finding about a thing that must be corrected."""
    return Finding(state=WRONG, what=what, found=found, todo=todo)


def finding(
    fine: bool, what: str, found: str, *, todo: str = "", otherwise: str = WRONG
) -> Finding:
    """A finding with the state ok if ``fine``, else with ``todo`` and the state ``otherwise``."""
    if fine:
        return ok(what, found)
    return Finding(state=otherwise, what=what, found=found, todo=todo)


def without_repeats(findings: Iterable[Finding]) -> list[Finding]:
    """The findings without repetitions: all services of one process report the same."""
    return list(
        {(line.state, line.what, line.found, line.todo): line for line in findings}.values()
    )
