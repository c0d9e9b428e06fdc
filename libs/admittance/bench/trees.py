"""The code of another version of Admittance, and the program that runs it."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import Final, NamedTuple

import admittance.bench
from admittance.runtime.errors import SetupError

ROOTS: Final = ("libs", "services")
"""The folders of a tree that hold packages."""
MAIN: Final = "admittance/cli/main.py"


class Tree(NamedTuple):
    """The code of one version: ``name`` as it was given, and its folder. A folder with a ``.venv``
    runs with the Python and the packages in there, any other with those of this process."""

    name: str
    folder: Path
    has_page: bool = False
    """Whether `admit up` has the option ``--no-web``."""

    @property
    def admit(self) -> Path | None:
        """The program of the tree; None: that of this Python, with the variables `env`."""
        own = self.folder / ".venv" / "bin" / "admit"
        return own if own.exists() else None

    @property
    def env(self) -> dict[str, str]:
        """The variables with which Python finds this code before its installed code."""
        if self.admit:
            return {}
        return {"PYTHONPATH": os.pathsep.join(str(self.folder / root) for root in ROOTS)}


@contextmanager
def tree_of(name: str) -> Iterator[Tree]:
    """The tree of a folder, or else of a commit of the git repository that has this code; a commit
    is unpacked into a temporary folder. Its byte code is written before, as by `make install`.

    Raises SetupError if there is no such tree.
    """
    if Path(name).is_dir():
        yield _compiled(Tree(name, Path(name).resolve()))
        return
    with tempfile.TemporaryDirectory(prefix="admit-tree-") as folder:
        _unpack(name, Path(folder))
        yield _compiled(Tree(name, Path(folder)))


def _unpack(commit: str, folder: Path) -> None:
    # A commit never begins with a dash; git would read it as an option.
    command = ["git", "archive", "--format=tar", f"{commit}^{{commit}}", *ROOTS]
    if commit.startswith("-"):
        raise SetupError(f"{commit!r} is neither a folder nor a commit")
    try:
        made = subprocess.run(command, cwd=_repository(), capture_output=True, check=True)
    except OSError as error:
        raise SetupError(f"{commit} is no folder, and git cannot be run: {error}") from None
    except subprocess.CalledProcessError as error:
        why = error.stderr.decode(errors="replace").strip().split("\n")[-1]
        raise SetupError(f"{commit} is neither a folder nor a commit with code: {why}") from None
    with tarfile.open(fileobj=BytesIO(made.stdout)) as archive:
        archive.extractall(folder, filter="data")


def _repository() -> Path:
    """The root of the clone that has this code. Raises SetupError for installed code."""
    root = Path(admittance.bench.__path__[0]).parents[2]
    if not (root / ".git").exists():
        raise SetupError("this is no clone of the repository, so --against needs a folder")
    return root


def _compiled(tree: Tree) -> Tree:
    if not any((tree.folder / root / MAIN).is_file() for root in ROOTS):
        raise SetupError(f"{tree.name} has no code of Admittance: no {MAIN} in libs or services")
    python = tree.admit.with_name("python") if tree.admit else Path(sys.executable)
    compileall = [str(python), "-m", "compileall", "-q", "-j", "0"]
    subprocess.run([*compileall, *ROOTS], cwd=tree.folder, check=False, capture_output=True)
    help_of_up = [str(tree.admit or python.with_name("admit")), "up", "--help"]
    shown = subprocess.run(
        help_of_up, env={**os.environ, **tree.env}, check=False, capture_output=True, text=True
    )
    return tree._replace(has_page="--no-web" in shown.stdout)
