"""What every command takes: which bus, which namespace, which shape of answer.

All of it may stand before or behind the command's name; what stands behind wins.
"""

from __future__ import annotations

import os
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Annotated, Any, Final

import typer

from admittance.cli.support.errors import BadInput

DEFAULT_URL: Final = "nats://127.0.0.1:4222"
URL_VARIABLE: Final = "ADMIT_NATS_URL"
DEFAULT_NAMESPACE: Final = "default"


class Output(StrEnum):
    """Shapes of an answer. ``table`` is for people."""

    TABLE = "table"
    WIDE = "wide"
    JSON = "json"
    YAML = "yaml"
    NAME = "name"


class UrlFrom(StrEnum):
    """Who chose the URL of the server."""

    OPTION = "--nats"
    ENVIRONMENT = "ADMIT_NATS_URL"
    DEFAULT = "the default"


@dataclass(frozen=True, kw_only=True)
class Call:
    """One call of the command: the global options, settled.

    ``url_from`` tells who chose the URL.
    """

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
        help="The shape of the answer. Default: a table",
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
    """The call as the options before the command's name and the environment make it."""
    start = Call()
    # Read here and not by the option, so that what is typed before the command's name is not
    # outdone by the environment behind it.
    if url := environ.get(URL_VARIABLE):
        start = replace(start, url=url, url_from=UrlFrom.ENVIRONMENT)
    return settle(start, nats, namespace, output)


def settle(
    call: Call, nats: str | None, namespace: str | None, output: Output | None = None
) -> Call:
    """call with what was typed put in. Raises BadInput for an empty word."""
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
    """The call that ctx and the options behind the command's name make together."""
    outer = ctx.find_root().obj
    return settle(outer if isinstance(outer, Call) else Call(), nats, namespace, output)


def run(work: Coroutine[Any, Any, int | None]) -> None:
    """Does work on an event loop and ends the command with the status it gives."""
    import asyncio  # late: help and completion do without, and it is half of their time

    status = asyncio.run(work)
    if status:
        raise typer.Exit(status)


def run_forever(work: Coroutine[Any, Any, int | None]) -> None:
    """`run` for services: on the faster loop, which takes longer to load."""
    import asyncio

    import uvloop

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        status = runner.run(work)
    if status:
        raise typer.Exit(status)
