"""``admit stop``, ``cancel``, ``activate``, ``hold``, ``release``, ``priority``, ``finish``: each
publishes one fact about a workload to the log, and prints its outcome.

``admit approve`` and ``deny`` give the verdict of a check, as any check controller does. The
message of the verdict names the person and the time.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Final

from admittance.cli.commands.arguments import workload_command
from admittance.cli.commands.declare import PLACE, argument, command, option, stacked
from admittance.cli.support import output
from admittance.cli.support.link import IN_COMMANDS, link
from admittance.cli.support.options import Call
from admittance.client import kinds, requests
from admittance.client.errors import sentence

if TYPE_CHECKING:
    from admittance.client.requests.link import Link
    from admittance.client.requests.objects import BucketObject
    from admittance.workload.stored import StoredWorkload
from admittance.client.errors import BadInput, ClientError

PRIORITY_USAGE: Final = "admit priority workload NAME P"
OTHERS_CONTINUE: Final = "which continues with the others"
NO_FIELDS: Final[Mapping[str, Any]] = {}


@workload_command()
async def stop(call: Call, name: str) -> int:
    """Stop a workload: it is evicted, and not admitted again until `activate`.

    If the workload is a variant, the other variants of its parent continue.
    """
    return await _change(call, name, requests.changes.STOP, "stop", "stopped", OTHERS_CONTINUE)


@workload_command()
async def cancel(call: Call, name: str) -> int:
    """The same as `stop`: ends the job and keeps the workload for `activate` or `delete`."""
    return await _change(call, name, requests.changes.STOP, "cancel", "stopped", OTHERS_CONTINUE)


@workload_command()
async def activate(call: Call, name: str) -> int:
    """Put a stopped or rejected workload back into its queue."""
    follows = "which tries it again if the policy allows it"
    return await _change(call, name, requests.changes.ACTIVATE, "activate", "activated", follows)


@workload_command()
async def hold(call: Call, name: str) -> int:
    """Keep a waiting workload out of its queue until `release`."""
    return await _change(call, name, requests.changes.HOLD, "hold", "held")


@workload_command()
@option("--gate NAME", "Open only this admission gate, also one that opens by itself.", default="")
async def release(call: Call, name: str, gate: str) -> int:
    """Put a held or gated workload back into its queue.

    Gates that a service opens, such as that of an array, stay closed unless --gate names them.
    """
    change = requests.changes.RELEASE
    words = f"--gate {gate}" if gate else ""
    return await _change(
        call, name, change, "release", "released", words=words, fields={"gate": gate}
    )


@command(PLACE, negative_numbers=True)
@argument("workload", "The word workload (or wl), or workload/NAME.", name="kind")
@argument("NAME P", "Name and priority.", name="words", several=True)
async def priority(call: Call, kind: str, words: tuple[str, ...]) -> int:
    """Change the priority of a workload."""
    *names, typed = words
    if len(names) > 1:
        raise BadInput(f'"{words[2]}" is one word too many: {PRIORITY_USAGE}')
    if not names and "/" not in kind:
        raise BadInput(f'a name and a priority are needed, not only "{typed}": {PRIORITY_USAGE}')
    name = kinds.workload_target(kind, names[0] if names else None)
    try:
        number = int(typed)
    except ValueError:
        raise BadInput(f'the priority "{typed}" is not a whole number') from None
    if not -(2**31) <= number < 2**31:
        raise BadInput(f"the priority {number} is not a 32-bit number")
    change, done = requests.changes.SET_PRIORITY, f"has priority {number}"
    said = {"priority": number}
    return await _change(call, name, change, "priority", done, words=str(number), fields=said)


@workload_command()
@option("--failed", "Record it as failed.")
@option("--message TEXT", "Message to store.", default="")
async def finish(call: Call, name: str, failed: bool, message: str) -> int:
    """Declare a workload finished; its quota is released at once."""
    change = requests.changes.FINISH
    said = {"succeeded": not failed, "message": message}
    return await _change(call, name, change, "finish", "finished", fields=said)


async def _change(
    call: Call,
    name: str,
    change: requests.changes.ChangeKind,
    command: str,
    done: str,
    follows: str = "",
    *,
    words: str = "",
    fields: Mapping[str, Any] = NO_FIELDS,
) -> int:
    """Publishes the fact of a command for each workload of the name, and prints ``done``. Returns
    the exit status. ``follows``: what the parent of a variant does after it. ``words``: those of
    the command line after the workload's name. ``fields``: of the fact.
    """
    instead = f"`{' '.join(filter(None, (f'admit {command} workload {{}}', words)))}`"
    async with link(call) as bus:
        names = await requests.objects.element_names(bus, name)
        status = 0
        for one in names:
            try:
                changed = await requests.changes.change(
                    bus, change, one, spelled=f"`admit {command}`", instead=instead, **fields
                )
            except ClientError as error:
                if len(names) == 1:
                    raise
                for line in error.lines:
                    output.error(line)
                status = max(status, error.status)
                continue
            _show_change(changed, done, follows)
    return status


def _show_change(changed: requests.changes.Changed, done: str, follows: str) -> None:
    stored, reply = changed
    name = stored.name
    ignored = reply.outcome == "ignored"
    output.outcome(f"{kinds.WORKLOAD.qualified}/{name}", "unchanged" if ignored else done)
    if ignored and reply.message:
        output.note(f'workload "{name}": {reply.message}')
    elif requests.families.is_variant(stored.workload()):
        from admittance.workload.stored import owner_of

        parent, _ = owner_of(stored.workload())
        output.note(f'{name} is one variant of workload "{parent}", {follows}')


# Verdicts of people. ---------------------------------------------------------------------

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
    requests.changes.check_message(message, IN_COMMANDS.message)
    async with link(call) as bus:
        given = await requests.changes.give_verdict(
            bus, name, approve=approve, check=check, message=message, user=user
        )
        word = "approved" if approve else "denied"
        output.outcome(
            f"{kinds.WORKLOAD.qualified}/{given.found.name}", f"{word} (check {given.check})"
        )
        await _print_effect(bus, given.found, given.check, given.state)


async def _print_effect(bus: Link, stored: BucketObject, check: str, state: str) -> None:
    """Prints the phase of the workload a few seconds after the verdict."""
    from admittance.runtime import clock
    from admittance.workload.phase import Phase, phase
    from admittance.workload.waiting_reason import reason_of

    workload = (await requests.objects.find(bus, kinds.WORKLOAD, stored.name)).workload()
    others = [
        row.name
        for row in workload.status.admission_checks
        if row.name != check and row.state != "Ready"
    ]
    if state == "Ready" and not others and phase(workload, clock.now()) is Phase.QUOTA_RESERVED:
        # After the last Ready the scheduler checks the quota again before the workload is admitted.
        workload = await _settled(bus, stored, workload)
    now = clock.now()
    where = phase(workload, now)
    if where is Phase.QUOTA_RESERVED and others:
        output.note(f"{stored.name} still waits for {', '.join(others)}")
        return
    reason, message = reason_of(workload, now)
    because = sentence(reason, message)
    running = where in (Phase.ADMITTED, Phase.RUNNING)
    output.note(f"{stored.name} is {where}" + (f" ({because})" if because and not running else ""))


async def _settled(bus: Link, stored: BucketObject, workload: StoredWorkload) -> StoredWorkload:
    import asyncio

    from admittance.runtime import clock
    from admittance.workload.phase import Phase, phase

    try:
        async with (
            asyncio.timeout(FOLLOW_SECONDS),
            aclosing(requests.objects.follow(bus, stored.namespace, stored.name)) as states,
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
