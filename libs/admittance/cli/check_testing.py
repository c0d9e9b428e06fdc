"""``admit check-test``: a controller is driven through the protocol, and the outcome is shown."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from admittance.check_test.report import TITLES, Report
from admittance.check_test.run import Wanted, try_out
from admittance.cli.options import Call
from admittance.cli.trials import (
    Ready,
    Tell,
    Where,
    check_cases,
    check_name,
    on_trial,
    parameters_of,
    patience,
)
from admittance.runtime.bus import Bus
from admittance.trials.program import OwnServer


class Options(NamedTuple):
    """What was typed."""

    controller: str
    check: str
    parameters: Path | None
    timeout: float
    where: Where
    cases: Sequence[str] = ()


async def check_test(call: Call, options: Options) -> int:
    """Tries everything and shows it; 1 when something failed."""
    wanted = _wanted(options)

    async def trial(bus: Bus, url: str, _: OwnServer | None, tell: Tell, ready: Ready) -> Report:
        return await try_out(bus, url, wanted, tell=tell, ready=ready)

    return await on_trial(call, options.where, "controller", options.controller, trial)


def _wanted(options: Options) -> Wanted:
    check_name("CONTROLLER", options.controller)
    check_name("--check", options.check)
    check_cases(options.cases, TITLES)
    return Wanted(
        controller=options.controller,
        check=options.check,
        parameters=parameters_of(options.parameters),
        timeout=options.timeout,
        patience=patience(options.where, options.timeout),
        command=options.where.command,
        only=options.cases,
    )
