"""The name of a runner, which its data folder keeps."""

from __future__ import annotations

import os
from pathlib import Path

from admittance.runtime import chance
from admittance.runtime.errors import SetupError

VARIABLE = "ADMIT_RUNNER"


def runner_name(data_dir: Path) -> str:
    """The runner's name in permissions and in its consumer. Raises SetupError."""
    try:
        return os.environ.get(VARIABLE) or name_of((data_dir / "runner").absolute())
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
