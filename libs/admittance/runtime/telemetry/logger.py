"""Loggers that import structlog with their first line, and limits for repeated lines.

Modules that short commands import use these loggers: importing structlog takes too long for a
command, and most commands log nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final, cast

if TYPE_CHECKING:
    from structlog.typing import FilteringBoundLogger

    from admittance.events.reader import SetAside


LEVELS: Final = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
    "exception": logging.ERROR,
    "critical": logging.CRITICAL,
}

_errors_only: list[str] = []
"""The name of the service if its logging is set up only at its first error, because the service
logs errors only."""


def logger() -> FilteringBoundLogger:
    """Returns the logger of a module, as `structlog.get_logger` does."""
    return cast("FilteringBoundLogger", LazyLogger())


def errors_only(service: str) -> None:
    """Makes this process log errors only: `logs.configure` sets up logging for the level error once
    the first error is written.
    """
    logging.getLogger("nats").setLevel(logging.CRITICAL)
    _errors_only[:] = [service]


_is_silent: ContextVar[bool] = ContextVar("is_silent", default=False)


@contextmanager
def silent() -> Iterator[None]:
    """Logs nothing in this block, nor in the tasks that begin in it: for a library, whose program
    decides what is printed. The NATS client keeps its records for the program's own logging.
    """
    nats = logging.getLogger("nats")
    if not nats.handlers:
        # Without any handler Python would print warnings on standard error.
        nats.addHandler(logging.NullHandler())
    token = _is_silent.set(True)
    try:
        yield
    finally:
        _is_silent.reset(token)


class LazyLogger:
    """A logger of structlog that is created when its first line is logged."""

    __slots__ = ("_logger",)

    def __init__(self) -> None:
        self._logger: Any = None

    def __getattr__(self, name: str) -> Any:
        if _is_silent.get():
            return _drop
        if _errors_only:
            if LEVELS.get(name, logging.ERROR) < logging.ERROR:
                return _drop
            from admittance.runtime.telemetry import logs

            logs.configure(_errors_only.pop(), "", json=False, level="error")
        if self._logger is None:
            import structlog

            self._logger = structlog.get_logger()
        return getattr(self._logger, name)


def _drop(*_: Any, **__: Any) -> None:
    """Drops a log line below the level."""


REPEAT_SECONDS: Final = 60.0


class LogThrottle:
    """Limits how often a repeated event is logged."""

    def __init__(self, seconds: float = REPEAT_SECONDS) -> None:
        self._seconds = seconds
        self._logged_at: float | None = None

    @property
    def logged(self) -> bool:
        """Whether the event was logged since the last reset."""
        return self._logged_at is not None

    def due(self, now: float) -> bool:
        """Returns whether to log the repeated event now. If the result is True, the event counts as
        logged. ``now``: monotonic seconds.
        """
        if self._logged_at is not None and now - self._logged_at < self._seconds:
            return False
        self._logged_at = now
        return True


PLACES_MAX: Final = 10_000
"""The most places of unreadable entries that are remembered."""

_log = logger()
_logged: dict[tuple[str, str], str] = {}


def log_set_aside(set_aside: SetAside) -> None:
    """Logs an unreadable entry, unless the last log line about its place had the same reason."""
    place = set_aside.stream, set_aside.place
    if _logged.get(place) == set_aside.reason:
        return
    if len(_logged) >= PLACES_MAX:
        _logged.clear()
    _logged[place] = set_aside.reason
    _log.warning(
        "set_aside",
        stream=set_aside.stream,
        place=set_aside.place,
        sequence=set_aside.sequence,
        reason=set_aside.reason,
    )
