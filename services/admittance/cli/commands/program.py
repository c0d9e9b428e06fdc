"""Global options and exit statuses.

Exit status: 0 done, 1 the answer is no, 2 the input is wrong. An error is one line on standard
error, without a traceback; with ADMIT_DEBUG set, the error of a bug has a traceback.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Annotated, Any, Final

import typer
from typer.exceptions import TyperException

from admittance.cli.commands.tree import CommandGroup, add_commands
from admittance.cli.support.errors import INTERRUPTED, BadInput, CliError, lines_of
from admittance.cli.support.options import (
    NamespaceOption,
    NatsOption,
    OutputOption,
    outer_call,
    with_connection_options,
)
from admittance.runtime.process.variables import unknown_variable

ERRORS_MAX: Final = 100
"""The greatest number of error lines that one call prints; a last line has the number of errors
that are left out.
"""


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"admit {version('admittance')}")
        raise typer.Exit()


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


def app_for(words: Sequence[str]) -> typer.Typer:
    """The program with the commands that ``words`` need, as `tree.add_commands` chooses them."""
    app = typer.Typer(
        name="admit",
        cls=CommandGroup,
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(admit)
    add_commands(app, words)
    return app


def invoke(arguments: Sequence[str] | None = None) -> int:
    """Runs one command line and returns its exit status; errors are printed, not raised."""
    command: Any = typer.main.get_command(app_for(_words(arguments)))
    try:
        if "_ADMIT_COMPLETE" not in os.environ and (wrong := unknown_variable(os.environ)):
            raise BadInput(wrong)
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
            _complain(error, _with_help(error, message.replace(": Value error, ", ": ")))
        return error.exit_code
    except (KeyboardInterrupt, typer.Abort):
        return INTERRUPTED
    except BrokenPipeError:
        # The reader of the pipe on standard output has closed the pipe. If stdout were not
        # replaced, Python would report the closed pipe once more at exit.
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115, PTH123
        return 0
    except Exception as error:
        if _is_expected(error):
            _complain(error)
            return 1
        if os.environ.get("ADMIT_DEBUG"):
            raise
        if isinstance(error, PermissionError) and error.filename:
            # A path below a folder that the user may not search cannot even be looked for.
            _complain(error, f"cannot read {error.filename}: {error.strerror}")
            return 1
        _complain(
            error, f"{type(error).__name__}: {error}; this is a bug, ADMIT_DEBUG=1 shows where"
        )
        return 1


def _with_help(error: TyperException, message: str) -> str:
    """The message of a usage error, with the command that shows the right usage."""
    context = getattr(error, "ctx", None)
    if context is None:
        return message
    joint = " " if message.endswith("?") else "; "
    return f"{message.removesuffix('.')}{joint}`{context.command_path} --help` shows the usage"


def _is_expected(error: Exception) -> bool:
    """Whether the error is an AdmittanceError. The module of AdmittanceError loads the NATS client,
    so this function does not import the module: if the error is an AdmittanceError, the code that
    raised it has imported the module.
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
    """The arguments of this call; while the shell completes a word, the words of the command line
    so far.
    """
    if arguments is None and (line := os.environ.get("COMP_WORDS")):
        return line.split()[1:]
    return list(sys.argv[1:] if arguments is None else arguments)
