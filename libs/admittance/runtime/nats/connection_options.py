"""Server, login and TLS of a connection to the bus: from options, else from ``ADMIT_NATS_*``
variables, else from the user's contexts.

This module imports no client library, because short commands read their options with it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from admittance.runtime.nats import contexts

DEFAULT_URL: Final = "nats://127.0.0.1:4222"
URL_VARIABLE: Final = "ADMIT_NATS_URL"
VARIABLES: Final[Mapping[str, str]] = {
    "creds": "ADMIT_NATS_CREDS",
    "user": "ADMIT_NATS_USER",
    "password": "ADMIT_NATS_PASSWORD",
    "password_file": "ADMIT_NATS_PASSWORD_FILE",
    "token": "ADMIT_NATS_TOKEN",
    "token_file": "ADMIT_NATS_TOKEN_FILE",
    "tls_ca": "ADMIT_NATS_TLS_CA",
    "tls_cert": "ADMIT_NATS_TLS_CERT",
    "tls_key": "ADMIT_NATS_TLS_KEY",
    "tls_first": "ADMIT_NATS_TLS_FIRST",
}
"""The environment variable of each field of `ConnectionOptions`."""
OPTIONS: Final[Mapping[str, str]] = {
    "creds": "--creds",
    "user": "--nats-user",
    "password_file": "--password-file",
    "token_file": "--token-file",
    "tls_ca": "--tls-ca",
    "tls_cert": "--tls-cert",
    "tls_key": "--tls-key",
    "tls_first": "--tls-first",
}
"""The command line option of each field of `ConnectionOptions`. Every user of the machine can read
the options of a process, so no option takes a password or a token itself."""
PASSWORDS: Final = frozenset({"password", "password_file"})
LOGINS: Final = frozenset({"creds", "user", "token", "token_file"}) | PASSWORDS
WAYS: Final = ("creds", "creds_text", "user", "token", "token_file")
"""The fields of which each begins a login of its own."""
YES_OR_NO: Final = {"1": True, "true": True, "0": False, "false": False, "": False}


class BadOptions(ValueError):
    """The connection options contradict each other. The text of the error contains no secret."""


@dataclass(frozen=True, kw_only=True)
class ConnectionOptions:
    """How a connection logs in, and its TLS. With no field set, a connection logs in as the address
    of nats-server says.

    ``creds``: a file with a user's JWT and its seed, or with an NKey seed. ``creds_text``: the
    content of such a file, for a program that holds it in memory only; it has neither an option nor
    a variable. ``tls_ca``: a file with
    the certificates of trusted authorities, in place of the system's. ``tls_cert`` and ``tls_key``:
    files of the client certificate and its key; without ``tls_key`` the file ``tls_cert`` holds
    both. ``tls_first``: the TLS handshake comes before the server's first message. All files are
    read at each connection, so a renewed file needs no restart. Raises BadOptions.
    """

    creds: str | None = None
    creds_text: str | None = field(default=None, repr=False)
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    password_file: str | None = None
    token: str | None = field(default=None, repr=False)
    token_file: str | None = None
    tls_ca: str | None = None
    tls_cert: str | None = None
    tls_key: str | None = None
    tls_first: bool = False

    def __post_init__(self) -> None:
        ways = [option for option in WAYS if getattr(self, option)]
        if len(ways) > 1:
            raise BadOptions(f"{_shown(ways[0])} and {_shown(ways[1])} are both given: give one")
        passwords = [option for option in ("password", "password_file") if getattr(self, option)]
        if len(passwords) > 1:
            both = f"{_shown('password')} and {_shown('password_file')}"
            raise BadOptions(f"{both} are both given: give one")
        if passwords and not self.user:
            raise BadOptions(f"{_shown(passwords[0])} needs {_shown('user')}")
        if self.user and not passwords:
            raise BadOptions(
                f"{_shown('user')} needs {_shown('password_file')}, or {VARIABLES['password']}"
            )
        if self.tls_key and not self.tls_cert:
            raise BadOptions(f"{_shown('tls_key')} needs {_shown('tls_cert')}")

    @property
    def has_login(self) -> bool:
        """Whether these options contain a login, which replaces a login in the address."""
        return any(getattr(self, option) for option in WAYS)

    @property
    def demands_tls(self) -> bool:
        """Whether the options refuse a server without TLS."""
        return bool(self.tls_ca or self.tls_cert or self.tls_first)

    def environment(self, base: Mapping[str, str]) -> dict[str, str]:
        """Returns the environment ``base`` with the variables of these options added, for a child
        process. Credentials in memory are not among them.
        """
        variables = {name: value for name, value in base.items() if name not in VARIABLES.values()}
        for name, variable in VARIABLES.items():
            if value := getattr(self, name):
                variables[variable] = "1" if value is True else value
        return variables


NO_OPTIONS: Final = ConnectionOptions()


def names_a_login(env: Mapping[str, str], url: str = "") -> bool:
    """Whether a variable or the address ``url`` names a login, so that the login of the server's
    context is not used. A client certificate is a login."""
    named = any(env.get(VARIABLES[login]) for login in (*LOGINS, "tls_cert"))
    return named or "@" in url or "@" in env.get(URL_VARIABLE, "")


def server_url(env: Mapping[str, str] = os.environ, url: str | None = None) -> str:
    """The address of the server: ``url``, else ADMIT_NATS_URL, else that of the current context,
    else the default. Raises BadOptions for a damaged context."""
    if text := url or env.get(URL_VARIABLE):
        return text
    try:
        context = contexts.current(env)
    except contexts.BadContext as error:
        raise BadOptions(str(error)) from None
    return DEFAULT_URL if context is None else context.url


def connection_options(
    env: Mapping[str, str] = os.environ,
    *,
    url: str | None = None,
    given: Mapping[str, Any] | None = None,
) -> ConnectionOptions:
    """The options of one process. ``given``: options by field of `ConnectionOptions`; they take
    precedence over environment variables. ``url``: the address, unless a variable or the current
    context names it. Any login in ``given`` or ``url`` replaces the whole login in the variables.
    Without a login, login and TLS are those of the server's context. Raises BadOptions.
    """
    values = {name: value for name, value in (given or {}).items() if value not in (None, False)}
    for name, value in values.items():
        if value == "":
            raise BadOptions(f"{OPTIONS.get(name, name)} is empty")
    taken = set(VARIABLES) - LOGINS
    if not LOGINS & values.keys() and "@" not in (url or ""):
        taken |= LOGINS
    elif "user" in values and not PASSWORDS & values.keys():
        taken |= PASSWORDS
    for name in taken:
        if text := env.get(VARIABLES[name]):
            values.setdefault(name, text)
    first = values.get("tls_first", False)
    if isinstance(first, str):
        if first.lower() not in YES_OR_NO:
            raise BadOptions(f"{VARIABLES['tls_first']}={first!r} is not 1 or 0")
        values["tls_first"] = YES_OR_NO[first.lower()]
    server = server_url(env, url)
    if not LOGINS & values.keys() and "@" not in server:
        values = {**_of_context(env, server), **values}
    return ConnectionOptions(**values)


def _of_context(env: Mapping[str, str], server: str) -> dict[str, Any]:
    """Login and TLS of the context of the server."""
    try:
        context = contexts.context_of(env, server)
    except contexts.BadContext as error:
        raise BadOptions(str(error)) from None
    return {} if context is None else context.access


def _shown(name: str) -> str:
    option, variable = OPTIONS.get(name), VARIABLES.get(name, name)
    return f"{option} ({variable})" if option else variable
