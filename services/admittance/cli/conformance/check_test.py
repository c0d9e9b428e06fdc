"""``admit check-test``: a controller is driven through the protocol, and the outcome is shown."""

from __future__ import annotations

from pathlib import Path

from admittance.api.checks import AdmissionCheck, AdmissionCheckSpec
from admittance.api.meta import ObjectMeta
from admittance.api.validation.meta import object_name
from admittance.api.validation.validate import validate
from admittance.cli.conformance import trials
from admittance.cli.conformance.trials import Ready, Tell, check_name, how, on_trial, parameters_of
from admittance.cli.support.options import Call
from admittance.conformance.checks.report import TITLES, Report
from admittance.conformance.checks.run import Wanted, try_out
from admittance.conformance.program import OwnServer
from admittance.runtime.bus.bus import Bus


class Options(trials.Options, frozen=True, kw_only=True):
    """What was typed."""

    controller: str
    check: str
    parameters: Path | None


async def check_test(call: Call, options: Options) -> int:
    """Tries everything and shows it; 1 when something failed."""
    wanted = _wanted(options)

    async def trial(bus: Bus, url: str, _: OwnServer | None, tell: Tell, ready: Ready) -> Report:
        return await try_out(bus, url, wanted, tell=tell, ready=ready)

    return await on_trial(call, options.where, "controller", options.controller, trial)


def _wanted(options: Options) -> Wanted:
    as_named = AdmissionCheck(
        metadata=ObjectMeta(name="a"), spec=AdmissionCheckSpec(controller_name=options.controller)
    )
    check_name("CONTROLLER", options.controller, validate(as_named))
    check_name("--check", options.check, object_name(options.check, "metadata.name"))
    return Wanted(
        controller=options.controller,
        check=options.check,
        parameters=parameters_of(options.parameters),
        **how(options, TITLES),
    )
