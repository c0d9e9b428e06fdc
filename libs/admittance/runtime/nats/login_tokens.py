"""Tokens: the content of a credentials file in one word, for a person who signs in to the page."""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import Final

from admittance.runtime.errors import AccessDenied
from admittance.runtime.nats.credentials import user_key_in

PREFIX: Final = "admit_"
BYTES_MAX: Final = 32 << 10


def token_of_credentials(text: str) -> str:
    """The token of a credentials file with this content."""
    return PREFIX + urlsafe_b64encode(text.encode()).decode().rstrip("=")


def credentials_of_token(token: str) -> str:
    """The content of the credentials file that a token stands for; the content itself is taken,
    too. Raises AccessDenied for a text with neither."""
    text = token.strip()
    if len(text) > BYTES_MAX:
        raise AccessDenied("the token is too long")
    if text.startswith(PREFIX):
        coded = "".join(text.removeprefix(PREFIX).split())
        try:
            text = urlsafe_b64decode(coded + "=" * (-len(coded) % 4)).decode()
        except ValueError:
            raise AccessDenied("the token is damaged: copy the whole of it") from None
    user_key_in(text, "the token", "the text")
    return text
