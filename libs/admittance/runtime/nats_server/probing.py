"""Whether the server stores what is published: a write to each stream, which is taken back.

A nats-server (2.15.1, measured) whose disk is full answers every question and acknowledges no
write, without a word. It takes no write to that stream afterwards either, also with space on the
disk again, until it is restarted. Nothing but a write shows that.
"""

from __future__ import annotations

import asyncio
from typing import Final

from admittance.events import subjects
from admittance.runtime.bus import streams
from admittance.runtime.bus.bus import Bus, Outgoing
from admittance.runtime.errors import AdmittanceError

SECONDS: Final = 3.0
"""Longest wait for an acknowledgement, and for the probe to be taken back."""

PROBES: Final = {
    subjects.STREAM: "admit.lease.probe",
    subjects.TIMERS: "admit.timer.probe",
    subjects.CHECKPOINTS: "admit.checkpoint.probe",
    streams.KV_LOG: f"$KV.{subjects.BUCKET}._admittance.probe",
    streams.KV_CLAIMS: f"$KV.{subjects.CLAIMS}._admittance.probe",
    streams.KV_PROVIDERS: f"$KV.{subjects.PROVIDERS}._admittance.probe",
}
"""Subjects that no service reads anything from."""


async def refusals(bus: Bus, *, seconds: float = SECONDS) -> dict[str, AdmittanceError]:
    """Why streams do not take writes, by the name of the stream; empty when all do. Unavailable:
    the server did not acknowledge."""
    errors = await asyncio.gather(*(_refusal(bus, name, seconds) for name in PROBES))
    return {name: error for name, error in zip(PROBES, errors, strict=True) if error is not None}


async def _refusal(bus: Bus, name: str, seconds: float) -> AdmittanceError | None:
    subject = PROBES[name]
    try:
        await bus.publish(Outgoing(subject, b""), timeout=seconds)
    except AdmittanceError as error:
        return error
    finally:
        await _take_back(bus, name, subject, seconds)
    return None


async def _take_back(bus: Bus, name: str, subject: str, seconds: float) -> None:
    try:
        await bus.api(f"STREAM.PURGE.{name}", {"filter": subject}, timeout=seconds)
    except AdmittanceError:
        # An empty message that nothing reads; the next probe takes it back too.
        return
