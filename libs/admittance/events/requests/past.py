"""Questions about the past, which a process of the scheduler answers.

``admit.api.then_objects``, ``then_pending``, ``then_queues`` and ``then_explain``, each with
``[.<ns>]`` as the request of the same name about the present has it, and ``then_moment``, which
answers only with the moment."""

from __future__ import annotations

from datetime import datetime
from typing import Final

import msgspec

from admittance.events.requests.base import Reply, Request

THEN: Final = "then_"
ABOUT: Final = ("explain", "moment", "objects", "pending", "queues")
"""What may be asked about the past."""


class Then(Request, frozen=True, kw_only=True):
    """A question about the moment ``at``: after the fact with that sequence of the log, or at that
    time. ``query``: the request about the present, such as a `PendingQuery`. ``name``: of
    ``then_objects``, only the object of that name. ``whole``: of ``then_explain``, the scheduler's
    code explains the workload again, which takes seconds; else the reply has what was stored and
    the room that there was."""

    at: int | datetime
    query: msgspec.Raw = msgspec.Raw(b"{}")
    name: str = ""
    whole: bool = False


class Moment(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A moment of the past. ``sequence``: of the newest fact on the log then; ``revision``: the
    newest revision of the bucket; None: its commit is not recorded yet. ``lacks``: how many
    revisions shortly before it the history lacks, so that some objects may be shown as they were
    just before; only in answers with objects. ``facts``: how many messages of the log the
    picture is made from, a second for some thousands of them, since the history of the bucket
    begins later; 0: the history has the moment."""

    sequence: int
    time: datetime
    revision: int | None = None
    lacks: int = 0
    facts: int = 0


class ThenReply(Reply, frozen=True, kw_only=True):
    """``reply``: the reply to the query, as of the moment."""

    moment: Moment | None = None
    reply: msgspec.Raw = msgspec.Raw(b"{}")


class ThenTask(Request, frozen=True, kw_only=True):
    """What a scheduler gives to the process that answers. ``id`` 0: the process answers one
    question. ``folder``: of the index; ``config``: the configuration of the scheduler.
    ``from_log``: the process may make states from the log; else it answers such a question with its
    moment."""

    subject: str
    then: Then
    id: int = 0
    folder: str = ""
    from_log: bool = False
    config: msgspec.Raw = msgspec.Raw(b"{}")


class ThenAnswer(Request, frozen=True, kw_only=True):
    """The answer of that process to the task of this ``id``."""

    id: int
    reply: ThenReply
