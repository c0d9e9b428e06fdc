"""check-test, provider-test: conformance tests of check controllers and capacity providers."""

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
    from admittance.cli import conformance

    call = call_of(ctx, nats, namespace, output)
    options = conformance.CheckTestOptions(
        controller=controller,
        check=check,
        parameters=parameters,
        timeout=timeout,
        where=conformance.where_of(call, own=own, port=port, command=command, wait=wait),
        cases=case or [],
    )
    run(conformance.check_test(call, options))


def provider_test(
    ctx: typer.Context,
    provisioning_class: Annotated[
        str,
        typer.Argument(metavar="CLASS", help="The class that ProvisioningRequestConfigs name."),
    ],
    command: CommandArgument = None,
    parameters: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="YAML or JSON: parameters, or the config's manifest."),
    ] = None,
    wrong: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="The same, of parameters that it must refuse."),
    ] = None,
    pods: Annotated[
        int, typer.Option(metavar="N", help="Pods that each request is about.", min=1)
    ] = 1,
    request: Annotated[
        list[str] | None,
        typer.Option(metavar="RESOURCE=Q", help="What each pod needs. Default: cpu=1"),
    ] = None,
    node_selector: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=VALUE", help="A label that its node must have."),
    ] = None,
    room: Annotated[
        int,
        typer.Option(
            metavar="N",
            help="It has capacity for N such requests, and no more: sees whether it frees.",
            min=0,
            show_default=False,
        ),
    ] = 0,
    timeout: Annotated[
        float, typer.Option(metavar="S", help="Seconds that it may take to provide.", min=0.1)
    ] = 10.0,
    wait: WaitOption = None,
    case: CaseOption = None,
    own: EmbeddedOption = False,
    port: PortOption = None,
    nats: NatsOption = None,
    namespace: NamespaceOption = None,
    output: OutputOption = None,
) -> None:
    """Drive a provider, in whatever language, through the protocol; 1 if it does wrong.

    It is asked for capacity for workloads of a namespace that nobody else has, so a live deployment
    is not disturbed. What it books it books for real; all of it is taken back.
    """
    from admittance.cli import conformance

    call = call_of(ctx, nats, namespace, output)
    options = conformance.ProviderTestOptions(
        provisioning_class=provisioning_class,
        parameters=parameters,
        wrong=wrong,
        pods=pods,
        requests=request or [],
        node_selector=node_selector or [],
        room=room,
        timeout=timeout,
        where=conformance.where_of(call, own=own, port=port, command=command, wait=wait),
        cases=case or [],
    )
    run(conformance.provider_test(call, options))
