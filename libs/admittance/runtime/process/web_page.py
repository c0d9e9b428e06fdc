"""What `admit up`, `admit web` and the process of the web page share: the address of the page, its
one-time codes, and what the page is given when it starts.

This module imports almost nothing: the libraries of the page are loaded in its own process only.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Sequence
from importlib.util import find_spec
from ipaddress import ip_address
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import urlsplit

import msgspec

from admittance.runtime import chance
from admittance.runtime.errors import SetupError
from admittance.runtime.nats_server.secret_files import check_own, read_own, write_secret_file

DEFAULT_ADDRESS: Final = "127.0.0.1:4280"
MODULE: Final = "admittance.web.child"
"""The program of the page in a process of its own."""
FILE: Final = "web.json"
"""The file in the data folder of `admit up` that names its page to `admit web`."""
CODE_BYTES: Final = 16
KEY_HEADER: Final = "admit-key"
"""The header with the secret of `admit web`. A browser sends it to another origin only after a
question that the page never answers."""
LOOPBACK: Final = frozenset({"127.0.0.1", "localhost", "::1"})
MISSING: Final = "the web page needs more packages: pip install 'admittance[web]'"


CREDENTIALS: Final = ".creds"
"""What the name of a person's file in the folder of ``--people`` ends with."""
HEADER_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]{0,99}")
NO_PERSON: Final = frozenset({"authorization", "cookie", "host", "origin"})
"""Headers that browsers set, which can name no person."""


class Trust(NamedTuple):
    """People that a proxy has signed in. ``header``: the header with the name; ``folder``: has a
    file ``NAME.creds`` for each of them; ``proxies``: the addresses of the proxy, (): loopback."""

    header: str
    folder: Path
    proxies: tuple[str, ...] = ()


class PageFile(msgspec.Struct, frozen=True, kw_only=True):
    """How `admit web` reaches the page of `admit up`. ``url``: the page as browsers reach it;
    ``local``: as this machine does. ``key``: the secret that the page accepts for
    a further one-time code. ``has_users``: False with --insecure."""

    url: str
    local: str
    key: str
    has_users: bool = True


class PageStart(msgspec.Struct, frozen=True, kw_only=True):
    """What a page is given when it starts, by a pipe. ``socket``: the number of the open file that
    listens. ``url``: the page as browsers reach it. ``nats``: the address of nats-server; ``tls``:
    the options of TLS of that connection, by field. ``key``: of `PageFile`; "": no further codes.
    ``code``: the first one-time code; "": none. ``credentials``: of the user that the code signs
    in; "": the server demands none.
    """

    socket: int
    url: str
    nats: str
    tls: dict[str, str | bool] = {}
    key: str = ""
    code: str = ""
    credentials: str = ""


def is_installed() -> bool:
    """Whether the packages of the page are installed."""
    return all(find_spec(name) for name in ("starlette", "jinja2", "uvicorn", "sse_starlette"))


def new_code() -> str:
    """A one-time code, which cannot be guessed."""
    return chance.token_hex(CODE_BYTES)


def link(url: str, code: str) -> str:
    """The address that signs in by a one-time code. The code is in the fragment, which a browser
    does not send."""
    return f"{url}/#{code}"


def address_of(text: str) -> tuple[str, int]:
    """Host and port of ``HOST:PORT``. Raises SetupError for any other text."""
    host, colon, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not (host and colon and port.isascii() and port.isdigit()) or int(port) > 65_535:
        raise SetupError(f"the address of the web page must be HOST:PORT, not {text!r}")
    return host, int(port)


def checked_url(text: str) -> str:
    """The address of the page as browsers use it, without a slash at its end. Raises SetupError
    unless it is ``http://HOST[:PORT]`` or ``https://HOST[:PORT]``."""
    try:
        parts = urlsplit(text)
        good = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        good, parts = False, None
    if not good or parts is None or parts.path not in ("", "/") or parts.query or parts.fragment:
        raise SetupError(f"the URL of the web page must be https://HOST, not {text!r}")
    if parts.username is not None:
        raise SetupError("the URL of the web page has a user: leave it out")
    return f"{parts.scheme}://{parts.netloc}"


def checked_trust(header: str, folder: Path | None, proxies: Sequence[str]) -> Trust | None:
    """The people of ``--trust-header``; None: the option was not given. Raises SetupError for a
    value, a folder or a file that cannot be used."""
    if not header:
        if folder is not None or proxies:
            raise SetupError("--people and --proxy go with --trust-header NAME")
        return None
    if not HEADER_NAME.fullmatch(header) or header.lower() in NO_PERSON:
        raise SetupError(f"--trust-header {header!r} is not the name of a header for people")
    if folder is None:
        raise SetupError("--trust-header goes with --people DIR, the folder with their credentials")
    for proxy in proxies:
        try:
            ip_address(proxy)
        except ValueError:
            raise SetupError(f"--proxy {proxy!r} is not an IP address") from None
    try:
        check_own(folder, folder.stat(), "700")
        files = sorted(folder.iterdir())
    except OSError as error:
        raise SetupError(f"cannot read the folder {folder} of --people: {error.strerror}") from None
    for path in files:
        if path.suffix == CREDENTIALS:
            read_own(path)
    return Trust(header, folder, tuple(proxies))


def credentials_file(folder: Path, name: str) -> Path:
    """The credentials file of a person. Raises SetupError for a name that leads out of the
    folder."""
    if not name or name.startswith(".") or "/" in name or not name.isprintable():
        raise SetupError(f"{name!r} names no file of {folder}")
    return folder / f"{name}{CREDENTIALS}"


def listening(address: str, *, or_free: bool = False) -> socket.socket:
    """A socket that listens at ``HOST:PORT``. ``or_free``: at a free port if that one is used.
    Raises SetupError."""
    host, port = address_of(address)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    made = socket.socket(family, socket.SOCK_STREAM)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            made.bind((host, port))
        except OSError:
            if not or_free:
                raise
            made.bind((host, 0))
        made.listen(128)
    except OSError as error:
        made.close()
        raise SetupError(
            f"the web page cannot listen at {address} ({error.strerror or error}): name another "
            "address with --web HOST:PORT"
        ) from None
    return made


def url_of(listens: socket.socket) -> str:
    """The address of a page that listens there, for a browser of this machine."""
    host, port = listens.getsockname()[:2]
    if host in ("0.0.0.0", "::"):
        host = "127.0.0.1"
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def write_page_file(data_dir: Path, page: PageFile) -> None:
    """Writes the file of the page into the data folder. Raises SetupError."""
    write_secret_file(data_dir / FILE, msgspec.json.encode(page).decode() + "\n")


def read_page_file(data_dir: Path) -> PageFile:
    """The page of the `admit up` with this data folder. Raises SetupError."""
    path = data_dir / FILE
    if not path.exists():
        raise SetupError(
            f"{data_dir} has no web page of `admit up`: start that there, or name its folder with "
            "--data-dir. To a page of `admit serve web` sign in with `admit auth token NAME`"
        )
    try:
        return msgspec.json.decode(read_own(path), type=PageFile)
    except (msgspec.MsgspecError, UnicodeError):
        raise SetupError(f"{path} is damaged: restart `admit up`") from None
