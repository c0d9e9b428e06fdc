"""The web page: shows what `admittance.client` answers, and does what a signed-in person asks.

Decides: nothing. Consumes: answers to the questions of the client, facts of the log. Publishes:
what a person asks for, in the connection and with the rights of that person. Owns: the sessions of
signed-in people, in memory only. The page has no user of its own: while no person is signed in, it
has no connection. Leadership: none; each process has its own sessions.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import NamedTuple


def _load() -> Callable[..., Awaitable[None]]:
    from admittance.web.server import serve

    return serve


class Page(NamedTuple):
    """The web page as a value. It is not one of the services, which have a user and a connection.
    ``load``: imports the page and returns the function that serves it."""

    name: str
    load: Callable[[], Callable[..., Awaitable[None]]]


PAGE = Page("web", _load)
