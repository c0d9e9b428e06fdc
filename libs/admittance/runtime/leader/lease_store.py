"""Leases on the bus: epochs on the log, heartbeats in the claims bucket.

An epoch is the sequence of the last message on ``admit.lease.epoch.<domain>``. An instance takes
over with a message that expects the last epoch, so only one of two competing instances succeeds.
After the takeover the server refuses every message whose fence has the old epoch. The heartbeat is
a key with a TTL, separate from the epoch, so that a renewed heartbeat does not move the fence.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from admittance.events import subjects
from admittance.events.names import BadToken, plain, token
from admittance.events.reader import Reader, SetAside, Unreadable, number
from admittance.events.system import Alive, Epoch
from admittance.lease import Fence
from admittance.runtime.bus.bucket import TTL, Entry, delete_message, put_message
from admittance.runtime.bus.bus import EXPECTED, FENCE, Bus
from admittance.runtime.bus.history import last
from admittance.runtime.telemetry.logger import log_set_aside

_encode = msgspec.json.Encoder().encode
_epoch = Reader(Epoch)
_alive = Reader(Alive)


def epoch_subject(domain: str) -> str:
    """The subject on which the domain's epochs are published."""
    return f"{subjects.EPOCH}{token(domain)}"


def fence(domain: str, epoch: int) -> dict[str, str]:
    """Headers that make the server refuse a message once the domain has a newer epoch."""
    return {EXPECTED: str(epoch), FENCE: epoch_subject(domain)}


def fence_of(headers: Mapping[str, str]) -> Fence | None:
    """The fence in the headers of a stored message; None if the message has no fence."""
    subject = headers.get(FENCE, "")
    epoch = number(headers.get(EXPECTED, ""))
    if not subject.startswith(subjects.EPOCH) or epoch is None:
        return None
    try:
        return Fence(plain(subject.removeprefix(subjects.EPOCH)), epoch)
    except BadToken:
        return None


async def read_epoch(bus: Bus, domain: str) -> tuple[int, Epoch | None]:
    """The domain's last epoch and its content; (0, None) if the log holds no epoch of the
    domain.
    """
    message = await last(bus, epoch_subject(domain))
    if message is None:
        return 0, None
    try:
        content = _epoch(message.data)
        if content.domain != domain:
            raise Unreadable(f"the epoch message names another domain: {content.domain}")
    except Unreadable as error:
        # An unreadable epoch message is still the domain's last epoch, so a takeover must expect
        # its sequence.
        log_set_aside(SetAside(subjects.STREAM, message.subject, message.sequence, str(error)))
        return message.sequence, None
    return message.sequence, content


def process_of(value: bytes) -> str:
    """The process that wrote a heartbeat; empty if an older version or a foreign program wrote
    it.
    """
    try:
        return _alive(value).process
    except Unreadable:
        return ""


async def end_of_log(bus: Bus) -> int:
    """The sequence of the newest message on the log."""
    info = await bus.api(f"STREAM.INFO.{subjects.STREAM}")
    return int(info["state"]["last_seq"])


# Heartbeats. ------------------------------------------------------------------------------


def alive_key(service: str, instance: str) -> str:
    """The key of an instance's heartbeat: ``_alive.<service>.<instance>`` in the claims bucket."""
    return f"_alive.{token(service)}.{token(instance)}"


async def write_heartbeat(
    bus: Bus, service: str, instance: str, *, ttl_seconds: float, process: str = ""
) -> int:
    """Writes a heartbeat of the instance that expires after ``ttl_seconds`` (whole seconds)."""
    content = Alive(service=service, instance=instance, process=process)
    key = alive_key(service, instance)
    return await bus.publish(
        put_message(
            key, _encode(content), expected=None, ttl_seconds=ttl_seconds, bucket=subjects.CLAIMS
        )
    )


async def delete_heartbeat(bus: Bus, service: str, instance: str, *, timeout: float = 10.0) -> int:
    """Deletes the instance's heartbeat, so that other instances need not wait for its TTL."""
    key = alive_key(service, instance)
    return await bus.publish(
        delete_message(key, expected=None, ttl_seconds=60, bucket=subjects.CLAIMS), timeout=timeout
    )


def instance_of(entry: Entry) -> str:
    """The instance that a heartbeat belongs to. Raises Unreadable for a key that no Admittance
    instance wrote: a heartbeat under such a key that never expires would block a takeover.
    """
    service, _, name = entry.key.removeprefix("_alive.").partition(".")
    try:
        service, instance = plain(service), plain(name)
    except BadToken as error:
        raise Unreadable(str(error)) from None
    if entry.value is not None:
        content = _alive(entry.value)
        if (content.service, content.instance) != (service, instance):
            raise Unreadable(
                f"the heartbeat names another instance: {content.service} {content.instance}"
            )
        if TTL not in entry.headers:
            raise Unreadable("the heartbeat has no time to live")
    return instance
