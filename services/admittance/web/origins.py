"""Which requests come from the page itself: the names in ``Host``, the origin of each change.

Another web site may make a browser send requests to the page, and by DNS rebinding even under a
name of its own. So a request counts only under a name of the page, and a change or a stream only if
it comes from the page's own origin.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from admittance.runtime.process.web_page import KEY_HEADER, LOOPBACK

SAFE: Final = frozenset({"GET", "HEAD"})
SIGN_IN_PATHS: Final = ("/signin", "/sign-in")
"""Where codes and tokens are posted. The second is the name of earlier releases."""
OWN_SITES: Final = ("same-origin", "none")
"""What a browser says in ``Sec-Fetch-Site`` of a request that no other web site began."""


class Refusal(NamedTuple):
    """Why a request is refused. ``status``: of HTTP."""

    status: int
    why: str


class Origins:
    """The names under which the page is asked. ``url``: the page as browsers reach it."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self.is_tls = parts.scheme == "https"
        self.name = parts.hostname or ""
        self.port = parts.port or (443 if self.is_tls else 80)

    def refusal(self, method: str, path: str, headers: Mapping[str, str]) -> Refusal | None:
        """Why a request is refused; None: it is answered. ``headers``: by names in lower case."""
        host = headers.get("host", "")
        if not self._is_own(host):
            return Refusal(421, "this name is not a name of the page: see --web-url")
        if method not in SAFE and method != "POST":
            return Refusal(405, "the page answers GET and POST only")
        if method == "POST" and KEY_HEADER in headers and "origin" not in headers:
            return None
        origin, site = headers.get("origin"), headers.get("sec-fetch-site", "none")
        # A browser sends the origin of each form. A program that signs in has none, and no cookie.
        is_program = path in SIGN_IN_PATHS and site in OWN_SITES
        if method == "POST" and origin is None and not is_program:
            return Refusal(403, "a change comes from the page itself: its Origin is missing")
        if origin is not None and origin != self.origin(host):
            return Refusal(403, "another web site may not ask this page")
        if path == "/live" and site not in OWN_SITES:
            return Refusal(403, "another web site may not listen to this page")
        return None

    def origin(self, host: str) -> str:
        """The origin of the page under a name."""
        return f"{'https' if self.is_tls else 'http'}://{host}"

    def takes_secrets(self, host: str) -> bool:
        """Whether a token may be typed at the page under this name: behind TLS, or on the machine
        of the browser."""
        return self.is_tls or _name_of(host) in LOOPBACK

    def _is_own(self, host: str) -> bool:
        name = _name_of(host)
        return bool(name) and (name == self.name or name in LOOPBACK)


def _name_of(host: str) -> str:
    """The name in a ``Host`` header without its port; "": it is not valid."""
    try:
        parts = urlsplit(f"//{host}")
        port = parts.port
    except ValueError:
        return ""
    plain = parts.netloc == host and not parts.path and parts.username is None and port != 0
    return (parts.hostname or "") if plain else ""
