"""What happened to workloads: facts of the log, the outcome of a fact, and the output of pods."""

from __future__ import annotations

from datetime import datetime

import msgspec

from admittance.events.requests.base import Reply, Request
from admittance.events.shapes import PodLog, PodRetries


class Events(Request, frozen=True, kw_only=True):
    """``admit.api.events[.<ns>]``: history from the log, oldest first, or with ``newest_first`` the
    newest first.

    ``workload`` selects one name in the namespace of the subject, ``also`` further names, such as a
    parent's variants; ``family``: also the parent and the variants of the workload that exist now.
    ``only``: only facts about workloads with these tokens, such as ``quota_released``, without dead
    letters; empty: all facts. Versions before this field return all facts.
    ``types``: only messages of these `FACT_TYPES`; empty: all. ``queue``: only facts about the
    workloads of this LocalQueue or ClusterQueue, of deleted ones only those that name it; "": all.
    ``after``, ``before``: the reply has only log entries after, and before, this sequence; 0: no
    bound. ``since``, ``until``: only log entries from this time on, and before this time. The reply
    has at most ``limit`` log entries. A service of an earlier version ignores a field:
    `EventsReply.applied` shows that."""

    workload: str = ""
    also: tuple[str, ...] = ()
    family: bool = False
    only: tuple[str, ...] = ()
    types: tuple[str, ...] = ()
    queue: str = ""
    after: int = 0
    before: int = 0
    since: datetime | None = None
    until: datetime | None = None
    newest_first: bool = False
    limit: int = 500


class LogEntry(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A message of the log. ``trace``: the message's W3C traceparent. ``outcome``, ``reason``,
    ``message``: as in `SettledReply`; all "" if the fact was applied, or if the workload-controller
    does not remember its outcome."""

    sequence: int
    time: datetime
    subject: str
    data: msgspec.Raw
    trace: str = ""
    outcome: str = ""
    reason: str = ""
    message: str = ""


class EventsReply(Reply, frozen=True, kw_only=True):
    """``complete``: false if the log may have more entries after the sequence ``after``, up to
    which this reply covers the log; the reply may have no entries. With the newest first: more
    entries before the sequence ``before``; the reply covers the log from it up to ``after``.
    ``applied``:
    the fields ``newest_first``, ``before``, ``until``, ``types`` and ``queue`` that the request had
    and the service used. ``compacted_until``: facts about workloads from before this time were
    removed from the log to keep it small; None: none were."""

    entries: tuple[LogEntry, ...] = ()
    complete: bool = True
    after: int = 0
    before: int = 0
    applied: tuple[str, ...] = ()
    compacted_until: datetime | None = None

    def covered(self) -> int:
        """The sequence after which the next request continues."""
        return max(self.after, self.entries[-1].sequence if self.entries else 0)


class Logs(Request, frozen=True, kw_only=True):
    """``admit.api.logs.<ns>``: output of the pods of a workload, from ``offsets`` on.

    Every runner receives this request; only a runner that has the workload answers. ``pod`` None:
    all pods. ``tail``: number of last lines for a pod without an offset; None: all lines.
    ``before``: selects the newest run with an admission below this revision; 0: the newest run.
    ``revision``, ``part``: selects a part of the job of the admission at this revision; 0: any."""

    name: str
    pod: int | None = None
    offsets: dict[str, int] = msgspec.field(default_factory=dict)
    tail: int | None = None
    before: int = 0
    revision: int = 0
    part: int = 0


class LogsReply(Reply, frozen=True, kw_only=True):
    """``revision``: revision of the admission with which the run began. ``waiting``: why the runner
    has not started the run yet. ``retries``: the failed pods of a run that goes on; None: none.
    ``part``: which part of a job on several machines the pods are; ``parts``: how many it has, each
    of which its runner answers for; 0: the run is the whole job. ``missing``: which parts have no
    answer, set by the program that asks for all parts."""

    pods: tuple[PodLog, ...] = ()
    complete: bool = True
    revision: int = 0
    waiting: str = ""
    retries: PodRetries | None = None
    part: int = 0
    parts: int = 0
    missing: str = ""


class Settled(Request, frozen=True, kw_only=True):
    """``admit.api.settled[.<ns>]``: answered once every fact up to ``sequence`` has had its effect.
    With a namespace, the reply has no outcome if the fact is about another namespace."""

    sequence: int


class SettledReply(Reply, frozen=True, kw_only=True):
    """The outcome of the fact at ``sequence``: applied, ignored (it changed nothing), refused or
    dead-lettered, with ``reason`` and ``message``; "" if the fact is too old."""

    outcome: str = ""
    reason: str = ""
    message: str = ""
