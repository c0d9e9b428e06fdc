"""The kinds that commands accept, and their spellings.

A kind is found by its plural, singular or short name, in any case, with or without its API group.
Any other word with a dot is a kind of a foreign API group, written ``kind.group``.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from admittance.api import kinds
from admittance.api.kinds import GROUP as KUEUE
from admittance.client.errors import BadInput
from admittance.events.names import token

CAPACITY: Final = "provisioningrequest"
"""First token of the bucket keys of capacity requests. The value is repeated from
`admittance.events.subjects`, because that module takes long to import.
"""


class ObjectKind(NamedTuple):
    """A kind of object. ``key``: the first token of the bucket keys of its objects; ``manifest``:
    the ``kind`` field of a manifest.
    """

    manifest: str
    plural: str
    short: tuple[str, ...]
    key: str
    namespaced: bool = False
    group: str = KUEUE
    other_keys: tuple[str, ...] = ()

    @property
    def singular(self) -> str:
        return self.manifest.lower()

    @property
    def qualified(self) -> str:
        """The kind as answers name it, like ``clusterqueue.kueue.x-k8s.io``."""
        return f"{self.singular}.{self.group}" if self.group else self.singular

    def patterns(self, namespace: str | None) -> tuple[str, ...]:
        """Patterns for the keys of all objects of the kind; namespace None: of all namespaces."""
        if self.namespaced and namespace is not None:
            return (f"{self.key}.{token(namespace)}.*",)
        return tuple(f"{key}.>" for key in (self.key, *self.other_keys))

    def keys(self, namespace: str, name: str) -> tuple[str, ...]:
        """The possible keys of an object. An object of a foreign kind has several possible keys:
        only the program that owns the kind knows whether its objects have a namespace and how the
        plural of the kind is built.
        """
        if self.is_foreign:
            each = (self.key, *self.other_keys)
            bare = tuple(f"{key}.{token(name)}" for key in each)
            return bare + tuple(f"{key}.{token(namespace)}.{token(name)}" for key in each)
        return (self.object_key(namespace, name),)

    @property
    def is_foreign(self) -> bool:
        known = kinds.KINDS.get(self.manifest)
        return known is None or known.group != self.group

    def object_key(self, namespace: str, name: str) -> str:
        """The key of one object in the bucket."""
        if self.namespaced:
            return f"{self.key}.{token(namespace)}.{token(name)}"
        return f"{self.key}.{token(name)}"


def _ours(name: str) -> ObjectKind:
    known = kinds.KINDS[name]
    return ObjectKind(name, known.plural, known.short, known.prefix, known.namespaced, known.group)


WORKLOAD: Final = _ours("Workload")
CLUSTER_QUEUE: Final = _ours("ClusterQueue")
LOCAL_QUEUE: Final = _ours("LocalQueue")
COHORT: Final = _ours("Cohort")
FLAVOR: Final = _ours("ResourceFlavor")
TOPOLOGY: Final = _ours("Topology")
CHECK: Final = _ours("AdmissionCheck")
PRIORITY_CLASS: Final = _ours("WorkloadPriorityClass")
POD_PRIORITY_CLASS: Final = _ours("PriorityClass")
PROVISIONING: Final = _ours("ProvisioningRequestConfig")
NAMESPACE: Final = _ours("Namespace")
BUDGET: Final = _ours("Budget")
RUNNER: Final = _ours("Runner")
REQUEST: Final = ObjectKind(
    "ProvisioningRequest",
    "provisioningrequests",
    ("pr", "provreq"),
    CAPACITY,
    namespaced=True,
    group="autoscaling.x-k8s.io",
)
"""The kind of capacity requests, which the provisioning check creates; users do not apply them."""
MACHINE_POOL: Final = ObjectKind(
    "MachinePool",
    "machinepools",
    ("mp",),
    token("machinepool.admittance.dev"),
    group="admittance.dev",
)
"""The kind of machine pools: foreign, like the kinds of other providers, but `admit` has tables for
it.
"""

KINDS: Final = (
    WORKLOAD,
    CLUSTER_QUEUE,
    LOCAL_QUEUE,
    COHORT,
    FLAVOR,
    TOPOLOGY,
    CHECK,
    PRIORITY_CLASS,
    POD_PRIORITY_CLASS,
    PROVISIONING,
    NAMESPACE,
    BUDGET,
    RUNNER,
    REQUEST,
    MACHINE_POOL,
)
"""All kinds of objects that the bucket holds. A Job is stored as a workload."""


_NAMESPACED: Final = {
    kind.key: kind.namespaced for kind in KINDS if kind.namespaced or not kind.is_foreign
}


def is_namespaced(key: str) -> bool | None:
    """Whether objects with this first token of their keys have a namespace; None: unknown, for a
    foreign kind.
    """
    return _NAMESPACED.get(key)


def _spellings(kind: ObjectKind) -> set[str]:
    bare = {kind.singular, kind.plural, *kind.short}
    if not kind.group:
        return bare
    return bare | {f"{name}.{kind.group}" for name in bare}


_BY_NAME: Final = {name: kind for kind in KINDS for name in _spellings(kind)}


def kind_named(typed: str) -> ObjectKind:
    """The kind that the typed word means. Raises BadInput, with a list of all kinds, for an unknown
    word."""
    kind = _BY_NAME.get(typed.lower())
    if kind is not None:
        return kind
    if typed.lower() in ("job", "jobs", "job.batch", "jobs.batch"):
        raise BadInput("a Job becomes a workload when it is submitted: use the kind workloads")
    singular, dot, group = typed.lower().partition(".")
    if dot and singular and group and group != KUEUE:
        return foreign(singular, group)
    known = ", ".join(f"{kind.plural} ({kind.short[0]})" for kind in KINDS)
    raise BadInput(f'no kind "{typed}"; there are {known}, and foreign ones as kind.group')


def foreign(manifest: str, group: str) -> ObjectKind:
    """A kind of a foreign API group; objects of such a kind are stored unchanged. ``manifest`` may
    be the kind's plural.
    """
    singular = manifest.lower()
    key = token(f"{singular}.{group}")
    stems = [singular[: -len(end)] for end in ("s", "es") if singular.endswith(end)]
    others = tuple(token(f"{stem}.{group}") for stem in stems if stem)
    return ObjectKind(manifest, f"{singular}s", (singular,), key, group=group, other_keys=others)


def kind_of_manifest(kind: str, group: str) -> ObjectKind:
    """The kind that a manifest states in ``kind`` and in the group of ``apiVersion``."""
    known = _BY_NAME.get(kind.lower())
    if known is not None and (known.group == group or not group):
        return known
    return foreign(kind, group)


def target(typed: str, name: str | None) -> tuple[ObjectKind, str | None]:
    """Kind and name from two words, or from the one word ``kind/name``."""
    word, slash, inline = typed.partition("/")
    if slash:
        if name is not None:
            raise BadInput(f'"{typed}" already names an object; "{name}" is one word too many')
        if not inline:
            raise BadInput(f'"{typed}" lacks a name after the slash')
        return kind_named(word), inline
    return kind_named(typed), name


def object_named(word: str, spelled: str) -> tuple[ObjectKind, str]:
    """Kind and name from ``kind/name``. ``spelled``: how the program names the argument. Raises
    BadInput."""
    if "/" not in word:
        example = "workload/NAME" if word.lower() in _BY_NAME else f"workload/{word}"
        raise BadInput(f'{spelled} "{word}" is not an object; write kind/name, such as {example}')
    kind, name = target(word, None)
    assert name is not None
    return kind, name


def workload_target(typed: str, name: str | None) -> str:
    """The name of a workload from ``workload NAME`` or ``workload/NAME``. Raises BadInput."""
    if name is None and "/" not in typed and "." not in typed and typed.lower() not in _BY_NAME:
        raise BadInput(f'no kind "{typed}"; if "{typed}" is a workload, type: workload {typed}')
    kind, named = target(typed, name)
    if kind is not WORKLOAD:
        raise BadInput(f"this command works on workloads only, not on a {kind.singular}")
    if not named:
        raise BadInput("the name of the workload is missing")
    return named
