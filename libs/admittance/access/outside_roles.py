"""Roles of the account OUT: runners, checks, providers, telemetry and people.

These users reach the services only through what `border` lists; the permissions here say which
part of it each user may use.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from admittance.access.parts import (
    ALIVE_KEYS,
    ANSWERS,
    ASK_HEALTH,
    CONNECT,
    HEALTH,
    JS,
    KV,
    KV_CLAIMS,
    KV_PROVIDERS,
    PROVIDER_FACTS,
    STREAMS,
    cluster_keys,
    direct_get,
    each,
    inbox,
    micro_endpoints,
    namespaced_keys,
    own_durable,
    read_stream,
    rules,
    stream_info,
)
from admittance.access.permissions import Permissions, Rule
from admittance.access.role import Account, Names, Role
from admittance.access.users import User
from admittance.api.kinds import KINDS
from admittance.events import subjects
from admittance.events.files import FILE, FILES, PARTS
from admittance.events.names import service_name, token
from admittance.events.requests.past import ABOUT, THEN
from admittance.events.stored.machines import ALIVE_RUNNERS, OF_RUNNERS

LOG: Final = subjects.STREAM
RUNNER_KEYS: Final = KINDS["Runner"].prefix
"""The first token of the bucket keys of runners."""
USER_VERBS: Final = (
    "submitted", "activated", "deactivated", "held", "released", "reprioritized", "renewed",
    "deleted",
)  # fmt: skip
"""The facts that users may cause for workloads of their namespaces, as words of `USER_FACTS`
subjects."""
APPROVER_VERBS: Final = ("approved", "denied")
ADMIN_VERBS: Final = (*USER_VERBS, *APPROVER_VERBS, "finished")
ADMIN_REQUESTS: Final = ("apply", "delete")
"""Requests ``admit.user.<user>.<request>``: the subject names the user that sends the request."""
RUNNER_FACTS: Final = tuple(
    key for key in subjects.WORKLOAD_FACTS if key in subjects.JOB or key == "finished"
)
NAMESPACE_QUESTIONS: Final = (
    "budgets", "events", "explain", "files", "fit", "forecast", "logs", "objects", "pending",
    "queues", "replay", "runners", "settled", "simulate", "usage",
    *(f"{THEN}{what}" for what in ABOUT),
)  # fmt: skip
"""Requests ``admit.api.<what>.<ns>`` that users may ask about their namespaces."""
GENERAL_QUESTIONS: Final = (
    "arrays", "budgets", "events", "families", "forecast", "health", "machines", "objects",
    "pending", "provider.*", "providers", "queues", "replay", "runners", "settled", "simulate",
    "timers", "usage", *(f"{THEN}{what}" for what in ABOUT),
)  # fmt: skip
"""Requests ``admit.api.<what>`` about all namespaces, for users that may read everything."""


# Programs. ------------------------------------------------------------------------------


def check(user: User) -> Permissions:
    """The permissions of the role check: it answers the requests to one check controller."""
    controller = token(user.controller)
    publish = (
        *CONNECT,
        *own_durable(subjects.check_durable(user.controller), purpose="read its own requests"),
        *rules("report its verdicts", f"admit.check.reported.{controller}.*.*"),
        *rules("say that it is alive", f"{subjects.ALIVE_CHECK}{controller}"),
    )
    subscribe = (
        *inbox(user),
        *rules(
            "receive requests and withdrawals",
            *each("admit.check.{}." + f"{controller}.*.*", ("requested", "withdrawn")),
        ),
    )
    return Permissions(publish, subscribe)


def provider(user: User) -> Permissions:
    """The permissions of the role provider: it provides capacity for one provisioning class."""
    name = token(user.class_name)
    keys = f"$KV.{subjects.PROVIDERS}.{name}.*"
    publish = (
        *CONNECT,
        *own_durable(subjects.provider_durable(user.class_name), purpose="read its own requests"),
        *rules(
            "report on capacity", *each("admit.provisioning.{}." + f"{name}.*.*", PROVIDER_FACTS)
        ),
        *rules("say that it is alive", f"{subjects.ALIVE_PROVISIONING}{name}"),
        *rules("keep the status of its requests", keys, *direct_get(KV_PROVIDERS, keys)),
        *ANSWERS,
    )
    subscribe = (
        *inbox(user),
        *rules(
            "receive requests and cancellations",
            *each("admit.provisioning.{}." + f"{name}.*.*", sorted(subjects.ASKED)),
        ),
        *rules("answer for the status of its requests", f"admit.api.provider.{name}"),
        *micro_endpoints(service_name(f"provider-{user.class_name}")),
        *HEALTH,
    )
    return Permissions(publish, subscribe)


def runner(user: User) -> Permissions:
    """The permissions of the role runner: it starts admitted workloads and stops evicted
    workloads."""
    spaces = user.namespace_tokens
    claims = each(f"$KV.{subjects.CLAIMS}.{{}}.*.*", spaces)
    workloads = namespaced_keys(user, "workload")
    durable = f"{subjects.RUNNER_DURABLE}{user.token}"
    orders = _about_workloads(("admitted", "evicted"), spaces)
    everywhere = "*" in spaces
    of_machine = tuple(f"$KV.{subjects.CLAIMS}.{first}.{user.token}" for first in OF_RUNNERS)
    alive = f"$KV.{subjects.CLAIMS}.{ALIVE_RUNNERS}.{user.token}"
    own_object = f"$KV.{subjects.BUCKET}.{RUNNER_KEYS}.{user.token}"
    publish = (
        *CONNECT,
        *stream_info((LOG,)),
        *rules("have its consumers made", *_consumer_requests(user)),
        *own_durable(durable, purpose="read what to start and stop"),
        *rules("follow claims", f"{JS}.CONSUMER.MSG.NEXT.{KV_CLAIMS}.{durable}"),
        *rules(
            "read what it starts",
            *each("admit.api.objects.{}", spaces),
            *each("admit.api.events.{}", spaces),
            *direct_get(KV, *workloads),
            *direct_get(LOG, *orders),
        ),
        *rules("claim what it starts", *claims, *direct_get(KV_CLAIMS, *claims)),
        *rules("announce its data folder", f"$KV.{subjects.CLAIMS}._runner.*"),
        *rules("announce its machine", *of_machine),
        *rules("have its name alone", *direct_get(KV_CLAIMS, alive)),
        *rules("see whether it is cordoned", *direct_get(KV, own_object)),
        *rules("read inputs of jobs and store their outputs", *_files(user)),
        *rules(
            "report on jobs",
            *(
                subject
                for fact in RUNNER_FACTS
                for subject in each(f"admit.workload.{fact}.{{}}.*", spaces)
            ),
        ),
        *ASK_HEALTH,
        *ANSWERS,
    )
    subscribe = (
        *inbox(user),
        *rules("answer for the output of jobs", *each("admit.api.logs.{}", spaces)),
        *rules("see when it is cordoned", own_object),
        *micro_endpoints("runner"),
        *HEALTH,
    )
    denied: tuple[Rule, ...] = ()
    if everywhere:
        denied = rules(
            "only services write the heartbeats of instances",
            f"{ALIVE_KEYS}.>",
            *direct_get(KV_CLAIMS, f"{ALIVE_KEYS}.>"),
        )
    return Permissions(publish, subscribe, denied)


def _files(user: User) -> tuple[str, ...]:
    """The subjects to store and to read files of jobs in the user's namespaces."""
    parts = each(f"{FILE}{{}}.*.*", user.namespace_tokens)
    return (*parts, *direct_get(FILES, *parts))


def _consumer_requests(user: User) -> tuple[str, ...]:
    """The subjects that make the consumers of a runner: for exactly its namespaces, or for any."""
    subject = subjects.runner_consumer(user.name, user.namespaces)
    return (subject,) if user.namespaces else (subject, f"{subject}.*")


def _about_workloads(facts: Iterable[str], spaces: Iterable[str]) -> tuple[str, ...]:
    return tuple(f"admit.workload.{fact}.{space}.*" for fact in facts for space in spaces)


def telemetry(user: User) -> Permissions:
    """The permissions of the role telemetry: it reads the log."""
    publish = (
        *CONNECT,
        *stream_info((LOG,)),
        *rules("have its consumer made", subjects.TELEMETRY_CONSUMER),
        *own_durable(subjects.TELEMETRY_DURABLE, purpose="read the log"),
        *rules("read events", "admit.api.events", "admit.api.events.*"),
        *ASK_HEALTH,
        *ANSWERS,
    )
    subscribe = (*inbox(user), *micro_endpoints("telemetry"), *HEALTH)
    return Permissions(publish, subscribe)


# People. --------------------------------------------------------------------------------

CHANGES: Final = rules("see that quota or queues changed", f"{subjects.CHANGED}*")
"""The message has no content, and its subject names a cohort tree. Users of one namespace receive
it, too, since workloads of other namespaces use the same quota."""
SETTINGS_OF_QUEUES: Final = rules(
    "read queues, checks and priorities",
    *direct_get(
        KV,
        *each(
            f"$KV.{subjects.BUCKET}.{{}}.*",
            (
                "clusterqueue",
                "admissioncheck",
                "workloadpriorityclass",
                "priorityclass_scheduling_k8s_io",
            ),
        ),
    ),
)


def owner(user: User) -> Permissions:
    """The permissions of the role owner: a person that submits workloads in some namespaces,
    changes its own workloads, and reads those of the namespaces."""
    acts = _acts(user, USER_VERBS, "act on its own workloads", subjects.OWNER_FACTS)
    return _of_namespaces(user, acts)


def user(user: User) -> Permissions:
    """The permissions of the role user: a person that submits, changes and reads workloads of some
    namespaces."""
    return _of_namespaces(user, _acts(user, USER_VERBS))


def _of_namespaces(user: User, acts: tuple[Rule, ...]) -> Permissions:
    publish = (
        *CONNECT,
        *acts,
        *rules("ask about its namespaces", *_questions(user)),
        *rules("read objects of its namespaces", *direct_get(KV, *namespaced_keys(user))),
        *rules("store inputs of jobs and read their outputs", *_files(user)),
        *SETTINGS_OF_QUEUES,
    )
    return Permissions(publish, (*inbox(user), *_follows(user), *CHANGES))


def approver(user: User) -> Permissions:
    """The permissions of the role approver: a person that gives the verdicts of approval checks in
    some namespaces."""
    workloads = namespaced_keys(user, "workload")
    of_past = (f"{THEN}explain", f"{THEN}moment", f"{THEN}objects")
    asked = ("events", "explain", "forecast", "objects", "runners", "settled", *of_past)
    spaces = user.namespace_tokens
    publish = (
        *CONNECT,
        *_acts(user, APPROVER_VERBS),
        *rules(
            "ask about its namespaces",
            *(subject for what in asked for subject in each(f"admit.api.{what}.{{}}", spaces)),
        ),
        *rules("read workloads of its namespaces", *direct_get(KV, *workloads)),
        *SETTINGS_OF_QUEUES,
    )
    subscribe = (*inbox(user), *rules("see changes of workloads", *workloads), *CHANGES)
    return Permissions(publish, subscribe)


SECRETS: Final = rules(
    "only services read bucket keys that hold no object",
    *direct_get(KV, f"$KV.{subjects.BUCKET}._admittance.*"),
)
"""The rules that deny the roles viewer and admin the bucket keys of services, such as a secret:
these keys have two tokens, as have the keys of objects without a namespace.
"""


def viewer(user: User) -> Permissions:
    """The permissions of the role viewer: a person that reads everything and changes nothing."""
    publish = (*CONNECT, *_reads_all())
    return Permissions(publish, (*inbox(user), *_follows_all(user)), SECRETS)


def admin(user: User) -> Permissions:
    """The permissions of the role admin: a person that does in all namespaces what users may do,
    changes manifests, and reads everything."""
    requests = each(f"{subjects.USER_FACTS}{user.token}.{{}}", ADMIN_REQUESTS)
    publish = (
        *CONNECT,
        *_acts(user, ADMIN_VERBS),
        *rules("change manifests", *requests, *(f"{subject}.*" for subject in requests)),
        *rules("store inputs of jobs", PARTS),
        *_reads_all(),
    )
    return Permissions(publish, (*inbox(user), *_follows_all(user)), SECRETS)


def _acts(
    user: User,
    verbs: tuple[str, ...],
    purpose: str = "act in its own name",
    start: str = subjects.USER_FACTS,
) -> tuple[Rule, ...]:
    """Rules for the subjects ``admit.user.<user>.<verb>.<ns>.<name>`` with the given verbs.
    ``start``: the first tokens of the subjects."""
    return rules(
        purpose,
        *(
            f"{start}{user.token}.{verb}.{space}.*"
            for verb in verbs
            for space in user.namespace_tokens
        ),
    )


def _questions(user: User) -> tuple[str, ...]:
    return tuple(
        subject
        for what in NAMESPACE_QUESTIONS
        for subject in each(f"admit.api.{what}.{{}}", user.namespace_tokens)
    )


def _facts_about(space: str) -> tuple[str, ...]:
    return (
        f"admit.workload.*.{space}.*",
        f"admit.check.*.*.{space}.*",
        f"admit.provisioning.*.*.{space}.*",
        f"{subjects.USER_FACTS}*.*.{space}.*",
    )


def _follows(user: User) -> tuple[Rule, ...]:
    facts = tuple(fact for space in user.namespace_tokens for fact in _facts_about(space))
    return (
        *rules("follow events of its namespaces", *facts),
        *rules("see changes in its namespaces", *namespaced_keys(user)),
    )


def _reads_all() -> tuple[Rule, ...]:
    keys = (f"$KV.{subjects.BUCKET}.*.*.*", f"$KV.{subjects.BUCKET}.*.*")
    return (
        *stream_info(STREAMS),
        *rules("list consumers", f"{JS}.CONSUMER.LIST.{LOG}"),
        *rules("read objects", *direct_get(KV, *keys)),
        *rules("read claims", *direct_get(KV_CLAIMS, f"$KV.{subjects.CLAIMS}.*.*.*")),
        *rules("read epochs", *direct_get(LOG, f"{subjects.EPOCH}*")),
        *rules("read the history for replays", *read_stream(LOG, subjects.CHECKPOINTS)),
        *rules("read bookings of machines", *read_stream(KV_PROVIDERS)),
        *rules("read files of jobs", *direct_get(FILES, PARTS)),
        *rules(
            "ask about everything",
            *each("admit.api.{}", GENERAL_QUESTIONS),
            *each("admit.api.{}.*", NAMESPACE_QUESTIONS),
        ),
        *rules("list services", *each("$SRV.{}", ("PING", "INFO", "STATS"))),
    )


def _follows_all(user: User) -> tuple[Rule, ...]:
    return (
        *rules("follow events", *_facts_about("*"), f"{subjects.OBJECTS}*.*.*.*"),
        *rules("see changes of objects", *namespaced_keys(user), *cluster_keys()),
        *CHANGES,
    )


OUTSIDE_ROLES: Final = (
    Role(
        "runner",
        Account.OUT,
        "claim, start, stop and report jobs of all or some namespaces",
        runner,
        takes=(Names.NAMESPACES,),
    ),
    Role(
        "check",
        Account.OUT,
        "receive and answer requests to one controller",
        check,
        needs=(Names.CONTROLLER,),
    ),
    Role(
        "provider",
        Account.OUT,
        "receive and answer requests for capacity of one class",
        provider,
        needs=(Names.CLASS,),
    ),
    Role("telemetry", Account.OUT, "read the log", telemetry),
    Role(
        subjects.OWNER,
        Account.OUT,
        "submit in its namespaces, change its own workloads, explain and follow workloads there",
        owner,
        needs=(Names.NAMESPACES,),
    ),
    Role(
        "user",
        Account.OUT,
        "submit, change, explain and follow all workloads of its namespaces",
        user,
        needs=(Names.NAMESPACES,),
    ),
    Role(
        "approver",
        Account.OUT,
        "approve and deny workloads of its namespaces",
        approver,
        needs=(Names.NAMESPACES,),
    ),
    Role("viewer", Account.OUT, "read everything", viewer),
    Role(
        "admin",
        Account.OUT,
        "do what users and approvers may in all namespaces, change manifests, read everything",
        admin,
    ),
)
"""The roles of the account OUT."""
