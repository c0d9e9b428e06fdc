"""``admit cordon`` and ``admit uncordon``: whether a machine gets new jobs."""

from __future__ import annotations

from admittance.cli.commands.arguments import names_of
from admittance.cli.commands.declare import SERVER, argument, command, stacked
from admittance.cli.support import output
from admittance.cli.support.link import link
from admittance.cli.support.options import Call
from admittance.client import kinds, requests
from admittance.client.errors import BadInput

runner_argument = stacked(
    argument(
        "runner",
        "The word runner, or runner/NAME.",
        name="kind",
        complete=lambda _ctx, _start: ["runner"],
    ),
    argument("NAME", "The name of the runner.", required=False, complete=names_of("runners")),
)


@command(SERVER)
@runner_argument
async def cordon(call: Call, kind: str, name: str | None) -> None:
    """Give a machine no new jobs. Jobs that run there stay.

    Its runner claims nothing until `uncordon`; what it would have started waits for another runner.
    """
    await _set(call, _runner(kind, name), on=True)


@command(SERVER)
@runner_argument
async def uncordon(call: Call, kind: str, name: str | None) -> None:
    """Give a machine new jobs again."""
    await _set(call, _runner(kind, name), on=False)


def _runner(typed: str, name: str | None) -> str:
    kind, named = kinds.target(typed, name)
    if kind is not kinds.RUNNER:
        raise BadInput(f"this command works on runners only, not on a {kind.singular}")
    if not named:
        raise BadInput("the name of the runner is missing")
    return named


async def _set(call: Call, name: str, *, on: bool) -> None:
    async with link(call) as bus:
        changed = await requests.machines.set_cordon(bus, name, on=on)
    done = "cordoned" if on else "uncordoned"
    output.outcome(f"{kinds.RUNNER.qualified}/{name}", done if changed else "unchanged")
