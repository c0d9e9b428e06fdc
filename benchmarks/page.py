"""What the web page costs, and how quick it is: ``python -m benchmarks.page``.

Fills ``--queues`` ClusterQueues with ``--pending`` workloads that never start, and prints time, CPU
(of the page, and of the services and nats-server), bytes sent and rows of each page. Then,
``--rounds`` times in turns, ``--burst`` workloads are admitted without open pages and with
``--pages`` of them, which ask as the script of the page does: when the stream says that something
changed, and not too often. The last line has the time from an event of the stream to the whole
page, at ``--rate`` admissions a second; `benchmarks.page_in_browser` has that time in a browser.
"""

from __future__ import annotations

import asyncio
import gzip
import re
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from statistics import median
from typing import Final, NamedTuple
from urllib.parse import urlsplit

import psutil

from admittance.bench import generator
from admittance.bench.connection import connected
from admittance.bench.generator import BenchPlan, PlannedQueue, PlannedWorkload
from admittance.bench.system import embedded, family
from admittance.client import Client
from admittance.client.requests.link import Link
from admittance.client.requests.queues import questions
from admittance.events.requests.queues import PendingQuery
from admittance.runtime import clock
from admittance.runtime.errors import SetupError
from admittance.runtime.tasks import end_tasks
from benchmarks.harness.jobs import NAMESPACE
from benchmarks.harness.load import Jobs, Load, load_over
from benchmarks.harness.program import Option, run_program
from benchmarks.harness.waits import until_right, until_unchanged

REPAINT_SECONDS: Final = 0.25
REST: Final = 4
"""A page asks again after so many times the duration of its last answer, if that is longer."""
REST_MAX_SECONDS: Final = 30.0
PATIENCE: Final = 900.0
COHORTS: Final = 10
ASKS: Final = 10
ROW: Final = re.compile(rb"<tr ")
PATHS: Final = ("/", "/pending", "/pending?reason=ExceedsMaxQuota", "/queues", "/queues/full-0")
FACTS: Final = 300
"""How many facts there are about the workload of which the page is asked for."""
WORKLOAD: Final = "wait-0"
PAUSE_SECONDS: Final = 2.0
"""Between two turns, so that the work that follows a burst belongs to it."""


class Answer(NamedTuple):
    """``size``: bytes as they were sent."""

    seconds: float
    size: int
    text: bytes


class Browser:
    """A signed-in program that asks for pages as a browser does."""

    def __init__(self, host: str, cookie: str = "") -> None:
        self._host = host
        self._cookie = cookie

    async def get(self, path: str) -> Answer:
        """A page. Raises SetupError."""
        begun = clock.monotonic()
        status, _, body = await self._ask("GET", path)
        took = clock.monotonic() - begun
        if status != 200:
            raise SetupError(f"{path} answers {status}")
        return Answer(took, len(body), gzip.decompress(body) if body[:2] == b"\x1f\x8b" else body)

    async def signed_in(self, code: str) -> Browser:
        """The program with a session. Raises SetupError."""
        status, head, _ = await self._ask("POST", "/signin", f"code={code}")
        found = re.search(rb"set-cookie: ([^;\r]+)", head, re.IGNORECASE)
        if status != 303 or found is None:
            raise SetupError(f"signing in answers {status}")
        return Browser(self._host, found[1].decode())

    async def events(self) -> AsyncIterator[None]:
        """The changes that the stream says."""
        reader, writer = await self._sent("GET", "/live", "")
        try:
            async for line in reader:
                if line.startswith(b"event: changed"):
                    yield
        finally:
            writer.close()

    async def _ask(self, method: str, path: str, form: str = "") -> tuple[int, bytes, bytes]:
        reader, writer = await self._sent(method, path, form)
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            body = await reader.read()
        finally:
            writer.close()
        if b"transfer-encoding: chunked" in head.lower():
            body = _joined(body)
        return int(head.split()[1]), head, body

    async def _sent(
        self, method: str, path: str, form: str
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        name, _, port = self._host.partition(":")
        reader, writer = await asyncio.open_connection(name, int(port), limit=1 << 24)
        lines = [
            f"{method} {path} HTTP/1.1",
            f"Host: {self._host}",
            "Connection: close",
            "Accept-Encoding: gzip",
            "Admit-Part: 1",
            f"Origin: http://{self._host}",
            f"Cookie: {self._cookie}",
            "Content-Type: application/x-www-form-urlencoded",
            f"Content-Length: {len(form)}",
        ]
        writer.write("\r\n".join([*lines, "", form]).encode())
        return reader, writer


def _joined(body: bytes) -> bytes:
    """The chunks of a body as one text."""
    parts = []
    while body:
        size, _, rest = body.partition(b"\r\n")
        length = int(size, 16)
        parts.append(rest[:length])
        body = rest[length + 2 :] if length else b""
    return b"".join(parts)


def bench_plan(queues: int, pending: int) -> BenchPlan:
    """Queues of ten cohorts with workloads that ask for twice the quota, and a queue with room."""
    planned = tuple(
        PlannedQueue(f"full-{n}", cohort=f"c-{n % COHORTS}", nominal=1000, borrowing=0)
        for n in range(queues)
    )
    room = PlannedQueue("room", nominal=10**12)
    return BenchPlan(
        (*planned, room),
        tuple(
            PlannedWorkload(0.0, 1.0, f"wait-{n}", n % queues, "wait", 2000, 0)
            for n in range(pending)
        ),
    )


async def measured(
    *, queues: int, pending: int, pages: int, rounds: int, burst: int, rate: int
) -> list[str]:
    """Fills, asks, and compares. Raises SetupError."""
    web = ("--insecure", "--no-runner", "--web", "127.0.0.1:0")
    async with (
        embedded(*web, env={"ADMIT_NO_WEB": ""}) as child,
        connected(child.url, child.access) as link,
        load_over(link) as load,
    ):
        plan = bench_plan(queues, pending)
        await generator.create(link, plan, timeout=PATIENCE)
        await load.submit(plan)
        await load.settled(PATIENCE)
        await _until_pending(link, pending)
        # The scheduler stores why each of them waits, for a minute and more.
        await until_unchanged(link.bus, seconds=PATIENCE)
        link_of_page = urlsplit(await link_of(child.log.parent))
        browser = await Browser(link_of_page.netloc).signed_in(link_of_page.fragment)
        await _reprioritized(child.url, WORKLOAD, FACTS)
        parts = _parts(child.pid)
        shown = (*PATHS, f"/workloads/{NAMESPACE}/{WORKLOAD}")
        lines = [await _page_line(browser, path, parts) for path in shown]
        jobs = Jobs(load)
        await link.bus.nc.listen("admit.workload.admitted.>", jobs.on_message)
        bursts = Bursts(load, jobs)
        lines.append(await _compared(bursts, browser, parts, pages, rounds, burst))
        lines.append(await _shown(bursts, browser, rate))
    return lines


async def _until_pending(link: Link, count: int) -> None:
    async def total() -> int:
        query = PendingQuery(cluster_queue="", limit=1)
        return (await questions.pending_page(link, query, None)).total

    if await until_right(total, lambda now: now == count, seconds=PATIENCE, every=0.5) != count:
        raise SetupError(f"not all of {count} workloads are pending")


async def link_of(folder: Path) -> str:
    """A link that signs in once."""
    admit = Path(sys.executable).parent / "admit"
    process = await asyncio.create_subprocess_exec(
        *(str(admit), "web", "--data-dir", str(folder / "data")), stdout=asyncio.subprocess.PIPE
    )
    out, _ = await process.communicate()
    if process.returncode:
        raise SetupError("`admit web` prints no link")
    return out.decode().split()[-1]


class Cpu(NamedTuple):
    """Seconds of CPU of the page, and of the services with nats-server."""

    page: float
    others: float


class _Parts(NamedTuple):
    """The processes of an `admit up`."""

    page: list[psutil.Process]
    others: list[psutil.Process]

    def used(self) -> Cpu:
        """The CPU that they have used so far."""
        return Cpu(*(sum(sum(each.cpu_times()[:2]) for each in part) for part in self))


def _parts(pid: int) -> _Parts:
    of_page: dict[bool, list[psutil.Process]] = {True: [], False: []}
    for process in family(pid):
        of_page["admittance.web.child" in process.cmdline()].append(process)
    return _Parts(of_page[True], of_page[False])


async def _reprioritized(url: str, name: str, times: int) -> None:
    """Gives a workload so many facts."""
    async with await Client.connect(url) as client:
        for priority in range(times):
            await client.set_priority(name, priority % 2, namespace=NAMESPACE)


async def _page_line(browser: Browser, path: str, parts: _Parts) -> str:
    first = await browser.get(path)
    before = parts.used()
    answers = [await browser.get(path) for _ in range(ASKS)]
    page, others = (
        (after - earlier) * 1000 / ASKS for after, earlier in zip(parts.used(), before, strict=True)
    )
    took = [answer.seconds * 1000 for answer in answers]
    return (
        f"{path}: median {median(took):.0f} ms, longest {max(took):.0f}, first "
        f"{first.seconds * 1000:.0f}; CPU {page:.0f} + {others:.0f} ms; {first.size:,} bytes, "
        f"{len(ROW.findall(first.text))} rows"
    )


class Bursts:
    """Workloads in the queue with room."""

    def __init__(self, load: Load, jobs: Jobs) -> None:
        self._load = load
        self._jobs = jobs
        self._made = 0

    async def submit(self, count: int) -> str:
        """Submits so many workloads and waits until they are admitted; the name of the last."""
        names = [f"go-{n}" for n in range(self._made, self._made + count)]
        self._made += count
        queues = (PlannedQueue("room"),)
        planned = tuple(PlannedWorkload(0.0, 1.0, name, 0, "go", 1, 0) for name in names)
        await self._load.submit(BenchPlan(queues, planned))
        await self._jobs.reach(self._made)
        return names[-1]


async def _compared(
    bursts: Bursts, browser: Browser, parts: _Parts, pages: int, rounds: int, burst: int
) -> str:
    """Admissions per second with open pages and without, in turns, and the CPU of an admission."""
    rates: dict[bool, list[float]] = {False: [], True: []}
    costs: dict[bool, list[Cpu]] = {False: [], True: []}
    await bursts.submit(burst)
    for turn in range(2 * rounds):
        opened = turn % 2 == 1
        await asyncio.sleep(PAUSE_SECONDS)
        async with _open_pages(browser, pages if opened else 0):
            begun, before = clock.monotonic(), parts.used()
            await bursts.submit(burst)
            after = parts.used()
            rates[opened].append(burst / (clock.monotonic() - begun))
            costs[opened].append(Cpu(after.page - before.page, after.others - before.others))
    without, with_pages = median(rates[False]), median(rates[True])
    page = median(cost.page for cost in costs[True]) * 1e6 / burst
    others = [median(cost.others for cost in costs[which]) * 1e6 / burst for which in costs]
    return (
        f"admissions a second: {without:.0f} without open pages, {with_pages:.0f} with {pages}: "
        f"{with_pages / without:.2f}; CPU of the services for each: {others[0]:.0f} and "
        f"{others[1]:.0f} µs, of the page {page:.0f}"
    )


@asynccontextmanager
async def _open_pages(browser: Browser, count: int) -> AsyncIterator[None]:
    """Keeps so many pages open, which share a stream as the tabs of one browser do."""
    changed = [asyncio.Event() for _ in range(count)]

    async def listen() -> None:
        async for _ in browser.events():
            for event in changed:
                event.set()

    async def show(path: str, event: asyncio.Event) -> None:
        while True:
            await event.wait()
            event.clear()
            took = (await browser.get(path)).seconds
            await asyncio.sleep(max(REPAINT_SECONDS - took, min(REST * took, REST_MAX_SECONDS)))

    tasks = [
        asyncio.create_task(show(PATHS[n % len(PATHS)], event)) for n, event in enumerate(changed)
    ]
    if count:
        tasks.append(asyncio.create_task(listen()))
    try:
        yield
    finally:
        await end_tasks(*tasks)


async def _shown(bursts: Bursts, browser: Browser, rate: int) -> str:
    """The time from an event of the stream to the whole page, while workloads are admitted."""
    took: list[float] = []
    stop = asyncio.Event()

    async def others() -> None:
        while not stop.is_set():
            begun = clock.monotonic()
            await bursts.submit(1)
            with suppress(TimeoutError):
                left = max(0.0, 1 / rate - (clock.monotonic() - begun))
                await asyncio.wait_for(stop.wait(), left)

    running = asyncio.create_task(others())
    events = browser.events()
    await anext(events)
    deadline = clock.monotonic() + 10
    async for _ in events:
        begun = clock.monotonic()
        await browser.get("/queues/room")
        took.append(clock.monotonic() - begun)
        if clock.monotonic() > deadline:
            break
        await asyncio.sleep(max(0.0, REPAINT_SECONDS - took[-1]))
    stop.set()
    await running
    return (
        f"from an event to the whole page of its queue: median {median(took) * 1000:.0f} ms "
        f"of {len(took)}"
    )


if __name__ == "__main__":
    run_program(
        measured,
        __doc__,
        Option("--queues", 1_000, least=1),
        Option("--pending", 100_000, least=1),
        Option("--pages", 10, least=1),
        Option("--rounds", 3, least=1),
        Option("--burst", 1_000, least=1),
        Option("--rate", 50, least=1),
    )
