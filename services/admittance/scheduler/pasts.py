"""The endpoints ``admit.api.then_…``: a process of its own answers questions about the past.

The process begins with the first question and ends half an hour after the last one. It keeps its
light index in a folder that is deleted with the scheduler, unless the scheduler has a data folder.
Whole explanations, and moments before the history of the bucket, take seconds, so a second process
of the same program answers about them."""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec
import structlog

from admittance.events.requests.past import ABOUT, THEN, Then, ThenAnswer, ThenReply, ThenTask
from admittance.runtime.errors import BusUnavailable
from admittance.runtime.nats.micro import Handler
from admittance.runtime.process.child_process import ends_with_parent
from admittance.runtime.process.settings import Settings
from admittance.runtime.tasks import cancel_and_wait
from admittance.scheduling.state.config import Config

PROGRAM: Final = ("-m", "admittance.past")
SECONDS: Final = 120.0
"""Seconds in which a question must be answered."""
IDLE_SECONDS: Final = 1800.0
WAITING_MAX: Final = 16
"""The most questions that wait for the process."""
ANSWER_MAX: Final = 8 << 20
"""The most bytes of an answer of the process."""

log = structlog.get_logger()


class _PastProcess:
    """One process, with the questions that wait for it."""

    def __init__(self, settings: Settings, config: bytes, folder: str, *, from_log: bool) -> None:
        self._settings = settings
        self._from_log = from_log
        self._config = msgspec.Raw(config)
        self._folder = folder
        self._process: asyncio.subprocess.Process | None = None
        self._reading: asyncio.Task[None] | None = None
        self._waiting: dict[int, asyncio.Future[ThenReply]] = {}
        self._number = 0
        self._idle: asyncio.TimerHandle | None = None
        self._starting = asyncio.Lock()

    async def ask(self, subject: str, then: Then) -> ThenReply:
        """The answer of the process. Raises BusUnavailable if it ends, or does not answer in
        time."""
        if len(self._waiting) >= WAITING_MAX:
            raise BusUnavailable(f"{WAITING_MAX} questions about the past wait: ask again soon")
        async with self._starting:
            if self._process is None:
                await self._start()
        process = self._process
        assert process is not None and process.stdin is not None
        self._number += 1
        number = self._number
        task = ThenTask(
            subject=subject,
            then=then,
            id=number,
            folder=self._folder,
            from_log=self._from_log,
            config=self._config,
        )
        answered: asyncio.Future[ThenReply] = asyncio.get_running_loop().create_future()
        self._waiting[number] = answered
        self._end_later()
        try:
            process.stdin.write(msgspec.json.encode(task) + b"\n")
            async with asyncio.timeout(SECONDS):
                return await answered
        except TimeoutError:
            raise BusUnavailable(
                f"the question about the past was not answered in {SECONDS:g} s"
            ) from None
        finally:
            self._waiting.pop(number, None)

    async def _start(self) -> None:
        environ = self._settings.connection.environment(os.environ)
        environ["ADMIT_NATS_URL"] = self._settings.url
        self._process = await asyncio.create_subprocess_exec(
            *ends_with_parent([sys.executable, *PROGRAM]),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env=environ,
            limit=ANSWER_MAX,
            start_new_session=True,
        )
        self._reading = asyncio.create_task(self._read(self._process), name="past")

    async def _read(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        try:
            while line := await process.stdout.readline():
                answer = msgspec.json.decode(line, type=ThenAnswer)
                waiting = self._waiting.get(answer.id)
                if waiting is not None and not waiting.done():
                    waiting.set_result(answer.reply)
        finally:
            self._process = None
            with suppress(ProcessLookupError):
                process.kill()
            status = await process.wait()
            if self._waiting:
                log.error("past_failed", status=status)
            for waiting in self._waiting.values():
                if not waiting.done():
                    waiting.set_exception(
                        BusUnavailable("the process that reads the past has ended: ask again")
                    )

    def _end_later(self) -> None:
        if self._idle is not None:
            self._idle.cancel()
        self._idle = asyncio.get_running_loop().call_later(IDLE_SECONDS, self._end)

    def _end(self) -> None:
        process = self._process
        if process is not None and process.stdin is not None:
            process.stdin.close()  # Its input ends, and so does the process.

    async def close(self) -> None:
        """Ends the process."""
        if self._idle is not None:
            self._idle.cancel()
        if self._reading is not None:
            await cancel_and_wait(self._reading)


class Pasts:
    """Answers questions about the past."""

    def __init__(self, settings: Settings, config: Config) -> None:
        self._made: tempfile.TemporaryDirectory[str] | None = None
        self._settings = settings
        self._config = msgspec.json.encode(config)
        self._light: _PastProcess | None = None
        self._whole: _PastProcess | None = None

    def endpoints(self) -> Mapping[str, Handler]:
        """The handler of each subject."""
        subjects = [f"admit.api.{THEN}{what}" for what in ABOUT]
        return {each: self.then for subject in subjects for each in (subject, f"{subject}.*")}

    async def then(self, data: bytes, subject: str) -> ThenReply:
        """The answer to one question."""
        then = msgspec.json.decode(data, type=Then)
        if not then.whole:
            if self._light is None:
                self._light = self._process("light")
            reply = await self._light.ask(subject, then)
            is_moment = subject.split(".")[2] == f"{THEN}moment"
            if reply.moment is None or not reply.moment.facts or is_moment:
                return reply
        if self._whole is None:
            self._whole = self._process("whole", from_log=True)
        return await self._whole.ask(subject, then)

    def _process(self, name: str, *, from_log: bool = False) -> _PastProcess:
        if self._settings.data_dir is not None:
            folder = self._settings.data_dir / "past" / name
        else:
            if self._made is None:
                self._made = tempfile.TemporaryDirectory(prefix="admit-past-")
            folder = Path(self._made.name) / name
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return _PastProcess(self._settings, self._config, str(folder), from_log=from_log)

    async def close(self) -> None:
        """Ends the processes, and removes a folder that is only theirs."""
        for process in (self._light, self._whole):
            if process is not None:
                await process.close()
        if self._made is not None:
            self._made.cleanup()
