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
        str, typer.Argument(metavar="CONTROLLER", help="The controllerName of its AdmissionChecks.")
    ],
    command: CommandArgument = None,
    check: Annotated[
        str, typer.Option(metavar="NAME", help="Name of the AdmissionCheck in the requests.")
    ] = "check-test",
    parameters: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="YAML or JSON: the parameters, or their manifest."),
    ] = None,
    timeout: Annotated[
        float, typer.Option(metavar="S", help="Seconds that an answer may take.", min=0.1)
    ] = 10.0,
    wait: WaitOption = None,
    case: CaseOption = None,
    own: EmbeddedOption = False,
    port: PortOption = None,
    nats: NatsOption = None,
    namespace: NamespaceOption = None,
    output: OutputOption = None,
) -> None:
    """Test a check controller in any language against the protocol; status 1 if a case fails.

    The requests are about workloads in a namespace of their own, so a live deployment is not
    disturbed. The controller may book real capacity for them: use parameters made for tests.
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
        typer.Argument(metavar="CLASS", help="The provisioning class that it serves."),
    ],
    command: CommandArgument = None,
    parameters: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="YAML or JSON: parameters, or the config's manifest."),
    ] = None,
    wrong: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="The same, with parameters that it must refuse."),
    ] = None,
    pods: Annotated[int, typer.Option(metavar="N", help="Pods of each request.", min=1)] = 1,
    request: Annotated[
        list[str] | None,
        typer.Option(metavar="RESOURCE=Q", help="Resources of each pod. Default: cpu=1"),
    ] = None,
    node_selector: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=VALUE", help="Node label of each request."),
    ] = None,
    room: Annotated[
        int,
        typer.Option(
            metavar="N",
            help="It has capacity for exactly N such requests: tests that it frees capacity.",
            min=0,
            show_default=False,
        ),
    ] = 0,
    timeout: Annotated[
        float, typer.Option(metavar="S", help="Seconds that provisioning may take.", min=0.1)
    ] = 10.0,
    wait: WaitOption = None,
    case: CaseOption = None,
    own: EmbeddedOption = False,
    port: PortOption = None,
    nats: NatsOption = None,
    namespace: NamespaceOption = None,
    output: OutputOption = None,
) -> None:
    """Test a capacity provider in any language against the protocol; status 1 if a case fails.

    The requests are for workloads in a namespace of their own, so a live deployment is not
    disturbed. The provider books real capacity; all requests are cancelled at the end.
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
