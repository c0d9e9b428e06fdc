"""`admit up` and `admit serve` with a configuration file that is wrong."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

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
    done = subprocess.run(
        [ADMIT, *call, "--config", file, "--data-dir", tmp_path / "data"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 2
    assert done.stdout == ""
    line = done.stderr.strip()
    assert "\n" not in line
    assert "config.yaml" in line
    assert said in line
