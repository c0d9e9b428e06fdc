"""Requests that change something: apply or delete manifests, wait for the effect of facts.

The workload-controller answers; see `requests` for what all of them share.
"""

from __future__ import annotations

import msgspec

from admittance.events.requests import Reply, Request


class Apply(Request, frozen=True, kw_only=True):
    """``admit.api.apply[.<ns>]``: all of these manifests, or none. JSON objects, as bytes."""

    objects: tuple[msgspec.Raw, ...]


class Applied(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """``outcome``: created, changed or unchanged."""

    kind: str
    namespace: str = ""
    name: str
    outcome: str
    revision: int = 0
    warnings: tuple[str, ...] = ()


class ApplyReply(Reply, frozen=True, kw_only=True):
    """On an error nothing was applied; ``problems`` lists everything wrong, a line each."""

    results: tuple[Applied, ...] = ()
    problems: tuple[str, ...] = ()


class Delete(Request, frozen=True, kw_only=True):
    """``admit.api.delete[.<ns>]``: delete an object other than a workload."""

    kind: str
    namespace: str = ""
    name: str


class DeleteReply(Reply, frozen=True, kw_only=True):
    """``outcome``: deleted, absent, or deferred: the object is still in use (``error`` names the
    users), is marked, and is deleted once nothing uses it."""

    outcome: str = ""


class Settled(Request, frozen=True, kw_only=True):
    """``admit.api.settled``: answered once every fact up to ``sequence`` has had its effect."""

    sequence: int


class SettledReply(Reply, frozen=True, kw_only=True):
    """The outcome of the fact at ``sequence``: applied, ignored (it changed nothing), refused or
    dead-lettered, with ``reason`` and ``message``; "" when the fact is too old."""

    outcome: str = ""
    reason: str = ""
    message: str = ""
