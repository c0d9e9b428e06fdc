"""Standard streams that are closed, full, or of a locale without the characters of an answer."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from admittance.cli.commands import program
from admittance.cli.commands.program import invoke

ADMIT = Path(sys.executable).with_name("admit")


@pytest.mark.parametrize(
    ("line", "status", "said"),
    [
        pytest.param("apply -f - <&-", 2, "error: -: no objects found", id="input"),
        pytest.param("get pods >&-", 2, 'error: no kind "pods"', id="output"),
        pytest.param("token a >&-", 0, "", id="output, with an answer"),
        pytest.param("get pods 2>&-", 2, "", id="errors"),
    ],
)
def test_a_closed_stream_is_not_reported_as_a_bug(
    tmp_path: Path, line: str, status: int, said: str
) -> None:
    env = {**os.environ, "XDG_CONFIG_HOME": str(tmp_path), "ADMIT_NATS_URL": "nats://127.0.0.1:1"}
    done = subprocess.run(
        ["sh", "-c", f"{ADMIT} {line}"], env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == status
    assert done.stderr.startswith(said)
    assert done.stderr.count("\n") == bool(said), done.stderr


def test_output_is_utf8_whatever_the_locale_is() -> None:
    code = (
        "from admittance.cli.support.streams import settle_streams; settle_streams(); "
        "print('└─ ä \\udcff')"
    )
    env = {**os.environ, "PYTHONIOENCODING": "latin-1"}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, check=True)
    assert done.stdout.decode() == "└─ ä \\udcff\n"


@pytest.mark.parametrize("path", [None, "backup.admit"])
def test_a_full_disk_is_not_reported_as_a_bug(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], path: str | None
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)

    monkeypatch.setattr(program, "outer_call", full)
    assert invoke(["get", "wl"]) == 1
    what = path or "the output"
    assert capsys.readouterr().err == f"error: cannot write {what}: No space left on device\n"
