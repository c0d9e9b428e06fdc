"""Validates manifests before they are applied: problems, objections and warnings. The module is
pure. The endpoints and the what-if computation use the same functions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple

import msgspec

from admittance.api.checks import AdmissionCheck, PriorityClass
from admittance.api.fields.limits import FLAVOR_VARIANTS_MAX
from admittance.api.fields.problems import FORBIDDEN, ManifestError, Problem
from admittance.api.kinds import SUBMITTED_KINDS
from admittance.api.manifests import Manifest, our_kind
from admittance.api.queues import ClusterQueue, Cohort, conflicts
from admittance.api.reading.manifest import Document, accept, duplicates
from admittance.api.reading.objects import with_field_warnings
from admittance.api.runners import Runner
from admittance.api.validation.queues import check_variant_count
from admittance.api.validation.validate import validate_update
from admittance.control.controller import Controller
from admittance.control.manifests.objects import Objects
from admittance.control.manifests.planned_writes import PlannedWrite
from admittance.events.reader import Unreadable
from admittance.quota.references import BOTH, Sharing, reference_warnings
from admittance.workload.bucket_reader import read_manifest
from admittance.workload.limits import Limits

PARAMETERS_MAX: Final = 400_000
"""How many bytes the parameters of a check may have. One message of 1 MiB carries the parameters of
a check together with the workload."""


class Proposal(NamedTuple):
    """Valid manifests and the warnings about each of them. ``problems``: one line per invalid
    manifest."""

    manifests: list[Manifest]
    warnings: list[tuple[str, ...]]
    problems: list[str]


def proposal(numbered: Iterable[tuple[int, msgspec.Raw]], namespace: str) -> Proposal:
    """Decodes manifests. Each manifest comes with its number in the request, which the errors about
    the manifest name. ``namespace`` "": any namespace is allowed. Two manifests of one object in a
    request are a problem, as in one file."""
    proposed = Proposal([], [], [])
    documents = []
    for number, raw in numbered:
        try:
            accepted = with_field_warnings(
                accept(
                    raw,
                    namespace=namespace,
                    document=f"object {number}",
                    flavors_max=FLAVOR_VARIANTS_MAX,
                )
            )
        except ManifestError as error:
            proposed.problems.extend(error.lines())
            continue
        manifest = accepted.manifest
        if our_kind(manifest) in SUBMITTED_KINDS:
            proposed.problems.append(
                f"object {number}: a {manifest.kind} is submitted, not applied"
            )
        elif namespace and manifest.metadata.namespace != namespace:
            proposed.problems.append(f"object {number}: is not in the namespace {namespace}")
        proposed.warnings.append(accepted.warnings)
        proposed.manifests.append(manifest)
        documents.append(Document("", f"object {number}", manifest, accepted.warnings))
    proposed.problems.extend(line for twice in duplicates(documents) for line in twice.lines())
    return proposed


def refusal_reasons(objects: Objects, planned: Iterable[PlannedWrite], limits: Limits) -> list[str]:
    """Why planned writes are refused, one line for each reason: forbidden updates and exceeded
    limits."""
    every = list(planned)
    named = {
        write.name: write.object for write in every if isinstance(write.object, AdmissionCheck)
    }

    def controller_of(check: str) -> str | None:
        known = named.get(check) or objects.check(check)
        return None if known is None else str(known.spec.controller_name)

    return [
        *(
            line
            for write in every
            for line in _objections(objects, write, controller_of, limits.flavors_max)
        ),
        *_second_defaults(objects, every),
    ]


def changed_since(
    objects: Objects, planned: Iterable[PlannedWrite], expected: Iterable[int | None]
) -> list[str]:
    """A line for each object that has not the expected revision; 0: it must not exist, None: any
    revision."""
    lines = []
    for write, revision in zip(planned, expected, strict=True):
        kept = objects.get(write.key)
        if revision is None or revision == (0 if kept is None else kept.revision):
            continue
        what = "does not exist any more" if kept is None else "has changed since"
        if not revision:
            what = "exists now"
        lines.append(f"{write.kind} {write.name} {what}")
    return lines


def _second_defaults(objects: Objects, planned: Iterable[PlannedWrite]) -> Iterator[str]:
    """A line for each PriorityClass that would be a second global default."""
    classes = {
        write.name: write.object for write in planned if isinstance(write.object, PriorityClass)
    }
    default = objects.global_default()
    first = default[0] if default is not None and default[0] not in classes else ""
    for name, priority_class in classes.items():
        if priority_class.global_default and first:
            message = f"PriorityClass {first} is the global default already"
            yield f"PriorityClass {name}: {Problem('globalDefault', message, FORBIDDEN)}"
        elif priority_class.global_default:
            first = name


def warnings_about(
    planned: PlannedWrite, controller: Controller, sharing: Sharing = BOTH
) -> tuple[str, ...]:
    """Warnings about an applied object. ``controller`` has all objects, including the other objects
    of the same apply. ``sharing``: what the configuration has."""
    said = planned.object
    warnings = list(reference_warnings(said, controller.catalog, sharing))
    if isinstance(said, AdmissionCheck):
        missing = controller.objects.missing_parameters(said)
        if missing:
            warnings.append(
                f"spec.parameters: {missing}: until then the check is inactive, "
                "and its queues reserve nothing"
            )
    families = controller.queues.limits.families
    if isinstance(said, ClusterQueue) and said.spec.concurrent_admission and not families:
        warnings.append(
            "spec.concurrentAdmission is kept and has no effect: "
            "the gate ConcurrentAdmission is off, and every workload is regular"
        )
    return tuple(warnings)


UNANNOUNCED: Final = (
    "no runner has announced itself under this name, and nothing else makes such an object: "
    "`admit get runners`"
)


def _objections(
    objects: Objects,
    planned: PlannedWrite,
    controller_of: Callable[[str], str | None],
    flavors_max: int,
) -> list[str]:
    length = len(planned.value or b"")
    if length > PARAMETERS_MAX and not isinstance(planned.object, ClusterQueue | Cohort):
        sentence = f"is {length} bytes long, {PARAMETERS_MAX} are allowed"
        return [f"{planned.kind} {planned.name}: {sentence}"]
    old = objects.get(planned.key)
    if planned.value is None:
        return []
    try:
        # What is stored must be readable for every service, also for one that starts later.
        read_manifest(planned.key, planned.value)
    except Unreadable as error:
        return [f"{planned.kind} {planned.name}: cannot be stored: {error}"]
    problems = [] if old is None else validate_update(old.object, planned.object)
    if old is None and isinstance(planned.object, Runner):
        problems.append(Problem("metadata.name", UNANNOUNCED, FORBIDDEN))
    if isinstance(planned.object, ClusterQueue):
        # A conflict that existed before the change is not a reason to refuse the change: the queue
        # is already inactive and reports it.
        before = [] if old is None else conflicts(old.object.spec, controller_of)
        told = {problem.message for problem in before}
        clashes = conflicts(planned.object.spec, controller_of)
        problems += [problem for problem in clashes if problem.message not in told]
        if old is not None and check_variant_count(old.object.spec, flavors_max):
            # The stored queue was accepted when more flavors were allowed, so the number of flavors
            # may stay or shrink.
            flavors_max = len(old.object.spec.resource_groups[0].flavors)
        problems += check_variant_count(planned.object.spec, flavors_max)
    return [f"{planned.kind} {planned.name}: {problem}" for problem in problems]
