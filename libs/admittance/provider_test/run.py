"""A whole trial of a provider."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from admittance.provider_test.cases import Trial
from admittance.provider_test.report import KIT, Report
from admittance.provider_test.stand import Shape, Stand
from admittance.provider_test.watched import Way
from admittance.runtime.bus import Bus
from admittance.trials import run
from admittance.trials.program import OwnServer, Program


class Wanted(run.Wanted, frozen=True, kw_only=True):
    """Whom to try, and with what. ``room``: how many requests of that shape it has room for; 0:
    nobody knows. ``wrong``: parameters that it must refuse; None: nobody knows any."""

    provisioning_class: str
    shape: Shape
    room: int = 0
    wrong: Mapping[str, str] | None = None


async def try_out(
    bus: Bus,
    url: str,
    wanted: Wanted,
    *,
    tell: Callable[[str], None],
    ready: Callable[[], None],
    server: OwnServer | None = None,
) -> Report:
    """Everything about one provider on that bus; `run.tried` has the rest. ``server``: where it is
    ours, so that it may be ended and started again. Raises SetupError."""
    stand = Stand(bus, wanted.provisioning_class, wanted.shape)

    async def restart() -> None:
        if server is not None:
            await server.restart(bus)

    def trial(program: Program | None, patience: float) -> Trial:
        return Trial(
            stand,
            Way(program, restart if server is not None else None, wanted.room, wanted.wrong),
            timeout=wanted.timeout,
            patience=patience,
            only=wanted.only,
        )

    found = await run.tried(KIT, stand, trial, wanted, url, tell=tell, ready=ready)
    return Report(provisioning_class=wanted.provisioning_class, **found._asdict())
