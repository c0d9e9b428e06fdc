"""``python -m tools.deploy_lists`` writes the lists of services in the files of deploy/: what the
target of systemd starts, and what Prometheus reads."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import yaml

from admittance.runtime.process.service import WithUp
from admittance.services import SERVICES

ROOT: Final = Path(__file__).parents[1]
TARGET: Final = ROOT / "deploy" / "systemd" / "admittance.target"
PROMETHEUS: Final = ROOT / "deploy" / "observability" / "prometheus.yml"
COMPOSE: Final = ("compose.yaml", "deploy/compose.ha.yaml")


def started() -> list[str]:
    """The services that need only a nats-server."""
    always = (WithUp.ALWAYS, WithUp.ON_DEMAND)
    return [name for name, service in SERVICES.items() if service.with_up in always]


def scraped() -> Iterator[str]:
    """The containers with an admin port, in the order of the files for compose."""
    for name in COMPOSE:
        for container, service in yaml.safe_load((ROOT / name).read_text())["services"].items():
            environment = service.get("environment") or {}
            if service.get("healthcheck") and environment.get("ADMIT_ADMIN"):
                yield container


def target() -> str:
    """The text of the target of systemd."""
    wanted = "".join(f"Wants=admittance@{name}.service\n" for name in started())
    return re.sub(r"(?:Wants=admittance@\S+\n)+", wanted, TARGET.read_text())


def prometheus() -> str:
    """The text of the configuration of Prometheus."""
    names = "".join(f"          - {name}\n" for name in dict.fromkeys(scraped()))
    return re.sub(
        r"(        names:\n)(?:          - \S+\n)+", rf"\g<1>{names}", PROMETHEUS.read_text()
    )


if __name__ == "__main__":
    TARGET.write_text(target())
    PROMETHEUS.write_text(prometheus())
