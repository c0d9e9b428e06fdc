"""Settings from ``ADMIT_DOCKER_*`` variables. The engine is found as by the docker client:
DOCKER_HOST, DOCKER_CERT_PATH, DOCKER_TLS_VERIFY."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Final

import msgspec

from admittance.runtime.errors import SetupError
from admittance.runtime.process.settings import named, number, whole

CLASS: Final = "docker.admittance.dev"


class DockerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """``image``: of the workers. ``command``: of the workers; empty: the image's. ``network``:
    None: the engine's default. ``workers_max``: most containers at once. ``settle_seconds``: a
    worker that runs this long counts as started. ``sweep_seconds``: interval of comparisons, in
    addition to those after events."""

    image: str
    classes: tuple[str, ...] = (CLASS,)
    command: tuple[str, ...] = ()
    network: str | None = None
    workers_max: int = 100
    settle_seconds: float = 1.0
    sweep_seconds: float = 5.0

    @classmethod
    def from_env(cls, env: Mapping[str, str]) -> DockerSettings:
        """Raises SetupError that names the variable."""
        image = env.get("ADMIT_DOCKER_IMAGE", "")
        if not image:
            raise SetupError("ADMIT_DOCKER_IMAGE is not set: the image that workers are made of")
        try:
            command = tuple(shlex.split(env.get("ADMIT_DOCKER_COMMAND", "")))
        except ValueError as error:
            raise SetupError(f"ADMIT_DOCKER_COMMAND: {error}") from None
        return cls(
            image=image,
            classes=named(env, "ADMIT_DOCKER_CLASSES") or (CLASS,),
            command=command,
            network=env.get("ADMIT_DOCKER_NETWORK") or None,
            workers_max=whole(env, "ADMIT_DOCKER_WORKERS_MAX", 100, least=1),
            settle_seconds=number(env, "ADMIT_DOCKER_SETTLE_SECONDS", 1.0, least=0.0),
            sweep_seconds=number(env, "ADMIT_DOCKER_SWEEP_SECONDS", 5.0, least=0.1),
        )
