"""Which machines see the folder in which a job was submitted. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from admittance.api.workload import Kept
from admittance.events.reader import BROKEN
from admittance.folders import SUBMITTED_FROM, FolderSight, SubmittedFrom, noted_folder, sees_folder
from admittance.workload.stored import StoredWorkload

_NOTE: Final = SUBMITTED_FROM.encode()


class _Metadata(Kept, frozen=True, kw_only=True):
    annotations: dict[str, str] = msgspec.field(default_factory=dict)


class _Template(Kept, frozen=True, kw_only=True):
    metadata: _Metadata = _Metadata()


class _PodSet(Kept, frozen=True, kw_only=True):
    template: _Template = _Template()


class _PodSets(Kept, frozen=True, kw_only=True):
    pod_sets: tuple[_PodSet, ...] = ()


_pod_sets: Final = msgspec.json.Decoder(_PodSets)


def host_of(sight: FolderSight | None) -> str:
    """A text that is the same for programs that see the same files at the same paths; "": not
    known."""
    if sight is None or not (sight.machine.boot_id and sight.machine.mount_namespace):
        return ""
    return f"{sight.machine.boot_id} {sight.machine.mount_namespace}"


def submitted_folder(workload: StoredWorkload) -> SubmittedFrom | None:
    """The folder of the workload's submission; None: its job does not ask for one."""
    if _NOTE not in bytes(workload.spec):
        return None
    try:
        for pod_set in _pod_sets.decode(workload.spec).pod_sets:
            folder = noted_folder(pod_set.template.metadata.annotations)
            if folder is not None:
                return folder
    except BROKEN:
        pass  # The runner says what is wrong.
    return None


def folder_demand(folder: SubmittedFrom, sights: Iterable[FolderSight]) -> tuple[str, str]:
    """The folder and the host of `admittance.placement.search.request.Demands`: the machine of the
    submitter, or the same machine after it was started again, which has another ``boot_id``."""
    by_host = [
        host_of(sight)
        for sight in sights
        if not sees_folder(
            msgspec.structs.replace(sight, shared=(), allowed=()), folder.uid, folder
        )
    ]
    own = host_of(FolderSight(machine=folder.machine))
    return folder.path, own if own in by_host or not by_host else max(by_host)
