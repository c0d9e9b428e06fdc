"""What tells one Admittance from another, where both keep things in the same place of somebody
else's: a cluster, an engine."""

from __future__ import annotations

import secrets

from admittance.events.subjects import PROVIDERS
from admittance.runtime import bucket
from admittance.runtime.bus import Bus
from admittance.runtime.errors import StaleRevision


async def installation(bus: Bus, provider: str) -> str:
    """Drawn once for each provider, and kept on the bus. ``provider``: a token."""
    # No class of capacity has a key that begins so.
    key = f"_{provider}.installation"
    while True:
        entry = await bucket.get(bus, key, bucket=PROVIDERS)
        if entry is not None and entry.value is not None:
            return entry.value.decode()
        drawn = secrets.token_hex(6).encode()
        expected = entry.revision if entry is not None else 0
        try:
            await bus.publish(bucket.put_message(key, drawn, expected=expected, bucket=PROVIDERS))
        except StaleRevision:
            continue
        return drawn.decode()
