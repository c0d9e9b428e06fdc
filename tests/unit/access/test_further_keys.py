"""Further keys of a user: tokens of `admit auth token`, and links of `admit up` and `admit web`."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import pytest

from admittance.access.users import User, logins, next_expiry
from admittance.runtime.errors import SetupError
from admittance.runtime.nats.credentials import UserKey, user_key_in
from admittance.runtime.nats_server.auth_store import KEYS_MAX, AuthStore

NOW = datetime(2026, 1, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)
ADA = User(name="ada", role="user", key="", namespaces=("team-a",))


@pytest.fixture(params=[False, True], ids=["NKeys", "JWTs"])
def store(tmp_path: Path, request: pytest.FixtureRequest) -> AuthStore:
    made = AuthStore(tmp_path / "auth")
    made.create("nats://127.0.0.1:4222", jwt=request.param)
    made.add(ADA, tmp_path / "ada.creds")
    return made


def added(store: AuthStore, **given: object) -> UserKey:
    return user_key_in(store.add_key("ada", NOW, NOW + HOUR, **given))  # type: ignore[arg-type]


def test_a_further_key_has_the_name_role_and_namespaces_of_its_user(store: AuthStore) -> None:
    key = added(store)
    assert (key.user, key.role, key.namespaces) == ("ada", "user", ("team-a",))
    assert key.public != store.user("ada").key
    if not store.has_jwts:
        assert key.public in (store.folder / "auth.conf").read_text()


def test_a_further_key_ends_by_itself_and_its_user_stays(store: AuthStore) -> None:
    key = added(store)
    assert next_expiry(store.users, NOW) == NOW + HOUR
    assert store.remove_expired(NOW + HOUR) == []
    assert [user.name for user in logins(store.users)] == ["ada"]
    assert key.public not in (store.folder / "auth.conf").read_text()


def test_revoking_a_user_ends_all_its_keys(store: AuthStore) -> None:
    key = added(store)
    store.remove("ada")
    config = (store.folder / "auth.conf").read_text()
    if store.has_jwts:
        assert {gone.key for gone in store.known_by_servers} >= {key.public}
    else:
        assert key.public not in config


def test_a_key_that_stands_alone_ends_earlier_ones_of_its_purpose(store: AuthStore) -> None:
    token, earlier = added(store), added(store, purpose="link")
    link = added(store, purpose="link", alone=True)
    kept = [key.key for key in store.user("ada").keys]
    assert kept == [token.public, link.public]
    assert earlier.public not in kept


def test_a_key_never_outlives_its_user(store: AuthStore) -> None:
    added(store)
    user = msgspec.structs.replace(store.user("ada"), expires=NOW + HOUR / 2)
    assert [login.expires for login in logins([user])] == [NOW + HOUR / 2] * 2


def test_an_unknown_user_gets_no_key(store: AuthStore) -> None:
    with pytest.raises(SetupError, match="there is no user bob"):
        store.add_key("bob", NOW, NOW + HOUR)


def test_a_user_has_a_limited_number_of_keys(store: AuthStore) -> None:
    if store.has_jwts:
        pytest.skip("the limit is the same, and signing takes longer")
    for _ in range(KEYS_MAX):
        added(store)
    with pytest.raises(SetupError, match="has 100 tokens that have not expired: revoke the user"):
        added(store)


def test_a_start_of_admit_up_keeps_the_tokens_of_its_users(store: AuthStore) -> None:
    if store.has_jwts:
        pytest.skip("`admit up` has a folder with NKeys")
    root = User(name="root", role="admin", key="")
    store.provide([root])
    store.add_key("root", NOW, NOW + HOUR)
    store.provide([root])
    assert len(store.user("root").keys) == 1
