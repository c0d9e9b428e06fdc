"""Settings from ``ADMIT_AWS_*`` variables, in addition to those of every service and of boto3."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Final

import msgspec

from admittance.api.names import name_error
from admittance.runtime.errors import SetupError
from admittance.runtime.process.settings import number

DEFAULT_CLASS: Final = "ec2-capacity-reservation.admittance.dev"
SECONDS_MIN: Final = 0.05


class AwsSettings(msgspec.Struct, frozen=True, kw_only=True):
    """``poll_seconds``: interval of listings while there are reservations; ``sweep_seconds``: while
    there are none. ``unseen_seconds``: a reservation missing in listings for this long counts as
    gone; EC2 documents delays of up to five minutes."""

    provisioning_class: str = DEFAULT_CLASS
    poll_seconds: float = 5.0
    sweep_seconds: float = 60.0
    unseen_seconds: float = 300.0

    @classmethod
    def from_env(
        cls, env: Mapping[str, str] | None = None, *, provisioning_class: str | None = None
    ) -> AwsSettings:
        """Raises SetupError that names the wrong variable."""
        env = os.environ if env is None else env
        name = provisioning_class or env.get("ADMIT_AWS_CLASS") or DEFAULT_CLASS
        # A ProvisioningRequestConfig takes only such names, and EC2's filters have wildcards.
        if complaint := name_error(name):
            raise SetupError(f"ADMIT_AWS_CLASS: {complaint}")
        return cls(
            provisioning_class=name,
            poll_seconds=number(env, "ADMIT_AWS_POLL_SECONDS", 5.0, least=SECONDS_MIN),
            sweep_seconds=number(env, "ADMIT_AWS_SWEEP_SECONDS", 60.0, least=SECONDS_MIN),
            unseen_seconds=number(env, "ADMIT_AWS_UNSEEN_SECONDS", 300.0, least=SECONDS_MIN),
        )
