"""The common parts of the shell samples are equal: each sample is one file that can be copied
alone, and only this test keeps them alike."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

SAMPLES = Path(__file__).parents[3] / "deploy" / "samples"
CHECK = (SAMPLES / "checks" / "shell" / "freeze.sh").read_text()
PROVIDER = (SAMPLES / "providers" / "shell" / "rack.sh").read_text()


@pytest.mark.parametrize(
    "pattern",
    [
        pytest.param(r"^token\(\) \{.*?^\}$", id="how a name becomes a token"),
        pytest.param(r"^address=\$\{url.*?^address=\$\{address%%/\*\}$", id="how a URL is read"),
        pytest.param(r"^while :; do$.*\Z", id="how a connection is made, and made again"),
    ],
)
def test_the_samples_in_shell_agree_about(pattern: str) -> None:
    [ours] = re.findall(pattern, CHECK, re.M | re.S)
    [theirs] = re.findall(pattern, PROVIDER, re.M | re.S)
    assert ours == theirs
