"""The web page: of `admit up`, as a process of its own, and of `admit serve web`."""

from __future__ import annotations

import asyncio
import itertools
import os
from collections.abc import Iterator
from contextlib import suppress
from typing import Final

import msgspec
import structlog

from admittance.cli.support import output
from admittance.cli.support.link import check_url
from admittance.cli.support.options import Call
from admittance.cli.up.options import Options
from admittance.client.errors import BadInput
from admittance.runtime.bus.bus import Bus
from admittance.runtime.errors import AdmittanceError, SetupError
from admittance.runtime.nats.connection_options import ConnectionOptions
from admittance.runtime.nats.opening import is_open
from admittance.runtime.process import web_page
from admittance.runtime.process.service_child import run_module
from admittance.runtime.process.supervise import ServiceTask
from admittance.runtime.process.web_page import MODULE, PageFile, PageStart
from admittance.services import PAGE

TLS: Final = ("tls_ca", "tls_cert", "tls_key", "tls_first")

log = structlog.get_logger()


class OwnPage:
    """The web page of `admit up`. Its socket listens from the beginning, so that its address can be
    printed before its process is ready. ``gives_codes``: False if `admit up` does not
    make the users of the server: people sign in with tokens there."""

    def __init__(self, options: Options, *, gives_codes: bool) -> None:
        self._listens = web_page.listening(
            options.web or web_page.DEFAULT_ADDRESS, or_free=options.web is None
        )
        own = web_page.url_of(self._listens)
        self.url = web_page.checked_url(options.web_url) if options.web_url else own
        self._code = web_page.new_code() if gives_codes else ""
        self._key = web_page.new_code() if gives_codes else ""
        self._data_dir = options.data_dir

    @property
    def link(self) -> str:
        """The address of the page; it signs in, if the page gives codes."""
        return web_page.link(self.url, self._code) if self._code else self.url

    def task(self, nats: str, access: ConnectionOptions, credentials: str) -> ServiceTask:
        """The page's process as a task of `supervise`. ``access``: TLS of its connections.
        ``credentials``: of the code."""
        local = web_page.url_of(self._listens)
        web_page.write_page_file(
            self._data_dir,
            PageFile(url=self.url, local=local, key=self._key, has_users=bool(credentials)),
        )
        start = PageStart(
            socket=self._listens.fileno(),
            url=self.url,
            nats=nats,
            tls=tls_of(access),
            key=self._key,
            code=self._code,
            credentials=credentials,
        )
        starts, files = starts_of(start), [self._listens.fileno()]

        async def run(serves: asyncio.Event) -> None:
            # The socket listens already, so a browser that is early waits for the process.
            serves.set()
            errand = msgspec.json.encode(next(starts))
            await run_module(PAGE.name, MODULE, os.environ, errand=errand, files=files)

        return ServiceTask(PAGE.name, run)

    def close(self) -> None:
        """Closes the socket, and removes the file that names the page."""
        self._listens.close()
        with suppress(OSError):
            (self._data_dir / web_page.FILE).unlink(missing_ok=True)


def starts_of(first: PageStart) -> Iterator[PageStart]:
    """What the page's process gets at each of its starts. After a crash it gets no code, since the
    code may have been used: `admit web` prints a new link."""
    yield first
    yield from itertools.repeat(msgspec.structs.replace(first, code=""))


def own_page(options: Options, *, gives_codes: bool) -> OwnPage | None:
    """The page of `admit up`; None: it has none. ``gives_codes``: its link signs in. Raises
    BadInput."""
    if options.no_web:
        return None
    if not web_page.is_installed():
        output.note(f"note: {web_page.MISSING}")
        return None
    try:
        return OwnPage(options, gives_codes=gives_codes)
    except SetupError as error:
        raise BadInput(str(error)) from None


async def serve(call: Call, options: Options) -> int:
    """Serves the page until a stop signal. On a server without users, prints a link that signs
    in."""
    check_url(call.url)
    if not web_page.is_installed():
        raise BadInput(web_page.MISSING)
    try:
        url = web_page.checked_url(options.web_url) if options.web_url else ""
        trust = web_page.checked_trust(options.trust_header or "", options.people, options.proxy)
        listens = web_page.listening(options.web or web_page.DEFAULT_ADDRESS)
    except SetupError as error:
        raise BadInput(str(error)) from None
    url = url or web_page.url_of(listens)
    code = web_page.new_code() if await _has_no_users(call) else ""
    output.say(f"web {web_page.link(url, code) if code else url}")
    output.flush()
    access = ConnectionOptions(**tls_of(call.connection))  # type: ignore[arg-type]
    await PAGE.load()(listens, call.url, access, url=url, code=code, trust=trust)
    return 0


async def _has_no_users(call: Call) -> bool:
    """Whether the server is there and demands no credentials."""
    if call.has_login:
        return False
    try:
        bus = await Bus.connect(call.url, name="admit-web", access=call.connection)
    except AdmittanceError:
        return False
    try:
        return is_open(bus.nc)
    finally:
        await bus.close()


def tls_of(access: ConnectionOptions) -> dict[str, str | bool]:
    """The options of TLS without the login."""
    return {name: value for name in TLS if (value := getattr(access, name))}
