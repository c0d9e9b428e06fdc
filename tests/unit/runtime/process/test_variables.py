"""A process with a misspelled or unknown variable does not start."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from admittance.cli.commands.program import invoke
from admittance.runtime.errors import SetupError
from admittance.runtime.process.settings import Settings
from admittance.runtime.process.variables import DEPLOYMENT, KNOWN, RENAMED, unknown_variable

ROOT = Path(__file__).parents[4]
WORD = re.compile(r"(?<![A-Za-z0-9_])ADMIT_[A-Z0-9_]*[A-Z0-9](?![A-Za-z0-9_*])")
PARTS = {"ADMIT_INSTA", "ADMIT_NATS", "ADMIT_DOCKER", "ADMIT_KUBE", "ADMIT_AWS", "ADMIT_PORT"}
"""Beginnings of names, in tests and documents."""


def texts() -> Iterator[Path]:
    folders = ("libs", "services", "deploy", "docs", "tests", "benchmarks", "tools")
    for folder in folders:
        for path in (ROOT / folder).rglob("*"):
            if path.is_file() and "__pycache__" not in path.parts and path != Path(__file__):
                yield path
    yield from (ROOT / name for name in ("compose.yaml", "Makefile", "README.md"))


def test_every_variable_that_is_named_anywhere_is_known() -> None:
    named: set[str] = set()
    for path in texts():
        if path.suffix not in (".png", ".gz", ".jsonl", ".json"):
            named |= set(WORD.findall(path.read_text(encoding="utf-8", errors="ignore")))
    assert named - PARTS - RENAMED.keys() <= KNOWN
    assert named >= KNOWN - PARTS


def test_variables_of_compose_are_those_of_its_example() -> None:
    example = set(WORD.findall((ROOT / "deploy/.env.example").read_text()))
    assert example <= KNOWN
    assert example >= DEPLOYMENT


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("ADMIT_LEASE_SECOND", "did you mean ADMIT_LEASE_SECONDS?"),
        ("ADMIT_NATS_URI", "did you mean ADMIT_NATS_URL?"),
        ("ADMIT_LOGLEVEL", "did you mean ADMIT_LOG_LEVEL?"),
        ("ADMIT_METRICS", "did you mean ADMIT_ADMIN?"),
        ("ADMIT_XYZZY_QUUX", "unset it"),
    ],
)
def test_an_unknown_variable_is_refused_with_the_near_name(name: str, said: str) -> None:
    with pytest.raises(SetupError, match=f"^{name} is not known.*{re.escape(said)}"):
        Settings.from_env("scheduler", env={name: "5"})


def test_a_program_with_own_variables_refuses_misspelled_ones_only() -> None:
    assert unknown_variable({"ADMIT_BUDGET_EUR": "5", "ADMITTED": "1"}, own=True) == ""
    unknown = unknown_variable({"ADMIT_BEAT_SECOND": "5"}, own=True)
    assert unknown.endswith("did you mean ADMIT_BEAT_SECONDS?")


def test_a_command_refuses_an_unknown_variable(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ADMIT_NATS_CRED", "x")
    assert invoke(["get", "workloads"]) == 2
    assert capsys.readouterr().err == (
        "error: ADMIT_NATS_CRED is not known; did you mean ADMIT_NATS_CREDS?\n"
    )
