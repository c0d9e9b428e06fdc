"""The forecast service: on request it follows the bucket and plays cohort trees forward.

Plays run in a thread of low priority, and changes of the bucket wait for the end of a play, since
both change the usage of quota. Questions are answered from the last forecast, also during a play.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from typing import Final

import msgspec
import structlog

from admittance.api.kinds import KINDS
from admittance.events.requests.forecast import (
    NAMES_MAX,
    Forecast,
    ForecastReply,
    StartForecast,
)
from admittance.events.requests.services import HealthReply
from admittance.events.subjects import namespace_of_request
from admittance.forecast.answers import Answers, Forecasts
from admittance.forecast.arrivals import DAY, DAYS
from admittance.forecast.forecast import Memory
from admittance.forecast.guarded import FAILED, TREE_FAILED, Found, guarded_forecast
from admittance.forecast.past_runs import PastRun
from admittance.forecast.rows import Key
from admittance.forecast.tracked import NOT_WAITING, Tracked
from admittance.forecast.widening import Widening
from admittance.forecast.words import basis_of, played_words
from admittance.forecast_service.forecast_metrics import ForecastMetrics
from admittance.forecast_service.kept_errors import KeptErrorsStore
from admittance.forecast_service.past_runs import read_past_runs
from admittance.runtime import chance, clock
from admittance.runtime.bus.bucket import BucketReader, Entry, apply_each, follow_bucket
from admittance.runtime.bus.bus import Bus
from admittance.runtime.errors import BusRefused, BusUnavailable
from admittance.runtime.nats import micro
from admittance.runtime.process.admin import show_metrics
from admittance.runtime.process.settings import Settings
from admittance.runtime.tasks import cancel_and_wait, end_tasks, set_within
from admittance.runtime.telemetry.object_faults import faults
from admittance.scheduling.state.config import config_of
from admittance.workload.bucket_reader import names_of, read, read_manifest

SERVICE: Final = "forecast"
_KIND_OF_TOKEN: Final[Mapping[str, str]] = {
    kind.prefix: kind.name
    for kind in KINDS.values()
    if kind.name
    in (
        *("ClusterQueue", "LocalQueue", "Cohort", "ResourceFlavor", "Topology", "AdmissionCheck"),
        *("Namespace", "WorkloadPriorityClass"),
    )
}
OBJECTS: Final = tuple(f"{token}.>" for token in _KIND_OF_TOKEN)
IDLE_SECONDS: Final = 900.0
"""So long after the last question the service follows the bucket, and then forgets it."""
FIRST_SECONDS: Final = 0.25
"""How long a question waits for the first forecast of its tree."""
APPLIED_AT_ONCE: Final = 200
"""After so many changes of the bucket other tasks run."""
TREE_FAILED_SECONDS: Final = 5.0
"""The CPU time that a failed play counts for, so that the next one comes after a minute."""
NICE: Final = 10

log = structlog.get_logger()


class ForecastService:
    """The forecasts of one instance."""

    def __init__(self, bus: Bus, settings: Settings) -> None:
        self._bus = bus
        self._settings = settings
        self._config = config_of(settings.configuration)
        self._widenings: dict[str, Widening] | None = None
        self._kept = KeptErrorsStore(bus)
        self._tracked: Tracked | None = None
        self._answers = Answers()
        self._asked_at = 0.0
        self._wanted = asyncio.Event()
        self._loaded = asyncio.Event()
        self._asked = asyncio.Event()
        self._made = asyncio.Event()
        self._lock = asyncio.Lock()
        """Held during a play and while changes of the bucket are applied."""
        self._thread = ThreadPoolExecutor(1, "forecast", initializer=_lower_priority)
        self.metrics = ForecastMetrics()

    async def run(self) -> None:
        """Follows the bucket and plays while there are questions, until cancelled."""
        while True:
            await self._wanted.wait()
            if self._widenings is None:
                self._widenings = await self._kept.load()
            self._answers = Answers()
            since = clock.now().timestamp() - min(DAYS * DAY, self._settings.finished_seconds)
            tracked = self._tracked = Tracked(self._config, since, self._widenings)
            tasks = [
                asyncio.create_task(self._follow(tracked), name="bucket"),
                asyncio.create_task(self._play_on(tracked), name="plays"),
            ]
            past = asyncio.create_task(self._read_past(tracked), name="past runs")
            try:
                await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                for task in tasks:
                    if task.done():
                        task.result()
            finally:
                self._loaded.clear()
                self._wanted.clear()
                self._tracked = None
                for task in (*tasks, past):
                    with suppress(Exception):
                        await cancel_and_wait(task)
                await self._kept.store(self._widenings, at_once=True)
            log.info("forecasts_end", reason="no question")

    def close(self) -> None:
        """Starts no further play."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    # The bucket. --------------------------------------------------------------------------

    async def _follow(self, tracked: Tracked) -> None:
        # The queues come first: the arrival of a workload says what it needs of them.
        reader = BucketReader(self._bus, OBJECTS, current=True)
        try:
            async for entries in reader.batches():
                await self._apply(tracked, entries)
                if reader.loaded.is_set():
                    break
        finally:
            await reader.close()

        def loaded(revision: int) -> None:
            self._loaded.set()
            log.info("forecasts_begin", revision=revision)

        async def apply(entries: Sequence[Entry]) -> None:
            await self._apply(tracked, entries)

        await follow_bucket(self._bus, (*OBJECTS, "workload.>"), apply, loaded, current=True)

    async def _apply(self, tracked: Tracked, entries: Sequence[Entry]) -> None:
        def apply_entry(entry: Entry) -> None:
            kind = entry.key.partition(".")[0]
            namespace, name = names_of(entry.key)
            if kind == "workload":
                workload = read(entry.key, entry.value) if entry.value is not None else None
                tracked.apply_workload((namespace, name), workload, entry.revision, clock.now())
                return
            manifest = read_manifest(entry.key, entry.value) if entry.value is not None else None
            tracked.apply_object(_KIND_OF_TOKEN[kind], namespace, name, manifest, entry.revision)

        for first in range(0, len(entries), APPLIED_AT_ONCE):
            async with self._lock:
                apply_each(entries[first : first + APPLIED_AT_ONCE], apply_entry, service=SERVICE)
            await asyncio.sleep(0)

    # The log. -----------------------------------------------------------------------------

    async def _read_past(self, tracked: Tracked) -> None:
        """Adds the runs of workloads that have left the bucket. Until they are read, forecasts rest
        on those in the bucket."""
        await self._loaded.wait()

        async def take(runs: Sequence[PastRun]) -> None:
            # Not during a play, which reads run times.
            async with self._lock:
                for run in runs:
                    tracked.add_past_run(run)
            await asyncio.sleep(0)

        begin = clock.monotonic()
        try:
            count = await read_past_runs(self._bus, clock.now(), take)
        except (BusRefused, BusUnavailable) as error:
            log.warning("past_runs_not_read", reason=str(error))
        except Exception as error:
            faults.record(SERVICE, "read past runs", "the log", error)
        else:
            log.info("past_runs", facts=count, seconds=round(clock.monotonic() - begin, 1))

    # Plays. -------------------------------------------------------------------------------

    async def _play_on(self, tracked: Tracked) -> None:
        """Makes the forecasts that are due, until there is no question for `IDLE_SECONDS`."""
        await self._loaded.wait()
        while (left := self._asked_at + IDLE_SECONDS - clock.monotonic()) > 0:
            self._asked.clear()
            now = clock.now().timestamp()
            tree, at = self._answers.turn(now)
            if tree is None:
                await set_within(self._asked, min(left, at - now))
            else:
                await self._play(tracked, tree)

    async def _play(self, tracked: Tracked, tree: str) -> None:
        async with self._lock:
            now = clock.now()
            tracked.forget(now)
            made, seconds = await self._made_of(tracked, tree, now.timestamp())
        self._answers.made(tree, made, seconds, clock.now().timestamp())
        self._made.set()
        self._made = asyncio.Event()
        await self._kept.store(self._widenings or {})

    async def _made_of(self, tracked: Tracked, tree: str, now: float) -> tuple[Forecasts, float]:
        """The forecasts of a tree, and the CPU seconds of its plays. An exception of a play ends no
        process: what it concerns has no expected start."""
        errors: dict[Key, Exception] = {}
        try:
            rows = tracked.rows(tree, errors)
            if rows is None:
                return Forecasts(now, {}, ()), 0.0
            found, seconds = await self._in_thread(
                partial(guarded_forecast, rows, tracked.memory(tree), now, chance.fraction)
            )
        except Exception as error:
            faults.record(SERVICE, "play a tree", f"cohort tree {tree}", error)
            return Forecasts(now, {}, (), failed=True), TREE_FAILED_SECONDS
        errors |= found.errors
        for (namespace, name), why in errors.items():
            faults.record(SERVICE, "forecast a start", f"workload {namespace}/{name}", why)
        self.metrics.plays.add(())
        self.metrics.cpu.add((), seconds)
        broken = frozenset(errors)
        made = Forecasts(
            now, found.starts, rows.holding, found.after, broken, played=played_words(rows)
        )
        return made, seconds

    async def _in_thread(self, play: Callable[[], Found]) -> tuple[Found, float]:
        loop = asyncio.get_running_loop()
        playing = loop.run_in_executor(self._thread, partial(_timed, play))
        try:
            return await asyncio.shield(playing)
        except asyncio.CancelledError:
            playing.cancel()
            raise

    # Questions. ---------------------------------------------------------------------------

    async def answer(self, data: bytes, subject: str) -> ForecastReply:
        """Answers ``admit.api.forecast[.<ns>]``. Raises ValueError for a wrong question."""
        request = msgspec.json.decode(data or b"{}", type=Forecast)
        if len(request.workloads) > NAMES_MAX:
            raise ValueError(f"{len(request.workloads)} workloads are more than {NAMES_MAX}")
        namespace = namespace_of_request(subject)
        keys = {name: _key(name, namespace) for name in request.workloads}
        self._asked_at = clock.monotonic()
        self._wanted.set()
        try:
            async with asyncio.timeout(FIRST_SECONDS):
                await self._first(list(keys.values()))
        except TimeoutError:
            pass
        tracked = self._tracked
        if tracked is None or not self._loaded.is_set():
            return ForecastReply(starting=bool(keys))
        return self._reply(tracked, keys)

    async def _first(self, keys: Sequence[Key]) -> None:
        """Waits until each tree of the workloads has a forecast."""
        await self._loaded.wait()
        while (tracked := self._tracked) is not None:
            now = clock.now().timestamp()
            trees = {tree for key in keys if (tree := tracked.domain_of(key)) is not None}
            for tree in trees:
                self._answers.ask(tree, now)
            made = self._made
            self._asked.set()
            if all(self._answers.get(tree, now) is not None for tree in trees):
                return
            await made.wait()

    def _reply(self, tracked: Tracked, keys: Mapping[str, Key]) -> ForecastReply:
        now = clock.now().timestamp()
        starts: dict[str, StartForecast] = {}
        starting = False
        for name, key in keys.items():
            tree = tracked.domain_of(key)
            if why := tracked.why_unknown(key):
                if tree is not None and why != NOT_WAITING:
                    starts[name] = StartForecast(unknown=why)
                continue
            made = self._answers.get(tree, now) if tree is not None else None
            if made is None:
                starting = True
            elif (start := _start(tracked, made, key)) is not None:
                starts[name] = start
            else:
                starting = True
        return ForecastReply(starts=starts, starting=starting)

    def health(self) -> HealthReply:
        """The health of this instance."""
        details = {"follows": "the bucket" if self._tracked is not None else "nothing, unasked"}
        return HealthReply(
            service=SERVICE, instance=self._settings.instance, ready=True, details=details
        )

    def memories(self) -> Mapping[str, Memory]:
        """What is known of each tree."""
        return self._tracked.memories if self._tracked is not None else {}

    def age(self) -> float:
        """The age of the oldest forecast that is given."""
        return self._answers.oldest(clock.now().timestamp())


def _start(tracked: Tracked, made: Forecasts, key: Key) -> StartForecast | None:
    """The expected start of a workload that can start; None: it came after the forecast."""
    as_of = datetime.fromtimestamp(made.made_at, UTC)
    if made.failed or key in made.broken:
        return StartForecast(unknown=TREE_FAILED if made.failed else FAILED, as_of=as_of)
    interval = made.starts.get(key)
    if interval is None:
        if tracked.queued_at(key) > made.made_at:
            return None
        return StartForecast(unknown=made.why_not_found(tracked.run_times), as_of=as_of)
    queue, namespace = tracked.queue_of(key), key[0]
    words = made.words.get((queue, namespace))
    if words is None:
        words = basis_of(tracked.source_of(key), made.holding, tracked.run_times, queue, namespace)
        words += made.played
        if made.holding:
            made.words[queue, namespace] = words
    p10, p50, p90 = (
        datetime.fromtimestamp(made.made_at + seconds, UTC).replace(microsecond=0)
        for seconds in interval
    )
    after = tuple("/".join(each) for each in made.after.get(key, ()) if each[0] == namespace)
    return StartForecast(p10=p10, p50=p50, p90=p90, basis=words, after=after, as_of=as_of)


def _key(name: str, namespace: str) -> Key:
    if namespace:
        return namespace, name
    own, slash, rest = name.partition("/")
    if not slash:
        raise ValueError(f"{name}: a question about all namespaces names namespace/name")
    return own, rest


def _timed(play: Callable[[], Found]) -> tuple[Found, float]:
    begin = clock.thread_seconds()
    return play(), clock.thread_seconds() - begin


def _lower_priority() -> None:
    # On Linux this is about the present thread alone; other systems refuse it.
    with suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICE)


async def run(bus: Bus, settings: Settings, *, stop: asyncio.Event) -> None:
    """Answers questions until ``stop`` is set."""
    service = ForecastService(bus, settings)
    serving = await micro.serve(
        bus.nc,
        SERVICE,
        settings.instance,
        {"admit.api.forecast": service.answer, "admit.api.forecast.*": service.answer},
        every_instance={"admit.api.health": _health_of(service)},
    )
    working = asyncio.create_task(service.run(), name="forecasts")
    stopping = asyncio.create_task(stop.wait(), name="stop")
    try:
        async with show_metrics(settings, *service.metrics.metrics(service.memories, service.age)):
            await asyncio.wait([working, stopping], return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            working.result()
    finally:
        await serving.stop()
        service.close()
        await end_tasks(working, stopping)


def _health_of(service: ForecastService) -> micro.Handler:
    async def answer(_: bytes, __: str) -> HealthReply:
        return service.health()

    return answer
