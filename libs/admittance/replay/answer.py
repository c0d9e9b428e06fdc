"""Answers ``admit.api.replay``: reads the inputs of a logged decision, decides again, compares."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from admittance.events.facts import Assigned, Preempted
from admittance.events.requests.replays import Replay, ReplayInputs, ReplayReply
from admittance.replay.bucket_rebuild import CannotRebuild
from admittance.replay.decision import NONE_MADE, Repetition, repeat, revisions_needed
from admittance.replay.logged_decisions import CannotRepeat, LoggedDecision
from admittance.replay.past_inputs import NoDecision, Source, config_of, decision_at, gather
from admittance.runtime.bus.bus import Bus
from admittance.scheduling.state.equivalence import Key

NOW_BYTES: Final = 300_000
"""The most bytes of the decisions that are made now, so that an answer is one message."""


async def answer(bus: Bus, request: Replay, namespace: str = "") -> ReplayReply:
    """The answer to the question. ``namespace``: the one of the question, "": all; an answer names
    no workload of another one, except in the decision itself, which the log shows to the users of
    its namespace. Raises BusUnavailable and BusRefused."""
    sequence = request.sequence
    unknown = f"the log has no decision {sequence} about a workload of namespace {namespace}"
    try:
        target = await decision_at(bus, sequence)
        if namespace and target.decision.namespace != namespace:
            return ReplayReply(impossible=unknown)
        config = await config_of(bus, target)
        snapshots, sources, before = await gather(bus, target)
        repetition = repeat(target, before, lambda seen: snapshots[seen], config)
    except NoDecision as error:
        return ReplayReply(impossible=unknown if namespace else str(error))
    except CannotRepeat as error:
        hidden = namespace and error.about and error.about[0] != namespace
        why = "a workload of another namespace was not as the log says" if hidden else str(error)
        return ReplayReply(impossible=f"decision {sequence} cannot be repeated: {why}")
    except CannotRebuild as error:
        return ReplayReply(impossible=f"decision {sequence} cannot be repeated: {error}")
    return reply_of(target, repetition, sources, namespace)


def reply_of(
    target: LoggedDecision, repetition: Repetition, sources: Sequence[Source], namespace: str = ""
) -> ReplayReply:
    """The answer about a repeated decision, with what a question about the namespace may see."""
    decision = target.decision
    own = (decision.namespace, decision.name)
    made = [each for each in repetition.made if namespace in ("", _about(each, own)[0])]
    made.sort(key=lambda each: _about(each, own) != own)
    kept = _that_fit(made)
    turns = [turn for turn in repetition.turns if namespace in ("", turn.partition("/")[0])]
    differences = repetition.differences
    if differences == [NONE_MADE] and isinstance(decision, Assigned | Preempted):
        others = ", ".join("/".join(_about(each, own)) for each in made)
        elsewhere = "a workload of another namespace" if repetition.made else "no workload"
        differences = [f"{NONE_MADE}, but about {others or elsewhere}"]
    return ReplayReply(
        sequence=target.sequence,
        kind=type(decision).__name__.lower(),
        epoch=target.epoch,
        decision=msgspec.to_builtins(decision),
        inputs=ReplayInputs(
            revisions=tuple(revisions_needed(decision)),
            checkpoint=sources[-1].checkpoint,
            facts=sum(source.facts for source in sources),
            workloads=repetition.workloads,
            objects=repetition.objects,
            decisions_on_their_way=repetition.inflight,
            turns=tuple(turns),
            turns_elsewhere=len(repetition.turns) - len(turns),
        ),
        same=not differences,
        differences=tuple(differences),
        now=tuple(kept),
        now_left_out=len(made) - len(kept),
    )


def _about(made: Mapping[str, Any], own: Key) -> Key:
    """The workload of a decision that is made now. A refusal by itself names none: it is about the
    workload ``own`` of the logged decision."""
    return (made["namespace"], made["name"]) if "name" in made else own


def _that_fit(made: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The first decisions that fit in `NOW_BYTES` together."""
    left, kept = NOW_BYTES, list[dict[str, Any]]()
    for each in made:
        left -= len(msgspec.json.encode(each))
        if left < 0:
            break
        kept.append(each)
    return kept
