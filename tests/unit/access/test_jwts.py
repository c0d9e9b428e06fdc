"""Users with JWTs: what is signed, and what the folder of users keeps."""

from __future__ import annotations

import json
import stat
from base64 import b32decode, urlsafe_b64decode
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from admittance.access.jwt_claims import Revoked, account_claims
from admittance.access.role import Account
from admittance.access.roles import permissions_of
from admittance.access.server_config import INWARDS
from admittance.access.users import User
from admittance.runtime import clock
from admittance.runtime.errors import SetupError
from admittance.runtime.nats.credentials import read_user_key
from admittance.runtime.nats_server.auth_store import AuthStore
from admittance.runtime.nats_server.credentials_files import credentials_text, read_jwt, write_jwt
from admittance.runtime.nats_server.jwt_issuer import ALWAYS, new_key, still_needed
from admittance.runtime.nats_server.secret_files import write_secret_file


def wanted(name: str = "ada", **fields: Any) -> User:
    created = clock.now()
    return User(name=name, role="user", key="", namespaces=("team-a",), created=created, **fields)


@pytest.fixture
def store(tmp_path: Path) -> AuthStore:
    made = AuthStore(tmp_path / "auth")
    made.create("nats://127.0.0.1:4222", jwt=True)
    return made


def verified(jwt: str) -> dict[str, Any]:
    """The claims of a JWT. Its signature must be that of its issuer."""
    head, body, signature = (urlsafe_b64decode(part + "==") for part in jwt.split("."))
    claims: dict[str, Any] = json.loads(body)
    issuer = claims["iss"]
    raw = b32decode(issuer + "=" * (-len(issuer) % 8))
    Ed25519PublicKey.from_public_bytes(raw[1:33]).verify(signature, jwt.rpartition(".")[0].encode())
    assert json.loads(head) == {"typ": "JWT", "alg": "ed25519-nkey"}
    return claims


def test_user_gets_the_permissions_of_its_role_and_its_expiry(
    store: AuthStore, tmp_path: Path
) -> None:
    expires = clock.now() + timedelta(days=1)
    added = store.add(wanted(expires=expires), tmp_path / "ada.creds")
    key = read_user_key(str(tmp_path / "ada.creds"))
    assert (key.public, key.inbox, key.user) == (added.key, "_INBOX.ada", "ada")
    assert key.jwt is not None
    claims = verified(key.jwt)
    assert claims["sub"] == added.key
    assert claims["iss"].startswith("A")
    assert 0 <= claims["exp"] - expires.timestamp() < 1
    publish = claims["nats"]["pub"]["allow"]
    assert publish == [rule.pattern for rule in permissions_of(added).publish]


def test_account_is_signed_by_the_operator_and_has_the_border(store: AuthStore) -> None:
    jwts = store.account_jwts()
    by_name = {claims["name"]: claims for claims in map(verified, jwts.values())}
    assert set(by_name) == {"CORE", "OUT", "SYS"}
    assert {claims["iss"][0] for claims in by_name.values()} == {"O"}
    exported = [entry["subject"] for entry in by_name["CORE"]["nats"]["exports"]]
    assert exported[: len(INWARDS)] == [entry.exported for entry in INWARDS]
    (acts,) = [
        entry
        for entry in by_name["OUT"]["nats"]["imports"]
        if entry["subject"] == "admit.api.user.*.held.*.*"
    ]
    assert acts["local_subject"] == "admit.user.$1.held.$2.$3"
    assert acts["account"] == by_name["CORE"]["sub"]


def test_folder_keeps_no_secret_of_a_user_and_is_closed(store: AuthStore, tmp_path: Path) -> None:
    store.add(wanted(), tmp_path / "ada.creds")
    seed = next(
        line for line in (tmp_path / "ada.creds").read_text().splitlines() if line.startswith("SU")
    )
    for path in (*store.folder.iterdir(), tmp_path / "ada.creds"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600, path
        if path.parent == store.folder:
            assert seed not in path.read_text()


def test_revoked_user_is_in_the_claims_of_its_account_only(
    store: AuthStore, tmp_path: Path
) -> None:
    added = store.add(wanted(), tmp_path / "ada.creds")
    store.remove("ada")
    jwts = store.account_jwts()
    for claims in map(verified, jwts.values()):
        gone = claims["nats"].get("revocations", {})
        assert (added.key in gone) == (claims["name"] == "OUT")


def test_a_renewed_user_keeps_its_key_and_its_older_jwts_can_end(
    store: AuthStore, tmp_path: Path
) -> None:
    added = store.add(wanted(), tmp_path / "ada.creds")
    first = read_user_key(str(tmp_path / "ada.creds")).claims
    [made] = store.new_jwts(["ada"])
    claims = verified(made.jwt)
    assert (claims["sub"], claims["iat"]) == (added.key, made.issued)
    assert first is not None
    assert first.iat < made.issued
    (out,) = [
        claims for claims in map(verified, store.account_jwts().values()) if claims["name"] == "OUT"
    ]
    assert "revocations" not in out["nats"]
    assert store.revoke_older(["ada"]) == []
    store.note_renewed([made])
    [again] = store.new_jwts(["ada"])
    assert again.issued > made.issued
    store.note_renewed([again])
    store.revoke_older(["ada"])
    for last in (again.issued - 1, ALWAYS):
        if last == ALWAYS:
            store.remove("ada")
        (out,) = [
            renewed
            for renewed in map(verified, store.account_jwts().values())
            if renewed["name"] == "OUT"
        ]
        assert out["nats"]["revocations"] == {added.key: last}


@pytest.mark.parametrize(
    ("target", "said"),
    [
        pytest.param("ben.creds", "is of the user ben", id="another user"),
        pytest.param("nkey.creds", "has an NKey and no JWT", id="a plain NKey"),
        pytest.param("text", "has no JWT", id="no credentials"),
        pytest.param("new.creds", "has a newer JWT", id="older than what is there"),
        pytest.param("bytes", "it is not text", id="no text"),
    ],
)
def test_a_jwt_goes_into_no_file_but_its_own(
    store: AuthStore, tmp_path: Path, target: str, said: str
) -> None:
    store.add(wanted(), tmp_path / "ada.creds")
    store.add(wanted("ben"), tmp_path / "ben.creds")
    store.add(wanted("new"), tmp_path / "new.creds")
    [made] = store.new_jwts(["new" if target == "new.creds" else "ada"])
    if target == "new.creds":
        store.note_renewed([made])
        write_jwt(tmp_path / target, store.new_jwts(["new"])[0].jwt)
    key = new_key()
    write_secret_file(tmp_path / "nkey.creds", credentials_text(wanted(), key.seed))
    (tmp_path / "text").write_text("hello")
    (tmp_path / "bytes").write_bytes(b"\xff\xfe")
    before = (tmp_path / target).read_bytes()
    with pytest.raises(SetupError, match=said):
        write_jwt(tmp_path / target, made.jwt)
    assert (tmp_path / target).read_bytes() == before


def test_a_credentials_file_keeps_all_but_its_jwt(store: AuthStore, tmp_path: Path) -> None:
    file, link, alone = tmp_path / "ada.creds", tmp_path / "link", tmp_path / "ada.jwt"
    store.add(wanted(), file)
    file.write_text(f"# a note of its owner\n{file.read_text()}")
    before, old = file.read_text(), read_user_key(str(file)).jwt
    link.symlink_to(file)
    [made] = store.new_jwts(["ada"])
    assert old is not None
    assert write_jwt(link, made.jwt)
    assert file.read_text() == before.replace(old, made.jwt) != before
    assert link.is_symlink()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    for _ in range(2):
        assert not write_jwt(alone, made.jwt)
        assert read_jwt(alone) == made.jwt


def test_revocation_of_an_expired_jwt_is_forgotten() -> None:
    now = int(clock.now().timestamp())
    first, second, third = (
        Revoked(key="U1", account="OUT", at=now),
        Revoked(key="U2", account="OUT", at=now, expires=now + 3600),
        Revoked(key="U3", account="OUT", at=now, expires=now - 1),
    )
    assert still_needed((first, second, third)) == (first, second)
    keys = {account.value: "A" for account in Account}
    assert set(account_claims(Account.OUT, keys, (first, second))["revocations"]) == {"U1", "U2"}


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("OUT.nk", "hello", "OUT.nk is damaged: restore it from a backup"),
        ("OUT.nk", "", "OUT.nk is damaged"),
        ("OUT.nk", None, "cannot read .*OUT.nk: No such file"),
        ("users.json", '{"version": 2, "system": "U", "servers": ""}', "keys of its accounts"),
    ],
)
def test_damaged_file_of_keys_is_one_line(
    store: AuthStore, tmp_path: Path, name: str, content: str | None, sentence: str
) -> None:
    path = store.folder / name
    if content is None:
        path.unlink()
    else:
        path.write_text(content)
    with pytest.raises(SetupError, match=sentence) as raised:
        store.add(wanted(), tmp_path / "ada.creds")
    assert "\n" not in str(raised.value)
    assert not (tmp_path / "ada.creds").exists()


def test_folder_with_jwts_is_not_for_admit_up(store: AuthStore) -> None:
    with pytest.raises(SetupError, match="has users with JWTs, and `admit up` and compose"):
        store.provide([wanted()])
