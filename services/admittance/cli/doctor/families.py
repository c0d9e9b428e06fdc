"""What ``admit doctor`` says of families: how many there are, and whether all is done for them."""

from __future__ import annotations

from typing import Final, NamedTuple

import msgspec

from admittance.events.requests import Families, FamiliesReply
from admittance.runtime.bus.bus import Bus
from admittance.runtime.errors import Unavailable

_families: Final = msgspec.json.Decoder(FamiliesReply)


class Found(NamedTuple):
    """A sentence, and whether all is well."""

    fine: bool
    sentence: str


async def families_found(bus: Bus) -> Found | None:
    """None: nobody answers, which is said where services are."""
    try:
        data = await bus.request("admit.api.families", msgspec.json.encode(Families()))
    except Unavailable:
        return None
    return found(_families.decode(data))


def found(reply: FamiliesReply) -> Found:
    """What the one that leads says, as a sentence."""
    gates = sum(reply.gates_open.values())
    sentence = (
        f"{reply.families:,} families, {reply.pending:,} things of them not yet as they should be, "
        f"{gates:,} may preempt"
    )
    if reply.stuck:
        sentence += (
            f"; {reply.stuck:,} were asked for again and again without an effect: see its log"
        )
    return Found(not reply.stuck, sentence)
