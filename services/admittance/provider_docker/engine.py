"""The container engine, called through the docker SDK, and the settings of the provider. Calls of
the SDK block, so each runs in a thread."""

from __future__ import annotations

import asyncio
import os
import shlex
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

import msgspec

from admittance.provider_docker.workers import (
    MANAGED,
    EngineCapacity,
    ListedWorker,
    WorkerSpec,
    worker_of,
)
from admittance.providers.builtin import INSTALLATION, REQUEST, ObjectSteps
from admittance.runtime.errors import SetupError
from admittance.runtime.process.settings import number, object_names, whole_number
from admittance.sdk.threads import run_to_completion

CALL_SECONDS: Final = 60
NEEDED: Final = "provider-docker needs the package docker: pip install 'admittance[docker]'"
LOG_LINES: Final = 3

T = TypeVar("T")


class EngineUnavailable(Exception):
    """The container engine does not answer, or its answer is not valid."""


class EngineDenied(Exception):
    """The container engine refused a call; the text is the engine's message. ``code``: the HTTP
    status of the engine's answer."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


STEPS: Final = ObjectSteps("provider-docker", (EngineUnavailable, EngineDenied))


class Engine:
    """The container engine that the environment names. All calls to the engine raise
    EngineUnavailable if it does not answer, and EngineDenied if it refuses the call.
    """

    def __init__(self, settings: DockerSettings) -> None:
        self._settings = settings
        self._client: Any = None
        self._slots = asyncio.Semaphore(8)

    @staticmethod
    def check() -> None:
        """Raises SetupError if the docker SDK is not installed."""
        try:
            import docker  # noqa: F401
        except ImportError:
            raise SetupError(NEEDED) from None

    async def room(self) -> EngineCapacity:
        """The cpu and memory of the machine on which the engine runs."""
        info = await self._call(lambda api: api.info())
        return EngineCapacity(str(info["Name"]), int(info["NCPU"]) * 1000, int(info["MemTotal"]))

    async def workers(self, request_id: str | None = None) -> list[ListedWorker]:
        """The worker containers of all installations, or those of one request; also stopped
        workers.
        """
        labels = [f"{MANAGED}=true"]
        if request_id is not None:
            labels.append(f"{REQUEST}={request_id}")
        listed = await self._call(lambda api: api.containers(all=True, filters={"label": labels}))
        return [worker for container in listed if (worker := worker_of(container)) is not None]

    async def start(self, worker: WorkerSpec, labels: dict[str, str], env: dict[str, str]) -> None:
        """Creates and starts the worker's container; pulls the image if the engine lacks it."""
        settings = self._settings

        def work(api: Any) -> None:
            import docker

            limits: dict[str, Any] = {"restart_policy": {"Name": "no"}, "init": True}
            if worker.cpu_milli:
                limits["nano_cpus"] = worker.cpu_milli * 1_000_000
            if worker.memory:
                limits["mem_limit"] = limits["memswap_limit"] = worker.memory
            if settings.network is not None:
                limits["network_mode"] = settings.network

            def create() -> Any:
                return api.create_container(
                    settings.image,
                    command=list(settings.command) or None,
                    name=worker.name,
                    labels=labels,
                    environment=env,
                    host_config=api.create_host_config(**limits),
                )

            try:
                made = create()
            except docker.errors.ImageNotFound:
                # The tag is named, because without a tag the SDK would pull all tags of the image.
                api.pull(settings.image, tag=None if _is_tagged(settings.image) else "latest")
                made = create()
            api.start(made["Id"])

        await self._call(work)

    async def remove(self, container: str) -> None:
        """Kills and removes the container. A container that does not exist any more is not an
        error.
        """
        try:
            await self._call(lambda api: api.remove_container(container, v=True, force=True))
        except EngineDenied as error:
            # 404 and 409: the container does not exist any more, or is being removed.
            if error.code not in (404, 409):
                raise

    async def last_lines(self, container: str) -> str:
        """The last lines of the container's log; "" if the log cannot be read."""
        try:
            lines = await self._call(lambda api: api.logs(container, tail=LOG_LINES))
        except (EngineUnavailable, EngineDenied):
            return ""
        return str(lines.decode(errors="replace")).strip() if isinstance(lines, bytes) else ""

    def listen(self, installation: str, on_event: Callable[[], None]) -> None:
        """Calls ``on_event`` in this thread for each worker that ends; blocks until the engine ends
        the stream of events.
        """
        api = self._new_client(timeout=None)
        wanted = {
            "type": "container",
            "event": ["die", "destroy", "oom"],
            "label": [f"{MANAGED}=true", f"{INSTALLATION}={installation}"],
        }
        try:
            for _ in api.events(decode=True, filters=wanted):
                on_event()
        finally:
            api.close()

    def _new_client(self, timeout: int | None = CALL_SECONDS) -> Any:
        import docker

        options = docker.utils.kwargs_from_env()
        return docker.APIClient(version="auto", timeout=timeout, **options)

    async def _call(self, work: Callable[[Any], T]) -> T:
        async with self._slots:
            return await run_to_completion(asyncio.to_thread(self._work, work))

    def _work(self, work: Callable[[Any], T]) -> T:
        import docker
        import requests

        try:
            if self._client is None:
                self._client = self._new_client()
            return work(self._client)
        except docker.errors.APIError as error:
            code = error.response.status_code if error.response is not None else 500
            message = str(error.explanation or error)
            if code >= 500 and not _is_permanent(message):
                raise EngineUnavailable(message) from error
            raise EngineDenied(code, message) from error
        except (docker.errors.DockerException, requests.RequestException, OSError) as error:
            self._client = None
            raise EngineUnavailable(error_sentence(error)) from error


def error_sentence(error: Exception) -> str:
    """An error of the docker SDK as one sentence, with a remedy if one is known."""
    message = str(error) or type(error).__name__
    where = os.environ.get("DOCKER_HOST") or "/var/run/docker.sock"
    if "Permission denied" in message:
        return (
            f"{where} may not be used by user {os.getuid()}: give the service the socket's group "
            "(compose.yaml: ADMIT_DOCKER_GROUP)"
        )
    if "No such file" in message or "Connection refused" in message:
        return f"no engine listens at {where}: start it, or name another one, DOCKER_HOST"
    return message


def _is_tagged(image: str) -> bool:
    return ":" in image.rpartition("/")[2] or "@" in image


def _is_permanent(message: str) -> bool:
    """Whether an error 500 of the engine with this message is permanent, so that a repeated call
    fails again."""
    return "executable file not found" in message or "no such file or directory" in message


CLASS: Final = "docker.admittance.dev"


class DockerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings from ``ADMIT_DOCKER_*``. ``command``: the command of the workers; empty: the command
    of the image. ``network``: the network of the workers; None: the engine's default network.
    ``settle_seconds``: a worker that runs for this long counts as started. ``sweep_seconds``: time
    between two periodic comparisons of workers with requests; each event of the engine causes a
    further comparison.
    """

    image: str
    classes: tuple[str, ...] = (CLASS,)
    command: tuple[str, ...] = ()
    network: str | None = None
    workers_max: int = 100
    settle_seconds: float = 1.0
    sweep_seconds: float = 5.0

    @classmethod
    def from_env(cls, env: Mapping[str, str]) -> DockerSettings:
        """Reads the settings from environment variables. Raises a SetupError that names a wrong
        variable."""
        image = env.get("ADMIT_DOCKER_IMAGE", "")
        if not image:
            raise SetupError("ADMIT_DOCKER_IMAGE is not set: it names the image of the workers")
        try:
            command = tuple(shlex.split(env.get("ADMIT_DOCKER_COMMAND", "")))
        except ValueError as error:
            raise SetupError(f"ADMIT_DOCKER_COMMAND is not a valid command: {error}") from None
        return cls(
            image=image,
            classes=object_names(env, "ADMIT_DOCKER_CLASSES") or (CLASS,),
            command=command,
            network=env.get("ADMIT_DOCKER_NETWORK") or None,
            workers_max=whole_number(env, "ADMIT_DOCKER_WORKERS_MAX", 100, least=1),
            settle_seconds=number(env, "ADMIT_DOCKER_SETTLE_SECONDS", 1.0, least=0.0),
            sweep_seconds=number(env, "ADMIT_DOCKER_SWEEP_SECONDS", 5.0, least=0.1),
        )
