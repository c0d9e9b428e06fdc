"""``admit check-test`` and ``admit provider-test``: run the conformance cases against a check
controller or a capacity provider, and print the outcome of each."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from admittance.cli.commands.declare import argument, command, option, stacked
from admittance.cli.support import output
from admittance.cli.support.link import check_url
from admittance.cli.support.options import Call, Output, UrlFrom, key_values
from admittance.cli.support.output import Progress, Table, columns_of
from admittance.client.errors import BadInput
from admittance.runtime.nats.connection_options import NO_OPTIONS

if TYPE_CHECKING:
    from admittance.api.fields.problems import Problem
    from admittance.conformance.kit import KitReport
    from admittance.conformance.program import OwnServer
    from admittance.runtime.bus.bus import Bus

Test: TypeAlias = Callable[
    ["Bus", str, "OwnServer | None", Callable[[str], None], Callable[[], None]],
    Coroutine[Any, Any, "KitReport"],
]
"""Runs the cases on a server with a URL, an embedded one or None. It calls the first function with
the title of each case that starts, and the second when the tested program may be started."""

test_options = stacked(
    argument(
        "-- CMD...",
        "Start it with this command and ADMIT_NATS_URL set. Default: it already runs.",
        name="command",
        required=False,
    ),
    option("--parameters FILE", "YAML or JSON: the parameters, or their manifest.", kind=Path),
    option("--timeout S", "Seconds that one answer may take.", kind=float, least=0.1, default=10.0),
    option(
        "--wait S",
        "Seconds until its first answer. Default: --timeout; 60 with --embedded.",
        kind=float,
        least=0.1,
    ),
    option("--case CASE", "Run only this case; repeatable.", name="cases", many=True),
    option("--embedded", "Start a NATS server for the test."),
    option(
        "--port P",
        "Port of that server. Default: a free one",
        kind=int,
        least=0,
        most=65_535,
    ),
)


class TestOptions(NamedTuple):
    """The options that both commands share. ``command``: starts the tested program; empty: the
    program runs already. ``wait``: seconds to wait for the program's first answer; None: 60 with an
    embedded server, else ``timeout``. ``cases``: names of the cases to run; empty: all. ``port``:
    of an embedded server; None: the server of the call is used.
    """

    call: Call
    command: Sequence[str]
    parameters: Path | None
    timeout: float
    wait: float | None
    cases: Sequence[str]
    port: int | None

    def settings(self, known: Iterable[str]) -> dict[str, Any]:
        """The settings that both kits have in common. Raises BadInput if a test case is not in
        ``known``."""
        for case in self.cases:
            if case not in known:
                raise BadInput(f'there is no case "{case}"; there are {", ".join(known)}')
        first_timeout = 60.0 if self.port is not None else self.timeout
        return {
            "timeout": self.timeout,
            "first_timeout": first_timeout if self.wait is None else self.wait,
            "command": self.command,
            "only": self.cases,
            "own_server": self.port is not None,
        }


def _options(call: Call, embedded: bool, port: int | None, **given: Any) -> TestOptions:
    if port is not None and not embedded:
        raise BadInput("--port is for the server of --embedded")
    if embedded and call.url_from is UrlFrom.OPTION:
        raise BadInput("--embedded starts a server; it does not go with --nats")
    return TestOptions(call, port=(port or 0) if embedded else None, **given)


@command()
@argument("CONTROLLER", "The controllerName of its AdmissionChecks.")
@option("--check NAME", "Name of the AdmissionCheck in the requests.", default="check-test")
@test_options
async def check_test(call: Call, controller: str, check: str, **given: Any) -> int:
    """Test a check controller in any language against the protocol; status 1 if a case fails.

    The workloads of the test requests are in a namespace of their own, so the test does not disturb
    a live deployment. The controller may book real capacity for the test requests: use parameters
    made for tests.
    """
    from admittance.api.checks import AdmissionCheck, AdmissionCheckSpec
    from admittance.api.meta import ObjectMeta
    from admittance.api.validation.meta import object_name
    from admittance.api.validation.validate import validate
    from admittance.conformance import check_kit

    options = _options(call, **given)
    example = AdmissionCheck(
        metadata=ObjectMeta(name="a"), spec=AdmissionCheckSpec(controller_name=controller)
    )
    refuse_name("CONTROLLER", controller, validate(example))
    refuse_name("--check", check, object_name(check, "metadata.name"))
    wanted = check_kit.CheckKitOptions(
        controller=controller,
        check=check,
        parameters=parameters_of(options.parameters),
        **options.settings(check_kit.TITLES),
    )

    def test(bus: Bus, url: str, _: Any, on_case: Any, on_ready: Any) -> Any:
        return check_kit.run_check_kit(bus, url, wanted, on_case=on_case, on_ready=on_ready)

    return await _run(options, "controller", controller, test)


@command()
@argument("CLASS", "The provisioning class that it serves.", name="provisioning_class")
@option("--wrong FILE", "Like --parameters, but the provider must refuse them.", kind=Path)
@option("--pods N", "Pods of each request.", kind=int, least=1, default=1)
@option("--request RESOURCE=Q", "Resources of each pod. Default: cpu=1", name="requests", many=True)
@option("--node-selector KEY=VALUE", "Node label of each request.", many=True)
@option(
    "--room N",
    "The provider has capacity for exactly N of the requests that the kit sends; the kit also "
    "tests whether the provider frees capacity.",
    kind=int,
    least=0,
)
@test_options
async def provider_test(
    call: Call,
    provisioning_class: str,
    wrong: Path | None,
    pods: int,
    requests: Sequence[str],
    node_selector: Sequence[str],
    room: int | None,
    **given: Any,
) -> int:
    """Test a capacity provider in any language against the protocol; status 1 if a case fails.

    The requests are for workloads in a namespace of their own, so a live deployment is not
    disturbed. The provider books real capacity; all requests are cancelled at the end.
    """
    from admittance.api.fields.units import BadQuantity, amount
    from admittance.api.validation.meta import object_name
    from admittance.conformance.provider_cases import TITLES, ProviderKitOptions
    from admittance.conformance.provider_kit import run_provider_kit
    from admittance.conformance.provider_requester import RequestShape

    options = _options(call, **given)
    named = object_name(provisioning_class, "spec.provisioningClassName")
    refuse_name("CLASS", provisioning_class, named)
    settings = options.settings(TITLES)
    asked = key_values(requests, "--request") or {"cpu": "1"}
    for resource, quantity in asked.items():
        try:
            amount(resource, quantity)
        except BadQuantity as error:
            raise BadInput(f"--request {resource}={quantity}: {error}") from None
    wanted = ProviderKitOptions(
        provisioning_class=provisioning_class,
        shape=RequestShape(
            pods=pods,
            requests=asked,
            node_selector=key_values(node_selector, "--node-selector"),
            parameters=_text_parameters(options.parameters) or {},
        ),
        room=room or 0,
        wrong=_text_parameters(wrong),
        **settings,
    )

    def test(bus: Bus, url: str, server: Any, on_case: Any, on_ready: Any) -> Any:
        return run_provider_kit(bus, url, wanted, on_case=on_case, on_ready=on_ready, server=server)

    return await _run(options, "provider", provisioning_class, test)


async def _run(options: TestOptions, role: str, name: str, test: Test) -> int:
    """Runs ``test`` and prints its report; returns 1 if a case failed. ``role``: what the tested
    program is, controller or provider.
    """
    from admittance.conformance.program import embedded
    from admittance.runtime.bus.bus import Bus
    from admittance.runtime.telemetry import logs

    logs.configure("admit", "", json=False, level="error")
    async with AsyncExitStack() as stack:
        url, server, access = options.call.url, None, options.call.connection
        if options.port is not None:
            server = await stack.enter_async_context(embedded(options.port, "admit-test"))
            url, access = server.url, NO_OPTIONS
        else:
            check_url(url)
        bus = await Bus.connect(url, name="admit test", access=access)
        stack.push_async_callback(bus.close)
        progress = stack.enter_context(Progress(name))

        def on_ready() -> None:
            if options.port is not None and not options.command:
                output.note(f"ready {url}")
                output.note(f"start the {role} now: ADMIT_NATS_URL={url} …")

        report = await test(bus, url, server, progress.say, on_ready)
    show(report, options.call.output)
    return 0 if report.passed else 1


def show(report: KitReport, shape: Output) -> None:
    """Prints the report in the output format of the call."""
    if output.show_value({**output.plain_of(report), "passed": report.passed}, shape):
        return
    if shape is Output.NAME:
        for outcome in report.outcomes:
            output.say(f"{outcome.case} {outcome.outcome}")
        return
    output.show_table(Table(columns_of("CASE", "OUTCOME", "WHAT"), list(_rows(report))))
    output.say("")
    output.say(summary(report))


def _rows(report: KitReport) -> list[tuple[str, str, str]]:
    rows: list[tuple[str, str, str]] = []
    for outcome in report.outcomes:
        said = outcome.details or (outcome.title,)
        rows.append((outcome.case, outcome.outcome, said[0]))
        rows += [("", "", more) for more in said[1:]]
    return rows


def summary(report: KitReport) -> str:
    """One line with the numbers of passed, failed and other test cases."""
    from admittance.conformance.kit import FAILED, NOT_APPLICABLE, PASSED

    counts = ", ".join(
        f"{report.count(word)} {word}"
        for word in (PASSED, FAILED, NOT_APPLICABLE)
        if report.count(word)
    )
    usual = f"; it answers {report.usual}" if report.usual else ""
    return f"{report.program}: {counts} in {report.seconds:g} s{usual}"


def refuse_name(what: str, name: str, problems: Iterable[Problem]) -> None:
    """Raises BadInput if the name is empty or has problems. ``what``: the argument that has the
    name.
    """
    if not name:
        raise BadInput(f"{what} is empty")
    for problem in problems:
        raise BadInput(f"{what}: {problem.message}")


def parameters_of(path: Path | None) -> Any:
    """The parameters in a file: the spec of a manifest, or the whole content."""
    import msgspec

    from admittance.api.fields.problems import ManifestError
    from admittance.api.reading.values import read_values

    if path is None:
        return None
    try:
        content = read_values(path.read_bytes(), str(path))
    except OSError as error:
        raise BadInput(f"cannot read {path}: {error.strerror}") from None
    except ManifestError as error:
        raise BadInput(str(error)) from None
    if isinstance(content, dict) and "apiVersion" in content and "kind" in content:
        content = content.get("spec")
    try:
        # The parameters are converted to JSON and back, since YAML has dates and keys that are not
        # strings, and JSON has neither.
        return msgspec.json.decode(msgspec.json.encode(content))
    except (TypeError, ValueError, msgspec.MsgspecError) as error:
        raise BadInput(f"{path} cannot be converted to JSON: {error}") from None


def _text_parameters(path: Path | None) -> dict[str, str] | None:
    """The parameters of a request from a file: those of a ProvisioningRequestConfig, or the whole
    content.
    """
    parameters = parameters_of(path)
    if isinstance(parameters, dict) and "provisioningClassName" in parameters:
        parameters = parameters.get("parameters") or {}
    if parameters is None:
        return None
    if not isinstance(parameters, dict):
        raise BadInput(f"{path}: parameters must map names to text")
    for key, value in parameters.items():
        if isinstance(value, dict | list) or value is None:
            raise BadInput(f"{path}: {key}: parameters must map names to text")
    return {
        key: str(value).lower() if isinstance(value, bool) else str(value)
        for key, value in parameters.items()
    }
