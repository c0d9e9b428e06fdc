"""Where the manifests of pools are kept, and bookings in the bucket of providers. Pure.

``_pool.<pool>.<hash of the id>``: no class of capacity has a key that begins so.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Final

from admittance.events.names import BadToken, plain, token
from admittance.provider_pool.manifests import GROUP, KIND

POOL: Final = token(f"{KIND.lower()}.{GROUP}")
POOLS: Final = f"{POOL}.>"
"""The keys of all manifests."""
BOOKED: Final = "_pool"
LED: Final = "_pool_led"
"""Written by whoever begins to keep the pools: what one before him still has in hand is refused."""


def pool_of_manifest(key: str) -> str | None:
    """The pool whose manifest is under that key of the bucket; None: none that there can be. One
    in a namespace would share its bookings with the one without."""
    kind, *rest = key.split(".")
    return _plain(rest[0]) if kind == POOL and len(rest) == 1 else None


def _plain(escaped: str) -> str | None:
    try:
        return plain(escaped)
    except BadToken:
        return None


def key_of(pool: str, request_id: str) -> str:
    """The key of one booking."""
    digest = blake2b(request_id.encode(), digest_size=16).hexdigest()
    return f"{BOOKED}.{token(pool)}.{digest}"


def pattern_of(pool: str | None = None) -> str:
    """The keys of all bookings of a pool; None: of all pools."""
    return f"{BOOKED}.{token(pool)}.*" if pool is not None else f"{BOOKED}.>"


def pool_of_key(key: str) -> str | None:
    """The pool that the booking under that key is in; None: no booking has such a key."""
    kind, *rest = key.split(".")
    return _plain(rest[0]) if kind == BOOKED and len(rest) == 2 else None
