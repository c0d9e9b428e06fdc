"""Runners as clients get them: with what placement knows and does not store."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any, cast

from admittance.client.errors import RequestFailed
from admittance.client.kinds import FLAVOR, RUNNER
from admittance.client.requests.machines import all_machines, with_states
from admittance.client.requests.objects import BucketObject
from admittance.events.requests.machines import LackingRow, Machines, MachinesReply, MachineState

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
STORED = [
    BucketObject(f"runner.{name}", json.dumps({"kind": "Runner", "status": {}}).encode(), 1)
    for name in ("a", "b", "c")
]


class Placement:
    """A link to a placement that answers one machine per page; ``error``: it does not answer."""

    def __init__(self, *, error: str = "") -> None:
        self._error = error

    async def ask(self, _what: str, asked: Machines, _reply: object) -> MachinesReply:
        if self._error:
            raise RequestFailed(self._error)
        if asked.after:
            return MachinesReply(machines=(MachineState(runner="b"),))
        first = MachineState(runner="a", ready=True, in_use={"cpu": 1500})
        waits = LackingRow(namespace="ns", name="w", priority=0, since=NOON, message="1 short")
        return MachinesReply(machines=(first,), more=True, lacking=(waits,), lacking_total=7)


def shown(runners: list[BucketObject]) -> list[tuple[str, Any]]:
    statuses = [runner.plain()["status"] for runner in runners]
    return [(status["conditions"][0]["status"], status.get("inUse")) for status in statuses]


async def test_runners_have_their_use_and_whether_they_are_alive() -> None:
    known = await with_states(cast(Any, Placement()), RUNNER, STORED)
    assert shown(known.runners) == [("True", {"cpu": "1500m"}), ("False", None), ("False", None)]
    assert (known.why, set(known.states)) == ("", {"a", "b"})


async def test_all_pages_of_machines_come_in_one_reply() -> None:
    reply = await all_machines(cast(Any, Placement()), Machines(with_runs=True, lacking=1))
    assert [state.runner for state in reply.machines] == ["a", "b"]
    assert ([row.name for row in reply.lacking], reply.lacking_total) == (["w"], 7)
    assert not reply.more


async def test_without_placement_it_is_unknown_whether_runners_are_alive() -> None:
    known = await with_states(cast(Any, Placement(error="no placement answers")), RUNNER, STORED)
    assert shown(known.runners) == [("Unknown", None)] * 3
    assert known.why == "no placement answers"


async def test_objects_of_other_kinds_stay_as_they_are() -> None:
    known = await with_states(cast(Any, None), FLAVOR, STORED)
    assert known.runners == STORED
