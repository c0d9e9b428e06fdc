"""A whole trial: a bus, perhaps of its own; the provider, perhaps started for it; all cases."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple

from admittance.provider_test.cases import Trial, Way
from admittance.provider_test.report import KIT, Outcome, Report
from admittance.provider_test.stand import Shape, Stand
from admittance.runtime import clock
from admittance.runtime.bus import Bus
from admittance.trials.program import START_SECONDS, OwnServer, Program, how_it_ended


class Wanted(NamedTuple):
    """What to try. ``room``: how many requests of that shape it has room for; 0: nobody knows.
    ``wrong``: parameters that it must refuse. ``command``: how to start it, with ADMIT_NATS_URL
    set; empty: it runs already, or is started within ``patience`` seconds. ``only``: those cases;
    empty: all."""

    provisioning_class: str
    shape: Shape
    timeout: float
    patience: float
    room: int = 0
    wrong: Mapping[str, str] | None = None
    command: Sequence[str] = ()
    only: Collection[str] = ()


async def try_out(
    bus: Bus,
    url: str,
    wanted: Wanted,
    *,
    tell: Callable[[str], None],
    ready: Callable[[], None],
    server: OwnServer | None = None,
) -> Report:
    """Everything about one provider on that bus. ``ready`` is called when it may be started,
    ``tell`` hears what is tried. ``server``: where it is ours, so that it may be ended and started
    again. Raises SetupError."""
    began = clock.monotonic()
    stand = Stand(bus, wanted.provisioning_class, wanted.shape)
    await stand.start()
    outcomes: list[Outcome] = []
    try:
        ready()
        program = Program(wanted.command, url) if wanted.command else None
        if program is not None:
            await program.start()

        async def restart() -> None:
            if server is not None:
                await server.restart(bus)

        try:
            trial = Trial(
                stand,
                Way(program, restart if server is not None else None, wanted.room, wanted.wrong),
                timeout=wanted.timeout,
                patience=wanted.timeout + START_SECONDS if program else wanted.patience,
                only=wanted.only,
            )
            outcomes += await trial.run(tell)
            await trial.leave()
        finally:
            if program is not None or not wanted.only:
                outcomes.append(await how_it_ended(KIT, program))
    finally:
        await stand.leave()
    return Report(
        provisioning_class=wanted.provisioning_class,
        outcomes=tuple(outcomes),
        usual=trial.usual,
        seconds=round(clock.monotonic() - began, 1),
    )
