"""How long a change takes to the page in a browser: ``python -m benchmarks.page_in_browser``.

Chromium shows the first page of an `admit up`. Workloads are admitted at ``--rate`` a second, and
for each the time is measured from its admission on the bus until the page shows a number of
workloads with quota that has it. Needs Chromium and the development group of pyproject.toml.
"""

from __future__ import annotations

import asyncio
import shutil
import time
from contextlib import AsyncExitStack
from statistics import median, quantiles
from typing import Any, Final
from urllib.parse import urlsplit

from playwright.async_api import async_playwright
from tools.chromium import FLAGS

from admittance.bench import generator
from admittance.bench.connection import connected
from admittance.bench.generator import BenchPlan, PlannedQueue
from admittance.bench.system import embedded
from admittance.runtime import clock
from admittance.runtime.errors import SetupError
from benchmarks.harness.load import Jobs, load_over
from benchmarks.harness.program import Option, run_program
from benchmarks.page import Bursts, link_of

NOTE_CHANGES: Final = """
() => {
  const note = () => noted(parseInt(document.title.replaceAll(",", "")) || 0, Date.now());
  note();
  new MutationObserver(note).observe(document.querySelector("title"), { childList: true });
}
"""
LAST_SECONDS: Final = 10.0
"""How long the page may take for the last admission."""


class Shown:
    """What the bus said and what the page showed, in seconds since 1970."""

    def __init__(self) -> None:
        self.admitted: list[float] = []
        self.shown: list[float] = []
        """When the page showed the admission that has this place in ``admitted``."""
        self.all = asyncio.Event()
        self.wanted = 0

    def on_message(self, *_: Any) -> None:
        """An admission."""
        self.admitted.append(time.time())

    def on_page(self, count: int, milliseconds: int) -> None:
        """The page shows that so many workloads hold quota."""
        self.shown += [milliseconds / 1000] * (count - len(self.shown))
        if self.wanted and len(self.shown) >= self.wanted:
            self.all.set()

    def delays(self) -> list[float]:
        """The milliseconds of each admission."""
        pairs = zip(self.admitted, self.shown, strict=False)
        return [(shown - admitted) * 1000 for admitted, shown in pairs]


async def measured(*, rate: int, seconds: int) -> list[str]:
    """Admits, and waits for the page. Raises SetupError."""
    chromium = shutil.which("chromium")
    if chromium is None:
        raise SetupError("there is no program chromium")
    web = ("--insecure", "--no-runner", "--web", "127.0.0.1:0")
    async with AsyncExitStack() as stack:
        child = await stack.enter_async_context(embedded(*web, env={"ADMIT_NO_WEB": ""}))
        link = await stack.enter_async_context(connected(child.url, child.access))
        load = await stack.enter_async_context(load_over(link))
        await generator.create(link, BenchPlan((PlannedQueue("room", nominal=10**12),), ()))
        playwright = await stack.enter_async_context(async_playwright())
        browser = await playwright.chromium.launch(executable_path=chromium, args=list(FLAGS))
        stack.push_async_callback(browser.close)
        jobs, shown = Jobs(load), Shown()
        await link.bus.nc.listen("admit.workload.admitted.>", jobs.on_message)
        page = await browser.new_page()
        await page.goto(await link_of(child.log.parent))
        await page.wait_for_url(lambda url: not urlsplit(url).fragment and "signin" not in url)
        await page.expose_function("noted", shown.on_page)
        await page.evaluate(NOTE_CHANGES)
        await link.bus.nc.listen("admit.workload.admitted.>", shown.on_message)
        bursts, begun = Bursts(load, jobs), clock.monotonic()
        shown.wanted = rate * seconds
        for made in range(shown.wanted):
            await asyncio.sleep(max(0.0, begun + made / rate - clock.monotonic()))
            await bursts.submit(1)
        rate_made = shown.wanted / (clock.monotonic() - begun)
        async with asyncio.timeout(LAST_SECONDS):
            await shown.all.wait()
        await browser.close()
    delays = shown.delays()
    paints = len(set(shown.shown))
    return [
        f"{len(delays)} admissions at {rate_made:.0f} a second, {paints} repaints; from the bus to "
        f"the page: median {median(delays):.0f} ms, p95 {quantiles(delays, n=20)[-1]:.0f}, longest "
        f"{max(delays):.0f}"
    ]


if __name__ == "__main__":
    run_program(measured, __doc__, Option("--rate", 50, least=1), Option("--seconds", 20, least=1))
