"""Manifests that are a little wrong, and what the schema and the validation say of each.

A manifest that is right has one or two of its values changed: left out, nulled, of another type,
too large, too many, misspelled, doubled. Then the schema and the
validation both judge whether the changed manifest is valid.
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

from jsonschema import Draft202012Validator
from tools.manifests_schema import manifests_schema

from admittance.api.fields.problems import Problem
from admittance.api.kinds import KINDS
from admittance.api.reading.conform import resolve
from admittance.api.reading.manifest import ManifestError, accept, parsed

ROOT = Path(__file__).resolve().parents[4]
SHARED = ROOT.parent / "shared"

RICH = """
apiVersion: kueue.x-k8s.io/v1beta2
kind: Workload
metadata: {name: w, namespace: ns, labels: {a.b/c: d}, annotations: {X.y/z: some text}}
spec:
  queueName: lq
  priority: 7
  priorityClassRef: {group: kueue.x-k8s.io, kind: WorkloadPriorityClass, name: high}
  active: true
  maximumExecutionTimeSeconds: 60
  preemptionGates: [{name: gate}]
  admissionConstraints: {allowedResourceFlavors: [spot, on-demand]}
  podSets:
    - name: main
      count: 3
      minCount: 1
      template:
        metadata: {labels: {app: x}}
        spec:
          restartPolicy: Never
          nodeSelector: {zone: a}
          overhead: {cpu: 10m}
          resources: {limits: {memory: 2Gi}}
          tolerations:
            - {key: spot, operator: Equal, value: "true", effect: NoExecute, tolerationSeconds: 5}
          affinity:
            nodeAffinity:
              requiredDuringSchedulingIgnoredDuringExecution:
                nodeSelectorTerms:
                  - matchExpressions: [{key: zone, operator: In, values: [a, b]}]
                    matchFields: [{key: metadata.name, operator: In, values: [n]}]
          initContainers: [{name: i, resources: {requests: {cpu: 1}}}]
          containers:
            - name: c
              image: busybox
              command: [sleep]
              env: [{name: A, value: b}]
              resources: {requests: {cpu: 500m, memory: 1.5Gi}, limits: {cpu: "1"}}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {name: cq, labels: {a: b}}
spec:
  cohortName: co
  queueingStrategy: BestEffortFIFO
  stopPolicy: Hold
  namespaceSelector:
    matchLabels: {team: a}
    matchExpressions: [{key: team, operator: In, values: [a, b]}, {key: x, operator: Exists}]
  flavorFungibility:
    whenCanBorrow: TryNextFlavor
    whenCanPreempt: TryNextFlavor
    preference: PreemptionOverBorrowing
  preemption:
    reclaimWithinCohort: Any
    withinClusterQueue: LowerPriority
    borrowWithinCohort: {policy: LowerPriority, maxPriorityThreshold: 100}
  fairSharing: {weight: "2"}
  admissionScope: {admissionMode: UsageBasedAdmissionFairSharing}
  onQuotaCut: evict
  admissionChecks: [one]
  concurrentAdmission:
    migrationConstraints: {mode: UpgradeOnly, minVariant: fast}
    explicitVariants:
      - {name: fast, allowedResourceFlavors: [spot], createDelaySeconds: 1, deleteDelaySeconds: 9}
      - {name: slow, allowedResourceFlavors: [on-demand]}
  resourceGroups:
    - coveredResources: [cpu, example.com/gpu]
      flavors:
        - name: spot
          admissionChecks: [two]
          resources:
            - {name: cpu, nominalQuota: 9, borrowingLimit: 1, lendingLimit: 500m}
            - {name: example.com/gpu, nominalQuota: "4"}
        - name: on-demand
          resources:
            - {name: cpu, nominalQuota: 1.5}
            - {name: example.com/gpu, nominalQuota: 0}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {name: cq}
spec:
  admissionChecksStrategy: {admissionChecks: [{name: one, onFlavors: [spot]}, {name: two}]}
  concurrentAdmissionPolicy:
    migration: {mode: TryPreferredFlavors, constraints: {lastAcceptableFlavorName: spot}}
  resourceGroups:
    - coveredResources: [cpu]
      flavors: [{name: spot, resources: [{name: cpu, nominalQuota: 9}]}]
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: Cohort
metadata: {name: co}
spec:
  parentName: root
  fairSharing: {weight: 1}
  resourceGroups:
    - coveredResources: [cpu]
      flavors: [{name: spot, resources: [{name: cpu, nominalQuota: 9, lendingLimit: 10}]}]
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: LocalQueue
metadata: {name: lq, namespace: ns}
spec: {clusterQueue: cq, stopPolicy: None, fairSharing: {weight: 3}}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ResourceFlavor
metadata: {name: spot}
spec:
  nodeLabels: {zone: a}
  nodeTaints: [{key: spot, value: "true", effect: NoSchedule}]
  tolerations: [{key: spot, operator: Exists}]
  topologyName: rack
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: AdmissionCheck
metadata: {name: one}
spec:
  controllerName: example.com/check
  parameters: {apiGroup: example.com, kind: Budget, name: b}
  preemptionPolicy: Anytime
  retry: {strategy: backoff, baseDelay: 60s, factor: 2, jitter: 0.1, maxDelay: 1h30m, maxRetries: 5}
  checkTimeoutSeconds: 60
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ProvisioningRequestConfig
metadata: {name: prc}
spec:
  provisioningClassName: queued.example.com
  parameters: {ValidUntilSeconds: "0"}
  managedResources: [cpu, example.com/gpu]
  retryStrategy: {backoffLimitCount: 2, backoffBaseSeconds: 30, backoffMaxSeconds: 900}
  podSetUpdates: {nodeSelector: [{key: zone, valueFromProvisioningClassDetail: zone}]}
  podSetMergePolicy: IdenticalPodTemplates
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: WorkloadPriorityClass
metadata: {name: high}
value: 100
description: for people in a hurry
---
apiVersion: v1
kind: Namespace
metadata: {name: ns, labels: {team: a}}
---
apiVersion: batch/v1
kind: Job
metadata: {generateName: j-, namespace: ns, labels: {kueue.x-k8s.io/queue-name: lq}}
spec:
  parallelism: 3
  completions: 5
  backoffLimit: 2
  activeDeadlineSeconds: 60
  template:
    spec:
      restartPolicy: Never
      containers: [{name: c, image: busybox, resources: {requests: {cpu: 1}}}]
---
apiVersion: batch/v1
kind: Job
metadata: {name: indexed, namespace: ns, labels: {kueue.x-k8s.io/queue-name: lq}}
spec:
  parallelism: 2
  completions: 9
  completionMode: Indexed
  backoffLimitPerIndex: 1
  maxFailedIndexes: 3
  podReplacementPolicy: Failed
  ttlSecondsAfterFinished: 100
  suspend: true
  podFailurePolicy:
    rules:
    - {action: FailIndex, onExitCodes: {operator: In, values: [42, 43], containerName: c}}
    - {action: Ignore, onPodConditions: [{type: DisruptionTarget}]}
  successPolicy: {rules: [{succeededIndexes: "0-2,5", succeededCount: 2}]}
  template:
    spec:
      restartPolicy: Never
      volumes:
      - {name: a, emptyDir: {}}
      - {name: b, hostPath: {path: /srv, type: Directory}}
      - {name: c, secret: {secretName: s, items: [{key: k, path: p/k, mode: 0400}]}}
      - {name: d, configMap: {name: m, defaultMode: 0444, optional: true}}
      containers:
      - name: c
        image: busybox
        resources: {requests: {cpu: 1}}
        envFrom: [{prefix: P_, configMapRef: {name: m}}, {secretRef: {name: s, optional: true}}]
        env:
        - {name: A, valueFrom: {fieldRef: {fieldPath: metadata.name}}}
        - {name: B, valueFrom: {secretKeyRef: {name: s, key: k}}}
        - {name: C, valueFrom: {resourceFieldRef: {resource: requests.cpu, divisor: 1m}}}
        volumeMounts:
        - {name: a, mountPath: /a, subPath: x}
        - {name: b, mountPath: /b, readOnly: true}
---
apiVersion: example.com/v1
kind: Budget
metadata: {name: b, namespace: ns}
spec: {hours: 3}
"""
"""Every field that admission reads, in manifests that are right."""

SEVERAL = re.compile(
    "|".join(
        (
            # Of more than one field.
            r"(is listed twice|duplicate name)",
            r"the same key and effect are listed twice",
            r"must not exceed ",
            r"must be left out (while|without|when|: only)",
            r"must be left out: a \w+ has no namespace",
            r"must be set (while|when) ",
            r"must be one number when",
            r"is not a whole number",
            r"must (be|have) .* (while|when) ",
            r"must be .* in the group ",
            r"must name the parent",
            r"must be Never while",
            r"needs whenCanBorrow",
            r"is not a flavor of this queue",
            r"is not one of the explicitVariants",
            r"quotas for \d+ covered resources",
            r"in the order of coveredResources",
            r"says the same",
            r"contradicts the annotation",
            r"more than one pod set has a minCount",
            r"a workload may have \d",
            r"in all groups together",
            r"\d quotas, at most",
            r"must be one group",
            r"must not be StrictFIFO",
            r"without explicitVariants",
            # Sums over a text, or values that are read.
            r"characters on the bus",
            r"must be 0 or more than a billionth",
            r"must be (1|a number from 1 to \d+), not",
            r"so it cannot start with fewer",
            r"which its containers request",
            r"is not a resource of a whole pod",
            r"must be a number of seconds",
            r"must equal parallelism",
            # Of a Job, whose types are partly those of other kinds.
            r"may (only be set|be FailIndex only) (while|together)",
            r"must be (set: )?(Never or OnFailure|true or false|kubernetes.io/job-controller)",
            r"must have (one of onExitCodes|succeededIndexes or)",
            r"is not an index or a range|the range [-0-9]+ is empty|does not come after",
            r"must be below completions|must not have 0|no container has the name",
            r"is not a policy of a job",
            # Of volumes and variables.
            r"must name one source|must have one source|no volume has the name",
            r"must be an absolute path|must be a path inside the volume|must have no (part|equals)",
            r"is not a name like example.com/gate",
            r"names a gate twice",
            # Times, and what JSON can hold.
            r"must be a time like",
            r"does not fit 64 bits",
            r"a group close to ours|is not known",
        )
    )
)
"""What a schema cannot say, by the words of the validation."""


def corpus() -> Iterator[tuple[str, dict[str, Any]]]:
    """`RICH`, and every manifest of the samples, of the shared ones and of the conformance data."""
    for document in parsed(RICH, "rich"):
        yield "rich", plain(document.value)
    folders = (ROOT / "deploy" / "samples", SHARED / "manifests")
    for path in sorted(file for folder in folders for file in folder.rglob("*.y*ml")):
        for document in parsed(path.read_bytes(), path.name):
            value = plain(document.value)
            if isinstance(value, dict) and "kind" in value:
                yield path.name, value
    for path in sorted((SHARED / "conformance").rglob("*.json")):
        for value in _objects(json.loads(path.read_text())):
            yield path.name, value


def _objects(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, dict):
        if {"apiVersion", "kind", "metadata"} <= value.keys():
            yield value
        for inner in value.values():
            yield from _objects(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _objects(inner)


def plain(value: Any) -> Any:
    """A parsed document as JSON has it."""
    return json.loads(json.dumps(resolve(value), default=str))


@cache
def _validator() -> Draft202012Validator:
    return Draft202012Validator(manifests_schema())


@cache
def _validator_of(kind: str) -> Draft202012Validator:
    return Draft202012Validator({"$defs": _validator().schema["$defs"], "$ref": f"#/$defs/{kind}"})


def fits_schema(value: Mapping[str, Any]) -> bool:
    """Whether the schema accepts the manifest. For our kinds only the kind's own alternative is
    tried, which costs less."""
    kind, version = value.get("kind"), value.get("apiVersion")
    known = KINDS.get(kind) if isinstance(kind, str) else None
    if known is not None and version == known.versions[0]:
        return bool(_validator_of(known.name).is_valid(value))
    return bool(_validator().is_valid(value))


def problems(value: Mapping[str, Any]) -> list[Problem]:
    """The problems that the validation finds."""
    try:
        accept(value, namespace="default")
    except ManifestError as error:
        return list(error.problems)
    return []


def difference(value: Mapping[str, Any]) -> str:
    """The disagreement of schema and `apply`, in words; "": none."""
    fits, complaints = fits_schema(value), problems(value)
    if not fits and not complaints:
        first = next(_validator().iter_errors(value), None)
        kind = KINDS.get(str(value.get("kind")))
        if kind is not None:
            first = next(_validator_of(kind.name).iter_errors(value), first)
        where = "/".join(map(str, first.absolute_path)) if first is not None else ""
        return f"only the schema refuses {where}: {first.message[:200] if first else ''}"
    if fits and complaints:
        single = [problem for problem in complaints if not SEVERAL.search(problem.message)]
        if len(single) == len(complaints):
            return f"only the validation refuses it: {single[0].field}: {single[0].message}"
        if single:
            return (
                f"only the validation refuses it, too, for {single[0].field}: {single[0].message}"
            )
    return ""


# Mistakes. --------------------------------------------------------------------------------------

WORDS = (
    "",
    "a",
    "a-b.c",
    "UPPER",
    "a_b",
    "x/y",
    "x/",
    "-a",
    "a" * 64,
    "a" * 254,
    "Any",
    "None",
    "9",
)
AMOUNTS = ("1", "500m", "-1", "1.5Gi", "2e3", "1 Gi", "", "m")
NUMBERS = (-(2**31) - 1, -1, 0, 1, 2, 7, 2**31 - 1, 2**31, -0.5, 0.5)
OTHERS: tuple[Any, ...] = (None, True, 3, "text", [], {}, [1], {"a": 1})


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The ways to everything in value but its kind."""
    if path and path[0] in ("apiVersion", "kind", "status"):
        return
    if path:
        yield path
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from places(inner, (*path, key))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from places(inner, (*path, index))


def mistaken(value: dict[str, Any], rng: Random) -> dict[str, Any]:
    """value with one thing changed, or two."""
    made = copy.deepcopy(value)
    for _ in range(rng.choice((1, 1, 1, 2))):
        known_places = list(places(made))
        if not known_places:
            break
        *way, last = rng.choice(known_places)
        holder = made
        for step in way:
            holder = holder[step]
        _change(holder, last, rng)
    return made


def _change(holder: Any, last: Any, rng: Random) -> None:
    old = holder[last]
    match rng.randrange(8):
        case 0 if isinstance(holder, dict):
            del holder[last]
        case 1 if isinstance(old, list) and old:
            old.extend(copy.deepcopy(rng.choice(old)) for _ in range(rng.choice((1, 8, 17, 65))))
        case 2 if isinstance(old, dict):
            name = rng.choice(("unknown", "name", "x/y", "UPPER", "@"))
            old[name] = copy.deepcopy(rng.choice(OTHERS))
        case 3 if isinstance(old, list | dict):
            holder[last] = type(old)()
        case 4 if isinstance(old, str):
            holder[last] = rng.choice(AMOUNTS)
        case 5 | 6 if isinstance(old, bool | int | float):
            holder[last] = rng.choice(NUMBERS)
        case 5 | 6 | 7 if isinstance(old, str):
            holder[last] = rng.choice(WORDS)
        case _:
            holder[last] = copy.deepcopy(rng.choice(OTHERS))
