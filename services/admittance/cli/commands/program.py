"""Global options, the tree of commands, and exit statuses.

Exit status: 0 done, 1 the answer is no, 2 the input is wrong. An error is one line on standard
error, without a traceback; with ADMIT_DEBUG set, the error of a bug has a traceback.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from copy import copy
from inspect import getdoc
from typing import Annotated, Any, Final

import typer
from typer.core import TyperCommand, TyperGroup
from typer.exceptions import TyperException

from admittance.cli.commands import auth, context, lifecycle, objects, system, workloads
from admittance.cli.support.errors import INTERRUPTED, BadInput, CliError, lines_of
from admittance.cli.support.options import (
    NamespaceOption,
    NatsOption,
    Output,
    OutputOption,
    outer_call,
    with_connection_options,
)

ERRORS_MAX: Final = 100
"""The most error lines that one call prints; a last line says how many more there are."""


class _Conversion:
    """Converts the values of one parameter. Values that need no conversion are returned unchanged:
    typer would import pydantic to convert them, which takes longer than most commands run.
    """

    def __init__(self, param: Any) -> None:
        self._annotation = param.type_descriptor.annotation

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        if value is None:
            return () if param.multiple or param.nargs == -1 else None
        if self._annotation is str and isinstance(value, str):
            return value
        if self._annotation == list[str] and not isinstance(value, str):
            return list(value)
        if self._annotation is Output and value in list(Output):
            return Output(value)
        if self._annotation in (int, float):
            with suppress(ValueError, OverflowError):
                number = self._annotation(value)
                low, high = param.min, param.max
                if (low is None or low <= number) and (high is None or number <= high):
                    return number
            if not ctx.resilient_parsing:
                raise BadInput(_range_error(param, value, whole=self._annotation is int))
        # Typer converts values of types that `_Conversion` does not know, and reports their errors.
        param._runtime_param = None
        return param.get_runtime_param().coerce(value, param=param, ctx=ctx)


def _range_error(param: Any, value: Any, *, whole: bool) -> str:
    """The error text for a number outside the range of an option."""
    low, high = param.min, param.max
    limits = "" if low is None else f", at least {low:g}"
    if low is not None and high is not None:
        limits = f" from {low:g} to {high}"
    number = "a whole number" if whole else "a number"
    return f'{max(param.opts, key=len)} "{value}" must be {number}{limits}'


class _QuickParameters:
    """Gives each parameter a `_Conversion`. If a later typer ignores `_runtime_param`, typer
    converts all values itself, which is slower.
    """

    def get_params(self, ctx: Any) -> list[Any]:
        params: list[Any] = super().get_params(ctx)  # type: ignore[misc]
        for param in params:
            if getattr(param, "_runtime_param", None) is None:
                param._runtime_param = _Conversion(param)
        return params


class Command(_QuickParameters, TyperCommand):
    """The class of every command of ``admit``: a typer command with parameters that are parsed
    quickly."""


class CommandGroup(_QuickParameters, TyperGroup):
    """A group of commands, such as the program ``admit`` itself."""


app = typer.Typer(
    name="admit",
    cls=CommandGroup,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
objects.register(app)
workloads.register(app)
lifecycle.register(app)
system.register(app)
auth.register(app)
context.register(app)


def _commands(group: typer.Typer) -> Iterator[Any]:
    """The commands of the group and of the groups in it."""
    yield from group.registered_commands
    for info in group.registered_groups:
        if info.typer_instance is not None:
            yield from _commands(info.typer_instance)


for _group in app.registered_groups:
    _group.cls = CommandGroup
for _info in _commands(app):
    _info.cls = Command
    # Joins the lines of each paragraph: typer would print the line breaks of the docstring.
    _paragraphs = (getdoc(_info.callback) or "").split("\n\n")
    _info.help = "\n\n".join(" ".join(one.split()) for one in _paragraphs)


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"admit {version('admittance')}")
        raise typer.Exit()


@app.callback()
@with_connection_options(hidden=False)
def admit(
    ctx: typer.Context,
    nats: NatsOption = None,
    namespace: NamespaceOption = None,
    output: OutputOption = None,
    version: Annotated[
        bool,
        typer.Option("--version", callback=_version, is_eager=True, help="Print the version."),
    ] = False,
) -> None:
    """Admittance: quota first, then every check, and only then the start."""
    del version
    ctx.obj = outer_call(nats, namespace, output, given=ctx.params)


def invoke(arguments: Sequence[str] | None = None) -> int:
    """Runs one command line and returns its exit status; errors are printed, not raised."""
    command: Any = typer.main.get_command(_app_for(_words(arguments)))
    try:
        result = command.main(
            args=None if arguments is None else list(arguments),
            prog_name="admit",
            standalone_mode=False,
        )
        sys.stdout.flush()
        return result if isinstance(result, int) else 0
    except CliError as error:
        _complain(error)
        return error.status
    except TyperException as error:
        # The message is empty if no command was given: then typer has printed the help.
        if message := error.format_message():
            # The validator of an option puts "Value error, " before its message.
            _complain(error, message.replace(": Value error, ", ": "))
        return error.exit_code
    except (KeyboardInterrupt, typer.Abort):
        return INTERRUPTED
    except BrokenPipeError:
        # The reader of the pipe on standard output has closed the pipe. Python would report that a
        # second time at exit if stdout were not replaced.
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115, PTH123
        return 0
    except Exception as error:
        if _is_expected(error):
            _complain(error)
            return 1
        if os.environ.get("ADMIT_DEBUG"):
            raise
        _complain(
            error, f"{type(error).__name__}: {error}; this is a bug, ADMIT_DEBUG=1 shows where"
        )
        return 1


def _is_expected(error: Exception) -> bool:
    """Whether the error is an AdmittanceError. The module of AdmittanceError loads the NATS client,
    so it is not imported here: if the error is one, the code that raised it has imported the
    module.
    """
    errors = sys.modules.get("admittance.runtime.errors")
    return errors is not None and isinstance(error, errors.AdmittanceError)


def _complain(error: Exception, *lines: str) -> None:
    sys.stdout.flush()
    texts = list(lines or lines_of(error))
    for line in texts[:ERRORS_MAX]:
        sys.stderr.write(f"error: {' '.join(line.split())}\n")
    if len(texts) > ERRORS_MAX:
        sys.stderr.write(f"error: and {len(texts) - ERRORS_MAX:,} more like these\n")


def _words(arguments: Sequence[str] | None) -> list[str]:
    """The arguments; while the shell completes a word, the words of the line so far."""
    if arguments is None and (line := os.environ.get("COMP_WORDS")):
        return line.split()[1:]
    return list(sys.argv[1:] if arguments is None else arguments)


def _app_for(words: Sequence[str]) -> typer.Typer:
    """The app with only the commands that occur in words, since building all commands takes longer
    than most commands run. If the first word is not a command, the app has all commands, without
    their parameters.
    """
    named = {_name_of(info): info for info in app.registered_commands}
    groups = {str(info.name): info for info in app.registered_groups}
    known = named.keys() | groups.keys()
    meant = set(words[: words.index("--")] if "--" in words else words) & known
    first = words[0] if words else ""
    small = copy(app)
    if meant and (first.startswith("-") or first in known):
        small.registered_commands = [info for name, info in named.items() if name in meant]
        small.registered_groups = [info for name, info in groups.items() if name in meant]
    else:
        small.registered_commands = [_without_parameters(info) for info in named.values()]
    return small


def _without_parameters(info: Any) -> Any:
    small = copy(info)
    small.name, small.callback = _name_of(info), lambda: None
    return small


def _name_of(info: Any) -> str:
    return str(info.name or info.callback.__name__.replace("_", "-"))
