"""check-test, provider-test: conformance tests of check controllers and capacity providers."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from admittance.cli.support.errors import BadInput
from admittance.cli.support.options import (
    NamespaceOption,
    NatsOption,
    OutputOption,
    UrlFrom,
    call_of,
    run,
    with_options,
)

if TYPE_CHECKING:
    from admittance.cli.conformance import TestOptions


def test_options(
    ctx: typer.Context,
    command: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="-- CMD...",
            help="Start it with this command and ADMIT_NATS_URL set. Default: it already runs.",
            show_default=False,
        ),
    ] = None,
    parameters: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="YAML or JSON: the parameters, or their manifest."),
    ] = None,
    timeout: Annotated[
        float, typer.Option(metavar="S", help="Seconds that one answer may take.", min=0.1)
    ] = 10.0,
    wait: Annotated[
        float | None,
        typer.Option(
            metavar="S",
            help="Seconds until its first answer. Default: --timeout; 60 with --embedded.",
            min=0.1,
        ),
    ] = None,
    case: Annotated[
        list[str] | None,
        typer.Option(metavar="CASE", help="Run only this case; repeatable."),
    ] = None,
    embedded: Annotated[
        bool, typer.Option("--embedded", help="Start a NATS server for the test.")
    ] = False,
    port: Annotated[
        int | None,
        typer.Option(
            metavar="P", help="Port of that server. Default: a free one", min=0, max=65_535
        ),
    ] = None,
    nats: NatsOption = None,
    namespace: NamespaceOption = None,
    output: OutputOption = None,
) -> "TestOptions":
    """The options of both tests."""
    from admittance.cli.conformance import TestOptions

    call = call_of(ctx, nats, namespace, output)
    if port is not None and not embedded:
        raise BadInput("--port is for the server of --embedded")
    if embedded and call.url_from is UrlFrom.OPTION:
        raise BadInput("--embedded starts a server; it does not go with --nats")
    own = (port or 0) if embedded else None
    return TestOptions(call, command or (), parameters, timeout, wait, case or (), own)


@with_options(test_options)
def check_test(
    options: "TestOptions",
    controller: Annotated[
        str, typer.Argument(metavar="CONTROLLER", help="The controllerName of its AdmissionChecks.")
    ],
    check: Annotated[
        str, typer.Option(metavar="NAME", help="Name of the AdmissionCheck in the requests.")
    ] = "check-test",
) -> None:
    """Test a check controller in any language against the protocol; status 1 if a case fails.

    The requests are about workloads in a namespace of their own, so a live deployment is not
    disturbed. The controller may book real capacity for them: use parameters made for tests.
    """
    from admittance.cli import conformance

    run(conformance.check_test(options, controller, check))


@with_options(test_options)
def provider_test(
    options: "TestOptions",
    provisioning_class: Annotated[
        str,
        typer.Argument(metavar="CLASS", help="The provisioning class that it serves."),
    ],
    wrong: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Like --parameters, but the provider must refuse them."),
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
) -> None:
    """Test a capacity provider in any language against the protocol; status 1 if a case fails.

    The requests are for workloads in a namespace of their own, so a live deployment is not
    disturbed. The provider books real capacity; all requests are cancelled at the end.
    """
    from admittance.cli import conformance

    run(
        conformance.provider_test(
            options,
            provisioning_class,
            wrong=wrong,
            pods=pods,
            requests=request or (),
            node_selector=node_selector or (),
            room=room,
        )
    )
