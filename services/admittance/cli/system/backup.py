"""``admit backup`` and ``admit restore``."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING

from admittance.cli.commands.declare import PLACE, argument, command, option
from admittance.cli.support import output
from admittance.cli.support.link import link
from admittance.cli.support.options import Call, UrlFrom
from admittance.client.errors import BadInput, NotAllowed, RequestFailed
from admittance.runtime.nats.connection_options import OPTIONS
from admittance.runtime.process.progress import Steps

if TYPE_CHECKING:
    from admittance.runtime.bus.bus import Bus

STANDARD_INPUT = "-"
LOGIN = "a login with the role backup: `admit auth add backup NAME` makes NAME.creds, for --creds"


@command(PLACE)
@argument("FILE", "The file to write; -: standard output.")
async def backup(call: Call, file: str) -> int:
    """Write all facts, objects, claims and timers of a running deployment to one file.

    Needs a login with the role backup, and stops nothing. Job output and credentials are not part
    of the file. See docs/backup.md.
    """
    import asyncio

    from admittance.backup.taking import read_again, write_backup
    from admittance.runtime.bus.streams import NO_STREAM
    from admittance.runtime.errors import AccessDenied, BusRefused, BusUnavailable

    shown = "standard output" if file == STANDARD_INPUT else file
    async with link(call) as bus:
        with open_target(file) as target, Steps("backup") as steps:
            try:
                written = await write_backup(bus.bus, target, steps, output.note)
                await asyncio.to_thread(read_again, target, shown, steps)
            except AccessDenied as error:
                raise NotAllowed(f"{error}; {_needed(bus.bus)}") from None
            except BusRefused as error:
                if error.code == NO_STREAM:
                    raise RequestFailed(
                        f"Admittance was never set up at {call.shown_url}: nothing to back up"
                    ) from None
                raise RequestFailed(f"the server refused the backup: {error}; try again") from None
            except BusUnavailable as error:
                raise RequestFailed(f"the backup is not complete: {error}; try again") from None
    output.note(f"backup of {call.shown_url} in {shown}: {written:,} bytes")
    return 0


def _needed(bus: Bus) -> str:
    """What a login that lacks a right needs for a backup."""
    from admittance.access.missing_right import other_version

    nc = bus.nc
    if nc.role != "backup":
        return f"a backup needs {LOGIN}"
    return other_version(nc.role, nc.user, has_jwt=nc.has_jwt)


@contextmanager
def open_target(path: str) -> Iterator[IO[bytes]]:
    """The file to write, readable only for this user. The file gets the name ``path`` only after
    everything is written; a device or pipe is written directly. Raises BadInput, or RequestFailed
    for a full disk."""
    if path == STANDARD_INPUT:
        if sys.stdout.isatty():
            raise BadInput("a backup is not text: name a file, or redirect standard output")
        with _sentences("standard output"):
            yield sys.stdout.buffer
            sys.stdout.buffer.flush()
        return
    # A file that the path links to is replaced, not the link.
    final = Path(path).resolve()
    try:
        if final.is_dir():
            raise BadInput(f"{path} is a folder: name a file")
        if final.exists() and not final.is_file():
            with _sentences(path), final.open("wb") as file:
                yield file
            return
        handle, made = tempfile.mkstemp(prefix=f".{final.name}.", dir=final.parent)  # mode 0600
    except OSError as error:
        raise BadInput(f"cannot write {path}: {error.strerror or error}") from None
    try:
        with _sentences(path):
            with os.fdopen(handle, "w+b") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            Path(made).replace(final)
    except BaseException:
        with suppress(OSError):
            Path(made).unlink()
        raise


@contextmanager
def _sentences(path: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        why = error.strerror or str(error)
        raise RequestFailed(f"{path}: {why}; the backup was not written") from None


@command(PLACE)
@argument("FILE", "A file of `admit backup`; -: standard input.")
@option(
    "--replicas N",
    "Copies of each stream in a cluster. Default: as in the backup",
    kind=int,
    least=0,
    most=5,
)
@option(
    "--data-dir DIR",
    "Create this data folder of `admit up` instead of restoring into a running server.",
    kind=Path,
)
async def restore(call: Call, file: str, replicas: int | None, data_dir: Path | None) -> int:
    """Restore a backup into an empty server, before the services start, or into a data folder.

    Changes nothing if the file is damaged, if streams of Admittance exist, or if services run.
    """
    import asyncio

    from admittance.backup.data_folder import served_folder
    from admittance.backup.restoring import check_all, refuse_used_server, restore_streams
    from admittance.runtime.errors import AccessDenied

    if data_dir is not None:
        _refuse_options_of_a_server(call, replicas or 0)
    with _source(file) as (name, source), Steps("restore") as steps:
        archive = await asyncio.to_thread(check_all, name, source, steps)
        if data_dir is None:
            async with link(call) as connected:
                try:
                    await refuse_used_server(connected.bus, call.shown_url)
                    await restore_streams(connected.bus, archive, replicas or 0, steps)
                except AccessDenied as error:
                    raise NotAllowed(f"{error}; a restore needs {LOGIN}") from None
            todo = "start the services"
        else:
            async with served_folder(data_dir) as bus:
                await restore_streams(bus, archive, 1, steps)
                steps.begin("on the disk")
            todo = f"`admit up --data-dir {shlex.quote(str(data_dir))}` serves it"
    made = archive.head
    when = f"{made.time:%Y-%m-%d %H:%M:%S} UTC" if made.time is not None else "an unknown time"
    output.note(f"restored the backup of {when} (Admittance {made.version}): {todo}")
    return 0


def _refuse_options_of_a_server(call: Call, replicas: int) -> None:
    """Raises BadInput for options that mean another server than that of a data folder."""
    if call.url_from is UrlFrom.OPTION:
        raise BadInput("--nats and --data-dir are two places to restore to: leave one out")
    if typed := [OPTIONS[name] for name in OPTIONS if call.given.get(name)]:
        raise BadInput(f"{typed[0]} is for a server that runs: leave it out with --data-dir")
    if replicas > 1:
        raise BadInput("a data folder has one server, and so one replica: leave out --replicas")


@contextmanager
def _source(path: str) -> Iterator[tuple[str, IO[bytes]]]:
    """The name and the bytes of the backup. Standard input is copied to a temporary file, since
    the file is checked before it is restored. Raises BadInput."""
    if path == STANDARD_INPUT:
        with tempfile.TemporaryFile() as copy:
            shutil.copyfileobj(sys.stdin.buffer, copy)
            yield "standard input", copy
        return
    try:
        file = open(path, "rb")  # noqa: SIM115, PTH123
    except OSError as error:
        raise BadInput(f"cannot read {path}: {error.strerror or error}") from None
    with file:
        yield path, file
