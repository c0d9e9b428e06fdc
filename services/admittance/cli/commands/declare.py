"""Declares commands: a function with options and arguments becomes a command of `admit`.

    @command()
    @argument("KIND", "Plural, singular or short name.", complete=kinds)
    @option("--queue -q QUEUE", "Only workloads of this queue.", complete=queues)
    @option("--watch -w", "Print one line per change until interrupted.")
    async def get(call: Call, kind: str, queue: str | None, watch: bool) -> int | None:
        \"\"\"Show all objects of a kind.\"\"\"

A declaration has the words of the help: those that users type, then the name of the value. An
option without a name of a value is a flag. The function gets a value under the longest word. Its
docstring is the help, and its result the exit status; None is 0. A coroutine runs on an event loop.

A module with a command imports little at its top, and imports the client inside its functions:
help and completion import the module, too.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from functools import partial
from inspect import getdoc
from typing import Any, Final, TypeVar

import click
from click.core import ParameterSource

from admittance.cli.support.options import Call, Output, call_of, run, run_forever
from admittance.client.errors import BadInput
from admittance.runtime.nats.connection_options import DEFAULT_URL, OPTIONS, VARIABLES

F = TypeVar("F", bound=Callable[..., Any])
Complete = Callable[[click.Context, str], Sequence[str]]
"""Returns the words that may stand where the given characters begin one."""
Text = str | Callable[[], str]
"""A text of the help. A function is called only for the help, so it may import more."""

WORDS: Final = "admittance.words"
"""The key of a click context for the words after the name of the command."""
GLOBAL: Final = "Global options"
SERVER: Final = ("nats",)
PLACE: Final = ("nats", "namespace")
ALL: Final = ("nats", "namespace", "output")
"""The global options that a command takes: the server with its credentials, the namespace, the
output format."""


class _InSection(click.Parameter):
    """A parameter. ``section``: the heading of the help below which the parameter is shown.
    ``about``: the text about the parameter."""

    section: str
    about: Text = ""

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        self.help = self.about() if callable(self.about) else self.about
        return super().get_help_record(ctx)


class _Option(_InSection, click.Option):
    section = "Options"


class _Argument(_InSection, click.Argument):  # type: ignore[misc]
    section = "Arguments"


class _Text(click.ParamType[str]):
    """A text. An empty text that a user typed is refused: it would count as no text, for example
    where a variable of a script has no value."""

    name = "text"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if value == "":
            assert param is not None and param.name is not None and ctx is not None
            if ctx.get_parameter_source(param.name) is ParameterSource.COMMANDLINE:
                raise BadInput(f"{'/'.join(sorted(param.opts, key=len))} is empty")
        return str(value)


class _Number(click.ParamType[int | float]):
    """A number in a range; ``kind``: int or float."""

    def __init__(self, kind: type[int | float], least: float | None, most: float | None) -> None:
        self.name = "number"
        self._kind, self._least, self._most = kind, least, most

    def convert(
        self, value: Any, param: click.Parameter | None, _ctx: click.Context | None
    ) -> int | float:
        least, most = self._least, self._most
        try:
            number = self._kind(value)
        except (ValueError, OverflowError):
            number = None
        above = number is not None and (least is None or least <= number)
        if number is not None and above and (most is None or number <= most):
            return number
        assert param is not None
        limits = "" if least is None else f", at least {least:g}"
        if least is not None and most is not None:
            limits = f" from {least:g} to {most}"
        what = "a whole number" if self._kind is int else "a number"
        raise BadInput(f'{max(param.opts, key=len)} "{value}" must be {what}{limits}')

    def limits(self) -> str:
        """The range as the help shows it; "": any number."""
        if self._least is None:
            return ""
        return f"{self._least:g}<=x<={self._most}" if self._most else f"x>={self._least:g}"


def _declared(function: Callable[..., Any]) -> list[click.Parameter]:
    parameters: list[click.Parameter] = function.__dict__.setdefault("declared", [])
    return parameters


def _completing(complete: Complete | None) -> Any:
    if complete is None:
        return None

    def words(ctx: click.Context, _param: click.Parameter, start: str) -> list[str]:
        return [word for word in complete(ctx, start) if word.startswith(start)]

    return words


def option(
    words: str,
    about: Text,
    *,
    name: str = "",
    kind: Any = str,
    least: float | None = None,
    most: float | None = None,
    default: Any = None,
    many: bool = False,
    count: bool = False,
    choices: Sequence[str] = (),
    complete: Complete | None = None,
    variable: str | None = None,
    required: bool = False,
    hidden: bool = False,
    section: str = "Options",
) -> Callable[[F], F]:
    """Adds an option to a command. ``name``: of the function's parameter. ``many``: may be
    repeated; the value is a tuple. ``variable``: the environment variable that stands for it.
    ``kind`` int or float: a number from ``least`` to ``most``."""
    spelled = [word for word in words.split() if word.startswith("-")]
    values = [word for word in words.split() if not word.startswith("-")]
    flag = not values and not count and not choices
    more: dict[str, Any] = {}
    if kind in (int, float) and not count:
        more["type"] = number = _Number(kind, least, most)
        if limits := number.limits():
            about = f"{about}  [{limits}]"
    elif choices:
        more["type"] = click.Choice(choices)
    elif not (flag or count):
        more["type"] = _Text() if kind is str else click.types.FuncParamType(kind)
    if flag:
        more |= {"is_flag": True, "default": None if "/" in words else False}
    elif default not in (None, ""):
        more |= {"default": default, "show_default": True}
    elif default == "":
        more["default"] = ""
    if variable is not None:
        more |= {"envvar": variable, "show_envvar": True}
    made = _Option(
        [*([name] if name else []), *spelled],
        metavar=values[0] if values else None,
        help=about if isinstance(about, str) else " ",
        multiple=many,
        count=count,
        required=required,
        hidden=hidden,
        shell_complete=_completing(complete),
        **more,
    )
    made.about, made.section = about, section

    def add(function: F) -> F:
        _declared(function).append(made)
        return function

    return add


def argument(
    words: str,
    about: Text,
    *,
    name: str = "",
    kind: Any = str,
    required: bool | None = None,
    several: bool = False,
    complete: Complete | None = None,
) -> Callable[[F], F]:
    """Adds an argument to a command: ``NAME`` is required, ``[NAME]`` is not, and ``NAME...``, as
    any argument with ``several``, is one or more words, as a tuple."""
    several = several or words.endswith("...")
    made = _Argument(
        [name or re.sub(r"[^A-Z]+", "", words).lower()],
        metavar=words,
        help=about if isinstance(about, str) else " ",
        nargs=-1 if several else 1,
        required=not words.startswith("[") if required is None else required,
        type=click.STRING if kind is str else click.types.FuncParamType(kind),
        shell_complete=_completing(complete),
    )
    made.about = about

    def add(function: F) -> F:
        _declared(function).append(made)
        return function

    return add


def stacked(*declarations: Callable[[F], F]) -> Callable[[F], F]:
    """Several options and arguments that commands share, as one decorator."""

    def add(function: F) -> F:
        for declaration in reversed(declarations):
            declaration(function)
        return function

    return add


# The global options. ----------------------------------------------------------------------


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
_VALUES: Final = {"user": " NAME", "tls_first": ""}


def global_options(
    takes: Sequence[str],
    *,
    hidden: bool = True,
    without: Sequence[Output] = (),
    short: bool = False,
) -> list[click.Parameter]:
    """The global options that are named in ``takes``. ``hidden``: the help of the command shows of
    the options of the connection only ``--creds``; `admit --help` shows all. ``without``: output
    formats that ``-o`` does not take. ``short``: ``-o`` has no long form."""
    made = {
        "nats": option(
            "--nats URL",
            "The NATS server. Default: $ADMIT_NATS_URL, or the current context's, or "
            f"{DEFAULT_URL}",
            section=GLOBAL,
        ),
        "namespace": option(
            "--namespace -n NAME", "The namespace. Default: default", section=GLOBAL
        ),
        "output": option(
            "-o" if short else "--output -o",
            "Output format of commands that show something. Default: a table",
            name="output",
            choices=[str(shape) for shape in Output if shape not in without],
            section=GLOBAL,
        ),
    }
    connection = [
        option(
            f"{word}{_VALUES.get(name, ' FILE')}",
            f"{_HELP[name]} Default: ${VARIABLES[name]}",
            name=f"nats_{name}",
            hidden=hidden and name != "creds",
            section=GLOBAL,
        )
        for name, word in OPTIONS.items()
    ]

    def holder() -> None:
        """Holds the options."""

    for add in (*(made[name] for name in takes), *connection):
        add(holder)
    return _declared(holder)


# Commands. --------------------------------------------------------------------------------


class Help(click.Command):
    """A command with a section for each kind of parameters in its help."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        sections: dict[str, list[tuple[str, str]]] = {"Arguments": [], "Options": []}
        for param in self.get_params(ctx):
            if (record := param.get_help_record(ctx)) is not None:
                sections.setdefault(getattr(param, "section", "Options"), []).append(record)
        write_sections(formatter, sections.items())

    def format_arguments(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Does nothing: `format_options` writes the arguments, too."""


def write_sections(
    formatter: click.HelpFormatter, sections: Iterable[tuple[str, list[tuple[str, str]]]]
) -> None:
    """Writes the lists of the help, each with its title; empty lists are left out."""
    for title, rows in sections:
        if rows:
            with formatter.section(title):
                formatter.write_dl(rows)


def summary(command: click.Command) -> str:
    """The first paragraph of the help of a command, in one line."""
    return " ".join((command.help or "").split("\n\n")[0].split())


class Command(Help):
    """A command of `admit`. ``function``: what it runs."""

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        takes: Sequence[str],
        without: Sequence[Output],
        own_output: bool,
        forever: bool,
        negative_numbers: bool,
        short_output: bool,
        amend: Callable[[click.Context], None] | None,
    ) -> None:
        shared = global_options(takes, without=without, short=short_output) if takes else []
        super().__init__(
            name=function.__name__.removesuffix("_").replace("_", "-"),
            params=[*reversed(_declared(function)), *shared],
            help=getdoc(function),
            context_settings={"ignore_unknown_options": True} if negative_numbers else None,
        )
        self.function = function
        self._shared = [param.name for param in shared]
        self._refuses_output = bool(takes) and "output" not in takes and not own_output
        self._without = without
        self._forever = forever
        self._amend = amend

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.meta[WORDS] = tuple(args)
        return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> int:
        """Runs the command; returns its exit status."""
        if self._amend is not None:
            self._amend(ctx)
        values = dict(ctx.params)
        given = {name: values.pop(name) for name in self._shared}
        first: list[Call] = []
        if self._shared:
            first = [call_of(ctx, given)]
            if self._refuses_output and first[0].output is not Output.TABLE:
                raise BadInput(
                    f"`{ctx.command_path}` has no output formats: leave out -o {first[0].output}"
                )
            if first[0].output in self._without:
                raise BadInput(f"`{ctx.command_path}` has no -o {first[0].output}")
        result: Any = self.function(*first, **values)
        if isinstance(result, Coroutine):
            result = (run_forever if self._forever else run)(result)
        return int(result or 0)


def command(
    takes: Sequence[str] = ALL,
    *,
    without: Sequence[Output] = (),
    own_output: bool = False,
    forever: bool = False,
    negative_numbers: bool = False,
    short_output: bool = False,
    amend: Callable[[click.Context], None] | None = None,
) -> Callable[[Callable[..., Any]], Command]:
    """Makes a command of a function. ``takes``: the global options, which the function gets as its
    first parameter, a `Call`; (): it gets none. ``without``: output formats that it does not have.
    ``own_output``: the function declares ``-o`` itself. ``forever``: it is a service.
    ``negative_numbers``: -5 is a word and no option. ``short_output``: the output format is ``-o``
    only, because ``--output`` is an option of the command. ``amend``: changes the parsed values of
    the command line, as a script with options does; the words are ``ctx.meta[WORDS]``."""
    return partial(
        Command,
        takes=takes,
        without=without,
        own_output=own_output,
        forever=forever,
        negative_numbers=negative_numbers,
        short_output=short_output,
        amend=amend,
    )


class Group(Help, click.Group):
    """A group of commands, such as `admit auth`."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        Help.format_options(self, ctx, formatter)
        write_sections(formatter, self.sections(ctx))

    def list_commands(self, _ctx: click.Context) -> list[str]:
        return list(self.commands)

    def sections(self, ctx: click.Context) -> Iterator[tuple[str, list[tuple[str, str]]]]:
        """The names and summaries of the commands, by section."""
        commands = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        yield (
            "Commands",
            [(name, summary(command)) for name, command in commands if command is not None],
        )


def group(about: str, *commands: Command) -> Group:
    """A group of commands, each under its own name."""
    return Group(
        help=about,
        no_args_is_help=True,
        commands={str(command.name): command for command in commands},
    )
