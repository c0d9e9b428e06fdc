"""The streams and buckets: made with the right settings, and checked at every start.

The JetStream API is spoken directly: what a setting is called here is what the server calls it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from admittance.events import subjects
from admittance.runtime.bus.bus import Bus
from admittance.runtime.errors import (
    Meaning,
    Refused,
    SetupError,
    StaleRevision,
    Unavailable,
    passes,
)

NO_STREAM: Final = 10059
SECOND: Final = 1_000_000_000
LOG_AGE: Final = 6 * 7 * 86_400 * SECOND
"""Nanoseconds that a fact stays on the log. Nothing waits longer for its reader."""
DEDUPE: Final = 120 * SECOND
MARKER_AGE: Final = 3600
"""Seconds that the marker of an expired key stays visible to readers that were not connected."""
FOR_GOOD: Final = {"subject_delete_marker_ttl": MARKER_AGE * SECOND}
"""For buckets whose values may expire. Without it, a key's value before the expired one returns if
the server is killed after the expiry (measured on 2.15.1): a finished job would run again, and
released capacity would count as booked."""

KV_LOG: Final = f"KV_{subjects.BUCKET}"
KV_PROVIDERS: Final = f"KV_{subjects.PROVIDERS}"
KV_CLAIMS: Final = f"KV_{subjects.CLAIMS}"


class Stream(NamedTuple):
    """``laws``: required settings; an existing stream with other values is a SetupError.
    ``wishes``: set at creation, and corrected in an existing stream, which is harmless."""

    name: str
    laws: Mapping[str, Any]
    wishes: Mapping[str, Any]


def wanted(replicas: int = 1) -> tuple[Stream, ...]:
    """All streams, in the order in which they are made: the log sources the timers."""
    common = {"retention": "limits", "storage": "file"}
    unlimited = {"max_msgs": -1, "max_bytes": -1, "max_age": 0}
    bucket = {
        "max_msgs_per_subject": 1,
        "discard": "new",
        "deny_delete": True,
        "allow_rollup_hdrs": True,
        "allow_direct": True,
        # Markers of deleted objects must outlive any pause of a stale writer.
        "max_age": 0,
    }
    return (
        Stream(
            subjects.TIMERS,
            {
                **common,
                "subjects": ["admit.timer.>"],
                "allow_msg_schedules": True,
                "max_msgs_per_subject": 1,
                # Scheduling is refused with discard new; without limits nothing is discarded.
                **unlimited,
            },
            {"num_replicas": replicas, "duplicate_window": DEDUPE},
        ),
        Stream(
            subjects.STREAM,
            {
                **common,
                "subjects": [
                    "admit.workload.>",
                    "admit.check.>",
                    "admit.provisioning.>",
                    "admit.object.>",
                    "admit.lease.>",
                    "admit.deadletter.>",
                ],
                "discard": "new",
                "allow_atomic": True,
                # Each lets a client that may publish on one subject empty the log with one header.
                "allow_msg_schedules": False,
                "allow_rollup_hdrs": False,
                "sources": [{"name": subjects.TIMERS, "filter_subject": f"{subjects.TIMER_DUE}>"}],
            },
            {
                "allow_direct": True,
                "num_replicas": replicas,
                "duplicate_window": DEDUPE,
                "max_age": LOG_AGE,
            },
        ),
        Stream(
            subjects.CHECKPOINTS,
            {
                **common,
                "subjects": ["admit.checkpoint.>"],
                # Nothing hangs on it but what can be looked up: the oldest goes first.
                "discard": "old",
                "allow_rollup_hdrs": False,
            },
            {
                "allow_direct": True,
                "compression": "s2",
                "num_replicas": replicas,
                "duplicate_window": DEDUPE,
                "max_age": LOG_AGE,
            },
        ),
        Stream(
            KV_LOG,
            {**common, **bucket, "subjects": [f"$KV.{subjects.BUCKET}.>"], "allow_atomic": True},
            {
                # Finished workloads and the markers of deleted ones go by themselves, in the end.
                "allow_msg_ttl": True,
                "num_replicas": replicas,
                "duplicate_window": DEDUPE,
                **FOR_GOOD,
            },
        ),
        Stream(
            KV_PROVIDERS,
            {
                **common,
                **bucket,
                "subjects": [f"$KV.{subjects.PROVIDERS}.>"],
                "allow_msg_ttl": True,
            },
            {"num_replicas": replicas, "duplicate_window": DEDUPE, **FOR_GOOD},
        ),
        Stream(
            KV_CLAIMS,
            {
                **common,
                **bucket,
                "subjects": [f"$KV.{subjects.CLAIMS}.>"],
                "allow_msg_ttl": True,
            },
            {
                "allow_atomic": True,
                "num_replicas": replicas,
                "duplicate_window": DEDUPE,
                **FOR_GOOD,
            },
        ),
    )


async def ensure(bus: Bus, *, replicas: int = 1) -> None:
    """Makes what is missing, adjusts what may be, and refuses what is wrong.

    Raises SetupError naming stream, setting, found and wanted; Unavailable, Busy or Full where the
    servers cannot do it now.
    """
    for stream in wanted(replicas):
        found = await _config(bus, stream.name)
        if found is None:
            made = {"name": stream.name, **stream.laws, **stream.wishes}
            try:
                await bus.api(f"STREAM.CREATE.{stream.name}", made)
            except Refused as error:
                if error.meaning is not Meaning.TAKEN:
                    raise _unmakable(stream.name, error) from None
                # Another service made it in this very moment: check what it made.
            found = await _config(bus, stream.name)
            if found is None:
                # Being made is not yet being there: the servers of a cluster tell each other.
                raise Unavailable(f"stream {stream.name} is being made")
        wrong = _differences(stream.laws, found)
        if wrong:
            raise SetupError(f"stream {stream.name}: {wrong[0]}")
        wishes = {k: v for k, v in stream.wishes.items() if k not in _KEPT}
        if _differences(wishes, found):
            try:
                await bus.api(f"STREAM.UPDATE.{stream.name}", {**found, **wishes})
            except Refused as error:
                raise _unmakable(stream.name, error) from None


async def check(bus: Bus) -> list[str]:
    """What differs from the wanted settings, a sentence each; empty when all is well."""
    return problems({stream.name: await _config(bus, stream.name) for stream in wanted()})


def problems(found: Mapping[str, Mapping[str, Any] | None]) -> list[str]:
    """What differs in these settings by stream, a sentence each; None: the stream is missing. How
    often each has to be stored is read from the streams: as often as the one stored most often."""
    replicas = max([config.get("num_replicas", 1) for config in found.values() if config] or [1])
    told: list[str] = []
    for stream in wanted(replicas):
        config = found.get(stream.name)
        if config is None:
            told.append(f"stream {stream.name} is missing")
            continue
        differing = _differences({**stream.laws, **stream.wishes}, config)
        told.extend(f"stream {stream.name}: {difference}" for difference in differing)
    return told


_KEPT: Final = frozenset({"num_replicas", "max_age"})
"""Wishes only for a new stream: an operator may have chosen otherwise, with reason."""


async def _config(bus: Bus, name: str) -> dict[str, Any] | None:
    try:
        info = await bus.api(f"STREAM.INFO.{name}")
    except Refused as error:
        if error.code == NO_STREAM:
            return None
        raise
    return dict(info["config"])


def _differences(settings: Mapping[str, Any], found: Mapping[str, Any]) -> list[str]:
    return [
        f"{setting} is {_shown(found.get(setting))}, {_shown(value)} is needed"
        for setting, value in settings.items()
        if not _same(value, found.get(setting))
    ]


def _same(wanted: Any, found: Any) -> bool:
    if isinstance(wanted, list):
        if not isinstance(found, list) or len(wanted) != len(found):
            return False
        if all(isinstance(item, str) for item in wanted):
            return sorted(wanted) == sorted(found)
        return all(
            all(theirs.get(key) == value for key, value in ours.items())
            for ours, theirs in zip(wanted, found, strict=True)
        )
    # The server leaves out what is false or zero.
    return bool(wanted == found or (not wanted and not found))


def _shown(value: Any) -> str:
    return "off" if value is None or value is False else "on" if value is True else str(value)


def _unmakable(name: str, error: Refused) -> SetupError:
    if passes(error) or isinstance(error, StaleRevision):
        raise error
    return SetupError(
        f"the server refuses the stream {name}: {error.description} ({error.code}); "
        "it must be nats-server 2.12 or newer, with file storage left"
    )
