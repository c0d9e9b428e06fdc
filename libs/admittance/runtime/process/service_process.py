"""Runs a service as the only one of its process: ``python -m admittance.<service>``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from admittance.runtime.process.service import Service
from admittance.runtime.process.startup import end_at_once_on_signals

if TYPE_CHECKING:
    from admittance.runtime.process.settings import Settings


def run_service(
    service: Service, more: Callable[[Settings], Mapping[str, Any]] | None = None
) -> int:
    """Runs the service until a stop signal. Returns the exit status of the process. ``more``:
    makes further arguments of the service's function from the settings.
    """
    end_at_once_on_signals()
    # After the signal handlers, because these imports take a second or more.
    from admittance.runtime.process.supervise import main

    return main(service, more)
