"""One-time codes: each signs in one person, once, within ten minutes."""

from __future__ import annotations

import hashlib
import hmac
from typing import Final, NamedTuple

from admittance.runtime.process.web_page import new_code

CODE_SECONDS: Final = 600.0
CODES_MAX: Final = 16
"""The most codes that wait at once; a further one takes the place of the oldest."""


class _Code(NamedTuple):
    credentials: str
    until: float


class OneTimeCodes:
    """The codes that were given out. ``key``: the secret for which `further` makes a code; "": it
    makes none. ``credentials``: of its codes, unless others are given. Times are of the monotonic
    clock."""

    def __init__(self, key: str = "", credentials: str = "") -> None:
        self._key = key.encode()
        self._codes: dict[bytes, _Code] = {}
        self._credentials = credentials

    def add(self, code: str, credentials: str, now: float) -> None:
        """Accepts a code, which signs in with these credentials; "": the server demands none."""
        self._forget(now)
        while len(self._codes) >= CODES_MAX:
            del self._codes[next(iter(self._codes))]
        self._credentials = credentials
        self._codes[_digest(code)] = _Code(credentials, now + CODE_SECONDS)

    def further(self, key: str, credentials: str, now: float) -> str | None:
        """A new code; None: the key is wrong. ``credentials`` "": those of the code before."""
        if not self._key or not hmac.compare_digest(self._key, key.encode()):
            return None
        code = new_code()
        self.add(code, credentials or self._credentials, now)
        return code

    def take(self, code: str, now: float) -> str | None:
        """The credentials of a code, which is valid no longer; None: there is no such code."""
        self._forget(now)
        taken = self._codes.pop(_digest(code), None)
        return None if taken is None else taken.credentials

    def _forget(self, now: float) -> None:
        self._codes = {code: each for code, each in self._codes.items() if each.until > now}


def _digest(code: str) -> bytes:
    """The key of a code, so that the time of a look-up says nothing about the code."""
    return hashlib.sha256(code.encode()).digest()
