"""The mark of what is to go, and what of it nobody needs any more. Pure."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from msgspec.structs import replace

from admittance.api.manifest import encode
from admittance.events.applying import Applied
from admittance.workload_controller.objects import Kept, Planned
from admittance.workload_controller.proposals import users

if TYPE_CHECKING:
    from admittance.workload_controller.decide import Controller


def marked(key: str, kept: Kept, now: datetime) -> Planned:
    """The object as one that is to go."""
    meta = replace(kept.object.metadata, deletion_timestamp=now)
    going = replace(kept.object, metadata=meta)
    told = Applied(kind=going.kind, namespace=meta.namespace, name=meta.name, outcome="terminating")
    return Planned(
        key, going.kind, meta.namespace, meta.name, going, encode(going), kept.revision, told
    )


def unneeded(controller: Controller) -> list[tuple[str, Kept]]:
    """The marked objects that nobody needs any more."""
    found = []
    for key in sorted(controller.objects.terminating):
        kept = controller.objects.get(key)
        prefix = key.partition(".")[0]
        if kept is None or users(
            controller.objects, controller.workloads, prefix, kept.object.metadata.name
        ):
            continue
        found.append((key, kept))
    return found
