"""The content of a request for one reservation: pod sets (merged by policy), templates and
parameters. docs/spec/lifecycle.md#5.1."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from admittance.api.checks import ProvisioningRequestConfigSpec
from admittance.api.fields.limits import PARAMETER_MAX, PARAMETERS_MAX
from admittance.api.fields.problems import shown
from admittance.api.kinds import V1BETA2
from admittance.api.meta import ObjectMeta, OwnerReference
from admittance.api.pods import Container, PodSpec, PodTemplate
from admittance.api.queues import ResourceFlavor
from admittance.api.workload import CheckState, PodSet
from admittance.events.provisioning import (
    ProvisioningCancelled,
    ProvisioningFact,
    ProvisioningRequested,
)
from admittance.events.reader import number
from admittance.events.shapes import Admission, PodSetAssignment, PodSetToProvision
from admittance.provisioning.observed_state import Name, ObservedState, StoredRecord
from admittance.provisioning.records import (
    ANNOTATION,
    Record,
    RecordSpec,
    request_id,
    request_name,
    with_note,
)
from admittance.provisioning.steps import Memory, RequestSlot
from admittance.workload.stored import StoredWorkload


class IncompleteReservation(ValueError):
    """No capacity request can be made, because a pod set has no assignment. The exception's message
    names the pod set.
    """


def parameters_of(
    config: ProvisioningRequestConfigSpec, annotations: Mapping[str, str]
) -> dict[str, str]:
    """The config's parameters, overridden by those in the workload's annotations."""
    own = {
        key.removeprefix(ANNOTATION): value
        for key, value in annotations.items()
        if key.startswith(ANNOTATION)
    }
    return {**config.parameters, **own}


def parameters_error(parameters: Mapping[str, str]) -> str:
    """Why the parameters exceed the limits; "" if they do not. `admit apply` checks the parameters
    in a ProvisioningRequestConfig, but only this function checks the parameters in annotations of a
    workload.
    """
    if len(parameters) > PARAMETERS_MAX:
        return f"the request has {len(parameters)} parameters, at most {PARAMETERS_MAX} are allowed"
    for key, value in parameters.items():
        if not key:
            return f"the annotation {ANNOTATION} does not name a parameter"
        if max(len(key), len(value)) > PARAMETER_MAX:
            return f"parameter {key[:60]} has more than {PARAMETER_MAX} characters"
    return ""


def uses_managed_resource(pod_set: PodSet, managed: Collection[str]) -> bool:
    """Whether a container of the pod set has a managed resource in requests or limits. Returns True
    if ``managed`` is empty.
    """
    if not managed:
        return True
    spec = pod_set.template.spec
    for container in (*spec.init_containers, *spec.containers):
        resources = container.resources
        if any(name in resources.requests or name in resources.limits for name in managed):
            return True
    return False


def assigned_pod_sets(
    pod_sets: Sequence[PodSet], admission: Admission | None, managed: Collection[str]
) -> list[tuple[PodSet, PodSetAssignment]]:
    """The pod sets that need capacity, with their assignments.

    Raises IncompleteReservation if a pod set that needs capacity has no assignment."""
    assigned = {place.name: place for place in admission.pod_set_assignments} if admission else {}
    needing: list[tuple[PodSet, PodSetAssignment]] = []
    for pod_set in pod_sets:
        if pod_set.count <= 0 or not uses_managed_resource(pod_set, managed):
            continue
        assignment = assigned.get(pod_set.name)
        if assignment is None:
            raise IncompleteReservation(f"pod set {pod_set.name} has no assignment")
        if assignment.count > 0:
            needing.append((pod_set, assignment))
    return needing


def pod_sets_to_provision(
    pod_sets: Sequence[PodSet],
    admission: Admission | None,
    config: ProvisioningRequestConfigSpec,
    flavor_of: Callable[[str], ResourceFlavor | None],
) -> tuple[PodSetToProvision, ...]:
    """The pod sets of the request; empty if no capacity is needed. Raises IncompleteReservation if
    a pod set that needs capacity has no assignment.
    """
    compared = _COMPARED.get(config.pod_set_merge_policy or "")
    groups: list[tuple[PodTemplate, PodSetToProvision]] = []
    for pod_set, assignment in assigned_pod_sets(pod_sets, admission, config.managed_resources):
        template = completed_template(pod_set.template, assignment, flavor_of)
        for at, (first, group) in enumerate(groups):
            if compared is not None and compared(first) == compared(template):
                merged = replace(
                    group, count=group.count + assignment.count, names=(*group.names, pod_set.name)
                )
                groups[at] = first, merged
                break
        else:
            groups.append(
                (
                    template,
                    PodSetToProvision(
                        name=pod_set.name,
                        names=(pod_set.name,),
                        count=assignment.count,
                        template=msgspec.Raw(msgspec.json.encode(template)),
                    ),
                )
            )
    return tuple(group for _, group in groups)


def completed_template(
    template: PodTemplate,
    assignment: PodSetAssignment,
    flavor_of: Callable[[str], ResourceFlavor | None],
) -> PodTemplate:
    """The template with the labels and tolerations of its flavors added. Missing resource requests
    are filled from the resource limits.
    """
    spec = template.spec
    selector, tolerations = dict(spec.node_selector), list(spec.tolerations)
    for name in dict.fromkeys(assignment.flavors.values()):
        flavor = flavor_of(name)
        if flavor is None:
            continue
        selector |= flavor.spec.node_labels
        tolerations += [added for added in flavor.spec.tolerations if added not in tolerations]
    full: PodSpec = replace(
        spec,
        node_selector=selector,
        tolerations=tuple(tolerations),
        containers=tuple(map(_with_requests, spec.containers)),
        init_containers=tuple(map(_with_requests, spec.init_containers)),
    )
    return replace(template, spec=full)


def _with_requests(container: Container) -> Container:
    resources = container.resources
    if not resources.limits:
        return container
    filled = {**resources.limits, **resources.requests}
    return replace(container, resources=replace(resources, requests=filled))


# Merging. -------------------------------------------------------------------------------


def _whole(template: PodTemplate) -> PodTemplate:
    return template


def _scheduling(template: PodTemplate) -> tuple[Any, ...]:
    """The requests of the containers, in their order, and all fields that restrict the node."""
    spec = template.spec
    return (
        [container.resources.requests for container in spec.containers],
        [container.resources.requests for container in spec.init_containers],
        spec.resources,
        spec.node_selector,
        spec.tolerations,
        spec.affinity,
        spec.resource_claims,
    )


_COMPARED: Final[dict[str, Callable[[PodTemplate], object]]] = {
    "IdenticalPodTemplates": _whole,
    "IdenticalWorkloadSchedulingRequirements": _scheduling,
}
"""For each merge policy the part of templates that must be equal for pod sets to be merged."""


def _about(record: Record) -> dict[str, Any]:
    return {
        "namespace": record.metadata.namespace,
        "name": record.spec.workload,
        "uid": record.spec.uid,
        "provisioning_class": record.spec.provisioning_class_name,
        "id": record.spec.id,
        "check": record.spec.check,
        "cycle": record.spec.cycle,
        "attempt": record.spec.attempt,
    }


def requested_fact(record: Record) -> ProvisioningRequested:
    """The fact `requested`, which requests the capacity of the record."""
    spec = record.spec
    return ProvisioningRequested(
        **_about(record),
        pod_sets=spec.pod_sets,
        parameters=spec.parameters,
        deadline=spec.deadline,
    )


def cancelled_fact(record: Record) -> ProvisioningCancelled:
    """The fact `cancelled`, which cancels the request, with the record's reason."""
    return ProvisioningCancelled(**_about(record), reason=record.status.cancelled)


API: Final = "autoscaling.x-k8s.io/v1"
KIND: Final = "ProvisioningRequest"
VALID_UNTIL: Final = "ValidUntilSeconds"
"""Name of the parameter with the seconds until the request fails if the provider has not
answered.
"""


class RecordBuilder:
    """Builds records of new requests. ``time_limit``: for requests without the parameter
    `VALID_UNTIL`; None means no limit.
    """

    def __init__(
        self, observed: ObservedState, memory: Memory, time_limit: timedelta | None
    ) -> None:
        self._observed = observed
        self._memory = memory
        self._time_limit = time_limit

    def record(
        self,
        slot: RequestSlot,
        work: StoredWorkload,
        row: CheckState,
        before: StoredRecord | None,
        config: ProvisioningRequestConfigSpec,
        wanted: tuple[PodSetToProvision, ...],
        now: datetime,
    ) -> Record:
        """The record of a new request for the workload's current reservation. ``before``: the
        cancelled request that the new one replaces.
        """
        meta, cycle, attempt = work.metadata, work.status.admission_cycle, row.retry_count + 1
        identity = request_id(meta.uid, slot.check, cycle, attempt)
        name = request_name(meta.name, meta.uid, slot.check, attempt)
        generation = self._generation(slot, meta.uid, cycle, before, name)
        if generation > 1 and before is not None:
            name = before.record.metadata.name
        elif self._observed.slot_at.get((slot.namespace, name), slot) != slot:
            name = request_name(meta.name, meta.uid, slot.check, attempt, force_hash=True)
        parameters = parameters_of(config, meta.annotations)
        deadline, note = self._deadline(parameters, now)
        spec = RecordSpec(
            id=identity if generation == 1 else f"{identity}~{generation}",
            workload=meta.name,
            uid=meta.uid,
            check=slot.check,
            cycle=cycle,
            attempt=attempt,
            provisioning_class_name=config.provisioning_class_name,
            parameters=parameters,
            pod_sets=wanted,
            deadline=deadline,
        )
        record = _record(slot.namespace, name, spec, generation, now, work.api_version)
        return with_note(record, note, now) if note else record

    def _generation(
        self, slot: RequestSlot, uid: str, cycle: int, before: StoredRecord | None, name: str
    ) -> int:
        """The number of the capacity request within the reservation, chosen so that no request id
        is used twice."""
        last = self._memory.last_requests.get(slot)
        if before is not None and before.record.spec.cycle == cycle:
            return before.record.metadata.generation + 1
        if last is not None:
            return last.generation + 1 if (last.uid, last.cycle) == (uid, cycle) else 1
        # The reservation may have had requests that this leader does not know. A revision of the
        # bucket is larger than the generation of every earlier request of the reservation.
        return self._observed.expected(slot, name) or 1

    def _deadline(self, parameters: dict[str, str], now: datetime) -> tuple[datetime | None, str]:
        """The deadline, and a note if the parameter is not valid (otherwise "")."""
        written = parameters.get(VALID_UNTIL)
        limit, note = self._time_limit, ""
        if written is not None:
            # Python refuses to parse numbers with very many digits.
            if written.isascii() and written.isdecimal() and (seconds := int(written[:1000])):
                limit = _seconds(seconds)
            else:
                default = f"{limit.total_seconds():g} s" if limit is not None else "none"
                note = (
                    f"the parameter {VALID_UNTIL} must be a positive integer, not "
                    f"{shown(written)}: the default holds, {default}"
                )
        try:
            return (now + limit if limit is not None else None), note
        except OverflowError:
            return None, note


def _seconds(number: int) -> timedelta:
    try:
        return timedelta(seconds=number)
    except OverflowError:
        return timedelta.max


class DeletedRequestRecovery:
    """Rebuilds requests from the log if their records were deleted by hand while no leader was
    active: a request that was sent and never cancelled may hold capacity.

    The rebuilt records have no answers; a provider repeats its answers when the request is sent
    again. ``names``: namespaces and names of the deleted records.
    """

    def __init__(self, names: Collection[Name]) -> None:
        self._names = names
        self._sent: dict[str, Record] = {}
        self._cancelled: set[str] = set()

    def read(self, fact: ProvisioningFact, at: datetime) -> None:
        """Reads the next fact of the log, in the order of the log."""
        if isinstance(fact, ProvisioningCancelled):
            self._cancelled.add(fact.id)
        elif isinstance(fact, ProvisioningRequested) and fact.id not in self._sent:
            name = self._lost_name(fact)
            if name is not None:
                self._sent[fact.id] = _requested_record(fact, name, at)

    def found(self) -> list[Record]:
        """The capacity requests on the log that were sent and never cancelled, oldest first,
        without their answers."""
        return [record for id, record in self._sent.items() if id not in self._cancelled]

    def _lost_name(self, fact: ProvisioningRequested) -> str | None:
        for force_hash in (False, True):
            name = request_name(
                fact.name, fact.uid, fact.check, fact.attempt, force_hash=force_hash
            )
            if (fact.namespace, name) in self._names:
                return name
        return None


def _requested_record(fact: ProvisioningRequested, name: str, at: datetime) -> Record:
    """The record of a capacity request, made from the fact on the log."""
    spec = RecordSpec(
        id=fact.id,
        workload=fact.name,
        uid=fact.uid,
        check=fact.check,
        cycle=fact.cycle,
        attempt=fact.attempt,
        provisioning_class_name=fact.provisioning_class,
        parameters=dict(fact.parameters),
        pod_sets=fact.pod_sets,
        deadline=fact.deadline,
    )
    generation = number(fact.id.partition("~")[2]) or 1
    return _record(fact.namespace, name, spec, generation, at, V1BETA2)


def _record(
    namespace: str, name: str, spec: RecordSpec, generation: int, at: datetime, owner_api: str
) -> Record:
    owner = OwnerReference(api_version=owner_api, kind="Workload", name=spec.workload, uid=spec.uid)
    metadata = ObjectMeta(
        name=name,
        namespace=namespace,
        generation=generation,
        creation_timestamp=at,
        owner_references=(owner,),
    )
    return Record(api_version=API, kind=KIND, metadata=metadata, spec=spec)
