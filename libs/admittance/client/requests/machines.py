"""Runners with what placement knows and does not store: which are alive, and what runs there."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec
from msgspec.structs import replace

from admittance.api.fields.units import render
from admittance.api.runners import RunnerDrain
from admittance.client.errors import Refused, RequestFailed
from admittance.client.kinds import RUNNER, ObjectKind
from admittance.client.requests import applying
from admittance.client.requests.link import Link
from admittance.client.requests.objects import BucketObject, field, find
from admittance.events.requests.machines import Machines, MachinesReply, MachineState

READY: Final = "Ready"
CONDITIONS: Final = {
    None: ("Unknown", "PlacementAway", "placement does not answer"),
    True: ("True", "RunnerAlive", ""),
    False: ("False", "RunnerAway", "the runner does not say that it is alive"),
}
"""Status, reason and message of the condition Ready, by whether the runner is alive."""


class Known(NamedTuple):
    """Runners with their states. ``why``: why their states are not known; "": they are."""

    runners: list[BucketObject]
    states: Mapping[str, MachineState]
    why: str = ""


async def with_states(link: Link, kind: ObjectKind, stored: Sequence[BucketObject]) -> Known:
    """Adds ``status.inUse`` and the condition Ready to runners; returns objects of other kinds
    unchanged. If placement does not answer, Ready is Unknown."""
    if kind is not RUNNER or not stored:
        return Known(list(stored), {})
    try:
        states = await _states(link, stored[0].name if len(stored) == 1 else "")
        why = ""
    except RequestFailed as error:
        states, why = {}, str(error)
    runners = [
        _with_state(each, None if why else states.get(each.name, MachineState(runner=each.name)))
        for each in stored
    ]
    return Known(runners, states, why)


async def _states(link: Link, runner: str) -> dict[str, MachineState]:
    reply = await all_machines(link, Machines(runner=runner))
    return {state.runner: state for state in reply.machines}


async def all_machines(link: Link, asked: Machines) -> MachinesReply:
    """The pages of the machines in one reply. Raises RequestFailed."""
    machines: list[MachineState] = []
    first: MachinesReply | None = None
    while True:
        reply = await link.ask("machines", asked, MachinesReply)
        if reply.error:
            raise RequestFailed(reply.error)
        machines += reply.machines
        first = first or reply
        if not reply.more or not reply.machines:
            return replace(first, machines=tuple(machines), more=False)
        asked = replace(asked, after=reply.machines[-1].runner, lacking=0)


def _with_state(stored: BucketObject, state: MachineState | None) -> BucketObject:
    """The runner with its state; None: it is not known."""
    try:
        value = stored.plain()
    except RequestFailed:
        return stored  # the value is not JSON, and is reported where it is shown
    status: dict[str, Any] = dict(field(value, "status", default={}))
    known = state.ready if state is not None else None
    word, reason, message = CONDITIONS[known]
    ready = {"type": READY, "status": word, "reason": reason}
    if message:
        ready["message"] = message
    others = [
        condition for condition in status.get("conditions") or [] if condition.get("type") != READY
    ]
    status["conditions"] = [*others, ready]
    if state is not None and state.in_use:
        status["inUse"] = {name: render(name, state.in_use[name]) for name in sorted(state.in_use)}
    value["status"] = status
    return BucketObject(stored.key, msgspec.json.encode(value), stored.revision)


ATTEMPTS: Final = 5
"""How often a cordon is tried: placement may store the object at the same moment."""


async def set_cordon(link: Link, name: str, *, on: bool) -> bool:
    """Sets whether the machine of the runner gets new jobs; returns False if it is so already.
    Raises NotFound, Refused, and BadInput."""

    def change(spec: dict[str, Any]) -> None:
        spec["unschedulable"] = on

    return await _change_spec(link, name, change)


async def set_drain(link: Link, name: str, drain: RunnerDrain | None) -> bool:
    """Drains the machine of the runner, or ends its drain (None); returns False if it is so
    already. Raises NotFound, Refused, and BadInput."""

    def change(spec: dict[str, Any]) -> None:
        spec["drain"] = None if drain is None else msgspec.to_builtins(drain)

    return await _change_spec(link, name, change)


async def _change_spec(link: Link, name: str, change: Callable[[dict[str, Any]], None]) -> bool:
    for left in reversed(range(ATTEMPTS)):
        value = (await find(link, RUNNER, name)).plain()
        spec: dict[str, Any] = dict(field(value, "spec", default={}))
        change(spec)
        value["spec"] = spec
        value.pop("status", None)
        try:
            [applied] = (await applying.apply(link, [msgspec.json.encode(value)])).results
        except Refused:
            if not left:
                raise
            continue
        return applied.outcome != "unchanged"
    raise AssertionError("the last attempt returns or raises")
