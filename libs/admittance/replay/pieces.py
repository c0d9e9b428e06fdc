"""Helpers to rebuild the bucket: values from messages of the log, and ended workloads. Pure."""

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
    """Something needed was not recorded or is not kept any more; the text names it."""


class Entry(NamedTuple):
    """The value of a bucket key. ``value`` None: deleted."""

    key: str
    revision: int
    value: bytes | None


def manifest_of(heard: LogMessage) -> Entry:
    """The write reported by an ``admit.object.…`` message. Raises CannotRebuild."""
    try:
        said = _applied.decode(heard.data)
        _, _, what, kind, namespace, name = heard.subject.split(".")
    except (msgspec.MsgspecError, ValueError) as error:
        raise CannotRebuild(f"message {heard.sequence} has no readable object: {error}") from None
    key = f"{kind}.{name}" if namespace == "_" else f"{kind}.{namespace}.{name}"
    return Entry(key, said.revision, None if what == "deleted" else bytes(said.object))


def decided_at(heard: LogMessage) -> int:
    """The revision of the workload that a decision was made for; 0: not a decision."""
    parts = heard.subject.split(".", 3)
    if parts[1] != "workload" or parts[2] not in FENCED:
        return 0
    try:
        return _decision.decode(heard.data).revision
    except msgspec.MsgspecError:
        return 0


def oldest_of(commit: Committed) -> int:
    """The oldest revision in a commit; 0: it has no revision."""
    found = [*commit.runs[::2], *(one.revision for one in commit.adopted)]
    return min(found, default=0)


def called(key: str, batch: Iterable[LogMessage]) -> str:
    """The uid of the workload in the first fact that has one; "": no fact has one."""
    tail = key.removeprefix(WORKLOAD)
    for heard in batch:
        if heard.subject.endswith(f".{tail}"):
            with suppress(msgspec.MsgspecError):
                uid = _called_so.decode(heard.data).uid
                if uid:
                    return uid
    return ""


def ended(key: str, uid: str = "") -> StoredWorkload:
    """A placeholder for an ended workload, without its spec."""
    _, namespace, name = key.split(".")
    finished = Condition(type=Type.FINISHED, status="True", reason="Succeeded")
    return StoredWorkload(
        api_version="kueue.x-k8s.io/v1beta2",
        kind="Workload",
        metadata=ObjectMeta(name=plain(name), namespace=plain(namespace), uid=uid),
        status=WorkloadStatus(conditions=(finished,)),
    )
