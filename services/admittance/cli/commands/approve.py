"""approve, deny: a person gives the verdict of a check.

What a command needs is imported when it runs: help and completion do without.
"""

from __future__ import annotations

from typing import Annotated

import typer

from admittance.cli.commands.arguments import WorkloadName, WorkloadWord
from admittance.cli.commands.workloads import PANEL
from admittance.cli.support.options import Call, NamespaceOption, NatsOption, call_of, run

Check = Annotated[
    str | None,
    typer.Option(
        "--check",
        metavar="NAME",
        help="Which check. Default: the pending approval, or the only pending one",
    ),
]
Message = Annotated[
    str, typer.Option("--message", "-m", metavar="TEXT", help="Why; kept with the verdict.")
]
User = Annotated[
    str | None,
    typer.Option("--as", metavar="NAME", help="Who says so. Default: $ADMIT_USER, or the login"),
]


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
    """Approve a workload: the check that waits for a person is Ready."""
    _speak(call_of(ctx, nats, namespace), kind, name, check, message, user, approve=True)


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
    """Deny a workload: it is Rejected, and not admitted again before `activate`."""
    _speak(call_of(ctx, nats, namespace), kind, name, check, message, user, approve=False)


def _speak(
    call: Call,
    kind: str,
    name: str | None,
    check: str | None,
    message: str,
    user: str | None,
    *,
    approve: bool,
) -> None:
    from admittance.cli import approve as approving
    from admittance.cli.support.kinds import workload_target

    target = workload_target(kind, name)
    run(approving.speak(call, target, check, message, user, approve=approve))


def register(app: typer.Typer) -> None:
    """Adds the commands of this module to app."""
    for command in (approve, deny):
        app.command(rich_help_panel=PANEL)(command)
