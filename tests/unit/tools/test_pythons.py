"""The unit tests run with every supported Python that the machine has."""

import platform
import tomllib
from pathlib import Path

import pytest
from tools import pythons

ROOT = Path(__file__).resolve().parents[3]


def program(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine without any Python: programs in ``bin`` and ``system``, pyenv in ``pyenv``."""
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path / "pyenv"))
    monkeypatch.setattr(pythons, "SYSTEM", tmp_path / "system")
    return tmp_path


def test_the_versions_are_those_of_the_project() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    said = [
        classifier.rpartition(" ")[2]
        for classifier in project["classifiers"]
        if "Python :: 3." in classifier
    ]
    assert list(pythons.VERSIONS) == said
    assert project["requires-python"] == f">={pythons.VERSIONS[0]}"


def test_an_interpreter_on_the_path_is_found(machine: Path) -> None:
    path = program(machine / "bin/python3.12", "echo 3.12.99")
    assert pythons.find("3.12") == path


def test_a_program_of_another_version_is_passed_over(machine: Path) -> None:
    program(machine / "bin/python3.12", "echo 'pyenv: python3.12: command not found' >&2; exit 127")
    path = program(machine / "pyenv/versions/3.12.98/bin/python3.12", "echo 3.12.98")
    assert pythons.find("3.12") == path


def test_another_release_of_the_version_that_runs_is_found(machine: Path) -> None:
    ours = ".".join(platform.python_version_tuple()[:2])
    program(machine / f"bin/python{ours}", f"echo {platform.python_version()}")
    path = program(machine / f"system/python{ours}", f"echo {ours}.99")
    assert pythons.find(ours) == path


def test_a_missing_version_is_skipped_with_a_reason(machine: Path) -> None:
    outcome = pythons.run("3.12", quick=True)
    assert outcome.passed
    assert outcome.text == "Python 3.12: skipped: no other python3.12 on this machine"


def test_quick_leaves_out_tests_that_exist() -> None:
    everything, quick = pythons.tests(quick=False), pythons.tests(quick=True)
    assert {f"tests/unit/{name}" for name in pythons.LEFT_OUT} == set(everything) - set(quick)
    assert "tests/unit/runtime" in quick
