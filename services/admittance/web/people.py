"""People signed in by a proxy: a header names the person, a folder has the credentials."""

from __future__ import annotations

from collections.abc import Mapping
from ipaddress import ip_address
from typing import Final

from admittance.runtime.errors import AccessDenied, SetupError
from admittance.runtime.nats.login_tokens import credentials_of_token
from admittance.runtime.nats_server.secret_files import read_own
from admittance.runtime.process.web_page import Trust, credentials_file
from admittance.web.sessions import NotSignedIn

UNKNOWN: Final = "This name signs in no user."


class People:
    """The people of ``--trust-header``."""

    def __init__(self, trust: Trust) -> None:
        self._header = trust.header.lower()
        self._trust = trust
        self._proxies = frozenset(ip_address(proxy) for proxy in trust.proxies)

    def name_in(self, peer: str, headers: Mapping[str, str]) -> str | None:
        """The name of the person in the headers of a request; None: they name none. ``peer``: the
        address that the request comes from. Raises NotSignedIn for a name from an address that is
        not that of a proxy."""
        name = headers.get(self._header)
        if name is None:
            return None
        try:
            address = ip_address(peer)
        except ValueError:
            address = None
        if address is None or not self._is_proxy(address):
            raise NotSignedIn(f"The header {self._trust.header} is taken from the proxy only.")
        return name

    def credentials_of(self, name: str) -> str:
        """The credentials of a person. Raises NotSignedIn, alike for an unknown name and for a
        file that cannot be used."""
        try:
            text = read_own(credentials_file(self._trust.folder, name)).decode()
            return credentials_of_token(text)
        except (SetupError, AccessDenied, UnicodeDecodeError):
            raise NotSignedIn(UNKNOWN) from None

    def _is_proxy(self, address: object) -> bool:
        if self._proxies:
            return address in self._proxies
        return bool(getattr(address, "is_loopback", False))
