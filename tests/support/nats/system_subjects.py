"""Every subject of the system, as samples: of a user's own namespace, controller and class, and of
another's.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import product
from pathlib import Path

from admittance.access.outside_roles import ADMIN_REQUESTS, ADMIN_VERBS
from admittance.access.parts import STREAMS
from admittance.access.role import Names
from admittance.access.roles import ROLES
from admittance.access.users import User
from admittance.api.kinds import OBJECT_KINDS
from admittance.events import subjects
from admittance.events.files import FILE, FILES
from admittance.events.names import token
from admittance.runtime.bus.messages import SECRET_KEY

SPACES = ("team-a", "team-b")
CONTROLLERS = ("example.com/budget", "example.com/other", subjects.PROVISIONING_CONTROLLER)
CLASSES = ("gpu.example.com", "cpu")
OTHER = "mallory"
SOURCES = Path(__file__).parents[3]
STREAM_VERBS = (
    *("CREATE", "UPDATE", "INFO", "DELETE", "PURGE", "SNAPSHOT", "RESTORE", "MSG.GET"),
    *("MSG.DELETE", "PEER.REMOVE", "LEADER.STEPDOWN"),
)
CONSUMER_VERBS = (
    *("CREATE", "DURABLE.CREATE", "INFO", "DELETE", "MSG.NEXT", "PAUSE", "UNPIN", "RESET"),
    "LEADER.STEPDOWN",
)


def sample_user(role: str, key: str) -> User:
    """A user of the role, named like the role, with the first namespace, controller and class."""
    takes = (*ROLES[role].needs, *ROLES[role].takes)
    return User(
        name=f"{role}-1",
        role=role,
        key=key,
        namespaces=SPACES[:1] if Names.NAMESPACES in takes and role != "runner" else (),
        controller=CONTROLLERS[0] if Names.CONTROLLER in takes else "",
        class_name=CLASSES[0] if Names.CLASS in takes else "",
    )


def samples(users: list[User]) -> list[str]:
    """Subjects without wildcards, each once."""
    patterns = [
        *_facts(),
        *_keys(),
        *_jetstream(users),
        *endpoints(),
        *_people(users),
        *subjects.PROBES.values(),
        *_others(users),
    ]
    return list(dict.fromkeys(patterns))


def _facts() -> Iterator[str]:
    controllers, classes = (
        [token(controller) for controller in CONTROLLERS],
        [token(class_name) for class_name in CLASSES],
    )
    for space in SPACES:
        yield from (f"admit.workload.{key}.{space}.w" for key in subjects.WORKLOAD_FACTS)
        for key, owner in product(subjects.CHECK_FACTS, controllers):
            yield f"admit.check.{key}.{owner}.{space}.w"
        for key, owner in product(subjects.PROVISIONING_FACTS, classes):
            yield f"admit.provisioning.{key}.{owner}.{space}.w"
        for what, kind in product(("applied", "deleted"), ("localqueue", "clusterqueue")):
            yield f"{subjects.OBJECTS}{what}.{kind}.{space}.x"
        yield f"{FILE}{space}.w_1.i0-0"
        yield f"{subjects.TIMER_AT}requeue.{space}.w"
        yield f"{subjects.TIMER_DUE}requeue.{space}.w"
    domains = ("cohort-lab", *(f"service-{role}" for role in (*ROLES, "provider-pool")))
    for domain in domains:
        yield f"{subjects.EPOCH}{domain}"
        yield f"{subjects.BARRIER}{domain}"
        yield f"{subjects.CHANGED}{domain}"
    yield from (f"{subjects.DEADLETTER}{role}" for role in ROLES)
    yield from (subjects.COMMITS, f"{subjects.CHECKPOINT_MADE}1", f"{subjects.CHECKPOINT_PART}1.2")
    yield from (f"{subjects.ALIVE_CHECK}{controller}" for controller in controllers)
    yield from (f"{subjects.ALIVE_PROVISIONING}{class_name}" for class_name in classes)
    yield from (f"{subjects.ALIVE_INSTANCE}{role}.first" for role in (*ROLES, "provider-pool"))


def _keys() -> Iterator[str]:
    bucket, claims = f"$KV.{subjects.BUCKET}", f"$KV.{subjects.CLAIMS}"
    yield f"{bucket}.{SECRET_KEY}"
    yield f"{claims}.{SECRET_KEY}"
    yield f"{bucket}._admittance.manifests"
    yield f"{bucket}.barrier.cohort-lab"
    yield f"{bucket}.example_com=2Fbudget.x"
    yield from (f"{bucket}.{kind}.x" for kind in OBJECT_KINDS)
    for space in SPACES:
        for kind in ("workload", "localqueue", subjects.CAPACITY, subjects.USAGE):
            yield f"{bucket}.{kind}.{space}.x"
        yield f"{claims}.{space}.w.7"
    yield from (f"{claims}._alive.{role}.first" for role in (*ROLES, "provider-pool"))
    yield f"{claims}._runner.0a"
    yield from (f"$KV.{subjects.PROVIDERS}.{class_name}.0a" for class_name in CLASSES)
    yield f"$KV.{subjects.PROVIDERS}._pool.p.0a"
    yield f"$KV.{subjects.PROVIDERS}._pool_led"


def _jetstream(users: list[User]) -> Iterator[str]:
    js = "$JS.API"
    yield from (f"{js}.{what}" for what in ("INFO", "STREAM.NAMES", "STREAM.LIST"))
    yield from (f"{js}.META.LEADER.STEPDOWN", f"{js}.SERVER.REMOVE", f"{js}.ACCOUNT.PURGE.OUT")
    durables = (
        *("workload-controller-1-0", "provisioning-check", subjects.TELEMETRY_DURABLE),
        *(subjects.check_durable(controller) for controller in CONTROLLERS[:2]),
        *(subjects.provider_durable(class_name) for class_name in CLASSES),
        *(
            f"{subjects.RUNNER_DURABLE}{user_name}"
            for user_name in (OTHER, *(u.name for u in users))
        ),
    )
    for stream in (*STREAMS, FILES, "FOREIGN"):
        yield from (f"{js}.STREAM.{verb}.{stream}" for verb in STREAM_VERBS)
        yield from (f"{js}.CONSUMER.{verb}.{stream}" for verb in ("NAMES", "LIST", "CREATE"))
        yield from (f"{js}.DIRECT.GET.{stream}", f"$JS.SNAPSHOT.ACK.{stream}.x.131072.1")
        yield f"$JS.SNAPSHOT.RESTORE.{stream}.x"
        for durable in durables if stream == subjects.STREAM else durables[:1]:
            yield from (f"{js}.CONSUMER.{verb}.{stream}.{durable}" for verb in CONSUMER_VERBS)
            yield f"{js}.CONSUMER.CREATE.{stream}.{durable}.admit.check.requested.x.y.z"
            yield f"$JS.ACK.{stream}.{durable}.1.2.3.4.5"
    for subject in dict.fromkeys((*_facts(), *_keys())):
        stream = FILES if subject.startswith(FILE) else subjects.STREAM
        if subject.startswith("$KV."):
            stream = f"KV_{subject.split('.')[1]}"
        yield f"{js}.DIRECT.GET.{stream}.{subject}"
    yield f"{js}.DIRECT.GET.{subjects.CHECKPOINTS}.{subjects.COMMITS}"


def endpoints() -> list[str]:
    """Every subject under ``admit.api.`` that the sources name, for two namespaces."""
    patterns: set[str] = {"admit.api.objects", "admit.api.objects.*", "admit.api.settled.*"}
    for path in (SOURCES / "services").rglob("*.py"):
        patterns |= set(re.findall(r'"(admit\.api\.[a-z.*]+[a-z*])"', path.read_text()))
    assert "admit.api.explain.*" in patterns
    plain = [pattern for pattern in sorted(patterns) if "*" not in pattern]
    spaces = [
        pattern.replace("*", space)
        for pattern in sorted(patterns)
        if "*" in pattern
        for space in SPACES
    ]
    runners = [f"{subjects.RUNNER_CONSUMER}{name}" for name in ("runner-1", OTHER)]
    runners += [subjects.runner_consumer("runner-1", SPACES[:1])]
    consumers = [*runners, subjects.TELEMETRY_CONSUMER]
    return [
        *plain,
        *spaces,
        *consumers,
        *(f"admit.api.provider.{token(class_name)}" for class_name in CLASSES),
    ]


def _people(users: list[User]) -> Iterator[str]:
    for name in (OTHER, *(user.name for user in users)):
        for start in (
            *(subjects.USER_FACTS, subjects.USER_REQUESTS),
            *(subjects.OWNER_FACTS, subjects.OWNER_REQUESTS),
        ):
            for verb, space in product((*ADMIN_VERBS, "started", "assigned"), SPACES):
                yield f"{start}{name}.{verb}.{space}.w"
            for what in ADMIN_REQUESTS:
                yield from (f"{start}{name}.{what}", f"{start}{name}.{what}.team-a")


def _others(users: list[User]) -> Iterator[str]:
    yield from (f"_INBOX.{user_name}.a.b" for user_name in (OTHER, *(user.name for user in users)))
    yield from ("_INBOX.a", "_R_.a.b", "foreign", "admit.unknown.x", "admit.admin.x")
    for verb in ("PING", "INFO", "STATS"):
        yield from (f"$SRV.{verb}", *(f"$SRV.{verb}.{role}" for role in ROLES))
        yield from (f"$SRV.{verb}.{role}.instance" for role in ROLES)
        yield f"$SRV.{verb}.provider-gpu-example-com"
    yield from ("$SYS.REQ.SERVER.PING", "$SYS.REQ.ACCOUNT.CORE.CONNZ", "$SYS.ACCOUNT.CORE.CONNECT")
    yield "$JS.EVENT.ADVISORY.API"


WILDCARDS = (
    *(">", "*", "*.>", "admit.>", "admit.*.>", "admit.api.>", "admit.api.*", "admit.api.logs.*"),
    *("admit.user.>", "admit.check.>", "admit.check.*.*.*.*", "admit.check.requested.>"),
    *("admit.check.requested.example_com=2Fbudget.*.*", "admit.workload.*.team-a.*"),
    *("admit.check.requested.example_com=2Fbudget.*.>", "admit.workload.*.team-a.>"),
    *("admit.workload.*.*.*", "admit.workload.>", "admit.lease.>", "admit.provisioning.>"),
    *("admit.api.user.>", "$KV.>", "$KV.admittance.>", "$KV.admittance.*.*", "$KV.*.*.*.*"),
    *("$KV.admittance.*.team-a.*", "$KV.admittance.workload.*.*", "$KV.admittance_claims.>"),
    *("$KV.admittance_claims.*.*.*", "_INBOX.>", "_INBOX.*.>", "_INBOX.*.*.*", "_R_.>"),
    *("$JS.>", "$JS.ACK.>", "$JS.EVENT.>", "$SYS.>", "$SRV.>"),
)
"""Subscriptions with wildcards."""


def overlaps(pattern: str, subject: str) -> bool:
    """Whether some subject matches both patterns of subjects."""
    ours, theirs = pattern.split("."), subject.split(".")
    for mine, other in zip(ours, theirs, strict=False):
        if ">" in (mine, other):
            return True
        if "*" not in (mine, other) and mine != other:
            return False
    return len(ours) == len(theirs)
