"""Arguments that several commands share, and what the shell completes for them."""

from dataclasses import replace
from typing import Annotated, Final, NamedTuple

import typer

from admittance.cli.support.errors import BadInput
from admittance.cli.support.options import Call, NamespaceOption, NatsOption, OutputOption, call_of
from admittance.cli.support.services import SERVICES

PHASES: Final = (
    *("Pending", "Backoff", "QuotaReserved", "Admitted", "Running", "Evicting"),
    *("Deactivated", "Rejected", "Finished"),
)
ENDS: Final = ("Succeeded", "Failed")
"""Results of a finished workload; `admit wait --for` accepts them besides phases."""


def _kinds(incomplete: str) -> list[str]:
    from admittance.client.kinds import KINDS

    return [kind.plural for kind in KINDS if kind.plural.startswith(incomplete.lower())]


def _kinds_and_pending(incomplete: str) -> list[str]:
    return [*_kinds(incomplete), *(["pending"] if "pending".startswith(incomplete.lower()) else [])]


def _workload(incomplete: str) -> list[str]:
    return ["workload"] if "workload".startswith(incomplete.lower()) else []


def phases(incomplete: str) -> list[str]:
    return [phase for phase in (*PHASES, *ENDS) if phase.lower().startswith(incomplete.lower())]


def _names(ctx: typer.Context, incomplete: str) -> list[str]:
    """The names of existing objects of the kind that the command line names, for completion."""
    kind = str(ctx.params.get("kind") or "")
    return _names_of(ctx, kind, incomplete) if kind and kind.lower() != "pending" else []


def queues(ctx: typer.Context, incomplete: str) -> list[str]:
    return _names_of(ctx, "localqueues", incomplete)


def _workloads(ctx: typer.Context, incomplete: str) -> list[str]:
    return _names_of(ctx, "workloads", incomplete)


def _names_of(ctx: typer.Context, kind: str, incomplete: str) -> list[str]:
    from admittance.cli.support.object_names import names
    from admittance.cli.support.options import outer_call
    from admittance.client.kinds import kind_named

    typed = {**ctx.find_root().params, **{k: v for k, v in ctx.params.items() if v is not None}}
    try:
        call = outer_call(typed.get("nats"), typed.get("namespace"), None, given=typed)
        return names(call.url, kind_named(kind), call.namespace, incomplete, call.connection)
    except BadInput:
        return []


def _services(incomplete: str) -> list[str]:
    return [service for service in SERVICES if service.startswith(incomplete)]


KindOrPending = Annotated[
    str,
    typer.Argument(
        metavar="KIND", help="Plural, singular or short name.", autocompletion=_kinds_and_pending
    ),
]
Kind = Annotated[
    str,
    typer.Argument(metavar="KIND", help="Plural, singular or short name.", autocompletion=_kinds),
]
OptionalKind = Annotated[
    str | None,
    typer.Argument(metavar="KIND", help="Plural, singular or short name.", autocompletion=_kinds),
]
OptionalName = Annotated[
    str | None,
    typer.Argument(metavar="[NAME]", help="Name of one object.", autocompletion=_names),
]
OptionalNames = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[NAME]...", help="Names of one or more objects.", autocompletion=_names
    ),
]
WorkloadWord = Annotated[
    str,
    typer.Argument(
        metavar="workload",
        help="The word workload (or wl), or workload/NAME.",
        autocompletion=_workload,
    ),
]
WorkloadName = Annotated[
    str | None,
    typer.Argument(metavar="NAME", help="The name of the workload.", autocompletion=_workloads),
]
QueueOption = Annotated[
    str | None,
    typer.Option(
        "--queue",
        "-q",
        metavar="QUEUE",
        help="The LocalQueue. Default: the only one of the namespace.",
        autocompletion=queues,
    ),
]
PhaseOption = Annotated[
    str,
    typer.Option("--for", metavar="PHASE", help=", ".join((*PHASES, *ENDS)), autocompletion=phases),
]
ServiceName = Annotated[
    str,
    typer.Argument(metavar="SERVICE", help=", ".join(SERVICES), autocompletion=_services),
]
AllNamespaces = Annotated[bool, typer.Option("--all-namespaces", "-A", help="In all namespaces.")]
Follow = Annotated[bool, typer.Option("--follow", "-f", "-F", help="Follow until interrupted.")]
Timeout = Annotated[
    str | None,
    typer.Option(
        metavar="SPAN", help="Give up after this time (90, 90s, 5m, 1h30m) with status 1."
    ),
]


USAGE_SHAPES: Final = ("table", "wide", "json", "yaml", "csv")


class UsageCall(NamedTuple):
    """The call of `admit usage`. ``shape``: one of `USAGE_SHAPES`."""

    call: Call
    shape: str


def usage_options(
    ctx: typer.Context,
    nats: NatsOption = None,
    namespace: NamespaceOption = None,
    output: Annotated[
        str | None,
        typer.Option(
            "--output",
            "-o",
            metavar="|".join(USAGE_SHAPES),
            help="Output format. Default: a table",
            rich_help_panel="Global options",
        ),
    ] = None,
) -> UsageCall:
    """Declares the global options of `admit usage`, which also writes CSV. Raises BadInput for
    another output format."""
    call = call_of(ctx, nats, namespace)
    shape = output or str(call.output)
    if shape not in USAGE_SHAPES:
        raise BadInput(f'-o "{shape}" is not one of {", ".join(USAGE_SHAPES)}')
    return UsageCall(call, shape)


class Target(NamedTuple):
    """The workload that a command line names."""

    call: Call
    name: str


def workload_options(
    ctx: typer.Context,
    kind: WorkloadWord,
    name: WorkloadName = None,
    nats: NatsOption = None,
    namespace: NamespaceOption = None,
) -> Target:
    """Declares the arguments ``workload NAME`` and the global options of a command; returns the
    target."""
    from admittance.client.kinds import workload_target

    return Target(call_of(ctx, nats, namespace), workload_target(kind, name))


def workload_options_with_output(
    ctx: typer.Context,
    kind: WorkloadWord,
    name: WorkloadName = None,
    nats: NatsOption = None,
    namespace: NamespaceOption = None,
    output: OutputOption = None,
) -> Target:
    """Declares the arguments of `workload_options` and the output format of a command; returns the
    target."""
    call, found = workload_options(ctx, kind, name, nats, namespace)
    return Target(replace(call, output=output or call.output), found)
