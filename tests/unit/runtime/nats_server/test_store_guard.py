"""Which command lines are those of a nats-server on a data folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from admittance.runtime.nats_server.store_guard import is_command_of


@pytest.mark.parametrize(
    ("typed", "cwd", "expected"),
    [
        ("{top}/data/nats.conf", "", True),
        ("{top}/other/../data/nats.conf", "", True),
        ("{top}/link/nats.conf", "", True),
        ("data/nats.conf", "{top}", True),
        ("../data/nats.conf", "{top}/other", True),
        ("nats.conf", "{top}/link", True),
        ("data/nats.conf", "", False),
        ("data/nats.conf", "{top}/other", False),
        ("{top}/other/nats.conf", "", False),
        ("{top}/data/restore/nats.conf", "", False),
        ("{top}/data/other.conf", "", False),
    ],
)
def test_a_server_is_recognized_by_the_real_path_of_its_folder(
    tmp_path: Path, typed: str, cwd: str, expected: bool
) -> None:
    for name in ("data", "other"):
        (tmp_path / name).mkdir()
    (tmp_path / "link").symlink_to("data")
    command = ["/usr/bin/nats-server", "-c", typed.format(top=tmp_path)]
    config = tmp_path / "data" / "nats.conf"
    assert is_command_of(command, config, cwd.format(top=tmp_path)) is expected


def test_another_program_with_the_configuration_is_not_taken_for_a_server(tmp_path: Path) -> None:
    config = tmp_path / "nats.conf"
    for command in ([], ["vi", str(config)], ["tail", "-c", str(config)]):
        assert not is_command_of(command, config)
