"""Parts of facts and of the stored workload: admissions, updates, refusals.

They are Kueue's shapes where Kueue has them (``status.admission``), and travel unchanged
between the log, the bucket and the command.
"""

from __future__ import annotations

from typing import Any

import msgspec

from admittance.events.base import null


class Shape(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A part of a message; unknown fields of newer versions are tolerated."""


class PodSetAssignment(Shape, frozen=True, kw_only=True):
    """What one pod set got. ``flavors``: resource to flavor. ``resourceUsage``: resource to the
    total quantity over all ``count`` pods, as Kubernetes writes it (``"1500m"``, ``"2Gi"``)."""

    name: str
    flavors: dict[str, str] = msgspec.field(default_factory=dict)
    resource_usage: dict[str, str] = msgspec.field(default_factory=dict)
    count: int = 0


class Admission(Shape, frozen=True, kw_only=True):
    """Where quota is booked; set and cleared as a whole, never edited."""

    cluster_queue: str
    pod_set_assignments: tuple[PodSetAssignment, ...] = ()


class PodSetUpdate(Shape, frozen=True, kw_only=True):
    """What a check adds to the pods of one pod set before they start. Additive only."""

    name: str
    labels: dict[str, str] = msgspec.field(default_factory=dict)
    annotations: dict[str, str] = msgspec.field(default_factory=dict)
    node_selector: dict[str, str] = msgspec.field(default_factory=dict)
    tolerations: tuple[dict[str, Any], ...] = ()


class PodSetToRun(Shape, frozen=True, kw_only=True):
    """One pod set of an admitted workload, ready for a runner.

    ``template`` is the pod template as submitted; labels, annotations, nodeSelector and
    tolerations are what flavors and checks add to it. ``completions``: how many successes end the
    pod set; 0 means ``count``.
    """

    name: str
    count: int
    completions: int = 0
    flavors: dict[str, str] = msgspec.field(default_factory=dict)
    labels: dict[str, str] = msgspec.field(default_factory=dict)
    annotations: dict[str, str] = msgspec.field(default_factory=dict)
    node_selector: dict[str, str] = msgspec.field(default_factory=dict)
    tolerations: tuple[dict[str, Any], ...] = ()
    template: msgspec.Raw = msgspec.field(default_factory=null)


class Shortfall(Shape, frozen=True, kw_only=True):
    """What is lacking of one resource in one flavor, in accounting units: cpu in thousandths,
    everything else in whole units. ``limit`` names what stands in the way."""

    pod_set: str
    flavor: str
    resource: str
    requested: int
    available: int
    reason: str
    message: str = ""


class Refusal(Shape, frozen=True, kw_only=True):
    """Why a workload cannot have quota now: a stable reason, a sentence, and the numbers."""

    reason: str
    message: str
    shortfalls: tuple[Shortfall, ...] = ()
