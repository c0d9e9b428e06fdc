"""stop, cancel, activate, hold, release, priority, finish, approve, deny: what users may do
to a workload.

Imports happen when a command runs, so that help and completion are fast.
"""

from typing import Annotated, Final

import typer

from admittance.cli.commands.arguments import Target, WorkloadWord, workload_options
from admittance.cli.commands.workloads import PANEL
from admittance.cli.support.errors import BadInput
from admittance.cli.support.options import Call, call_options_without_output, run, with_options

Check = Annotated[
    str | None,
    typer.Option(
        "--check",
        metavar="NAME",
        help="The check. Default: the pending approval check, or the only pending one",
    ),
]
Message = Annotated[
    str, typer.Option("--message", "-m", metavar="TEXT", help="Reason; stored with the verdict.")
]
User = Annotated[
    str | None,
    typer.Option(
        "--as", metavar="NAME", help="Name of the user. Default: $ADMIT_USER, or the login"
    ),
]

PRIORITY_USAGE: Final = "admit priority workload NAME P"


@with_options(workload_options)
def stop(on: Target) -> None:
    """Stop a workload: it is evicted, and not admitted again until `activate`.

    If the workload is a variant, the other variants of its parent continue.
    """
    _change(on, "stop")


@with_options(workload_options)
def cancel(on: Target) -> None:
    """The same as `stop`: ends the job and keeps the workload for `activate` or `delete`."""
    _change(on, "cancel")


@with_options(workload_options)
def activate(on: Target) -> None:
    """Put a stopped or rejected workload back into its queue."""
    _change(on, "activate")


@with_options(workload_options)
def hold(on: Target) -> None:
    """Keep a waiting workload out of its queue until `release`."""
    _change(on, "hold")


@with_options(workload_options)
def release(on: Target) -> None:
    """Put a held workload back into its queue."""
    _change(on, "release")


@with_options(call_options_without_output)
def priority(
    call: Call,
    kind: WorkloadWord,
    words: Annotated[list[str], typer.Argument(metavar="NAME P", help="Name and priority.")],
) -> None:
    """Change the priority of a workload."""
    from admittance.client.kinds import workload_target

    *names, typed = words
    if len(names) > 1:
        raise BadInput(f'"{words[2]}" is one word too many: {PRIORITY_USAGE}')
    if not names and "/" not in kind:
        raise BadInput(f'a name and a priority are needed, not only "{typed}": {PRIORITY_USAGE}')
    target = workload_target(kind, names[0] if names else None)
    try:
        number = int(typed)
    except ValueError:
        raise BadInput(f'the priority "{typed}" is not a whole number') from None
    if not -(2**31) <= number < 2**31:
        raise BadInput(f"the priority {number} is not a 32-bit number")
    _change(Target(call, target), "priority", str(number), priority=number)


@with_options(workload_options)
def finish(
    on: Target,
    failed: Annotated[bool, typer.Option("--failed", help="Record it as failed.")] = False,
    message: Annotated[str, typer.Option(metavar="TEXT", help="Message to store.")] = "",
) -> None:
    """Declare a workload finished; its quota is released at once."""
    _change(on, "finish", succeeded=not failed, message=message)


def _change(on: Target, command: str, words: str = "", **fields: object) -> None:
    """Publishes the fact of a command. ``words``: the words of the command line after the
    workload's name. ``fields``: fields of the fact.
    """
    from admittance.cli import lifecycle

    run(lifecycle.change(on.call, on.name, command, words, **fields))


@with_options(workload_options)
def approve(on: Target, check: Check = None, message: Message = "", user: User = None) -> None:
    """Approve a workload: set its approval check to Ready."""
    from admittance.cli.approve import give_verdict

    run(give_verdict(on.call, on.name, check, message, user, approve=True))


@with_options(workload_options)
def deny(on: Target, check: Check = None, message: Message = "", user: User = None) -> None:
    """Deny a workload: it is Rejected, and not admitted again until `activate`."""
    from admittance.cli.approve import give_verdict

    run(give_verdict(on.call, on.name, check, message, user, approve=False))


def register(app: typer.Typer) -> None:
    """Adds the commands of this module to app."""
    for command in (stop, cancel, activate, hold, release, finish, approve, deny):
        app.command(rich_help_panel=PANEL)(command)
    # A priority may be negative, so -5 must be read as a value and not as an option.
    app.command(rich_help_panel=PANEL, context_settings={"ignore_unknown_options": True})(priority)
