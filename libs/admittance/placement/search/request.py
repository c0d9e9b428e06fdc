"""What placement needs to know of a workload with reserved quota: its pods, with what flavors and
checks add to them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

import msgspec

from admittance.api.meta import Toleration
from admittance.api.pod_requests import needs
from admittance.api.pods import NodeSelectorTerm, PreferredSchedulingTerm
from admittance.api.workload import (
    COMPLETIONS,
    JOB_POLICY,
    BadPolicy,
    Kept,
    noted_completions,
    noted_policy,
)
from admittance.events.reader import BROKEN
from admittance.events.system import RunnerStarts
from admittance.placement.machines.machine import HOSTNAME, PODS
from admittance.workload.checks.pod_set_updates import merged_additions
from admittance.workload.stored import VARIANT, StoredWorkload, head, owner_of
from admittance.workload.transition_context import FlavorParts

Amounts = tuple[tuple[str, int], ...]
"""Amounts of resources above 0, sorted by resource."""


class PodGroup(msgspec.Struct, frozen=True, kw_only=True):
    """The pods of one pod set. ``requests``: of one pod, with one of `PODS`. ``node_selector``:
    labels that the machine must have. ``terms``: the alternatives of the required node affinity;
    None: no affinity is required. ``preferred``: the preferred node affinity. ``together``: all
    pods must be on one machine.
    """

    name: str
    count: int
    requests: Amounts
    node_selector: tuple[tuple[str, str], ...] = ()
    terms: tuple[NodeSelectorTerm, ...] | None = None
    tolerations: tuple[Toleration, ...] = ()
    preferred: tuple[PreferredSchedulingTerm, ...] = ()
    together: bool = False

    @property
    def names_machines(self) -> bool:
        """Whether the pods select machines by name, and not only by labels that machines share."""
        return any(key == HOSTNAME for key, _ in self.node_selector) or any(
            map(names_machine, self.terms or ())
        )


def names_machine(term: NodeSelectorTerm) -> bool:
    """Whether the term selects machines by name."""
    return bool(term.match_fields) or any(e.key == HOSTNAME for e in term.match_expressions)


def _starts_all(_: RunnerStarts) -> str:
    return ""


class Demands(NamedTuple):
    """What the job asks of its runner. ``executor`` "": any. ``folder``: a folder that the machine
    must see as the programs of ``host`` see it; "": none. ``refusal``: returns why a runner with
    these rules does not start the job, as a sentence; "": it starts the job.
    """

    executor: str = ""
    folder: str = ""
    host: str = ""
    refusal: Callable[[RunnerStarts], str] = _starts_all


NO_DEMANDS: Final = Demands()


class RememberedRefusal:
    """A refusal that is asked once for each set of rules: a workload that waits is tried often."""

    def __init__(self, refusal: Callable[[RunnerStarts], str]) -> None:
        self._refusal = refusal
        self._known: dict[RunnerStarts, str] = {}

    def __call__(self, starts: RunnerStarts) -> str:
        """Why a runner with these rules does not start the job; "": it starts the job."""
        known = self._known.get(starts)
        if known is None:
            known = self._known[starts] = self._refusal(starts)
        return known


class PlacementRequest(NamedTuple):
    """A workload to be placed. ``key``: its ``namespace/name``. ``family``: the key of its parent,
    or its own: no two workloads of a family run at the same time."""

    key: str
    family: str
    pod_sets: tuple[PodGroup, ...]
    demands: Demands = NO_DEMANDS

    @property
    def pods(self) -> int:
        """The number of all pods."""
        return sum(group.count for group in self.pod_sets)


class _Metadata(Kept, frozen=True, kw_only=True):
    annotations: dict[str, str] = msgspec.field(default_factory=dict)


class _Template(Kept, frozen=True, kw_only=True):
    metadata: _Metadata = _Metadata()


class _PodSet(Kept, frozen=True, kw_only=True):
    name: str = "main"
    template: _Template = _Template()


class _PodSets(Kept, frozen=True, kw_only=True):
    pod_sets: tuple[_PodSet, ...] = ()


_terms: Final = msgspec.json.Decoder(tuple[PreferredSchedulingTerm, ...] | None)
_annotated: Final = msgspec.json.Decoder(_PodSets)
_NOTES: Final = (COMPLETIONS.encode(), JOB_POLICY.encode())


def workload_key(workload: StoredWorkload) -> str:
    """The ``namespace/name`` of a workload."""
    return f"{workload.metadata.namespace}/{workload.metadata.name}"


def family_of(workload: StoredWorkload) -> str:
    """The key of the workload's parent, or its own key."""
    if head(workload).role == VARIANT:
        parent, _ = owner_of(workload)
        if parent:
            return f"{workload.metadata.namespace}/{parent}"
    return workload_key(workload)


def pod_requests(workload: StoredWorkload) -> dict[str, Amounts]:
    """What one pod of each pod set requests. Raises as `admittance.api.pod_requests.needs`."""
    return {ps.name: _requests(ps.requests) for ps in needs(workload.spec).pod_sets}


def _requests(amounts: Mapping[str, int]) -> Amounts:
    return tuple(sorted({**{r: a for r, a in amounts.items() if a > 0}, PODS: 1}.items()))


def request_of(
    workload: StoredWorkload,
    flavor: Callable[[str], FlavorParts],
    demands: Demands = NO_DEMANDS,
) -> PlacementRequest:
    """The request of a workload with reserved quota. ``flavor``: what the flavor of that name adds
    to pods. Raises as `admittance.api.pod_requests.needs`."""
    admission = workload.status.admission
    assert admission is not None, "a workload is placed after its quota is reserved"
    counts = {place.name: place.count for place in admission.pod_set_assignments}
    additions, _ = merged_additions(workload, flavor)
    annotated = _annotations(workload)
    groups = []
    for ps in needs(workload.spec).pod_sets:
        count = counts.get(ps.name, ps.count)
        selector, tolerations = ps.node_selector, ps.tolerations
        added = additions.get(ps.name)
        if added is not None:
            selector = {**added.node_selector, **selector}
            more = msgspec.convert(added.tolerations, tuple[Toleration, ...])
            tolerations = tuple(dict.fromkeys((*tolerations, *more)))
        groups.append(
            PodGroup(
                name=ps.name,
                count=count,
                requests=_requests(ps.requests),
                node_selector=tuple(sorted(selector.items())),
                terms=ps.affinity,
                tolerations=tolerations,
                preferred=_preferred(ps.preferred),
                together=_is_drawn(annotated.get(ps.name, {}), count),
            )
        )
    return PlacementRequest(workload_key(workload), family_of(workload), tuple(groups), demands)


def _preferred(written: msgspec.Raw) -> tuple[PreferredSchedulingTerm, ...]:
    if not bytes(written):
        return ()
    try:
        return _terms.decode(written) or ()
    except BROKEN:
        # An earlier version stored what it did not read.
        return ()


def _annotations(workload: StoredWorkload) -> dict[str, dict[str, str]]:
    """The annotations of each pod template, if one of them has notes of a Job."""
    spec = bytes(workload.spec)
    if not any(note in spec for note in _NOTES):
        return {}
    return {
        ps.name: ps.template.metadata.annotations
        for ps in _annotated.decode(workload.spec).pod_sets
    }


def _is_drawn(annotations: Mapping[str, str], count: int) -> bool:
    """Whether one runner must start all pods: it draws the indices of further completions while the
    pods run, and only it sees when enough of them have succeeded."""
    try:
        policy = noted_policy(annotations)
    except BadPolicy:
        # The runner gives the reason when it plans the job.
        policy = None
    judged = policy is not None and (policy.work_queue or policy.success_policy is not None)
    return judged or noted_completions(annotations) > count
