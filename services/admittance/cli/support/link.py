"""The connection of a command to the bus: the server of the call, with a note if it is another one
than the user may expect.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from admittance.cli.support import output
from admittance.cli.support.options import Call, UrlFrom
from admittance.client.arguments.spelling import Spelling
from admittance.client.errors import BadInput
from admittance.runtime.nats import contexts
from admittance.runtime.nats.contexts import BadContext

if TYPE_CHECKING:
    from admittance.client.requests.link import Link

IN_COMMANDS = Spelling(
    queue="-q",
    namespace="-n",
    in_namespace="-n {}",
    anyway="--anyway",
    image="--image",
    env="--env",
    inputs="--input",
    outputs="--output",
    check="--check ",
    message="--message",
    user="--as",
    labels="-l",
    states="--state",
    sort_by="--sort-by",
    signal="--signal",
    array="--array",
    fail_fast="--fail-fast",
    after="--after",
    after_unmet="--after-unmet",
)
"""The options of commands."""


@asynccontextmanager
async def link(call: Call) -> AsyncIterator[Link]:
    """Opens a connection to the server of the call. Raises BadInput or SetupError that says what to
    do."""
    # These modules are imported late: they load the NATS client, and help needs none.
    import nats.errors

    from admittance.client.requests.link import Link
    from admittance.runtime.bus.bus import Bus
    from admittance.runtime.errors import AdmittanceError, NoServer
    from admittance.runtime.telemetry import logger

    check_url(call.url)
    # No warnings are logged, so that the error is the only line about a problem.
    logger.errors_only("admit")
    call = with_running_server(call)
    try:
        bus = await Bus.connect(call.url, name="admit", access=call.connection)
    except NoServer as error:
        if call.url_from is not UrlFrom.CONTEXT:
            raise
        name = contexts.current_name(call.environ)
        raise NoServer(
            f"{error} (the server of the context {name}: `admit context list` shows others, "
            "`admit context use NAME` chooses one)"
        ) from None
    try:
        yield Link(
            bus,
            shown_url=call.shown_url,
            namespace=call.namespace,
            has_login=call.has_login,
            trace=call.environ.get("TRACEPARENT", ""),
            spelled=IN_COMMANDS,
        )
    except nats.errors.Error as error:
        raise AdmittanceError(f"the connection to {call.shown_url} failed: {error}") from error
    finally:
        await bus.close()


def with_running_server(call: Call) -> Call:
    """The call, with the server of another context if the current one was not chosen by the user
    and its server is gone. If several servers run and the user chose none, prints which one is
    used.
    """
    env = call.environ
    try:
        if call.url_from is not UrlFrom.CONTEXT or contexts.is_chosen(env):
            return call
        current = contexts.current(env)
        if current is None or not contexts.is_own(current) or len(contexts.names(env)) < 2:
            return call
        running = contexts.running(env)
    except BadContext:
        return call  # The error is reported when the login of the connection is read.
    if not running or running == [current]:
        return call
    used = current if current in running else running[0]
    several = f"{len(running)} servers run" if len(running) > 1 else "the current context's is gone"
    folder = f", data folder {used.data_dir}" if used.data_dir else ""
    output.note(
        f"note: used the context {used.name} ({used.url}{folder}): {several}; "
        "`admit context use NAME` chooses one"
    )
    return call if used is current else replace(call, url=used.url, url_from=UrlFrom.OPTION)


def check_url(url: str) -> None:
    """Raises BadInput if url is not the URL of a NATS server."""
    from admittance.runtime.nats.server_url import BadUrl, read_urls

    try:
        read_urls(url)
    except BadUrl as error:
        raise BadInput(f"--nats {error}; it looks like nats://host:4222") from None
