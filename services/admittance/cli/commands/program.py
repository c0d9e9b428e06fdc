"""Runs command lines of `admit`: the global options, exit statuses, and the text of errors.

Exit status: 0 done, 1 the answer is no, 2 the input is wrong. Errors of commands are those of the
client. An error is one line on standard error, without a traceback; with ADMIT_DEBUG set, the error
of a bug has a traceback.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Sequence
from typing import Any, Final

import click
from click.exceptions import Exit, NoArgsIsHelpError

from admittance.cli.commands.declare import ALL, global_options
from admittance.cli.support.options import outer_call
from admittance.cli.support.output import clean
from admittance.cli.table import LazyCommands
from admittance.client.errors import BadInput, ClientError, one_line
from admittance.runtime.process.variables import unknown_variable

INTERRUPTED: Final = 130
"""Exit status after Ctrl-C, as shells give it."""
ERRORS_MAX: Final = 100
"""The greatest number of error lines that one call prints; a last line has the number of errors
that are left out.
"""
COMPLETE: Final = "_ADMIT_COMPLETE"
"""The variable by which a shell asks for the words that may come next."""
HELP_WIDTH_MAX: Final = 120
FULL: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""The errors of a write for which there is no room."""


def _version(ctx: click.Context, _param: click.Parameter, wanted: bool) -> None:
    if wanted and not ctx.resilient_parsing:
        from importlib.metadata import version

        click.echo(f"admit {version('admittance')}")
        ctx.exit()


class _Program(LazyCommands):
    def invoke(self, ctx: click.Context) -> Any:
        given = ctx.params
        ctx.obj = outer_call(given["nats"], given["namespace"], given["output"], given=given)
        return super().invoke(ctx)


def program() -> LazyCommands:
    """The command `admit`."""
    version = click.Option(
        ["--version"],
        is_flag=True,
        is_eager=True,
        expose_value=False,
        callback=_version,
        help="Print the version.",
    )
    return _Program(
        name="admit",
        params=[*global_options(ALL, hidden=False), version],
        help="Admittance: quota first, then every check, and only then the start.",
        no_args_is_help=True,
        context_settings={
            "help_option_names": ["-h", "--help"],
            "max_content_width": HELP_WIDTH_MAX,
        },
    )


def invoke(arguments: Sequence[str] | None = None) -> int:
    """Runs one command line and returns its exit status; errors are printed, not raised."""
    try:
        if instruction := os.environ.get(COMPLETE):
            from admittance.cli.commands.completion import answer

            return answer(program(), instruction)
        if wrong := unknown_variable(os.environ):
            raise BadInput(wrong)
        words = list(sys.argv[1:] if arguments is None else arguments)
        with program().make_context("admit", words) as ctx:
            result = ctx.command.invoke(ctx)
        sys.stdout.flush()
        return result if isinstance(result, int) else 0
    except Exit as error:
        return error.exit_code
    except ClientError as error:
        _complain(error)
        return error.status
    except NoArgsIsHelpError as error:
        click.echo(error.format_message())
        return error.exit_code
    except click.ClickException as error:
        _complain(error, _with_help(error, error.format_message()))
        return error.exit_code
    except KeyboardInterrupt:
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
        if isinstance(error, OSError) and error.errno in FULL:
            _complain(error, f"cannot write {error.filename or 'the output'}: {error.strerror}")
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


def _with_help(error: click.ClickException, message: str) -> str:
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
    if not lines and isinstance(error, ClientError):
        lines = tuple(error.lines)
    texts = lines or (one_line(str(error)) or type(error).__name__,)
    for line in texts[:ERRORS_MAX]:
        sys.stderr.write(f"error: {clean(one_line(line))}\n")
    if len(texts) > ERRORS_MAX:
        sys.stderr.write(f"error: and {len(texts) - ERRORS_MAX:,} more like these\n")
