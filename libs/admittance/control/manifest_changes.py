"""What somebody wants applied or deleted, and what speaks against it. Pure.

The endpoints ask before they write, and whoever wants to know what would follow asks the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Final, NamedTuple

import msgspec
from msgspec.structs import replace

from admittance.api.checks import AdmissionCheck
from admittance.api.kinds import Manifest
from admittance.api.problems import ManifestError
from admittance.api.queues import ClusterQueue, conflicts
from admittance.api.reading.manifest import accept, encode
from admittance.api.validation.concurrent_admission import FLAVORS_MAX, check_flavors
from admittance.api.validation.validate import validate_update
from admittance.api.workload import Workload
from admittance.control.controller_state import ControllerState
from admittance.control.known import Workloads
from admittance.control.objects import Kept, Objects, Planned, users_of
from admittance.events.applying import Applied
from admittance.workload.limits import Limits
from admittance.workload.phase import holds_quota

PARAMETERS_MAX: Final = 400_000
"""Bytes. A check is told its parameters together with the workload, in one message of 1 MiB."""


class Proposal(NamedTuple):
    """Manifests that are valid by themselves, and the warnings of each. ``problems``: lines about
    those that are not."""

    manifests: list[Manifest]
    warnings: list[tuple[str, ...]]
    problems: list[str]


def proposal(numbered: Iterable[tuple[int, msgspec.Raw]], namespace: str) -> Proposal:
    """The manifests, each with the number that errors call it by, as typed values. ``namespace``
    "": of any namespace."""
    found = Proposal([], [], [])
    for number, raw in numbered:
        try:
            accepted = accept(
                raw, namespace=namespace, document=f"object {number}", flavors_max=FLAVORS_MAX
            )
        except ManifestError as error:
            found.problems.extend(error.lines())
            continue
        manifest = accepted.manifest
        if isinstance(manifest, Workload):
            found.problems.append(f"object {number}: a Workload is submitted, not applied")
        elif namespace and manifest.metadata.namespace != namespace:
            found.problems.append(f"object {number}: is not of the namespace {namespace}")
        found.warnings.append(accepted.warnings)
        found.manifests.append(manifest)
    return found


def objections(objects: Objects, planned: Iterable[Planned], limits: Limits) -> list[str]:
    """What forbids to write what is planned over what is there, or beyond the limits that are set,
    a line each."""
    every = list(planned)
    named = {one.name: one.object for one in every if one.kind == "AdmissionCheck"}

    def controller_of(check: str) -> str | None:
        found = named.get(check) or objects.check(check)
        return None if found is None else str(found.spec.controller_name)

    return [
        line
        for one in every
        for line in _objections(objects, one, controller_of, limits.flavors_max)
    ]


def cautions(planned: Planned, limits: Limits, objects: Objects) -> tuple[str, ...]:
    """What somebody who applies it should know. ``objects``: with all that is applied with it."""
    said = planned.object
    if isinstance(said, AdmissionCheck):
        missing = objects.missing_parameters(said)
        if not missing:
            return ()
        return (
            f"spec.parameters: {missing}: until then the check is inactive, "
            "and its queues reserve nothing",
        )
    if not isinstance(said, ClusterQueue) or said.spec.concurrent_admission is None:
        return ()
    if limits.families:
        return ()
    return (
        "spec.concurrentAdmission is kept and has no effect: "
        "the gate ConcurrentAdmission is off, and every workload is regular",
    )


def _objections(
    objects: Objects,
    planned: Planned,
    controller_of: Callable[[str], str | None],
    flavors_max: int,
) -> list[str]:
    length = len(planned.value or b"")
    if length > PARAMETERS_MAX and planned.kind not in ("ClusterQueue", "Cohort"):
        sentence = f"is {length} bytes long, {PARAMETERS_MAX} are allowed"
        return [f"{planned.kind} {planned.name}: {sentence}"]
    old = objects.get(planned.key)
    if planned.value is None:
        return []
    problems = [] if old is None else validate_update(old.object, planned.object)
    if isinstance(planned.object, ClusterQueue):
        # What was there before is no fault of this change: the queue is inactive, and says so.
        before = [] if old is None else conflicts(old.object.spec, controller_of)
        told = {problem.message for problem in before}
        found = conflicts(planned.object.spec, controller_of)
        problems += [problem for problem in found if problem.message not in told]
        if old is not None and check_flavors(old.object.spec, flavors_max):
            # Taken in when more were allowed: it may stay so, or become less.
            flavors_max = len(old.object.spec.resource_groups[0].flavors)
        problems += check_flavors(planned.object.spec, flavors_max)
    return [f"{planned.kind} {planned.name}: {problem}" for problem in problems]


def users(objects: Objects, workloads: Workloads, prefix: str, name: str) -> list[str]:
    """Who still needs the object, so that it is not deleted: a ClusterQueue is kept while
    workloads hold its quota."""
    found = users_of(objects, prefix, name)
    if prefix != "clusterqueue":
        return found
    return found + [
        f"Workload {known.workload.metadata.namespace}/{known.workload.metadata.name}"
        for _, known in workloads.items()
        if known.workload is not None
        and known.workload.status.admission is not None
        and known.workload.status.admission.cluster_queue == name
        and holds_quota(known.workload)
    ]


def marked(key: str, kept: Kept, now: datetime) -> Planned:
    """The object as one that is to go."""
    meta = replace(kept.object.metadata, deletion_timestamp=now)
    going = replace(kept.object, metadata=meta)
    told = Applied(kind=going.kind, namespace=meta.namespace, name=meta.name, outcome="terminating")
    return Planned(
        key, going.kind, meta.namespace, meta.name, going, encode(going), kept.revision, told
    )


def unneeded(controller: ControllerState) -> list[tuple[str, Kept]]:
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
