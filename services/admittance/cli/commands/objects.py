"""apply, get, describe, delete: objects of every kind."""

from typing import Annotated

import typer

from admittance.cli.commands.arguments import (
    AllNamespaces,
    Kind,
    KindOrPending,
    OptionalKind,
    OptionalName,
    OptionalNames,
    phases,
    queues,
)
from admittance.cli.support.errors import BadInput
from admittance.cli.support.options import Call, call_options_without_output, run, with_options

PANEL = "Objects"


@with_options(call_options_without_output)
def apply(
    call: Call,
    file: Annotated[
        list[str],
        typer.Option("--file", "-f", metavar="FILE|DIR|-", help="Manifests; may be repeated."),
    ],
) -> None:
    """Create or change objects from manifests. All manifests are validated before any is applied.

    Prints one line per object: created, changed or unchanged. Workloads and Jobs are submitted.
    """
    from admittance.cli import apply

    run(apply.apply(call, file))


@with_options()
def get(
    call: Call,
    kind: KindOrPending,
    name: OptionalName = None,
    queue: Annotated[
        str | None,
        typer.Option(
            "--queue",
            "-q",
            metavar="QUEUE",
            help="Only workloads of this LocalQueue or ClusterQueue.",
            autocompletion=queues,
        ),
    ] = None,
    label: Annotated[
        list[str] | None,
        typer.Option(
            "--selector", "-l", metavar="LABELS", help="KEY=VALUE, KEY!=VALUE, KEY or !KEY."
        ),
    ] = None,
    state: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PHASE",
            help="Only workloads in this phase, or Succeeded or Failed.",
            autocompletion=phases,
        ),
    ] = None,
    since: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Only objects created since: 10m, 2h, or a time."),
    ] = None,
    sort_by: Annotated[
        str | None,
        typer.Option(
            "--sort-by",
            metavar="KEY",
            help="name, namespace, created; of workloads also queue, priority, state, started, "
            "duration. -KEY reverses the order.",
        ),
    ] = None,
    limit: Annotated[
        int | None,
        typer.Option(
            "--limit", min=1, metavar="N", help="At most N rows. Default: all; pending: 1000"
        ),
    ] = None,
    all_namespaces: AllNamespaces = False,
    watch: Annotated[
        bool, typer.Option("--watch", "-w", help="Print one line per change until interrupted.")
    ] = False,
) -> None:
    """Show all objects of a kind, or the named object; `get pending` shows pending workloads in
    order.

    Workloads are listed running first, then waiting, then finished; the newest first. Tables are
    cut to the width of the terminal; -o wide shows all.
    """
    from admittance.cli import get
    from admittance.cli.show import selection
    from admittance.client.kinds import WORKLOAD, target
    from admittance.runtime import clock

    narrowing = {
        "-q/--queue": queue,
        "-l/--selector": label,
        "--state": state,
        "--since": since,
        "--sort-by": sort_by,
        "--limit": limit,
    }
    typed = [option for option, value in narrowing.items() if value is not None]
    is_pending = kind.lower() == get.PENDING
    if is_pending:
        if name is not None:
            raise BadInput(f'get pending takes no name ("{name}"); use -q QUEUE')
        if watch:
            raise BadInput("get pending cannot be watched; watch workloads instead")
    known, wanted = (WORKLOAD, None) if is_pending else target(kind, name)
    if queue is not None and known is not WORKLOAD:
        raise BadInput("-q/--queue goes with workloads and pending only")
    if typed and (wanted is not None or watch):
        raise BadInput(f"{typed[0]} works on lists only" + (", and not with -w" if watch else ""))
    if watch:
        from admittance.cli.get import watch_objects

        run(watch_objects(call, kind, name, all_namespaces=all_namespaces))
        return
    chosen = selection.selection(
        known,
        labels=label or (),
        states=state or (),
        since=since,
        sort_by=sort_by,
        limit=limit,
        now=clock.now(),
    )
    if is_pending:
        run(get.pending(call, queue, chosen, all_namespaces=all_namespaces))
    else:
        run(get.get(call, known, wanted, chosen, queue, all_namespaces=all_namespaces))


@with_options()
def describe(
    call: Call,
    kind: Kind,
    name: OptionalName = None,
) -> None:
    """Show one object in detail: its spec, status and latest events.

    Tables are cut to the width of the terminal; -o wide shows all.
    """
    from admittance.cli import describe
    from admittance.cli.support.options import Output

    if call.output not in (Output.TABLE, Output.WIDE):
        raise BadInput(f"describe has no -o {call.output}; use `admit get`")
    run(describe.describe(call, kind, name))


@with_options(call_options_without_output)
def delete(
    call: Call,
    kind: OptionalKind = None,
    names: OptionalNames = None,
    stored: Annotated[
        list[str] | None,
        typer.Option(
            "--stored",
            metavar="KEY",
            help="Delete the stored value at this key, which `admit doctor` names; repeatable.",
        ),
    ] = None,
) -> None:
    """Delete objects. A workload is gone once its job has stopped.

    `runner NAME` deletes what a runner left that is gone for good, which `admit doctor` lists.
    """
    from admittance.cli import delete as deletion

    if stored:
        if kind is not None:
            raise BadInput(f'--stored KEY stands alone; "{kind}" is one word too many')
        run(deletion.delete_stored(call, stored))
    elif kind is None:
        raise BadInput("which object? write KIND NAME, or --stored KEY")
    else:
        run(deletion.delete(call, deletion.targets_of(kind, names or [])))


@with_options()
def simulate(
    call: Call,
    file: Annotated[
        list[str] | None,
        typer.Option("--file", "-f", metavar="FILE|DIR|-", help="Manifests; may be repeated."),
    ] = None,
    deletes: Annotated[
        list[str] | None,
        typer.Option("--delete", metavar="KIND/NAME", help="Simulate its deletion; repeatable."),
    ] = None,
    limit: Annotated[
        int | None,
        typer.Option(
            metavar="N", help="Rows of each list; 0: all. Default: 20; JSON and YAML: all", min=0
        ),
    ] = None,
) -> None:
    """Show what would start, wait, or be evicted if manifests were applied now; changes nothing.

    Shows only the differences to what would happen without the change, now and after evicted jobs
    have stopped.
    """
    from admittance.cli import simulate

    run(simulate.simulate(call, file or [], deletes or [], limit))


def register(app: typer.Typer) -> None:
    """Adds the commands of this module to app."""
    for command in (apply, get, describe, delete, simulate):
        app.command(rich_help_panel=PANEL)(command)
