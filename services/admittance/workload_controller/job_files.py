"""Keeps the files of jobs: the active workload-controller makes their stream, says how much a
workload may have, and removes what no workload names any more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Final

import structlog

from admittance.control.controller import Controller
from admittance.events.files import FILES, workload_of
from admittance.events.requests.reading import FilesReply
from admittance.events.shapes import Finding
from admittance.events.subjects import workload_key
from admittance.runtime import clock
from admittance.runtime.bus import bucket, history
from admittance.runtime.bus.bus import Bus
from admittance.runtime.bus.files import (
    StreamState,
    make_stream,
    purge_upload,
    stored_uploads,
    stream_state,
)
from admittance.runtime.errors import AdmittanceError, BusRefused, BusUnavailable
from admittance.runtime.nats import micro
from admittance.runtime.telemetry.findings import OK, WRONG, size_of
from admittance.runtime.telemetry.logger import LogThrottle
from admittance.runtime.telemetry.object_faults import faults

SERVICE: Final = "workload-controller"
FILES_OF_JOBS: Final = "files of jobs"
CHECK_SECONDS: Final = 60.0
UNNAMED: Final = timedelta(hours=1)
"""How long an upload stays that no workload has named."""
READ_AGAIN: Final = timedelta(hours=1)
"""How often it is checked whether a workload still names its upload: another one may have its
name by now."""

log = structlog.get_logger()


class JobFilesKeeper:
    """The files of jobs, for one leader. ``limit``: the most bytes of the inputs of a workload; 0:
    workloads have no files. ``bound``: the bytes of all files above which no new ones are taken.
    """

    def __init__(
        self, bus: Bus, controller: Controller, *, limit: int, bound: int, replicas: int
    ) -> None:
        self._bus = bus
        self._controller = controller
        self._limit = limit
        self._bound = bound
        self._replicas = replicas
        self._state: StreamState | None = None
        self._last = 0
        self._uploads: dict[tuple[str, str], str] = {}
        """The uploads of the stream, each with one of its subjects."""
        self._named: dict[tuple[str, str], datetime] = {}
        """Uploads that a workload names, with the time when that was read."""
        self._since: dict[tuple[str, str], datetime] = {}
        """Uploads that no workload has named, with the time of one of their messages."""
        self._throttle = LogThrottle()

    def endpoints(self) -> Mapping[str, micro.Handler]:
        """The handler of each subject."""
        return {"admit.api.files.*": self._answer}

    async def _answer(self, _data: bytes, _subject: str) -> FilesReply:
        if not self._limit:
            return FilesReply(error="this system takes no files of jobs (ADMIT_FILE_LIMIT=0)")
        try:
            state = self._state = await stream_state(self._bus)
            if state is None:
                await make_stream(self._bus, self._replicas)
        except BusRefused as error:
            return FilesReply(error=f"the server has no room for files of jobs: {error}")
        if state is not None and state.bytes >= self._bound:
            return FilesReply(
                error=f"the files of all jobs have {size_of(state.bytes)}, and no more are taken "
                f"from {size_of(self._bound)} on (ADMIT_FILES_BYTES): submit again when other "
                "workloads are deleted"
            )
        return FilesReply(limit=self._limit)

    def findings(self) -> list[Finding]:
        """The finding of `admit doctor` about the room for files; none without files."""
        if self._state is None or not self._state.messages:
            return []
        found = f"{size_of(self._state.bytes)} of {size_of(self._bound)} (ADMIT_FILES_BYTES)"
        if self._state.bytes < self._bound:
            return [Finding(state=OK, what=FILES_OF_JOBS, found=found)]
        return [
            Finding(
                state=WRONG,
                what=FILES_OF_JOBS,
                found=f"{found}: no more are taken",
                todo="delete workloads that need their files no longer, or raise the bound",
            )
        ]

    async def run(self) -> None:
        """Removes what is not needed, until it is cancelled. An error ends no leader."""
        while True:
            await asyncio.sleep(CHECK_SECONDS)
            try:
                await self.check()
            except (BusRefused, BusUnavailable) as error:
                if self._throttle.due(clock.monotonic()):
                    log.warning("files_not_checked", reason=str(error))
            except AdmittanceError:
                raise
            except Exception as error:
                faults.record(SERVICE, "remove files of jobs", f"stream {FILES}", error)

    async def check(self) -> None:
        """Removes uploads whose workload is gone, and those that no workload has named in time.
        Raises BusRefused and BusUnavailable."""
        state = self._state = await stream_state(self._bus)
        if state is None or not state.messages:
            state = StreamState(0, 0, self._last)
        if state.last != self._last or not state.messages:
            self._uploads = await stored_uploads(self._bus) if state.messages else {}
            self._last = state.last
            for known in (self._named, self._since):
                for upload in known.keys() - self._uploads.keys():
                    del known[upload]
        for upload, subject in list(self._uploads.items()):
            if await self._may_go(upload, subject):
                await purge_upload(self._bus, *upload)
                log.info("files_removed", namespace=upload[0], upload=upload[1])
                for entries in (self._uploads, self._named, self._since):
                    entries.pop(upload, None)

    async def _may_go(self, upload: tuple[str, str], subject: str) -> bool:
        now = clock.now()
        if await self._is_named(upload, now):
            return False
        if upload in self._named:
            return True  # its workload is gone
        if upload not in self._since:
            message = await history.last(self._bus, subject, stream=FILES)
            self._since[upload] = now if message is None else message.time
        return now - self._since[upload] > UNNAMED

    async def _is_named(self, upload: tuple[str, str], now: datetime) -> bool:
        namespace, name = upload
        if not (workload := workload_of(name)):
            return False
        key = workload_key(namespace, workload)
        known = self._controller.workloads.get(key).workload
        if known is None and not self._controller.workloads.must_load(key):
            return False
        read = self._named.get(upload)
        if read is not None and now - read < READ_AGAIN:
            return True
        if known is not None:
            spec = bytes(known.spec)
        else:
            entry = await bucket.get(self._bus, key)
            spec = b"" if entry is None else entry.value or b""
        if name.encode() not in spec:
            return False
        self._named[upload] = now
        return True
