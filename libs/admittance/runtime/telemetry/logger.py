"""Loggers that import structlog with their first line, and a throttle for repeated lines.

Modules that short commands import use these loggers: importing structlog takes too long for a
command, and most commands log nothing.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final, cast

if TYPE_CHECKING:
    from structlog.typing import FilteringBoundLogger


LEVELS: Final = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
    "exception": logging.ERROR,
    "critical": logging.CRITICAL,
}

_errors_alone: list[str] = []
"""The service that logs errors only, until its first error."""


def logger() -> FilteringBoundLogger:
    """The logger of a module, as `structlog.get_logger` makes it."""
    return cast("FilteringBoundLogger", LazyLogger())


def errors_only(service: str) -> None:
    """Sets up logging of this process as `logs.configure` does for the level error, once the first
    error is written."""
    logging.getLogger("nats").setLevel(logging.CRITICAL)
    _errors_alone[:] = [service]


class LazyLogger:
    """A logger of structlog, created at its first line."""

    __slots__ = ("_logger",)

    def __init__(self) -> None:
        self._logger: Any = None

    def __getattr__(self, name: str) -> Any:
        if _errors_alone:
            if LEVELS.get(name, logging.ERROR) < logging.ERROR:
                return _nothing
            from admittance.runtime.telemetry import logs

            logs.configure(_errors_alone.pop(), "", json=False, level="error")
        if self._logger is None:
            import structlog

            self._logger = structlog.get_logger()
        return getattr(self._logger, name)


def _nothing(*_: Any, **__: Any) -> None:
    """Drops a line below the level."""


AGAIN_SECONDS: Final = 60.0


class LogThrottle:
    """Limits how often a repeated event is logged."""

    def __init__(self, seconds: float = AGAIN_SECONDS) -> None:
        self._seconds = seconds
        self._told: float | None = None

    @property
    def told(self) -> bool:
        """Whether the event was logged at all."""
        return self._told is not None

    def due(self, now: float) -> bool:
        """Whether to log the event now. True counts as logged. ``now``: monotonic seconds."""
        if self._told is not None and now - self._told < self._seconds:
            return False
        self._told = now
        return True
