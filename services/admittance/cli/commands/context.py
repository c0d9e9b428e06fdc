"""admit context: list, use, show.

Imports happen when a command runs, so that help and completion are fast.
"""

import os
from typing import Annotated

import typer

from admittance.cli.commands.system import PANEL
from admittance.cli.support.options import Call, with_options


def _names(incomplete: str) -> list[str]:
    from admittance.runtime.nats import contexts

    return [name for name in contexts.names(os.environ) if name.startswith(incomplete)]


@with_options()
def list_(call: Call) -> None:
    """List the contexts; a star marks the current context."""
    from admittance.cli.auth import contexts

    contexts.list_contexts(call)


def use(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A context.", autocompletion=_names)],
) -> None:
    """Make a context the current context."""
    from admittance.cli.auth import contexts

    contexts.use(name)


@with_options()
def show(
    call: Call,
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="[NAME]", help="Default: the current context.", autocompletion=_names
        ),
    ] = None,
) -> None:
    """Show the server, the credentials file and the TLS files of a context."""
    from admittance.cli.auth import contexts

    contexts.show(call, name)


def register(app: typer.Typer) -> None:
    """Adds the group `admit context` to ``app``."""
    group = typer.Typer(
        name="context",
        help="Servers and credentials that commands use without options.",
        no_args_is_help=True,
        rich_help_panel=PANEL,
    )
    for name, command in (("list", list_), ("use", use), ("show", show)):
        group.command(name)(command)
    app.add_typer(group, name="context")
