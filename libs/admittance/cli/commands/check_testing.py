"""check-test: a check controller is driven through the protocol."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from admittance.cli.options import (
    NamespaceOption,
    NatsOption,
    OutputOption,
    call_of,
    run,
)


def check_test(
    ctx: typer.Context,
    controller: Annotated[
        str, typer.Argument(metavar="CONTROLLER", help="The name that AdmissionChecks name.")
    ],
    command: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="-- CMD...",
            help="Start it so, with ADMIT_NATS_URL set. Default: it runs already.",
            show_default=False,
        ),
    ] = None,
    check: Annotated[
        str, typer.Option(metavar="NAME", help="The AdmissionCheck that it is asked for.")
    ] = "check-test",
    parameters: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="YAML or JSON: the parameters, or their manifest."),
    ] = None,
    timeout: Annotated[
        float, typer.Option(metavar="S", help="Seconds that it may take for an answer.", min=0.1)
    ] = 10.0,
    wait: Annotated[
        float | None,
        typer.Option(
            metavar="S",
            help="Seconds for its first answer. Default: --timeout; 60 with --embedded.",
            min=0.1,
        ),
    ] = None,
    case: Annotated[
        list[str] | None,
        typer.Option(metavar="CASE", help="Only this one; may be given several times."),
    ] = None,
    own: Annotated[
        bool, typer.Option("--embedded", help="Start a server for it; nothing else is needed.")
    ] = False,
    port: Annotated[
        int | None,
        typer.Option(metavar="P", help="Of that server. Default: a free one", min=0, max=65_535),
    ] = None,
    nats: NatsOption = None,
    namespace: NamespaceOption = None,
    output: OutputOption = None,
) -> None:
    """Drive a check controller, in whatever language, through the protocol; 1 if it does wrong.

    It is asked about workloads of a namespace that nobody else has, so a live deployment is not
    disturbed. Whatever it books, it books for them: give it parameters for a trial.
    """
    from admittance.cli import check_testing
    from admittance.cli.trials import where_of

    call = call_of(ctx, nats, namespace, output)
    options = check_testing.Options(
        controller=controller,
        check=check,
        parameters=parameters,
        timeout=timeout,
        where=where_of(call, own=own, port=port, command=command, wait=wait),
        cases=case or [],
    )
    run(check_testing.check_test(call, options))
