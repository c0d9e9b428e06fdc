"""``admit replay --from-log SEQ``: rebuilds the inputs of a decision and repeats the decision."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from admittance.cli.support import output
from admittance.cli.support.link import link
from admittance.cli.support.options import Call
from admittance.client.errors import BadInput
from admittance.replay.bucket_rebuild import CannotRebuild
from admittance.replay.decision import Repetition, repeat, revisions_needed
from admittance.replay.logged_decisions import CannotRepeat, LoggedDecision
from admittance.replay.past_inputs import NoDecision, Source, config_of, decision_at, gather


async def replay_decision(call: Call, sequence: int) -> int:
    """Prints the decision at that sequence, its inputs, and whether the repetition agrees; returns
    the exit status."""
    async with link(call) as connected:
        bus = connected.bus
        try:
            target = await decision_at(bus, sequence)
            config = await config_of(bus, target)
            snapshots, sources, before = await gather(bus, target)
            repetition = repeat(target, before, lambda seen: snapshots[seen], config)
        except NoDecision as error:
            raise BadInput(str(error)) from None
        except (CannotRebuild, CannotRepeat) as error:
            raise BadInput(f"decision {sequence} cannot be repeated: {error}") from None
    _show(call, target, repetition, sources)
    return 1 if repetition.differences else 0


def _show(
    call: Call, target: LoggedDecision, repetition: Repetition, sources: Sequence[Source]
) -> None:
    decision = target.decision
    kind = type(decision).__name__.lower()
    shown = {
        "sequence": target.sequence,
        "kind": kind,
        "epoch": target.epoch,
        "decision": msgspec.to_builtins(decision),
        "from": {
            "revisions": revisions_needed(decision),
            "checkpoint": sources[-1].checkpoint,
            "facts": sum(source.facts for source in sources),
            "workloads": repetition.workloads,
            "objects": repetition.objects,
            "decisionsOnTheirWay": repetition.inflight,
            "turns": repetition.turns,
        },
        "same": not repetition.differences,
        "differences": repetition.differences,
        "now": repetition.made,
    }
    if output.show_value(shown, call.output):
        return
    facts = sum(source.facts for source in sources)
    begin = f"checkpoint {sources[-1].checkpoint}" if sources[-1].checkpoint else "the first fact"
    output.say(
        f"decision {target.sequence}: {kind} {decision.namespace}/{decision.name} at revision "
        f"{decision.revision}, by epoch {target.epoch} of {decision.domain}, {decision.time}"
    )
    text = msgspec.json.encode(decision).decode()
    output.say(f"logged: {text}")
    output.say(
        f"decided from: revision {decision.seen} of the bucket: "
        f"workloads {repetition.workloads:,}, objects {repetition.objects:,}, "
        f"decisions in flight {repetition.inflight:,}; rebuilt from {begin} and {facts:,} facts"
    )
    if repetition.turns:
        output.say(f"turns: {', '.join(repetition.turns)}")
    for line in repetition.differences:
        output.say(f"different: {line}")
    if not repetition.differences:
        output.say("same")
