"""A whole trial of a check controller."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from admittance.conformance import run
from admittance.conformance.checks.cases import Trial
from admittance.conformance.checks.report import KIT, Report
from admittance.conformance.checks.stand import Stand
from admittance.conformance.program import Program
from admittance.runtime.bus.bus import Bus


class Wanted(run.Wanted, frozen=True, kw_only=True):
    """The controller to test, with ``check`` and ``parameters`` of its requests."""

    controller: str
    check: str
    parameters: Any


async def try_out(
    bus: Bus, url: str, wanted: Wanted, *, tell: Callable[[str], None], ready: Callable[[], None]
) -> Report:
    """Everything about one controller on that bus; `run.tried` has the rest. Raises SetupError."""
    stand = Stand(bus, wanted.controller, wanted.check, wanted.parameters)

    def trial(program: Program | None, patience: float) -> Trial:
        return Trial(
            stand,
            timeout=wanted.timeout,
            patience=patience,
            only=wanted.only,
            runs=lambda: program is None or program.runs(),
        )

    found = await run.tried(KIT, stand, trial, wanted, url, tell=tell, ready=ready)
    return Report(controller=wanted.controller, check=wanted.check, **found._asdict())
