"""Creates the streams and buckets with the right settings, and checks them at every start.

This module uses the JetStream API directly, so its settings have the server's names.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final, NamedTuple, TypeAlias

from admittance.events import subjects
from admittance.runtime.bus.bus import Bus, Outgoing
from admittance.runtime.errors import (
    AdmittanceError,
    BusRefused,
    BusUnavailable,
    Meaning,
    SetupError,
    StaleRevision,
    is_temporary,
    refusal,
)
from admittance.runtime.telemetry.logger import logger

log = logger()

NO_STREAM: Final = 10059
SECOND: Final = 1_000_000_000
DAY: Final = 86_400 * SECOND
LOG_AGE: Final = 42 * DAY
"""Nanoseconds for which a fact stays on the log before the server removes it."""
DEDUPE: Final = 120 * SECOND
MARKER_AGE: Final = 3600
"""Seconds that the marker of an expired key stays visible to readers that were not connected."""
EXPIRY_MARKERS: Final = {"subject_delete_marker_ttl": MARKER_AGE * SECOND}
"""Settings of a bucket with values that may expire. Without markers, if the server is killed after
a value expired, the value before the expired one comes back (measured on 2.15.1): a finished job
would run again, and released capacity would count as booked.
"""

KV_LOG: Final = f"KV_{subjects.BUCKET}"
KV_PROVIDERS: Final = f"KV_{subjects.PROVIDERS}"
KV_CLAIMS: Final = f"KV_{subjects.CLAIMS}"


class Stream(NamedTuple):
    """``required``: if an existing stream has other values, a SetupError is raised. ``adjustable``:
    settings that are set at creation and corrected in an existing stream, which is harmless.
    """

    name: str
    required: Mapping[str, Any]
    adjustable: Mapping[str, Any]


def all_streams(replicas: int = 1, log_days: int = 0) -> tuple[Stream, ...]:
    """All streams, in the order of creation: the log sources the timers stream. ``log_days``: how
    long a fact stays on the log; 0: `LOG_AGE`."""
    common = {"retention": "limits", "storage": "file"}
    unlimited = {"max_msgs": -1, "max_bytes": -1, "max_age": 0}
    bucket = {
        "max_msgs_per_subject": 1,
        "discard": "new",
        "deny_delete": True,
        "allow_rollup_hdrs": True,
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
                # The server refuses schedules in a stream with discard policy "new"; without limits
                # nothing is discarded.
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
                    f"{subjects.USER_FACTS}>",
                ],
                "discard": "new",
                "allow_atomic": True,
                # With `allow_msg_schedules` or `allow_rollup_hdrs`, a client that may publish on
                # one subject could empty the log with one header.
                "allow_msg_schedules": False,
                "allow_rollup_hdrs": False,
                "sources": [{"name": subjects.TIMERS, "filter_subject": f"{subjects.TIMER_DUE}>"}],
            },
            {
                "allow_direct": True,
                "num_replicas": replicas,
                "duplicate_window": DEDUPE,
                "max_age": log_days * DAY or LOG_AGE,
            },
        ),
        Stream(
            subjects.CHECKPOINTS,
            {
                **common,
                "subjects": ["admit.checkpoint.>"],
                # Checkpoints only save time and are never needed, so the oldest is deleted first.
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
            subjects.SUMMARIES,
            {
                **common,
                "subjects": ["admit.usage.>"],
                "max_msgs_per_subject": 1,
                # Sums of years are kept: facts of which they are made have left the log.
                "max_age": 0,
                "discard": "new",
                "allow_rollup_hdrs": False,
            },
            {
                "allow_direct": True,
                "compression": "s2",
                "num_replicas": replicas,
                "duplicate_window": DEDUPE,
            },
        ),
        Stream(
            KV_LOG,
            {**common, **bucket, "subjects": [f"$KV.{subjects.BUCKET}.>"], "allow_atomic": True},
            {
                # The entries of finished workloads and the markers of deleted workloads expire.
                "allow_msg_ttl": True,
                "allow_direct": True,
                "num_replicas": replicas,
                "duplicate_window": DEDUPE,
                **EXPIRY_MARKERS,
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
            {
                "allow_direct": True,
                "num_replicas": replicas,
                "duplicate_window": DEDUPE,
                **EXPIRY_MARKERS,
            },
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
                "allow_direct": True,
                "num_replicas": replicas,
                "duplicate_window": DEDUPE,
                **EXPIRY_MARKERS,
            },
        ),
    )


async def ensure(bus: Bus, *, replicas: int = 1, log_days: int = 0, may_write: bool = True) -> None:
    """Creates missing streams, corrects adjustable settings, and adds missing subjects and
    replicas. Replicas that cannot be added to an existing stream are logged. ``log_days``: how long
    a fact stays on the log, also on an existing one; 0: an existing log keeps its setting.

    ``may_write`` False: the streams are only checked, because this program has no permission to
    create or update a stream; a stream that must be created or updated raises BusUnavailable.
    Raises SetupError with stream, setting and both values for a wrong required setting, and
    BusUnavailable, Busy or Full if the servers cannot create or correct a stream now.
    """
    bus.nc.replicas_wanted = replicas
    for stream in all_streams(replicas, log_days):
        config = await _config(bus, stream.name)
        if not may_write:
            _check(stream, config)
            continue
        if config is None:
            made = {"name": stream.name, **stream.required, **stream.adjustable}
            try:
                await bus.api(f"STREAM.CREATE.{stream.name}", made)
            except BusRefused as error:
                if error.meaning is not Meaning.TAKEN:
                    raise _creation_error(stream.name, error, replicas) from None
                # Another service created the stream at the same moment: check its settings.
            config = await _config(bus, stream.name)
            if config is None:
                # The servers of a cluster need a moment until all of them know a new stream.
                raise BusUnavailable(f"stream {stream.name} is being created")
        config = await _with_subjects(bus, stream, config)
        wrong = _differences(stream.required, config)
        if wrong:
            raise SetupError(f"stream {stream.name}: {wrong[0]}")
        kept = _CREATION_ONLY - (
            {"max_age"} if log_days and stream.name == subjects.STREAM else set()
        )
        adjustable = {k: v for k, v in stream.adjustable.items() if k not in kept}
        if _differences(adjustable, config):
            config = {**config, **adjustable}
            try:
                await bus.api(f"STREAM.UPDATE.{stream.name}", config)
            except BusRefused as error:
                raise _creation_error(stream.name, error) from None
        if config.get("num_replicas", 1) < replicas:
            await _add_replicas(bus, stream.name, config, replicas)


def _check(stream: Stream, config: Mapping[str, Any] | None) -> None:
    """Raises BusUnavailable if the stream must be created or updated first, and SetupError for a
    wrong required setting."""
    if config is None:
        raise BusUnavailable(f"stream {stream.name} is missing: the workload-controller creates it")
    lacks_subjects = set(config.get("subjects") or ()) < set(stream.required["subjects"])
    if lacks_subjects:
        raise BusUnavailable(f"stream {stream.name} is old: the workload-controller updates it")
    wrong = _differences(stream.required, config)
    if wrong:
        raise SetupError(f"stream {stream.name}: {wrong[0]}")


async def _add_replicas(bus: Bus, name: str, config: Mapping[str, Any], replicas: int) -> None:
    try:
        await bus.api(f"STREAM.UPDATE.{name}", {**config, "num_replicas": replicas})
    except BusRefused as error:
        reason = _why_no_replicas(name, error, replicas) or str(error)
        log.warning("replicas_not_added", stream=name, reason=reason)
    else:
        log.info("replicas_added", stream=name, replicas=replicas)


async def _with_subjects(bus: Bus, stream: Stream, config: dict[str, Any]) -> dict[str, Any]:
    """Adds the subjects that an existing stream lacks because an earlier version created it;
    returns its settings. A stream that also has other subjects is not changed."""
    wanted = stream.required["subjects"]
    if not set(config.get("subjects") or ()) < set(wanted):
        return config
    grown = {**config, "subjects": wanted}
    try:
        await bus.api(f"STREAM.UPDATE.{stream.name}", grown)
    except BusRefused as error:
        raise _creation_error(stream.name, error) from None
    return grown


class StreamProblem(NamedTuple):
    """A setting of a stream that differs from the right value. ``harmful``: False if an operator
    may want the setting to differ. ``todo``: how a person corrects the setting.
    """

    stream: str
    found: str
    todo: str
    harmful: bool = True


StreamInfos: TypeAlias = dict[str, dict[str, Any] | AdmittanceError | None]
"""For each stream its info, or the error with which the read of the info failed; None if the stream
is missing.
"""


async def stream_infos(bus: Bus) -> StreamInfos:
    """The info of all streams."""
    names = [stream.name for stream in all_streams()]
    return dict(
        zip(names, await asyncio.gather(*(_info(bus, name) for name in names)), strict=True)
    )


async def _info(bus: Bus, name: str) -> dict[str, Any] | AdmittanceError | None:
    try:
        return await bus.api(f"STREAM.INFO.{name}")
    except (BusRefused, BusUnavailable) as error:
        return None if isinstance(error, BusRefused) and error.code == NO_STREAM else error


def problems_of(infos: StreamInfos) -> list[StreamProblem]:
    """The problems of the streams that have answered or are missing."""
    return problems(
        {
            name: info if info is None else info["config"]
            for name, info in infos.items()
            if not isinstance(info, AdmittanceError)
        }
    )


def problems(configs: Mapping[str, Mapping[str, Any] | None]) -> list[StreamProblem]:
    """The settings of streams that differ from the right values. ``configs``: the settings of
    streams; None for a missing stream. Every stream needs as many replicas as the stream with the
    most replicas.
    """
    replicas = max([config.get("num_replicas", 1) for config in configs.values() if config] or [1])
    result: list[StreamProblem] = []
    for stream in all_streams(replicas):
        if stream.name not in configs:
            continue
        config = configs[stream.name]
        if config is None:
            todo = "restore a backup if it had data; else start a service, which creates it empty"
            result.append(StreamProblem(stream.name, "missing", todo))
            continue
        wanted = {**stream.required, **stream.adjustable}
        for setting, value in wanted.items():
            for difference in _differences({setting: value}, config):
                result.append(_problem(stream, setting, value, difference, config))
    return result


def _problem(
    stream: Stream, setting: str, value: Any, difference: str, config: Mapping[str, Any]
) -> StreamProblem:
    name = stream.name
    match setting:
        case "num_replicas":
            return StreamProblem(name, difference, f"`nats stream edit {name} --replicas {value}`")
        case "max_age" if setting in stream.adjustable:
            age = int(config.get("max_age") or 0)
            kept = f"{age / DAY:.3g} days" if age else "without a limit"
            edit = f"`nats stream edit {name} --max-age {value // SECOND}s`"
            todo = f"nothing if it is on purpose, as with ADMIT_LOG_DAYS; else {edit}"
            what = f"keeps messages {kept}; {value // DAY} days are usual"
            return StreamProblem(name, what, todo, harmful=False)
    if setting in stream.adjustable:
        todo = "restart the workload-controller, which corrects it at its start"
    else:
        todo = f"correct it with `nats stream edit {name}`: services do not start before"
    return StreamProblem(name, difference, todo)


_CREATION_ONLY: Final = frozenset({"num_replicas", "max_age"})
"""Adjustable settings that `ensure` keeps in an existing stream: an operator may have changed them
on purpose; ``log_days`` replaces that choice. `ensure` adds missing replicas of a stream, but
removes none.
"""


async def _config(bus: Bus, name: str) -> dict[str, Any] | None:
    try:
        info = await bus.api(f"STREAM.INFO.{name}")
    except BusRefused as error:
        if error.code == NO_STREAM:
            return None
        raise
    return dict(info["config"])


def _differences(settings: Mapping[str, Any], config: Mapping[str, Any]) -> list[str]:
    return [
        f"{setting} is {_shown(config.get(setting))}, {_shown(value)} is needed"
        for setting, value in settings.items()
        if not _same(value, config.get(setting))
    ]


def _same(wanted: Any, actual: Any) -> bool:
    if isinstance(wanted, list):
        if not isinstance(actual, list) or len(wanted) != len(actual):
            return False
        if all(isinstance(item, str) for item in wanted):
            return sorted(wanted) == sorted(actual)
        return all(
            all(theirs.get(key) == value for key, value in ours.items())
            for ours, theirs in zip(wanted, actual, strict=True)
        )
    # The server leaves out settings that are false or zero, so these count as equal.
    return bool(wanted == actual or (not wanted and not actual))


def _shown(value: Any) -> str:
    return "off" if value is None or value is False else "on" if value is True else str(value)


NO_PEERS: Final = 10005
NO_CLUSTER: Final = 10074


def _why_no_replicas(name: str, error: BusRefused, replicas: int) -> str:
    """What a person must do if the server cannot keep so many replicas of a stream; "" if the error
    has another reason.
    """
    if error.code == NO_PEERS:
        return (
            f"stream {name} needs {replicas} servers (ADMIT_REPLICAS) of one cluster that run and "
            "have room: start the missing servers, or set a smaller number"
        )
    if error.code == NO_CLUSTER:
        return (
            f"stream {name} cannot have {replicas} replicas (ADMIT_REPLICAS), because the server "
            f"is not part of a cluster: set 1, or start {replicas} servers as a cluster"
        )
    return ""


def _creation_error(name: str, error: BusRefused, replicas: int = 1) -> SetupError:
    why = _why_no_replicas(name, error, replicas)
    if why and is_temporary(error):
        raise refusal(error.code, why)
    if why:
        return SetupError(why)
    if is_temporary(error) or isinstance(error, StaleRevision):
        raise error
    return SetupError(
        f"the server refuses the stream {name}: {error.description} ({error.code}); "
        "it must be nats-server 2.12 or newer, with file storage left"
    )


PROBE_SECONDS: Final = 3.0
"""Longest wait for the acknowledgement of a probe, and for the purge of the probe."""


async def write_refusals(bus: Bus, *, seconds: float = PROBE_SECONDS) -> dict[str, AdmittanceError]:
    """For each stream that does not store messages the reason; empty if all streams store messages.
    The reason BusUnavailable means that the server did not acknowledge the message.

    Publishes a message to each stream and then purges it. After its disk was full, a nats-server
    answers every request but acknowledges no write to a stream that had no room until the server is
    restarted, even with free space again (2.15.1, measured). Only a write shows that a server is in
    that state.
    """
    errors = await asyncio.gather(*(_refusal(bus, name, seconds) for name in subjects.PROBES))
    return {
        name: error
        for name, error in zip(subjects.PROBES, errors, strict=True)
        if error is not None
    }


async def _refusal(bus: Bus, name: str, seconds: float) -> AdmittanceError | None:
    subject = subjects.PROBES[name]
    try:
        await bus.publish(Outgoing(subject, b""), timeout=seconds)
    except AdmittanceError as error:
        return error
    finally:
        # If the purge of a probe fails, the probe, an empty message, stays in the stream until the
        # next probe.
        with suppress(AdmittanceError):
            await bus.api(f"STREAM.PURGE.{name}", {"filter": subject}, timeout=seconds)
    return None
