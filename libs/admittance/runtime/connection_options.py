"""The public address of `ConnectionOptions`: programs outside of this repository import it here."""

from __future__ import annotations

from admittance.runtime.nats.connection_options import ConnectionOptions

__all__ = ["ConnectionOptions"]
