"""The streams of a folder from before the lock are moved to the account of the services."""

from pathlib import Path

import pytest

from admittance.runtime.errors import SetupError
from admittance.runtime.nats_server.server_accounts import OPEN_CORE, move_streams, open_accounts


def stream(store: Path, account: str, name: str = "ADMITTANCE") -> Path:
    file = store / "jetstream" / account / "streams" / name / "meta.inf"
    file.parent.mkdir(parents=True)
    file.write_text(account)
    return file


def content(store: Path) -> dict[str, str]:
    return {
        str(file.relative_to(store / "jetstream")): file.read_text()
        for file in store.rglob("*.inf")
    }


def test_new_folder_has_nothing_to_move(tmp_path: Path) -> None:
    assert not move_streams(tmp_path)
    assert open_accounts(tmp_path) == ""


def test_all_streams_move_once(tmp_path: Path) -> None:
    stream(tmp_path, "$G")
    stream(tmp_path, "$G", "KV_admittance")
    assert open_accounts(tmp_path) == ""
    assert move_streams(tmp_path)
    moved = {f"CORE/streams/{name}/meta.inf": "$G" for name in ("ADMITTANCE", "KV_admittance")}
    assert content(tmp_path) == moved
    assert not move_streams(tmp_path)
    assert content(tmp_path) == moved
    assert open_accounts(tmp_path) == OPEN_CORE


def test_streams_move_into_an_account_without_streams(tmp_path: Path) -> None:
    stream(tmp_path, "$G")
    (tmp_path / "jetstream" / "CORE" / "streams").mkdir(parents=True)
    assert move_streams(tmp_path)
    assert content(tmp_path) == {"CORE/streams/ADMITTANCE/meta.inf": "$G"}


def test_streams_of_the_services_are_never_replaced(tmp_path: Path) -> None:
    stream(tmp_path, "$G")
    stream(tmp_path, "CORE")
    before = content(tmp_path)
    assert not move_streams(tmp_path)
    assert content(tmp_path) == before


def test_move_that_fails_is_one_clear_line(tmp_path: Path) -> None:
    stream(tmp_path, "$G")
    (tmp_path / "jetstream" / "CORE").mkdir()
    (tmp_path / "jetstream" / "CORE" / "left").write_text("")
    with pytest.raises(SetupError, match=r"cannot move the streams in .*CORE"):
        move_streams(tmp_path)
