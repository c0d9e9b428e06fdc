"""What the providers that come with Admittance have in common: what they call what they make, and
how they are begun and end.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

from admittance.providers.answers import Status
from admittance.providers.provider import Provider
from admittance.providers.request import Cancellation, Request

INSTALLATION: Final = "admittance.dev/installation"
"""Label: which Admittance made it."""
REQUEST: Final = "admittance.dev/request"
"""Label, tag or annotation: for which request, by its id or a hash of it."""
CLASS: Final = "admittance.dev/provisioning-class"
GRACE_SECONDS: Final = 1.0
"""At the end: nothing is under way but waiting, and calls, which come to their end in any case."""


def provider_of(
    provisioning_class: str,
    obtain: Callable[[Request], Awaitable[Status]],
    free: Callable[[Cancellation], Awaitable[None]],
    *,
    parameters: type[Any] | None = None,
) -> Provider:
    """A provider of the class by these two functions."""
    provider = Provider(provisioning_class, parameters=parameters, grace_seconds=GRACE_SECONDS)
    provider.requested(obtain)
    provider.cancelled(free)
    return provider
