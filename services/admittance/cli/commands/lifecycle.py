"""stop, cancel, activate, hold, release, priority, finish, approve, deny: what users may do
to a workload.

Imports happen when a command runs, so that help and completion are fast.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import typer

from admittance.cli.commands.arguments import WorkloadName, WorkloadWord
from admittance.cli.commands.workloads import PANEL
from admittance.cli.support.errors import BadInput
from admittance.cli.support.options import Call, NamespaceOption, NatsOption, call_of, run

if TYPE_CHECKING:
    from admittance.cli.show.objects import Found
    from admittance.events.base import Fact


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


def stop(
    ctx: typer.Context,
    kind: WorkloadWord,
    name: WorkloadName = None,
    nats: NatsOption = None,
    namespace: NamespaceOption = None,
) -> None:
    """Stop a workload: it is evicted, and not admitted again until `activate`.

    If it is a variant, the other variants of its workload continue.
    """
    from admittance.cli import lifecycle

    _change(_target(kind, name), call_of(ctx, nats, namespace), lifecycle.stopped, "stopped")


def cancel(
    ctx: typer.Context,
    kind: WorkloadWord,
    name: WorkloadName = None,
    nats: NatsOption = None,
    namespace: NamespaceOption = None,
) -> None:
    """The same as `stop`: ends the job and keeps the workload for `activate` or `delete`."""
    stop(ctx, kind, name, nats, namespace)


def activate(
    ctx: typer.Context,
    kind: WorkloadWord,
    name: WorkloadName = None,
    nats: NatsOption = None,
    namespace: NamespaceOption = None,
) -> None:
    """Put a stopped or rejected workload back into its queue."""
    from admittance.cli import lifecycle

    _change(_target(kind, name), call_of(ctx, nats, namespace), lifecycle.activated, "activated")


def hold(
    ctx: typer.Context,
    kind: WorkloadWord,
    name: WorkloadName = None,
    nats: NatsOption = None,
    namespace: NamespaceOption = None,
) -> None:
    """Keep a waiting workload out of its queue until `release`."""
    from admittance.cli import lifecycle

    _change(
        _target(kind, name),
        call_of(ctx, nats, namespace),
        lifecycle.held,
        "held",
        "hold workload {}",
    )


def release(
    ctx: typer.Context,
    kind: WorkloadWord,
    name: WorkloadName = None,
    nats: NatsOption = None,
    namespace: NamespaceOption = None,
) -> None:
    """Put a held workload back into its queue."""
    from admittance.cli import lifecycle

    _change(
        _target(kind, name),
        call_of(ctx, nats, namespace),
        lifecycle.released,
        "released",
        "release workload {}",
    )


def priority(
    ctx: typer.Context,
    kind: WorkloadWord,
    words: Annotated[list[str], typer.Argument(metavar="NAME P", help="Name and priority.")],
    nats: NatsOption = None,
    namespace: NamespaceOption = None,
) -> None:
    """Change the priority of a workload."""
    from admittance.cli import lifecycle

    *names, typed = words
    if len(names) > 1:
        raise BadInput(f'"{words[2]}" is one word too many: priority workload NAME P')
    target = _target(kind, names[0] if names else None)
    try:
        number = int(typed)
    except ValueError:
        raise BadInput(f'the priority "{typed}" is not a whole number') from None
    if not -(2**31) <= number < 2**31:
        raise BadInput(f"the priority {number} is not a 32-bit number")
    fact = lifecycle.reprioritized(number)
    instead = f"priority workload {{}} {number}"
    _change(target, call_of(ctx, nats, namespace), fact, f"has priority {number}", instead)


def finish(
    ctx: typer.Context,
    kind: WorkloadWord,
    name: WorkloadName = None,
    failed: Annotated[bool, typer.Option("--failed", help="Record it as failed.")] = False,
    message: Annotated[str, typer.Option(metavar="TEXT", help="Message to store.")] = "",
    nats: NatsOption = None,
    namespace: NamespaceOption = None,
) -> None:
    """Declare a workload finished; its quota is released at once."""
    from admittance.cli import lifecycle

    target = _target(kind, name)
    fact = lifecycle.finished(failed=failed, message=message)
    _change(target, call_of(ctx, nats, namespace), fact, "finished", "finish workload {}")


def _target(kind: str, name: str | None) -> str:
    from admittance.cli.support.kinds import workload_target

    return workload_target(kind, name)


def _change(
    target: str, call: Call, make: Callable[[Found], Fact], done: str, instead: str = ""
) -> None:
    """``instead``: the command to use on the parent (``{}``), if variants are refused."""
    from admittance.cli import lifecycle

    run(lifecycle.change(call, target, make, done, instead=f"`admit {instead}`" if instead else ""))


def approve(
    ctx: typer.Context,
    kind: WorkloadWord,
    name: WorkloadName = None,
    check: Check = None,
    message: Message = "",
    user: User = None,
    nats: NatsOption = None,
    namespace: NamespaceOption = None,
) -> None:
    """Approve a workload: set its approval check to Ready."""
    _give_verdict(call_of(ctx, nats, namespace), kind, name, check, message, user, approve=True)


def deny(
    ctx: typer.Context,
    kind: WorkloadWord,
    name: WorkloadName = None,
    check: Check = None,
    message: Message = "",
    user: User = None,
    nats: NatsOption = None,
    namespace: NamespaceOption = None,
) -> None:
    """Deny a workload: it is Rejected, and not admitted again until `activate`."""
    _give_verdict(call_of(ctx, nats, namespace), kind, name, check, message, user, approve=False)


def _give_verdict(
    call: Call,
    kind: str,
    name: str | None,
    check: str | None,
    message: str,
    user: str | None,
    *,
    approve: bool,
) -> None:
    from admittance.cli.approve import give_verdict
    from admittance.cli.support.kinds import workload_target

    target = workload_target(kind, name)
    run(give_verdict(call, target, check, message, user, approve=approve))


def register(app: typer.Typer) -> None:
    """Adds the commands of this module to app."""
    for command in (stop, cancel, activate, hold, release, finish, approve, deny):
        app.command(rich_help_panel=PANEL)(command)
    # A priority may be negative: -5 is a value, not an option.
    app.command(rich_help_panel=PANEL, context_settings={"ignore_unknown_options": True})(priority)
