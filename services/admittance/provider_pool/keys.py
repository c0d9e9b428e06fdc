"""Where bookings are kept in the bucket of providers. Pure.

``_pool.<pool>.<hash of the id>``: no class of capacity has a key that begins so.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Final

from admittance.events.names import plain, token

BOOKED: Final = "_pool"
LED: Final = "_pool_led"
"""Written by whoever begins to keep the pools: what one before him still has in hand is refused."""


def key_of(pool: str, request_id: str) -> str:
    """The key of one booking."""
    digest = blake2b(request_id.encode(), digest_size=16).hexdigest()
    return f"{BOOKED}.{token(pool)}.{digest}"


def pattern_of(pool: str | None = None) -> str:
    """The keys of all bookings of a pool; None: of all pools."""
    return f"{BOOKED}.{token(pool)}.*" if pool is not None else f"{BOOKED}.>"


def pool_of_key(key: str) -> str:
    """The pool that the booking under that key is in."""
    return plain(key.split(".")[1])
