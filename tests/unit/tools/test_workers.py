"""``--workers N``: the tests are collected once and played in forks."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]

MODULES = {
    "test_fails.py": """
        import warnings
        def test_fails(tmp_path):
            print("printed by the test")
            assert tmp_path.parent.name in ("w0", "w1")
            assert not tmp_path
        def test_warns():
            warnings.warn("what the test warns of")
    """,
    "test_dies.py": """
        import os
        def test_dies():
            os.kill(os.getpid(), 9)
        def test_left_out():
            pass
    """,
    "test_together.py": """
        import os, pytest
        @pytest.fixture(scope="module")
        def pid():
            yield os.getpid()
            print("the fixture ends")
        @pytest.mark.parametrize("number", range(20))
        def test_a_file_is_played_by_one_process(pid, number):
            assert pid == os.getpid() != os.getppid()
    """,
}


def play(folder: Path, *options: str) -> str:
    (folder / "tests" / "unit").mkdir(parents=True)
    for name, text in MODULES.items():
        lines = text.splitlines()
        (folder / "tests" / "unit" / name).write_text("\n".join(line[8:] for line in lines))
    (folder / "pytest.ini").write_text("[pytest]\nasyncio_default_fixture_loop_scope=function")
    words = (
        "-p",
        "support.workers",
        "-p",
        "no:cacheprovider",
        "--workers",
        "2",
        "-q",
        *options,
        "tests",
    )
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *words],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT / "tests")},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 1, done.stdout + done.stderr
    return done.stdout


def test_reports_of_all_workers_are_those_of_the_session(tmp_path: Path) -> None:
    shown = play(tmp_path)
    assert re.search(r"2 failed, 21 passed, 1 warning in", shown)
    assert "assert not PosixPath" in shown
    assert "printed by the test" in shown
    assert "what the test warns of" in shown
    assert "test_dies.py::test_dies - its process ended with status -9" in shown


def test_workers_end_at_the_first_failure_that_ends_the_session(tmp_path: Path) -> None:
    assert "stopping after 1 failures" in play(tmp_path, "--maxfail", "1", "-k", "fails or warns")
