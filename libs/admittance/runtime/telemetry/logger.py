"""Loggers of modules that short commands import as well.

structlog takes longer to import than a command has time, and most commands write no line. So it is
imported with the first line that is written.
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
"""The service that writes errors only, as long as none was written."""


def logger() -> FilteringBoundLogger:
    """The logger of a module, as `structlog.get_logger` makes it."""
    return cast("FilteringBoundLogger", LazyLogger())


def errors_only(service: str) -> None:
    """Sets up logging of this process as `logs.configure` does for the level error, once the first
    error is written."""
    logging.getLogger("nats").setLevel(logging.CRITICAL)
    _errors_alone[:] = [service]


class LazyLogger:
    """Stands for a logger of structlog, which is made with its first line."""

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
    """Takes a line that is not written."""
