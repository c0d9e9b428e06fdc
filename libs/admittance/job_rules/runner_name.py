"""The name of a runner, which its data folder keeps."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

from admittance.runtime import chance
from admittance.runtime.errors import SetupError

VARIABLE = "ADMIT_RUNNER"
_NAME = re.compile(r"[A-Za-z0-9_.@-]{1,253}", re.ASCII)


def given_name(env: Mapping[str, str]) -> str | None:
    """The name that the variable gives the runner; None: none. Raises SetupError for a name that
    may look like another one in a table."""
    name = env.get(VARIABLE) or None
    if name is not None and not _NAME.fullmatch(name):
        raise SetupError(
            f"{VARIABLE} {name[:80]!a}: a name of a runner has letters, digits, '-', '_', "
            "'.' and '@', at most 253"
        )
    return name


def runner_name(data_dir: Path) -> str:
    """The runner's name in permissions and in its consumer. Raises SetupError."""
    try:
        return given_name(os.environ) or name_of((data_dir / "runner").absolute())
    except OSError as error:
        raise SetupError(f"cannot use {data_dir}/runner: {error.strerror}") from None


def name_of(root: Path) -> str:
    """The name of the runner with the data folder ``root``; the name stays the same until the
    folder is deleted. Raises OSError."""
    file = root / "id"
    if not file.exists() or not file.read_text().strip():
        root.mkdir(parents=True, exist_ok=True)
        replace_file(file, chance.token_hex(6).encode())
    return file.read_text().strip()


def replace_file(path: Path, data: bytes) -> None:
    """Writes the file at once, or not at all. Raises OSError."""
    part = path.with_name(f"{path.name}.{chance.token_hex(4)}")
    try:
        with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(data)
        part.replace(path)
    except OSError:
        part.unlink(missing_ok=True)
        raise
