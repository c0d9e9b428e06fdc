"""Makes NKeys, and the text of a credentials file, with which a user connects."""

from __future__ import annotations

from typing import Final, NamedTuple

import nkeys

from admittance.access.users import User
from admittance.runtime import chance

SEED_BYTES: Final = 32


class KeyPair(NamedTuple):
    """The NKey of a user. ``public``: the public key. ``seed``: the secret seed."""

    public: str
    seed: str

    def __repr__(self) -> str:
        return f"KeyPair({self.public})"


def new_key() -> KeyPair:
    """A new random NKey."""
    raw = bytes.fromhex(chance.token_hex(SEED_BYTES))
    seed = nkeys.encode_seed(raw, nkeys.PREFIX_BYTE_USER)
    public = nkeys.from_seed(bytearray(seed)).public_key
    return KeyPair(public.decode(), seed.decode())


def credentials_text(user: User, seed: str) -> str:
    """The content of a credentials file: the seed, and comment lines that name the user, its role
    and its inbox prefix. `admit` reads the inbox prefix from the file; any other NATS client must
    be given that prefix."""
    return (
        "# Credentials of Admittance for a nats-server. Keep this file secret.\n"
        f"# user: {user.name}\n"
        f"# role: {user.role}\n"
        f"# inbox prefix: _INBOX.{user.token}\n"
        f"{seed}\n"
    )
