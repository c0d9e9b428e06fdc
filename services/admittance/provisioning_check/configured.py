"""What checks, configurations and providers say together: what is asked of whom, or why nobody can
tell. Pure.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from admittance.api.checks import (
    AdmissionCheck,
    ProvisioningRequestConfig,
    ProvisioningRequestConfigSpec,
)
from admittance.api.queues import ResourceFlavor

CONTROLLER: Final = "kueue.x-k8s.io/provisioning-request"
GROUP: Final = "kueue.x-k8s.io"
KIND: Final = "ProvisioningRequestConfig"


class Trouble(NamedTuple):
    """Why a check cannot be evaluated: a reason of its Active condition, and a sentence."""

    reason: str
    message: str


class Configured:
    """``checks``: those of our controller. ``down``: why the providers of classes are away."""

    def __init__(self) -> None:
        self.checks: dict[str, AdmissionCheck] = {}
        self.configs: dict[str, ProvisioningRequestConfig] = {}
        self.flavors: dict[str, ResourceFlavor] = {}
        self.down: dict[str, str] = {}

    def config_of(self, check: str) -> ProvisioningRequestConfigSpec | None:
        """What the check asks for; None: nobody can tell, see `trouble`."""
        found = self.checks.get(check)
        reference = found.spec.parameters if found is not None else None
        if reference is None or (reference.api_group, reference.kind) != (GROUP, KIND):
            return None
        config = self.configs.get(reference.name)
        return config.spec if config is not None else None

    def trouble(self, check: str) -> Trouble | None:
        """Why the check cannot be evaluated; None: it can."""
        found = self.checks.get(check)
        if found is None:
            return Trouble("NotFound", f"AdmissionCheck {check} doesn't exist")
        reference = found.spec.parameters
        if reference is None:
            return Trouble("BadParametersRef", f"{check} names no parameters: a {KIND} is wanted")
        if (reference.api_group, reference.kind) != (GROUP, KIND):
            told = f"{reference.kind}.{reference.api_group}"
            return Trouble("BadParametersRef", f"parameters are a {told}: a {KIND} is wanted")
        config = self.configs.get(reference.name)
        if config is None:
            return Trouble("BadParametersRef", f"{KIND} {reference.name} doesn't exist")
        why = self.down.get(config.spec.provisioning_class_name)
        return Trouble("ProviderDown", why) if why is not None else None
