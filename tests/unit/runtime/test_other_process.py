"""The metrics of a child process beside those of its parent."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

import pytest

from admittance.runtime.errors import SetupError
from admittance.runtime.process.admin import admin_port
from admittance.runtime.process.settings import Settings
from admittance.runtime.telemetry.metrics import Counter, Gauges, Histogram, gauge, text_of
from admittance.runtime.telemetry.other_process import merged, text_of_process


def text(pieces: list[bytes]) -> str:
    return b"".join(pieces).decode()


def counter(**values: float) -> Counter:
    made = Counter("faults", "Faults", ("step",))
    made.values = {(step,): value for step, value in values.items()}
    return made


def build(version: str) -> Gauges:
    return Gauges((gauge("build", "Build"),), lambda: {"build": {(): float(version)}})


@pytest.mark.parametrize(
    ("own", "other", "together"),
    [
        pytest.param([counter(a=1)], [], [counter(a=1)], id="no other"),
        pytest.param([], [counter(a=1)], [counter(a=1)], id="only the other"),
        pytest.param([counter(a=1, b=2)], [counter(b=3, c=4)], [counter(a=1, b=5, c=4)], id="sum"),
        pytest.param(
            [build("1")], [build("2"), counter(a=1)], [build("1"), counter(a=1)], id="own"
        ),
        pytest.param([counter(a=0.5)], [counter(a=0.25)], [counter(a=0.75)], id="fraction"),
        pytest.param([counter(a=1)], [Histogram("h", "H", ())], None, id="histogram"),
    ],
)
def test_series_of_both_processes_stand_together(
    own: list[Counter], other: list[Counter], together: list[Counter] | None
) -> None:
    found = text(merged(text_of(own), text(text_of(other))))
    assert found == text(text_of(together if together is not None else [*own, *other]))


def settings(where: str) -> Settings:
    return Settings(service="one", instance="i", admin=where)


async def test_a_process_shows_the_metrics_of_its_child(tmp_path: Path) -> None:
    file = tmp_path / "admin"
    assert text_of_process(file) == ""
    async with (
        admin_port(settings(f"unix:{file}")) as child,
        admin_port(settings("127.0.0.1:0")) as port,
    ):
        assert child is not None
        assert port is not None
        with child.show([counter(a=1)]), port.show_process(file):
            _, pieces = await asyncio.to_thread(port.answer, "/metrics")
        lines = text(pieces).splitlines()
        assert 'admittance_faults_total{step="a"} 1' in lines
        assert len(lines) == len(set(lines))
    assert not file.exists()


async def test_a_socket_that_a_killed_process_left_is_served_again(tmp_path: Path) -> None:
    file = tmp_path / "admin"
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(file))
    async with admin_port(settings(f"unix:{file}")):
        assert "build_info" in await asyncio.to_thread(text_of_process, file)


async def test_a_file_at_the_address_is_left_alone(tmp_path: Path) -> None:
    file = tmp_path / "admin"
    file.write_text("mine")
    with pytest.raises(SetupError, match="cannot serve the admin port at unix:"):
        async with admin_port(settings(f"unix:{file}")):
            pass
    assert file.read_text() == "mine"
