"""Makes the JWTs of an operator, its accounts and their users. A JWT is text in three parts: a
head, claims, and their signature by an NKey.
"""

from __future__ import annotations

import binascii
import hashlib
import math
from base64 import b32decode, b32encode, urlsafe_b64encode
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Any, Final, NamedTuple

import msgspec
import nkeys

from admittance.access.jwt_claims import (
    Revoked,
    account_claims,
    account_of,
    jwt_config,
    operator_claims,
    system_user_claims,
    user_claims,
)
from admittance.access.role import Account
from admittance.access.users import User
from admittance.runtime import chance, clock

OPERATOR: Final = "OPERATOR"
SEED_BYTES: Final = 32
KEYS: Final = (OPERATOR, *(account.value for account in Account))
"""The names of the keys of an issuer, which are the operator's and those of the accounts."""
_PREFIXES: Final = {OPERATOR: nkeys.PREFIX_BYTE_OPERATOR}
ALWAYS: Final = 1 << 40
"""Seconds since 1970, later than any JWT."""
_HEAD: Final = {"typ": "JWT", "alg": "ed25519-nkey"}


class KeyPair(NamedTuple):
    """An NKey. ``public``: the public key. ``seed``: the secret seed."""

    public: str
    seed: str

    def __repr__(self) -> str:
        return f"KeyPair({self.public})"


def new_key(prefix: int = nkeys.PREFIX_BYTE_USER) -> KeyPair:
    """A new random NKey, by default of a user."""
    seed = nkeys.encode_seed(bytes.fromhex(chance.token_hex(SEED_BYTES)), prefix).decode()
    return KeyPair(_public(seed, prefix), seed)


def new_issuer_key(name: str) -> KeyPair:
    """A new random NKey of the operator or an account, by its name in `KEYS`."""
    return new_key(_PREFIXES.get(name, nkeys.PREFIX_BYTE_ACCOUNT))


def is_seed_of(seed: str, name: str, public: str) -> bool:
    """Whether the seed belongs to the public key. ``name``: one of `KEYS`."""
    prefix = _PREFIXES.get(name, nkeys.PREFIX_BYTE_ACCOUNT)
    try:
        return _public(seed, prefix) == public
    except Exception:
        # nkeys and its decoders raise many kinds of errors, some with the seed in their text.
        return False


def _public(seed: str, prefix: int) -> str:
    # nkeys names some public keys as those of users.
    named = nkeys.from_seed(bytearray(seed.encode())).public_key.decode()
    raw = bytes([prefix]) + b32decode(named + "=" * (-len(named) % 8))[1:33]
    whole = raw + binascii.crc_hqx(raw, 0).to_bytes(2, "little")
    return b32encode(whole).decode().rstrip("=")


def sign_jwt(
    key: KeyPair,
    about: str,
    name: str,
    claims: Mapping[str, Any],
    *,
    issued: int,
    expires: int = 0,
) -> str:
    """The JWT with claims about a public key. ``issued``, ``expires``: seconds since 1970; with
    ``expires`` 0 the JWT never expires.
    """
    body: dict[str, Any] = {"iat": issued, "iss": key.public, "name": name, "sub": about}
    if expires:
        body["exp"] = expires
    body["nats"] = dict(claims)
    digest = hashlib.sha256(msgspec.json.encode(body)).digest()
    body = {"jti": b32encode(digest).decode().rstrip("="), **body}
    signed = f"{_text(msgspec.json.encode(_HEAD))}.{_text(msgspec.json.encode(body))}"
    pair = nkeys.from_seed(bytearray(key.seed.encode()))
    return f"{signed}.{_text(pair.sign(signed.encode()))}"


def _text(data: bytes) -> str:
    return urlsafe_b64encode(data).decode().rstrip("=")


class JwtIssuer:
    """The keys of the operator and its accounts. ``seed_of``: returns the seed of a key in
    `KEYS`; it is called at each signature."""

    def __init__(self, public: Mapping[str, str], seed_of: Callable[[str], str]) -> None:
        self._public = dict(public)
        self._seed_of = seed_of

    def _key(self, name: str) -> KeyPair:
        return KeyPair(self._public[name], self._seed_of(name))

    def account_jwts(self, revoked: Iterable[Revoked], issued: int = 0) -> dict[str, str]:
        """The JWT of each account, by its public key. ``issued``: in seconds since 1970; 0: now.
        For each account, nats-server replaces a JWT that was issued earlier by a later one, and
        ignores a JWT that was issued earlier than its own.
        """
        operator, gone = self._key(OPERATOR), list(revoked)
        issued = issued or _seconds(clock.now())
        return {
            self._public[account]: sign_jwt(
                operator,
                self._public[account],
                account,
                account_claims(account, self._public, gone),
                issued=issued,
            )
            for account in Account
        }

    def config(self, revoked: Iterable[Revoked], folder: str, issued: int = 0) -> str:
        """The configuration for nats-server, with the JWTs of accounts."""
        operator, system = self._key(OPERATOR), self._public[Account.SYS]
        claims = operator_claims(system)
        # A nats-server that reloads its configuration refuses a JWT of its operator that differs
        # from the loaded one.
        jwt = sign_jwt(operator, operator.public, "admittance", claims, issued=1)
        return jwt_config(jwt, self.account_jwts(revoked, issued), system, folder)

    def user_jwt(self, user: User, issued: int = 0) -> str:
        """The JWT of a user, signed by its account. ``issued``: in seconds since 1970; 0: now."""
        return sign_jwt(
            self._key(account_of(user)),
            user.key,
            user.name,
            user_claims(user),
            issued=issued or _seconds(clock.now()),
            expires=_expiry(user),
        )

    def system_jwt(self, key: str) -> str:
        """The JWT of the user of the system account that tells servers of changed accounts."""
        issued = _seconds(clock.now())
        return sign_jwt(self._key(Account.SYS), key, "system", system_user_claims(), issued=issued)


def later_than(issued: int) -> int:
    """The time to write into the next JWTs of accounts, in seconds since 1970: now, but always
    after the JWTs before, also if two changes share a second or the clock was set back."""
    return max(_seconds(clock.now()), issued + 1)


class NewJwt(NamedTuple):
    """A further JWT of a user. ``issued``: in seconds since 1970."""

    user: User
    jwt: str
    issued: int


def issue_after(user: User) -> int:
    """The time to write into a further JWT of the user, in seconds since 1970: now, but always
    after those before, so that `revocation` can tell it from them. The first one was made within a
    second of the user."""
    first = _seconds(user.created) + 1 if user.created is not None else 0
    return max(_seconds(clock.now()), (user.issued or first) + 1)


def revocation(user: User, *, at: int = ALWAYS) -> Revoked:
    """The revocation in the claims of the user's account that ends the JWTs of the user's key that
    were issued until ``at``, by default all. No other user ever gets the key, so the clock of the
    machine that revokes all does not matter.
    """
    return Revoked(key=user.key, account=account_of(user), at=at, expires=_expiry(user))


def still_needed(revoked: Iterable[Revoked]) -> tuple[Revoked, ...]:
    """The revocations of JWTs that have not expired."""
    now = _seconds(clock.now())
    return tuple(
        revocation for revocation in revoked if not revocation.expires or revocation.expires > now
    )


def _expiry(user: User) -> int:
    return math.ceil(user.expires.timestamp()) if user.expires else 0


def _seconds(at: datetime) -> int:
    return int(at.timestamp())
