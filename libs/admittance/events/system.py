"""Messages that are not about one workload: leases, barriers, objects, dead letters."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Any, Final

import msgspec

from admittance.events.base import null
from admittance.folders import FolderSight


class SystemMessage(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A message of the system itself."""


class Epoch(SystemMessage, frozen=True, kw_only=True):
    """``admit.lease.epoch.<domain>``: from this sequence on, ``owner`` leads the domain.

    ``config``: the owner's settings for decisions that differ from the defaults. ``process``:
    distinguishes the writer from all other processes that ever run as ``owner``.
    """

    domain: str
    owner: str
    time: datetime | None = None
    config: dict[str, Any] | None = None
    process: str = ""


class Barrier(SystemMessage, frozen=True, kw_only=True):
    """``admit.lease.barrier.<domain>``: requests an echo once every earlier fact is committed."""

    domain: str
    owner: str
    epoch: int


class BarrierEcho(SystemMessage, frozen=True, kw_only=True):
    """Bucket key ``barrier.<domain>``: everything before the barrier of ``epoch`` is committed."""

    domain: str
    epoch: int


class Restored(SystemMessage, frozen=True, kw_only=True):
    """Bucket key ``_admittance.restored``: the deployment was restored at ``time`` from a backup of
    the time ``backup``. Decisions on the log from before the restore are void: the revisions
    that they had seen may never have been restored.
    """

    backup: datetime | None = None
    time: datetime | None = None


class RunnerStarts(SystemMessage, frozen=True, kw_only=True):
    """Which jobs a runner starts, by submitter and namespace.

    ``namespaces``: the runner leaves jobs of other namespaces to other runners; empty: none.
    ``submitters``: the users whose jobs it starts; ``refused``: users whose jobs it does not start
    whatever the other fields say. ``all_of``: the namespaces of which it starts
    the jobs of all submitters. ``unknown``: whether it starts the jobs of unknown submitters.
    ``every``: whether it starts the jobs of all submitters. ``images``: patterns of the images that
    it may run; empty: all images. ``lacks``: what no job gets from it: ``hostPath``, and ``values``
    of ConfigMaps and Secrets. ``pods``: the most pods at once of a job that it starts; a pod
    counts once for each of its containers; 0: any number.
    """

    namespaces: tuple[str, ...] = ()
    submitters: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()
    all_of: tuple[str, ...] = ()
    unknown: bool = False
    every: bool = False
    images: tuple[str, ...] = ()
    lacks: tuple[str, ...] = ()
    pods: int = 0


class RunnerAnnouncement(SystemMessage, frozen=True, kw_only=True):
    """Key ``_runner.<runner>`` of the claims bucket. ``root``: the path of the runner's data
    folder. ``starts``: which jobs the runner starts; None: all jobs. ``consumer``: the name
    whose token is the part after ``runner-`` in the name of the runner's consumer; "": not
    known. ``folders``: which folders its processes see; None: it starts none. ``at``: when it was
    written. ``placement``: the runner leaves jobs that are placed on other runners to them; earlier
    versions do not."""

    root: str = ""
    starts: RunnerStarts | None = None
    consumer: str = ""
    folders: FolderSight | None = None
    at: datetime | None = None
    placement: bool = False


class Alive(SystemMessage, frozen=True, kw_only=True):
    """Key ``_alive.<service>.<instance>`` of the claims bucket, with a TTL: the instance is alive.
    This Struct is also the request and the reply on ``admit.alive.instance.<service>.<instance>``.

    ``process``: distinguishes the writer from all other processes that ever run as this instance.
    """

    service: str
    instance: str
    process: str = ""


class ObjectApplied(SystemMessage, frozen=True, kw_only=True):
    """``admit.object.{applied,deleted}.…``: a manifest other than a workload changed.

    ``parameters_changed``: an AdmissionCheck names other parameters than before, or its former
    parameters are not known. ``user``: the user that applied or deleted the manifest; "": unknown.
    """

    kind: str
    namespace: str = ""
    name: str
    revision: int
    object: msgspec.Raw = msgspec.field(default_factory=null)
    time: datetime | None = None
    parameters_changed: bool = False
    user: str = ""


EVERY_CALL_FAILS: Final = "Every call of the check's function raises an error"
"""First words of the message in the heartbeat of a controller that gives no verdict, because its
function has failed several times in a row."""


class CheckActive(SystemMessage, frozen=True, kw_only=True):
    """Whether a check controller can evaluate one of its AdmissionChecks, and if not, why."""

    active: bool = True
    reason: str = ""
    message: str = ""


class CheckAlive(SystemMessage, frozen=True, kw_only=True):
    """``admit.alive.check.<controller>``, every 10 s: this controller is alive. No field is
    required. An unreadable heartbeat does not count; an empty one counts only if the controller has
    sent heartbeats that are not empty.

    ``instance`` distinguishes the replicas of one program. ``program``: name of the program that
    the replicas run; two programs under one controller's name are reported, since they would take
    each other's requests. ``active``, ``reason``, ``message`` hold for all checks of the
    controller, ``checks`` for single ones.
    """

    time: datetime | None = None
    instance: str = ""
    program: str = ""
    active: bool = True
    reason: str = ""
    message: str = ""
    checks: dict[str, CheckActive] = msgspec.field(default_factory=dict)


class ProviderAlive(SystemMessage, frozen=True, kw_only=True):
    """``admit.alive.provisioning.<class>``, every 10 s: the provider of that class is alive. No
    field is required. An unreadable heartbeat does not count; an empty one counts only if the class
    has sent heartbeats that are not empty.

    ``since``: start of the provider's process; after a restart the provider is asked for the status
    of its requests. ``parameters``: the parameters that the provider understands; empty: all.
    """

    time: datetime | None = None
    instance: str = ""
    since: datetime | None = None
    program: str = ""
    active: bool = True
    reason: str = ""
    message: str = ""
    parameters: tuple[str, ...] = ()


class Changed(SystemMessage, frozen=True, kw_only=True):
    """``admit.changed.<domain>``, at most four a second: quota or queues of the domain changed. The
    message is empty and not kept on the log: ask for the numbers."""


class DeadLetterReason(StrEnum):
    """Why the workload-controller cannot apply a message of the log.

    ``LEADS_TO_NOTHING``: the fact is readable but cannot be applied.
    """

    UNDECODABLE = "Undecodable"
    INVALID = "Invalid"
    LEADS_TO_NOTHING = "LeadsToNothing"


class DeadLetter(SystemMessage, frozen=True, kw_only=True):
    """``admit.deadletter.<service>``: a message that could not be processed, with the reason.

    ``data``: the payload as text, if it is UTF-8; else ``data64`` has the payload in base64.
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
