"""Messages that no program of ours would publish: junk for every subject and every key of a bucket.

They come from a random generator with a seed, so the same seed gives the same messages. Half of it
is made from nothing, half from messages that were really published (the *corpus*): cut short, with
another type or an absurd number in one place, under another name, with headers of the server."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from admittance.events import subjects
from admittance.events.names import token

SANE: Final = "sane"
"""Prefix of names for which no understandable junk is made."""
HUGE: Final = (10**15, 10**18, 2**63, 2**64, 10**30, -1, -(10**15), 1e300, 0)


class Junk(NamedTuple):
    """One publication."""

    subject: str
    data: bytes
    headers: Mapping[str, str]


class SeenMessage(NamedTuple):
    """One publication of the corpus."""

    subject: str
    data: bytes


# Payloads. ------------------------------------------------------------------------------


def nested_lists(levels: int, inner: str = "1") -> bytes:
    """Lists within lists."""
    return ("[" * levels + inner + "]" * levels).encode()


def deep_object(levels: int, field: str) -> bytes:
    """An object with nested objects in ``field``."""
    return (f'{{"{field}":' + '{"a":' * levels + "1" + "}" * (levels + 1)).encode()


RAW: Final[tuple[bytes, ...]] = (
    b"",
    b"junk",
    b"{}",
    b"[]",
    b"null",
    b"0",
    b'""',
    b"true",
    b"-1",
    b"1e999",
    b"9" * 40,
    b"9" * 5000,
    b"\x00" * 32,
    b"\xff\xfe\xfd",
    b'{"namespace":"\xed\xa0\x80"}',
    b'{"a":',
    b'{"kind":1,"metadata":[],"spec":"x","status":7}',
    b'{"metadata":{"name":5},"status":{"log":{"fact":"x"}}}',
    nested_lists(100),
    nested_lists(900),
    nested_lists(100_000),
    deep_object(500, "spec"),
    deep_object(500, "workload"),
    deep_object(990, "object"),
    b'{"revision":' + b"9" * 30 + b"}",
    b'{"epoch":1e18,"domain":"x","owner":"y"}',
    b'{"newest":1000000000000000,"epoch":1,"commits":[]}',
)


def with_mutations(chance: random.Random, data: bytes) -> bytes:
    """The payload with something wrong in one or two places."""
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        return data[: chance.randrange(len(data) + 1)]
    for _ in range(chance.choice((1, 1, 2, 4))):
        value = _spoilt(chance, value)
    return json.dumps(value).encode("utf-8", "surrogatepass")


def _spoilt(chance: random.Random, value: Any) -> Any:
    """The value with one place of it replaced, dropped or added to."""
    places = list(_places(value, ()))
    if not places:
        return chance.choice(("x", None, [], {}))
    path = chance.choice(places)
    made = json.loads(json.dumps(value))
    inner = made
    for step in path[:-1]:
        inner = inner[step]
    last = path[-1]
    match chance.randrange(5):
        case 0:
            del inner[last]
        case 1:
            inner[last] = chance.choice((None, [], {}, "", "x", True, ["x"], {"x": "y"}))
        case 2:
            inner[last] = chance.choice(HUGE)
        case 3:
            inner[last] = json.loads(nested_lists(chance.choice((20, 150, 400))))
        case _:
            inner[last] = chance.choice(
                ("9999-12-31T23:59:59Z", "0001-01-01T00:00:00Z", "\udc80", "1e99999", "a" * 5000)
            )
    return made


def _places(value: Any, path: tuple[Any, ...]) -> list[tuple[Any, ...]]:
    if isinstance(value, dict):
        items: list[tuple[Any, Any]] = list(value.items())
    elif isinstance(value, list):
        items = list(enumerate(value))
    else:
        return []
    places = []
    for step, inner in items:
        places.append((*path, step))
        if len(path) < 8:
            places += _places(inner, (*path, step))
    return places


# Headers. -------------------------------------------------------------------------------


def headers(chance: random.Random, *, bucket: bool) -> dict[str, str]:
    """Mostly none; else what a foreign program may put there. No rollup: that empties a stream."""
    if chance.random() < 0.7:
        return {}
    number = str(chance.choice((0, 1, 7, 10**15, "x", "9" * 25, -1)))
    choices: list[dict[str, str]] = [
        {"traceparent": chance.choice(("x", "00-" + "1" * 32 + "-" + "2" * 16 + "-01", "z" * 900))},
        {"Nats-Msg-Id": f"guess-{chance.randrange(50)}"},
        {"Admit-Fact": number},
        {"Admit-Claim": chance.choice(("over", "x"))},
        {"Admit-Schema": chance.choice(("2", "x", ""))},
        {"X-Foreign": "y" * chance.choice((1, 3000))},
        {
            "Nats-Expected-Last-Subject-Sequence": number,
            "Nats-Expected-Last-Subject-Sequence-Subject": "admit.lease.epoch.guess",
        },
        {"Nats-Marker-Reason": chance.choice(("MaxAge", "Remove", "Purge", "x"))},
        {"Nats-Sequence": number, "Nats-Subject": "x", "Nats-Time-Stamp": "x"},
        {"Status": "503"},
        {"Nats-Schedule": "@at 2001-01-01T00:00:00Z", "Nats-Schedule-Target": "admit.timer.due.x"},
    ]
    if bucket:
        choices += [
            {"KV-Operation": chance.choice(("DEL", "PURGE", "x"))},
            {"KV-Operation": "DEL", "Admit-Fact": number},
            {"Nats-TTL": chance.choice(("1s", "2s", "1h"))},
        ]
    return chance.choice(choices)


# Subjects and keys. ---------------------------------------------------------------------

_OBJECTS: Final = (
    "clusterqueue",
    "localqueue",
    "flavor",
    "cohort",
    "admissioncheck",
    "workloadpriorityclass",
    "provisioningrequestconfig",
    "job_batch",
    "nothing",
)


def log_subject(chance: random.Random, names: Sequence[str], domains: Sequence[str]) -> str:
    """A subject of the log, of the checkpoints or of the timers."""
    name = chance.choice(names)
    namespace = chance.choice(("default", "default", "junk", "=ZZ", "_"))
    other = chance.choice(("default", "junk", "example_com=2Fbudget", "=ZZ"))
    match chance.randrange(12):
        case 0 | 1 | 2:
            word = chance.choice(sorted(subjects.WORKLOAD_FACTS))
            return f"admit.workload.{word}.{namespace}.{name}"
        case 3:
            word = chance.choice(sorted(subjects.CHECK_FACTS))
            return f"admit.check.{word}.{other}.{namespace}.{name}"
        case 4:
            word = chance.choice(sorted(subjects.PROVISIONING_FACTS))
            return f"admit.provisioning.{word}.{other}.{namespace}.{name}"
        case 5:
            kind = chance.choice(("Backoff", "CheckRetry", "PodsReady", "x", "=ZZ"))
            return f"admit.timer.{chance.choice(('at', 'due'))}.{kind}.{namespace}.{name}"
        case 6 | 7:
            what = chance.choice(("applied", "deleted"))
            space = chance.choice(("_", "default"))
            return f"admit.object.{what}.{chance.choice(_OBJECTS)}.{space}.{name}"
        case 8:
            domain = chance.choice(("guess", "=ZZ", *domains))
            return f"{chance.choice((subjects.BARRIER, subjects.BARRIER, subjects.EPOCH))}{domain}"
        case 9:
            service = chance.choice(("scheduler", "workload-controller", "x", "=ZZ"))
            return f"{subjects.DEADLETTER}{service}"
        case 10:
            return subjects.COMMITS
        case _:
            prefix = chance.choice((subjects.CHECKPOINT_MADE, subjects.CHECKPOINT_PART))
            return f"{prefix}{chance.choice(('1-1', '5-9', 'x'))}"


def unkept_subject(chance: random.Random, names: Sequence[str]) -> str:
    """A subject that is kept nowhere: heartbeats and requests."""
    requests = ("explain.default", "pending", "queues", "simulate", "settled", "events", "health")
    return chance.choice(
        (
            f"{subjects.ALIVE_CHECK}{chance.choice(('fuzz', 'x', '=ZZ'))}",
            f"{subjects.ALIVE_PROVISIONING}{chance.choice(('pool', 'x', '=ZZ'))}",
            f"admit.api.{chance.choice(requests)}",
            f"admit.api.logs.{chance.choice(names)}",
            f"admit.api.{chance.choice(('apply', 'delete', 'timers', 'families'))}",
            f"admit.api.provider.{chance.choice(('pool', 'x'))}",
        )
    )


def bucket_subject(chance: random.Random, names: Sequence[str], domains: Sequence[str]) -> str:
    """A key of one of the buckets, as the subject of its stream."""
    name = chance.choice(names)
    match chance.randrange(10):
        case 0 | 1 | 2:
            key = chance.choice(
                (f"workload.default.{name}", f"workload.{name}", "workload", "workload.a.b.c")
            )
        case 3 | 4:
            space = chance.choice(("", "default."))
            key = f"{chance.choice(_OBJECTS)}.{space}{name}"
        case 5:
            key = f"barrier.{chance.choice(('guess', *domains))}"
        case 6:
            key = chance.choice(
                ("_admittance.manifests", "_admittance.secret", "_admittance.x", "x.y")
            )
        case 7:
            key = chance.choice((f"_usage.default.{name}", "_usage.x", "_usage.default.=ZZ"))
        case 8:
            key = f"{subjects.CAPACITY}.default.{name}"
        case _:
            return _other_bucket(chance, name)
    return f"$KV.{subjects.BUCKET}.{key}"


def _other_bucket(chance: random.Random, name: str) -> str:
    service = chance.choice(("scheduler", "workload-controller", "runner", "x"))
    return chance.choice(
        (
            f"$KV.{subjects.CLAIMS}.default.{name}.{chance.choice((5, 10**15, 'x'))}",
            f"$KV.{subjects.CLAIMS}._alive.{service}.{chance.choice(('junk', '=ZZ', 'a_b'))}",
            f"$KV.{subjects.CLAIMS}.x",
            f"$KV.{subjects.PROVIDERS}.pool.{name}",
            f"$KV.{subjects.PROVIDERS}._pool.{name}.x",
            f"$KV.{subjects.PROVIDERS}.x",
        )
    )


def random_publication(
    chance: random.Random,
    corpus: Sequence[SeenMessage],
    names: Sequence[str],
    domains: Sequence[str],
    permitted: Callable[[Junk], bool],
) -> Junk:
    """One publication that ``permitted`` lets pass."""
    while True:
        drawn = _draw(chance, corpus, names, domains)
        if permitted(drawn):
            return drawn


def _draw(
    chance: random.Random,
    corpus: Sequence[SeenMessage],
    names: Sequence[str],
    domains: Sequence[str],
) -> Junk:
    seen = chance.choice(corpus) if corpus else SeenMessage("", b"")
    match chance.randrange(10):
        case 0:
            subject = unkept_subject(chance, names)
        case 1 | 2 | 3:
            subject = bucket_subject(chance, names, domains)
        case 4 | 5 | 6:
            subject = log_subject(chance, names, domains)
        case _:
            subject = seen.subject or log_subject(chance, names, domains)
            if chance.random() < 0.7:
                subject = with_last_token(subject, chance.choice(names))
    match chance.randrange(6):
        case 0 | 1:
            data = chance.choice(RAW)
        case 2:
            data = seen.data[: chance.randrange(len(seen.data) + 1)]
        case _:
            data = with_mutations(chance, seen.data)
            if chance.random() < 0.6:
                # Under its own name, so that it passes the comparison with the subject.
                data = as_of(subject, data)
    bucket = subject.startswith("$KV.")
    return Junk(subject, data, headers(chance, bucket=bucket))


def with_last_token(subject: str, name: str) -> str:
    """The subject with another last token."""
    return f"{subject.rpartition('.')[0]}.{token(name) if name[:1] != '=' else name}"


def as_of(subject: str, data: bytes) -> bytes:
    """The payload with the names that its subject has."""
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        return data
    parts = subject.split(".")
    if not isinstance(value, dict) or len(parts) < 3:
        return data
    where = value.get("metadata") if "metadata" in value else value
    if isinstance(where, dict):
        where["name"] = parts[-1]
        if len(parts) > 3 and parts[-2] != "_":
            where["namespace"] = parts[-2]
    return json.dumps(value).encode("utf-8", "surrogatepass")
