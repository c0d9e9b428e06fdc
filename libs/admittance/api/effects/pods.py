"""What the fields of pod templates do. ``No effect``: neither admission nor the local runner nor
the docker executor reads them; a runner of your own gets the whole template.
"""

from __future__ import annotations

import re
from typing import Final

from admittance.api.effects.field_effect import Table, all_work, in_part, no_effect, works
from admittance.api.fields.struct_types import struct_type
from admittance.api.pods import (
    Affinity,
    ConfigMapVolume,
    Container,
    EmptyDirVolume,
    EnvFromSource,
    EnvVar,
    EnvVarSource,
    FieldRef,
    FileKeyRef,
    HostPathVolume,
    KeyRef,
    KeyToPath,
    NodeAffinity,
    NodeFieldRequirement,
    NodeSelector,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    ObjectRef,
    PodSpec,
    PodTemplate,
    PreferredSchedulingTerm,
    ResourceFieldRef,
    ResourceRequirements,
    SecretVolume,
    Volume,
    VolumeMount,
)

_COUNTED: Final = (
    "counted as quota; without a limit the most memory of the pod, and its share of cpu, where the "
    "machine can limit them"
)
_CLUSTER: Final = "exists only in a Kubernetes cluster"
_NETWORK: Final = "a job has the network of its machine or container engine"
_USER: Final = "the rules of the runner choose the Unix user"
_PROBES: Final = "a pod counts as ready when its processes have started"
_KEYS: Final = "ConfigMaps and Secrets are files of the runner (`--env-files`)"
_FIELDS: Final = (
    "name, namespace, index, labels and annotations of the pod; with another field the job fails"
)
_FIELD: Final = re.compile(r"metadata\.(name|namespace|(labels|annotations)\['[^']+'\])")
_FAILS: Final = (
    "no volume is made, since it exists only in a Kubernetes cluster; a job that mounts it fails"
)
_FEW_MACHINES: Final = "all pods run on machines of runners, on as few as possible"
_IO: Final = "standard input is empty, and output is not a terminal"

_CLUSTER_VOLUMES: Final = tuple(
    field.encode_name
    for field in struct_type(Volume).fields
    if field.name not in ("name", "empty_dir", "host_path", "config_map", "secret")
)

PODS: Final[Table] = {
    PodTemplate: all_work("metadata", "spec"),
    PodSpec: {
        **all_work("containers", "initContainers", "affinity", "tolerations", "volumes"),
        "nodeSelector": works("chooses flavors, as in Kueue"),
        "overhead": works("counted as quota"),
        "resources": works(_COUNTED),
        "terminationGracePeriodSeconds": works("at most a week"),
        "priority": in_part("read in a Job; a Workload has `spec.priority`"),
        "priorityClassName": works(
            "names a PriorityClass, which must exist, unless a WorkloadPriorityClass counts"
        ),
        "restartPolicy": in_part(
            "`Never` and `OnFailure` work, of which a Job needs one; a pod that succeeds never "
            "runs again",
            usual=("Never", "OnFailure"),
        ),
        "activeDeadlineSeconds": works("of one pod, which then counts as failed"),
        "automountServiceAccountToken": no_effect(f"a service account {_CLUSTER}"),
        "dnsConfig": no_effect(_NETWORK),
        "dnsPolicy": no_effect(_NETWORK, usual=("ClusterFirst", "Default")),
        "enableServiceLinks": no_effect(f"a Service {_CLUSTER}", usual=(True, False)),
        "ephemeralContainers": no_effect("a running job gets no further containers"),
        "hostAliases": no_effect(_NETWORK),
        "hostIPC": no_effect("a local process shares the machine's IPC, a container has its own"),
        "hostNetwork": no_effect(_NETWORK),
        "hostPID": no_effect("a local process sees the machine's processes, a container its own"),
        "hostUsers": no_effect(_USER, usual=(True,)),
        "hostname": no_effect(_NETWORK),
        "hostnameOverride": no_effect(_NETWORK),
        "imagePullSecrets": no_effect("the container engine has the credentials of its registries"),
        "nodeName": no_effect(_FEW_MACHINES),
        "os": no_effect(_FEW_MACHINES, usual=({"name": "linux"},)),
        "preemptionPolicy": no_effect("the ClusterQueue decides what a workload may preempt"),
        "readinessGates": no_effect(_PROBES),
        "resourceClaims": no_effect("no devices are claimed, and no quota is counted for them"),
        "runtimeClassName": no_effect(_CLUSTER),
        "schedulerName": no_effect(_FEW_MACHINES, usual=("default-scheduler",)),
        "schedulingGates": no_effect(
            "a gate of a workload is in its annotation admission-gated-by"
        ),
        "securityContext": no_effect(_USER),
        "serviceAccount": no_effect(f"a service account {_CLUSTER}", usual=("default",)),
        "serviceAccountName": no_effect(f"a service account {_CLUSTER}", usual=("default",)),
        "setHostnameAsFQDN": no_effect(_NETWORK),
        "shareProcessNamespace": no_effect("containers of the engine do not share processes"),
        "subdomain": no_effect(_NETWORK),
        "topologySpreadConstraints": no_effect(_FEW_MACHINES),
        "workloadRef": no_effect(_CLUSTER),
    },
    Container: {
        **all_work("name", "command", "args", "env", "resources"),
        "image": in_part("the docker executor runs it; a local process needs a command"),
        "workingDir": works("an absolute path of the machine or of the image"),
        "restartPolicy": in_part(
            "counted as quota; a runner starts no sidecars: the job fails", usual=()
        ),
        "imagePullPolicy": no_effect(
            "the container engine pulls an image that it lacks", usual=("IfNotPresent",)
        ),
        "lifecycle": no_effect("hooks are not called"),
        "livenessProbe": no_effect(_PROBES),
        "readinessProbe": no_effect(_PROBES),
        "startupProbe": no_effect(_PROBES),
        "ports": no_effect(_NETWORK),
        "resizePolicy": no_effect("a running job is not resized"),
        "restartPolicyRules": no_effect("the pod's restartPolicy and the Job's policies decide"),
        "securityContext": no_effect(_USER),
        "stdin": no_effect(_IO),
        "stdinOnce": no_effect(_IO),
        "terminationMessagePath": no_effect(
            "the message of a failed job is its exit status", usual=("/dev/termination-log",)
        ),
        "terminationMessagePolicy": no_effect(
            "the message of a failed job is its exit status", usual=("File",)
        ),
        "tty": no_effect(_IO),
        "volumeDevices": no_effect("no devices are given to a container"),
        "envFrom": in_part(_KEYS),
        "volumeMounts": in_part(
            "a container sees the volume at `mountPath`; a local process finds its folder by the "
            "variable `ADMITTANCE_VOLUME_<NAME>`, and as `workingDir`"
        ),
    },
    EnvVar: {
        **all_work("name", "value"),
        "valueFrom": works("see its sources"),
    },
    EnvVarSource: {
        "fieldRef": in_part(_FIELDS),
        "resourceFieldRef": works("requests and limits that the container states"),
        "configMapKeyRef": in_part(_KEYS),
        "secretKeyRef": in_part(_KEYS),
        "fileKeyRef": no_effect("the job fails: no runner of ours reads it", usual=()),
    },
    FieldRef: {
        "fieldPath": in_part(_FIELDS, usual=lambda path: _FIELD.fullmatch(path) is not None),
        "apiVersion": works("has one value, `v1`"),
    },
    ResourceFieldRef: all_work("containerName", "resource", "divisor"),
    KeyRef: all_work("name", "key", "optional"),
    FileKeyRef: dict.fromkeys(
        ("volumeName", "path", "key", "optional"), in_part("see `fileKeyRef`")
    ),
    EnvFromSource: {
        **all_work("prefix"),
        "configMapRef": in_part(_KEYS),
        "secretRef": in_part(_KEYS),
    },
    ObjectRef: all_work("name", "optional"),
    VolumeMount: {
        **all_work("name"),
        "mountPath": in_part("see `volumeMounts`"),
        "subPath": in_part(
            "of any volume in a local process; of a ConfigMap or Secret in a container"
        ),
        "subPathExpr": no_effect("the job fails: no runner of ours follows it", usual=()),
        "readOnly": in_part("a local process has the rights of its Unix user"),
        "mountPropagation": no_effect("mounts stay as they are", usual=("None",)),
        "recursiveReadOnly": no_effect("mounts stay as they are", usual=("Disabled",)),
    },
    Volume: {
        **all_work("name"),
        "emptyDir": works("a folder of the run, new for each pod"),
        "hostPath": in_part("where the runner allows it (`--allow-host-path`); else the job fails"),
        "configMap": in_part(_KEYS),
        "secret": in_part(_KEYS),
        **dict.fromkeys(_CLUSTER_VOLUMES, no_effect(_FAILS, usual=())),
    },
    EmptyDirVolume: {
        "medium": no_effect("the volume is a folder on the disk of the runner"),
        "sizeLimit": works("a pod that exceeds it fails; the runner measures every few seconds"),
    },
    HostPathVolume: {
        **all_work("path"),
        "type": in_part(
            "nothing is made, and no sockets and devices are mounted: the job fails",
            usual=("", "Directory", "File"),
        ),
    },
    ConfigMapVolume: all_work("name", "items", "defaultMode", "optional"),
    SecretVolume: all_work("secretName", "items", "defaultMode", "optional"),
    KeyToPath: all_work("key", "path", "mode"),
    ResourceRequirements: {
        "requests": works(_COUNTED),
        "limits": works(
            "counted as quota where a request is missing; limits of memory and cpu hold where the "
            "machine can limit them, for the pod, or for each container of an engine"
        ),
        "claims": no_effect("no devices are claimed, and no quota is counted for them"),
    },
    Affinity: {
        "nodeAffinity": works("chooses flavors, as in Kueue"),
        "podAffinity": no_effect(_FEW_MACHINES),
        "podAntiAffinity": no_effect(_FEW_MACHINES),
    },
    NodeAffinity: {
        **all_work("requiredDuringSchedulingIgnoredDuringExecution"),
        "preferredDuringSchedulingIgnoredDuringExecution": in_part(
            "chooses among the machines with room, where workloads are placed on machines; the "
            "order of the queue's flavors decides about flavors"
        ),
    },
    PreferredSchedulingTerm: all_work("weight", "preference"),
    NodeSelector: all_work("nodeSelectorTerms"),
    NodeSelectorTerm: {
        **all_work("matchExpressions"),
        "matchFields": in_part(
            "machines have names, and flavors have labels only, so that every flavor matches"
        ),
    },
    NodeSelectorRequirement: all_work("key", "operator", "values"),
    NodeFieldRequirement: all_work("key", "operator", "values"),
}
