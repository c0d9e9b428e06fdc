"""What is kept of the past, one piece at a time: messages of the log, and workloads of which only
the end is known. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import Final, NamedTuple

import msgspec

from admittance.api.meta import Condition, ObjectMeta
from admittance.control.commit import LogMessage
from admittance.events.checkpoints import Committed
from admittance.events.facts import Decision
from admittance.events.names import plain
from admittance.events.subjects import FENCED
from admittance.events.system import ObjectApplied
from admittance.workload.conditions import Type
from admittance.workload.stored import StoredWorkload, WorkloadStatus

WORKLOAD: Final = "workload."
OBJECTS: Final = "admit.object."
_applied = msgspec.json.Decoder(ObjectApplied)
_decision = msgspec.json.Decoder(Decision)


class _Called(msgspec.Struct):
    uid: str = ""


_called_so = msgspec.json.Decoder(_Called)


class CannotRebuild(Exception):
    """Something that is needed is not kept any more, or was never told; the text says what."""


class Entry(NamedTuple):
    """What a key of the bucket held. ``value`` None: it had been deleted."""

    key: str
    revision: int
    value: bytes | None


def manifest_of(heard: LogMessage) -> Entry:
    """The write that an ``admit.object.…`` tells of. Raises CannotRebuild."""
    try:
        said = _applied.decode(heard.data)
        _, _, what, kind, namespace, name = heard.subject.split(".")
    except (msgspec.MsgspecError, ValueError) as error:
        raise CannotRebuild(f"message {heard.sequence} tells of no object: {error}") from None
    key = f"{kind}.{name}" if namespace == "_" else f"{kind}.{namespace}.{name}"
    return Entry(key, said.revision, None if what == "deleted" else bytes(said.object))


def decided_at(heard: LogMessage) -> int:
    """The revision of the workload that a decision was made for; 0: it is no decision."""
    parts = heard.subject.split(".", 3)
    if parts[1] != "workload" or parts[2] not in FENCED:
        return 0
    try:
        return _decision.decode(heard.data).revision
    except msgspec.MsgspecError:
        return 0


def oldest_of(commit: Committed) -> int:
    """The oldest revision that a commit tells of; 0: it tells of none."""
    found = [*commit.runs[::2], *(one.revision for one in commit.adopted)]
    return min(found, default=0)


def called(key: str, batch: Iterable[LogMessage]) -> str:
    """The uid by which the first fact that names one calls the workload; "": none does."""
    tail = key.removeprefix(WORKLOAD)
    for heard in batch:
        if heard.subject.endswith(f".{tail}"):
            with suppress(msgspec.MsgspecError):
                uid = _called_so.decode(heard.data).uid
                if uid:
                    return uid
    return ""


def ended(key: str, uid: str = "") -> StoredWorkload:
    """A workload that has ended, of which nothing else is known."""
    _, namespace, name = key.split(".")
    finished = Condition(type=Type.FINISHED, status="True", reason="Succeeded")
    return StoredWorkload(
        api_version="kueue.x-k8s.io/v1beta2",
        kind="Workload",
        metadata=ObjectMeta(name=plain(name), namespace=plain(namespace), uid=uid),
        status=WorkloadStatus(conditions=(finished,)),
    )
