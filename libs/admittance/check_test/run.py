"""A whole trial: a bus, perhaps of its own; the controller, perhaps started for it; all cases."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any, NamedTuple

from admittance.check_test.cases import Trial
from admittance.check_test.report import KIT, Outcome, Report
from admittance.check_test.stand import Stand
from admittance.runtime import clock
from admittance.runtime.bus import Bus
from admittance.trials.program import START_SECONDS, Program, how_it_ended


class Wanted(NamedTuple):
    """What to try. ``command``: how to start the controller, with ADMIT_NATS_URL set; empty: it
    runs already, or is started within ``patience`` seconds. ``only``: those cases; empty: all."""

    controller: str
    check: str
    parameters: Any
    timeout: float
    patience: float
    command: Sequence[str] = ()
    only: Collection[str] = ()


async def try_out(
    bus: Bus, url: str, wanted: Wanted, *, tell: Callable[[str], None], ready: Callable[[], None]
) -> Report:
    """Everything about one controller on that bus. ``ready`` is called when it may be started,
    ``tell`` hears what is tried. Raises SetupError."""
    began = clock.monotonic()
    stand = Stand(bus, wanted.controller, wanted.check, wanted.parameters)
    await stand.start()
    outcomes: list[Outcome] = []
    try:
        ready()
        program = Program(wanted.command, url) if wanted.command else None
        if program is not None:
            await program.start()
        try:
            trial = Trial(
                stand,
                timeout=wanted.timeout,
                patience=wanted.timeout + START_SECONDS if program else wanted.patience,
                only=wanted.only,
                runs=lambda: program is None or program.runs(),
            )
            outcomes += await trial.run(tell)
        finally:
            if program is not None or not wanted.only:
                outcomes.append(await how_it_ended(KIT, program))
    finally:
        await stand.leave()
    return Report(
        controller=wanted.controller,
        check=wanted.check,
        outcomes=tuple(outcomes),
        usual=trial.usual,
        seconds=round(clock.monotonic() - began, 1),
    )
