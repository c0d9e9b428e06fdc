"""``admit fetch``: writes the files that a job left to this machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from admittance.cli.commands.arguments import workload_command
from admittance.cli.commands.declare import option
from admittance.cli.support import output
from admittance.cli.support.link import link
from admittance.cli.support.options import Call
from admittance.client import requests

if TYPE_CHECKING:
    from admittance.client.requests.files import FetchedFile


@workload_command()
@option("--output-dir DIR", "Where the files are written. Default: the working folder.")
async def fetch(call: Call, name: str, output_dir: str | None) -> int:
    """Write the files that a job left, of those that its submission named with --output.

    The status is 1 if a file is not there; the others are written all the same.
    """
    from pathlib import Path

    def show(file: FetchedFile) -> None:
        if file.path is None:
            output.error(f"{file.name}: {file.problem}")
        else:
            output.outcome(str(file.path), "fetched")

    async with link(call) as bus:
        folder = Path(output_dir or ".")
        fetched = await requests.files.fetch(bus, name, call.namespace, folder, show)
    return int(any(file.problem for file in fetched))
