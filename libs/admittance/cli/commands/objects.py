"""apply, get, describe, delete: objects of every kind."""

from __future__ import annotations

from typing import Annotated

import typer

from admittance.cli.commands.words import (
    AllNamespaces,
    Kind,
    KindOrPending,
    OptionalName,
    OptionalNames,
)
from admittance.cli.errors import BadInput
from admittance.cli.options import (
    NamespaceOption,
    NatsOption,
    OutputOption,
    call_of,
    run,
)

PANEL = "Objects"


def apply(
    ctx: typer.Context,
    file: Annotated[
        list[str],
        typer.Option("--file", "-f", metavar="FILE|DIR|-", help="Manifests; may be repeated."),
    ],
    nats: NatsOption = None,
    namespace: NamespaceOption = None,
) -> None:
    """Create or change objects from manifests: all of them are validated before any is applied.

    Prints one line per object: created, changed or unchanged. Workloads and Jobs are submitted.
    """
    from admittance.cli import applying

    run(applying.apply(call_of(ctx, nats, namespace), file))


def get(
    ctx: typer.Context,
    kind: KindOrPending,
    name: OptionalName = None,
    queue: Annotated[
        str | None,
        typer.Option("--queue", "-q", metavar="QUEUE", help="With pending: of this queue only."),
    ] = None,
    limit: Annotated[
        int | None,
        typer.Option(
            "--limit", min=1, metavar="N", help="With pending: so many at most. Default: 1000"
        ),
    ] = None,
    all_namespaces: AllNamespaces = False,
    watch: Annotated[
        bool, typer.Option("--watch", "-w", help="Go on with a line per change.")
    ] = False,
    nats: NatsOption = None,
    namespace: NamespaceOption = None,
    output: OutputOption = None,
) -> None:
    """Show objects of a kind, or one of them; `get pending` shows who waits, in order."""
    from admittance.cli import reading

    call = call_of(ctx, nats, namespace, output)
    if kind.lower() == reading.PENDING:
        if name is not None:
            raise BadInput(f'get pending takes a queue with -q, and no name "{name}"')
        if watch:
            raise BadInput("get pending cannot be watched; watch workloads instead")
        rows = limit or reading.PENDING_ROWS
        run(reading.pending(call, queue, all_namespaces=all_namespaces, limit=rows))
        return
    if limit is not None:
        raise BadInput("--limit goes with `get pending` only")
    if queue is not None:
        raise BadInput("-q/--queue goes with `get pending` only")
    if watch:
        from admittance.cli import watching

        run(watching.watch(call, kind, name, all_namespaces=all_namespaces))
        return
    run(reading.get(call, kind, name, all_namespaces=all_namespaces))


def describe(
    ctx: typer.Context,
    kind: Kind,
    name: OptionalName = None,
    nats: NatsOption = None,
    namespace: NamespaceOption = None,
) -> None:
    """Tell the story of one object: what it is, how it stands, and what happened last."""
    from admittance.cli import describing

    run(describing.describe(call_of(ctx, nats, namespace), kind, name))


def delete(
    ctx: typer.Context,
    kind: Kind,
    names: OptionalNames = None,
    nats: NatsOption = None,
    namespace: NamespaceOption = None,
) -> None:
    """Delete objects; a workload disappears once its job has stopped."""
    from admittance.cli import applying

    targets = applying.targets_of(kind, names or [])
    run(applying.delete(call_of(ctx, nats, namespace), targets))


def simulate(
    ctx: typer.Context,
    file: Annotated[
        list[str] | None,
        typer.Option("--file", "-f", metavar="FILE|DIR|-", help="Manifests; may be repeated."),
    ] = None,
    deletes: Annotated[
        list[str] | None,
        typer.Option("--delete", metavar="KIND/NAME", help="As if it were deleted; repeatable."),
    ] = None,
    limit: Annotated[
        int | None,
        typer.Option(
            metavar="N", help="Rows of each list; 0: all. Default: 20; of JSON and YAML all", min=0
        ),
    ] = None,
    nats: NatsOption = None,
    namespace: NamespaceOption = None,
    output: OutputOption = None,
) -> None:
    """Tell what would start, wait, or be evicted if manifests were applied now; changes nothing.

    Told is what differs from what would happen anyway: at once, and once evicted jobs have stopped.
    """
    from admittance.cli import simulating

    call = call_of(ctx, nats, namespace, output)
    run(simulating.simulate(call, file or [], deletes or [], limit))


def register(app: typer.Typer) -> None:
    """Adds the commands of this module to app."""
    for command in (apply, get, describe, delete, simulate):
        app.command(rich_help_panel=PANEL)(command)
