"""``admit approve`` and ``admit deny``: a person gives the verdict of a check.

The verdict is a fact on the log, like the verdict of any check controller. The message of the
verdict names the person and the time.
"""

from __future__ import annotations

from contextlib import aclosing
from typing import TYPE_CHECKING, Final

from admittance.cli.commands.arguments import workload_command
from admittance.cli.commands.declare import option, stacked
from admittance.cli.support import output
from admittance.cli.support.link import link
from admittance.cli.support.options import Call
from admittance.cli.support.output import sentence
from admittance.client import kinds, requests

if TYPE_CHECKING:
    from admittance.client.requests.link import Link
    from admittance.client.requests.objects import BucketObject
    from admittance.workload.stored import StoredWorkload

FOLLOW_SECONDS: Final = 5.0
"""How long to wait after an approval for the workload to be admitted."""

verdict_options = stacked(
    option(
        "--check NAME",
        "The check. Default: the pending approval check, or the only pending one",
    ),
    option("--message -m TEXT", "Reason; stored with the verdict.", default=""),
    option("--as NAME", "Name of the user. Default: $ADMIT_USER, or the login", name="user"),
)


@workload_command()
@verdict_options
async def approve(call: Call, name: str, check: str | None, message: str, user: str | None) -> None:
    """Approve a workload: set its approval check to Ready."""
    await _give_verdict(call, name, check, message, user, approve=True)


@workload_command()
@verdict_options
async def deny(call: Call, name: str, check: str | None, message: str, user: str | None) -> None:
    """Deny a workload: it is Rejected, and not admitted again until `activate`."""
    await _give_verdict(call, name, check, message, user, approve=False)


async def _give_verdict(
    call: Call, name: str, check: str | None, message: str, user: str | None, *, approve: bool
) -> None:
    spelled = requests.changes.Spelling("--check ", "--message", "--as")
    requests.changes.check_message(message, spelled.message)
    async with link(call) as bus:
        given = await requests.changes.give_verdict(
            bus, name, approve=approve, check=check, message=message, user=user, spelled=spelled
        )
        word = "approved" if approve else "denied"
        output.outcome(
            f"{kinds.WORKLOAD.qualified}/{given.found.name}", f"{word} (check {given.check})"
        )
        await _print_effect(bus, given.found, given.check, given.state)


async def _print_effect(bus: Link, found: BucketObject, check: str, state: str) -> None:
    """Prints the phase of the workload a few seconds after the verdict."""
    from admittance.runtime import clock
    from admittance.workload.phase import Phase, phase
    from admittance.workload.waiting_reason import reason_of

    workload = (await requests.objects.find(bus, kinds.WORKLOAD, found.name)).workload()
    others = [
        row.name
        for row in workload.status.admission_checks
        if row.name != check and row.state != "Ready"
    ]
    if state == "Ready" and not others and phase(workload, clock.now()) is Phase.QUOTA_RESERVED:
        # After the last Ready the scheduler checks the quota again before the workload is admitted.
        workload = await _settled(bus, found, workload)
    now = clock.now()
    where = phase(workload, now)
    if where is Phase.QUOTA_RESERVED and others:
        output.note(f"{found.name} still waits for {', '.join(others)}")
        return
    reason, message = reason_of(workload, now)
    because = sentence(reason, message)
    running = where in (Phase.ADMITTED, Phase.RUNNING)
    output.note(f"{found.name} is {where}" + (f" ({because})" if because and not running else ""))


async def _settled(bus: Link, found: BucketObject, workload: StoredWorkload) -> StoredWorkload:
    import asyncio

    from admittance.runtime import clock
    from admittance.workload.phase import Phase, phase

    try:
        async with (
            asyncio.timeout(FOLLOW_SECONDS),
            aclosing(requests.objects.follow(bus, found.namespace, found.name)) as states,
        ):
            async for seen in states:
                if seen is None:
                    return workload
                workload = seen.workload()
                if phase(workload, clock.now()) is not Phase.QUOTA_RESERVED:
                    return workload
    except TimeoutError:
        pass
    return workload
