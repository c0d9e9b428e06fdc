"""compose.yaml as it stands, built and started for real, on a machine that may pull no image."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

import bases
import pytest
import yaml
from testcontainers.compose import DockerCompose

from support.servers import answer_with

ROOT = Path(__file__).parents[2]
ADMIT = Path(sys.executable).parent / "admit"
BASE = "admittance-test-base"
NOTHING = """
apiVersion: kueue.x-k8s.io/v1beta2
kind: ResourceFlavor
metadata: {name: nothing}
"""
HEALTHY_SECONDS = 180.0
COMPOSE_SECONDS = 600.0
SERVER_PORTS = ("ADMIT_PORT", "ADMIT_PORT_2", "ADMIT_PORT_3")


def engine() -> str:
    """Why no container engine can be used; "" when one answers."""
    if shutil.which("docker") is None:
        return "there is no docker command"
    version = subprocess.run(["docker", "version"], capture_output=True, text=True, check=False)
    if version.returncode:
        return f"no container engine answers: {version.stderr.strip().splitlines()[-1]}"
    if compose_command() is None:
        return "neither `docker compose` nor docker-compose is there"
    return ""


def compose_command() -> str | None:
    """The command of docker compose: the plugin, or Debian's program of its own."""
    if shutil.which("docker") is not None:
        plugin = subprocess.run(["docker", "compose", "version"], capture_output=True, check=False)
        if plugin.returncode == 0:
            return "docker compose"
    return shutil.which("docker-compose")


def no_prometheus() -> str:
    """Why the budget profile cannot run; "" when there is a Prometheus for it."""
    if os.environ.get("ADMIT_PROMETHEUS_IMAGE") or shutil.which("prometheus"):
        return ""
    return (
        "there is no Prometheus: install Debian's package, or name an image that is here "
        "with ADMIT_PROMETHEUS_IMAGE"
    )


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def base_image(folder: Path) -> str:
    """An image with Python, nats-server and the lock's packages, made from this machine in folder;
    one that was made before serves again."""
    given = os.environ.get("ADMIT_BASE_IMAGE")
    if given:
        return given
    base = f"{BASE}:{bases.fingerprint()}"
    if docker("image", "inspect", "--format", "{{.Id}}", base).startswith("sha256:"):
        return base
    (folder / "wheels").mkdir()
    archive = folder / "base.tar"
    bases.pack(archive, bases.wheels(folder / "wheels"))
    settings = "ENV PATH=/usr/local/bin:/usr/bin:/bin PIP_NO_INDEX=1 PIP_FIND_LINKS=/wheels"
    subprocess.run(
        ["docker", "import", "-c", settings, str(archive), base], check=True, capture_output=True
    )
    archive.unlink()
    return base


def images(base: str) -> dict[str, str]:
    """The variables of compose.yaml with the images that it stands on."""
    return {
        "ADMIT_BASE_IMAGE": base,
        "ADMIT_NATS_BASE_IMAGE": os.environ.get("ADMIT_NATS_BASE_IMAGE", base),
        "ADMIT_PROMETHEUS_IMAGE": os.environ.get("ADMIT_PROMETHEUS_IMAGE", base),
    }


def build(base: str) -> None:
    """The images of compose.yaml as the tree is now."""
    command = compose_command() or ""
    built = subprocess.run(
        [*command.split(), "build"],
        cwd=ROOT,
        env={**os.environ, **images(base)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert built.returncode == 0, built.stdout[-5000:] + built.stderr[-5000:]


class Compose(DockerCompose):
    """The commands of one compose project, with the plugin or with Debian's program."""

    @cached_property
    def compose_command_property(self) -> list[str]:
        plugin: list[str] = super().compose_command_property
        return [*(compose_command() or "").split(), *plugin[len(("docker", "compose")) :]]

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Runs a command of docker compose, whatever its exit status."""
        return subprocess.run(
            [*self.compose_command_property, *arguments],
            cwd=self.context,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=COMPOSE_SECONDS,
            check=False,
        )


class Deployment:
    """A running compose project. ``url``: of its nats-server. ``ports``: by the variable that
    compose.yaml takes them from. ``auth``: the folder of users and credentials. ``profiles``:
    those of compose.yaml that are started. ``files``: compose files, if not compose.yaml alone;
    they have three servers."""

    def __init__(
        self,
        project: str,
        ports: dict[str, int],
        auth: Path,
        settings: Path,
        profiles: Sequence[str],
        files: Sequence[str],
    ) -> None:
        self.project = project
        self.profiles = profiles
        self.ports = ports
        self.auth = auth
        servers = SERVER_PORTS if files else SERVER_PORTS[:1]
        self.url = ",".join(f"nats://127.0.0.1:{ports[name]}" for name in servers)
        self.stack = Compose(
            ROOT,
            compose_file_name=list(files) or None,
            env_file=str(settings),
            profiles=list(profiles),
            wait=False,
        )

    def compose(self, *arguments: str) -> str:
        """The output of docker compose for this project; fails with its error."""
        done = self.try_compose(*arguments)
        assert done.returncode == 0, f"{' '.join(arguments)}: {done.stderr}{done.stdout}"
        return done.stdout

    def try_compose(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Runs docker compose for this project, whatever its exit status."""
        return self.stack.run(*arguments)

    def containers(self, shown: str = "{{.Names}}") -> list[str]:
        """One line per container of the project."""
        mine = f"label=com.docker.compose.project={self.project}"
        return docker("ps", "--all", "--filter", mine, "--format", shown).splitlines()

    def container(self, service: str) -> str:
        """The name of the container of that service."""
        [name] = self.all_of(service)
        return name

    def all_of(self, service: str) -> list[str]:
        """The names of all containers of that service."""
        return docker(
            *("ps", "--all", "--format", "{{.Names}}"),
            *("--filter", f"label=com.docker.compose.project={self.project}"),
            *("--filter", f"label=com.docker.compose.service={service}"),
        ).split()

    def await_answer(self) -> None:
        """Waits until one of the services answers; messages for the others wait on the log."""
        deadline = time.monotonic() + HEALTHY_SECONDS
        while True:
            try:
                self.admit("apply", "-f", "-", text=NOTHING)
            except AssertionError:
                if time.monotonic() > deadline:
                    raise
                threading.Event().wait(1.0)
            else:
                return

    def await_health(self) -> None:
        """Waits until every container that can says that it is healthy, and the others run; fails
        with their last words."""
        least = len(services(*self.profiles))
        deadline = time.monotonic() + HEALTHY_SECONDS
        while True:
            states = self.containers("{{.Names}} {{.Status}}")
            up = all(" Up " in f" {line} " for line in states)
            ill = any("(unhealthy)" in line or "(health: " in line for line in states)
            if up and not ill and len(states) >= least:
                return
            if time.monotonic() > deadline:
                names = self.containers()
                words = [f"{name}: {docker('logs', '--tail', '5', name)}" for name in names]
                pytest.fail("\n".join([*states, *words]))
            threading.Event().wait(0.5)

    def creds(self, name: str = "admin") -> Path:
        """The credentials file of a person."""
        return self.auth / f"{name}.creds"

    def admit(self, *arguments: str, text: str | None = None) -> str:
        """The output of `admit`; fails with its error."""
        done = self.run(*arguments, text=text)
        assert done.returncode == 0, f"admit {' '.join(arguments)}: {done.stderr}{done.stdout}"
        return done.stdout

    def run(
        self, *arguments: str, user: str = "admin", text: str | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Runs a command of the user, whatever its exit status."""
        return subprocess.run(
            [str(ADMIT), "--nats", self.url, "--creds", str(self.creds(user)), *arguments],
            input=text,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )


def eventually(output_of: Callable[[], str], word: str) -> str:
    """Calls until the text has the word, and returns the text; fails with the last text."""
    return answer_with(output_of, lambda text: word in text, HEALTHY_SECONDS, 0.5)


@contextmanager
def deployed(
    base: str,
    folder: Path,
    profiles: Sequence[str] = (),
    more: Mapping[str, str] | None = None,
    before: Callable[[Deployment], None] | None = None,
    only: Sequence[str] = (),
    files: Sequence[str] = (),
) -> Iterator[Deployment]:
    """compose.yaml with these profiles, up and answering on free ports, under a name that keeps
    these containers and volumes apart from any others. ``more``: variables that it gets.
    ``before``: called when the users are there, before the containers start. ``only``: these
    services, and those that they need. ``files``: those of docker compose."""
    project = f"admittance-test-{uuid.uuid4().hex[:8]}"
    others = ("ADMIT_PROMETHEUS_PORT", "ADMIT_SPENDING_PORT", "ADMIT_WEB_PORT")
    names = (*SERVER_PORTS, *others)
    ports = {name: free_port() for name in names}
    auth = folder / f"{project}-auth"
    auth.mkdir()
    variables = {
        "ADMIT_AUTH_FOLDER": str(auth),
        **{name: str(port) for name, port in ports.items()},
        **images(base),
        **(more or {}),
        "COMPOSE_PROJECT_NAME": project,
    }
    settings = folder / f"{project}.env"
    settings.write_text("".join(f"{name}={value}\n" for name, value in variables.items()))
    deployment = Deployment(project, ports, auth, settings, profiles, files)
    try:
        deployment.compose("run", "--rm", "auth")
        if before is not None:
            before(deployment)
        deployment.compose("up", "--detach", *only)
        deployment.await_answer()
        yield deployment
    finally:
        deployment.compose("down", "--volumes", "--remove-orphans")


def services(*profiles: str) -> dict[str, dict[str, Any]]:
    """The services that compose.yaml starts with these profiles."""
    services = yaml.safe_load((ROOT / "compose.yaml").read_text())["services"]
    return {
        name: service
        for name, service in services.items()
        if "profiles" not in service or set(profiles) & set(service["profiles"])
    }


def docker(*arguments: str) -> str:
    """The output of the engine, with its standard error."""
    done = subprocess.run(
        ["docker", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    return done.stdout
