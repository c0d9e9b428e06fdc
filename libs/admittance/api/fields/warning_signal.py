"""The signal that warns a job before the end of its time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from admittance.api.fields.problems import shown

WARNING_SIGNAL: Final = "admittance.dev/warning-signal"
"""Annotation of a pod template: ``SIGNAL@SECONDS``, such as ``USR1@120``: so many seconds before
``spec.maximumExecutionTimeSeconds`` is over the processes of its pods get the signal."""
SIGNALS: Final = ("HUP", "INT", "QUIT", "USR1", "USR2", "ALRM", "TERM", "CONT", "URG", "WINCH")
"""Names of the signals that a process may handle and that a job may ask for."""
SECONDS_MAX: Final = 31 * 86_400
FIRST_SECONDS: Final = 10
"""No run is warned sooner after its start."""


class BadWarning(ValueError):
    """The error that a text does not name a warning signal."""


class WarningSignal(NamedTuple):
    """``signal``: its name without SIG. ``seconds``: how long before the end it is sent."""

    signal: str
    seconds: int

    def __str__(self) -> str:
        return f"{self.signal}@{self.seconds}"


def signal_name(text: str) -> str:
    """The name of a signal without SIG. Raises BadWarning."""
    name = text.strip().upper().removeprefix("SIG")
    if name not in SIGNALS:
        raise BadWarning(f"{shown(text)} is not one of the signals {', '.join(SIGNALS)}")
    return name


def noted_warning(annotations: Mapping[str, str]) -> WarningSignal | None:
    """The warning in the annotations of a pod template; None if there is none. Raises
    BadWarning."""
    written = annotations.get(WARNING_SIGNAL)
    return None if written is None else warning_in(written)


def warning_in(written: str) -> WarningSignal:
    """The warning of a text ``SIGNAL@SECONDS``. Raises BadWarning."""
    name, _, seconds = written.partition("@")
    if not (seconds.isascii() and seconds.isdecimal()) or not 0 < int(seconds[:9]) <= SECONDS_MAX:
        raise BadWarning(f"must be SIGNAL@SECONDS such as USR1@120, not {shown(written)}")
    return WarningSignal(signal_name(name), int(seconds))
