"""Permission rules that several roles share."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from admittance.access.permissions import Rule
from admittance.access.users import User
from admittance.api.kinds import OBJECT_KINDS, kind_named
from admittance.events import subjects

JS: Final = "$JS.API"
KV: Final = f"KV_{subjects.BUCKET}"
KV_CLAIMS: Final = f"KV_{subjects.CLAIMS}"
KV_PROVIDERS: Final = f"KV_{subjects.PROVIDERS}"
STREAMS: Final = (
    subjects.TIMERS,
    subjects.STREAM,
    subjects.CHECKPOINTS,
    subjects.SUMMARIES,
    subjects.HISTORY,
    KV,
    KV_PROVIDERS,
    KV_CLAIMS,
)
"""All streams and buckets of Admittance."""
ALIVE_KEYS: Final = f"$KV.{subjects.CLAIMS}._alive"
"""The first tokens of the subjects on which instances write their heartbeats to the bucket of
claims."""
PROVIDER_FACTS: Final = tuple(sorted(subjects.PROVISIONING_FACTS.keys() - subjects.ASKED))
"""Provisioning facts that providers publish, as tokens of subjects."""
CLUSTER_KINDS: Final = tuple(
    sorted(
        token
        for token, name in OBJECT_KINDS.items()
        if (kind := kind_named(name)) is not None and not kind.namespaced
    )
)
"""The kinds of objects without a namespace, as tokens of bucket keys. They are listed because a
pattern for all keys of two tokens would also match other keys of the bucket."""


def rules(purpose: str, *patterns: str) -> tuple[Rule, ...]:
    """One permission rule for each pattern of subjects, all with the same purpose."""
    return tuple(Rule(pattern, purpose) for pattern in patterns)


def each(pattern: str, values: Iterable[str]) -> tuple[str, ...]:
    """Copies of the pattern of subjects, each with one of the values in place of ``{}``."""
    return tuple(pattern.replace("{}", value) for value in values)


def inbox(user: User) -> tuple[Rule, ...]:
    """The subscription through which the user gets answers. No other user may read what arrives on
    this subscription.
    """
    return rules("receive answers", f"_INBOX.{user.token}.>")


CONNECT: Final = rules("connect", f"{JS}.INFO")


def micro_endpoints(service: str) -> tuple[Rule, ...]:
    """The subscriptions with which ``nats micro`` finds a service."""
    return rules(
        "be listed as a service",
        *each("$SRV.{}", ("PING", "INFO", "STATS")),
        *each(f"$SRV.{{}}.{service}", ("PING", "INFO", "STATS")),
        *each(f"$SRV.{{}}.{service}.*", ("PING", "INFO", "STATS")),
    )


ANSWERS: Final = rules("answer requests", "_INBOX.>", "_R_.>")
"""Rules for the answers to requests. The server makes a reply subject ``_R_.>`` for a request from
the other account. With `allow_responses` of nats-server, a user that asks could make the program
publish on any subject: the asker chooses the subject of the answer."""
HEALTH: Final = rules("answer for its health", "admit.api.health")
ASK_HEALTH: Final = rules("say at its admin port whether it is ready", "admit.api.health")
"""A process asks its own service over the bus, so that a lost connection shows."""


def stream_info(streams: Iterable[str]) -> tuple[Rule, ...]:
    """The requests that read the settings and the state of streams."""
    return rules("read the state of streams", *each(f"{JS}.STREAM.INFO.{{}}", streams))


def follow(stream: str) -> tuple[str, ...]:
    """The requests with which a service reads a stream and follows it."""
    return (f"{JS}.CONSUMER.CREATE.{stream}", f"{JS}.CONSUMER.MSG.NEXT.{stream}.*")


def own_durable(durable: str, *, purpose: str) -> tuple[Rule, ...]:
    """The requests with which a program reads its durable consumer of the log, which the
    workload-controller created."""
    log = subjects.STREAM
    return rules(
        purpose,
        f"{JS}.CONSUMER.INFO.{log}.{durable}",
        f"{JS}.CONSUMER.MSG.NEXT.{log}.{durable}",
        f"$JS.ACK.{log}.{durable}.>",
    )


def direct_get(stream: str, *keys: str) -> tuple[str, ...]:
    """The requests for the last message of each subject of a stream, with the subject in the
    request's subject."""
    return each(f"{JS}.DIRECT.GET.{stream}.{{}}", keys)


def read_stream(*streams: str) -> tuple[str, ...]:
    """The requests for any messages of whole streams, which are named in the body of the request:
    only for users that may read all of it."""
    return each(f"{JS}.DIRECT.GET.{{}}", streams)


def namespaced_keys(user: User, kind: str = "*") -> tuple[str, ...]:
    """The subjects of the bucket's keys in the user's namespaces."""
    return each(f"$KV.{subjects.BUCKET}.{kind}.{{}}.*", user.namespace_tokens)


def cluster_keys() -> tuple[str, ...]:
    """The subjects of the bucket's keys for objects without a namespace."""
    return each(f"$KV.{subjects.BUCKET}.{{}}.*", CLUSTER_KINDS)
