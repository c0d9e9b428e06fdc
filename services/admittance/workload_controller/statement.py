"""What the log is told of a manifest that was written or removed."""

from __future__ import annotations

import msgspec

from admittance.events.subjects import applied_subject
from admittance.events.system import ObjectApplied
from admittance.workload_controller.commit import Message
from admittance.workload_controller.decide import Controller
from admittance.workload_controller.objects import Kept, prefix_of

_encode = msgspec.json.Encoder().encode


def statement(controller: Controller, kept: Kept, *, deleted: bool = False) -> Message:
    """``admit.object.applied`` or ``deleted`` of a manifest."""
    manifest = kept.object
    meta = manifest.metadata
    prefix = prefix_of(manifest)
    said = ObjectApplied(
        kind=manifest.kind,
        namespace=meta.namespace,
        name=meta.name,
        revision=kept.revision,
        object=msgspec.Raw(kept.value),
    )
    subject = applied_subject(prefix, meta.namespace, meta.name, deleted=deleted)
    return Message(
        subject, _encode(said), controller.speaker.identity(f"{subject}/{kept.revision}")
    )
