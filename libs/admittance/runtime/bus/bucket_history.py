"""The stream that keeps every revision of the bucket of workloads, for pictures of the past.

The stream has the bucket as its *source*. A mirror would have the revisions of the bucket as its
own sequences, but nats-server lets a mirror of the same account answer the direct gets of its
origin (`mirror_direct`, which cannot be turned off; measured on 2.15.1): every second list of the
bucket then had old revisions. Each message names its revision in the header ``Nats-Stream-Source``.

Nothing depends on the stream: it may be deleted, a server that refuses it is used without it, and a
backup leaves it out.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from admittance.events import subjects
from admittance.runtime import clock
from admittance.runtime.bus.bus import Bus
from admittance.runtime.bus.streams import DAY, DEDUPE, KV_LOG, NO_STREAM
from admittance.runtime.errors import BusRefused, BusUnavailable
from admittance.runtime.telemetry.logger import logger

log = logger()

SOURCE_HEADER: Final = "Nats-Stream-Source"
OF_BUCKET: Final = "admittance-bucket"
"""Key of the metadata: when the bucket was created of which the stream has the revisions."""
BEGINS: Final = "admittance-begins"
"""Key of the metadata: the revision from which on every revision is there, and the sequence of the
stream with it, as ``<revision>/<sequence>``; absent until both are known."""
FOLLOWS_SECONDS: Final = 2.0
"""How long a new stream is awaited until it has what the bucket has."""
PAUSE_SECONDS: Final = 0.02


class HistoryState(NamedTuple):
    """What the stream has. ``bucket``: when its bucket was created, as the server writes it.
    ``begins``: the revision from which on every revision is there; None: it has not caught up yet.
    ``first``, ``last``: sequences of the stream, not revisions. ``reached``: the newest revision
    that it has; ``lag``: how many revisions it is behind. ``missing``: how many revisions since it
    began it lacks, because they were replaced in the bucket while it was behind."""

    bucket: str
    begins: int | None
    first: int
    last: int
    reached: int
    lag: int
    missing: int


def state_of(info: Mapping[str, Any]) -> HistoryState:
    """What the info of the stream says."""
    metadata = info["config"].get("metadata") or {}
    state = info["state"]
    [source] = info.get("sources") or [{}]
    revision, _, sequence = str(metadata.get(BEGINS, "")).partition("/")
    known = revision.isdecimal() and sequence.isdecimal()
    last, reached = int(state["last_seq"]), int(source.get("seq", 0))
    # The bucket gives each write the next revision, and the stream each message the next sequence.
    missing = (reached - int(revision)) - (last - int(sequence)) if known else 0
    return HistoryState(
        bucket=str(metadata.get(OF_BUCKET, "")),
        begins=int(revision) if known else None,
        first=int(state["first_seq"]),
        last=last,
        reached=reached,
        lag=int(source.get("lag", 0)),
        missing=max(0, missing),
    )


async def read_state(bus: Bus) -> HistoryState | None:
    """What the stream has; None: it does not exist, or it has the revisions of a bucket that was
    replaced. Raises BusRefused or BusUnavailable."""
    info = await _info(bus, subjects.HISTORY)
    if info is None:
        return None
    state = state_of(info)
    bucket = await _info(bus, KV_LOG)
    return state if bucket is not None and bucket["created"] == state.bucket else None


def revision_of(headers: Mapping[str, str]) -> int:
    """The revision of the bucket that a message of the stream is. Raises ValueError if it names
    none."""
    words = headers.get(SOURCE_HEADER, "").split(" ")
    if len(words) < 2 or not words[1].isdecimal():
        raise ValueError("the message names no revision of the bucket")
    return int(words[1])


async def ensure_history(bus: Bus, *, days: int, replicas: int = 1, bytes_max: int = 0) -> None:
    """Creates the stream, or corrects its age, bytes and replicas; ``days`` 0: deletes it.
    ``bytes_max``: above this size the oldest revisions go; 0: no limit. A server that refuses it is
    used without it, and the reason is logged."""
    try:
        await _ensure(bus, days, replicas, bytes_max)
    except (BusRefused, BusUnavailable) as error:
        log.warning("history_not_kept", stream=subjects.HISTORY, reason=str(error))


async def _ensure(bus: Bus, days: int, replicas: int, bytes_max: int) -> None:
    info = await _info(bus, subjects.HISTORY)
    if info is None and not days:
        return
    bucket = await _info(bus, KV_LOG)
    if bucket is None:
        raise BusUnavailable(f"stream {KV_LOG} is missing")
    if info is not None and (not days or state_of(info).bucket != bucket["created"]):
        # The bucket was replaced, so that its revisions began anew, or the setting says none.
        await bus.api(f"STREAM.DELETE.{subjects.HISTORY}")
        log.info("history_deleted", stream=subjects.HISTORY)
        info = None
    if not days:
        return
    limits = {"max_age": days * DAY, "max_bytes": bytes_max or -1, "num_replicas": replicas}
    if info is None:
        made = _config(str(bucket["created"]), limits)
        await bus.api(f"STREAM.CREATE.{subjects.HISTORY}", made)
        info = await bus.api(f"STREAM.INFO.{subjects.HISTORY}")
    elif any(info["config"].get(key) != value for key, value in limits.items()):
        kept = {**limits, "num_replicas": max(replicas, info["config"].get("num_replicas", 1))}
        await bus.api(f"STREAM.UPDATE.{subjects.HISTORY}", {**info["config"], **kept})
    if state_of(info).begins is None:
        await _note_begin(bus)


def _config(bucket: str, limits: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "name": subjects.HISTORY,
        "sources": [{"name": KV_LOG}],
        "retention": "limits",
        "storage": "file",
        "compression": "s2",
        "max_msgs_per_subject": -1,
        "discard": "old",
        "allow_direct": True,
        "allow_rollup_hdrs": False,
        "duplicate_window": DEDUPE,
        "metadata": {OF_BUCKET: bucket},
        **limits,
    }


async def _note_begin(bus: Bus) -> None:
    """Stores in the metadata from which revision on the stream has every revision: from the moment
    at which it has caught up with the bucket. Revisions that were replaced before are not in it.
    Without an answer in time the next start does it."""
    deadline = clock.monotonic() + FOLLOWS_SECONDS
    while True:
        bucket = await _info(bus, KV_LOG)
        info = await _info(bus, subjects.HISTORY)
        if bucket is None or info is None:
            raise BusUnavailable("the bucket or its history was deleted")
        state = state_of(info)
        reached = state.reached
        if reached >= int(bucket["state"]["last_seq"]):
            config = dict(info["config"])
            config["metadata"] = {**config["metadata"], BEGINS: f"{reached}/{state.last}"}
            await bus.api(f"STREAM.UPDATE.{subjects.HISTORY}", config)
            log.info("history_begins", stream=subjects.HISTORY, revision=reached)
            return
        if clock.monotonic() > deadline:
            log.warning("history_is_behind", stream=subjects.HISTORY, revision=reached)
            return
        await asyncio.sleep(PAUSE_SECONDS)


async def _info(bus: Bus, stream: str) -> dict[str, Any] | None:
    try:
        return await bus.api(f"STREAM.INFO.{stream}")
    except BusRefused as error:
        if error.code == NO_STREAM:
            return None
        raise
