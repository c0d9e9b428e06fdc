"""New NKeys, and the text of the file that a user connects with."""

from __future__ import annotations

from typing import Final, NamedTuple

import nkeys

from admittance.access.users import User
from admittance.runtime import chance

SEED_BYTES: Final = 32


class KeyPair(NamedTuple):
    """An NKey of a user. ``seed`` is the secret."""

    public: str
    seed: str

    def __repr__(self) -> str:
        return f"KeyPair({self.public})"


def new_key() -> KeyPair:
    """A new key that cannot be guessed."""
    raw = bytes.fromhex(chance.token_hex(SEED_BYTES))
    seed = nkeys.encode_seed(raw, nkeys.PREFIX_BYTE_USER)
    public = nkeys.from_seed(bytearray(seed)).public_key
    return KeyPair(public.decode(), seed.decode())


def credentials_text(user: User, seed: str) -> str:
    """The content of a credentials file: the seed, with lines for people and for `admit`. A program
    that is no client of Admittance must use the inbox prefix that the file names."""
    return (
        "# Credentials of Admittance for a nats-server. Keep this file secret.\n"
        f"# user: {user.name}\n"
        f"# role: {user.role}\n"
        f"# inbox prefix: _INBOX.{user.token}\n"
        f"{seed}\n"
    )
