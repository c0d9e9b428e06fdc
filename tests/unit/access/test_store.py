"""The folder of users: what it holds, and what it refuses."""

import os
import stat
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from admittance.access.users import User
from admittance.runtime.errors import SetupError
from admittance.runtime.nats.credentials import read_user_key
from admittance.runtime.nats_server.auth_store import AuthStore
from support.needs import needs_root

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def wanted(name: str = "ada", **fields: object) -> User:
    return User(name=name, role="user", key="", namespaces=("team-a",), **fields)  # type: ignore[arg-type]


@pytest.fixture
def store(tmp_path: Path) -> AuthStore:
    made = AuthStore(tmp_path / "auth")
    made.create("nats://127.0.0.1:4222")
    return made


def test_folder_and_files_are_closed_to_other_unix_users(store: AuthStore, tmp_path: Path) -> None:
    earlier = os.umask(0)
    try:
        store.add(wanted(), tmp_path / "ada.creds")
    finally:
        os.umask(earlier)
    assert stat.S_IMODE(store.folder.stat().st_mode) == 0o700
    for path in (*store.folder.iterdir(), tmp_path / "ada.creds"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600, path


def test_store_holds_no_secret_of_a_user(store: AuthStore, tmp_path: Path) -> None:
    added = store.add(wanted(), tmp_path / "ada.creds")
    seed = (tmp_path / "ada.creds").read_text().split()[-1]
    assert read_user_key(str(tmp_path / "ada.creds")).public == added.key
    for path in store.folder.iterdir():
        assert seed not in path.read_text()


def test_credentials_file_names_the_private_inbox(store: AuthStore, tmp_path: Path) -> None:
    store.add(wanted("ada@example.com"), tmp_path / "ada.creds")
    assert read_user_key(str(tmp_path / "ada.creds")).inbox == "_INBOX.ada=40example_com"


def test_configuration_lists_added_users_until_they_are_removed(
    store: AuthStore, tmp_path: Path
) -> None:
    added = store.add(wanted(), tmp_path / "ada.creds")
    assert added.key in (store.folder / "auth.conf").read_text()
    store.remove("ada")
    assert added.key not in (store.folder / "auth.conf").read_text()
    assert store.users == ()


def test_expired_users_are_removed(store: AuthStore, tmp_path: Path) -> None:
    store.add(wanted("past", expires=NOW), tmp_path / "past.creds")
    store.add(wanted("later", expires=NOW + timedelta(seconds=9)), tmp_path / "later.creds")
    assert [user.name for user in store.remove_expired(NOW)] == ["past"]
    assert [user.name for user in store.users] == ["later"]
    assert store.remove_expired(NOW) == []


def test_credentials_file_is_never_overwritten(store: AuthStore, tmp_path: Path) -> None:
    store.add(wanted(), tmp_path / "one.creds")
    with pytest.raises(SetupError, match="exists: delete it, or name another file"):
        store.add(wanted("bob"), tmp_path / "one.creds")
    assert [user.name for user in store.users] == ["ada"]


def test_name_is_taken_once(store: AuthStore, tmp_path: Path) -> None:
    store.add(wanted(), tmp_path / "one.creds")
    with pytest.raises(SetupError, match="there is a user ada already"):
        store.add(wanted(), tmp_path / "two.creds")
    assert not (tmp_path / "two.creds").exists()


def test_no_credentials_remain_when_the_store_cannot_be_written(
    store: AuthStore, tmp_path: Path
) -> None:
    # A folder stands where the draft of the next users.json would be written.
    (store.folder / ".users.json.new").mkdir()
    with pytest.raises(SetupError, match=r"cannot write .*users\.json"):
        store.add(wanted(), tmp_path / "ada.creds")
    assert not (tmp_path / "ada.creds").exists()


def test_crash_in_a_removal_leaves_the_user_without_access(
    store: AuthStore, tmp_path: Path
) -> None:
    key = store.add(wanted(), tmp_path / "ada.creds").key
    (store.folder / ".users.json.new").mkdir()
    with pytest.raises(SetupError, match=r"cannot write .*users\.json"):
        store.remove("ada")
    assert key not in (store.folder / "auth.conf").read_text()
    (store.folder / ".users.json.new").rmdir()
    store.remove("ada")
    assert store.users == ()


def test_users_added_at_the_same_time_are_all_kept(store: AuthStore, tmp_path: Path) -> None:
    names = [f"user-{number}" for number in range(16)]

    def add(name: str) -> None:
        AuthStore(store.folder).add(wanted(name), tmp_path / name)

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(add, names))
    assert sorted(user.name for user in store.users) == sorted(names)
    config = (store.folder / "auth.conf").read_text()
    assert all(user.key in config for user in store.users)


def test_new_folder_must_be_empty(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(SetupError, match="is not empty: choose a new folder"):
        AuthStore(tmp_path).create("nats://127.0.0.1:4222")


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"\xff\x00", "is damaged"),
        (b'{"version": 1', "is damaged"),
        (b'{"version": 1, "system": "U", "servers": ""}', "system's key is not a public key"),
        (b'{"version": 3, "system": "U", "servers": ""}', "use a newer `admit`"),
        (b"[" * 100_000, "is damaged"),
    ],
)
def test_damaged_file_of_users_is_named(store: AuthStore, content: bytes, sentence: str) -> None:
    (store.folder / "users.json").write_bytes(content)
    with pytest.raises(SetupError, match=sentence) as raised:
        _ = store.users
    assert "users.json" in str(raised.value)
    assert "\n" not in str(raised.value)


def test_user_with_an_unknown_role_makes_the_file_damaged(store: AuthStore, tmp_path: Path) -> None:
    store.add(wanted(), tmp_path / "ada.creds")
    path = store.folder / "users.json"
    path.write_text(path.read_text().replace('"user"', '"emperor"'))
    with pytest.raises(SetupError, match=r'damaged \(user ada: role "emperor" is not known'):
        _ = store.users


@pytest.mark.parametrize("what", ["", "users.json"])
def test_file_that_other_users_may_read_is_refused(store: AuthStore, what: str) -> None:
    path = store.folder / what
    path.chmod(0o755)
    with pytest.raises(SetupError, match=r"other users may use .*: run `chmod [67]00 "):
        _ = store.users


@needs_root
def test_file_of_another_unix_user_is_refused(
    store: AuthStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.chown(store.folder / "users.json", 12345, 12345)
    monkeypatch.setattr(os, "geteuid", lambda: 12346)
    with pytest.raises(SetupError, match="belongs to another Unix user"):
        _ = store.users


@needs_root
def test_root_writes_files_that_belong_to_the_owner_of_their_folder(
    store: AuthStore, tmp_path: Path
) -> None:
    people = tmp_path / "people"
    people.mkdir()
    os.chown(people, 12346, 12346)
    for path in (store.folder, *store.folder.iterdir()):
        os.chown(path, 12345, 12345)
    store.add(wanted(), people / "ada.creds")
    assert {path.stat().st_uid for path in store.folder.iterdir()} == {12345}
    assert (people / "ada.creds").stat().st_uid == 12346


def test_root_follows_no_link_of_the_owner_of_the_folder(store: AuthStore, tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.write_text("precious")
    (store.folder / ".users.json.new").symlink_to(precious)
    with pytest.raises(SetupError, match="cannot write"):
        store.add(wanted(), tmp_path / "ada.creds")
    assert precious.read_text() == "precious"


def test_credentials_in_another_folder_are_made_once(store: AuthStore, tmp_path: Path) -> None:
    # Docker makes an empty folder in place of a secret that is missing.
    file = tmp_path / "ada.creds"
    file.mkdir()
    assert store.provide([wanted()], tmp_path)
    text = file.read_text()
    assert not store.provide([wanted()], tmp_path)
    assert file.read_text() == text


def test_missing_folder_says_how_to_make_one(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match="does not exist: make it with `admit auth init"):
        _ = AuthStore(tmp_path / "none").users
    with pytest.raises(SetupError, match=r"has no users\.json"):
        _ = AuthStore(tmp_path).users
    (tmp_path / "file").touch()
    with pytest.raises(SetupError, match="is not a folder"):
        _ = AuthStore(tmp_path / "file").users
