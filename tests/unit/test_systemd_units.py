"""The units of deploy/systemd are valid, closed, and start every service."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tools import deploy_lists

ROOT = Path(__file__).resolve().parents[2]
UNITS = ROOT / "deploy" / "systemd"
EXPOSURE_MAX = 20
"""Tenths of systemd's figure for what a service could do: 100 is a service without limits."""

needs_systemd = pytest.mark.skipif(
    shutil.which("systemd-analyze") is None, reason="needs systemd-analyze of the package systemd"
)


@pytest.fixture
def units(tmp_path: Path) -> Path:
    """The units, with the programs of this environment."""
    for path in UNITS.iterdir():
        text = path.read_text().replace("/opt/admittance/bin", str(Path(sys.executable).parent))
        (tmp_path / path.name).write_text(text)
    return tmp_path


def analyze(units: Path, *arguments: str) -> tuple[int, str]:
    done = subprocess.run(
        ["systemd-analyze", "--no-pager", *arguments],
        env={**os.environ, "SYSTEMD_UNIT_PATH": f"{units}:"},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


def started() -> list[str]:
    """The services that the target starts."""
    text = (UNITS / "admittance.target").read_text()
    return re.findall(r"^Wants=admittance@(.+)\.service$", text, re.M)


def test_the_target_starts_the_services_that_need_only_a_server() -> None:
    assert started() == deploy_lists.started()
    assert deploy_lists.TARGET.read_text() == deploy_lists.target(), "run make schema"


@needs_systemd
def test_systemd_finds_no_fault_in_the_units(units: Path) -> None:
    names = ["admittance.target", "admittance-nats.service"]
    names += [f"admittance@{service}.service" for service in (*started(), "provider-aws")]
    status, text = analyze(units, "verify", *names)
    # systemd before 254 says that it ignores this option.
    faults = [line for line in text.splitlines() if "'DelegateSubgroup'" not in line]
    assert (status, faults) == (0, [])


@needs_systemd
def test_systemd_finds_a_planted_fault(units: Path) -> None:
    path = units / "admittance@.service"
    path.write_text(path.read_text().replace("admit serve", "no-such-program serve"))
    status, text = analyze(units, "verify", "admittance@scheduler.service")
    assert status != 0
    assert "no-such-program" in text


@needs_systemd
@pytest.mark.parametrize("name", ["admittance@scheduler.service", "admittance-nats.service"])
def test_a_service_may_do_little(units: Path, name: str) -> None:
    limit = f"--threshold={EXPOSURE_MAX}"
    status, text = analyze(units, "security", "--offline=yes", limit, name)
    assert status == 0, text
