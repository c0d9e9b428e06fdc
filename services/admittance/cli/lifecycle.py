"""Commands on one workload: each publishes one fact to the log and prints its outcome."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from admittance.cli.support import output
from admittance.cli.support.link import link
from admittance.cli.support.options import Call
from admittance.client import kinds
from admittance.client.requests import changes
from admittance.client.requests.changes import ChangeKind
from admittance.client.requests.families import is_variant
from admittance.workload.stored import owner_of

VARIANT_FOLLOWS: Final = {
    "stop": "which continues with the others",
    "cancel": "which continues with the others",
    "activate": "which tries it again if the policy allows it",
}
"""For each command that may name a variant: what the variant's parent does after the command."""


class WorkloadCommand(NamedTuple):
    """What a command changes and prints. ``done``: the text that is printed, with ``{}`` for the
    value.
    """

    kind: ChangeKind
    done: str


CHANGES: Final = {
    "stop": WorkloadCommand(changes.STOP, "stopped"),
    "cancel": WorkloadCommand(changes.STOP, "stopped"),
    "activate": WorkloadCommand(changes.ACTIVATE, "activated"),
    "hold": WorkloadCommand(changes.HOLD, "held"),
    "release": WorkloadCommand(changes.RELEASE, "released"),
    "priority": WorkloadCommand(changes.SET_PRIORITY, "has priority {}"),
    "finish": WorkloadCommand(changes.FINISH, "finished"),
}
"""For each command the change that it makes and the word that it prints."""


async def change(call: Call, name: str, command: str, words: str = "", **fields: Any) -> None:
    """Publishes the fact of a command about an existing workload, and prints the outcome.

    ``words``: the words of the command line after the workload's name. ``fields``: fields of the
    fact.
    """
    known = CHANGES[command]
    instead = f"`{' '.join(filter(None, (f'admit {command} workload {{}}', words)))}`"
    async with link(call) as bus:
        found, reply = await changes.change(
            bus, known.kind, name, spelled=f"`admit {command}`", instead=instead, **fields
        )
    word = "unchanged" if reply.outcome == "ignored" else known.done.format(words)
    output.outcome(f"{kinds.WORKLOAD.qualified}/{name}", word)
    if reply.outcome == "ignored" and reply.message:
        output.note(f'workload "{name}": {reply.message}')
    elif is_variant(found.workload()):
        parent, _ = owner_of(found.workload())
        output.note(f'{name} is one variant of workload "{parent}", {VARIANT_FOLLOWS[command]}')
