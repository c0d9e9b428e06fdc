"""Options of every command: server, namespace, output format.

They may stand before or after the command name; those after it win.
"""

from __future__ import annotations

import os
from collections.abc import Coroutine, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Annotated, Any, Final

import typer

from admittance.cli.support.errors import BadInput

DEFAULT_URL: Final = "nats://127.0.0.1:4222"
URL_VARIABLE: Final = "ADMIT_NATS_URL"
DEFAULT_NAMESPACE: Final = "default"


class Output(StrEnum):
    """Output formats. ``table`` is for people."""

    TABLE = "table"
    WIDE = "wide"
    JSON = "json"
    YAML = "yaml"
    NAME = "name"


class UrlFrom(StrEnum):
    """Source of the server URL."""

    OPTION = "--nats"
    ENVIRONMENT = "ADMIT_NATS_URL"
    DEFAULT = "the default"


@dataclass(frozen=True, kw_only=True)
class Call:
    """The global options of one call. ``url_from``: the source of the URL."""

    url: str = DEFAULT_URL
    url_from: UrlFrom = UrlFrom.DEFAULT
    namespace: str = DEFAULT_NAMESPACE
    output: Output = Output.TABLE

    @property
    def shown_url(self) -> str:
        """The URL without passwords, for people."""
        from admittance.runtime.server_url import shown

        return shown(self.url)


NatsOption = Annotated[
    str | None,
    typer.Option(
        "--nats",
        metavar="URL",
        help=f"The NATS server. Default: $ADMIT_NATS_URL, or {DEFAULT_URL}",
        rich_help_panel="Global options",
    ),
]
NamespaceOption = Annotated[
    str | None,
    typer.Option(
        "--namespace",
        "-n",
        metavar="NAME",
        help=f"The namespace. Default: {DEFAULT_NAMESPACE}",
        rich_help_panel="Global options",
    ),
]
OutputOption = Annotated[
    Output | None,
    typer.Option(
        "--output",
        "-o",
        help="Output format. Default: a table",
        show_choices=True,
        rich_help_panel="Global options",
    ),
]


def outer_call(
    nats: str | None,
    namespace: str | None,
    output: Output | None,
    environ: Mapping[str, str] = os.environ,
) -> Call:
    """The call from the environment and the options before the command name."""
    start = Call()
    # Read here and not by the option: otherwise the environment would override an option that
    # stands before the command name.
    if url := environ.get(URL_VARIABLE):
        start = replace(start, url=url, url_from=UrlFrom.ENVIRONMENT)
    return settle(start, nats, namespace, output)


def settle(
    call: Call, nats: str | None, namespace: str | None, output: Output | None = None
) -> Call:
    """call with the given options applied. Raises BadInput for an empty value."""
    if namespace == "":
        raise BadInput("-n/--namespace is empty")
    if nats == "":
        raise BadInput("--nats is empty; it looks like nats://host:4222")
    if nats is not None:
        call = replace(call, url=nats, url_from=UrlFrom.OPTION)
    return replace(call, namespace=namespace or call.namespace, output=output or call.output)


def call_of(
    ctx: typer.Context,
    nats: str | None = None,
    namespace: str | None = None,
    output: Output | None = None,
) -> Call:
    """The call from ctx and the options after the command name."""
    outer = ctx.find_root().obj
    return settle(outer if isinstance(outer, Call) else Call(), nats, namespace, output)


def run(work: Coroutine[Any, Any, int | None]) -> None:
    """Runs work on an event loop and exits with its status."""
    with closing(work):  # Ctrl-C before it starts: Python would warn that it never ran.
        import asyncio  # late: it would take half of the time of help and completion

        status = asyncio.run(work)
    if status:
        raise typer.Exit(status)


def run_forever(work: Coroutine[Any, Any, int | None]) -> None:
    """`run` for services: on the faster loop, which takes longer to load."""
    with closing(work):
        import asyncio

        import uvloop

        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            status = runner.run(work)
    if status:
        raise typer.Exit(status)
