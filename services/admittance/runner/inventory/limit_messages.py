"""What the machine cannot limit, and which devices it cannot keep apart, in words."""

from __future__ import annotations

from collections.abc import Iterable

from admittance.events.stored.machines import Device
from admittance.runner.groups.job_groups import Offers


def limit_messages(offers: Offers) -> tuple[str, ...]:
    """What the groups of the machine cannot do, one sentence each, for its inventory."""
    why = f": {offers.why_not}" if offers.why_not else ""
    lacking = [
        word
        for word, offered in (
            ("memory", offers.memory),
            ("cpu", offers.cpu),
            ("processes", offers.processes),
        )
        if not offered
    ]
    return (f"cannot limit {' and '.join(lacking)} of jobs{why}",) if lacking else ()


def why_not_denied(offers: Offers) -> str:
    """Why jobs are kept from no devices, as a clause; "": they can be kept from some."""
    if offers.devices:
        return ""
    if offers.version == "v2":
        return "cgroup v2 does that by BPF programs only"
    return offers.why_not or "the machine has no control groups"


def advice_messages(devices: Iterable[Device], denied: frozenset[str], why: str) -> tuple[str, ...]:
    """Which devices a job could use without having got them, one sentence each. ``denied``: the
    resources of which jobs are kept from devices. ``why``: why jobs are kept from no devices, as a
    clause."""
    free = sorted({device.resource for device in devices} - denied)
    said = []
    if free:
        reason = why or "their files in /dev are not known"
        said.append(
            f"the assignment of devices is advice for {', '.join(free)}: a job is not kept from "
            f"those of other jobs, since {reason}"
        )
    if shared := sorted(
        {device.resource for device in devices if device.id.startswith("MIG-")} & denied
    ):
        said.append(
            f"the assignment of devices is advice for {', '.join(shared)} within one card: its "
            "parts have the file of the card"
        )
    return tuple(said)
