"""Reads the inputs of runs from the bus into their folders, and stores their outputs there.

Each step can be repeated after a crash: an input has its name when it is complete and checked, and
the list of the outputs is written when all of them are stored.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec
import structlog

from admittance.events.files import OutputFile, output_place
from admittance.job_rules.runner_name import replace_file
from admittance.runner.files.plan import LeftFile, Transfers, WantedInput, outputs_left
from admittance.runner.files.pod_files import INPUTS, LIST, OUTPUTS, STORED
from admittance.runner.host.data_folder import open_plain
from admittance.runner.host.port import RunFiles
from admittance.runtime import chance
from admittance.runtime.bus.bus import Bus
from admittance.runtime.bus.files import (
    CheckedBytes,
    FileChanged,
    FileMissing,
    read_file,
    store_file,
)
from admittance.runtime.errors import BusRefused, BusUnavailable, Full
from admittance.runtime.telemetry.findings import size_of

READING_MAX: Final = 4
"""How many runs read their inputs at once: each takes some MiB of memory."""
AWAY_SECONDS: Final = 1.0
LIST_BYTES: Final = 1 << 20

log = structlog.get_logger(service="runner")
_left: Final = msgspec.json.Decoder(list[LeftFile])
_stored: Final = msgspec.json.Decoder(tuple[OutputFile, ...])


class NoInput(Exception):
    """The error that the inputs of a run can never come; its text is a sentence."""


class FileTransfers:
    """The transfers of one runner. ``limit``: the most bytes of the inputs of a run."""

    def __init__(self, bus: Bus, limit: int) -> None:
        self.limit = limit
        self._bus = bus
        self._slots = asyncio.Semaphore(READING_MAX)
        self._reading: set[str] = set()

    async def bring(self, run: RunFiles) -> bool:
        """Reads the inputs of a run; returns False if another call does it already. A run that is
        told to stop needs none. Raises NoInput, BusRefused, BusUnavailable, and OSError if they
        cannot be written."""
        transfers, key = run.identity.transfers, run.identity.key
        if transfers is None or not transfers.inputs or run.stop_note() is not None:
            return True
        size = sum(file.size for file in transfers.inputs)
        if size > self.limit:
            raise NoInput(
                f"its inputs have {size_of(size)}, and this runner brings {size_of(self.limit)} to "
                "a job (ADMIT_FILE_LIMIT)"
            )
        if key in self._reading:
            return False
        self._reading.add(key)
        try:
            async with self._slots:
                folder = run.path / INPUTS
                await asyncio.to_thread(folder.mkdir, mode=0o700, exist_ok=True)
                for file in transfers.inputs:
                    if not (folder / file.sha256).exists():
                        await self._read(run, folder, file)
        finally:
            self._reading.discard(key)
        return True

    async def _read(self, run: RunFiles, folder: Path, file: WantedInput) -> None:
        half = folder / f"{file.sha256}.part"
        checked = CheckedBytes(file.size, file.sha256)
        parts = read_file(self._bus, run.identity.namespace, file.upload, file.place, file.parts)
        try:
            with half.open("wb") as opened:
                async for part in parts:
                    checked.see(part)
                    await asyncio.to_thread(opened.write, part)
                    if run.stop_note() is not None:
                        return
            checked.end()
            half.replace(folder / file.sha256)
        except (FileMissing, FileChanged) as error:
            raise NoInput(
                f"the input {file.name} cannot be brought: {error}; submit the job again"
            ) from None
        finally:
            await parts.aclose()
            with suppress(OSError):
                half.unlink(missing_ok=True)

    # Outputs. -----------------------------------------------------------------------------

    async def store(self, run: RunFiles) -> tuple[OutputFile, ...]:
        """Stores the outputs of a run that has ended; returns their list. An output that the server
        does not take has a problem."""
        transfers = run.identity.transfers
        if transfers is None or not transfers.outputs:
            return ()
        if (stored := await asyncio.to_thread(_stored_list, run.path)) is not None:
            return stored
        run.read_journal()
        left = await asyncio.to_thread(_left_files, run.path, transfers, list(run.journal.ended))
        attempt = chance.token_hex(4)
        outputs = []
        for index, (output, copy) in enumerate(left):
            if output.problem:
                outputs.append(output)
                continue
            place = output_place(attempt, index)
            outputs.append(await self._store(run, output, run.path / OUTPUTS / copy, place))
        with suppress(OSError):
            replace_file(run.path / STORED, msgspec.json.encode(outputs))
        log.info("outputs_stored", run=run.identity.key, files=len(outputs))
        return tuple(outputs)

    async def _store(self, run: RunFiles, output: OutputFile, path: Path, place: str) -> OutputFile:
        transfers = run.identity.transfers
        assert transfers is not None, "it has outputs"
        upload, namespace = transfers.upload, run.identity.namespace
        while True:
            try:
                with open_plain(path) as opened:
                    stored = await store_file(self._bus, namespace, upload, place, opened)
            except OSError as error:
                return msgspec.structs.replace(output, problem=f"cannot be read: {error.strerror}")
            except Full:
                return msgspec.structs.replace(output, problem="the server had no room for it")
            except BusRefused as error:
                return msgspec.structs.replace(output, problem=f"the server refused it: {error}")
            except BusUnavailable as error:
                if self._bus.is_up:
                    return msgspec.structs.replace(output, problem=f"cannot be stored: {error}")
                await asyncio.sleep(AWAY_SECONDS)
                continue
            return msgspec.structs.replace(
                output,
                size=stored.size,
                parts=stored.parts,
                sha256=stored.sha256,
                upload=upload,
                place=place,
            )


def _stored_list(run: Path) -> tuple[OutputFile, ...] | None:
    try:
        with open_plain(run / STORED) as file:
            return _stored.decode(file.read(LIST_BYTES))
    except (OSError, msgspec.MsgspecError):
        return None


def _left_files(
    run: Path, transfers: Transfers, ended: Iterable[str]
) -> list[tuple[OutputFile, str]]:
    pods: dict[str, list[LeftFile]] = {}
    names = [pod for pod in ended if pod.rpartition("-")[0] in transfers.outputs]
    for pod in names:
        try:
            with open_plain(run / OUTPUTS / pod / LIST) as file:
                pods[pod] = _left.decode(file.read(LIST_BYTES))
        except (OSError, msgspec.MsgspecError):
            continue  # `outputs_left` says that nothing was kept of this pod
    return outputs_left(transfers, pods, names)
