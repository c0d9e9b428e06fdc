"""``admit provider-test``: a provider is driven through the protocol, and the outcome is shown."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from admittance.api.units import BadQuantity, amount
from admittance.api.validation.meta import object_name
from admittance.cli.conformance import trials
from admittance.cli.conformance.trials import Ready, Tell, check_name, how, on_trial, parameters_of
from admittance.cli.support.errors import BadInput
from admittance.cli.support.options import Call
from admittance.conformance.program import OwnServer
from admittance.conformance.providers.report import TITLES, Report
from admittance.conformance.providers.run import Wanted, try_out
from admittance.conformance.providers.stand import Shape
from admittance.runtime.bus.bus import Bus


class Options(trials.Options, frozen=True, kw_only=True):
    """What was typed. ``requests``, ``node_selector``: KEY=VALUE of each pod."""

    provisioning_class: str
    parameters: Path | None
    wrong: Path | None
    pods: int
    requests: Sequence[str]
    node_selector: Sequence[str]
    room: int


async def provider_test(call: Call, options: Options) -> int:
    """Tries everything and shows it; 1 when something failed."""
    wanted = _wanted(options)

    async def trial(
        bus: Bus, url: str, server: OwnServer | None, tell: Tell, ready: Ready
    ) -> Report:
        return await try_out(bus, url, wanted, tell=tell, ready=ready, server=server)

    return await on_trial(call, options.where, "provider", options.provisioning_class, trial)


def _wanted(options: Options) -> Wanted:
    name = options.provisioning_class
    check_name("CLASS", name, object_name(name, "spec.provisioningClassName"))
    requests = _pairs("--request", options.requests) or {"cpu": "1"}
    for resource, quantity in requests.items():
        try:
            amount(resource, quantity)
        except BadQuantity as error:
            raise BadInput(f"--request {resource}={quantity}: {error}") from None
    return Wanted(
        provisioning_class=options.provisioning_class,
        shape=Shape(
            pods=options.pods,
            requests=requests,
            node_selector=_pairs("--node-selector", options.node_selector),
            parameters=_texts(options.parameters) or {},
        ),
        room=options.room,
        wrong=_texts(options.wrong),
        **how(options, TITLES),
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
