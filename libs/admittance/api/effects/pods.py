"""What the fields of pod templates do. ``No effect``: neither admission nor the local runner nor
the docker executor reads them; a runner of your own gets the whole template.
"""

from __future__ import annotations

from typing import Final

from admittance.api.effects.field_effect import Table, all_work, in_part, no_effect, works
from admittance.api.pods import (
    Affinity,
    Container,
    EnvVar,
    NodeAffinity,
    NodeFieldRequirement,
    NodeSelector,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    PodSpec,
    PodTemplate,
    ResourceRequirements,
)

_COUNTED: Final = "counted as quota; the runner sets no limit on a process"
_CLUSTER: Final = "exists only in a Kubernetes cluster"
_NETWORK: Final = "a job has the network of its machine or container engine"
_USER: Final = "the rules of the runner choose the Unix user"
_PROBES: Final = "a pod counts as ready when its processes have started"
_FILES: Final = "no volumes are mounted"
_ONE_MACHINE: Final = "all pods run on the machine of their runner"
_IO: Final = "standard input is empty, and output is not a terminal"

PODS: Final[Table] = {
    PodTemplate: all_work("metadata", "spec"),
    PodSpec: {
        **all_work("containers", "initContainers", "affinity", "tolerations"),
        "nodeSelector": works("chooses flavors, as in Kueue"),
        "overhead": works("counted as quota"),
        "resources": works(_COUNTED),
        "terminationGracePeriodSeconds": works("at most a week"),
        "priority": in_part("read in a Job; a Workload has `spec.priority`"),
        "priorityClassName": works(
            "names a PriorityClass, which must exist, unless a WorkloadPriorityClass counts"
        ),
        "restartPolicy": in_part(
            "`Never` and `OnFailure` work; a pod that succeeds never runs again",
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
        "nodeName": no_effect(_ONE_MACHINE),
        "os": no_effect(_ONE_MACHINE, usual=({"name": "linux"},)),
        "preemptionPolicy": no_effect("the ClusterQueue decides what a workload may preempt"),
        "readinessGates": no_effect(_PROBES),
        "resourceClaims": no_effect("no devices are claimed, and no quota is counted for them"),
        "runtimeClassName": no_effect(_CLUSTER),
        "schedulerName": no_effect(_ONE_MACHINE, usual=("default-scheduler",)),
        "schedulingGates": no_effect(
            "a gate of a workload is in its annotation admission-gated-by"
        ),
        "securityContext": no_effect(_USER),
        "serviceAccount": no_effect(f"a service account {_CLUSTER}", usual=("default",)),
        "serviceAccountName": no_effect(f"a service account {_CLUSTER}", usual=("default",)),
        "setHostnameAsFQDN": no_effect(_NETWORK),
        "shareProcessNamespace": no_effect("containers of the engine do not share processes"),
        "subdomain": no_effect(_NETWORK),
        "topologySpreadConstraints": no_effect(_ONE_MACHINE),
        "volumes": no_effect(_FILES),
        "workloadRef": no_effect(_CLUSTER),
    },
    Container: {
        **all_work("name", "command", "args", "env", "resources"),
        "image": in_part("the docker executor runs it; a local process needs a command"),
        "workingDir": works("an absolute path of the machine or of the image"),
        "restartPolicy": in_part(
            "counted as quota; a runner starts no sidecars: the job fails", usual=()
        ),
        "envFrom": no_effect("ConfigMaps and Secrets exist only in a Kubernetes cluster"),
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
        "volumeDevices": no_effect(_FILES),
        "volumeMounts": no_effect(_FILES),
    },
    EnvVar: {
        **all_work("name", "value"),
        "valueFrom": in_part(
            "`fieldRef` of the pod's name, namespace and index; with another source the job fails"
        ),
    },
    ResourceRequirements: {
        "requests": works(_COUNTED),
        "limits": works("counted as quota where a request is missing; not set on a process"),
        "claims": no_effect("no devices are claimed, and no quota is counted for them"),
    },
    Affinity: {
        "nodeAffinity": works("chooses flavors, as in Kueue"),
        "podAffinity": no_effect(_ONE_MACHINE),
        "podAntiAffinity": no_effect(_ONE_MACHINE),
    },
    NodeAffinity: {
        **all_work("requiredDuringSchedulingIgnoredDuringExecution"),
        "preferredDuringSchedulingIgnoredDuringExecution": no_effect(
            "the order of the queue's flavors decides"
        ),
    },
    NodeSelector: all_work("nodeSelectorTerms"),
    NodeSelectorTerm: {
        **all_work("matchExpressions"),
        "matchFields": no_effect("flavors have labels, and no fields of nodes"),
    },
    NodeSelectorRequirement: all_work("key", "operator", "values"),
    NodeFieldRequirement: all_work("key", "operator", "values"),
}
