"""``admit check-test`` and ``admit provider-test``: run the conformance cases against a check
controller or a capacity provider, and print the outcome of each."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import msgspec
import yaml

from admittance.api.checks import AdmissionCheck, AdmissionCheckSpec
from admittance.api.meta import ObjectMeta
from admittance.api.problems import Problem
from admittance.api.units import BadQuantity, amount
from admittance.api.validation.meta import object_name
from admittance.api.validation.validate import validate
from admittance.cli.support import output
from admittance.cli.support.errors import BadInput
from admittance.cli.support.link import check_url
from admittance.cli.support.options import Call, Output, UrlFrom
from admittance.cli.support.output import Column, Progress, Table
from admittance.conformance.checks import report as check_report
from admittance.conformance.checks import run as check_run
from admittance.conformance.program import OwnServer, embedded
from admittance.conformance.providers import report as provider_report
from admittance.conformance.providers import run as provider_run
from admittance.conformance.providers.stand import Shape
from admittance.conformance.report import FAILED, NOT_APPLICABLE, PASSED, Report
from admittance.runtime.bus.bus import Bus
from admittance.runtime.telemetry import logs

COLUMNS = (Column("CASE"), Column("OUTCOME"), Column("WHAT"))

Tell: TypeAlias = Callable[[str], None]
"""Called with the name of the case that starts."""
Ready: TypeAlias = Callable[[], None]
"""Called when the program may be started."""


class Where(NamedTuple):
    """``port``: of a server of our own; None: the server of the call. ``command``: starts the
    program; empty: it runs already. ``wait``: seconds for its first answer, if that was typed."""

    port: int | None
    command: Sequence[str]
    wait: float | None


def where_of(
    call: Call, *, own: bool, port: int | None, command: Sequence[str] | None, wait: float | None
) -> Where:
    """The server and program of the test. Raises BadInput for contradicting options."""
    if port is not None and not own:
        raise BadInput("--port is for the server of --embedded")
    if own and call.url_from is UrlFrom.OPTION:
        raise BadInput("--embedded starts a server; it does not go with --nats")
    return Where((port or 0) if own else None, command or (), wait)


async def on_trial(
    call: Call,
    where: Where,
    what: str,
    name: str,
    trial: Callable[[Bus, str, OwnServer | None, Tell, Ready], Awaitable[Report]],
) -> int:
    """Runs the test and prints its report; returns 1 if a case failed. ``what``: word for the
    program."""
    logs.configure("admit", "", json=False, level="error")
    async with AsyncExitStack() as stack:
        url, server = call.url, None
        if where.port is not None:
            server = await stack.enter_async_context(embedded(where.port, "admit-test"))
            url = server.url
        else:
            check_url(url)
        credentials = os.environ.get("ADMIT_NATS_CREDS") or None
        bus = await Bus.connect(url, name="admit test", creds=credentials)
        stack.push_async_callback(bus.close)
        progress = stack.enter_context(Progress(name))

        def ready() -> None:
            if where.port is not None and not where.command:
                output.note(f"ready {url}")
                output.note(f"start the {what} now: ADMIT_NATS_URL={url} …")

        report = await trial(bus, url, server, progress.say, ready)
    show(report, call.output)
    return 0 if report.passed else 1


def show(report: Report, shape: Output) -> None:
    """Prints the report in the output format of the call."""
    match shape:
        case Output.JSON:
            output.show_json({**output.plain_of(report), "passed": report.passed})
        case Output.YAML:
            output.show_yaml({**output.plain_of(report), "passed": report.passed})
        case Output.NAME:
            for one in report.outcomes:
                output.say(f"{one.case} {one.outcome}")
        case Output.TABLE | Output.WIDE:
            output.show_table(Table(COLUMNS, list(_rows(report))))
            output.say("")
            output.say(summary(report))


def _rows(report: Report) -> list[tuple[str, str, str]]:
    rows: list[tuple[str, str, str]] = []
    for one in report.outcomes:
        said = one.details or (one.title,)
        rows.append((one.case, one.outcome, said[0]))
        rows += [("", "", more) for more in said[1:]]
    return rows


def summary(report: Report) -> str:
    """The last line."""
    counts = ", ".join(
        f"{report.count(word)} {word}"
        for word in (PASSED, FAILED, NOT_APPLICABLE)
        if report.count(word)
    )
    usual = f"; it answers {report.usual}" if report.usual else ""
    return f"{report.program}: {counts} in {report.seconds:g} s{usual}"


class TestOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of both commands. ``cases``: empty for all."""

    where: Where
    timeout: float
    cases: Sequence[str] = ()


def how(options: TestOptions, known: Collection[str]) -> dict[str, Any]:
    """Settings of both tests. Raises BadInput for a case that is not ``known``."""
    for case in options.cases:
        if case not in known:
            raise BadInput(f'there is no case "{case}"; there are {", ".join(known)}')
    where = options.where
    patience = 60.0 if where.port is not None else options.timeout
    return {
        "timeout": options.timeout,
        "patience": patience if where.wait is None else where.wait,
        "command": where.command,
        "only": options.cases,
    }


def check_name(what: str, name: str, problems: Iterable[Problem]) -> None:
    """Raises BadInput for an empty name or one with ``problems``."""
    if not name:
        raise BadInput(f"{what} is empty")
    for one in problems:
        raise BadInput(f"{what}: {one.message}")


def parameters_of(path: Path | None) -> Any:
    """The parameters in a file: the spec of a manifest, or the whole content."""
    if path is None:
        return None
    try:
        found = yaml.safe_load(path.read_bytes())
    except OSError as error:
        raise BadInput(f"{path}: {error.strerror}") from None
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
        raise BadInput(f"{path}: {error}") from None
    if isinstance(found, dict) and "apiVersion" in found and "kind" in found:
        found = found.get("spec")
    try:
        # As JSON: YAML has dates and keys that JSON does not.
        return msgspec.json.decode(msgspec.json.encode(found))
    except (TypeError, ValueError, msgspec.MsgspecError) as error:
        raise BadInput(f"{path}: {error}") from None


class CheckTestOptions(TestOptions, frozen=True, kw_only=True):
    """Options of the command."""

    controller: str
    check: str
    parameters: Path | None


async def check_test(call: Call, options: CheckTestOptions) -> int:
    """Runs all cases and prints the report; returns 1 if a case failed."""
    wanted = _check_expectations(options)

    async def trial(bus: Bus, url: str, _: OwnServer | None, tell: Tell, ready: Ready) -> Report:
        return await check_run.try_out(bus, url, wanted, tell=tell, ready=ready)

    return await on_trial(call, options.where, "controller", options.controller, trial)


def _check_expectations(options: CheckTestOptions) -> check_run.Wanted:
    as_named = AdmissionCheck(
        metadata=ObjectMeta(name="a"), spec=AdmissionCheckSpec(controller_name=options.controller)
    )
    check_name("CONTROLLER", options.controller, validate(as_named))
    check_name("--check", options.check, object_name(options.check, "metadata.name"))
    return check_run.Wanted(
        controller=options.controller,
        check=options.check,
        parameters=parameters_of(options.parameters),
        **how(options, check_report.TITLES),
    )


class ProviderTestOptions(TestOptions, frozen=True, kw_only=True):
    """What was typed. ``requests``, ``node_selector``: KEY=VALUE of each pod."""

    provisioning_class: str
    parameters: Path | None
    wrong: Path | None
    pods: int
    requests: Sequence[str]
    node_selector: Sequence[str]
    room: int


async def provider_test(call: Call, options: ProviderTestOptions) -> int:
    """Runs all cases and prints the report; returns 1 if a case failed."""
    wanted = _provider_expectations(options)

    async def trial(
        bus: Bus, url: str, server: OwnServer | None, tell: Tell, ready: Ready
    ) -> Report:
        return await provider_run.try_out(bus, url, wanted, tell=tell, ready=ready, server=server)

    return await on_trial(call, options.where, "provider", options.provisioning_class, trial)


def _provider_expectations(options: ProviderTestOptions) -> provider_run.Wanted:
    name = options.provisioning_class
    check_name("CLASS", name, object_name(name, "spec.provisioningClassName"))
    requests = _pairs("--request", options.requests) or {"cpu": "1"}
    for resource, quantity in requests.items():
        try:
            amount(resource, quantity)
        except BadQuantity as error:
            raise BadInput(f"--request {resource}={quantity}: {error}") from None
    return provider_run.Wanted(
        provisioning_class=options.provisioning_class,
        shape=Shape(
            pods=options.pods,
            requests=requests,
            node_selector=_pairs("--node-selector", options.node_selector),
            parameters=_texts(options.parameters) or {},
        ),
        room=options.room,
        wrong=_texts(options.wrong),
        **how(options, provider_report.TITLES),
    )


def _pairs(option: str, written: Sequence[str]) -> dict[str, str]:
    pairs = {}
    for one in written:
        key, equals, value = one.partition("=")
        if not key or not equals:
            raise BadInput(f"{option} {one}: KEY=VALUE is wanted")
        pairs[key] = value
    return pairs


def _texts(path: Path | None) -> dict[str, str] | None:
    """Parameters as a request has them: those of a ProvisioningRequestConfig, or just what they
    are."""
    found = parameters_of(path)
    if isinstance(found, dict) and "provisioningClassName" in found:
        found = found.get("parameters") or {}
    if found is None:
        return None
    if not isinstance(found, dict):
        raise BadInput(f"{path}: parameters are text by name")
    for key, value in found.items():
        if isinstance(value, dict | list) or value is None:
            raise BadInput(f"{path}: {key}: parameters are text by name")
    return {
        key: str(value).lower() if isinstance(value, bool) else str(value)
        for key, value in found.items()
    }
