"""``admit check-test`` and ``admit provider-test``: run the conformance cases against a check
controller or a capacity provider, and print the outcome of each."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import msgspec

from admittance.api.checks import AdmissionCheck, AdmissionCheckSpec
from admittance.api.meta import ObjectMeta
from admittance.api.problems import ManifestError, Problem
from admittance.api.reading.values import read_values
from admittance.api.units import BadQuantity, amount
from admittance.api.validation.meta import object_name
from admittance.api.validation.validate import validate
from admittance.cli.support import output
from admittance.cli.support.errors import BadInput
from admittance.cli.support.link import check_url
from admittance.cli.support.options import Call, Output, key_values
from admittance.cli.support.output import Progress, Table, columns_of
from admittance.conformance import check_kit as check_kit
from admittance.conformance import provider_kit as provider_kit
from admittance.conformance.kit import FAILED, NOT_APPLICABLE, PASSED, KitReport
from admittance.conformance.program import OwnServer, embedded
from admittance.conformance.provider_cases import TITLES
from admittance.conformance.provider_requester import RequestShape
from admittance.runtime.bus.bus import Bus
from admittance.runtime.nats.connection_options import NO_OPTIONS
from admittance.runtime.telemetry import logs

OnCase: TypeAlias = Callable[[str], None]
"""A function that is called with the title of each test case that starts."""
OnReady: TypeAlias = Callable[[], None]
"""A function that is called when the tested program may be started."""


class TestOptions(NamedTuple):
    """Options of `check-test` and `provider-test`. ``command``: the command that starts the tested
    program; empty: the program runs already. ``wait``: seconds to wait for the program's first
    answer; None: 60 with an embedded server, else ``timeout``. ``cases``: names of the cases to
    run; empty: all. ``port``: port of an embedded server; None: the server of the call is used.
    """

    call: Call
    command: Sequence[str] = ()
    parameters: Path | None = None
    timeout: float = 10.0
    wait: float | None = None
    cases: Sequence[str] = ()
    port: int | None = None

    def refuse_unknown_cases(self, known: Collection[str]) -> None:
        """Raises BadInput if a test case is not in ``known``."""
        for case in self.cases:
            if case not in known:
                raise BadInput(f'there is no case "{case}"; there are {", ".join(known)}')

    @property
    def settings(self) -> dict[str, Any]:
        """The settings that `check-test` and `provider-test` have in common."""
        first_timeout = 60.0 if self.port is not None else self.timeout
        return {
            "timeout": self.timeout,
            "first_timeout": first_timeout if self.wait is None else self.wait,
            "command": self.command,
            "only": self.cases,
            "own_server": self.port is not None,
        }


async def check_test(options: TestOptions, controller: str, check: str) -> int:
    """Runs the test cases for a check controller, prints the report, and returns the exit status: 1
    if a case failed."""
    example = AdmissionCheck(
        metadata=ObjectMeta(name="a"), spec=AdmissionCheckSpec(controller_name=controller)
    )
    refuse_name("CONTROLLER", controller, validate(example))
    refuse_name("--check", check, object_name(check, "metadata.name"))
    options.refuse_unknown_cases(check_kit.TITLES)
    wanted = check_kit.CheckKitOptions(
        controller=controller,
        check=check,
        parameters=parameters_of(options.parameters),
        **options.settings,
    )

    async def test(
        bus: Bus, url: str, _: OwnServer | None, on_case: OnCase, on_ready: OnReady
    ) -> KitReport:
        return await check_kit.run_check_kit(bus, url, wanted, on_case=on_case, on_ready=on_ready)

    return await _run(options, "controller", controller, test)


async def provider_test(
    options: TestOptions,
    provisioning_class: str,
    *,
    wrong: Path | None,
    pods: int,
    requests: Sequence[str],
    node_selector: Sequence[str],
    room: int,
) -> int:
    """Runs the cases against a provider and prints the report; returns 1 if a case failed.

    ``requests``, ``node_selector``: resource requests and node selector of each pod, as KEY=VALUE
    words. ``wrong``: parameters that the provider must refuse. ``room``: how many
    ProvisioningRequests of this shape the provider has capacity for at the same time; 0: unknown.
    """
    refuse_name(
        "CLASS", provisioning_class, object_name(provisioning_class, "spec.provisioningClassName")
    )
    options.refuse_unknown_cases(TITLES)
    asked = key_values(requests, "--request") or {"cpu": "1"}
    for resource, quantity in asked.items():
        try:
            amount(resource, quantity)
        except BadQuantity as error:
            raise BadInput(f"--request {resource}={quantity}: {error}") from None
    wanted = provider_kit.ProviderKitOptions(
        provisioning_class=provisioning_class,
        shape=RequestShape(
            pods=pods,
            requests=asked,
            node_selector=key_values(node_selector, "--node-selector"),
            parameters=_text_parameters(options.parameters) or {},
        ),
        room=room,
        wrong=_text_parameters(wrong),
        **options.settings,
    )

    async def test(
        bus: Bus, url: str, server: OwnServer | None, on_case: OnCase, on_ready: OnReady
    ) -> KitReport:
        return await provider_kit.run_provider_kit(
            bus, url, wanted, on_case=on_case, on_ready=on_ready, server=server
        )

    return await _run(options, "provider", provisioning_class, test)


async def _run(
    options: TestOptions,
    role: str,
    name: str,
    test: Callable[[Bus, str, OwnServer | None, OnCase, OnReady], Awaitable[KitReport]],
) -> int:
    """Runs ``test`` and prints its report; returns 1 if a case failed. ``role``: what the tested
    program is, controller or provider.
    """
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
        for one in report.outcomes:
            output.say(f"{one.case} {one.outcome}")
        return
    output.show_table(Table(columns_of("CASE", "OUTCOME", "WHAT"), list(_rows(report))))
    output.say("")
    output.say(summary(report))


def _rows(report: KitReport) -> list[tuple[str, str, str]]:
    rows: list[tuple[str, str, str]] = []
    for one in report.outcomes:
        said = one.details or (one.title,)
        rows.append((one.case, one.outcome, said[0]))
        rows += [("", "", more) for more in said[1:]]
    return rows


def summary(report: KitReport) -> str:
    """One line with the numbers of passed, failed and other test cases."""
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
    for one in problems:
        raise BadInput(f"{what}: {one.message}")


def parameters_of(path: Path | None) -> Any:
    """The parameters in a file: the spec of a manifest, or the whole content."""
    if path is None:
        return None
    try:
        found = read_values(path.read_bytes(), str(path))
    except OSError as error:
        raise BadInput(f"cannot read {path}: {error.strerror}") from None
    except ManifestError as error:
        raise BadInput(str(error)) from None
    if isinstance(found, dict) and "apiVersion" in found and "kind" in found:
        found = found.get("spec")
    try:
        # The parameters are converted to JSON and back, since YAML has dates and keys that are not
        # strings, and JSON has neither.
        return msgspec.json.decode(msgspec.json.encode(found))
    except (TypeError, ValueError, msgspec.MsgspecError) as error:
        raise BadInput(f"{path} cannot be converted to JSON: {error}") from None


def _text_parameters(path: Path | None) -> dict[str, str] | None:
    """The parameters of a request from a file: those of a ProvisioningRequestConfig, or the whole
    content.
    """
    found = parameters_of(path)
    if isinstance(found, dict) and "provisioningClassName" in found:
        found = found.get("parameters") or {}
    if found is None:
        return None
    if not isinstance(found, dict):
        raise BadInput(f"{path}: parameters must map names to text")
    for key, value in found.items():
        if isinstance(value, dict | list) or value is None:
            raise BadInput(f"{path}: {key}: parameters must map names to text")
    return {
        key: str(value).lower() if isinstance(value, bool) else str(value)
        for key, value in found.items()
    }
