"""Pod templates: fields that admission or a runner reads are typed; other fields are only kept."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from admittance.api.limits import (
    Amounts,
    FieldOperator,
    LabelKey,
    Labels,
    NodeOperator,
    NodeValue,
    field_rule,
    one_of,
)
from admittance.api.meta import ObjectMeta, Strict, Toleration


class EnvVar(Strict, frozen=True, kw_only=True):
    name: str
    value: str = ""
    value_from: Any = None


class ResourceRequirements(Strict, frozen=True, kw_only=True):
    requests: Amounts = msgspec.field(default_factory=dict)
    limits: Amounts = msgspec.field(default_factory=dict)
    claims: Any = None


class Container(Strict, frozen=True, kw_only=True):
    name: str = ""
    image: str = ""
    command: tuple[str, ...] = ()
    args: tuple[str, ...] = ()
    working_dir: str = ""
    env: tuple[EnvVar, ...] = ()
    resources: ResourceRequirements = ResourceRequirements()
    restart_policy: str | None = None
    # The container's fields from ``envFrom`` on are kept for runners that read them.
    env_from: Any = None
    image_pull_policy: Any = None
    lifecycle: Any = None
    liveness_probe: Any = None
    readiness_probe: Any = None
    startup_probe: Any = None
    ports: Any = None
    resize_policy: Any = None
    restart_policy_rules: Any = None
    security_context: Any = None
    stdin: Any = None
    stdin_once: Any = None
    termination_message_path: Any = None
    termination_message_policy: Any = None
    tty: Any = None
    volume_devices: Any = None
    volume_mounts: Any = None


class NodeSelectorRequirement(Strict, frozen=True, kw_only=True):
    key: LabelKey
    operator: NodeOperator
    values: tuple[NodeValue, ...] = ()


class NodeFieldRequirement(Strict, frozen=True, kw_only=True):
    key: Annotated[str, one_of(["metadata.name"])]
    operator: FieldOperator
    values: tuple[str, ...] = ()


class NodeSelectorTerm(Strict, frozen=True, kw_only=True):
    match_expressions: tuple[NodeSelectorRequirement, ...] = ()
    match_fields: tuple[NodeFieldRequirement, ...] = ()


class NodeSelector(Strict, frozen=True, kw_only=True):
    """Selects nodes: a node matches if it matches all expressions of at least one term."""

    node_selector_terms: Annotated[
        tuple[NodeSelectorTerm, ...], field_rule(required=True, minItems=1)
    ] = ()


class NodeAffinity(Strict, frozen=True, kw_only=True):
    required_during_scheduling_ignored_during_execution: NodeSelector | None = None
    preferred_during_scheduling_ignored_during_execution: Any = None


class Affinity(Strict, frozen=True, kw_only=True):
    node_affinity: NodeAffinity | None = None
    pod_affinity: Any = None
    pod_anti_affinity: Any = None


class PodSpec(Strict, frozen=True, kw_only=True):
    containers: tuple[Container, ...] = ()
    init_containers: tuple[Container, ...] = ()
    node_selector: Labels = msgspec.field(default_factory=dict)
    affinity: Affinity | None = None
    tolerations: tuple[Toleration, ...] = ()
    overhead: Amounts = msgspec.field(default_factory=dict)
    resources: ResourceRequirements | None = None
    priority_class_name: str = ""
    priority: int | None = None
    restart_policy: str = ""
    termination_grace_period_seconds: int | None = None
    active_deadline_seconds: int | None = None
    # The pod's fields from ``automountServiceAccountToken`` on are kept, but not read.
    automount_service_account_token: Any = None
    dns_config: Any = None
    dns_policy: Any = None
    enable_service_links: Any = None
    ephemeral_containers: Any = None
    host_aliases: Any = None
    host_ipc: Any = msgspec.field(default=None, name="hostIPC")
    host_network: Any = None
    host_pid: Any = msgspec.field(default=None, name="hostPID")
    host_users: Any = None
    hostname: Any = None
    hostname_override: Any = None
    image_pull_secrets: Any = None
    node_name: Any = None
    os: Any = None
    preemption_policy: Any = None
    readiness_gates: Any = None
    resource_claims: Any = None
    runtime_class_name: Any = None
    scheduler_name: Any = None
    scheduling_gates: Any = None
    security_context: Any = None
    service_account: Any = None
    service_account_name: Any = None
    set_hostname_as_fqdn: Any = msgspec.field(default=None, name="setHostnameAsFQDN")
    share_process_namespace: Any = None
    subdomain: Any = None
    topology_spread_constraints: Any = None
    volumes: Any = None
    workload_ref: Any = None


class PodTemplate(Strict, frozen=True, kw_only=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: PodSpec = PodSpec()
