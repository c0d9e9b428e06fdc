"""What the log is told of a manifest that was written or removed.

Whoever writes one says so, and may die, or not hear that it was written. So a new leader says what
the log does not tell of the bucket, and a leader says what it reads there and did not know.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from admittance.api.checks import AdmissionCheck
from admittance.api.kinds import KINDS
from admittance.control.commit import Message
from admittance.control.controller_state import ControllerState
from admittance.control.objects import Kept, prefix_of
from admittance.events.reading import Unreadable
from admittance.events.subjects import applied_subject
from admittance.events.system import ObjectApplied
from admittance.workload.reading import names_of

_encode = msgspec.json.Encoder().encode


def statement(
    controller: ControllerState, kept: Kept, *, before: Kept | None = None, deleted: bool = False
) -> Message:
    """``admit.object.applied`` or ``deleted`` of a manifest. ``before``: as it was; None: it was
    not there, or nobody knows."""
    manifest = kept.object
    meta = manifest.metadata
    said = ObjectApplied(
        kind=manifest.kind,
        namespace=meta.namespace,
        name=meta.name,
        revision=kept.revision,
        object=msgspec.Raw(kept.value),
        parameters_changed=names_others(before, manifest),
    )
    subject = applied_subject(prefix_of(manifest), meta.namespace, meta.name, deleted=deleted)
    return _message(controller, subject, said)


def names_others(before: Kept | None, manifest: Any) -> bool:
    """It is an AdmissionCheck that names other parameters than before, as far as anybody knows."""
    if not isinstance(manifest, AdmissionCheck):
        return False
    return before is None or before.object.spec.parameters != manifest.spec.parameters


def _message(controller: ControllerState, subject: str, said: ObjectApplied) -> Message:
    identity = controller.speaker.identity(f"{subject}/{said.revision}")
    return Message(subject, _encode(said), identity)


def ending(controller: ControllerState, key: str, revision: int) -> Message | None:
    """``admit.object.deleted`` from the marker alone; None: it is no kind of ours, or no object has
    such a key."""
    prefix = key.partition(".")[0]
    kind = next((one for one in KINDS.values() if one.token == prefix), None)
    if kind is None:
        return None
    try:
        namespace, name = names_of(key)
    except Unreadable:
        return None
    said = ObjectApplied(kind=kind.name, namespace=namespace, name=name, revision=revision)
    return _message(controller, applied_subject(prefix, namespace, name, deleted=True), said)


def statements(controller: ControllerState) -> Iterator[tuple[int, Message]]:
    """What the log must have been told of every manifest, deleted ones included, each with its
    revision; an older word of the same subject does not tell it."""
    for _, kept in controller.objects:
        yield kept.revision, statement(controller, kept)
    for key, revision in controller.objects.markers():
        said = ending(controller, key, revision)
        if said is not None:
            yield revision, said


def learn(
    controller: ControllerState,
    key: str,
    value: bytes | None,
    revision: int,
    headers: Mapping[str, str],
) -> Message | None:
    """Loads an entry of the bucket that somebody else wrote, or we without hearing that it was
    written. What is to be said of it; None: it was known."""
    known, before = controller.objects.expected(key), controller.objects.get(key)
    controller.load(key, value, revision, headers)
    if revision <= known:
        return None
    kept = controller.objects.get(key)
    if kept is not None:
        return statement(controller, kept, before=before)
    return ending(controller, key, revision)
