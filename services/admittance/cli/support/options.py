"""Options of every command: server, namespace, output format.

The options may stand before or after the command name; an option after the name wins.
"""

import os
import signal
from collections.abc import Callable, Coroutine, Iterable, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import wraps
from inspect import Parameter, Signature, signature
from typing import Annotated, Any, Final, TypeAlias

import typer

from admittance.cli.support.errors import BadInput
from admittance.runtime.nats import contexts
from admittance.runtime.nats.connection_options import (
    DEFAULT_URL,
    OPTIONS,
    URL_VARIABLE,
    VARIABLES,
    BadOptions,
    ConnectionOptions,
    connection_options,
    server_url,
)

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


NatsOption = Annotated[
    str | None,
    typer.Option(
        "--nats",
        metavar="URL",
        help="The NATS server. Default: $ADMIT_NATS_URL, or the current context's, or "
        f"{DEFAULT_URL}",
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
        help="Output format of commands that show something. Default: a table",
        show_choices=True,
        rich_help_panel="Global options",
    ),
]


_HELP: Final = {
    "creds": "Credentials file: a JWT with its seed, or an NKey seed.",
    "user": "User of the server; needs --password-file or $ADMIT_NATS_PASSWORD.",
    "password_file": "File with the password.",
    "token_file": "File with the token.",
    "tls_ca": "Certificates of your authority, instead of the system's.",
    "tls_cert": "Client certificate.",
    "tls_key": "Key of the client certificate.",
    "tls_first": "The server requires the TLS handshake first.",
}


Command: TypeAlias = Callable[..., Any]


def _connection_parameters(hidden: bool) -> list[Parameter]:
    """The options of the connection. ``hidden``: the help of the command shows only ``--creds``;
    `admit --help` shows all.
    """
    found = []
    for name, option in OPTIONS.items():
        flag = name == "tls_first"
        about = typer.Option(
            option,
            metavar=None if flag else "NAME" if name == "user" else "FILE",
            help=f"{_HELP[name]} Default: ${VARIABLES[name]}",
            hidden=hidden and name != "creds",
            rich_help_panel="Global options",
        )
        shape = Annotated[bool, about] if flag else Annotated[str | None, about]
        default = False if flag else None
        found.append(
            Parameter(f"nats_{name}", Parameter.KEYWORD_ONLY, default=default, annotation=shape)
        )
    return found


def with_connection_options(hidden: bool = True) -> Callable[[Command], Command]:
    """Gives a command the options of the connection. `call_of` reads their values from the
    context."""
    added = _connection_parameters(hidden)

    def decorate(command: Command) -> Command:
        own = list(signature(command, eval_str=True).parameters.values())

        @wraps(command)
        def both(**typed: Any) -> Any:
            for one in added:
                typed.pop(one.name)
            return command(**typed)

        _declare(both, [*own, *added])
        return both

    return decorate


def _declare(function: Any, parameters: list[Parameter]) -> None:
    """Makes typer use ``parameters`` as the parameters of a function."""
    found = [one.replace(kind=Parameter.KEYWORD_ONLY) for one in parameters]
    function.__signature__ = Signature(found)
    function.__annotations__ = {one.name: one.annotation for one in found}


def outer_call(
    nats: str | None,
    namespace: str | None,
    output: Output | None,
    environ: Mapping[str, str] = os.environ,
    given: Mapping[str, Any] | None = None,
) -> Call:
    """The call from the environment and the options before the command name. ``given``: the typed
    options, those of the connection under names like ``nats_creds``.
    """
    start = Call(environ=environ)
    # The variable of the server URL is not read by typer's option, since the environment would then
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
    output: Output | None = None,
    given: Mapping[str, Any] | None = None,
) -> Call:
    """Returns the call with the given options in place of its own. Raises BadInput for an empty
    option.
    """
    if namespace == "":
        raise BadInput("-n/--namespace is empty")
    if namespace is not None:
        from admittance.api.names import label_error

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
        output=output or call.output,
        given={**call.given, **typed},
    )


def call_of(
    ctx: typer.Context,
    nats: str | None = None,
    namespace: str | None = None,
    output: Output | None = None,
) -> Call:
    """Returns the call from the context and the options after the command name."""
    outer = ctx.find_root().obj
    start = outer if isinstance(outer, Call) else Call()
    return settle(start, nats, namespace, output, ctx.params)


def call_options(
    ctx: typer.Context,
    nats: NatsOption = None,
    namespace: NamespaceOption = None,
    output: OutputOption = None,
) -> Call:
    """Declares the global options of a command that lists objects; returns the call."""
    return call_of(ctx, nats, namespace, output)


def call_options_without_output(
    ctx: typer.Context, nats: NatsOption = None, namespace: NamespaceOption = None
) -> Call:
    """Declares the global options of a command without an output format; returns the call. Raises
    BadInput if an output format is given before the command name."""
    call = call_of(ctx, nats, namespace)
    if call.output is not Output.TABLE:
        raise BadInput(f"`admit {ctx.info_name}` has no output formats: leave out -o {call.output}")
    return call


def with_options(options: Callable[..., Any] = call_options) -> Callable[[Command], Command]:
    """Gives a command the parameters of ``options`` in place of its first parameter, which gets the
    result of ``options``."""
    shared = list(signature(options).parameters.values())
    added = _connection_parameters(hidden=True)

    def decorate(command: Command) -> Command:
        _, *own = signature(command).parameters.values()

        @wraps(command)
        def both(**typed: Any) -> Any:
            for one in added:
                typed.pop(one.name)
            first = options(**{one.name: typed.pop(one.name) for one in shared})
            return command(first, **typed)

        _declare(both, [*own, *shared, *added])
        return both

    return decorate


def key_values(words: Iterable[str] | None, option: str) -> dict[str, str]:
    """``KEY=VALUE`` words as a dict. Raises BadInput."""
    found: dict[str, str] = {}
    for word in words or ():
        key, equals, value = word.partition("=")
        if not key or not equals:
            raise BadInput(f'{option} "{word}" is not KEY=VALUE')
        if found.setdefault(key, value) != value:
            raise BadInput(f"{option} {key} is given twice, as {found[key]!r} and as {value!r}")
    return found


def run(work: Coroutine[Any, Any, int | None]) -> None:
    """Runs the work of a command on an event loop and exits with the status that the work
    returns.
    """
    # If Ctrl-C comes before the work starts, Python would warn that the coroutine never ran.
    with closing(work), closing(_cancelled_by_sigterm(work)) as whole:
        # asyncio is imported late: its import would take half of the time of help and completion.
        import asyncio

        raise_on_interrupt()
        try:
            status = asyncio.run(whole)
        except asyncio.CancelledError:
            status = TERMINATED
    if status:
        raise typer.Exit(status)


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


def run_forever(work: Coroutine[Any, Any, int | None]) -> None:
    """Runs a service on a faster event loop, which takes longer to load, and exits with the status
    that the service returns.
    """
    with closing(work):
        import asyncio

        import uvloop

        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            status = runner.run(work)
    if status:
        raise typer.Exit(status)


def raise_on_interrupt() -> None:
    """Makes Ctrl-C raise KeyboardInterrupt from now on, so that a command ends in order. Before a
    command calls this function, the handler of `main` ends the process at once on Ctrl-C.
    """
    with suppress(ValueError):  # Only the main thread may set signal handlers.
        signal.signal(signal.SIGINT, signal.default_int_handler)
