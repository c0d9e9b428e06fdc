"""Commands backup and restore."""

from pathlib import Path
from typing import Annotated

import typer

from admittance.cli.commands.system import PANEL
from admittance.cli.support.options import Call, call_options_without_output, run, with_options


@with_options(call_options_without_output)
def backup(
    call: Call,
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="The file to write; -: standard output.")
    ],
) -> None:
    """Write all facts, objects, claims and timers of a running deployment to one file.

    Needs a login with the role backup, and stops nothing. Job output and credentials are not part
    of the file. See docs/backup.md.
    """
    from admittance.cli.backup.backup import backup

    run(backup(call, file))


@with_options(call_options_without_output)
def restore(
    call: Call,
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="A file of `admit backup`; -: standard input.")
    ],
    replicas: Annotated[
        int,
        typer.Option(
            metavar="N",
            help="Copies of each stream in a cluster. Default: as in the backup",
            min=0,
            max=5,
            show_default=False,
        ),
    ] = 0,
    data_dir: Annotated[
        Path | None,
        typer.Option(
            "--data-dir",
            metavar="DIR",
            help="Make this data folder of `admit up`, in place of a running server.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Restore a backup into an empty server, before the services start, or into a data folder.

    Changes nothing if the file is damaged, if streams of Admittance exist, or if services run.
    """
    from admittance.cli.backup.restore import restore

    run(restore(call, file, replicas, data_dir))


def register(app: typer.Typer) -> None:
    """Adds the commands `backup` and `restore` to ``app``."""
    for command in (backup, restore):
        app.command(rich_help_panel=PANEL)(command)
