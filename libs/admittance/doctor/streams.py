"""Checks of `admit doctor`: streams, their replicas, and whether they take writes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from admittance.doctor.finding import Finding, note, ok, wrong
from admittance.events import subjects
from admittance.events.requests.services import HealthReply
from admittance.runtime.bus import streams
from admittance.runtime.bus.bus import NOT_PERMITTED, Bus
from admittance.runtime.bus.streams import (
    NO_STREAM,
    PROBE_SECONDS,
    StreamInfos,
    write_refusals,
)
from admittance.runtime.errors import AdmittanceError, BusRefused, BusUnavailable
from admittance.runtime.telemetry.findings import size_of

FULL_DISK: Final = (
    "in a cluster look first whether a majority of its servers runs; else look at the server's log "
    "for `no space left on device`, make space, then restart nats-server: it does not recover by "
    "itself (docs/operations.md#the-disk-is-full)"
)
NO_ANSWER: Final = (
    "look whether the servers run, and whether a majority of a cluster does: "
    "docs/operations.md#a-server-died"
)
AWAY_SECONDS: Final = 5.0
"""A replica of a stream counts as away if the stream's leader has heard nothing from it for this
long; a working replica sends something every second. nats-server itself calls the replica offline
only after a minute.
"""
DIED: Final = "start the server, and look at its log: docs/operations.md#a-server-died"


def stream_findings(infos: StreamInfos) -> list[Finding]:
    """Findings about settings, size and replicas of each stream."""
    lines = [
        wrong(f"stream {name}", f"no answer about it: {error}", NO_ANSWER)
        for name, error in infos.items()
        if isinstance(error, AdmittanceError)
    ]
    for problem in streams.problems_of(infos):
        make = wrong if problem.harmful else note
        lines.append(make(f"stream {problem.stream}", problem.found, problem.todo))
    known = answered(infos)
    for name, info in known.items():
        state, config = info["state"], info["config"]
        size = f"{state['messages']:,} messages, {size_of(state['bytes'])}"
        copies = f"{config.get('num_replicas', 1)} replica(s), {config.get('storage', '?')}"
        lines.append(ok(f"stream {name}", f"{size}, {copies}"))
    return lines + offline_findings(known)


def answered(infos: StreamInfos) -> dict[str, dict[str, Any]]:
    """The info of each stream that has answered."""
    return {name: info for name, info in infos.items() if isinstance(info, dict)}


def offline_findings(infos: Mapping[str, Mapping[str, Any]]) -> list[Finding]:
    """A finding for each server of a cluster that has replicas away or behind, and for each stream
    without a leader or without some of its replicas. ``infos``: the info of each stream.
    """
    away: dict[str, list[str]] = {}
    behind: dict[str, list[str]] = {}
    without: list[str] = []
    joining: list[str] = []
    for stream, info in infos.items():
        cluster = info.get("cluster") or {}
        if "name" in cluster and not cluster.get("leader"):
            # Only the leader of a stream knows which replicas of the stream are away.
            without.append(stream)
            continue
        replicas = cluster.get("replicas") or []
        wanted = (info.get("config") or {}).get("num_replicas", 1)
        if len(replicas) < wanted - 1:
            # Replicas were added a moment ago. Until a new replica is listed, the server
            # acknowledges writes without it (measured on nats-server 2.15.1).
            joining.append(f"{stream} has {1 + len(replicas)} of {wanted}")
        for replica in replicas:
            name = replica.get("name", "?")
            if replica.get("offline") or replica.get("active", 0) > AWAY_SECONDS * streams.SECOND:
                away.setdefault(name, []).append(stream)
            elif not replica.get("current"):
                lag = f" ({replica['lag']:,} behind)" if replica.get("lag") else ""
                behind.setdefault(name, []).append(f"{stream}{lag}")
    return [
        *(
            wrong(f"server {name}", f"away: it has replicas of {', '.join(names)}", DIED)
            for name, names in away.items()
        ),
        *(
            wrong(
                f"server {name}",
                f"its replicas are behind: {', '.join(names)}",
                "wait until it has caught up; if it does not, look at its log",
            )
            for name, names in behind.items()
            if name not in away
        ),
        *(
            wrong(f"stream {name}", "no server leads it, so nothing is written to it", NO_ANSWER)
            for name in without
        ),
        *(
            wrong(
                "new replicas",
                f"not in place yet, so a server that is lost takes new writes with it: {text}",
                "wait until they are in place; if they do not come, look at the servers' logs",
            )
            for text in [", ".join(joining)]
            if joining
        ),
    ]


def replica_findings(infos: StreamInfos, replies: Iterable[HealthReply]) -> list[Finding]:
    """The streams with fewer replicas than a service asks for."""
    asked = max(((reply.replicas, reply.service) for reply in replies), default=(0, ""))
    return fewer_replicas(
        asked,
        {name: info["config"].get("num_replicas", 1) for name, info in answered(infos).items()},
    )


def fewer_replicas(asked: tuple[int, str], replicas: Mapping[str, int]) -> list[Finding]:
    """The finding about streams with fewer replicas; empty if there are none. ``asked``: the wanted
    number, and the service that asks for it; ``replicas``: the replicas of each stream."""
    number, service = asked
    fewer = [f"{name} has {count}" for name, count in replicas.items() if count < number]
    if not fewer:
        return []
    return [
        wrong(
            "replicas",
            f"{service} asks for {number} (ADMIT_REPLICAS), but {', '.join(fewer)}",
            f"start {number} servers as one cluster, then restart a workload-controller: it adds "
            "the replicas, or logs `replicas_not_added` with the reason",
        )
    ]


async def write_findings(bus: Bus, *, seconds: float = PROBE_SECONDS) -> list[Finding]:
    """A finding for each stream that refuses a probe write; a single finding if all streams take
    the write. Missing streams are left out: `stream_findings` names them.
    """
    refused = await write_refusals(bus, seconds=seconds)
    missing = [name for name in refused if await _is_missing(bus, name)]
    for name in missing:
        del refused[name]
    if not refused and missing:
        return []
    if refused and all(_is_not_permitted(error) for error in refused.values()):
        return [note("writes", "not probed: this login may not write; the services tell theirs")]
    if not refused:
        return [ok("writes", f"all {len(subjects.PROBES)} streams take writes")]
    return [
        wrong(
            f"stream {name}",
            f"takes no writes: a probe was not acknowledged in {seconds:g} s, although the server "
            "answers",
            FULL_DISK,
        )
        if isinstance(error, BusUnavailable)
        else wrong(f"stream {name}", f"takes no writes: {error}", "look at the log of nats-server")
        for name, error in refused.items()
    ]


def _is_not_permitted(error: AdmittanceError) -> bool:
    return isinstance(error, BusRefused) and error.code == NOT_PERMITTED


async def _is_missing(bus: Bus, name: str) -> bool:
    try:
        await bus.api(f"STREAM.INFO.{name}")
    except BusRefused as error:
        return error.code == NO_STREAM
    except BusUnavailable:
        return False
    return False
