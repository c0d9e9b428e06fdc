"""Subjects of the log: which fact is published on which subject.

Subject form: ``admit.<thing>.<what happened>.<…>.<namespace>.<name>``, past tense. The codec
refuses a payload that contradicts its subject, since permissions guard subjects only.
"""

from __future__ import annotations

from collections.abc import Sequence
from sys import intern
from typing import Final, NamedTuple

from admittance.events import facts, provisioning
from admittance.events.base import Fact
from admittance.events.names import NO_NAMESPACE, BadToken, plain, token

STREAM: Final = "ADMITTANCE"
TIMERS: Final = "ADMITTANCE_TIMERS"
BUCKET: Final = "admittance"
USAGE: Final = "_usage"
"""First token of bucket keys with the consumed usage of a LocalQueue; these values are not objects.
"""
CAPACITY: Final = "provisioningrequest"
"""First token of bucket keys with the provisioning check's requests for capacity."""
ALL_NAMESPACES: Final = "_"
"""The token in ``admit.api.objects.<ns>`` that stands for all namespaces; no namespace has it."""
OBJECTS: Final = "admit.object."
"""First tokens of the subjects on which manifests are logged: ``applied`` and ``deleted``."""
PROVIDERS: Final = "admittance_providers"
"""The bucket in which providers (`admittance.providers`) keep the status of each request."""
CLAIMS: Final = "admittance_claims"
ANNOUNCED_RUNNERS: Final = "_runner"
"""The first token of the keys ``_runner.<runner>`` of the bucket of claims: see
`admittance.events.system.RunnerAnnouncement`."""
CHECKPOINTS: Final = "ADMITTANCE_CHECKPOINTS"
SUMMARIES: Final = "ADMITTANCE_USAGE"
"""The stream with the sums of used quota by day and month, which are kept without limit of age."""
HISTORY: Final = "ADMITTANCE_HISTORY"
"""The stream with every revision of the bucket, for pictures of the past. Nothing else needs it."""
GUARD_KEY: Final = "_admittance.manifests"
"""Key of the bucket with the epoch of the workload-controller that may write manifests."""
RESTORED: Final = "_admittance.restored"
"""Key of the bucket that `admit restore` writes last: see `admittance.events.system.Restored`."""
PROBES: Final = {
    STREAM: "admit.lease.probe",
    TIMERS: "admit.timer.probe",
    CHECKPOINTS: "admit.checkpoint.probe",
    SUMMARIES: "admit.usage.probe",
    **{f"KV_{bucket}": f"$KV.{bucket}._admittance.probe" for bucket in (BUCKET, CLAIMS, PROVIDERS)},
}
"""For each stream, a subject that no service reads: a probe shows whether the stream stores it."""

WORKLOAD_FACTS: Final[dict[str, type[Fact]]] = {
    facts.key_of(kind): kind for kind in facts.ABOUT_WORKLOADS
}
"""Facts by the token ``<key>`` in their subject ``admit.workload.<key>.<ns>.<name>``."""

CHECK_FACTS: Final[dict[str, type[Fact]]] = {
    "requested": facts.CheckRequested,
    "withdrawn": facts.CheckWithdrawn,
    "reported": facts.CheckReported,
}
"""Facts by the token ``<key>`` in their subject ``admit.check.<key>.<controller>.<ns>.<name>``."""

PERSON_FACTS: Final[dict[str, type[Fact]]] = {
    "submitted": facts.Submitted,
    "activated": facts.Activated,
    "deactivated": facts.Deactivated,
    "held": facts.Held,
    "released": facts.Released,
    "reprioritized": facts.Reprioritized,
    "renewed": facts.Renewed,
    "deleted": facts.Deleted,
    "finished": facts.Finished,
    "approved": facts.Approved,
    "denied": facts.Denied,
}
"""Facts by the token ``<verb>`` in their subject ``admit.user.<user>.<verb>.<ns>.<name>``."""

PROVISIONING_FACTS: Final[dict[str, type[provisioning.ProvisioningFact]]] = {
    "requested": provisioning.ProvisioningRequested,
    "cancelled": provisioning.ProvisioningCancelled,
    "accepted": provisioning.Accepted,
    "provisioned": provisioning.Provisioned,
    "failed": provisioning.ProvisioningFailed,
    "booking_expired": provisioning.BookingExpired,
    "capacity_revoked": provisioning.CapacityRevoked,
}
"""Facts by the token ``<key>`` in their subject ``admit.provisioning.<key>.<class>.<ns>.<name>``.
"""

ASKED: Final = frozenset({"requested", "cancelled"})
"""Provisioning facts that providers read; providers publish all other provisioning facts."""


def keys_of(kind: type[Fact]) -> frozenset[str]:
    """The tokens of the facts about workloads that are of this kind."""
    return frozenset(key for key, fact in WORKLOAD_FACTS.items() if issubclass(fact, kind))


FENCED: Final = keys_of(facts.Decision)
"""Facts about workloads that only the leader of a domain may publish."""

OUTPUTS: Final = keys_of(facts.CommitFact)
"""Facts about workloads that the workload-controller publishes and does not read."""

JOB: Final = keys_of(facts.JobFact)
"""Facts that runners publish about jobs; with them ``finished``, which users publish, too."""

INPUTS: Final = frozenset(WORKLOAD_FACTS) - OUTPUTS
"""Facts about workloads that the workload-controller reads."""

EPOCH: Final = "admit.lease.epoch."
BARRIER: Final = "admit.lease.barrier."
DEADLETTER: Final = "admit.deadletter."
COMMITS: Final = "admit.checkpoint.commits"
CHECKPOINT_MADE: Final = "admit.checkpoint.made."
CHECKPOINT_PART: Final = "admit.checkpoint.part."
RELEASES: Final = "admit.workload.quota_released.>"
"""The facts from which the sums of used quota are made."""
FORECAST_ERRORS: Final = "_forecast.errors"
"""The key of the bucket of claims with the errors of earlier forecasts. It may be deleted."""
USAGE_POSITION: Final = "admit.usage.position"
SUMMARY: Final = "admit.usage.sum."
"""``admit.usage.sum.<day or month>.<period>.<cluster queue>.<ns>``: the sums of one period, such as
``2026-11-26`` or ``2026-11``."""
TIMER_AT: Final = "admit.timer.at."
TIMER_DUE: Final = "admit.timer.due."
ALIVE_PROVISIONING: Final = "admit.alive.provisioning."
"""``admit.alive.provisioning.<class>``: heartbeats of providers, not kept on the log."""
ALIVE_INSTANCE: Final = "admit.alive.instance."
"""``admit.alive.instance.<service>.<instance>``: a request that only the process with this instance
name answers.
"""
ALIVE_CHECK: Final = "admit.alive.check."
"""``admit.alive.check.<controller>``: heartbeats of check controllers, not kept on the log."""
CHANGED: Final = "admit.changed."
"""``admit.changed.<domain>``: an empty message, not kept on the log: the quota or the queues of the
domain changed. The scheduler that leads the domain publishes at most four a second."""
CHECK_DURABLE: Final = "check-"
PROVIDER_DURABLE: Final = "provider-"
RUNNER_DURABLE: Final = "runner-"
RUNNER_ORDERS: Final = ("admit.workload.admitted.>", "admit.workload.evicted.>")
"""The subjects that the consumer of a runner of all namespaces reads."""
RUNNER_CONSUMER: Final = "admit.api.consumer.runner."
"""``admit.api.consumer.runner.<runner>`` for all namespaces, or
``admit.api.consumer.runner.<runner>.<namespaces>``: the request that makes the consumer of a
runner. ``<namespaces>`` is one token for all namespaces of the runner, so that permissions can
guard it."""
USER_FACTS: Final = "admit.user."
"""``admit.user.<user>.<verb>.<ns>.<name>``: a fact that a person caused; permissions make
``<user>`` the user that is connected.
"""
TELEMETRY_DURABLE: Final = "telemetry"
"""Name of the durable consumer of the log through which the telemetry service reads."""
TELEMETRY_CONSUMER: Final = "admit.api.consumer.telemetry"
"""The request that makes the consumer of the telemetry service."""
TELEMETRY_FILTERS: Final = (
    "admit.workload.>",
    "admit.check.>",
    "admit.provisioning.>",
    f"{USER_FACTS}>",
)
"""The subjects that the telemetry service reads: all facts about workloads but due timers, whose
effects are facts of their own."""
OWNER: Final = "owner"
"""The role of a person that changes its own workloads only, and the value of the header
`HEADER_RIGHTS` of such a person's facts on the log."""
OWNER_FACTS: Final = "admit.owner."
"""``admit.owner.<user>.<verb>.<ns>.<name>``: where a person with the role owner publishes a fact.
On the log the fact has the subject of `USER_FACTS`."""
OWNER_REQUESTS: Final = "admit.api.owner."
"""First tokens of the subjects on which the workload-controller receives facts of owners; see
`USER_REQUESTS`."""
USER_REQUESTS: Final = "admit.api.user."
"""First tokens of the subjects on which the workload-controller receives requests of people; the
other tokens are those of `USER_FACTS`. Messages reach these subjects only through the border
between the accounts.
"""
PROVIDER_STATUSES: Final = "admit.api.status."
"""``admit.api.status.<class>.<request>``: the subjects on which the provisioning check receives
what providers outside write to the bucket of statuses. Messages reach these subjects only through
the border between the accounts.
"""
APPROVAL_CONTROLLER: Final = "admittance.dev/approval"
"""The controllerName of checks that people judge."""
PROVISIONING_CONTROLLER: Final = "kueue.x-k8s.io/provisioning-request"
"""The controllerName of the provisioning check."""

_KEY_OF: Final = {cls: key for key, cls in WORKLOAD_FACTS.items()}
_CHECK_KEY_OF: Final = {cls: key for key, cls in CHECK_FACTS.items()}
_VERB_OF: Final = {cls: verb for verb, cls in PERSON_FACTS.items()}
_PROVISIONING_KEY_OF: Final = {cls: key for key, cls in PROVISIONING_FACTS.items()}


class Address(NamedTuple):
    """A parsed subject: the type of the fact, and its workload.

    ``detail``: the controller of a check, the class of a provider, the kind of a timer or the user
    of a person's fact, not escaped; else empty.
    """

    kind: type[Fact]
    detail: str
    namespace: str
    name: str


def subject_of(fact: Fact) -> str:
    """The subject on which the fact is published."""
    tail = f"{token(fact.namespace)}.{token(fact.name)}"
    cls = type(fact)
    key = _KEY_OF.get(cls)
    if key is not None:
        return f"admit.workload.{key}.{tail}"
    if isinstance(fact, facts.CheckRequested | facts.CheckWithdrawn | facts.CheckReported):
        return f"admit.check.{_CHECK_KEY_OF[cls]}.{token(fact.controller)}.{tail}"
    if isinstance(fact, provisioning.ProvisioningFact):
        where = token(fact.provisioning_class)
        return f"admit.provisioning.{_PROVISIONING_KEY_OF[type(fact)]}.{where}.{tail}"
    if isinstance(fact, facts.TimerDue):
        return f"{TIMER_DUE}{token(fact.kind)}.{tail}"
    raise TypeError(f"there is no subject for facts of the type {cls.__name__}")


def user_subject(user: str, fact: Fact, role: str = "") -> str:
    """The subject on which the user publishes the fact. ``role``: the user's role, "" if it is not
    known."""
    verb = _VERB_OF[type(fact)]
    start = OWNER_FACTS if role == OWNER else USER_FACTS
    return f"{start}{token(user)}.{verb}.{token(fact.namespace)}.{token(fact.name)}"


def user_of(subject: str) -> str:
    """The user that caused the fact on this subject; "": a service, or a client without a name."""
    if not subject.startswith(USER_FACTS):
        return ""
    return plain(subject.split(".", 3)[2])


def address_of(subject: str) -> Address:
    """The parsed subject. Raises BadToken with the reason."""
    parts = subject.split(".")
    match parts:
        case ["admit", "workload", key, ns, name] if key in WORKLOAD_FACTS:
            return Address(WORKLOAD_FACTS[key], "", plain(ns), plain(name))
        case ["admit", "check", key, controller, ns, name] if key in CHECK_FACTS:
            return Address(CHECK_FACTS[key], plain(controller), plain(ns), plain(name))
        case ["admit", "provisioning", key, where, ns, name] if key in PROVISIONING_FACTS:
            return Address(PROVISIONING_FACTS[key], plain(where), plain(ns), plain(name))
        case ["admit", "user", user, verb, ns, name] if verb in PERSON_FACTS:
            return Address(PERSON_FACTS[verb], plain(user), plain(ns), plain(name))
        case ["admit", "timer", "due", kind, ns, name]:
            return Address(facts.TimerDue, plain(kind), plain(ns), plain(name))
    raise BadToken(f"no fact is published on the subject {subject!r}")


def check_durable(controller: str) -> str:
    """Name of the durable consumer of the log through which requests reach the check controller."""
    return f"{CHECK_DURABLE}{token(controller)}"


def check_filters(controller: str) -> list[str]:
    """The subjects that the check controller's durable reads: requests to the controller and
    withdrawals.
    """
    escaped = token(controller)
    return [f"admit.check.requested.{escaped}.*.*", f"admit.check.withdrawn.{escaped}.*.*"]


def provider_durable(provisioning_class: str) -> str:
    """Name of the durable consumer of the log through which requests reach the provider of the
    class.
    """
    return f"{PROVIDER_DURABLE}{token(provisioning_class)}"


def provider_filters(provisioning_class: str) -> list[str]:
    """The subjects that the durable of a provider reads: requests and cancellations."""
    escaped = token(provisioning_class)
    return [f"admit.provisioning.{fact}.{escaped}.*.*" for fact in sorted(ASKED)]


# Keys of the bucket. --------------------------------------------------------------------


def workload_key(namespace: str, name: str) -> str:
    """The workload's key in the bucket, ``workload.<ns>.<name>``."""
    return f"workload.{token(namespace)}.{token(name)}"


class WorkloadName(NamedTuple):
    """The name of a workload, not escaped. A family is named like its parent."""

    namespace: str
    name: str


def workload_name(key: str) -> WorkloadName:
    """The workload's name, from its key in the bucket; the inverse of `workload_key`. Raises
    ValueError for a key of another object, and BadToken for a wrong name in the key.
    """
    kind, namespace, name = key.split(".")
    if kind != "workload":
        raise ValueError(f"the bucket key {key} is not the key of a workload")
    return WorkloadName(intern(plain(namespace)), intern(plain(name)))


def object_key(kind: str, namespace: str, name: str) -> str:
    """An object's key in the bucket, ``<kind>.<name>`` or ``<kind>.<ns>.<name>``, with the kind in
    lower case, as in ``clusterqueue``.

    ``kind`` of a foreign API group is ``<kind>.<group>`` escaped into one token.
    """
    if namespace:
        return f"{token(kind)}.{token(namespace)}.{token(name)}"
    return f"{token(kind)}.{token(name)}"


def applied_subject(kind: str, namespace: str, name: str, *, deleted: bool = False) -> str:
    """The subject for a change of an object: ``admit.object.{applied,deleted}.<kind>.<ns>.<name>``,
    with ``_`` for no namespace.
    """
    what = "deleted" if deleted else "applied"
    ns = token(namespace) if namespace else NO_NAMESPACE
    return f"{OBJECTS}{what}.{token(kind)}.{ns}.{token(name)}"


def runner_orders(namespaces: Sequence[str]) -> tuple[str, ...]:
    """The subjects that the consumer of a runner reads; ``namespaces`` empty: all."""
    if not namespaces:
        return RUNNER_ORDERS
    return tuple(
        f"admit.workload.{what}.{token(namespace)}.*"
        for namespace in namespaces
        for what in ("admitted", "evicted")
    )


def runner_consumer(runner: str, namespaces: Sequence[str]) -> str:
    """The subject of the request for the consumer of a runner; ``namespaces`` empty: all."""
    subject = f"{RUNNER_CONSUMER}{token(runner)}"
    return f"{subject}.{token(','.join(sorted(set(namespaces))))}" if namespaces else subject


def namespaces_of_consumer(subject: str) -> tuple[str, ...]:
    """The namespaces in the subject of a request for the consumer of a runner; empty: all. Raises
    BadToken."""
    _, _, spaces = subject.removeprefix(RUNNER_CONSUMER).partition(".")
    return tuple(plain(spaces).split(",")) if spaces else ()


def namespace_of_request(subject: str) -> str:
    """The namespace in the subject of a request: the ``<ns>`` of ``admit.api.<what>.<ns>``; "" for
    ``admit.api.<what>``. Raises BadToken."""
    parts = subject.split(".")
    return plain(parts[3]) if len(parts) > 3 else ""


READ_BY_CONTROLLER: Final = [
    *(f"admit.workload.{key}.*.*" for key in sorted(INPUTS)),
    f"{USER_FACTS}*.*.*.*",
    "admit.check.reported.*.*.*",
    "admit.timer.due.>",
    "admit.object.>",
    "admit.lease.barrier.*",
]
"""The messages of the log that the workload-controller reads."""
