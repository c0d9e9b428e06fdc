"""Pod templates: fields that admission or a runner reads are typed; other fields are only kept."""

from __future__ import annotations

from typing import Annotated, Any, TypeAlias

import msgspec

from admittance.api.fields.limits import (
    Amounts,
    FieldOperator,
    FileMode,
    Label,
    LabelKey,
    Labels,
    NameOrNone,
    NodeOperator,
    NodeValue,
    Quantity,
    field_rule,
    one_of,
)
from admittance.api.meta import ObjectMeta, Strict, Toleration

RequiredText: TypeAlias = Annotated[str, field_rule(required=True, minLength=1)]


class KeyRef(Strict, frozen=True, kw_only=True):
    """One key of a ConfigMap or Secret. ``optional``: the variable is left out if there is no such
    key."""

    name: NameOrNone = ""
    key: RequiredText = ""
    optional: bool = False


class FieldRef(Strict, frozen=True, kw_only=True):
    api_version: str = "v1"
    field_path: RequiredText = ""


class ResourceFieldRef(Strict, frozen=True, kw_only=True):
    """A quantity of a container, divided by ``divisor``. ``container_name`` "": the container with
    the variable."""

    container_name: str = ""
    resource: RequiredText = ""
    divisor: Quantity = "1"


class FileKeyRef(Strict, frozen=True, kw_only=True):
    volume_name: RequiredText = ""
    path: RequiredText = ""
    key: RequiredText = ""
    optional: bool = False


class EnvVarSource(Strict, frozen=True, kw_only=True):
    """The source of a variable's value; one of the fields is set."""

    field_ref: FieldRef | None = None
    resource_field_ref: ResourceFieldRef | None = None
    config_map_key_ref: KeyRef | None = None
    secret_key_ref: KeyRef | None = None
    file_key_ref: FileKeyRef | None = None


class EnvVar(Strict, frozen=True, kw_only=True):
    name: str
    value: str = ""
    value_from: EnvVarSource | None = None


class ObjectRef(Strict, frozen=True, kw_only=True):
    """A ConfigMap or Secret. ``optional``: its absence is no failure."""

    name: NameOrNone = ""
    optional: bool = False


class EnvFromSource(Strict, frozen=True, kw_only=True):
    """All keys of a ConfigMap or a Secret as variables, with ``prefix`` before each name."""

    prefix: str = ""
    config_map_ref: ObjectRef | None = None
    secret_ref: ObjectRef | None = None


class VolumeMount(Strict, frozen=True, kw_only=True):
    name: RequiredText = ""
    mount_path: RequiredText = ""
    sub_path: str = ""
    sub_path_expr: str = ""
    read_only: bool = False
    mount_propagation: Any = None
    recursive_read_only: Any = None


class KeyToPath(Strict, frozen=True, kw_only=True):
    key: RequiredText = ""
    path: RequiredText = ""
    mode: FileMode | None = None


class ConfigMapVolume(Strict, frozen=True, kw_only=True):
    """The keys of a ConfigMap as files; with ``items`` only these keys."""

    name: NameOrNone = ""
    items: tuple[KeyToPath, ...] = ()
    default_mode: FileMode | None = None
    optional: bool = False


class SecretVolume(Strict, frozen=True, kw_only=True):
    """The keys of a Secret as files; with ``items`` only these keys."""

    secret_name: NameOrNone = ""
    items: tuple[KeyToPath, ...] = ()
    default_mode: FileMode | None = None
    optional: bool = False


class HostPathVolume(Strict, frozen=True, kw_only=True):
    path: RequiredText = ""
    type: str = ""


class EmptyDirVolume(Strict, frozen=True, kw_only=True):
    medium: Any = None
    size_limit: Quantity | None = None


class Volume(Strict, frozen=True, kw_only=True):
    """A volume of a pod; one of its sources is set."""

    name: Label
    empty_dir: EmptyDirVolume | None = None
    host_path: HostPathVolume | None = None
    config_map: ConfigMapVolume | None = None
    secret: SecretVolume | None = None
    # The volume's sources from ``awsElasticBlockStore`` on exist only in a cluster.
    aws_elastic_block_store: Any = msgspec.field(default=None, name="awsElasticBlockStore")
    azure_disk: Any = None
    azure_file: Any = None
    cephfs: Any = None
    cinder: Any = None
    csi: Any = None
    downward_api: Any = msgspec.field(default=None, name="downwardAPI")
    ephemeral: Any = None
    fc: Any = None
    flex_volume: Any = None
    flocker: Any = None
    gce_persistent_disk: Any = None
    git_repo: Any = None
    glusterfs: Any = None
    image: Any = None
    iscsi: Any = None
    nfs: Any = None
    persistent_volume_claim: Any = None
    photon_persistent_disk: Any = None
    portworx_volume: Any = None
    projected: Any = None
    quobyte: Any = None
    rbd: Any = None
    scale_io: Any = msgspec.field(default=None, name="scaleIO")
    storageos: Any = None
    vsphere_volume: Any = None


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
    env_from: tuple[EnvFromSource, ...] = ()
    volume_mounts: tuple[VolumeMount, ...] = ()
    # The container's fields from ``imagePullPolicy`` on are kept for runners that read them.
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


class PreferredSchedulingTerm(Strict, frozen=True, kw_only=True):
    """Nodes that match the ``preference`` are better by the ``weight``."""

    weight: Annotated[int, field_rule(minimum=1, maximum=100)]
    preference: NodeSelectorTerm


class NodeAffinity(Strict, frozen=True, kw_only=True):
    required_during_scheduling_ignored_during_execution: NodeSelector | None = None
    preferred_during_scheduling_ignored_during_execution: tuple[PreferredSchedulingTerm, ...] = ()


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
    volumes: tuple[Volume, ...] = ()
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
    workload_ref: Any = None


class PodTemplate(Strict, frozen=True, kw_only=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: PodSpec = PodSpec()
