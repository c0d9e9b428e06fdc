"""``admit replay --from-log SEQ``: has the scheduler repeat a decision."""

from __future__ import annotations

import msgspec

from admittance.cli.support import output
from admittance.cli.support.link import link
from admittance.cli.support.options import Call
from admittance.client.errors import BadInput
from admittance.client.requests import errands
from admittance.events.requests.replays import ReplayReply


async def replay_decision(call: Call, sequence: int) -> int:
    """Prints the decision at that sequence, its inputs, and whether the repetition agrees; returns
    the exit status."""
    async with link(call) as connected:
        reply = await errands.replay(connected, sequence, call.namespace or "")
    if reply.impossible:
        raise BadInput(reply.impossible)
    show(call, reply)
    return 0 if reply.same else 1


def show(call: Call, reply: ReplayReply) -> None:
    """Prints the answer."""
    inputs, decision = reply.inputs, reply.decision
    shown = {
        "sequence": reply.sequence,
        "kind": reply.kind,
        "epoch": reply.epoch,
        "decision": decision,
        "from": {
            "revisions": inputs.revisions,
            "checkpoint": inputs.checkpoint,
            "facts": inputs.facts,
            "workloads": inputs.workloads,
            "objects": inputs.objects,
            "decisionsOnTheirWay": inputs.decisions_on_their_way,
            "turns": inputs.turns,
            "turnsElsewhere": inputs.turns_elsewhere,
        },
        "same": reply.same,
        "differences": reply.differences,
        "now": reply.now,
    }
    if output.show_value(shown, call.output):
        return
    begin = f"checkpoint {inputs.checkpoint}" if inputs.checkpoint else "the first fact"
    output.say(
        f"decision {reply.sequence}: {reply.kind} {decision['namespace']}/{decision['name']} at "
        f"revision {decision['revision']}, by epoch {reply.epoch} of {decision.get('domain', '')}, "
        f"{decision['time']}"
    )
    output.say(f"logged: {msgspec.json.encode(decision).decode()}")
    output.say(
        f"decided from: revision {decision['seen']} of the bucket: "
        f"workloads {inputs.workloads:,}, objects {inputs.objects:,}, "
        f"decisions in flight {inputs.decisions_on_their_way:,}; "
        f"rebuilt from {begin} and {inputs.facts:,} facts"
    )
    turns = [*inputs.turns]
    if inputs.turns_elsewhere:
        turns.append(f"{inputs.turns_elsewhere} of other namespaces")
    if turns:
        output.say(f"turns: {', '.join(turns)}")
    for line in reply.differences:
        output.say(f"different: {line}")
    if reply.same:
        output.say("same")
