"""`admit up` and `admit serve` with a wrong configuration file, and in a terminal that closes."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from support.processes.fork_server import run_admit

ADMIT = Path(sys.executable).parent / "admit"


@pytest.mark.parametrize("call", [["up", "--port", "0"], ["serve", "scheduler"]])
@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\nfairshare: {}\n",
            "fairshare",
        ),
        (None, "No such file"),
    ],
    ids=["an unknown field", "no file"],
)
def test_a_wrong_configuration_ends_the_start_with_one_line_that_names_it(
    tmp_path: Path, call: list[str], text: str | None, said: str
) -> None:
    file = tmp_path / "config.yaml"
    if text is not None:
        file.write_text(text)
    done = run_admit(*call, "--config", str(file), "--data-dir", str(tmp_path / "data"))
    assert done.status == 2
    assert done.out == ""
    line = done.err.strip()
    assert "\n" not in line
    assert "config.yaml" in line
    assert said in line


def test_a_port_in_use_ends_the_start_and_leaves_no_folder(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = run_admit("up", "--port", str(port), "--data-dir", str(tmp_path / "data"))
    assert (done.status, done.out) == (1, "")
    [line] = done.err.splitlines()
    assert line.startswith(f"error: port {port} is in use")
    assert not (tmp_path / "data").exists()


@pytest.mark.bus
def test_a_closed_terminal_ends_admit_up_and_its_server_in_order(tmp_path: Path) -> None:
    terminal, side = os.openpty()
    try:
        with subprocess.Popen(
            [ADMIT, "up", "--insecure", "--no-runner", "--port", "0", "--data-dir", tmp_path],
            stdin=side, stdout=subprocess.PIPE, stderr=side, start_new_session=True,
        ) as up:  # fmt: skip
            os.close(side)
            assert up.stdout is not None
            assert up.stdout.readline().startswith(b"ready ")
            server = json.loads((tmp_path / "nats.json").read_text())["pid"]
            # The shell sends SIGHUP, and the kernel sends it again when the shell ends.
            up.send_signal(signal.SIGHUP)
            os.close(terminal)
            terminal = -1
            up.send_signal(signal.SIGHUP)
            assert up.wait(60) == 0
    finally:
        if terminal >= 0:
            os.close(terminal)
    with pytest.raises(ProcessLookupError):
        os.kill(server, 0)
