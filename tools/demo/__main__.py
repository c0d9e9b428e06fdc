"""`make demo`: the whole system in under a minute, with real processes and the public interfaces.

Starts `admit up` on a temporary data folder, applies the sample queues, submits more work than the
quota takes, and prints the facts of the log: which workloads wait and why, start when quota comes
free, are held by a check, or move to a better flavor. Exit status 0 if everything finished. With
``--keep`` the system stands until Ctrl-C, with jobs that run and one that waits.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from tools.demo.story import heading
from tools.demo.system import running_demo

from admittance.bench.system import Child
from admittance.cli.support import output
from admittance.client import ClientError
from admittance.runtime import clock
from admittance.runtime.errors import AdmittanceError


def _at_signals(do: Callable[[], object]) -> None:
    """Calls this instead of what Ctrl-C and SIGTERM did until now."""
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, do)


async def _stand(child: Child) -> None:
    """Returns when the system has ended: at Ctrl-C or SIGTERM, or by itself."""

    def end() -> None:
        with suppress(ProcessLookupError):
            child.process.terminate()

    _at_signals(end)
    output.say("\nThe story stands until Ctrl-C.")
    await child.process.wait()


async def main(samples: Path, *, keep: bool) -> int:
    """Runs the demo on a system of its own; its exit status."""
    task = asyncio.current_task()
    assert task is not None
    _at_signals(task.cancel)
    began = clock.monotonic()
    async with running_demo(samples) as (demo, child):
        finished = await demo.run()
        await demo.close()
        heading("Summary")
        for line in demo.tally.summary():
            output.say(f"  {line}")
        output.say(f"  {clock.monotonic() - began:.0f} s in all")
        if keep:
            await demo.leave()
            await _stand(child)
    output.say("  nothing is left behind")
    return 0 if finished else 1


def _arguments(words: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tools.demo", description="Plays the demo.")
    parser.add_argument("samples", type=Path, help="the folder deploy/samples")
    parser.add_argument("--keep", action="store_true", help="leave the story standing until Ctrl-C")
    return parser.parse_args(words)


if __name__ == "__main__":
    given = _arguments(sys.argv[1:])
    try:
        with suppress(asyncio.CancelledError):
            raise SystemExit(asyncio.run(main(given.samples, keep=given.keep)))
        raise SystemExit(130)
    except (AdmittanceError, ClientError) as error:
        sys.stderr.write(f"{error}\n")
        raise SystemExit(1) from None
