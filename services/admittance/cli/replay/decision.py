"""``admit replay --from-log SEQ``: gathers what a decision was made from, and has it made again."""

from __future__ import annotations

import base64
from collections.abc import Sequence

import msgspec

from admittance.cli.replay.rebuild import Source, gather
from admittance.cli.support import output
from admittance.cli.support.errors import BadInput
from admittance.cli.support.link import Link, link
from admittance.cli.support.options import Call, Output
from admittance.control.commit import Heard
from admittance.events import subjects
from admittance.events.reading import BROKEN
from admittance.events.system import Epoch
from admittance.replay.pieces import CannotRebuild
from admittance.replay.repeat import Answer, Said, needed, repeat, said
from admittance.runtime import clock
from admittance.runtime.bus.bucket import NO_MESSAGE
from admittance.runtime.bus.bus import Bus
from admittance.runtime.bus.connection import parse_headers
from admittance.runtime.errors import Refused
from admittance.scheduling.config import Config, config_from
from admittance.scheduling.explain.decision_replay import CannotRepeat

_epoch = msgspec.json.Decoder(Epoch)


async def replay_decision(call: Call, sequence: int) -> int:
    """Prints the decision at that sequence of the log, what it was made from, and whether it comes
    out the same; the exit status."""
    async with link(call) as found:
        bus = found.bus
        target = await _target(found, sequence)
        config = await _config(bus, target)
        try:
            pictures, sources, before = await gather(bus, target)
            answer = repeat(target, before, lambda seen: pictures[seen], config)
        except (CannotRebuild, CannotRepeat) as error:
            raise BadInput(f"decision {sequence} cannot be repeated: {error}") from None
    _show(call, target, answer, sources)
    return 1 if answer.differences else 0


# What there is. -----------------------------------------------------------------------------


async def _target(found: Link, sequence: int) -> Said:
    bus = found.bus
    try:
        answer = await bus.api(f"STREAM.MSG.GET.{subjects.STREAM}", {"seq": sequence})
    except Refused as error:
        if error.code != NO_MESSAGE:
            raise
        state = (await bus.api(f"STREAM.INFO.{subjects.STREAM}"))["state"]
        raise BadInput(
            f"the log has no message {sequence}: it goes from {state['first_seq']} "
            f"to {state['last_seq']}"
        ) from None
    message = answer["message"]
    heard = Heard(
        sequence,
        message["subject"],
        base64.b64decode(message.get("data", "")),
        parse_headers(base64.b64decode(message.get("hdrs", ""))),
        clock.now(),
    )
    target = said(heard)
    if target is None:
        raise BadInput(f"message {sequence}, {heard.subject}, is no decision of a scheduler")
    if target.decision.time is None:
        raise BadInput(f"decision {sequence} does not say when it was made")
    return target


async def _config(bus: Bus, target: Said) -> Config:
    """How the scheduler was set up that made the decision: its epoch tells."""
    try:
        answer = await bus.api(f"STREAM.MSG.GET.{subjects.STREAM}", {"seq": target.epoch})
        said = _epoch.decode(base64.b64decode(answer["message"].get("data", "")))
        return config_from(said.config)
    except Refused as error:
        if error.code != NO_MESSAGE:
            raise
        return Config()
    except BROKEN as error:
        raise BadInput(
            f"epoch {target.epoch} tells of settings that are not known here: {error}"
        ) from None


# What is told. ------------------------------------------------------------------------------


def _show(call: Call, target: Said, answer: Answer, sources: Sequence[Source]) -> None:
    decision = target.decision
    kind = type(decision).__name__.lower()
    shown = {
        "sequence": target.sequence,
        "kind": kind,
        "epoch": target.epoch,
        "decision": msgspec.to_builtins(decision),
        "from": {
            "revisions": needed(decision),
            "checkpoint": sources[-1].checkpoint,
            "facts": sum(one.facts for one in sources),
            "workloads": answer.workloads,
            "objects": answer.objects,
            "decisionsOnTheirWay": answer.inflight,
            "turns": answer.turns,
        },
        "same": not answer.differences,
        "differences": answer.differences,
        "now": answer.made,
    }
    match call.output:
        case Output.JSON:
            output.show_json(shown)
            return
        case Output.YAML:
            output.show_yaml(shown)
            return
    facts = sum(one.facts for one in sources)
    begin = f"checkpoint {sources[-1].checkpoint}" if sources[-1].checkpoint else "the first fact"
    output.say(
        f"decision {target.sequence}: {kind} {decision.namespace}/{decision.name} at revision "
        f"{decision.revision}, by epoch {target.epoch} of {decision.domain}, {decision.time}"
    )
    text = msgspec.json.encode(decision).decode()
    output.say(f"logged: {text}")
    output.say(
        f"decided from: revision {decision.seen} of the bucket: workloads {answer.workloads:,}, "
        f"objects {answer.objects:,}, decisions on their way {answer.inflight:,}; "
        f"rebuilt from {begin} and {facts:,} facts"
    )
    if answer.turns:
        output.say(f"turns: {', '.join(answer.turns)}")
    for line in answer.differences:
        output.say(f"different: {line}")
    if not answer.differences:
        output.say("same")
