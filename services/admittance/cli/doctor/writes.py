"""What `admit doctor` says of streams that do not take writes."""

from __future__ import annotations

from typing import Final, NamedTuple

from admittance.runtime.bus.bus import Bus
from admittance.runtime.errors import Unavailable
from admittance.runtime.nats_server.probing import PROBES, SECONDS, refusals

UNACKNOWLEDGED: Final = (
    "the server answers, but it does not acknowledge writes. Look at its log for `no space left on "
    "device`, make space, then restart nats-server: it takes nothing more by itself "
    "(docs/operations.md, A full disk)"
)


class Found(NamedTuple):
    """One line: of a stream, or of all."""

    fine: bool
    what: str
    sentence: str


async def writes_found(bus: Bus, *, seconds: float = SECONDS) -> list[Found]:
    """A line for each stream that does not take a probe; one line when all do."""
    refused = await refusals(bus, seconds=seconds)
    if not refused:
        return [Found(True, "writes", f"all {len(PROBES)} streams take them")]
    return [
        Found(
            False,
            f"stream {name}",
            f"takes no writes: a probe was not acknowledged in {seconds:g} s; {UNACKNOWLEDGED}"
            if isinstance(error, Unavailable)
            else f"takes no writes: {error}",
        )
        for name, error in refused.items()
    ]
