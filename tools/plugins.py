"""Runs the tests of plug-ins with tools that the lock has not, each with an environment of its own.

``python -m tools.plugins [hydra] [snakemake] [airflow]`` makes the environments below
``build/plugins`` where there are none yet; each also sees the packages of the one that runs. Exit
status 1 if a test fails.
"""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
TOOLS: Final = {
    "hydra": "hydra-submitit-launcher",
    "snakemake": "snakemake",
    "airflow": "apache-airflow",
}
"""The packages by the word that the names of their tests have."""
TESTS: Final = "tests/integration/client/test_documented_python.py"


def environment(tool: str) -> Path:
    """The Python of the environment with the tool."""
    folder = ROOT / "build" / "plugins" / tool
    python = folder / "bin" / "python"
    complete = folder / "complete"
    if not complete.exists():
        subprocess.run([sys.executable, "-m", "venv", "--clear", folder], check=True)
        pip = (python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
        subprocess.run([*pip, TOOLS[tool]], check=True)
        # The packages of the tool go before those of this environment.
        (site,) = folder.glob("lib/python*/site-packages")
        seen = (sysconfig.get_path("purelib"), ROOT / "libs", ROOT / "services")
        (site / "shared.pth").write_text("".join(f"{path}\n" for path in seen))
        complete.touch()
    return python


def main() -> None:
    """Runs the tests of the named tools, or of all."""
    asked = sys.argv[1:] or list(TOOLS)
    if unknown := set(asked) - TOOLS.keys():
        sys.exit(f"unknown: {', '.join(sorted(unknown))}; there are {', '.join(TOOLS)}")
    env = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    failed = []
    for tool in asked:
        # Warnings of other people's packages are no errors of ours.
        words = ("-m", "pytest", "-p", "no:cacheprovider", "-W", "ignore", "-rs", "-k", tool, TESTS)
        done = subprocess.run([environment(tool), *words], cwd=ROOT, env=env, check=False)
        if done.returncode:
            failed.append(tool)
    sys.exit(f"failed: {', '.join(failed)}" if failed else 0)


if __name__ == "__main__":
    main()
