"""``admit apply``: sends manifests to the workload-controller.

Workloads and Jobs among the manifests are submitted after all other objects, such as queues.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from admittance.cli.commands.declare import PLACE, command, option
from admittance.cli.support import output
from admittance.cli.support.link import link
from admittance.cli.support.options import Call
from admittance.client import kinds, requests

if TYPE_CHECKING:
    from admittance.api.reading.manifest import Document
    from admittance.client.requests.link import Link

FOREIGN: Final = " (foreign parameters)"


@command(PLACE)
@option("--file -f FILE|DIR|-", "Manifests; may be repeated.", many=True, required=True)
async def apply(call: Call, file: Sequence[str]) -> int:
    """Create or change objects from manifests. All manifests are validated before any is applied.

    Prints one line per object: created, changed or unchanged. Workloads and Jobs are submitted.
    """
    from admittance.api.workload import Job, Workload
    from admittance.cli.support import files
    from admittance.cli.workloads.submit import in_order, submission_of, submit_all

    documents = files.documents(file, call.namespace)
    files.warn_about(documents)
    runs = [document for document in documents if isinstance(document.manifest, Workload | Job)]
    objects = [
        document for document in documents if not isinstance(document.manifest, Workload | Job)
    ]
    submissions = in_order([submission_of(run) for run in runs])
    async with link(call) as bus:
        sizes = [len(manifest.raw) for manifest in objects]
        foreign = [await _apply_part(bus, part) for part in requests.applying.parts(objects, sizes)]
        if any(foreign):
            output.note(
                "objects of a foreign kind are stored unchanged, as parameters for checks and "
                "providers; Admittance itself does not use them"
            )
        return await submit_all(bus, submissions, call.output) if submissions else 0


async def _apply_part(bus: Link, part: Sequence[Document]) -> bool:
    """Applies one part and prints each outcome. Returns whether the part created or changed an
    object of a foreign kind that `admit` does not know.
    """
    reply = await requests.applying.apply(bus, [manifest.raw for manifest in part])
    unknown = {_qualified(manifest) for manifest in part if _is_unknown(manifest)}
    foreign = False
    told = {warning for manifest in part for warning in manifest.warnings}
    # Results have the order of the objects; a result does not say whether its kind is foreign.
    for document, result in zip(part, reply.results, strict=True):
        kind = _qualified(document)
        is_unknown = kind in unknown and result.outcome != "unchanged"
        output.outcome(f"{kind}/{result.name}", result.outcome + (FOREIGN if is_unknown else ""))
        foreign = foreign or is_unknown
        for warning in result.warnings:
            if warning not in told:
                output.warn(f"{kind}/{result.name}: {warning}")
    return foreign


def _is_unknown(document: Document) -> bool:
    """Whether the object's kind is of a foreign API group and `admit` has no table for the kind."""
    from admittance.api.checks import Foreign

    manifest = document.manifest
    if not isinstance(manifest, Foreign):
        return False
    return kinds.kind_of_manifest(manifest.kind, manifest.group) not in kinds.KINDS


def _qualified(document: Document) -> str:
    from admittance.api.checks import Foreign

    manifest = document.manifest
    group = manifest.group if isinstance(manifest, Foreign) else ""
    return kinds.kind_of_manifest(manifest.kind, group).qualified
