"""Message ids keyed with a secret of the deployment.

Ids are unique in the whole stream: a foreign message with a guessed id would suppress the real one.
The secret is kept in the bucket, which users may not read.
"""

from __future__ import annotations

import hashlib
from typing import Final

from admittance.runtime import chance
from admittance.runtime.bus.bucket import get, put_message
from admittance.runtime.bus.bus import Bus
from admittance.runtime.errors import StaleRevision

KEY: Final = "_admittance.secret"


async def deployment_secret(bus: Bus) -> bytes:
    """The secret of this deployment, created at first use."""
    while True:
        entry = await get(bus, KEY)
        if entry is not None and entry.value:
            return entry.value
        made = chance.token_hex(32).encode()
        try:
            await bus.publish(put_message(KEY, made, expected=entry.revision if entry else 0))
        except StaleRevision:
            continue
        return made


def message_id(secret: bytes, *parts: str | int) -> str:
    """The id for these parts: equal parts have equal ids, which need the secret to guess."""
    said = "\x00".join(map(str, parts)).encode("utf-8", "surrogatepass")
    return hashlib.blake2b(said, key=secret[:64], digest_size=16).hexdigest()
