"""Global options, the tree of commands, and exit statuses.

Exit status: 0 done, 1 the answer is no, 2 the input is wrong. An error is one line on standard
error, without a traceback; with ADMIT_DEBUG set a bug shows its traceback.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from copy import copy
from typing import Annotated, Any, Final

import typer
from typer.exceptions import TyperException

from admittance.cli.commands import lifecycle, objects, system, workloads
from admittance.cli.support.errors import INTERRUPTED, CliError, lines_of
from admittance.cli.support.options import NamespaceOption, NatsOption, OutputOption, outer_call

ERRORS_MAX: Final = 100
"""Error lines that a call prints; one more line counts the rest."""

app = typer.Typer(
    name="admit",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
objects.register(app)
workloads.register(app)
lifecycle.register(app)
system.register(app)


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"admit {version('admittance')}")
        raise typer.Exit()


@app.callback()
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
    ctx.obj = outer_call(nats, namespace, output)


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
        # No message: typer printed the help because no command was given.
        if message := error.format_message():
            # The option validator puts its own prefix before our text.
            _complain(error, message.replace(": Value error, ", ": "))
        return error.exit_code
    except (KeyboardInterrupt, typer.Abort):
        return INTERRUPTED
    except BrokenPipeError:
        # The reader of the pipe has closed it. Without this, Python would complain at exit.
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
    """Whether the error is an AdmittanceError. Its module loads the NATS client, so it is not
    imported here: the code that raised the error has imported it."""
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
    """The arguments, or the line that the shell wants to complete."""
    if arguments is None and (line := os.environ.get("COMP_WORDS")):
        return line.split()[1:]
    return list(sys.argv[1:] if arguments is None else arguments)


def _app_for(words: Sequence[str]) -> typer.Typer:
    """The app with only the commands that occur in words: building all of them takes longer than
    most commands run. Returns the whole app if no command is named first."""
    named = {_name_of(info): info for info in app.registered_commands}
    meant = set(words[: words.index("--")] if "--" in words else words) & named.keys()
    first = words[0] if words else ""
    if not meant or not (first.startswith("-") or first in named):
        return app
    small = copy(app)
    small.registered_commands = [info for name, info in named.items() if name in meant]
    return small


def _name_of(info: Any) -> str:
    return str(info.name or info.callback.__name__.replace("_", "-"))
