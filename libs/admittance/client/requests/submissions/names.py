"""Names of submitted workloads that the user did not name."""

from __future__ import annotations

import re
from collections.abc import Sequence
from hashlib import blake2b
from pathlib import PurePath
from typing import TYPE_CHECKING, Final

from admittance.runtime import chance

if TYPE_CHECKING:
    pass


_LETTERS: Final = "bcdfghjklmnpqrstvwxz2456789"
"""Letters of generated names: without vowels, so that no suffix is a word, and without letters that
look alike.
"""


def suffix() -> str:
    """Five random letters for a unique name."""
    return "".join(chance.choice(_LETTERS) for _ in range(5))


def stem(command: Sequence[str]) -> str:
    """The first part of a generated workload name: the name of the submitted command's program."""
    return _name_part(PurePath(command[0]).name if command else "")


def _name_part(text: str) -> str:
    """The text in letters that a name may have."""
    plain = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")
    return plain[:40].strip("-") or "workload"


def name_of_key(namespace: str, user: str, key: str) -> str:
    """The name of the workload that a submission with the key makes: the same for the same
    namespace, user and key, whatever is submitted."""
    whole = f"{namespace}/{user}/{key}".encode()
    number = int.from_bytes(blake2b(whole, digest_size=16).digest())
    letters = []
    for _ in range(10):
        number, place = divmod(number, len(_LETTERS))
        letters.append(_LETTERS[place])
    return f"{_name_part(key)}-{''.join(letters)}"
