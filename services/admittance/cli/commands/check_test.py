"""check-test: a check controller is driven through the protocol."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from admittance.cli.commands.arguments import (
    CaseOption,
    CommandArgument,
    EmbeddedOption,
    PortOption,
    WaitOption,
)
from admittance.cli.support.options import NamespaceOption, NatsOption, OutputOption, call_of, run


def check_test(
    ctx: typer.Context,
    controller: Annotated[
        str, typer.Argument(metavar="CONTROLLER", help="The name that AdmissionChecks name.")
    ],
    command: CommandArgument = None,
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
    wait: WaitOption = None,
    case: CaseOption = None,
    own: EmbeddedOption = False,
    port: PortOption = None,
    nats: NatsOption = None,
    namespace: NamespaceOption = None,
    output: OutputOption = None,
) -> None:
    """Drive a check controller, in whatever language, through the protocol; 1 if it does wrong.

    It is asked about workloads of a namespace that nobody else has, so a live deployment is not
    disturbed. Whatever it books, it books for them: give it parameters for a trial.
    """
    from admittance.cli.conformance import check_test as check_testing
    from admittance.cli.conformance.trials import where_of

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
