"""``admit cordon``, ``uncordon``, ``drain`` and ``undrain``: whether a machine gets new jobs, and
when it must be empty."""

from __future__ import annotations

from admittance.cli.commands.arguments import names_of
from admittance.cli.commands.declare import SERVER, argument, command, option, stacked
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


@command(SERVER)
@runner_argument
@option(
    "--deadline SPAN",
    "Evict the jobs that still run after this time (0, 90s, 30m, 2h); they run elsewhere. Default: "
    "they may end by themselves",
)
@option("--reason TEXT", "Why, for people whose jobs wait or move.", default="")
async def drain(call: Call, kind: str, name: str | None, deadline: str | None, reason: str) -> None:
    """Empty a machine: it gets no new jobs, and at the deadline those that run are evicted.

    An eviction by a drain is not counted against a job. `undrain` ends the drain.
    """
    from admittance.api.runners import RunnerDrain
    from admittance.cli.support import times
    from admittance.client.arguments.times import stamp
    from admittance.runtime import clock

    runner = _runner(kind, name)
    at = None
    if deadline is not None:
        at = times.moment_after(deadline, "--deadline", clock.now())
    wanted = RunnerDrain(deadline=at, reason=reason)
    async with link(call) as bus:
        changed = await requests.machines.set_drain(bus, runner, wanted)
    done = f"drained, empty at {stamp(at)}" if at is not None else "drained"
    output.outcome(f"{kinds.RUNNER.qualified}/{runner}", done if changed else "unchanged")


@command(SERVER)
@runner_argument
async def undrain(call: Call, kind: str, name: str | None) -> None:
    """End the drain of a machine. A machine that is also cordoned still gets no new jobs."""
    runner = _runner(kind, name)
    async with link(call) as bus:
        changed = await requests.machines.set_drain(bus, runner, None)
    output.outcome(f"{kinds.RUNNER.qualified}/{runner}", "undrained" if changed else "unchanged")


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
