"""Runs the unit tests with each supported Python that this machine has, besides the one that runs.

``python -m tools.pythons [--quick]`` makes a virtual environment ``.venv-3.12`` and the like from
the lock, where there is none yet, and prints one line per version. Of the version that runs another
release is taken: the Python of a distribution is often an early one, such as 3.11.2 of Debian 12. A
version that is not found is skipped, with the reason. Exit status 1 if a test fails. ``--quick``
leaves out the slow tests that depend little on the version of Python.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).resolve().parents[1]
VERSIONS: Final = ("3.11", "3.12", "3.13")
"""The supported versions; pyproject.toml lists the same."""
SLOW: Final = (
    *("access", "api", "bench", "cli", "docs", "replay", "samples"),
    *("test_imports.py", "test_public_names.py"),
)
CORES: Final = (
    *("arrays", "checks", "control", "doctor", "placement", "quota", "scheduling", "usage"),
    *("family", "provisioning", "traces", "variants", "whatif", "workload"),
)
"""The pure cores with the most tests, the same arithmetic with each version."""
LEFT_OUT: Final = (*SLOW, *CORES)
"""Tests that ``--quick`` leaves out: most of the time, and nothing of event loops and processes."""
SYSTEM: Final = Path("/usr/bin")
"""Where a distribution has its Python."""
PIP: Final = ("-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-compile")


class Outcome(NamedTuple):
    """The outcome of the tests with one version. ``text``: one line, or the output of a failure."""

    passed: bool
    text: str


def find(version: str) -> Path | None:
    """An interpreter of the version, of another release than the one that runs: on the path, of the
    system, or among the versions of pyenv."""
    for path in _candidates(version):
        try:
            # pyenv puts programs on the path that end with an error for versions not selected, and
            # some systems leave out what a virtual environment needs.
            said = subprocess.run(
                [path, "-c", "import ensurepip, platform; print(platform.python_version())"],
                capture_output=True,
                text=True,
                check=False,
            )
        except OSError:
            continue
        release = said.stdout.strip()
        if release.startswith(f"{version}.") and release != platform.python_version():
            return path
    return None


def _candidates(version: str) -> Iterator[Path]:
    if on_path := shutil.which(f"python{version}"):
        yield Path(on_path)
    yield SYSTEM / f"python{version}"
    root = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    yield from sorted(root.glob(f"versions/{version}.*/bin/python{version}"), reverse=True)


def environment(version: str, interpreter: Path) -> Path:
    """The interpreter of the version's virtual environment, installed from the lock."""
    folder = ROOT / f".venv-{version}"
    python = folder / "bin" / "python"
    stamp = folder / ".installed"
    wanted = hashlib.sha256(
        b"".join((ROOT / name).read_bytes() for name in ("requirements.lock", "pyproject.toml"))
    ).hexdigest()
    if stamp.exists() and stamp.read_text() == wanted:
        return python
    _run(interpreter, "-m", "venv", "--clear", folder)
    _run(python, *PIP, "--require-hashes", "-r", "requirements.lock")
    _run(python, *PIP, "--no-deps", "--no-build-isolation", "--editable", ".")
    stamp.write_text(wanted)
    return python


def _run(*command: str | Path) -> None:
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)


def tests(*, quick: bool) -> list[str]:
    """The folders and files of unit tests, as arguments of pytest."""
    folders = sorted((ROOT / "tests" / "unit").iterdir())
    return [
        str(path.relative_to(ROOT))
        for path in folders
        if (path.name.startswith("test_") or any(path.rglob("test_*.py")))
        and not (quick and path.name in LEFT_OUT)
    ]


def run(version: str, *, quick: bool) -> Outcome:
    """Runs the unit tests with one version."""
    began = time.monotonic()
    interpreter = find(version)
    if interpreter is None:
        return Outcome(True, f"Python {version}: skipped: no other python{version} on this machine")
    try:
        python = environment(version, interpreter)
    except subprocess.CalledProcessError as error:
        return Outcome(False, f"Python {version}: cannot be installed:\n{error.stderr}")
    done = subprocess.run(
        [python, "-m", "pytest", "-p", "no:cacheprovider", *tests(quick=quick)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        return Outcome(False, f"Python {version}: failed:\n{done.stdout}{done.stderr}")
    last = done.stdout.strip().splitlines()[-1]
    return Outcome(True, f"Python {version}: {last} ({time.monotonic() - began:.0f} s in all)")


def main() -> int:
    """Runs the tests with the other versions at once: no core idles beside the last one."""
    parser = argparse.ArgumentParser(description=__doc__, usage="python -m tools.pythons [--quick]")
    parser.add_argument("--quick", action="store_true", help="leave out the slow tests")
    quick = parser.parse_args().quick
    with ThreadPoolExecutor(len(VERSIONS)) as pool:
        outcomes = list(pool.map(lambda version: run(version, quick=quick), VERSIONS))
    for outcome in outcomes:
        sys.stdout.write(f"{outcome.text}\n")
    return not all(outcome.passed for outcome in outcomes)


if __name__ == "__main__":
    sys.exit(main())
