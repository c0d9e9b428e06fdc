"""``admit web``: a link that signs in to the web page of `admit up`."""

from __future__ import annotations

import os
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

import msgspec

from admittance.cli.commands.declare import PLACE, command, option
from admittance.cli.support import output
from admittance.cli.support.options import Call, data_folder
from admittance.client.errors import RequestFailed, Unavailable

if TYPE_CHECKING:
    from admittance.runtime.process.web_page import PageFile

ANSWER_SECONDS: Final = 5.0


class _Answer(msgspec.Struct, frozen=True):
    code: str


@command(PLACE)
@option(
    "--data-dir DIR",
    "The data folder of `admit up`. Default: $ADMIT_DATA_DIR, that of the current context, or "
    "~/.local/share/admittance",
    kind=Path,
)
async def web(call: Call, data_dir: Path | None) -> None:
    """Print a fresh link that signs in to the web page of `admit up`, once, within ten minutes.

    It signs in as the admin of that `admit up`, for twelve hours.
    """
    from admittance.cli.auth import auth
    from admittance.cli.up.lock import ADMIN, new_link_key
    from admittance.runtime.nats_server.auth_store import USERS, AuthStore
    from admittance.runtime.process.web_page import link, read_page_file

    folder = _folder(data_dir)
    page = read_page_file(folder)
    credentials = ""
    # An `admit up --insecure` may lie on a folder with users of an earlier start.
    if page.has_users and (folder / "auth" / USERS).exists():
        store = AuthStore(folder / "auth")
        credentials = new_link_key(store, ADMIN)
        await auth.tell_servers(call, store, added=True)
    output.say(link(page.url, _code(page, credentials)))


def _folder(typed: Path | None) -> Path:
    """The data folder of the page."""
    from admittance.runtime.nats.contexts import BadContext, current

    if typed is None and not os.environ.get("ADMIT_DATA_DIR"):
        try:
            context = current(os.environ)
        except BadContext:
            context = None
        if context is not None and context.data_dir:
            return Path(context.data_dir)
    return data_folder(typed)


def _code(page: PageFile, credentials: str) -> str:
    """A further code of the page. Raises Unavailable and RequestFailed."""
    from admittance.runtime.process.web_page import KEY_HEADER

    at = urlsplit(page.local)
    connection = HTTPConnection(at.hostname or "", at.port, timeout=ANSWER_SECONDS)
    headers = {"host": urlsplit(page.url).netloc, KEY_HEADER: page.key}
    body = msgspec.json.encode({"credentials": credentials})
    try:
        connection.request("POST", "/code", body, headers)
        answer = connection.getresponse()
        text = answer.read()
    except (OSError, HTTPException):
        raise Unavailable(
            f"the web page at {page.local} does not answer: look whether its `admit up` runs"
        ) from None
    finally:
        connection.close()
    if answer.status != 200:
        why = text.decode(errors="replace").strip()
        raise RequestFailed(f"the web page at {page.local} refuses: {why}")
    return msgspec.json.decode(text, type=_Answer).code
