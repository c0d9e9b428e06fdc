"""Requests to the workload-controller of programs that read without a consumer of their own."""

from __future__ import annotations

from datetime import datetime

import msgspec

from admittance.events.requests.base import Reply, Request
from admittance.folders import SubmittedFrom


class Objects(Request, frozen=True, kw_only=True):
    """``admit.api.objects[.<ns>]``: the stored objects of one kind, by revision. Objects with a
    namespace are those of the namespace in the subject, or of all namespaces if it is ``_``;
    without a namespace in the subject, the objects that have none. ``name``: only objects of this
    name; "": all.

    ``kind``: the first token of the keys in the bucket, such as ``workload``. ``after``: only
    objects with a later revision; the reply has at most ``limit`` objects. ``inParts``: the reply
    may come in several messages, and then has more objects; without ``inParts`` a reply has at most
    500 objects."""

    kind: str
    after: int = 0
    limit: int = 500
    in_parts: bool = False
    name: str = ""


class ObjectEntry(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """``value`` is left out if it is not JSON or too long for a reply: a direct get of
    ``$KV.admittance.<key>`` returns it."""

    key: str
    revision: int
    value: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


class ObjectsReply(Reply, frozen=True, kw_only=True):
    """``last``: the ``after`` of the next request; 0 if these are the last objects. An object that
    changes between two requests is in both replies; the later one is right. ``parts``: the number
    of messages of this reply, in each of which ``last`` is the same."""

    objects: tuple[ObjectEntry, ...] = ()
    last: int = 0
    parts: int = 1


class Usage(Request, frozen=True, kw_only=True):
    """``admit.api.usage[.<ns>]``: the quota that workloads of one namespace, or of all, have held,
    and what came of them.

    ``by``: words of `admittance.usage.report.BY`; the reply has one sum for each of their values;
    empty: one sum. ``running_only``: only what workloads hold now, and then ``by`` may also have
    words like ``label:team``. ``since``, ``until``: the first and the last day, like
    ``2026-11-26``, in UTC; "": the first day of the month of the last day, and today. ``after``:
    only sums after so many; the reply has at most ``limit`` sums. ``check``: the stored sums of all
    days that are wholly on the log are compared with it, and computed anew where they differ; the
    reply says what was found, and has no sums."""

    by: tuple[str, ...] = ()
    since: str = ""
    until: str = ""
    running_only: bool = False
    check: bool = False
    after: int = 0
    limit: int = 1000


class UsageSum(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """One sum. ``group``: the values of the words of the request, in their order.

    ``runs``: admissions that ended in these days; ``finished``, ``failed``: workloads that finished
    then; ``evicted``: admissions that ended otherwise. ``running``: workloads that hold quota now.
    ``wait_seconds``: how long workloads had waited for the quota that they released then.
    ``resource_seconds``: by resource, the amount of held quota times seconds, as a decimal number:
    cores for cpu, and bytes for memory.

    Set by the program that asks: ``used``, ``share``: what was used of a unit, and the part of all
    sums; ``entitled``: the part of all quota that the group has of its own; None: not known.
    ``cost``: by the prices that the program has. "": not asked for."""

    group: tuple[str, ...] = ()
    runs: int = 0
    finished: int = 0
    failed: int = 0
    evicted: int = 0
    running: int = 0
    wait_seconds: int = 0
    resource_seconds: dict[str, str] = msgspec.field(default_factory=dict)
    used: str = ""
    share: float | None = None
    entitled: float | None = None
    cost: str = ""


class UsageCheck(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What a comparison of the sums with the log has found. ``since``: the first day that is wholly
    on the log, "": the log is empty; ``runs``: on the log; ``corrected``: how many sums of days and
    months differed, and are computed anew; ``differences``: a sentence about each of the first
    ones. ``ahead``: days with sums that have not begun, since the clock of a leader was ahead."""

    since: str = ""
    runs: int = 0
    corrected: int = 0
    differences: tuple[str, ...] = ()
    ahead: tuple[str, ...] = ()


class UsageReply(Reply, frozen=True, kw_only=True):
    """``since``, ``until``: the first and the last day of the sums. ``begins``: the day of the
    first sum that is kept; "": there is none. ``more``: whether more sums follow. ``checked``: the
    result of a check."""

    since: str = ""
    until: str = ""
    begins: str = ""
    sums: tuple[UsageSum, ...] = ()
    more: bool = False
    checked: UsageCheck | None = None


class Files(Request, frozen=True, kw_only=True):
    """``admit.api.files.<ns>``: whether workloads of the namespace may have files."""


class FilesReply(Reply, frozen=True, kw_only=True):
    """``limit``: the most bytes that the inputs of one workload may have together. ``error`` says
    why no workload may have files."""

    limit: int = 0


class Runners(Request, frozen=True, kw_only=True):
    """``admit.api.runners.<ns>``: whether a runner would start the job of a workload that waits, or
    of one that is not submitted.

    ``name``: the workload that waits; "": ``workload`` is the manifest of one that is not
    submitted, and ``user`` the person that would submit it. ``folder``: only whether the runners
    that start jobs of ``user`` see this folder is asked. ``queue``: the LocalQueue of the job with
    the folder; "": any of the namespace. Runners that have the labels of none of its flavors are
    left out."""

    name: str = ""
    workload: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    user: str = ""
    folder: SubmittedFrom | None = None
    queue: str = ""


class FolderView(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """``why``: why the runner does not see the folder of the request; "": it does. ``other_user``:
    whether it runs the job as another Unix user than the folder's ``uid``."""

    runner: str
    why: str = ""
    other_user: bool = False


class RunnersReply(Reply, frozen=True, kw_only=True):
    """``why``: why no runner would start the job, as a sentence. ``advice``: what the submitter or
    an admin does, as the rest of the sentence. ``needed``: what would let a runner start it. All
    are "" if a runner starts it, or if no runner of the namespace has announced which jobs it
    starts. ``folder``: for a request with a folder, each runner that may start the job and has
    announced itself in the last minutes."""

    why: str = ""
    advice: str = ""
    needed: str = ""
    folder: tuple[FolderView, ...] = ()


class Announced(Request, frozen=True, kw_only=True):
    """``admit.api.runners``: which runners have announced themselves."""


class AnnouncedRunner(msgspec.Struct, frozen=True, kw_only=True):
    """``consumer``: the name whose token is the part after ``runner-`` in the name of the runner's
    consumer of the log; "": not known. ``since``: when the runner announced itself last. ``older``:
    the runner is of a version that starts also what is placed on other runners."""

    runner: str
    consumer: str = ""
    since: datetime | None = None
    older: bool = False


class AnnouncedReply(Reply, frozen=True, kw_only=True):
    """Runners announce themselves every ten minutes; announcements are kept for two days."""

    runners: tuple[AnnouncedRunner, ...] = ()


class RunnerConsumer(Request, frozen=True, kw_only=True):
    """``admit.api.consumer.runner.<runner>[.<namespaces>]``: makes the consumer of the runner anew,
    since runners may not create consumers. ``<namespaces>``: the namespaces of the runner, sorted
    and joined by commas, as one token; without this token the consumer reads all namespaces. The
    consumer is named ``runner-<runner>``; it belongs to one process.

    ``stream``: ``log`` for admissions and evictions, ``claims`` for changes of claims. ``after``:
    the consumer begins after this sequence. None: for the log where the previous consumer of the
    runner stopped, or at the end; for claims with the present ones. ``id``: copies of one request
    have the same; a copy leaves the consumer as the request has made it. Empty: each copy makes the
    consumer anew."""

    stream: str = "log"
    after: int | None = None
    id: str = ""


class TelemetryConsumer(Request, frozen=True, kw_only=True):
    """``admit.api.consumer.telemetry``: makes the consumer ``telemetry`` of the log anew, since the
    telemetry service may not create consumers.

    ``instance``: the instance that will read; the answer is an error while another instance reads.
    ``after``: the consumer begins after this sequence. None: where the previous consumer stopped,
    or at the end of the log."""

    instance: str
    after: int | None = None


class ConsumerReply(Reply, frozen=True, kw_only=True):
    """``after``: the sequence after which the consumer begins. ``pending``: how many messages the
    consumer has to deliver. ``last``: the newest sequence of the stream. ``reader``: the other
    instance of the telemetry service that reads, if one does; then no consumer was made.
    """

    consumer: str = ""
    after: int = 0
    pending: int = 0
    last: int = 0
    reader: str = ""
