"""``admit check-test``: a controller is driven through the protocol, and the outcome is shown."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import yaml

from admittance.check_test.report import NOT_APPLICABLE, TITLES, Report
from admittance.check_test.run import Wanted, embedded, try_out
from admittance.cli import output
from admittance.cli.errors import BadInput
from admittance.cli.link import check_url
from admittance.cli.options import Call, Output
from admittance.cli.output import Column, Progress, Table
from admittance.events.names import token
from admittance.runtime import logs
from admittance.runtime.bus import Bus

COLUMNS = (Column("CASE"), Column("OUTCOME"), Column("WHAT"))


class Options(NamedTuple):
    """What was typed. ``port``: of a server of our own; None: the server of the call."""

    controller: str
    check: str
    parameters: Path | None
    timeout: float
    wait: float | None
    port: int | None
    command: Sequence[str]
    cases: Sequence[str] = ()


async def check_test(call: Call, options: Options) -> int:
    """Tries everything and shows it; 1 when something failed."""
    wanted = _wanted(options)
    logs.configure("admit", "", json=False, level="error")
    async with AsyncExitStack() as stack:
        url = call.url
        if options.port is not None:
            url = await stack.enter_async_context(embedded(options.port))
        else:
            check_url(url)
        bus = await Bus.connect(
            url, name="admit check-test", creds=os.environ.get("ADMIT_NATS_CREDS") or None
        )
        stack.push_async_callback(bus.close)
        progress = stack.enter_context(Progress(options.controller))

        def ready() -> None:
            if options.port is not None and not options.command:
                output.note(f"ready {url}")
                output.note(f"start the controller now: ADMIT_NATS_URL={url} …")

        report = await try_out(bus, url, wanted, tell=progress.say, ready=ready)
    show(report, call.output)
    return 0 if report.passed else 1


def show(report: Report, shape: Output) -> None:
    """The report in the shape that was asked for."""
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
        said = one.details or (TITLES[one.case],)
        rows.append((one.case, one.outcome, said[0]))
        rows += [("", "", more) for more in said[1:]]
    return rows


def summary(report: Report) -> str:
    """The last line."""
    counts = ", ".join(
        f"{report.count(word)} {word}"
        for word in ("passed", "failed", NOT_APPLICABLE)
        if report.count(word)
    )
    usual = f"; it answers {report.usual}" if report.usual else ""
    return f"{report.controller}: {counts} in {report.seconds:g} s{usual}"


def _wanted(options: Options) -> Wanted:
    for what, name in (("CONTROLLER", options.controller), ("--check", options.check)):
        if not name:
            raise BadInput(f"{what} is empty")
        token(name)
    for case in options.cases:
        if case not in TITLES:
            raise BadInput(f'there is no case "{case}"; there are {", ".join(TITLES)}')
    parameters = _parameters(options.parameters)
    patience = options.timeout
    if options.wait is not None:
        patience = options.wait
    elif options.port is not None:
        patience = 60.0
    return Wanted(
        controller=options.controller,
        check=options.check,
        parameters=parameters,
        timeout=options.timeout,
        patience=patience,
        command=options.command,
        only=options.cases,
    )


def _parameters(path: Path | None) -> Any:
    """The parameters in a file: those of a manifest (its spec), or just what they are."""
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
        # As it travels: YAML knows dates and keys that JSON does not.
        return msgspec.json.decode(msgspec.json.encode(found))
    except (TypeError, ValueError, msgspec.MsgspecError) as error:
        raise BadInput(f"{path}: {error}") from None
