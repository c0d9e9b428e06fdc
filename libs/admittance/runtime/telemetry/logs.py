"""Logs: structlog events to standard error, one line per decision."""

from __future__ import annotations

import logging
import sys
from typing import Any

import msgspec
import structlog

from admittance.runtime.errors import SetupError

_encode = msgspec.json.Encoder(enc_hook=str).encode


def configure(
    service: str, instance: str, json: bool | None = None, *, level: str = "info"
) -> structlog.typing.FilteringBoundLogger:
    """Sets up logging of this process and returns the logger of ``service``.

    ``json`` None: JSON unless standard error is a terminal. Every line of the returned logger has
    service and instance, which distinguishes several services of one process. Raises SetupError for
    an unknown level.
    """
    number = logging.getLevelNamesMapping().get(level.upper())
    if number is None:
        raise SetupError(f"ADMIT_LOG_LEVEL={level!r} is not one of debug, info, warning, error")
    as_json = not sys.stderr.isatty() if json is None else json
    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    if as_json:
        structlog.configure(
            processors=[
                *shared,
                structlog.processors.format_exc_info,
                structlog.processors.JSONRenderer(serializer=_json),
            ],
            wrapper_class=structlog.make_filtering_bound_logger(number),
            logger_factory=structlog.BytesLoggerFactory(sys.stderr.buffer),
            cache_logger_on_first_use=True,
        )
    else:
        structlog.configure(
            processors=[*shared, structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())],
            wrapper_class=structlog.make_filtering_bound_logger(number),
            logger_factory=structlog.PrintLoggerFactory(sys.stderr),
            cache_logger_on_first_use=True,
        )
    # nats-py logs every failed attempt to reconnect; `Bus` logs a lost connection once.
    logging.getLogger("nats").setLevel(logging.CRITICAL)
    return get(service, instance)


def _json(event: Any, **_: Any) -> bytes:
    try:
        return _encode(event)
    except (UnicodeEncodeError, OverflowError, RecursionError):
        # A value given by a user that JSON cannot represent must not end the service.
        return _encode({name: ascii(value) for name, value in event.items()})


def get(service: str, instance: str = "") -> structlog.typing.FilteringBoundLogger:
    """A logger that adds service and instance to every line."""
    bound: structlog.typing.FilteringBoundLogger = structlog.get_logger(
        service=service, **({"instance": instance} if instance else {})
    )
    return bound
