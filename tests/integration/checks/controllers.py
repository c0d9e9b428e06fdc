"""Check controllers as processes: ``python controllers.py WHICH``."""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path

from admittance.checks import (
    AdmissionCheckController,
    Pending,
    Ready,
    Request,
    Retry,
    Verdict,
    Withdrawal,
)


def ready(name: str) -> AdmissionCheckController:
    """Sends Ready at once."""
    controller = AdmissionCheckController(name)

    @controller.check
    async def decide(request: Request) -> Verdict:
        return Ready(f"cycle {request.cycle}")

    return controller


def slow(name: str) -> AdmissionCheckController:
    """Records in the folder that it began, and works until the file "go" exists."""
    controller = AdmissionCheckController(name)

    @controller.check
    async def decide(request: Request) -> Verdict:
        folder = Path(sys.argv[3])
        with (folder / "begun").open("a") as notes:
            notes.write(f"{request.name}\n")
        while not (folder / "go").exists():  # noqa: ASYNC110
            await asyncio.sleep(0.02)
        return Ready("went")

    return controller


def stuck(name: str) -> AdmissionCheckController:
    """Works in a thread that never ends."""
    controller = AdmissionCheckController(name, grace_seconds=0.5)

    @controller.check
    def decide(request: Request) -> Verdict:
        with (Path(sys.argv[3]) / "begun").open("a") as notes:
            notes.write(f"{request.name}\n")
        time.sleep(3600)
        return Ready("never")

    return controller


def book(name: str) -> AdmissionCheckController:
    """Books something during a judgement, and frees it when the request is withdrawn."""
    controller = AdmissionCheckController(name)
    folder = Path(sys.argv[3])

    @controller.check
    async def decide(request: Request) -> Verdict:
        (folder / f"booked-{request.name}").touch()
        try:
            await request.report(Pending("booked"))
            while not (folder / "go").exists():  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        except asyncio.CancelledError:
            (folder / f"cancelled-{request.name}").touch()
            raise
        return Ready("provisioned")

    @controller.withdrawn
    async def free(withdrawal: Withdrawal) -> None:
        (folder / f"booked-{withdrawal.name}").unlink(missing_ok=True)
        with (folder / "freed").open("a") as notes:
            notes.write(f"{withdrawal.name} {withdrawal.reason}\n")

    return controller


def fickle(name: str) -> AdmissionCheckController:
    """Sends Ready, and Retry as soon as the file "spent" exists."""
    controller = AdmissionCheckController(name)
    tasks: set[asyncio.Task[None]] = set()

    async def watch(request: Request) -> None:
        while not (Path(sys.argv[3]) / "spent").exists():  # noqa: ASYNC110
            await asyncio.sleep(0.02)
        await request.report(Retry("spent meanwhile", after=3600))

    @controller.check
    async def decide(request: Request) -> Verdict:
        task = asyncio.create_task(watch(request))
        tasks.add(task)
        task.add_done_callback(tasks.discard)
        return Ready("within budget")

    return controller


def spent(name: str) -> AdmissionCheckController:
    """Sends Retry at once."""
    controller = AdmissionCheckController(name)

    @controller.check
    async def decide(request: Request) -> Verdict:
        return Retry("spent", after=3600)

    return controller


def late(name: str) -> AdmissionCheckController:
    """Books something, judges until the file "go" exists, and then sends Retry."""
    controller = AdmissionCheckController(name)
    folder = Path(sys.argv[3])

    @controller.check
    async def decide(request: Request) -> Verdict:
        (folder / f"booked-{request.name}").touch()
        while not (folder / "go").exists():  # noqa: ASYNC110
            await asyncio.sleep(0.02)
        return Retry("no capacity", after=7200)

    @controller.withdrawn
    async def free(withdrawal: Withdrawal) -> None:
        (folder / f"booked-{withdrawal.name}").unlink(missing_ok=True)

    return controller


CONTROLLERS = {
    "spent": spent,
    "late": late,
    "ready": ready,
    "slow": slow,
    "stuck": stuck,
    "book": book,
    "fickle": fickle,
}

if __name__ == "__main__":
    CONTROLLERS[sys.argv[1]](sys.argv[2]).run()
