"""What this provider is told from outside, in ``ADMIT_KUBE_*`` variables."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

import msgspec

from admittance.runtime.errors import SetupError
from admittance.runtime.process.settings import named, number

CLASSES: Final = (
    "check-capacity.autoscaling.x-k8s.io",
    "best-effort-atomic-scale-up.autoscaling.x-k8s.io",
)
ANY: Final = "*"
SECONDS_MIN: Final = 0.05
_LABEL = re.compile(r"\A[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?\Z")
_NAMESPACE = re.compile(r"\A[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\Z")


class KubeSettings(msgspec.Struct, frozen=True, kw_only=True):
    """``classes``: that are provided. ``namespaces``: ours to the cluster's; ``*``: all others;
    what is not named is the same there. ``kubeconfig``: None: the service account of the pod, else
    KUBECONFIG, else ``~/.kube/config``. ``installation``: tells our objects from those of another
    Admittance in the same cluster; None: as the bucket of providers says. ``away_seconds``: how
    long the API server may be silent before nothing counts as available. ``sweep_seconds``: how
    often what nobody asks for any more is looked for."""

    classes: tuple[str, ...] = CLASSES
    namespaces: Mapping[str, str] = {}
    kubeconfig: str | None = None
    context: str | None = None
    installation: str | None = None
    away_seconds: float = 10.0
    sweep_seconds: float = 60.0

    @classmethod
    def from_env(cls, env: Mapping[str, str]) -> KubeSettings:
        """Raises SetupError that names the variable."""
        installation = env.get("ADMIT_KUBE_INSTALLATION") or None
        if installation is not None and not _LABEL.match(installation):
            raise SetupError(f"ADMIT_KUBE_INSTALLATION={installation!r} is no value of a label")
        return cls(
            classes=named(env, "ADMIT_KUBE_CLASSES") or CLASSES,
            namespaces=_namespaces(env.get("ADMIT_KUBE_NAMESPACES", "")),
            kubeconfig=env.get("ADMIT_KUBE_CONFIG") or None,
            context=env.get("ADMIT_KUBE_CONTEXT") or None,
            installation=installation,
            away_seconds=number(env, "ADMIT_KUBE_AWAY_SECONDS", 10.0, least=SECONDS_MIN),
            sweep_seconds=number(env, "ADMIT_KUBE_SWEEP_SECONDS", 60.0, least=SECONDS_MIN),
        )

    def namespace(self, ours: str) -> str:
        """The cluster's namespace for ours."""
        return self.namespaces.get(ours) or self.namespaces.get(ANY) or ours

    @property
    def only_namespace(self) -> str | None:
        """The one that everything is in, so that a Role for it is enough; None: there are more."""
        return self.namespaces[ANY] if set(self.namespaces) == {ANY} else None


def _namespaces(written: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for pair in filter(None, map(str.strip, written.split(","))):
        ours, equals, theirs = map(str.strip, pair.partition("="))
        if not (equals and ours and _NAMESPACE.match(theirs)):
            raise SetupError(f"ADMIT_KUBE_NAMESPACES: {pair!r} is not OURS=THEIRS or *=THEIRS")
        if ours in found:
            raise SetupError(f"ADMIT_KUBE_NAMESPACES: {ours!r} is there twice")
        found[ours] = theirs
    return found
