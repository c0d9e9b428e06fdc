"""Opens the connection of a client: which server, which login, which namespace."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import fields
from typing import Final

from admittance.api.fields.names import label_error
from admittance.client.errors import BadInput, NotAllowed, Unavailable
from admittance.client.requests.link import Link
from admittance.runtime import errors as bus_errors
from admittance.runtime.bus.bus import Bus
from admittance.runtime.nats import contexts
from admittance.runtime.nats.connection_options import (
    BadOptions,
    ConnectionOptions,
    connection_options,
    server_url,
)
from admittance.runtime.nats.contexts import BadContext
from admittance.runtime.nats.server_url import BadUrl, read_urls, shown
from admittance.runtime.telemetry.logger import silent


def namespace_of(given: str | None, default: str) -> str:
    """The namespace of a call. Raises BadInput for a name that no namespace can have."""
    if given is None:
        return default
    if error := label_error(given):
        raise BadInput(f"namespace: {error}")
    return given


def scope_of(
    given: str | None, default: str, *, all_namespaces: bool, name: str | None = None
) -> str | None:
    """The namespace of a call; None: all. Raises BadInput for arguments that contradict each
    other."""
    if not all_namespaces:
        return namespace_of(given, default)
    for argument, value in (("namespace", given), ("name", name)):
        if value is not None:
            raise BadInput(f"{argument} does not go with all_namespaces")
    return None


FILES: Final = ("creds", "password_file", "token_file", "tls_ca", "tls_cert", "tls_key")
"""The options that name a file."""


def _check_options(access: ConnectionOptions) -> None:
    """Raises BadInput for an option of a wrong type, and for a missing file."""
    for option in fields(access):
        value = getattr(access, option.name)
        if value is not None and not isinstance(value, str | bool | os.PathLike):
            raise BadInput(f"{option.name} of the connection options is not a text")
    for name in FILES:
        path = getattr(access, name)
        if path and not os.path.isfile(path):  # noqa: PTH113  (False for a text that is no path)
            raise BadInput(f"{name} {path!r}: there is no such file")


async def open_link(
    url: str | None,
    context: str | None,
    options: ConnectionOptions | None,
    namespace: str,
    environ: Mapping[str, str],
) -> Link:
    """A connection; the arguments are those of `Client.connect`."""
    space = namespace_of(namespace, "")
    for name, value in environ.items():
        if not isinstance(value, str):
            raise BadInput(f"environ: the value of {name} is not a text")
    if url is not None and context is not None:
        raise BadInput("url and context both name a server: give one")
    try:
        if context is not None:
            chosen = contexts.context_named(environ, context)
            server = chosen.url
            access = options or ConnectionOptions(**chosen.access)
        else:
            server = server_url(environ, url)
            access = options or connection_options(environ, url=url)
        read_urls(server)
        _check_options(access)
    except (BadOptions, BadContext, BadUrl) as error:
        raise BadInput(str(error)) from None
    try:
        with silent():
            bus = await Bus.connect(server, name="admittance-client", access=access)
    except bus_errors.AccessDenied as error:
        raise NotAllowed(str(error)) from None
    except bus_errors.AdmittanceError as error:
        raise Unavailable(str(error)) from None
    return Link(
        bus,
        shown_url=shown(server),
        namespace=space,
        has_login="@" in server or access.has_login,
        trace=environ.get("TRACEPARENT", ""),
    )
