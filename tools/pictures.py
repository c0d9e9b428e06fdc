"""`make pictures`: plays the demo and makes the pictures of the web page in README and docs.

Writes docs/images/NAME.png for each of `PICTURES`, with so few colours that each is small. Needs
Debian's Chromium; the page is shown with a light scheme.
"""

from __future__ import annotations

import asyncio
import io
import shutil
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from PIL import Image
from playwright.async_api import Error, Page, async_playwright
from tools.chromium import FLAGS
from tools.demo.story import WAITS
from tools.demo.system import running_demo

from admittance.cli.support import output
from admittance.client import ClientError
from admittance.runtime.errors import AdmittanceError, SetupError

WIDTH: Final = 1100
HEIGHT: Final = 740
"""Pixels; a shorter page is cut below its last line."""
MARGIN: Final = 24
COLORS: Final = 96
BYTES_MAX: Final = 60_000
SIMULATED: Final = 120_000
"""Milliseconds for a simulation: a process has to start."""

Show = Callable[[Page, str], Awaitable[object]]
"""Opens what a picture shows. The text is the address of the page without a path."""


async def _workload(page: Page, base: str) -> None:
    await page.goto(f"{base}/workloads/default/{WAITS}")
    # Until then the scheduler has not refused it, and the page has no numbers.
    await page.locator("#ways a").wait_for()


async def _queues(page: Page, base: str) -> None:
    await page.goto(f"{base}/queues?resource=cpu")


async def _what_if(page: Page, base: str) -> None:
    await _workload(page, base)
    await page.click("#ways a")
    await page.click("#try button")
    await page.locator("#diff-starts").wait_for(timeout=SIMULATED)
    # The text is longer than its field: what differs from today is at its end.
    await page.locator("#yaml").evaluate("field => { field.scrollTop = field.scrollHeight }")


PICTURES: Final[dict[str, Show]] = {"workload": _workload, "queues": _queues, "whatif": _what_if}


def reduced(png: bytes) -> bytes:
    """The picture with a palette of `COLORS` colours."""
    out = io.BytesIO()
    with Image.open(io.BytesIO(png)) as picture:
        picture.convert("RGB").quantize(COLORS, dither=Image.Dither.NONE).save(
            out, "PNG", optimize=True
        )
    return out.getvalue()


async def _take(link: str, chromium: str, folder: Path) -> None:
    """Signs in by the link and writes all pictures. Raises SetupError."""
    parts = urlsplit(link)
    base = f"{parts.scheme}://{parts.netloc}"
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=chromium, args=list(FLAGS))
        page = await browser.new_page(
            viewport={"width": WIDTH, "height": HEIGHT}, color_scheme="light"
        )
        await page.goto(link)
        await page.locator(".signed-in").wait_for()
        for name, show in PICTURES.items():
            await show(page, base)
            box = await page.locator("main > :last-child").bounding_box()
            end = HEIGHT if box is None else min(HEIGHT, box["y"] + box["height"] + MARGIN)
            png = await page.screenshot(clip={"x": 0, "y": 0, "width": WIDTH, "height": end})
            small = reduced(png)
            if len(small) > BYTES_MAX:
                raise SetupError(f"{name}.png has {len(small):,} bytes, over {BYTES_MAX:,}")
            (folder / f"{name}.png").write_bytes(small)
            output.say(f"  {folder / name}.png has {len(small):,} bytes")
        await browser.close()


async def main(samples: Path, folder: Path) -> None:
    """Plays the demo and writes the pictures into the folder. Raises SetupError."""
    chromium = shutil.which("chromium")
    if chromium is None:
        raise SetupError("chromium is not installed: it takes the pictures")
    async with running_demo(samples) as (demo, child):
        if not await demo.run():
            raise SetupError("the demo has not finished: there is no story for the pictures")
        await demo.leave()
        try:
            await _take(child.web, chromium, folder)
        except Error as error:
            raise SetupError(f"the browser: {error.message.splitlines()[0]}") from None


if __name__ == "__main__":
    to = Path(sys.argv[2])
    to.mkdir(parents=True, exist_ok=True)
    try:
        asyncio.run(main(Path(sys.argv[1]), to))
    except (AdmittanceError, ClientError) as problem:
        sys.stderr.write(f"{problem}\n")
        raise SystemExit(1) from None
