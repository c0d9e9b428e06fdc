"""One lock of a file at a time; its error names the holder."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from admittance.runtime.nats_server import pid_lock


@pytest.mark.parametrize(("written", "named"), [(4711, "4711"), (None, "unknown")])
def test_a_locked_file_names_its_holder_until_it_is_closed(
    tmp_path: Path, written: int | None, named: str
) -> None:
    first = pid_lock.lock(tmp_path / "lock")
    if written is not None:
        pid_lock.write_pid(first, 123456)
        pid_lock.write_pid(first, written)
    with pytest.raises(pid_lock.LockHeld) as held:
        pid_lock.lock(tmp_path / "lock")
    assert held.value.pid == named
    os.close(first)
    os.close(pid_lock.lock(tmp_path / "lock"))


def test_a_file_that_cannot_be_locked_is_an_error_of_the_system(tmp_path: Path) -> None:
    with pytest.raises(IsADirectoryError):
        pid_lock.lock(tmp_path)
