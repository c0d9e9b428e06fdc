"""Finds entries of the log and the buckets that cannot be read and that services set aside.

Each search reads all entries with the readers of the services, so no service has to run.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from admittance.events import subjects
from admittance.events.names import plain
from admittance.events.reader import BROKEN, Reader, SetAside, Unreadable, number, reason_of
from admittance.events.system import Epoch, ObjectApplied
from admittance.provider_pool.ledger import read_booking
from admittance.providers.builtin import installation_key
from admittance.providers.status_store import read_status
from admittance.provisioning.records import read_record
from admittance.runner import other_folders
from admittance.runner.claims import read_holder
from admittance.runtime.bus.bucket import BucketReader, Entry
from admittance.runtime.bus.bus import Bus
from admittance.runtime.bus.durables import foreign_reason
from admittance.runtime.bus.history import StoredMessage, last
from admittance.runtime.bus.messages import SECRET_KEY
from admittance.runtime.errors import Refused, Unavailable
from admittance.runtime.leader import lease_store
from admittance.scheduler.service import read_echo
from admittance.scheduler.usage_keys import read_usage
from admittance.workload.bucket_reader import names_of, read_manifest, read_whole
from admittance.workload_controller.checkpoints import all_checkpoints
from admittance.workload_controller.journal import read_commits

AT_ONCE: Final = 100
"""The most requests to the server at the same time."""
PROBE: Final = "_admittance.probe"
"""The key of a probe write, in every bucket for a moment; not an unreadable entry."""
INSTALLATIONS: Final = frozenset(map(installation_key, ("docker", "kubernetes")))
_applied = Reader(ObjectApplied)
_epoch = Reader(Epoch)


async def set_aside(bus: Bus, consumers: Sequence[Mapping[str, Any]]) -> list[SetAside]:
    """All unreadable entries: first consumers of the log, then by bucket and key, then stream and
    subject. Raises Refused or Unavailable."""
    found: list[SetAside] = []
    log = await lease_store.end_of_log(bus)
    for name, judge in (
        (subjects.BUCKET, _judge_value(log)),
        (subjects.CLAIMS, judge_claim),
        (subjects.PROVIDERS, judge_of_providers),
    ):
        found += await _of_bucket(bus, name, judge)
    found += await _of_log(bus)
    found += (await all_checkpoints(bus))[1]
    found += await _of_commits(bus)
    return [*_of_consumers(consumers, await lease_store.end_of_log(bus)), *found]


# Buckets. -------------------------------------------------------------------------------


async def _of_bucket(bus: Bus, name: str, judge: Callable[[Entry], None]) -> list[SetAside]:
    found: dict[str, SetAside] = {}
    reader = BucketReader(bus, bucket=name)
    try:
        async for entries in reader.batches():
            for entry in entries:
                found.pop(entry.key, None)
                if entry.value is None or entry.key == PROBE:
                    continue
                try:
                    judge(entry)
                except BROKEN as error:
                    found[entry.key] = SetAside(
                        f"KV_{name}", entry.key, entry.revision, reason_of(error)
                    )
            if reader.loaded.is_set():
                break
    finally:
        await reader.close()
    return list(found.values())


def _judge_value(end: int) -> Callable[[Entry], None]:
    def judge(entry: Entry) -> None:
        value = entry.value or b""
        match entry.key.split(".")[0]:
            case "workload":
                names_of(entry.key)
                fact = read_whole(entry.key, value).status.log.fact
                # The log may have grown since its end was read, so a fact a little after the end is
                # possible.
                if fact > max(end, entry.revision) + 1_000_000:
                    raise Unreadable(f"status.log.fact: {fact} is after the end of the log, {end}")
            case "barrier":
                read_echo(entry.key, value)
            case subjects.USAGE:
                names_of(entry.key)
                read_usage(value)
            case subjects.CAPACITY:
                read_record(entry.key, value)
            case "_admittance" if entry.key == "_admittance.manifests":
                if number(value) is None:
                    raise Unreadable("it has no epoch")
            case "_admittance" if entry.key == SECRET_KEY:
                pass
            case _:
                names_of(entry.key)
                read_manifest(entry.key, value)

    return judge


def judge_claim(entry: Entry) -> None:
    """Raises one of `BROKEN` if runners cannot read this entry of the claims bucket."""
    if entry.key == SECRET_KEY:
        return
    if entry.key.startswith("_alive."):
        lease_store.instance_of(entry)
        return
    if entry.key.startswith(f"{other_folders.FOLDER_PREFIX}."):
        other_folders.read_root(entry.value or b"")
        return
    namespace, _, rest = entry.key.partition(".")
    name, _, revision = rest.partition(".")
    if number(revision) is None:
        raise Unreadable("this is not the key of a claim")
    plain(namespace), plain(name)
    read_holder(entry.value or b"")


def judge_of_providers(entry: Entry) -> None:
    """Raises one of `BROKEN` if providers cannot read this entry of the providers' bucket."""
    value = entry.value or b""
    if entry.key == "_pool_led":
        return
    if entry.key in INSTALLATIONS:
        value.decode()
        return
    if entry.key.startswith("_pool."):
        read_booking(entry.key, value)
    else:
        read_status(value)


# Streams. -------------------------------------------------------------------------------


async def _of_log(bus: Bus) -> list[SetAside]:
    """Unreadable messages among the last message about each manifest and each domain, which
    services read when they start.
    """
    bucket = await bus.api(f"STREAM.INFO.KV_{subjects.BUCKET}")
    newest = int(bucket["state"]["last_seq"])
    names: list[str] = []
    for pattern in ("admit.object.>", f"{subjects.EPOCH}>"):
        info = await bus.api(f"STREAM.INFO.{subjects.STREAM}", {"subjects_filter": pattern})
        names += info["state"].get("subjects") or {}
    found = []
    for start in range(0, len(names), AT_ONCE):
        part = names[start : start + AT_ONCE]
        for one in await asyncio.gather(*(last(bus, name) for name in part)):
            if one is None:
                continue
            try:
                _judge_message(one, newest)
            except BROKEN as error:
                found.append(SetAside(subjects.STREAM, one.subject, one.sequence, reason_of(error)))
    return found


def _judge_message(one: StoredMessage, newest: int) -> None:
    if one.subject.startswith(subjects.EPOCH):
        domain = plain(one.subject.removeprefix(subjects.EPOCH))
        if _epoch(one.data).domain != domain:
            raise Unreadable(f"its payload names the domain {_epoch(one.data).domain}")
    elif not 0 <= (revision := _applied(one.data).revision) <= newest:
        raise Unreadable(f"revision {revision} is after the end of the bucket, {newest}")


async def _of_commits(bus: Bus) -> list[SetAside]:
    try:
        found = await last(bus, subjects.COMMITS, stream=subjects.CHECKPOINTS)
    except (Refused, Unavailable):
        return []
    try:
        if found is not None:
            read_commits(found.data)
    except Unreadable as error:
        assert found is not None, "it was read"
        return [SetAside(subjects.CHECKPOINTS, found.subject, found.sequence, str(error))]
    return []


def _of_consumers(consumers: Sequence[Mapping[str, Any]], end: int) -> list[SetAside]:
    found = []
    for info in consumers:
        stem, _, turn = info["name"].rpartition("-")
        stem, _, generation = stem.rpartition("-")
        made = number(generation)
        if made is None or number(turn) is None or stem not in READERS:
            continue
        floor = max(info["ack_floor"]["stream_seq"], info["config"].get("opt_start_seq", 1) - 1)
        if why := foreign_reason(info["config"], made, floor, end):
            found.append(SetAside(subjects.STREAM, info["name"], 0, why))
    return found


READERS: Final = ("workload-controller", "provisioning-check")
"""Name prefixes of consumers that a leader creates for itself."""


def remedy(one: SetAside) -> str:
    """The command that removes the unreadable entry."""
    if one.reason.startswith("a consumer"):
        return f"nats consumer rm {one.stream} {one.place}"
    if not one.stream.startswith("KV_"):
        return "the next message on that subject replaces it"
    bucket = one.stream.removeprefix("KV_")
    kind, *names = one.place.split(".")
    if kind == "workload" and len(names) == 2:
        return (
            "its quota is not counted by services that start from now on: `admit delete workload`, "
            f"submit it again, or `nats kv del {bucket} {one.place}`"
        )
    return f"nats kv del {bucket} {one.place}"
