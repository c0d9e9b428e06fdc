"""The global options of a call, how a command runs, and values of options.

The global options may stand before or after the command name; an option after the name wins.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Coroutine, Iterable, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from admittance.client.errors import BadInput
from admittance.runtime.nats import contexts
from admittance.runtime.nats.connection_options import (
    DEFAULT_URL,
    OPTIONS,
    URL_VARIABLE,
    BadOptions,
    ConnectionOptions,
    connection_options,
    server_url,
)

if TYPE_CHECKING:
    from click import Context

DEFAULT_NAMESPACE: Final = "default"
TERMINATED: Final = 128 + signal.SIGTERM
"""Exit status of a command that SIGTERM ended, as shells give it."""


class Output(StrEnum):
    """Output formats. ``table`` is the format for people, all others are for programs."""

    TABLE = "table"
    WIDE = "wide"
    JSON = "json"
    YAML = "yaml"
    NAME = "name"


class UrlFrom(StrEnum):
    """Where the server URL comes from."""

    OPTION = "--nats"
    ENVIRONMENT = "ADMIT_NATS_URL"
    CONTEXT = "the current context"
    DEFAULT = "the default"


@dataclass(frozen=True, kw_only=True)
class Call:
    """The global options of one call. ``url_from``: the source of the URL. ``given``: the options
    of the connection that the user typed, by field. ``environ``: the environment variables, which
    stand for options that the user did not type.
    """

    url: str = DEFAULT_URL
    url_from: UrlFrom = UrlFrom.DEFAULT
    namespace: str = DEFAULT_NAMESPACE
    output: Output = Output.TABLE
    given: Mapping[str, Any] = field(default_factory=dict)
    environ: Mapping[str, str] = field(
        default_factory=lambda: os.environ, repr=False, compare=False
    )

    @property
    def shown_url(self) -> str:
        """The URL without passwords, for people."""
        from admittance.runtime.nats.server_url import shown

        return shown(self.url)

    @property
    def connection(self) -> ConnectionOptions:
        """Login and TLS of the connection. Raises BadInput if options contradict each other."""
        url = self.url if self.url_from is UrlFrom.OPTION else None
        try:
            return connection_options(self.environ, url=url, given=self.given)
        except BadOptions as error:
            raise BadInput(str(error)) from None

    @property
    def has_login(self) -> bool:
        """Whether the connection logs in. Raises BadInput if options contradict each other."""
        return "@" in self.url or self.connection.has_login


def outer_call(
    nats: str | None,
    namespace: str | None,
    output: str | None,
    environ: Mapping[str, str] = os.environ,
    given: Mapping[str, Any] | None = None,
) -> Call:
    """The call from the environment and the options before the command name. ``given``: the typed
    options, those of the connection under names like ``nats_creds``.
    """
    start = Call(environ=environ)
    # The variable of the server URL is not that of the option, since the environment would then
    # replace an option before the command name.
    if url := environ.get(URL_VARIABLE):
        start = replace(start, url=url, url_from=UrlFrom.ENVIRONMENT)
    elif nats is None:
        # A damaged context is reported when a command connects, so that `admit up` can replace it.
        with suppress(BadOptions):
            url = server_url(environ)
            if contexts.current_name(environ) is not None:
                start = replace(start, url=url, url_from=UrlFrom.CONTEXT)
    return settle(start, nats, namespace, output, given)


def settle(
    call: Call,
    nats: str | None,
    namespace: str | None,
    output: str | None = None,
    given: Mapping[str, Any] | None = None,
) -> Call:
    """Returns the call with the given options in place of its own. BadInput: one is wrong."""
    if namespace is not None:
        from admittance.api.fields.names import label_error

        if error := label_error(namespace):
            raise BadInput(f"-n/--namespace: {error}")
    if nats == "":
        raise BadInput("--nats is empty; it looks like nats://host:4222")
    if nats is not None:
        call = replace(call, url=nats, url_from=UrlFrom.OPTION)
    values = {name: (given or {}).get(f"nats_{name}") for name in OPTIONS}
    typed = {name: value for name, value in values.items() if value not in (None, False)}
    return replace(
        call,
        namespace=namespace or call.namespace,
        output=Output(output) if output else call.output,
        given={**call.given, **typed},
    )


def call_of(ctx: Context, given: Mapping[str, Any]) -> Call:
    """The call from the context and ``given``, the global options after the command name."""
    outer = ctx.find_root().obj
    start = outer if isinstance(outer, Call) else Call()
    return settle(start, given.get("nats"), given.get("namespace"), given.get("output"), given)


def key_values(words: Iterable[str] | None, option: str) -> dict[str, str]:
    """``KEY=VALUE`` words as a dict. Raises BadInput."""
    values: dict[str, str] = {}
    for word in words or ():
        key, equals, value = word.partition("=")
        if not key or not equals:
            raise BadInput(f'{option} "{word}" is not KEY=VALUE')
        if values.setdefault(key, value) != value:
            raise BadInput(f"{option} {key} is given twice, as {values[key]!r} and as {value!r}")
    return values


def run(work: Coroutine[Any, Any, int | None]) -> int | None:
    """Runs the work of a command on an event loop; returns its exit status."""
    # If Ctrl-C comes before the work starts, Python would warn that the coroutine never ran.
    with closing(work), closing(_cancelled_by_sigterm(work)) as whole:
        # asyncio is imported late: its import would take half of the time of help and completion.
        import asyncio

        raise_on_interrupt()
        try:
            status = asyncio.run(whole)
        except asyncio.CancelledError:
            status = TERMINATED
    return status


async def _cancelled_by_sigterm(work: Coroutine[Any, Any, int | None]) -> int | None:
    """Awaits the work of a command. SIGTERM cancels the work as Ctrl-C does, so that a server that
    the command has started does not outlive the command."""
    import asyncio

    task = asyncio.current_task()
    assert task is not None
    # Only the main thread may set signal handlers.
    with suppress(ValueError, RuntimeError, NotImplementedError):
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    return await work


def run_forever(work: Coroutine[Any, Any, int | None]) -> int | None:
    """Runs a service on a faster event loop, which takes longer to load; returns its status."""
    with closing(work):
        import asyncio

        import uvloop

        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            status = runner.run(work)
    return status


def raise_on_interrupt() -> None:
    """Makes Ctrl-C raise KeyboardInterrupt from now on, so that a command ends in order. Before a
    command calls this function, the handler of `main` ends the process at once on Ctrl-C.
    """
    with suppress(ValueError):  # Only the main thread may set signal handlers.
        signal.signal(signal.SIGINT, signal.default_int_handler)


def data_folder(typed: Path | None) -> Path:
    """The data folder: the typed folder, else the default folder."""
    if typed is not None:
        return typed
    chosen = os.environ.get("ADMIT_DATA_DIR")
    if chosen:
        return Path(chosen)
    return Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local/share") / "admittance"
