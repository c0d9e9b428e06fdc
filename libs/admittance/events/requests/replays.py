"""``admit.api.replay``: a decision on the log, decided again."""

from __future__ import annotations

from typing import Any

import msgspec

from admittance.events.requests.base import Reply, Request


class Replay(Request, frozen=True, kw_only=True):
    """``admit.api.replay[.<ns>]``: decides a logged decision again, from the inputs that it had.
    ``sequence``: its position on the log. With a namespace in the subject, the decision must be
    about a workload of that namespace."""

    sequence: int


class ReplayInputs(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """What a decision was made from. ``revisions``: of the bucket, oldest first. ``checkpoint``:
    where the rebuild of the newest of them began, "": with the first fact; ``facts``: how many
    facts were applied after that. ``workloads``, ``objects``, ``decisions_on_their_way``: how many
    of them the rebuilt state has. ``turns``: the workloads ``namespace/name`` that the cycle
    processed, in order; ``turns_elsewhere``: how many others it processed, of other namespaces than
    that of the question."""

    revisions: tuple[int, ...] = ()
    checkpoint: str = ""
    facts: int = 0
    workloads: int = 0
    objects: int = 0
    decisions_on_their_way: int = 0
    turns: tuple[str, ...] = ()
    turns_elsewhere: int = 0


class ReplayReply(Reply, frozen=True, kw_only=True):
    """``impossible``: why the decision cannot be decided again, "": it was; then the other fields
    are set. ``kind``: such as assigned or refused; ``epoch``: of its leader; ``decision``: the
    fact. ``same``: whether the scheduler decides the same today from the same inputs;
    ``differences``: else one sentence for each field that differs. ``now``: the decisions that it
    makes now, of the namespace of the question; ``now_left_out``: how many of them have no room in
    the answer, which is one message."""

    impossible: str = ""
    sequence: int = 0
    kind: str = ""
    epoch: int = 0
    decision: dict[str, Any] = msgspec.field(default_factory=dict)
    inputs: ReplayInputs = msgspec.field(default=ReplayInputs(), name="from")
    same: bool = False
    differences: tuple[str, ...] = ()
    now: tuple[dict[str, Any], ...] = ()
    now_left_out: int = 0
    parts: int = 1


class ReplayTask(msgspec.Struct, frozen=True, kw_only=True):
    """Not on the wire: the input of the process that decides again, from the scheduler.
    ``namespace``: the one of the question, "": all."""

    request: Replay
    namespace: str = ""
