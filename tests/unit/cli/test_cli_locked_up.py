"""`admit up`, before it starts a server: which options go together, and its folder of users."""

from __future__ import annotations

from pathlib import Path

import pytest

from admittance.access.users import User
from admittance.cli.support.errors import BadInput
from admittance.cli.support.options import Call, UrlFrom
from admittance.cli.up.lock import ADMIN, Lock
from admittance.cli.up.up import refuse_unprotected
from admittance.runtime.auth_store import AuthStore
from admittance.runtime.errors import SetupError

FAR = "nats://nats.example.com:4222"
NEAR = "nats://127.0.0.1:4222,nats://localhost:4223"


@pytest.mark.parametrize(
    ("url", "insecure", "given"),
    [
        (NEAR, True, {}),
        (NEAR, False, {}),
        (FAR, False, {"creds": "/mine"}),
        ("nats://ada:x@nats.example.com", False, {}),
    ],
)
def test_server_with_credentials_or_on_loopback_is_used(
    url: str, insecure: bool, given: dict[str, str]
) -> None:
    refuse_unprotected(Call(url=url, url_from=UrlFrom.OPTION, given=given), insecure)


@pytest.mark.parametrize(
    ("url", "insecure", "complaint"),
    [
        (FAR, False, "is not on loopback: name credentials with --creds"),
        (FAR, True, "--insecure is for loopback only, and .* is not"),
        (f"{NEAR},{FAR}", True, "--insecure is for loopback only"),
    ],
)
def test_server_elsewhere_without_credentials_is_refused(
    url: str, insecure: bool, complaint: str
) -> None:
    with pytest.raises(BadInput, match=complaint):
        refuse_unprotected(Call(url=url, url_from=UrlFrom.OPTION), insecure)


def test_users_and_their_keys_stay_from_start_to_start(tmp_path: Path) -> None:
    first = Lock(tmp_path)
    store = AuthStore(tmp_path / "auth")
    users = store.users
    assert {user.role for user in users} >= {"scheduler", "runner", "admin", "server-watch"}
    seeds = {user.name: Path(store.credentials_of(user.name)).read_text() for user in users}
    again = Lock(tmp_path)
    assert store.users == users
    assert {name: Path(store.credentials_of(name)).read_text() for name in seeds} == seeds
    assert first.access("runner") == again.access("runner")
    assert len({first.access(name).creds for name in (ADMIN, "scheduler", "runner")}) == 3


def test_interrupted_first_start_is_completed(tmp_path: Path) -> None:
    (tmp_path / ".auth.new").mkdir()
    (tmp_path / ".auth.new" / "system.nk").write_text("half")
    Lock(tmp_path)
    assert AuthStore(tmp_path / "auth").user(ADMIN).role == "admin"


def test_other_users_of_the_folder_stay(tmp_path: Path) -> None:
    Lock(tmp_path)
    store = AuthStore(tmp_path / "auth")
    ada = store.add(User(name="ada", role="viewer", key=""), tmp_path / "ada.creds")
    Lock(tmp_path)
    assert store.user("ada") == ada


def test_name_of_a_service_with_another_role_is_refused(tmp_path: Path) -> None:
    Lock(tmp_path)
    store = AuthStore(tmp_path / "auth")
    store.remove("scheduler")
    store.add(User(name="scheduler", role="viewer", key=""), tmp_path / "x.creds")
    with pytest.raises(SetupError, match="has the role viewer, and `admit up` needs it with"):
        Lock(tmp_path)
