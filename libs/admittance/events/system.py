"""Messages that are not about one workload: leases, barriers, objects, dead letters."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec

from admittance.events.base import null


class Message(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A message of the system itself."""


class Epoch(Message, frozen=True, kw_only=True):
    """``admit.lease.epoch.<domain>``: from this sequence on, ``owner`` leads the domain.

    ``config``: how it is set up to decide, as far as that is not the default. ``process``: the one
    that wrote this, of all that ever run as ``owner``."""

    domain: str
    owner: str
    time: datetime | None = None
    config: dict[str, Any] | None = None
    process: str = ""


class Barrier(Message, frozen=True, kw_only=True):
    """``admit.lease.barrier.<domain>``: asks for an echo once every earlier fact is committed."""

    domain: str
    owner: str
    epoch: int


class BarrierEcho(Message, frozen=True, kw_only=True):
    """Bucket key ``barrier.<domain>``: everything before the barrier of ``epoch`` is committed."""

    domain: str
    epoch: int


class Alive(Message, frozen=True, kw_only=True):
    """Key ``_alive.<service>.<instance>`` of the claims bucket, with a TTL: this one lives. Also
    question and answer on ``admit.alive.instance.<service>.<instance>``.

    ``process``: the one that says so, of all that ever run as this instance."""

    service: str
    instance: str
    process: str = ""


class ObjectApplied(Message, frozen=True, kw_only=True):
    """``admit.object.{applied,deleted}.…``: a manifest other than a workload changed.

    ``parameters_changed``, of an AdmissionCheck: it names other parameters than before, or nobody
    knows what it named before."""

    kind: str
    namespace: str = ""
    name: str
    revision: int
    object: msgspec.Raw = msgspec.field(default_factory=null)
    time: datetime | None = None
    parameters_changed: bool = False


class CheckActive(Message, frozen=True, kw_only=True):
    """Whether a controller can evaluate one AdmissionCheck of its own, and if not, why."""

    active: bool = True
    reason: str = ""
    message: str = ""


class CheckAlive(Message, frozen=True, kw_only=True):
    """``admit.alive.check.<controller>``, every 10 s: this controller lives. No field is
    required. What cannot be read is no heartbeat; an empty message is one only of a controller that
    has sent others.

    ``instance`` tells the replicas of one program apart. ``program``: what they run; two different
    ones under one controller's name take each other's requests away, and that is reported.
    ``active``, ``reason``, ``message`` hold for all its checks; ``checks`` for those that it names.
    """

    time: datetime | None = None
    instance: str = ""
    program: str = ""
    active: bool = True
    reason: str = ""
    message: str = ""
    checks: dict[str, CheckActive] = msgspec.field(default_factory=dict)


class ProviderAlive(Message, frozen=True, kw_only=True):
    """``admit.alive.provisioning.<class>``, every 10 s: capacity of that class is provided.
    No field is required. What cannot be read is no heartbeat; an empty message is one only of a
    class that has sent others.

    ``since``: when that process began; one that begins anew is asked what became of its requests.
    ``parameters``: those that it understands; none named: whatever it is given.
    """

    time: datetime | None = None
    instance: str = ""
    since: datetime | None = None
    program: str = ""
    active: bool = True
    reason: str = ""
    message: str = ""
    parameters: tuple[str, ...] = ()


class DeadLetter(Message, frozen=True, kw_only=True):
    """``admit.deadletter.<service>``: a message that nobody could use, and why.

    ``data`` is the payload as text where it is UTF-8, else ``data64`` has it in base64.
    """

    service: str
    subject: str
    reason: str
    sequence: int = 0
    data: str | None = None
    data64: bytes | None = None
    truncated: bool = False
    headers: dict[str, str] = msgspec.field(default_factory=dict)
    time: datetime | None = None
