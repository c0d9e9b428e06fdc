"""Roles of the account CORE for programs that no workload waits for: forecasts, the watch of the
server, and backups."""

from __future__ import annotations

from typing import Final

from admittance.access.parts import (
    ANSWERS,
    ASK_HEALTH,
    CONNECT,
    HEALTH,
    JS,
    KV,
    KV_CLAIMS,
    KV_PROVIDERS,
    STREAMS,
    direct_get,
    each,
    follow,
    inbox,
    micro_endpoints,
    read_stream,
    rules,
    stream_info,
)
from admittance.access.permissions import Permissions
from admittance.access.users import User
from admittance.events import subjects

FORECAST_ERRORS: Final = f"$KV.{subjects.CLAIMS}.{subjects.FORECAST_ERRORS}"


def forecast(user: User) -> Permissions:
    """The permissions of the forecast, which reads workloads, the configuration of queues and the
    log, and stores its own errors."""
    service = "forecast"
    publish = (
        *CONNECT,
        *stream_info(STREAMS),
        *rules("read the stored objects", *follow(KV)),
        *rules("read a stored object", f"{JS}.STREAM.MSG.GET.{KV}"),
        *rules("read the runs of the last weeks", *read_stream(subjects.STREAM)),
        *rules("read its earlier errors", *direct_get(KV_CLAIMS, FORECAST_ERRORS)),
        *rules("keep its errors", FORECAST_ERRORS),
        *rules("repeat the first question", "admit.api.forecast", "admit.api.forecast.*"),
        *ASK_HEALTH,
        *ANSWERS,
    )
    subscribe = (
        *inbox(user),
        *HEALTH,
        *micro_endpoints(service),
        *rules("answer requests", "admit.api.forecast", "admit.api.forecast.*"),
    )
    return Permissions(publish, subscribe)


def server_watch(user: User) -> Permissions:
    """The permissions to see whether streams store messages: the watch of `admit up` restarts a
    server that does not."""
    publish = (
        *CONNECT,
        *stream_info(STREAMS),
        *rules("write probes", *subjects.PROBES.values()),
        *rules("delete its probes", *each(f"{JS}.STREAM.PURGE.{{}}", subjects.PROBES)),
    )
    return Permissions(publish, inbox(user))


def backup(user: User) -> Permissions:
    """The permissions of the role backup: it reads whole streams and restores them. A restore
    replaces everything, so this role is as powerful as all services together."""
    buckets = (KV, KV_PROVIDERS, KV_CLAIMS, subjects.SUMMARIES)
    publish = (
        *CONNECT,
        *stream_info(STREAMS),
        *rules("list streams", f"{JS}.STREAM.NAMES", f"{JS}.STREAM.LIST"),
        *rules("read streams", *each(f"{JS}.STREAM.SNAPSHOT.{{}}", STREAMS)),
        *rules("confirm parts of a backup", *each("$JS.SNAPSHOT.ACK.{}.*.*.*", STREAMS)),
        *rules("restore streams", *each(f"{JS}.STREAM.RESTORE.{{}}", STREAMS)),
        *rules("send parts of a backup", *each("$JS.SNAPSHOT.RESTORE.{}.*", STREAMS)),
        *rules(
            "read what was stored during a snapshot",
            *read_stream(*buckets),
            *each(f"{JS}.STREAM.MSG.GET.{{}}", buckets),
        ),
        *rules(
            "restore what was stored during a snapshot",
            *each("$KV.{}.>", (subjects.BUCKET, subjects.PROVIDERS, subjects.CLAIMS)),
            "admit.usage.>",
        ),
        *rules("read the positions of consumers", f"{JS}.CONSUMER.LIST.{subjects.STREAM}"),
        *rules("restore the positions of consumers", f"{JS}.CONSUMER.CREATE.{subjects.STREAM}.*"),
        *rules("see whether services run", "admit.api.health"),
    )
    return Permissions(publish, inbox(user))
